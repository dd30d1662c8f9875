# SPDX-License-Identifier: Apache-2.0
"""The compat port of a source set: run the passes, collect their edits in groups, apply all or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, exit_code_of, has_errors
from porter.lang.coverage import not_read, reading_findings
from porter.lang.cuda import enclosing, location
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups
from porter.model.accumulators import Accumulator, AccumulatorMap, find_accumulators
from porter.model.batches import Batches, count_batches
from porter.model.facts import TENSOR_CORE, Doubt, Vocabulary
from porter.model.flow import FlowBuilder
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel, kernels_of
from porter.model.program import Program, Refusal, build_program
from porter.model.tensor_core import MmaStep
from porter.model.thread_values import several_dimensions
from porter.passes import (
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
from porter.passes.both import keep_hopper
from porter.passes.context import Names, PortContext
from porter.passes.helpers import OPERAND_COLUMNS, OPERANDS, Helpers
from porter.passes.moves import place_moves
from porter.passes.obstacles import report_obstacles
from porter.passes.partial import RULE as GUARD_RULE
from porter.passes.partial import LeftKernel, has_stopped, in_both_forms, left_whole, remainder
from porter.passes.pasted import unread_pieces
from porter.passes.plan import KernelPlan, kernel_plan
from porter.ptx.tmem import COLUMNS
from porter.ptx.types import ElementType
from porter.rules.engine import OwnNames, Selection, build_file_groups, pass_groups, pattern_groups
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary
from porter.rules.rule import Region, Rule

NO_RULE = "none"
"""What `select` takes for no rule at all."""


@dataclass(frozen=True)
class PortOptions:
    """`select`/`ignore`: rule IDs or prefixes of them; nothing selected means all. `rules`: extra rule directories.
    `helpers_in_root`: the helpers stand in the root, so that a header comes out the same for all roots that include
    it. `keep_hopper`: the port stands beside the original, for a build of both. `both_forms`: headers that other
    roots need as they are, whose functions therefore stay beside their ports; `leave`: such a root, all of whose
    kernels are left."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rule_directories: tuple[str, ...] = ()
    helpers_in_root: bool = False
    keep_hopper: bool = False
    both_forms: frozenset[str] = frozenset()
    leave: bool = False


@dataclass(eq=False)
class PortResult:
    """`files` holds every file of the set after the port, `changed` those that differ. What cannot be ported is named
    in `diagnostics`: kernels in `left` stay as they are, for sm_90a; without any, nothing is changed."""

    sources: SourceSet
    files: dict[str, bytes]
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    plans: list[KernelPlan] = field(default_factory=list)
    build_files: dict[str, bytes] = field(default_factory=dict)
    has_tensor_core: bool = False
    """Whether something that uses wgmma was ported."""
    left: list[LeftKernel] = field(default_factory=list)
    """Kernels that were refused while others were ported."""

    @property
    def kernels(self) -> list[str]:
        """Names of the ported kernels."""
        return [p.kernel for p in self.plans]

    @property
    def changed(self) -> dict[str, bytes]:
        return {p: text for p, text in self.files.items() if text != self.sources.files[p].source}

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


@dataclass(eq=False)
class KernelPort:
    """What the passes make of a source set: edits by rule ID, diagnostics, and a plan of each ported kernel. The
    edits are empty if anything is refused."""

    program: Program
    diagnostics: list[Diagnostic]
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    plans: list[KernelPlan] = field(default_factory=list)
    left: list[LeftKernel] = field(default_factory=list)


def port_kernels(sources: SourceSet, vocabulary: Vocabulary, helpers_in_root: bool = False) -> KernelPort:
    """Run the passes over everything that uses wgmma."""
    program = build_program(sources, vocabulary)
    accumulators = find_accumulators(program)
    diagnostics = [_refused(program, r, Code.SPARSE_WGMMA if r.sparse else Code.WGMMA_FORM) for r in program.refusals]
    diagnostics += [_refused(program, r, Code.ACCUMULATOR_USE) for r in accumulators.refusals]
    diagnostics += _unread(program)
    diagnostics += [d for d in unread_pieces(program) if not _same_place(d, diagnostics)]
    for statement in program.statements:
        for step in statement.steps:
            if isinstance(step, MmaStep) and step.op.a_type is ElementType.B1:
                at = location(statement.function.file, statement.statement.span)
                diagnostics.append(Diagnostic(Code.BINARY_WGMMA, at))
    read = reading_findings(sources)
    if not program.statements and not diagnostics:
        # without wgmma, what was not read stays as it is; what may hide some does not
        kept = (Code.UNPARSED_REGION, Code.UNRESOLVED_INCLUDE, Code.UNREAD_PTX)
        diagnostics = [d for d in read if d.code in kept]
    else:
        # a macro that pastes the shape together is refused above, with the statement it makes
        diagnostics += [d for d in read if not _same_place(d, diagnostics)]
    if has_errors(diagnostics) or not program.statements:
        return KernelPort(program, diagnostics)
    warnings = diagnostics
    context = _context(program, accumulators)
    report_obstacles(context)
    moves = place_moves(context)
    context.helpers_in_root = helpers_in_root
    for call in context.flow.inliner.too_deep:
        what = f"calls nest too deep to be followed to `{call.name}`"
        context.report(Code.ACCUMULATOR_USE, call.caller, call.name_span, what=what)
    if has_errors(context.diagnostics):
        return KernelPort(program, warnings + context.diagnostics)
    context.helpers.count_type = overloads.count_type(context)
    context.helpers.class_tiles = overloads.class_tiles(context)
    completion.rewrite_statements(context)
    completion.thread_context(context)
    residency.rewrite_params(context)
    residency.rewrite_zeroing(context)
    residency.remove_register_fences(context)
    for accumulator in accumulators.accumulators:
        epilogue.insert_loads(context, accumulator, moves.loads[id(accumulator)])
        epilogue.insert_stores(context, accumulator, moves.stores[id(accumulator)])
    tracked.insert_moves(context, [m for t in moves.tracked for m in t.moves])
    residency.declare_members(context)
    plans = _allocate(context, moves.loads, moves.stores)
    launch_bounds.state_minimum_blocks(context, plans)
    naming.rename_wrappers(context)
    header.insert_helpers(context)
    _consequences(context)
    if has_errors(context.diagnostics):
        return KernelPort(program, warnings + context.diagnostics)
    return KernelPort(program, warnings + context.diagnostics, context.edits, plans)


def _context(program: Program, accumulators: AccumulatorMap) -> PortContext:
    flow = FlowBuilder(program, accumulators)
    kernels = kernels_of(program)
    counted = [count_batches(flow.flow(k.function)) for k in kernels] or [Batches(8, False, False)]
    batches = Batches(max(b.ring for b in counted), all(b.bounded for b in counted), all(b.fenced for b in counted))
    words = program.identifiers()
    names = Names(words)
    helpers = Helpers(
        ring=batches.ring,
        # storing an operand may have to close a batch of its own
        guarded_commit=not batches.bounded or _has_register_operands(program),
        sync_in_wait=not batches.fenced,
        first_barrier=_free_barriers(kernels),
        linear_thread=several_dimensions(program),
        padded_shared=any(k.has_dynamic_shared for k in kernels),
        float_registers=any(a.element == "f" for a in accumulators.accumulators),
    )
    return PortContext(program, accumulators, flow, kernels, batches, helpers, names)


def _has_register_operands(program: Program) -> bool:
    return any(isinstance(step, MmaStep) and step.a_registers for s in program.statements for step in s.steps)


def _free_barriers(kernels: Sequence[Kernel]) -> int:
    """The highest id from which as many ids downwards as there are warpgroups are free."""
    used = frozenset[int]().union(*(k.used_barriers for k in kernels)) if kernels else frozenset()
    count = max((k.roles.first + (k.roles.value or 3) for k in kernels), default=1)
    for first in range(15, count - 1, -1):
        if not used & set(range(first - count + 1, first + 1)):
            return first
    return 15


def _allocate(context: PortContext, loads: dict[int, list[Node]], stores: dict[int, list[Node]]) -> list[KernelPlan]:
    """Columns for every accumulator, kernel by kernel; a function that several kernels share keeps one place."""
    program = context.program
    plans: list[KernelPlan] = []
    first: dict[int, str] = {}
    for accumulator in context.accumulators.accumulators:
        earlier = [
            a for a in context.accumulators.accumulators if id(a) in first and a.function is accumulator.function
        ]
        offset = " + ".join(_total(program, a) for a in earlier)
        first[id(accumulator)] = offset or "0"
    for kernel in context.kernels:
        owned = [a for a in context.accumulators.accumulators if _reaches(program, kernel.function, a.function)]
        _offset_by_function(owned, first)
        columns = tmem_lifetime.allocate(context, kernel, owned)
        plans.append(kernel_plan(context, kernel, columns, owned, loads, stores))
        value = _known_columns(context, kernel, owned)
        if value is not None and value > COLUMNS:
            context.report(
                Code.TMEM_TOO_LARGE,
                kernel.function,
                kernel.function.span(kernel.setup_before),
                kernel=kernel.function.name,
                columns=value,
            )
    for accumulator in context.accumulators.accumulators:
        residency.declare(context, accumulator, first[id(accumulator)])
    reached = {
        id(a)
        for k in context.kernels
        for a in context.accumulators.accumulators
        if _reaches(program, k.function, a.function)
    }
    for accumulator in context.accumulators.accumulators:
        if id(accumulator) not in reached and accumulator.function.style is Style.KERNEL:
            context.report(
                Code.ACCUMULATOR_USE,
                accumulator.function,
                accumulator.function.span(accumulator.function.body),
                what=f"how kernel `{accumulator.function.name}` comes to its MMAs is not understood",
            )
        elif id(accumulator) not in reached:
            context.report(
                Code.NO_KERNEL_REACHES,
                accumulator.function,
                accumulator.function.span(accumulator.function.body),
                name=accumulator.function.name,
            )
    return plans


def _offset_by_function(owned: list[Accumulator], first: dict[int, str]) -> None:
    """Accumulators of different functions of one kernel lie behind one another."""
    base = 0
    seen: list[int] = []
    for accumulator in owned:
        if id(accumulator.function) in seen or not seen:
            if not seen:
                seen.append(id(accumulator.function))
            continue
        seen.append(id(accumulator.function))
        base = sum(a.size.columns for a in owned if id(a.function) in seen[:-1])
        for other in owned:
            if other.function is accumulator.function:
                first[id(other)] = str(base) if first[id(other)] == "0" else f"{base} + {first[id(other)]}"


def _total(program: Program, accumulator: Accumulator) -> str:
    """Columns of all its tiles: a number where it is known, which needs no name to be visible."""
    size = accumulator.size
    if size.certain:
        tiles = [program.constants.evaluate(e) for e in accumulator.home.tile_extents]
        if None not in tiles:
            return str(math.prod(t for t in tiles if t is not None) * size.columns)
    return accumulator.home.all_columns(size)


def _known_columns(context: PortContext, kernel: Kernel, owned: list[Accumulator]) -> int | None:
    text = tmem_lifetime.total_columns(context, kernel, owned, kernel.setup_before)
    columns = context.program.constants.evaluate(text) if text is not None else None
    if columns is not None and tmem_lifetime.uses_register_operands(context.program, kernel):
        columns += OPERANDS * OPERAND_COLUMNS
    # an upper bound of the warpgroups is cut to what Tensor Memory has room for
    warpgroups = kernel.roles.value if kernel.roles.exact else 1
    if columns is None or warpgroups is None:
        return None
    return columns * ((warpgroups + 1) // 2)


def _reaches(program: Program, kernel: Function, function: Function) -> bool:
    return id(kernel) in program.reaching([function]) or kernel is function


def _consequences(context: PortContext) -> None:
    for kernel in context.kernels:
        at = kernel.function.name_span or kernel.function.span(kernel.function.body)
        name = kernel.function.name
        context.report(Code.HALF_RATE, kernel.function, at, kernel=name)
        context.report(Code.EXTRA_BARRIER, kernel.function, at, kernel=name)
        if context.helpers.padded_shared:
            context.report(Code.SHARED_MEMORY_GROWS, kernel.function, at, kernel=name, bytes=1024)
        if kernel.unknown_barriers:
            context.report(Code.BARRIER_IDS, kernel.function, at, kernel=name)
        if not kernel.roles.exact:
            context.report(Code.WARPGROUPS_UNKNOWN, kernel.function, at, kernel=name, count=kernel.roles.count)


def _same_place(diagnostic: Diagnostic, others: list[Diagnostic]) -> bool:
    return any(
        o.where is not None
        and diagnostic.where is not None
        and (o.where.path, o.where.line) == (diagnostic.where.path, diagnostic.where.line)
        for o in others
    )


def _refused(program: Program, refusal: Refusal, code: Code) -> Diagnostic:
    file = program.sources.files[refusal.path]
    values = {} if refusal.sparse else {"what": refusal.what}
    return Diagnostic(code, location(file, Span(refusal.start, refusal.end)), values)


_WGMMA_TEXT = re.compile(rb"wgmma\s*\.\s*(?:mma_async|fence|commit_group|wait_group)")


def _unread(program: Program) -> list[Diagnostic]:
    """wgmma in text that no asm statement of the model covers: strings, unparsed regions, odd macros."""
    found = []
    known: dict[str, list[Span]] = {}
    for function in program.functions:
        for statement in function.asm:
            known.setdefault(statement.path, []).append(statement.span)
    for path, file in program.sources.files.items():
        for match in _WGMMA_TEXT.finditer(file.source):
            span = Span(match.start(), match.end())
            if any(s.contains(span) for s in known.get(path, ())):
                continue
            node = file.root.descendant_for_byte_range(span.start, span.end)
            if node is not None and (node.type == "comment" or enclosing(node, "comment") is not None):
                continue
            if _in_comment(file.source, span.start):
                continue
            found.append(Diagnostic(Code.NOT_ANALYSED, location(file, span), {"what": file.text(span)}))
    return found


def _in_comment(source: bytes, offset: int) -> bool:
    """Whether a line comment on the same line covers the offset (also inside macro bodies)."""
    line = source[source.rfind(b"\n", 0, offset) + 1 : offset]
    return b"//" in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line)


def port_sources(sources: SourceSet, options: PortOptions | None = None) -> PortResult:
    """Port a source set; all groups are applied, or none if something Hopper-only is left. A set in which nothing was
    found, and headers were not, is an error.

    Raises:
        PorterError: a rule file is broken (RULE_FILE, RULE_DUPLICATE), or no rule has a selected ID (RULE_UNKNOWN).
    """
    options = options or PortOptions()
    result = port_part(sources, options)
    left = left_unread(sources.root, result.diagnostics, result.has_tensor_core, options)
    if not left:
        return result
    return PortResult(sources, sources.sources(), [], [*result.diagnostics, *left])


def left_unread(path: str, diagnostics: Sequence[Diagnostic], found: bool, options: PortOptions) -> list[Diagnostic]:
    """An error if nothing was `found` in a file and some of its headers were not read."""
    missing = [d for d in diagnostics if d.code is Code.UNRESOLVED_INCLUDE]
    if found or options.select or not missing or has_errors(diagnostics):
        return []
    return [not_read(path, missing)]


def port_part(sources: SourceSet, options: PortOptions) -> PortResult:
    """As `port_sources`, for a set that is a part of a file: what was not found in it may stand in another part."""
    selection = Selection(options.select or None, options.ignore)
    rules = load_rules(options.rule_directories)
    for wanted in (*options.select, *options.ignore):
        if wanted != NO_RULE and not any(r.id.startswith(wanted) for r in rules):
            raise PorterError(Code.RULE_UNKNOWN, rule=wanted)
    port = partial(port_kernels, vocabulary=vocabulary(rules), helpers_in_root=options.helpers_in_root)
    whole, ported_kernels = sources, port(sources)
    stopped = _stopped(ported_kernels, sources, rules, selection)
    rest = None
    if has_errors(stopped):
        rest = remainder(
            ported_kernels.program, stopped, lambda smaller: _stopped(port(smaller), smaller, rules, selection)
        )
    if options.leave:
        kept = left_whole(ported_kernels.program, stopped, options.both_forms)
        if kept is not None:
            edits = {GUARD_RULE: kept.guards(()) or []}
            ported_kernels = KernelPort(ported_kernels.program, kept.diagnostics, edits, [], kept.left)
    elif rest is not None:
        again = port(rest.sources)
        guards = rest.guards(e for edits in again.edits.values() for e in edits)
        if guards is not None:
            again.edits[GUARD_RULE] = guards
            again.left = rest.left
            again.diagnostics[:0] = rest.diagnostics
            sources, ported_kernels = rest.sources, again
    if options.both_forms and not options.leave and ported_kernels.edits:
        there = ported_kernels.edits.setdefault(GUARD_RULE, [])
        changed = [e for rule, edits in ported_kernels.edits.items() if rule != GUARD_RULE for e in edits]
        more = in_both_forms(ported_kernels.program, changed, options.both_forms)
        there += [e for e in more if e not in there]
    edits, diagnostics = ported_kernels.edits, ported_kernels.diagnostics
    own = _own(ported_kernels.program)
    planned = pass_groups(rules, edits, selection)
    groups = planned.groups
    diagnostics += planned.diagnostics
    patterns = pattern_groups(rules, sources, selection, bool(groups), groups, own)
    diagnostics += patterns.diagnostics
    # what was not read may be what the other messages come from
    diagnostics.sort(key=lambda d: d.code is not Code.UNRESOLVED_INCLUDE)
    sources, unchanged = whole, whole.sources()
    left = ported_kernels.left if groups else []
    if options.select and not groups and not patterns.groups:
        # nothing that was asked for is here; what else is here was not asked for
        return PortResult(sources, unchanged, [], patterns.diagnostics if edits else [])
    if has_stopped(diagnostics, left):
        return PortResult(sources, unchanged, [], diagnostics)
    groups = groups + [g for g in patterns.groups if g.safety is not Safety.SKETCH]
    if options.keep_hopper:
        both = keep_hopper(sources, groups, rules)
        groups, diagnostics = both.groups, diagnostics + both.diagnostics
    result = PortResult(sources, apply_groups(unchanged, groups), groups, diagnostics)
    if planned.groups:
        result.has_tensor_core, result.left = True, left
        result.plans = ported_kernels.plans
        files = _build_files(sources, rules)
        build_groups = build_file_groups(rules, files, selection)
        ported = apply_groups(files, build_groups)
        result.build_files = {path: text for path, text in ported.items() if text != files[path]}
        result.groups = groups + build_groups
    return result


def _stopped(port: KernelPort, sources: SourceSet, rules: Sequence[Rule], selection: Selection) -> list[Diagnostic]:
    """What stops the port of a set: what the passes say, and constructs of libraries that are not ported."""
    named = [r for r in rules if r.report is not None]
    return port.diagnostics + pattern_groups(named, sources, selection, False, [], _own(port.program)).diagnostics


def _own(program: Program) -> OwnNames:
    """Among names that a library has, those that are the sources' own and those that the model answers for."""
    defined = frozenset(name for f in program.functions for name in (f.name, f.owner, f.class_name))
    places = set()
    for function in program.functions:
        for call in function.calls:
            if call.name not in program.vocabulary:
                continue
            fact = program.facts.of_call(call)
            # a fact is ported, a doubt refused for a reason of its own
            if fact is None or (program.statements and isinstance(fact, (*TENSOR_CORE, Doubt))):
                places.add((function.file.path, call.name_span.start))
    for function in program.forward:
        if function.name in program.vocabulary and function.name_span is not None:
            places.add((function.file.path, function.name_span.start))
    return OwnNames(defined, frozenset(places))


def _build_files(sources: SourceSet, rules: Sequence[Rule]) -> dict[str, bytes]:
    """Build files beside the root file that some rule reads."""
    directory = Path(sources.root).parent
    found = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        key = str(path)
        if path.is_file() and key not in sources.files and any(r.region is Region.TEXT and r.reads(key) for r in rules):
            found[key] = path.read_bytes()
    return found
