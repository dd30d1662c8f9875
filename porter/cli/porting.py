# SPDX-License-Identifier: Apache-2.0
"""Calling the port engine for the commands that need a port."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from porter.build.cache import Cache
from porter.build.port_plan import PortPlan
from porter.build.trust import is_granted
from porter.cli.context import Session, current
from porter.cli.endings import latent
from porter.cli.options import split_list
from porter.diagnostics import Code, PorterError
from porter.diagnostics.spread import Tell
from porter.lang.sources import load_sources
from porter.passes import ported as engine
from porter.passes.chip_text import Ask
from porter.passes.full_rate.step import wide_rules
from porter.passes.helpers import Placement
from porter.passes.idiom_dsl.facts import Trace, Traces
from porter.passes.native.step import OF_DSL, OF_DSL_ON_REQUEST, steps_of
from porter.passes.port import PortOptions
from porter.passes.ported import Beside, Ported
from porter.passes.targets import port_target
from porter.project.root import project_root
from porter.rules.engine import Selection
from porter.rules.load import load_rules
from porter.scan import boxes
from porter.scan.boxes import KernelBoxes
from porter.scan.pipeline import KernelPipeline, launched
from porter.tune.automatic import SECONDS
from porter.tune.staging import port_plan
from porter.tune.styles import AUTO, COMPAT, FULL_RATE, HANDED_OUT, NATIVE, SM100
from porter.verify.budget import Budget
from porter.verify.case import Case, case_directories, has_dsl_case
from porter.verify.gate import GateOptions
from porter.verify.launching import ported_case
from porter.verify.preprocessed import preprocessed
from porter.verify.traces import traced
from porter.verify.types import types_of

OWN_WORDS = "idiom/"
"""Passes that write a port in SM100's own words of CuTe C++, as rules name them."""


def look(path: Path) -> Beside:
    root = project_root(path)
    above = tuple(d for d in path.resolve().parents[1:] if d.is_relative_to(root))
    return Beside(case_directories(path), has_dsl_case(path), above)


def launches_of(rule_directories: tuple[str, ...], path: Path, include_dirs: Sequence[Path]) -> list[KernelPipeline]:
    """What the host code of a file launches its kernels with."""
    if rule_directories:
        return launched(path, load_rules(rule_directories), include_dirs)
    sources = load_sources(path, include_dirs)
    texts = tuple((key, file.source) for key, file in sources.files.items())
    return list(_launches_of(path, tuple(include_dirs), sources.include_dirs, texts))


@lru_cache(maxsize=8)
def _launches_of(
    path: Path, include_dirs: tuple[Path, ...], looked_in: tuple[Path, ...], texts: tuple[tuple[str, bytes], ...]
) -> tuple[KernelPipeline, ...]:
    """By Porter's own rules. Steps of a port ask for them one after the other, of the same texts: `looked_in` and
    `texts` tell those from others."""
    return tuple(launched(path, load_rules(), include_dirs))


def boxes_of(rule_directories: tuple[str, ...], path: Path, include_dirs: Sequence[Path]) -> list[KernelBoxes]:
    """What the host code of a file says of the tensor maps that it launches its kernels with."""
    return boxes.boxes_of(path, load_rules(rule_directories), include_dirs)


def traces_of(path: Path, names: Sequence[str]) -> list[Trace] | str:
    """The traces of a file of CuTe DSL, as its cases call it; or why there are none."""
    found = traced(path, names)
    if isinstance(found, str):
        return found
    launches = [(one, one.launches[0]) for one in found if one.launches]
    return [Trace(o.calls, math.prod(at.block), math.prod(at.cluster), frozenset(o.absent)) for o, at in launches]


def trusted_traces_of(budget: Budget, path: Path, names: Sequence[str]) -> list[Trace] | str:
    """The same, if there is time; nobody is asked whether the file may be imported."""
    if not is_granted():
        return "its trace, for which it is imported, which needs `--trust`"
    return "its trace, for which no time was left" if budget.is_spent else traces_of(path, names)


def traces_in(session: Session) -> Traces | None:
    """Who traces files of CuTe DSL for ports of them in Blackwell's own words, which every style but compat asks for.
    None for that, and for commands that make no other ports."""
    if session.style in (None, COMPAT):
        return None
    return partial(trusted_traces_of, Budget(SECONDS)) if session.style == AUTO else traces_of


def port_options(session: Session) -> PortOptions:
    """What a session says of every port that it makes.

    Raises:
        PorterError: BAD_OPTION: it asks for a step of another style.
    """
    for option, asked in (("--drop-promotion", session.drop_promotion), ("--block-scale", session.block_scale)):
        if asked and session.style != NATIVE:
            raise PorterError(Code.BAD_OPTION, option=option, problem="asks for a step of --style native")
    own = {"--layouts": session.layouts == SM100, "--tiles": session.tiles == HANDED_OUT}
    for option, asked in own.items():
        if asked and session.style == COMPAT:
            raise PorterError(Code.BAD_OPTION, option=option, problem="asks for a port in Blackwell's own words")
    steps = steps_of(bool(session.drop_promotion), bool(session.block_scale), *own.values())
    of_dsl = tuple(s for s in steps if s in (*OF_DSL, *OF_DSL_ON_REQUEST))
    options = PortOptions(
        tuple(split_list(session.select)),
        tuple(split_list(session.ignore)),
        tuple(map(str, session.rules)),
        keep_hopper=session.keep_hopper,
        target=port_target(session.target),
        full_rate=session.style in (AUTO, FULL_RATE, NATIVE),
        native={NATIVE: steps, AUTO: of_dsl}.get(
            session.style or "", tuple(s for s in of_dsl if s in OF_DSL_ON_REQUEST)
        ),
        launches=partial(launches_of, tuple(map(str, session.rules))) if session.style == NATIVE else None,
        boxes=partial(boxes_of, tuple(map(str, session.rules))) if session.style in (FULL_RATE, NATIVE) else None,
        types=partial(types_of, GateOptions(toolkit=session.toolkit)) if session.style not in (None, COMPAT) else None,
        traces=traces_in(session),
        store=Cache.default(),
    )
    return _if_selected(session, options)


def asking(session: Session, options: PortOptions) -> PortOptions:
    """The same, for ports that the preprocessor is asked of; if nothing else is said, as the compile gate compiles."""
    gate = GateOptions(toolkit=session.toolkit, target=options.target.name)
    return options if options.ask is not None else replace(options, ask=partial(preprocessed, gate))


def untraced(*_: object) -> str:
    """In place of traces of CuTe DSL, there."""
    return "its trace (`--no-compile`)"


def unasked(*_: object) -> str:
    """In place of the preprocessor, where nothing is to be compiled."""
    return "--no-compile"


def _if_selected(session: Session, options: PortOptions) -> PortOptions:
    """Who leaves a rule of M=128 MMAs out asks for none of them, unless by the style's name; who leaves one out of
    SM100's own words, for none of these."""
    selection = Selection(options.select or None, options.ignore)
    if session.style != AUTO:
        return options
    rules = load_rules(options.rule_directories)
    own_words = all(selection.takes(r.id) for r in rules if (r.implemented_by or "").startswith(OWN_WORDS))
    types = options.types if own_words else None
    return replace(options, full_rate=options.full_rate and all(map(selection.takes, wide_rules())), types=types)


def port_paths(
    paths: Iterable[Path],
    include_dirs: Sequence[Path] = (),
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    inline: bool = False,
    jobs: int = 1,
    tell: Tell | None = None,
    storage: str = "",
    target: str | None = None,
    half_rate: frozenset[str] = frozenset(),
    without: frozenset[tuple[str, str]] = frozenset(),
    stages: frozenset[tuple[str, int]] = frozenset(),
    registers: frozenset[tuple[str, int]] = frozenset(),
    chosen: frozenset[tuple[str, str]] = frozenset(),
    gate: GateOptions | None = None,
    compiles: bool = True,
    ask: Ask | None = None,
) -> Ported:
    """Port files and trees with the session's rules; quoted includes are also looked for in `include_dirs`. `inline`,
    `storage`: see `Placement`. `target`: another chip than the session's. `half_rate`, `without`, `stages`,
    `registers`, `chosen`, `ask`: see `PortOptions`. `gate`: how originals are compiled, where that is not as by
    default; without `compiles` they are not.

    Raises:
        PorterError: what the front end and the engine raise.
    """
    options = port_options(current())
    if select is not None and ignore is not None:
        options = _if_selected(current(), replace(options, select=tuple(select), ignore=tuple(ignore)))
    options = replace(
        options,
        placement=Placement(inline=inline, storage=storage, macros=current().macros),
        half_rate=half_rate,
        without=without,
        stages=stages,
        registers=registers,
        chosen=chosen,
    )
    if options.traces is not None and not compiles:
        options = replace(options, traces=untraced)
    if options.types is not None and gate is not None:
        options = replace(options, types=partial(types_of, gate) if compiles else unasked)
    chip = port_target(target) if target else options.target
    options = asking(current(), replace(options, target=chip, ask=ask))
    found = None
    if compiles and current().mend is not False:
        found = partial(latent, options=gate or GateOptions(tuple(include_dirs), toolkit=current().toolkit))
    return engine.port_paths(paths, options, include_dirs, look, jobs, tell, found)


def plan_in(session: Session, ported: Ported, case: Case | None) -> PortPlan | None:
    """A port as a case launches it, or as its own host code does; None if the case's kernel was left."""
    left = case is not None and ported.leaves(case.entry)
    return None if left else plan_on(case, port_plan(session, ported))


def plan_on(case: Case | None, plan: PortPlan) -> PortPlan:
    """A port as a case launches it, or as its own host code does."""
    if case is None:
        return plan
    if plan.source is not None:
        return replace(plan, section=case.port)
    return plan.on(case.template, case.launch.grid, case.map_params)


def case_of_port(case: Case, port: Path | None) -> Case:
    """The case as `port` has it, where one is given: what it says of ports that it knows."""
    return case if port is None else ported_case(case, case.port)
