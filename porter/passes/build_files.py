# SPDX-License-Identifier: Apache-2.0
"""Build and packaging files of a project: what in them is for Hopper alone is rewritten where it is understood, and
listed where it is not.

Options and lists of architectures that stand as text are rules of `mappings/`; here is what needs more than one place:
options that take the architecture from a variable, and Python that asks for the device's compute capability.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.sources import CUDA_ENDINGS
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups
from porter.model.spellings import Spellings
from porter.passes.build_asks import admitting, handed_out, lines_for_hopper
from porter.passes.build_both import both_group, logical_line
from porter.passes.build_capabilities import capability_group
from porter.passes.build_kinds import kind_of
from porter.passes.build_lists import options_of_lists
from porter.passes.build_variables import Given, Variables, given_hopper, ported_variables, variables_of_both
from porter.passes.chip_checks import admits_others
from porter.passes.python_flow import NOTHING
from porter.passes.python_flow import Given as Functions
from porter.passes.targets import lines_for_sm100, retargeted, said_of
from porter.ptx.arch import HOPPER, SM100A, PortTarget
from porter.rules.engine import Selection, build_file_groups
from porter.rules.load import own_names, own_spellings
from porter.rules.recognize import spellings
from porter.rules.rule import Region, Rule

FAMILY = "build files"
"""Rules of this name are for every build file."""


_LARGEST = 1 << 20
"""Bytes of a build file that is read: larger ones are made by other tools."""
_HOPPER = re.compile(rb"(?<!\w)(?:sm_|compute_)?90a(?!\w)|(?<![\w.])9\.0a(?!\w)")
_PASSED_OVER = frozenset(
    {".git", ".venv", "venv", "node_modules", "__pycache__", "third_party", "3rdparty", "site-packages"}
)


def _imports_dsl(source: bytes) -> bool:
    packages = "|".join(map(re.escape, sorted(own_names().dialect.packages)))
    return re.search(rf"^\s*(?:import|from)\s+(?:{packages})\b".encode(), source, re.MULTILINE) is not None


def build_files_below(directory: Path) -> list[Path]:
    """The build files of a tree, by name; not those of packages and tools that lie in it."""
    found: list[Path] = []
    others: list[Path] = []
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(
            f for f in folders if f not in _PASSED_OVER and not Path(place, f, "CMakeCache.txt").exists()
        )
        for path in (Path(place, name) for name in sorted(names)):
            kept = found if is_build_file(path) else others if path.suffix == ".py" else []
            kept.append(path)
    given = handed_out((p.read_bytes() for p in found if p.suffix == ".py"), own_spellings())
    if not given:
        return found
    called = re.compile(rb"\b(?:" + b"|".join(re.escape(name.encode()) for name in given) + rb")\b")
    texts = {path: path.read_bytes() for path in others if path.is_file()}
    return sorted([*found, *(p for p, text in texts.items() if called.search(text) and not _imports_dsl(text))])


def is_build_file(path: Path) -> bool:
    """Whether a file says how sources are compiled: by its name, or as Python that asks for the GPU or names one.
    Modules that use CuTe DSL are no such: they are ported with their kernels."""
    if kind_of(str(path)) is not None:
        return path.is_file()
    if path.suffix != ".py" or not path.is_file():
        return False
    source = path.read_bytes()
    return own_spellings().stand_in("python_build", source.decode("latin-1")) and not _imports_dsl(source)


def text_rules(rules: Iterable[Rule]) -> list[Rule]:
    """The rules on text; those of build files read all of them, whatever they are named."""
    return [r if r.library != FAMILY else replace(r, files=("*",)) for r in rules if r.region is Region.TEXT]


def build_files_beside(source: Path, rules: Sequence[Rule]) -> list[Path]:
    """The build files in a source's directory, and others that some rule reads; CUDA sources are ported themselves."""
    text_rules = [r for r in rules if r.region is Region.TEXT and r.language != "cuda"]
    beside = sorted(p for p in source.parent.iterdir() if p.is_file() and p.suffix not in CUDA_ENDINGS)
    return [p for p in beside if kind_of(str(p)) is not None or any(r.reads(str(p)) for r in text_rules)]


@dataclass(eq=False)
class BuildFiles:
    """The files that change, with the edits, and what was left over."""

    files: dict[str, bytes] = field(default_factory=dict)
    groups: list[EditGroup] = field(default_factory=list)
    left: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    """Conditions that admit more chips than the port runs on."""


def port_build_files(
    files: Mapping[str, bytes],
    rules: Sequence[Rule],
    selection: Selection,
    keep_hopper: bool = False,
    target: PortTarget = SM100A,
) -> BuildFiles:
    """Port build files by path. With `keep_hopper` what is built for Hopper is built for both chips."""
    result = BuildFiles()
    texts = {p: s.decode("latin-1") for p, s in sorted(files.items()) if b"\0" not in s and len(s) <= _LARGEST}
    for path in sorted(files.keys() - texts.keys()):
        if _HOPPER.search(files[path]) and b"\0" not in files[path]:
            values = {"text": f"a file of {len(files[path])} bytes"}
            result.left.append(
                Diagnostic(Code.BUILD_FILE_LEFT, Location(path, 1), values, f"by hand: {_ADVICE['names']}")
            )
    given = given_hopper(texts.values())
    asked = handed_out((files[p] for p in texts if p.endswith(".py")), spellings(rules))
    for path, text in texts.items():
        kind = kind_of(path) or ("python" if path.endswith(".py") else "")
        groups, left = port_build_text(path, text, kind, rules, selection, keep_hopper, given, target, asked)
        ported = apply_groups({path: files[path]}, groups)[path]
        if ported != files[path]:
            result.files[path] = ported
            result.groups += groups
        result.left += left
        if kind == "python":
            result.notes += notes_of(path, ported, left, spellings(rules), keep_hopper, target)
    return result


def notes_of(
    path: str, ported: bytes, left: Sequence[Diagnostic], said: Spellings, keep: bool, target: PortTarget
) -> list[Diagnostic]:
    """Conditions of ported Python that admit more chips than it runs on, beside what is `left`."""
    lines, runs = {d.where.line for d in left if d.where is not None}, {HOPPER} if keep else set()
    return [
        admits_others(Location(path, line), text, others - runs, target)
        for line, text, others in admitting(ported, lines, said, target)
        if others - runs
    ]


def port_build_text(
    path: str,
    text: str,
    kind: str,
    rules: Sequence[Rule],
    selection: Selection,
    keep: bool,
    given: Given | None = None,
    target: PortTarget = SM100A,
    functions: Functions = NOTHING,
) -> tuple[list[EditGroup], list[Diagnostic]]:
    """What becomes of one build file, read byte by byte as Latin-1: edits, and what is left over. `kind` is one of
    `KINDS`; `given` is what other files of the project give variables, `functions` are those of other modules that give
    a capability."""
    source = text.encode("latin-1")
    given = given_hopper([text]) if given is None else given
    said = spellings(rules)
    runtime = _compiles_at_run_time(text, said) if kind == "python" else False
    variables = Variables() if runtime else (variables_of_both if keep else ported_variables)(path, text, kind, given)
    asked = capability_group(path, source, keep, said, target) if kind == "python" else None
    settled: list[Span] = []
    if keep:
        both, settled = both_group(path, text, kind, variables, runtime is not False, said)
        groups = [g for g in (asked, both) if g is not None]
    else:
        own = [g for g in (asked, _variables(variables)) if g is not None]
        groups = _groups(path, text, kind, rules, selection, own)
    edits = [*settled, *(e.span for g in groups for e in g.edits)]
    listed = options_of_lists(text, edits, said) if runtime is False else []
    covered = _covered(text, edits)
    open_options = [at for at in (*variables.open, *listed) if not covered[at]]
    changed = {text.count("\n", 0, e.span.start) + 1 for e in (asked.edits if asked is not None else ())}
    asking = lines_for_hopper(source, changed, said, target, functions) if kind == "python" else set()
    left = list(_left_over(path, text, kind, edits, open_options, asking, said))
    left += _for_another_chip(path, text, target)
    return retargeted(groups, {path: source}, target, rules), [_advised(d, target) for d in left]


def _covered(text: str, spans: Iterable[Span]) -> bytearray:
    """A byte for each of the text: 1 where a span has it."""
    found = bytearray(len(text))
    for span in spans:
        found[span.start : span.end] = b"\1" * (span.end - span.start)
    return found


def _for_another_chip(path: str, text: str, target: PortTarget) -> Iterator[Diagnostic]:
    """Lines that ask for sm_100a by themselves, where the port is for another chip."""
    lines = text.splitlines()
    for number in lines_for_sm100(text, target):
        values = {"text": lines[number - 1].strip()[:100]}
        yield Diagnostic(Code.BUILD_FILE_LEFT, Location(path, number), values, f"by hand: {_ADVICE['names']}")


def _advised(left: Diagnostic, target: PortTarget) -> Diagnostic:
    return replace(left, detail=said_of(left.detail, target))


def _groups(
    path: str, text: str, kind: str, rules: Sequence[Rule], selection: Selection, own: list[EditGroup]
) -> list[EditGroup]:
    """The edits of the port alone: `own` and what rules say of the rest."""
    renamed, undecided = _single_targets(path, text, kind, spellings(rules))
    own = [g for g in (*own, *renamed) if selection.takes(g.rule)]
    taken = [*undecided, *(e.span for g in own for e in g.edits)]
    covered, kept = _covered(text, taken), []
    for group in build_file_groups(text_rules(rules), {path: text.encode("latin-1")}, selection):
        edits = tuple(e for e in group.edits if covered.find(1, e.span.start, e.span.end) < 0)
        if edits:
            kept.append(replace(group, edits=edits))
    return own + kept


def _variables(variables: Variables) -> EditGroup | None:
    if not variables.edits:
        return None
    return EditGroup(
        "PTR227",
        "Architecture option with a variable",
        Safety.REVIEW,
        tuple(variables.edits),
        "nvcc compiles for the generic architecture too when it is given -arch=sm_100a; tcgen05 does not exist there.",
        ("nvcc, Options for steering GPU code generation",),
    )


# Compilers that take one real architecture ------------------------------------------------------------

_OPTION = re.compile(
    r"(?<![\w-])(?:-arch|--gpu-architecture|--gpu-name)(?:=|[ \t]+|[\"'][ \t]*,\s*b?[\"'])(?:sm|compute)_(90a)\b"
)
_TURNED = re.compile(r"(?i:replace)\W{1,4}[\"']90[\"'][\s,]+[\"']90a[\"']")
"""90 becomes 90a: Blackwell's 100 needs the suffix too."""


def _compiles_at_run_time(text: str, said: Spellings) -> bool | None:
    """Whether Python's options are NVRTC's, which takes -arch=sm_100a as it is and has no -gencode; None if they may be
    those of nvcc too."""
    if not said.stand_in("run_time_compiler", text):
        return False
    return None if said.stand_in("nvcc", text) else True


def _single_targets(path: str, text: str, kind: str, said: Spellings) -> tuple[list[EditGroup], list[Span]]:
    """Options of tools other than nvcc, which are renamed; and those of which it is not known whose they are."""
    runtime = _compiles_at_run_time(text, said) if kind == "python" else False
    edits, undecided = [], [Span(m.start(), m.end()) for m in _TURNED.finditer(text)]
    for match in _OPTION.finditer(text):
        if runtime or said.stand_in("tool_of_one_target", logical_line(text, match.start(), match.end())):
            # the whole option, so that no rule makes another one of it
            new = match[0].replace("90a", "100a")
            edits.append(Edit(path, Span(match.start(), match.end()), new.encode("latin-1")))
        elif runtime is None:
            undecided.append(Span(match.start(), match.end()))
    if not edits:
        return [], undecided
    group = EditGroup(
        "PTR220",
        "Target architecture in compiler flags",
        Safety.REVIEW,
        tuple(edits),
        "NVRTC and the assembler take one architecture, and nothing is compiled for a generic one beside it.",
        ("NVRTC, Supported Compile Options",),
    )
    return [group], undecided


# What is left -----------------------------------------------------------------------------------------

_COMMENT = re.compile(r"(^|\s)#.*")

_ADVICE: Mapping[str, str] = {
    "names": "give it sm_100a (100a, 10.0a) as well, as nvcc's option -gencode arch=compute_100a,code=sm_100a",
    "asks": "admit compute capability 10.0 too",
    "composed": "add 100 to the architectures that get the suffix `a`",
    "open": "write -gencode arch=compute_100a,code=sm_100a: nvcc takes -arch=sm_100a for a generic architecture too",
    "sorted": "as a text 100 sorts in front of 80 and 90: name the architecture",
    "device": "name Blackwell's devices such as B200 too",
}


def _left_over(
    path: str,
    text: str,
    kind: str,
    edits: Sequence[Span],
    places: Sequence[int],
    asking: Collection[int],
    said: Spellings,
) -> Iterator[Diagnostic]:
    """Places that are for Hopper and of which nothing was made: what stands beside the `edits`, options at `places`,
    whose architecture is put together, and lines that are known to be `asking` for Hopper."""
    composes = said.stand_in("composed_target", text)
    about = said.stand_in("hopper_target", text) or "capability" in text
    rest = bytearray(text.encode("latin-1"))
    for span in edits:
        rest[span.start : span.end] = re.sub(rb"[^\n]", b" ", rest[span.start : span.end])
    whole, order = text.splitlines(keepends=True), sorted(places)
    at = 0
    for number, line in enumerate(rest.decode("latin-1").splitlines(keepends=True), 1):
        start, at = at, at + len(line)
        shown = whole[number - 1]
        code = line if kind == "presets" else _COMMENT.sub("", line)
        what = _what_is_left(code, shown, about, composes, said)
        if what is None and bisect_left(order, start) < bisect_left(order, at):
            what = "open"
        if what is None and number in asking:
            what = "asks"
        if what is not None:
            values = {"text": shown.strip()[:100]}
            yield Diagnostic(Code.BUILD_FILE_LEFT, Location(path, number), values, f"by hand: {_ADVICE[what]}")


def _what_is_left(code: str, shown: str, about: bool, composes: bool, said: Spellings) -> str | None:
    """What a line is for Hopper; `about`: the file names Hopper somewhere, `shown`: the line with what was edited."""
    of_architectures = said.stand_in("about_architectures", shown)
    if about and said.stand_in("sorted_texts", code):
        return "sorted"
    if about and of_architectures and said.stand_in("below_blackwell", code):
        return "asks"
    if said.stand_in("blackwell_target", shown):
        return None
    if said.stand_in("hopper_target", code):
        return "names"
    asks = said.stand_in("asks_for_90", code) or said.stand_in("asks_for_pair", code)
    asks = asks and (about or of_architectures)
    if asks or (of_architectures and said.stand_in("asks_for_9", code)):
        return "asks"
    if composes and of_architectures and re.search(r"(?<![\w.])90(?![\w.])", code):
        return "composed"
    return "device" if said.stand_in("asks_for_device", code) else None
