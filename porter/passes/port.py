# SPDX-License-Identifier: Apache-2.0
"""The compat port of a source set: run the passes, collect their edits in groups, apply all or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, Severity, exit_code_of, has_errors
from porter.lang.coverage import not_read
from porter.lang.cuda import location
from porter.lang.sources import SourceSet
from porter.lang.text import EditGroup, Safety, Span, apply_groups
from porter.model.facts import TENSOR_CORE, Doubt
from porter.model.functions import outermost
from porter.model.program import Program
from porter.passes.both import keep_hopper
from porter.passes.build_files import BuildFiles, build_files_beside, port_build_files
from porter.passes.builders import CHOICE_RULE
from porter.passes.builders import RULE as BUILDER_RULE
from porter.passes.chip_checks import Checked, check_chips
from porter.passes.chip_text import Ask
from porter.passes.clashes import clashes
from porter.passes.cluster_end import cluster_ends
from porter.passes.full_rate.proposing import Boxes, HostSide
from porter.passes.header import RULE as HELPERS_RULE
from porter.passes.helpers import Placement
from porter.passes.idiom.types import Ask as AskTypes
from porter.passes.idiom_dsl.facts import Traces
from porter.passes.instructions import instruction_groups
from porter.passes.keeping import Kept
from porter.passes.kernel_port import KernelPort, port_kernels
from porter.passes.native.sites import Left
from porter.passes.native.step import OF_DSL, OF_DSL_ON_REQUEST, chosen_alone
from porter.passes.native.taking import Launches
from porter.passes.native.wide import NAME as WIDE
from porter.passes.native.wide import RULE as WIDE_RULE
from porter.passes.needs import NOTHING, Common, Need, needs_of
from porter.passes.partial import RULE as GUARD_RULE
from porter.passes.partial import LeftKernel, has_stopped, in_both_forms, left_whole, remainder
from porter.passes.plan import KernelPlan
from porter.passes.replacements import replacement_groups
from porter.passes.store import Store
from porter.passes.store_ready import Unready, stores_made_ready
from porter.passes.targets import lacks, named, retargeted
from porter.passes.widening import Widened, not_ported, not_widened, widened
from porter.ptx.arch import SM100A, PortTarget
from porter.rules.engine import OwnNames, Planned, Selection, pass_groups, pattern_groups
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule

_IN_HEADER = Placement()
NO_RULE = "none"
"""What `select` takes for no rule at all."""


@dataclass(frozen=True)
class PortOptions:
    """`select`/`ignore`: rule IDs or prefixes of them; nothing selected means all. `rules`: extra rule directories.
    `placement`: where the helpers stand. `keep_hopper`: the port stands beside the original, for a build of both; None:
    as the project's build says. `both_forms`: headers that other roots need as they are, whose functions therefore stay
    beside their ports; `leave`: such a root, all of whose kernels are left. `blank`: places of headers whose port other
    roots decide; `common`: what those ask for. `target`: the chip. `full_rate`: M=128 MMAs where that can be, but in
    the roots `half_rate`. `native`: steps of the native style that are taken where they can be, but `without`, as
    (root, step). `stages`: how many the ring of a root's kernel gets, as (root, count); as many as it has elsewhere.
    `registers`: how many the warps of a root's kernels keep that give some back, in the same form. `launches`: what
    host code launches kernels with, for steps that change it; `boxes`: what it says of tensor maps. `chosen`: steps
    that are taken only where they are chosen, as (root, step). `ending`: kernels whose blocks may end before others of
    their cluster are done with them, by file and name; `unready`: bulk stores that lack a barrier, as `store_ready` has
    them. `beside`: build files beside a root are ported with it. `ask`: the preprocessor, of which conditions on the
    chip are asked that no rule knows. `types`: kernels with a TiledMMA are in SM100's own words where that can be, but
    in the roots `half_rate`; it asks the compiler for types. `store`: where ports of trees are kept."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rule_directories: tuple[str, ...] = ()
    placement: Placement = _IN_HEADER
    keep_hopper: bool | None = None
    both_forms: frozenset[str] = frozenset()
    leave: bool = False
    blank: tuple[tuple[str, Span], ...] = ()
    common: Common = NOTHING
    target: PortTarget = SM100A
    full_rate: bool = False
    half_rate: frozenset[str] = frozenset()
    native: tuple[str, ...] = ()
    without: frozenset[tuple[str, str]] = frozenset()
    stages: frozenset[tuple[str, int]] = frozenset()
    registers: frozenset[tuple[str, int]] = frozenset()
    launches: Launches | None = None
    boxes: Boxes | None = None
    chosen: frozenset[tuple[str, str]] = frozenset()
    ending: frozenset[tuple[str, str]] = frozenset()
    unready: Unready = frozenset()
    beside: bool = True
    ask: Ask | None = field(default=None, compare=False)
    types: AskTypes | None = field(default=None, compare=False)
    store: Store | None = field(default=None, compare=False)
    traces: Traces | None = field(default=None, compare=False)
    """Asked for ports of CuTe DSL in Blackwell's own words, but for the roots `half_rate`."""

    def asks(self, step: str, root: str) -> bool:
        """Whether kernels of a root may get a step of the native style."""
        is_chosen = step not in chosen_alone() or (root, step) in self.chosen
        return step in self.native and (root, step) not in self.without and is_chosen


@dataclass(eq=False)
class PortResult:
    """`files` holds every file of the set after the port, and the header that it adds; `changed` those that differ.
    What cannot be ported is named in `diagnostics`: kernels in `left` stay as they are, for sm_90a; without any,
    nothing is changed."""

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
    needs: tuple[Need, ...] = ()
    common: Common = NOTHING
    left_over: list[Diagnostic] = field(default_factory=list)
    """Places that ask for a chip and were not understood."""
    plain: list[EditGroup] = field(default_factory=list)
    """The groups as they are without the original's form beside the port's."""

    @property
    def kernels(self) -> list[str]:
        """Names of the ported kernels."""
        return [p.kernel for p in self.plans]

    @property
    def changed(self) -> dict[str, bytes]:
        before = self.sources.sources()
        return {p: text for p, text in self.files.items() if text != before.get(p)}

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


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


def port_beside(result: PortResult, options: PortOptions, changed: frozenset[str]) -> PortResult:
    """The port of a set without anything to port, in a tree of which other sets were ported: what asks for Hopper in
    it, such as a host's comparison with the device's compute capability, is about those. Files that they `changed` are
    done."""
    sources = result.sources
    rules, selection = load_rules(options.rule_directories), Selection(options.select or None, options.ignore)
    found = pattern_groups(rules, sources, selection, True, []).groups
    groups = [g for g in found if g.safety is not Safety.SKETCH and not any(e.path in changed for e in g.edits)]
    groups = retargeted(groups, sources.sources(), options.target, rules)
    checked = check_chips(sources, groups, bool(options.keep_hopper), rules, options.target)
    groups, left = checked.groups, [] if options.select else _elsewhere(checked.left, changed)
    result = replace(result, diagnostics=[*result.diagnostics, *_elsewhere(checked.notes, changed)])
    if options.keep_hopper:
        both = keep_hopper(sources, groups, rules, options.target)
        return replace(result, groups=both.groups, files=apply_groups(result.files, both.groups), left_over=left,
                       diagnostics=result.diagnostics + both.diagnostics)  # fmt: skip
    return replace(result, groups=groups, files=apply_groups(result.files, groups), left_over=left)


def _elsewhere(left: Sequence[Diagnostic], changed: frozenset[str]) -> list[Diagnostic]:
    return [d for d in left if d.where is None or d.where.path not in changed]


def left_unread(path: str, diagnostics: Sequence[Diagnostic], found: bool, options: PortOptions) -> list[Diagnostic]:
    """An error if nothing was `found` in a file and some of its headers were not read."""
    missing = [d for d in diagnostics if d.code is Code.UNRESOLVED_INCLUDE]
    if found or options.select or not missing or has_errors(diagnostics):
        return []
    return [not_read(path, missing)]


def port_part(sources: SourceSet, options: PortOptions) -> PortResult:
    """As `port_sources`, for a set that is a part of a file: what was not found in it may stand in another part."""
    if not options.asks(WIDE, sources.root):
        return _port_text(sources, options)
    rules = load_rules(options.rule_directories)
    said: list[Diagnostic] = []
    try:
        wide = widened(sources, rules, options.launches, bool(options.keep_hopper))
    except Left as left:
        said.append(not_widened(left))
    else:
        if wide is None:
            return _port_text(sources, options)
        made = _of_original(wide, _port_text(wide.sources, options), rules)
        if isinstance(made, PortResult):
            return made
        said.append(made)
    result = _port_text(sources, options)
    result.diagnostics += said if result.has_tensor_core else []
    return result


def _of_original(wide: Widened, result: PortResult, rules: Sequence[Rule]) -> PortResult | Diagnostic:
    """The port of a text with wider tiles as that of the original, or why there is none."""
    errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
    if errors or result.left or not result.plans:
        return not_ported(wide, errors[0].message if errors else "a port of all of its kernels")
    inside = [g for g in result.groups if all(e.path in wide.original.files for e in g.edits)]
    groups = wide.of_original(inside, next(r for r in rules if r.id == WIDE_RULE))
    if groups is None:
        return not_ported(wide, "that no other change of the port is a part of this one")
    plans = [replace(p, native=(WIDE, *p.native), halved=wide.axis) for p in result.plans]
    return replace(
        result,
        sources=wide.original,
        groups=[*groups, *(g for g in result.groups if g not in inside)],
        plain=groups,
        plans=plans,
        diagnostics=[wide.of_original_place(d) for d in result.diagnostics],
    )


def _port_text(sources: SourceSet, options: PortOptions) -> PortResult:
    selection = Selection(options.select or None, options.ignore)
    rules = load_rules(options.rule_directories)
    for wanted in (*options.select, *options.ignore):
        if wanted != NO_RULE and not any(r.id.startswith(wanted) for r in rules):
            raise PorterError(Code.RULE_UNKNOWN, rule=wanted)
    whole, (sources, ported_kernels) = sources, _port_what_can_be(sources, options, rules, selection)
    if options.both_forms and not options.leave and ported_kernels.edits:
        _keep_both_forms(ported_kernels, options.both_forms)
    edits, diagnostics = ported_kernels.edits, ported_kernels.diagnostics
    own = _own(ported_kernels)
    planned = pass_groups(rules, edits, selection, sources.sources())
    groups = planned.groups
    if groups:
        mends = cluster_ends(ported_kernels.program, edits, options.ending)
        groups = mends + stores_made_ready(ported_kernels.program, edits, options.unready) + groups
    diagnostics += planned.diagnostics
    patterns = _standing_alone(ported_kernels.program, sources, rules, selection, groups, own)
    diagnostics += patterns.diagnostics
    # what was not read may be what the other messages come from
    diagnostics.sort(key=lambda d: d.code is not Code.UNRESOLVED_INCLUDE)
    sources, unchanged = whole, whole.sources()
    left = ported_kernels.left if groups else []
    if options.select and not groups and not patterns.groups:
        # nothing that was asked for is here; what else is here was not asked for
        return PortResult(sources, unchanged, [], patterns.diagnostics if edits else [])
    needs, common = ported_kernels.needs, ported_kernels.common
    if has_stopped(diagnostics, left):
        return PortResult(sources, unchanged, [], diagnostics, needs=needs, common=common)
    groups = groups + [g for g in patterns.groups if g.safety is not Safety.SKETCH]
    groups = retargeted(groups, unchanged, options.target, rules)
    if clash := clashes(unchanged, groups):
        return PortResult(sources, unchanged, [], diagnostics + clash, needs=needs, common=common)
    if absent := lacks({**apply_groups(unchanged, groups), **ported_kernels.added}, sources, options.target):
        return PortResult(sources, unchanged, [], diagnostics + absent, needs=needs, common=common)
    keeps = bool(options.keep_hopper)
    checked = check_chips(sources, groups, keeps, rules, options.target) if groups else Checked([], [])
    groups = plain = checked.groups
    if options.keep_hopper:
        asked = [e for rule in (BUILDER_RULE, CHOICE_RULE) for e in edits.get(rule, ())]
        if asked:
            # host code makes the kernel's type, and is compiled once
            at = location(sources.files[asked[0].path], asked[0].span)
            diagnostics.append(Diagnostic(Code.NOT_FOR_BOTH_CHIPS, at, {"what": "a collective builder"}))
            return PortResult(sources, unchanged, [], diagnostics, needs=needs, common=common)
        both = keep_hopper(sources, groups, rules, options.target)
        groups, diagnostics = both.groups, diagnostics + both.diagnostics
    result = PortResult(
        sources, apply_groups(unchanged, groups), groups, diagnostics, needs=needs, common=common, plain=plain
    )
    if planned.groups:
        result.diagnostics += checked.notes
        result.left_over = [] if options.select else checked.left
        result.has_tensor_core, result.left = True, left
        result.plans = ported_kernels.plans
        if any(g.rule == HELPERS_RULE for g in planned.groups):
            result.files |= {p: named(t, options.target) for p, t in ported_kernels.added.items()}
        built = _built_beside(sources, options, rules, selection) if options.beside else BuildFiles()
        result.build_files, result.groups = built.files, groups + built.groups
    return result


def _built_beside(sources: SourceSet, options: PortOptions, rules: Sequence[Rule], selection: Selection) -> BuildFiles:
    """The build files beside the root, ported with it."""
    beside = build_files_beside(Path(sources.root), rules)
    texts = {str(path): path.read_bytes() for path in beside if str(path) not in sources.files}
    return port_build_files(texts, rules, selection, bool(options.keep_hopper), options.target)


def _standing_alone(
    program: Program, sources: SourceSet, rules: Sequence[Rule], selection: Selection, groups: Sequence[EditGroup],
    own: OwnNames,
) -> Planned:  # fmt: skip
    """Edits beside those of the kernels' ports, `groups`, without places that comments keep."""
    replaced = replacement_groups(rules, program, selection, bool(groups), groups)
    found = pattern_groups(rules, sources, selection, bool(groups), [*groups, *replaced.groups], own)
    taken = [*groups, *replaced.groups, *found.groups]
    instructions = instruction_groups(rules, program, selection, bool(groups), taken)
    kept = Kept(sources.sources())
    left, notes = kept.left([*replaced.groups, *instructions.groups, *found.groups])
    said = kept.refused(groups) + notes + kept.unused(sources.root, rules)
    return Planned(left, [*said, *replaced.diagnostics, *instructions.diagnostics, *found.diagnostics])


def _port_what_can_be(
    sources: SourceSet, options: PortOptions, rules: Sequence[Rule], selection: Selection
) -> tuple[SourceSet, KernelPort]:
    """The port of all kernels, or of those that nothing stops; and the sources that it is of, without the others."""
    port = partial(
        port_kernels,
        vocabulary=vocabulary(rules),
        placement=options.placement,
        common=options.common,
        full_rate=options.full_rate and sources.root not in options.half_rate,
        native=tuple(
            s for s in options.native if s not in (WIDE, *OF_DSL_ON_REQUEST, *OF_DSL) and options.asks(s, sources.root)
        ),
        stages=dict(options.stages).get(sources.root, 0),
        registers=dict(options.registers).get(sources.root, 0),
        launches=options.launches,
        host=HostSide(options.boxes, bool(options.keep_hopper)),
        types=options.types if sources.root not in options.half_rate else None,
    )
    first = port(sources)
    first.needs = needs_of(first.program)
    stopped = _stopped(first, sources, rules, selection)
    rest = None
    if has_errors(stopped):
        rest = remainder(first.program, stopped, lambda smaller: _stopped(port(smaller), smaller, rules, selection))
    if options.leave:
        kept = left_whole(first.program, stopped, options.both_forms)
        if kept is not None:
            edits = {GUARD_RULE: kept.guards(()) or []}
            return sources, KernelPort(first.program, kept.diagnostics, edits, [], kept.left, needs=first.needs)
    elif rest is not None:
        again = port(rest.sources)
        guards = rest.guards(e for edits in again.edits.values() for e in edits)
        if guards is not None:
            again.edits[GUARD_RULE] = guards
            again.left, again.needs = rest.left, first.needs
            again.diagnostics[:0] = rest.diagnostics
            return rest.sources, again
    return sources, first


def _keep_both_forms(port: KernelPort, headers: frozenset[str]) -> None:
    """Functions of headers that other roots need as they are stay beside their ports."""
    there = port.edits.setdefault(GUARD_RULE, [])
    changed = [e for rule, edits in port.edits.items() if rule != GUARD_RULE for e in edits]
    there += [e for e in in_both_forms(port.program, changed, headers) if e not in there]


def _stopped(port: KernelPort, sources: SourceSet, rules: Sequence[Rule], selection: Selection) -> list[Diagnostic]:
    """What stops the port of a set: what the passes say, and constructs of libraries that are not ported."""
    named = [r for r in rules if r.report is not None]
    return port.diagnostics + pattern_groups(named, sources, selection, False, [], _own(port)).diagnostics


def _own(port: KernelPort) -> OwnNames:
    """Among names that a library has, those that are the sources' own and those that the model answers for."""
    program = port.program
    defined = frozenset(name for f in program.functions for name in (f.name, f.owner, f.class_name))
    places = set(port.known)
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
    return OwnNames(defined, port.libraries, frozenset(places), frozenset(_compared_parameters(program)))


def _compared_parameters(program: Program) -> Iterator[tuple[str, int]]:
    """Places, as (file, offset), where a template parameter is compared: what it is asked for is what instantiations
    give, whatever its name says."""
    for function in program.functions:
        outer = outermost(function)
        scope = outer.owner_class
        names = {*outer.template_params, *(p.name for p in (scope.params if scope is not None else ()))}
        for node in function.own_nodes("identifier") if names else ():
            above = node.parent
            if above is not None and above.type == "binary_expression" and function.text(node) in names:
                yield function.file.path, function.span(node).start
