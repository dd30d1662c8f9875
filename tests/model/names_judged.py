# SPDX-License-Identifier: Apache-2.0
"""The model's resolution of calls against clang's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from clang_names import Place, Seen, ask_clang

from porter.lang.sources import load_sources
from porter.model.functions import Call, Function, Style
from porter.model.program import Program, build_program
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary


@dataclass
class Verdict:
    """How many calls were compared; what was found to differ; and what clang could not parse."""

    certain: int = 0
    open: int = 0
    wrong: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    """Calls for which the model keeps more than clang."""
    unseen: list[str] = field(default_factory=list)
    """Calls that reach wgmma by the model, of which clang says nothing."""
    errors: list[str] = field(default_factory=list)


def judge(root: Path, stubs: Path, include_dirs: tuple[Path, ...] = ()) -> Verdict:
    """Compare every call that reaches wgmma, by the model or by clang, and every call of a function of its name."""
    program = build_program(load_sources(root, include_dirs), vocabulary(load_rules()))
    seen = ask_clang(root, stubs, include_dirs)
    uses = program.uses_tensor_core()
    numbers = {id(f): n for f in program.functions if (n := _number(seen, f)) is not None}
    reaching = {numbers[i] for i in uses if i in numbers}
    names = {f.name for f in program.functions if id(f) in uses}
    verdict = Verdict(errors=seen.errors)
    for function in program.functions:
        for call in function.calls if function.style is not Style.MACRO else ():
            _compare(program, seen, call, numbers, reaching, names, verdict)
    return verdict


def _compare(
    program: Program,
    seen: Seen,
    call: Call,
    numbers: dict[int, int],
    reaching: set[int],
    names: set[str],
    verdict: Verdict,
) -> None:
    at = _place(call.caller, call.name_span.start)
    targets = program.targets(call)
    ours = {numbers[id(t)] for t in targets if id(t) in numbers}
    exact = seen.called.get(at)
    shown = f"{at[0]}:{at[1]} {call.name}: {[t.qualified_name for t in targets]}"
    if exact is not None:
        if exact not in reaching and not ours & reaching and call.name not in names:
            return
        verdict.certain += 1
        defined = exact in numbers.values()
        if defined and exact not in ours:
            verdict.wrong.append(f"{shown} lacks {_named(program, numbers, exact)}")
        elif ours - {exact}:
            verdict.loose.append(f"{shown} has more than {_named(program, numbers, exact) if defined else 'clang'}")
        return
    among = seen.overloaded.get(at)
    if among is None and ours & reaching:
        verdict.unseen.append(shown)
    if among is None or not (among & reaching or ours & reaching):
        return
    verdict.open += 1
    known = {n for n in among if n in numbers.values()}
    if known and not ours:
        verdict.wrong.append(f"{shown} has none of {[_named(program, numbers, n) for n in known]}")
    elif len(known) == len(among) == 1 and ours != known:
        verdict.loose.append(f"{shown} is not the one {_named(program, numbers, min(known))}")


def _place(function: Function, offset: int) -> Place:
    return str(Path(function.file.path).resolve()), offset


def _number(seen: Seen, function: Function) -> int | None:
    if function.name_span is None or function.style in (Style.LAMBDA, Style.MACRO):
        return None
    return seen.functions.get(_place(function, function.name_span.start))


def _named(program: Program, numbers: dict[int, int], number: int) -> str:
    found = (f for f in program.functions if numbers.get(id(f)) == number and f.name_span is not None)
    return next((f"{f.qualified_name} at {f.file.location(f.name_span)}" for f in found if f.name_span), "?")
