# SPDX-License-Identifier: Apache-2.0
"""Writes the pages under docs/ that are made from code: `python docs/generate.py` (`make docs`).

`pages()` gives their text; a test compares it with what is checked in.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from porter.cli.config import KEYS as KEYS_OF_CONFIG
from porter.diagnostics import EXIT_CODE_TEXT, Code, ExitCode, Severity
from porter.model.dsl.names import KINDS as PYTHON_FACTS
from porter.model.facts import KINDS as FACTS
from porter.model.spellings import MEANINGS
from porter.passes.build_files import port_build_files
from porter.ptx.forms.grammar import Form, expanded
from porter.report.mapping import map_page
from porter.report.mutation_page import mutation_tables, port_table
from porter.report.mutation_review import load_explanations
from porter.rules.engine import Selection
from porter.rules.load import load_rules
from porter.rules.rule import Rule
from porter.verify.mutation_record import Record, read_record

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from equality_table import equality_table, plants_table
from grade_page import grade_page
from hazards_page import hazards_page
from instructions.lowered import lowering
from instructions.simulated import Support, survey
from schema_pages import cases_page, launches_page

DOCS = Path(__file__).resolve().parent

HEADINGS = {
    "0": "Command line, files, configuration",
    "1": "Reading and parsing source",
    "2": "Porting",
    "3": "Building",
    "4": "Simulation",
    "5": "Verification",
    "6": "Rules",
    "7": "Checks",
}


def diagnostics_page() -> str:
    """Every diagnostic by ID. `porter explain PT0001` prints the same texts."""
    return "\n".join(_diagnostics_lines()) + "\n"


def _diagnostics_lines() -> Iterator[str]:
    yield "# Diagnostics"
    yield ""
    yield "Made from `porter/diagnostics/` by `make docs`. IDs are never used again for another message."
    yield ""
    yield "## Exit codes"
    yield ""
    yield from exit_code_table()
    for digit, heading in HEADINGS.items():
        codes = sorted((c for c in Code if c.id[2] == digit), key=lambda c: c.id)
        if not codes:
            continue
        yield ""
        yield f"## {heading}"
        for code in codes:
            info = code.value
            yield ""
            yield f"### {code.id}: {info.title}"
            yield ""
            if info.severity is Severity.ERROR:
                yield f"*{info.severity.value}, exit code {int(info.exit_code)}*"
            else:
                yield f"*{info.severity.value}*"
            yield ""
            yield info.detail
            yield ""
            yield f"**Next step:** {info.next_step}"


def exit_code_table() -> Iterator[str]:
    yield "| code | meaning |"
    yield "|-----:|---------|"
    for code in ExitCode:
        yield f"| {int(code)} | {EXIT_CODE_TEXT[code]} |"


def rules_page() -> str:
    """Every rule, by library. `mappings/*.yaml` holds their examples, which are run as tests."""
    return "\n".join(_rules_lines(load_rules())) + "\n"


def _facts(kinds: Mapping[str, type[Any]]) -> Iterator[str]:
    yield "| fact | fields | meaning |"
    yield "|---|---|---|"
    for kind, fact in kinds.items():
        stated = ", ".join(f"`{f.name}`" for f in dataclasses.fields(fact)) or "–"
        yield f"| `{kind}` | {stated} | {' '.join((fact.__doc__ or '').split())} |"


def _rules_lines(rules: list[Rule]) -> Iterator[str]:
    yield "# Rules"
    yield ""
    yield "Made from `mappings/*.yaml` by `make docs`. *safe*: meaning kept by construction; *review*:"
    yield "kept under the assumption that the reason states; *sketch*: shown, not applied."
    yield ""
    yield "## Facts"
    yield ""
    yield "Rules follow `porter/rules/rules.schema.json`. `recognize` is a regex, or a qualified name, a member of one,"
    yield "a call of one, or a call of a method of `$X` whose class `where` has as `{type: …}`; `$X` stands for one"
    yield "expression, `$$$X` for any list; a name matches as C++ resolves it."
    yield "`where` asks of a capture that it is `const`, `int`, `name` or `expression`, or has `{regex: …}`,"
    yield "`{in: […]}`, `{not: …}`, `{equals: …}` or `{multiple_of: …}`. `as` is one:"
    yield ""
    yield from _facts(FACTS)
    yield ""
    yield "A `spelling` is the fact of a regex: a word that nothing but its spelling tells of. It is `of` one of these:"
    yield "\n| `of` | what the word is |\n|---|---|"
    yield from (f"| `{of}` | {what} |" for of, what in MEANINGS.items())
    yield ""
    yield "In a rule with `language: python` a pattern is a qualified name, as imports lead to it, or a call of one:"
    yield "`house.ops.$NAME.$$$BELOW`, `house.multiply($A, $B, out=$D, $$$REST)`. `$X` stands for one step of the name"
    yield "or one argument, by position or by keyword, `$$$X` for any list of them. A call is replaced or refused; a"
    yield "name may also be one of these facts:"
    yield ""
    yield from _facts(PYTHON_FACTS)
    yield ""
    yield "In a rule with `language: ptx` a pattern is an instruction of an asm statement, with or without operands:"
    yield "`bar.sync $B, 128`, `wgmma.mma_async.sp.$$$MORE`, `m64n${N}k16` for a part of a modifier. `replace` writes"
    yield "another instruction in its place, with captures, and operands as `$op0` or by their names in the instruction"
    yield "table."
    for library in dict.fromkeys(rule.library for rule in rules):
        yield ""
        yield f"## {library[:1].upper()}{library[1:]}"
        for rule in (rule for rule in rules if rule.library == library):
            yield ""
            yield f"### {rule.id}: {rule.title}"
            yield ""
            if rule.recognizers:
                shown = ", ".join(f"`{r.shown}`" for r in rule.recognizers)
                yield f"{shown} · recognized as `{rule.becomes}`"
            elif rule.names and rule.kind == "recognizer":
                yield f"{', '.join(f'`{p.text}`' for p in rule.names)} · recognized as `{rule.becomes}`"
            elif rule.spelling is not None:
                yield f"recognized as `{rule.becomes}`:\n\n    {rule.spelling.pattern.pattern}"
            elif rule.advice is not None:
                yield f"*read by `porter check --sm100`: {rule.becomes}*"
            elif rule.report:
                yield f"*reported, not ported: {rule.report}*"
            else:
                becomes = f" · becomes `{rule.becomes}`" if rule.becomes else ""
                yield f"*{rule.safety.value}*{becomes}"
            yield ""
            yield rule.reason
            if rule.references:
                yield ""
                yield f"References: {'; '.join(rule.references)}"


INSTRUCTIONS_HEAD = """# Instructions

Every instruction form that Porter's parser knows (`porter/ptx/forms`, PTX ISA 9.0), and what becomes of it. Made by
`make docs`, which asks the code itself: each form is compiled for the simulator with every choice of its modifiers,
compiled again for checking mode, and lowered to Hopper.

- **executed**: by the simulator (`yes`, `no`, or what of it is not). Reaching an instruction that is not executed ends
  a run as `incomplete`. For every form marked here the test suite runs at least one instruction
  (`tests/sim/test_instructions_run.py`).
- **followed**: checking mode observes it; `-` where there is nothing to follow (no shared memory, no completion, no
  ordering).
- **Hopper**: on a Hopper GPU it is `native`, `emulated`, `left out` (no effect there) or refused (`no`).

{results}

A form is written as in the table: `<a|b>` is one of several, `?` makes a part optional.
"""

FAMILIES = {
    "integer": "Integers, logic, comparison",
    "floating": "Floating point",
    "conversion": "Conversions",
    "memory": "Loads, stores, atomics, addresses",
    "bulk": "Asynchronous copies and tensor maps",
    "sync": "Barriers, fences, mbarriers, warp exchange",
    "matrix": "Warp and warpgroup matrix products",
    "tcgen05": "Tensor Memory and tcgen05",
    "control": "Control flow and the rest",
}


def _differing(opcode: str, common: set[str]) -> str:
    return ".".join(part for part in opcode.split(".") if part not in common) or opcode


def _executed(support: Support) -> str:
    refused = [s for s in support.samples if s.refused is not None]
    if not support.samples:
        return "no (another target)"
    if not refused:
        return "yes"
    if not support.executed:
        return f"no: {refused[0].refused}" if refused[0].refused != "not modelled" else "no"
    common = {part for s in support.executed for part in s.text.split()[0].rstrip(";").split(".")}
    names = dict.fromkeys(_differing(s.text.split()[0].rstrip(";"), common) for s in refused)
    return "not " + ", ".join(f"`{name}`" for name in names)


def _followed(support: Support) -> str:
    if not support.concerns or not support.executed:
        return "-" if not support.concerns else "no"
    relevant = [s for s in support.executed if s.seen or not _private(s.text)]
    return "yes" if all(s.seen for s in relevant) else "no" if not any(s.seen for s in relevant) else "in part"


def _private(text: str) -> bool:
    return any(f".{space}" in text.split()[0] for space in ("local", "param", "const"))


def _on_hopper(support: Support) -> str:
    found = dict.fromkeys(lowering(s.text, s.target).value for s in support.samples)
    return ", ".join(found) or "-"


def _form_text(form: Form) -> str:
    text = form.pattern
    for part in form.parts:
        if len(part.choices) > 12:
            listed = "|".join(part.choices)
            text = text.replace(listed, f"{part.choices[0]}|...|{part.choices[-1]}")
    shown = re.sub(r"<\w+:([^>]*)>", r"<\1>", text.replace("::", "\0"))
    return shown.replace("\0", "::").replace("|", "\\|")


def instructions_page() -> str:
    lines = []
    counts: dict[str, list[int]] = {}
    for name, title in FAMILIES.items():
        module = importlib.import_module(f"porter.ptx.forms.{name}")
        forms = [row for written in module.FORMS for row in expanded(written)]
        lines += ["", f"## {title}", "", "| form | section | executed | followed | Hopper |", "|---|---|---|---|---|"]
        supports = survey(forms)
        counts[title] = [sum(bool(s.executed) for s in supports), len(supports)]
        for support in supports:
            form = support.form
            lines.append(
                f"| `{_form_text(form)}` | {form.section} | {_executed(support)} | {_followed(support)}"
                f" | {_on_hopper(support)} |"
            )
    table = ["| family | forms | executed |", "|---|---|---|"]
    table += [f"| {title} | {total} | {done} |" for title, (done, total) in counts.items()]
    return INSTRUCTIONS_HEAD.format(results="\n".join(table)) + "\n".join(lines) + "\n"


MUTATION_HEAD = """# Mutation

From the port of every corpus kernel each commit, wait, fence, barrier, arrival, byte count and allocation was left
out or weakened, one at a time, and the result run in the checking simulator: what does the checker notice, and what
would a test of the values have noticed? Made from `docs/results/mutation/` by `make docs`; those results by

```
porter mutate --trust --style compat corpus --record docs/results/mutation --jobs 2
```

which passes over ports that have not changed since (`--again`: over none). `porter mutate FILE` shows the same for
any kernel with a case, `porter mutate --ptx FILE --launch launch.yaml` for one that Porter did not write
([launches.md](launches.md)).

- *of error level*: every reading of the PTX ISA asks for what was taken away. The others take away what only its
  letter asks for (`tcgen05.fence`, cluster scope), which code in circulation leaves out, or what concerns other
  blocks only (`relinquish_alloc_permit`).
- *caught by value*: the run came to its end with other values. What ends by a deadlock or an error is not counted.
- *by hazard in practice*: reported as an error at practice level, or ended by an error, such as a deadlock with the
  waiting barriers named. *by hazard*: the same at strict level, to which ports are held. What the unmutated port
  has from its original does not count for its mutants.
- *harmless by a run*: nobody notices, and a run shows that the edge is redundant. *covered*: other instructions order
  the same accesses; without those the same mutant is caught, as what the table names. *weaker*: leaving the
  instruction out altogether goes unnoticed as well. *execution*: made relaxed, the instruction still orders all that
  depends on it: tcgen05 operations (PTX ISA 9.7.16.6.4), copies, which release their own writes, and what a fence
  ahead of it has released. The others: no warp comes to the instruction,
  nothing uses the mbarrier, or a wait has nothing to wait for (no group is pending, it asks for the phase before an
  mbarrier's first).
- *harmless by review*: nothing in the run depends on it at all; the reason stands in
  `docs/results/mutation/reviewed.yaml`.

Barriers that reduce (`bar.red`) are left alone, as the kernel needs their value. Each mutant runs at one small size
at which every pipeline wraps (`mutate_sizes` of the case), those whose instruction does nothing there at its other
sizes; survivors run once more under random schedules.

"""

FOREIGN_MUTANTS_HEAD = """
## Code that Porter did not write

`porter mutate --ptx FILE --launch launch.yaml` does the same to PTX from anywhere. What only the
strict level reports is marked (`strict_only` in JSON). What survives is explained as above, by a run without what
covers it; the rest is for a person to judge. Of the kernels below that is:

- `tcgen05.relinquish_alloc_permit` left out: it lets other blocks of the SM allocate, and none runs there.
- `tcgen05.fence::before_thread_sync` between `tcgen05.alloc` and the barrier that publishes the address: the allocation
  is synchronous, and no asynchronous operation has been issued (PTX ISA 9.7.16.6.1).
- `tcgen05.fence::after_thread_sync` behind that barrier: the warp that allocates issues the MMAs, and the warps of
  the epilogue execute another one when they have waited for those.
- `tcgen05.wait::ld` behind all but the last of several loads in a row: the last wait stands ahead of what uses any.
- `bar.sync` behind what thread 0 prints of its layouts, in NVIDIA's tutorials: the threads share nothing there.
- `bar.sync` in tutorial 05: ahead of the stores to shared memory, where each thread writes what it has read itself (its
  source says so); and the last two, which follow the barrier that the loads of Tensor Memory are ordered by.
- `mbarrier.try_wait` for each stage at the end of the CuTe DSL kernel (`ab_producer.tail()`): it keeps the block until
  the last commits have arrived, and so do the wait for the result and the meeting of the pair before it. quack's kernel
  ends likewise, in each of its three pipelines.
- in quack's kernel: `griddepcontrol`, as no other grid runs beside this one; `bar.warp.sync` behind an answer of
  `clusterlaunchcontrol` in the warps that load and that ask, all lanes of which meet at the named barrier of the next
  turn, before the place is used again; `bar.sync` ahead of the deallocation, as the loads of Tensor Memory are ordered
  by the barrier ahead of the last store.

A kernel's own line may stand for several: the tutorials' loops are unrolled by four, and one copy is not reached. The
kernels without an origin are in `tests/foreign`. Sizes: keys and heads of attention, M x N x K of GEMMs; kept by

"""

CONFIGURATION = """# Configuration

Settings of a project stand in `porter.toml`, or in `[tool.porter]` of `pyproject.toml`. The nearest one counts: in the
directory of the source that a command is given or above, up to the root of its repository; of two in one directory,
`porter.toml`. A `pyproject.toml` without `[tool.porter]` is passed over. Commands without a source look from the
working directory on. `porter --config FILE` takes another file, `porter --no-config` none; `porter -v COMMAND` and
`porter doctor` say which one is used.

```toml
rules = ["house/rules"]
include-dirs = ["include"]
defines = ["STAGES=4"]
ignore = ["PTR211"]
```

The command line wins: its `--select`, `--ignore`, `--mend` and `--compile` are taken instead of the file's. Its
directories and rules are searched before the file's, its macros and flags stand behind them. A macro that it defines is
left out of the file's. What is said of rules holds for every command that makes a port, so that
`porter verify` proves the port that `porter port` writes.

Paths lead from the directory of the file. A file that is broken, a key that there is not, and a value of the wrong type
end the command with exit code 2 and the file and line (PT0015); so do sources with different configurations (PT0016).

| key | value | option | |
|---|---|---|---|
"""

_KINDS = {"flag": "true or false", "file": "path", "texts": "list of texts", "directories": "list of directories",
          "paths": "list of paths", "style": "text"}  # fmt: skip


def configuration_page() -> str:
    rows = [f"| `{name}` | {_KINDS[key.kind]} | `{key.option}` | {key.what} |" for name, key in KEYS_OF_CONFIG.items()]
    return CONFIGURATION + "\n".join(rows) + "\n"


MAP_HEAD = """# What becomes of what

Made from `mappings/map/*.yaml` by `make docs`; `porter map WORD` shows the same. `*`, `?` and `[]` in names are as in
names of files.
"""


def mapping_page() -> str:
    return MAP_HEAD + "\n".join(map_page()) + "\n"


RECORDS = DOCS / "results" / "mutation"

FULL_RATE_MUTANTS_HEAD = """
## Ports with MMAs of 128 rows

Made by

```
porter mutate --trust --style full-rate corpus/gemm_ws --record docs/results/mutation/full_rate
```

"""

NATIVE_MUTANTS_HEAD = """
## Ports of the native style

With the steps of [full_rate.md](full_rate.md): commits that give stages back, and in a cluster the wait for those of
the other blocks, and two blocks on an SM. Made by

```
porter mutate --trust --style native corpus/gemm_ws --record docs/results/mutation/native
```

"""

IDIOMATIC_MUTANTS_HEAD = """
## Ports of CuTe in SM100's own words

Commits that give stages back and say that sums are complete, and what stands around the copy of these
([idiomatic.md](idiomatic.md)). Made by

```
porter mutate --trust --style idiomatic corpus/cute_gemm_ws --record docs/results/mutation/idiomatic
```

"""


def mutation_page() -> str:
    """What became of the mutants of every port."""
    ports = "\n".join(mutation_tables(_mutants(RECORDS), load_explanations(RECORDS)))
    heads = {"full_rate": FULL_RATE_MUTANTS_HEAD, "native": NATIVE_MUTANTS_HEAD, "idiomatic": IDIOMATIC_MUTANTS_HEAD}
    styles = "".join(
        head + "\n".join(port_table(_mutants(RECORDS / name), load_explanations(RECORDS / name))) + "\n"
        for name, head in heads.items()
    )
    return f"{MUTATION_HEAD}{ports}\n{styles}{FOREIGN_MUTANTS_HEAD}{foreign_mutants()}\n"


def _mutants(folder: Path) -> list[Record]:
    return [r for path in sorted(folder.glob("*.json")) if (r := read_record(path)) is not None]


def foreign_mutants() -> str:
    """What became of the mutants of kernels that Porter did not write."""
    record = _record("foreign-mutants")
    lines = [
        f"```\n{record['command']}\n```\n",
        "| kernel | size | mutants | of error level | caught by value | caught | harmless by a run | by review |",
        "|------|---|-----:|-----:|-----:|-----:|-----:|-----:|",
    ]
    columns = ("kernel", "size", "mutants", "of_error_level", "by_value", "caught", "explained", "reviewed")
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in record["rows"]]
    return "\n".join(lines)


GPU_RECORDS = ("h200", "h200-cute", "h200-dsl", "h100")


def _record(name: str) -> Any:
    return json.loads((DOCS / "results" / f"{name}.json").read_text("utf-8"))


def gpu_results() -> str:
    """What the runs on GPUs came to, as their records have it."""
    lines = [
        "| record | GPU | runs | port gives the original's bits | clean | no verdict possible | simulator's bits |"
    ]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for name in GPU_RECORDS:
        record = _record(name)
        rows, bits = record["rows"], record.get("bits", ())
        verdicts = [row.get("verdict") or ", ".join(row["verdicts"]) for row in rows]
        cannot = sum("PT5023" in "".join(row.get("why", ())) for row in rows)
        same = f"{sum(b['verdict'] == 'clean' for b in bits)} of {len(bits)}" if bits else "-"
        lines.append(
            f"| `{name}.json` | {record['device']['name']} | {record.get('runs', len(rows))} "
            f"| {sum(row['same_bits'] for row in rows)} of {len(rows)} "
            f"| {verdicts.count('clean')} | {cannot} | {same} |"
        )
    words = _record("h200-instructions")["words"]
    for name in ("h200-mutants", "h100-mutants"):
        planted = [row for row in _record(name)["rows"] if row["mistake"] != "none"]
        seen = sum("error" in (row["eager"], row["deferred"]) for row in planted)
        lines.append(f"\n`{name}.json`: {seen} of {len(planted)} planted mistakes are seen.")
    return "\n".join([*lines, f"\n`h200-instructions.json`: {len(words)} sample instructions."])


def known_kernels() -> str:
    """What the checker says of kernels that others wrote and that are known to be good."""
    record = _record("known-kernels")
    lines = [
        f"```\n{record['command']}\n```\n",
        "| kernel | size | warp instructions | errors | to review, by ruling |",
    ]
    lines.append("|---|---|--:|--:|---|")
    for row in record["rows"]:
        by_ruling: dict[str, list[str]] = {}
        for hazard, ruling in (text.split() for text in row["review"]):
            by_ruling.setdefault(ruling, []).append(hazard)
        found = ", ".join(f"{ruling} ({', '.join(ids)})" for ruling, ids in by_ruling.items())
        kernel = f"{row['origin']}: {row['kernel']}"
        lines.append(f"| {kernel} | {row['size']} | {row['warp_instructions']:,} | {row['errors']} | {found or '-'} |")
    return "\n".join(lines)


BLOCK = re.compile(r"(<!-- made by docs/generate.py: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


BUILD_LINES = [
    ("Makefile", "NVCC += -gencode arch=compute_90a,code=sm_90a"),
    ("Makefile", "NVCC += -arch=sm_90a"),
    ("Makefile", "ARCH = sm_90a\nNVCC += -arch=$(ARCH)"),
    ("Makefile", "ifeq ($(ARCH), 90)"),
    ("Makefile", "HIGHEST = $(lastword $(sort 80 90a))"),
    ("Makefile", "ptxas -arch=sm_90a k.ptx -o k.cubin"),
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 80 90a)"),
    ("CMakeLists.txt", "set_target_properties(k PROPERTIES CUDA_ARCHITECTURES 90a)"),
    ("CMakeLists.txt", "set(ARCH sm_90a)\nadd_compile_options(-arch=${ARCH})"),
    ("CMakeLists.txt", "foreach(arch IN ITEMS 80 90a)"),
    ("CMakeLists.txt", 'cuda_archs_loose_intersection(ARCHS "9.0a" "${CUDA_ARCHS}")'),
    ("CMakeLists.txt", 'set_gencode_flags_for_srcs(SRCS k.cu CUDA_ARCHS "9.0a")'),
    ("CMakeLists.txt", 'if(CUDA_ARCHS MATCHES "9.0")'),
    ("CMakePresets.json", '"CMAKE_CUDA_ARCHITECTURES": "90a"'),
    ("setup.py", 'flags = ["-gencode=arch=compute_90a,code=sm_90a"]'),
    ("setup.py", "if torch.cuda.get_device_capability() == (9, 0): pass"),
    ("setup.py", "assert torch.cuda.get_device_capability()[0] == 9"),
    ("setup.py", "flags = {(9, 0): hopper}[capability]"),
    ("setup.py", 'ok = "%d.%d" % torch.cuda.get_device_capability() == "9.0"'),
    ("setup.py", "hopper = 90 <= sm < 100  # arch of sm_90a"),
    ("jit.py", 'cupy.RawModule(code=source, options=("-arch=sm_90a",))'),
    ("jit.py", 'arch = "sm_90a"\nflags = f"-arch={arch}"'),
    ("pyproject.toml", 'args = ["-DCMAKE_CUDA_ARCHITECTURES=90a"]'),
    ("build.sh", "cmake -DCMAKE_CUDA_ARCHITECTURES=90a .."),
    ("build.sh", "ARCH=sm_90a\nnvcc -arch=$ARCH k.cu"),
    ("build.sh", 'if [ "$arch" -eq 90 ]; then'),
    ("Dockerfile", "ENV TORCH_CUDA_ARCH_LIST=9.0a"),
    (".github/workflows/ci.yml", "CUDAARCHS: 90a"),
    (".github/workflows/ci.yml", "matrix: {arch: [80, 90a]}"),
    (".github/workflows/ci.yml", "runs-on: [self-hosted, h100]"),
    (".gitlab-ci.yml", 'TORCH_CUDA_ARCH_LIST: "9.0a"'),
    ("meson.build", "args = ['-gencode=arch=compute_90a,code=sm_90a']"),
    ("BUILD.bazel", 'copts = ["-gencode=arch=compute_90a,code=sm_90a"],'),
]


def build_files() -> str:
    """What becomes of lines of build files, ported and ported for both chips."""
    lines = ["| file | original | port | with `--keep-hopper` |", "|---|---|---|---|"]
    rules = load_rules()
    for name, text in BUILD_LINES:
        cells = []
        for keep in (False, True):
            found = port_build_files({name: f"{text}\n".encode()}, rules, Selection(), keep)
            made = found.files.get(name, b"").decode()
            cells.append("**listed**" if found.left else _code_cell(made) if made else "stays")
        lines.append(f"| {name} | {_code_cell(text)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _code_cell(text: str) -> str:
    return "<br>".join(f"`{line}`".replace("|", "\\|") for line in text.splitlines())


def t2r_table() -> str:
    """Instructions of loads from Tensor Memory, from the record of `scripts/sass_t2r.py`."""
    record = _record("sass-t2r")
    shown = [name for name in record["rows"][0] if name not in ("width", "asserts")]
    lines = [f"| load | assertions | {' | '.join(shown)} |", f"|---|---|{'--:|' * len(shown)}"]
    for row in record["rows"]:
        cells = " | ".join(str(row[name]) for name in shown)
        lines.append(f"| {row['width']} | {'on' if row['asserts'] else 'off (NDEBUG)'} | {cells} |")
    tools = ", ".join(f"{name} {version}" for name, version in record["tools"].items())
    return "\n".join([*lines, "", f"A tile of {record['tile']}, {record['arch']}, {tools}."])


def tutorial_table() -> str:
    """What stands in the kernels of tutorials and ports, from the record of `scripts/sm100_tutorials.py`: a column for
    each kernel."""
    rows = _record("sm100-tutorials")["rows"]
    numbers = Counter(row["program"] for row in rows)
    seen: Counter[str] = Counter()
    heads = []
    for row in rows:
        seen[row["program"]] += 1
        several = f", kernel {seen[row['program']]}" if numbers[row["program"]] > 1 else ""
        heads.append(row["program"] + several)
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(rows)}"]
    for name in (n for n in rows[0] if n not in ("program", "findings", "loads", "tile", "columns")):
        if any(row[name] for row in rows):
            lines.append(f"| `{name}` | {' | '.join(str(row[name]) for row in rows)} |")
    loads = [", ".join(f"{n} of {shape}" for shape, n in row["loads"].items()) for row in rows]
    lines.append(f"| shapes of loads | {' | '.join(loads)} |")
    lines.append(f"| `porter check --sm100` | {' | '.join(', '.join(row['findings']) or '-' for row in rows)} |")
    return "\n".join(lines)


def tutorial_differences() -> str:
    """Points on which a port and NVIDIA's tutorial could differ, from the same record."""
    found = _record("sm100-tutorials")["differences"]
    lines = ["| | SM100 tutorial 02 | port of wgmma_tma_sm90 | |", "|---|--:|--:|---|"]
    lines += [f"| {one['point']} | {one['tutorial']} | {one['port']} | {one['verdict']} |" for one in found]
    return "\n".join(lines)


BLOCKS = {
    "equality": equality_table,
    "plants": plants_table,
    "gpu-results": gpu_results,
    "build-files": build_files,
    "known-kernels": known_kernels,
    "t2r": t2r_table,
    "sm100-tutorials": tutorial_table,
    "sm100-differences": tutorial_differences,
}


def with_blocks(text: str) -> str:
    """A page written by hand, with the parts that are made from code or records made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}{BLOCKS[m[2]]()}\n{m[3]}", text)


def features_page() -> str:
    """What tools of this kind have, and the command that shows it."""
    rows = yaml.safe_load((DOCS / "features.yaml").read_text("utf-8"))
    lines = ["# Features", "", "What porting tools have, and the command that shows Porter's. `tests/test_features.py` "
             "carries the commands out.", "", "| # | feature | shown by |", "|---|---|---|"]  # fmt: skip
    for number, row in enumerate(rows, 1):
        shown = [f"`porter {row['run']}`"] if "run" in row else []
        shown += [f"`{row['test']}`"] if "test" in row else []
        shown += [f"not there: {row['todo']}"] if "todo" in row else []
        shown += [f"none: {row['none']}"] if "none" in row else []
        lines.append(f"| {number} | {row['feature']} | {'; '.join(shown)} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    by_hand = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]
    texts = {path: path.read_text("utf-8") for path in by_hand if path.exists()}
    return {
        **{path: with_blocks(text) for path, text in texts.items() if BLOCK.search(text)},
        DOCS / "diagnostics.md": diagnostics_page(),
        DOCS / "rules.md": rules_page(),
        DOCS / "configuration.md": configuration_page(),
        DOCS / "map.md": mapping_page(),
        DOCS / "features.md": features_page(),
        DOCS / "cases.md": cases_page(),
        DOCS / "launches.md": launches_page(),
        DOCS / "grade.md": grade_page(),
        DOCS / "hazards.md": hazards_page(),
        DOCS / "instructions.md": instructions_page(),
        DOCS / "mutation.md": mutation_page(),
    }


def main() -> int:
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
