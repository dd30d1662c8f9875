# SPDX-License-Identifier: Apache-2.0
"""Examples of rules are their tests: run one, and say in what it differs from what the rule's file says."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from porter.diagnostics import Code, Severity
from porter.lang.cute_dsl import parse_dsl
from porter.lang.diff import unified_diff
from porter.lang.sources import is_python, load_sources
from porter.model.builders import type_facts
from porter.model.dsl.names import KINDS as PYTHON_KINDS
from porter.model.dsl.names import PythonFact
from porter.model.facts import KINDS, Doubt, Fact, kind_name
from porter.model.program import build_program
from porter.model.spellings import Spelling
from porter.passes.dsl.port import DslPortResult, port_python
from porter.passes.features import features_in, listed
from porter.passes.full_rate.proposing import Boxes
from porter.passes.idiom.types import answering
from porter.passes.idiom_dsl.stated import stated
from porter.passes.native.dsl_layouts import NAME as LAYOUTS
from porter.passes.native.dsl_next_tiles import NAME as NEXT_TILES
from porter.passes.native.step import steps_of
from porter.passes.native.taking import Launches
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.sm100.check import sm100_findings
from porter.rules.accept import Change, accepted
from porter.rules.explain import value_names
from porter.rules.load import names_of, read_rule_file
from porter.rules.recognize import vocabulary
from porter.rules.rule import Example, Rule

Stated = tuple[tuple[str, tuple[tuple[str, str | int | bool], ...]], ...]

_KINDS = {**KINDS, **PYTHON_KINDS}
_HOPPER = '__device__ void f() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'
"""What build files and the like are ported beside."""


@dataclass(frozen=True)
class Found:
    """What an example comes to: the text of its file after the port, the IDs of rules that made an edit, those of
    errors and warnings as often as they are said, those of notes; of a recognizer the facts, as rule files state them,
    and why places were not taken for one."""

    text: str = ""
    rules: frozenset[str] = frozenset()
    diagnostics: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()
    facts: Stated = ()
    doubts: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The files of the port, by path."""


Prove = Callable[[Example, Path, Mapping[str, bytes]], Iterable[str]]
"""In what the port of an example, whose files lie in a folder, is not what `compile` and `verify` ask for."""


@dataclass(frozen=True)
class Tried:
    """One example of a rule, counted from 0. `problems` is empty if it holds."""

    rule: Rule
    number: int
    found: Found
    problems: tuple[str, ...]

    @property
    def example(self) -> Example:
        return self.rule.examples[self.number]

    def accepted(self) -> dict[str, object]:
        """What the file has to say for the example to hold: values by key. Empty if what is wrong is for its author."""
        if (self.rule.recognizers or self.rule.names or self.rule.spelling) and not _ports(self.example):
            facts = _found_facts(self)
            return {"facts": facts} if facts and self.example.facts else {}
        if self.example.diagnostics:
            return {"diagnostics": list(self.found.diagnostics)} if self.found.diagnostics else {}
        edits = self.rule.id in self.found.rules or bool(self.rule.recognizers)
        if not edits or not _holds_lines(self.example, self.found.text):
            return {}
        return {"after": self.found.text}


def try_examples(
    rules: Sequence[Rule],
    directories: Sequence[str] = (),
    prove: Prove | None = None,
    launches: Launches | None = None,
    boxes: Boxes | None = None,
) -> Iterator[Tried]:
    """Run all examples of rules, with those of `directories` beside Porter's own. Without `prove` nothing is compiled
    or run. `launches`, `boxes`: see `PortOptions`.

    Raises:
        PorterError: what the front ends and the engine raise of an example that is no source.
    """
    for rule in rules:
        for number, example in enumerate(rule.examples):
            with tempfile.TemporaryDirectory(prefix="porter-rule-") as folder:
                found = run_example(rule, example, Path(folder), directories, launches, boxes)
                problems = [*differences(rule, example, found)]
                if prove is not None and (example.compile or example.verify) and not problems:
                    problems += prove(example, Path(folder), found.files)
            yield Tried(rule, number, found, tuple(problems))


def _write(example: Example, folder: Path) -> None:
    for name, text in (*example.others, (example.file, example.before)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def run_example(
    rule: Rule,
    example: Example,
    folder: Path,
    directories: Sequence[str] = (),
    launches: Launches | None = None,
    boxes: Boxes | None = None,
) -> Found:
    """What an example comes to, with its files written to `folder`. `launches`, `boxes`: see `PortOptions`."""
    path = folder / example.file
    _write(example, folder)
    if rule.names and not _ports(example):
        return _python_facts(path, rule)
    if rule.recognizers and not _ports(example):
        return _facts(path, rule)
    if rule.spelling is not None:
        is_one = rule.spelling.pattern.fullmatch(example.before) is not None
        return Found(facts=(_stated(Spelling(rule.spelling.of)),) if is_one else ())
    if rule.advice is not None and rule.advice.sign == "feature":
        found = listed(features_in(load_sources(path).files[path.as_posix()], [rule]))
        return Found(text="\n".join(found), rules=frozenset({rule.id} if found else ()))
    if rule.advice is not None:
        return Found(diagnostics=tuple(d.code.id for d in sm100_findings(path, rules=tuple(directories))))
    layouts, tiles = LAYOUTS in example.chosen, NEXT_TILES in example.chosen
    asked = steps_of(example.drop_promotion, example.block_scale, layouts, tiles)
    native = asked if example.style == "native" else ()
    stages = frozenset({(path.as_posix(), example.stages)} if example.stages else ())
    registers = frozenset({(path.as_posix(), example.registers)} if example.registers else ())
    options = PortOptions(
        rule_directories=tuple(directories),
        full_rate=example.style in ("full-rate", "native"),
        native=native,
        stages=stages,
        registers=registers,
        launches=launches,
        boxes=boxes,
        types=answering(*example.types) if example.types else None,
        chosen=frozenset((path.as_posix(), step) for step in example.chosen),
    )
    root = path
    result: PortResult | DslPortResult
    if is_python(path) and rule.language == "python":
        traced = [stated(path, path.read_bytes(), *example.traced)] if example.traced else []
        traces = (lambda *_: traced) if traced else None
        result = port_python(path, rule_directories=directories, traces=traces, steps=native)
    else:
        if path.suffix not in (".cu", ".cuh", ".h", ".hpp", ".cpp"):
            root = folder / "kernel.cu"
            root.write_text(_HOPPER)
        result = port_sources(load_sources(root), options)
    written: Mapping[str, bytes] = {**result.files, **result.build_files}
    return Found(
        files=result.files,
        text=written.get(str(path), example.before.encode()).decode(),
        rules=frozenset(g.rule for g in result.groups),
        diagnostics=tuple(d.code.id for d in result.diagnostics if d.severity is not Severity.NOTE),
        notes=frozenset(d.code.id for d in result.diagnostics if d.severity is Severity.NOTE),
    )


def _facts(path: Path, rule: Rule) -> Found:
    """Only what the rule itself recognizes counts."""
    program = build_program(load_sources(path), vocabulary([rule]))
    found = [program.facts.of_call(c) for f in program.functions for c in f.calls]
    found += [program.facts.of_name(f, n) for f in program.functions for n in value_names(f)]
    found += type_facts(program)
    return Found(
        facts=tuple(_stated(f) for f in found if f is not None and not isinstance(f, Doubt)),
        doubts=tuple(f.what for f in found if isinstance(f, Doubt)),
    )


def _python_facts(path: Path, rule: Rule) -> Found:
    """What the names of a Python file are, and what Porter says of them beside the rule."""
    file = parse_dsl(str(path), path.read_bytes(), dialect=names_of([rule]).dialect)
    found = [p.fact for r in file.all_references for p in rule.names if p.matches(r.name)]
    return Found(facts=tuple(_stated(f) for f in found[:1] if f is not None))


def _stated(fact: Fact | PythonFact) -> tuple[str, tuple[tuple[str, str | int | bool], ...]]:
    """A fact as a rule file states it: fields that have their default are left out."""
    kind = kind_name(type(fact))
    return kind, _but_defaults(kind, {f.name: getattr(fact, f.name) for f in fields(fact)})


def _but_defaults(kind: str, values: Mapping[str, str | int | bool]) -> tuple[tuple[str, str | int | bool], ...]:
    named = [(f, values[f.name]) for f in fields(_KINDS[kind]) if f.name in values]
    return tuple((f.name, value) for f, value in named if value != f.default)


def completed(text: str) -> tuple[str, bool]:
    """The text of a rule file with the facts that its examples come to, and whether there are any."""
    with tempfile.TemporaryDirectory(prefix="porter-rule-") as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(text, "utf-8")
        found = [(t, _found_facts(t)) for t in try_examples(read_rule_file(path))]
    changes = [Change(t.rule.id, t.number, {"facts": facts}) for t, facts in found if facts]
    return accepted(text, changes), bool(changes)


def _found_facts(tried: Tried) -> list[dict[str, dict[str, str | int | bool]]]:
    if tried.found.doubts:
        return []
    return [{kind: dict(values)} for kind, values in tried.found.facts]


def differences(rule: Rule, example: Example, found: Found) -> Iterator[str]:
    """A sentence for each thing that is not as the example says."""
    if (rule.recognizers or rule.names or rule.spelling) and not _ports(example):
        if example.is_near and not found.doubts:
            yield f"it is no near miss: {_listed(found.facts) or 'nothing is recognized'}"
        if not example.is_near and found.doubts:
            yield from (f"it is a near miss: {doubt}" for doubt in found.doubts)
        wanted = tuple((kind, _but_defaults(kind, dict(values))) for kind, values in example.facts)
        if not example.is_near and not _agree(example.facts, found.facts):
            yield f"the facts are {_listed(found.facts) or 'none'}, not {_listed(wanted) or 'none'}"
        return
    if not _ports(example):
        yield "it does not say what becomes of it"
    if example.diagnostics:
        yield from _other_messages(example, found)
    if example.after is not None and found.text != example.after:
        name = example.file
        diff = unified_diff({name: example.after.encode()}, {name: found.text.encode()}, ())
        yield "the result is another:\n" + diff.decode("utf-8", "replace").rstrip()
    said = f"; what is said is {', '.join(found.diagnostics)}" if found.diagnostics else ""
    yield from (f"the result has no `{line}`{said}" for line in example.expect if line not in found.text)
    yield from (f"the result has `{line}`" for line in example.absent if line in found.text)
    if not example.diagnostics and not rule.recognizers and rule.emitter is None and rule.id not in found.rules:
        yield f"the rule makes no edit{said}"


def _other_messages(example: Example, found: Found) -> Iterator[str]:
    """Errors and warnings are those that are stated, each as often; notes may be stated or not."""
    known = [Code.__members__[c].id if c in Code.__members__ else c for c in example.diagnostics]
    missing = Counter(c for c in known if c not in found.notes) - Counter(found.diagnostics)
    more = Counter(found.diagnostics) - Counter(known)
    for code in missing:
        yield f"{code} is not said{' as often' if code in found.diagnostics else ''}"
    for code in more:
        yield f"{code} is said{' more often' if code in known else ''}"


def _agree(stated: Stated, found: Stated) -> bool:
    """Whether facts are those that are stated, in that order; of a fact only the fields that are stated count."""
    if [kind for kind, _ in stated] != [kind for kind, _ in found]:
        return False
    pairs = zip(stated, found, strict=True)
    return all({**_defaults(kind), **dict(has)}.items() >= dict(asked).items() for (kind, asked), (_, has) in pairs)


def _defaults(kind: str) -> dict[str, object]:
    return {f.name: f.default for f in fields(_KINDS[kind])}


def _ports(example: Example) -> bool:
    """Whether an example says what a port makes of it, not only what is recognized."""
    return example.after is not None or bool(
        example.expect or example.absent or example.diagnostics or example.compile or example.verify
    )


def _holds_lines(example: Example, text: str) -> bool:
    return all(line in text for line in example.expect) and not any(line in text for line in example.absent)


def _listed(facts: Sequence[tuple[str, tuple[tuple[str, str | int | bool], ...]]]) -> str:
    return ", ".join(f"{kind}({', '.join(f'{n}={v!r}' for n, v in values)})" for kind, values in facts)
