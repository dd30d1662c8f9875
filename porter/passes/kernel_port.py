# SPDX-License-Identifier: Apache-2.0
"""The passes over the kernels of a source set, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, has_errors
from porter.lang.sources import SourceSet
from porter.lang.text import Edit
from porter.model.accumulators import AccumulatorMap, find_accumulators
from porter.model.batches import Batches, count_batches
from porter.model.builders import Builders, find_builders
from porter.model.flow import FlowBuilder
from porter.model.functions import Call, Style
from porter.model.kernels import Kernel, kernels_of
from porter.model.program import Program, build_program
from porter.model.recognition import Vocabulary
from porter.model.thread_values import several_dimensions
from porter.model.tiled.accumulators import Tiled
from porter.model.tiled.find import find_tiled, synchronizing
from porter.passes import (
    captures,
    completion,
    epilogue,
    header,
    launch_bounds,
    naming,
    overloads,
    residency,
    tmem_lifetime,
    tracked,
)
from porter.passes.arms import RULE as ARMS_RULE
from porter.passes.arms import close_arms, for_blackwell
from porter.passes.builders import CHOICE_RULE, header_text, port_builders
from porter.passes.builders import HEADER as BUILDER_HEADER
from porter.passes.claimed import claimed_by, unclaimed
from porter.passes.columns import assign_columns
from porter.passes.context import Names, PortContext, in_namespace
from porter.passes.findings import model_findings
from porter.passes.full_rate import step
from porter.passes.full_rate.asked import asked_of_runs
from porter.passes.full_rate.proposing import HostSide
from porter.passes.header import RULE as HELPERS_RULE
from porter.passes.header import insert_header
from porter.passes.helpers import NAMESPACE, Helpers, Placement
from porter.passes.idiom.asked import Asked
from porter.passes.idiom.port import port_idiomatic
from porter.passes.idiom.types import Ask
from porter.passes.linkage import called_from_elsewhere
from porter.passes.moves import Moves, place_moves
from porter.passes.native import promotion, scales
from porter.passes.native import step as native_steps
from porter.passes.native.own_words import OwnWords
from porter.passes.native.sites import Left
from porter.passes.native.taking import Launches
from porter.passes.needs import NOTHING, Common, Need, with_helpers
from porter.passes.obstacles import report_consequences, report_obstacles
from porter.passes.partial import LeftKernel, guarded, without_definitions
from porter.passes.plan import KernelPlan, kernel_plan
from porter.passes.tiled.context import NAMESPACE as TILED_NAMESPACE
from porter.passes.tiled.port import CUTE, HEADER, port_tiled


@dataclass(eq=False)
class KernelPort:
    """What the passes make of a source set: edits by rule ID, diagnostics, a plan of each ported kernel, and the files
    that the port adds. There are no edits if anything is refused."""

    program: Program
    diagnostics: list[Diagnostic]
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    plans: list[KernelPlan] = field(default_factory=list)
    left: list[LeftKernel] = field(default_factory=list)
    added: dict[str, bytes] = field(default_factory=dict)
    common: Common = NOTHING
    needs: tuple[Need, ...] = ()
    libraries: frozenset[str] = frozenset()
    """Libraries whose constructs stay, as what uses them was ported."""
    known: frozenset[tuple[str, int]] = frozenset()
    """Places, as (file, offset), of names of libraries that stay because something maps them."""


def port_kernels(
    sources: SourceSet,
    vocabulary: Vocabulary,
    placement: Placement,
    common: Common = NOTHING,
    full_rate: bool = False,
    native: tuple[str, ...] = (),
    stages: int = 0,
    registers: int = 0,
    launches: Launches | None = None,
    host: HostSide | None = None,
    types: Ask | None = None,
) -> KernelPort:
    """Run the passes over everything that uses wgmma, and over builders of libraries; `common` is what other sets,
    which share headers with this one, ask for. `full_rate`: with M=128 MMAs where that can be. `native`: steps of the
    native style that are taken where they can be, with `stages` and `registers`; `launches` says what host code
    launches kernels with; `host`: what host code says beside. `types`: kernels with a TiledMMA are in SM100's own words
    where that can be, and it says what the compiler knows of them."""
    program = build_program(sources, vocabulary)
    ported = _port_kernels(program, placement, common, full_rate, native, stages, registers, launches, host, types)
    _close_arms(ported)
    if elsewhere := called_from_elsewhere(program, ported.edits):
        ported.diagnostics += elsewhere
        ported.edits.clear()
    builders = find_builders(program, _includes(sources, BUILDER_HEADER))
    if builders is not None:
        _ask_builders(ported, builders, placement)
    return ported


def _close_arms(ported: KernelPort) -> None:
    """Kernels for Hopper take Hopper's arm of a conditional, also where one for Blackwell stands in front of it."""
    sources = ported.program.sources
    closed = close_arms(ported.program) if ported.edits else []
    shared = for_blackwell(ported.program, closed)
    if shared is not None:
        where = sources.files[shared.path].location(shared.span)
        values = {"what": "code for Blackwell in front of Hopper's in a conditional, beside kernels for Blackwell"}
        ported.diagnostics.append(Diagnostic(Code.WGMMA_FORM, where, values))
        ported.edits.clear()
    elif closed:
        ported.edits.setdefault(ARMS_RULE, []).extend(closed)


def _ask_builders(ported: KernelPort, builders: Builders, placement: Placement) -> None:
    """Add the port of builders to that of kernels."""
    found, stopped = port_builders(builders), has_errors(ported.diagnostics)
    ported.diagnostics += found.diagnostics
    ported.known = frozenset(found.known)
    if found.diagnostics or stopped:
        ported.edits.clear()
        return
    for rule, edits in found.edits.items():
        ported.edits.setdefault(rule, []).extend(edits)
    if found.needs_header:
        context = new_context(builders.program, find_accumulators(builders.program), placement, NOTHING)
        context.edits = {CHOICE_RULE: found.edits[CHOICE_RULE]}
        text = header_text(builders.program.vocabulary)
        insert_header(context, BUILDER_HEADER, unclaimed(context, text, TILED_NAMESPACE))
        ported.edits.setdefault(HELPERS_RULE, []).extend(context.edits[HELPERS_RULE])
        ported.added |= context.added


def _port_kernels(
    program: Program,
    placement: Placement,
    common: Common,
    full_rate: bool,
    native: tuple[str, ...],
    stages: int,
    registers: int,
    launches: Launches | None,
    host: HostSide | None,
    types: Ask | None,
) -> KernelPort:
    sources = program.sources
    tiled = find_tiled(program)
    accumulators = find_accumulators(program)
    if tiled is not None:
        left: list[Diagnostic] = []
        if types is not None:
            of_sm100 = _port_idiomatic(program, accumulators, tiled, placement, types, host, native, stages)
            if isinstance(of_sm100, KernelPort):
                return of_sm100
            left = [of_sm100]
        ported = _port_tiled(program, accumulators, tiled, placement)
        ported.diagnostics += left if ported.edits else []
        return ported
    findings = model_findings(program, accumulators)
    if has_errors(findings) or not program.statements:
        words = frozenset(program.identifiers()) if program.statements else frozenset()
        libraries = _ported_libraries(program, sources)
        findings += [_unported(c) for c in synchronizing(program)] if libraries else []
        return KernelPort(program, findings, common=Common(words), libraries=libraries)
    context = new_context(program, accumulators, placement, common)
    report_obstacles(context)
    moves = place_moves(context)
    report_depth(context)
    shared = common if full_rate else None
    plans: list[KernelPlan] = []
    if not has_errors(context.diagnostics):
        plans = rewrite(context, moves, shared, native, stages, registers, launches, host)
    report_overlaps(context)
    findings += context.diagnostics
    own = _common(context)
    if has_errors(findings):
        return KernelPort(program, findings, common=own)
    return KernelPort(program, findings, context.edits, plans, added=context.added, common=own)


def _ported_libraries(program: Program, sources: SourceSet) -> frozenset[str]:
    """Libraries whose constructs stay in sources that are a port themselves."""
    texts = (f.lexed.plain_text for f in sources.files.values())
    own_words = any(program.vocabulary.spellings.stand_in("atom_of_sm100", text) for text in texts)
    return frozenset({CUTE}) if own_words or _includes(sources, HEADER) else frozenset()


def _includes(sources: SourceSet, header: str) -> bool:
    return any(Path(include.name).name == header for include in sources.includes)


def _unported(call: Call) -> Diagnostic:
    """A call of a library for batches of MMAs, where none of its MMAs is left to port."""
    where = call.caller.file.location(call.name_span)
    return Diagnostic(Code.LIBRARY_CONSTRUCT, where, {"name": call.name, "library": CUTE})


def _common(context: PortContext) -> Common:
    barriers, warpgroups = _barriers(context.kernels)
    moves = tuple(sorted((owner, move) for owner, moves in context.member_moves.items() for move in moves))
    words = frozenset(context.program.identifiers())
    return Common(words, barriers, warpgroups, context.helpers, moves, context.claimed)


def _port_idiomatic(
    program: Program,
    accumulators: AccumulatorMap,
    tiled: Tiled,
    placement: Placement,
    types: Ask,
    host: HostSide | None,
    native: tuple[str, ...] = (),
    stages: int = 0,
) -> KernelPort | Diagnostic:
    """The port in SM100's own words, with the steps that it can have, or the fact that keeps kernels from it."""

    def make(asked: Asked) -> KernelPort:
        context = new_context(program, accumulators, placement, NOTHING)
        plans = port_idiomatic(context, tiled, types, asked, host.boxes if host is not None else None)
        findings = model_findings(program, accumulators) + context.diagnostics
        return KernelPort(program, findings, context.edits, plans, libraries=frozenset(tiled.libraries))

    try:
        if host is not None and host.both_chips:
            # host code, which is compiled once, makes the types and asks for their sizes
            caller = tiled.calls[0].caller
            raise Left(caller, caller.head, "sources for one chip: these keep their form for Hopper")
        words = OwnWords(make, next((k for k in program.kernels if id(k) in tiled.active), program.kernels[0]), stages)
        port, taken = words.take(native_steps.wanted("cute", native, {"stages": stages}))
    except Left as left:
        names = ", ".join(dict.fromkeys(k.name for k in program.kernels if id(k) in tiled.active))
        where = left.function.file.location(left.span)
        return Diagnostic(Code.IDIOM_LEFT, where, {"kernel": names or left.function.name, "what": left.what})
    port.diagnostics += words.said
    stages = words.asked.stages
    port.plans = [replace(p, native=taken, stages=stages) for p in port.plans]
    return port


def _port_tiled(program: Program, accumulators: AccumulatorMap, tiled: Tiled, placement: Placement) -> KernelPort:
    """The port of sources whose MMAs a library issues, with a header beside it."""
    findings = model_findings(program, accumulators)
    if program.statements:
        for statement in program.statements:
            if statement.answer is None:
                tiled.refuse(statement.function, statement.statement.node, _BOTH, Code.WGMMA_FORM)
    context = new_context(program, accumulators, placement, NOTHING)
    stopped, plans = port_tiled(context, tiled)
    findings += stopped + context.diagnostics
    libraries = frozenset(tiled.libraries)
    if has_errors(findings):
        return KernelPort(program, findings, libraries=libraries)
    return KernelPort(program, findings, context.edits, plans, added=context.added, libraries=libraries)


_BOTH = "wgmma of its own beside MMAs of a library"


def report_overlaps(context: PortContext) -> None:
    """Text of a user's rule in place of something that is ported itself, as a call in an argument is."""
    for statement in context.program.statements:
        recognizer = statement.answer.recognizer if statement.answer is not None else None
        if recognizer is None:
            continue
        span, path = statement.statement.span, statement.statement.path
        inside = [
            rule
            for rule, edits in context.edits.items()
            for edit in edits
            if edit.path == path and edit.span != span and edit.span.overlaps(span)
        ]
        if inside:
            what = f"the call holds something that {inside[0]} changes; give it a name in front"
            context.report(Code.RULE_NEAR_MISS, statement.function, span, rule=recognizer.rule, what=what)


def guard_emptied(context: PortContext) -> None:
    """Bodies that rules speak for, and that nothing in the port comes to, stay for sm_90a, or go with the function."""
    emptied = context.program.emptied
    found = [(f, r) for f in context.program.functions if (r := emptied.get(id(f))) and f.style is not Style.MACRO]
    asked = [f for f, recognizer in found if recognizer.definition == "drop"]
    dropped = {id(f): edit for f, edit in without_definitions(context.program, asked)}
    for function, recognizer in found:
        edits = context.edits.setdefault(recognizer.rule, [])
        if id(function) in dropped:
            edits.append(dropped[id(function)])
        elif any("wgmma" in s.template for s in function.asm):
            edits += guarded(function)


def report_depth(context: PortContext) -> None:
    """Calls that the flow of a kernel was not followed into."""
    for call in context.flow.inliner.too_deep:
        what = f"calls nest too deep to be followed to `{call.name}`"
        context.report(Code.CALL_NOT_FOLLOWED, call.caller, call.name_span, what=what)


def rewrite(
    context: PortContext,
    moves: Moves,
    full_rate: Common | None = None,
    native: tuple[str, ...] = (),
    stages: int = 0,
    registers: int = 0,
    launches: Launches | None = None,
    host: HostSide | None = None,
) -> list[KernelPlan]:
    """Edits for everything that is decided; gives a plan of each kernel. `full_rate`: with M=128 MMAs where that can
    be, beside what other sets ask for, and what host code says. `native`: steps that are taken where they
    can be, with `stages` and `registers`."""
    overloads.choose_tile_types(context)
    completion.rewrite_statements(context)
    completion.thread_context(context)
    guard_emptied(context)
    residency.rewrite_params(context)
    residency.rewrite_zeroing(context)
    residency.remove_register_fences(context)
    epilogue.insert_moves(context, moves)
    tracked.insert_moves(context, [m for t in moves.tracked for m in t.moves])
    residency.declare_members(context)
    columns = assign_columns(context, moves)
    allocated = tmem_lifetime.allocate(context, columns)
    residency.declare_tiles(context, columns)
    captures.capture_tiles(context)
    if full_rate is not None:
        step.take(context, full_rate, host)
    plans = [kernel_plan(context, k, allocated[k], columns.owned[k], moves) for k in context.kernels]
    launch_bounds.state_minimum_blocks(context, plans)
    naming.rename_wrappers(context)
    promoted = [promotion.missing(context, moves, columns.owned[k]) for k in context.kernels]
    scaled = [scales.missing(context, moves, columns.owned[k]) for k in context.kernels]
    taken = native_steps.take(context, moves, native, stages, registers, launches, alone=full_rate in (None, NOTHING))
    if taken.steps:
        # steps may load accumulators elsewhere
        plans = [kernel_plan(context, k, allocated[k], columns.owned[k], moves) for k in context.kernels]
    gates = [asked_of_runs(context.helpers, k.function, taken.steps) for k in context.kernels]
    plans = [
        replace(
            p,
            native=taken.steps,
            stages=taken.stages,
            registers=taken.registers,
            promotion=missing,
            scales=scale,
            gate=gate,
            permuted=context.helpers.permuted,
            joined=context.helpers.joined,
        )
        for p, gate, missing, scale in zip(plans, gates, promoted, scaled, strict=True)
    ]
    header.insert_helpers(context)
    report_consequences(context)
    return plans


def new_context(program: Program, accumulators: AccumulatorMap, placement: Placement, common: Common) -> PortContext:
    """What passes begin with: the model of the kernels, names and helpers that fit it and `common`."""
    flow = FlowBuilder(program, accumulators)
    kernels = kernels_of(program)
    counted = [count_batches(flow.flow(k.function)) for k in kernels] or [Batches(8, False, False)]
    batches = Batches(max(b.ring for b in counted), all(b.bounded for b in counted), all(b.fenced for b in counted))
    names = Names(program.identifiers() | common.words | placement.macros)
    claimed = claimed_by(program) | common.claimed | {m for name in placement.macros for m in (name, f"{name}(")}
    in_namespace(names.fresh(f"sm100_{NAMESPACE}") if NAMESPACE in claimed else NAMESPACE)
    barriers, warpgroups = _barriers(kernels)
    own = Helpers(
        ring=batches.ring,
        guarded_commit=not batches.bounded,
        sync_in_wait=not batches.fenced,
        first_barrier=_free_barrier(barriers | common.barriers, max(warpgroups, common.warpgroups)),
        linear_thread=several_dimensions(program),
        padded_shared=any(k.has_dynamic_shared for k in kernels),
        masked_descriptors=program.shifts_beside_fields,
        volatile_registers=program.has_volatile,
        float_registers=any(a.element == "f" for a in accumulators.accumulators),
    )
    moves: dict[str, set[str]] = {}
    for owner, move in common.member_moves:
        moves.setdefault(owner, set()).add(move)
    helpers = with_helpers(own, common.helpers)
    return PortContext(
        program, accumulators, flow, kernels, batches, helpers, names, placement, claimed=claimed, member_moves=moves
    )


def _barriers(kernels: Sequence[Kernel]) -> tuple[frozenset[int], int]:
    """Ids of named barriers that kernels use, and how many ids the warpgroups of a block need."""
    used = frozenset[int]().union(*(k.used_barriers for k in kernels))
    return used, max((k.roles.first + (k.roles.value or 3) for k in kernels), default=1)


def _free_barrier(used: frozenset[int], count: int) -> int:
    """The highest id from which `count` ids downwards are free; 0 if there is none."""
    for first in range(15, count - 1, -1):
        if not used & set(range(first - count + 1, first + 1)):
            return first
    return 0
