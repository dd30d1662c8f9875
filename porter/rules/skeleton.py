# SPDX-License-Identifier: Apache-2.0
"""A rule file to begin with, made from a call in the sources: pattern, captures and near misses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from porter.diagnostics import Code, Location, PorterError
from porter.lang.sources import SourceSet
from porter.model.facts import KINDS
from porter.model.functions import Call, Function
from porter.model.names.outside import qualified
from porter.model.program import Program, build_program
from porter.model.recognition import Vocabulary
from porter.rules.pattern import PatternError, compiled

SCHEMA_FILE = "porter-rules.schema.json"

_GUESSES = (("wait", "wait"), ("commit", "commit"), ("fence", "fence"), ("arrive", "fence"), ("mma", "mma"),
            ("gemm", "mma"), ("multiply", "mma"))  # fmt: skip
"""Parts of names, and the fact that a call of such a name may be."""
_INSTRUCTIONS = (("wgmma\\.mma_async", "mma"), ("wgmma\\.wait_group", "wait"), ("wgmma\\.commit_group", "commit"),
                 ("wgmma\\.fence", "fence"))  # fmt: skip
"""Instructions in a body, and the fact that a call of it is if these are the only ones of them."""
_OPERANDS = 3
"""Arguments of a multiply: registers, A and B."""


@dataclass(frozen=True)
class Skeleton:
    """The text of a rule file. Its `facts` are still to be filled in with what the rule recognizes."""

    text: str
    rule: str
    pattern: str
    kind: str
    guessed: bool
    """Whether the fact was guessed from the call's name; else it only stands for one."""


@dataclass(frozen=True)
class _Form:
    """A call as text: its name, template arguments and arguments."""

    name: str
    template: tuple[str, ...]
    args: tuple[str, ...]

    def __str__(self) -> str:
        angled = f"<{', '.join(self.template)}>" if self.template else ""
        return f"{self.name}{angled}({', '.join(self.args)})"


def begun(
    sources: SourceSet, words: Vocabulary, path: str, line: int, column: int, name: str, taken: Iterable[str] = ()
) -> Skeleton:
    """The rule for the call at a place in the sources. `name` is the library's, `taken` are IDs that there are.

    Raises:
        PorterError: RULE_PLACE: there is no call, or no pattern can be made of it.
    """
    program = build_program(sources, words)
    return make_skeleton(program, call_at(program, path, line, column), name, taken=taken)


def call_at(program: Program, path: str, line: int, column: int = 0) -> Call:
    """The call of a named function at a place: the outermost one that begins there, or with a column the innermost one
    around it.

    Raises:
        PorterError: RULE_PLACE: there is none.
    """
    found: list[tuple[int, int, Call]] = []
    for function in program.functions:
        for call in function.calls:
            where = function.file.location(function.span(call.node))
            if function.file.path == path and where.line == line and _callee(call) is not None:
                length = call.node.end_byte - call.node.start_byte
                if not column or where.column <= column < where.column + length:
                    found.append((-length if not column else length, where.column, call))
    if not found:
        raise PorterError(Code.RULE_PLACE, Location(path, line, column), what="no call of a function that has a name")
    return min(found, key=lambda f: f[:2])[2]


def _callee(call: Call) -> str | None:
    """The name that is called, as it is written; None for members and what has none."""
    node = call.node.child_by_field_name("function") if call.node.type == "call_expression" else None
    if node is None or node.type in ("field_expression", "call_expression", "lambda_expression"):
        return None
    written = re.sub(r"\s+", "", call.caller.text(node))
    written = re.sub(r"<.*>$", "", written).removeprefix("::")
    return written if re.fullmatch(r"\w+(?:::\w+)*", written) else None


def free_digits(prefix: str, taken: Iterable[str], first: int = 100) -> int:
    """The first number from `first` on that no rule's ID has behind the prefix."""
    used = set(taken)
    return next(n for n in count(first) if f"{prefix}{n}" not in used)


def prefix_of(name: str) -> str:
    """Capitals that IDs of a library's rules begin with."""
    return re.sub(r"[^A-Z]", "", name.upper())[:8].ljust(2, "X")


def appended(text: str, rule: str) -> str:
    """A rule file with the one rule of another at its end."""
    begins = re.search(r"^  - id: ", rule, re.MULTILINE)
    assert begins is not None
    return text.rstrip("\n") + "\n" + rule[begins.start() :]


def make_skeleton(program: Program, call: Call, name: str, digits: int = 100, taken: Iterable[str] = ()) -> Skeleton:
    """The rule for a call. `name` is the library's; its ID has the first number from `digits` on that none in `taken`
    has.

    Raises:
        PorterError: RULE_PLACE: no pattern can be made of the call.
    """
    where = call.caller.file.location(call.caller.span(call.node))
    declared = _declarations(program, call)
    head = _qualified_name(program, call)
    form = _Form(head, call.template_args, tuple(call.caller.text(a) for a in call.args))
    of = next((f for f in declared if len(f.params) == len(call.args)), None)
    captures = _captures(form, of)
    number = len(form.template)
    pattern = str(_Form(head, captures[:number], captures[number:]))
    try:
        compiled(pattern)
    except PatternError as error:
        raise PorterError(Code.RULE_PLACE, where, what=f"no call that a pattern can be made of: {error}") from None
    kind, fact, guessed = _fact(_said_by(call.name, declared), captures[:number], captures[number:], of)
    near = [form for form in _near(form, declared) if len(form.args) != len(call.args)]
    rule = f"{prefix_of(name)}{free_digits(prefix_of(name), taken, digits)}"
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"# Made from {where.path}:{where.line}. What is marked `guess` is for you to say; then `porter rules test`.",
        "schema: 2",
        f"library: {json.dumps(name)}  # guess: whose names these are",
        "rules:",
        f"  - id: {rule}",
        f"    title: {json.dumps(f'{call.name} of {name}'[:100])}",
        f"    recognize: {json.dumps(pattern)}",
        f"    as: {fact}  # guess{'' if guessed else ', from nothing'}: one of {', '.join(KINDS)}",
        *_conditions(fact, captures[:number]),
        "    safety: review",
        f"    reason: {json.dumps(f'{head} does what the fact says.')}  # guess: how you know",
        "    examples:",
        f"      - before: {json.dumps(str(form))}",
        "        facts: []",
        *(f"      - near: {json.dumps(str(one))}" for one in near),
    ]
    return Skeleton("\n".join(lines) + "\n", rule, pattern, kind, guessed)


def _qualified_name(program: Program, call: Call) -> str:
    found = {(*qualified(s.scope), call.name) for s in program.names.resolve(call).symbols}
    return "::".join(next(iter(found))) if len(found) == 1 else str(_callee(call))


def _declarations(program: Program, call: Call) -> list[Function]:
    return [f for f in (*program.forward, *program.functions) if f.name == call.name]


def _captures(form: _Form, of: Function | None) -> tuple[str, ...]:
    """A capture for each template argument and argument, named after the parameter where there is one."""
    template, params = (of.template_params, [p.name for p in of.params]) if of is not None else ((), [])
    names = [*_named(template, "T", len(form.template)), *_named(params, "ARG", len(form.args))]
    made: list[str] = []
    for name in names:
        upper = re.sub(r"^[^A-Z]+", "", name.upper()) or "X"
        while f"${upper}" in made:
            upper += "_"
        made.append(f"${upper}")
    return tuple(made)


def _named(names: Sequence[str], prefix: str, count: int) -> list[str]:
    return [names[i] if i < len(names) and names[i].isidentifier() else f"{prefix}{i + 1}" for i in range(count)]


def _said_by(name: str, declared: Sequence[Function]) -> str:
    """What a guess goes by: the instructions of a body that is there, else the name of the call."""
    bodies = " ".join(f.text(f.body) for f in declared if f.body is not None)
    said = [f"{kind} {shape}" for word, kind in _INSTRUCTIONS
            for shape in re.findall(rf"{word}\S*?(m64n\d+k\d+|)(?=[.\s\"])", bodies)[:1]]  # fmt: skip
    return said[0] if len(said) == 1 else name


def _fact(name: str, template: Sequence[str], args: Sequence[str], of: Function | None) -> tuple[str, str, bool]:
    """The kind, the fact as YAML, and whether the name of the call, or what it is handed, says so."""
    kind = next((kind for part, kind in _GUESSES if part in name.lower()), "") or _shape(template, args, of)
    if kind == "mma" and len(args) >= 3:
        d, a, b = map(json.dumps, args[:3])
        written = re.search(r"m64n(\d+)k(\d+)", name.lower())
        columns = f"${{{template[0].removeprefix('$')}}}" if template else "64"
        shape = written[0] if written else f"m64n{columns}k16"
        return kind, f"{{mma: {{shape: {json.dumps(shape)}, types: f32.f16.f16, d: {d}, a: {a}, b: {b}}}}}", True
    if kind == "wait":
        pending = json.dumps([*template, *args, "0"][0])
        return kind, f"{{wait: {{pending: {pending}}}}}", True
    if kind == "mma":
        kind = ""
    return kind or "fence", f"{{{kind or 'fence'}: {{}}}}", bool(kind)


def _shape(template: Sequence[str], args: Sequence[str], of: Function | None) -> str:
    """The fact that a call of such a shape may be: registers and two operands are a multiply, one number alone says
    how many batches may be left, nothing at all orders or closes."""
    is_registers = of is not None and bool(of.params) and bool(of.params[0].array_extents)
    if is_registers and len(args) >= _OPERANDS:
        return "mma"
    if len(template) + len(args) == 1 and not (args and is_registers):
        return "wait"
    return ""


def _conditions(fact: str, template: Iterable[str]) -> list[str]:
    """Template arguments that the fact is made of are constants."""
    names = [c.removeprefix("$") for c in template]
    named = [n for n in names if re.search(rf"\$(?:{n}\b|\{{{n}\}})", fact)]
    return [f"    where: {{{', '.join(f'{n}: const' for n in named)}}}"] if named else []


def _near(form: _Form, declared: Iterable[Function]) -> list[_Form]:
    """Calls of the same name that the pattern is not: those of overloads, else one with an argument more."""
    found = [
        _Form(form.name, form.template, tuple(p.name or f"x{i}" for i, p in enumerate(f.params)))
        for f in declared
        if len(f.params) != len(form.args)
    ]
    return list(dict.fromkeys(found)) or [_Form(form.name, form.template, (*form.args, "x"))]
