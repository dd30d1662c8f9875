# SPDX-License-Identifier: Apache-2.0
"""`porter port --mend`: what an original lacks, and its port with it, as edit groups of their own.

An instruction is offered only if the simulator agrees: with it in place neither original nor port has the hazard, nor
one that was not there before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.build.port_plan import PortPlan, materialize
from porter.cli.porting import Ported
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.lang.cuda import parse_cuda
from porter.lang.sources import is_python
from porter.lang.statements import Gap, gap
from porter.lang.text import Edit, EditConflict, EditGroup, Safety, Span, apply_groups
from porter.ptx.ast import SourceLoc
from porter.sim.check.causes import Cause, causes
from porter.sim.check.hazard import Hazard
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder
from porter.verify.case import Case, cases_of, load_case
from porter.verify.hazards import HazardRun, against_original, check_case, usual_level
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.line_map import LineMap
from porter.verify.problem import bind
from porter.verify.runner import changed_launch, launch_of
from porter.verify.settings import SimOptions

_FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
_BLOCK = "__syncthreads();"
_WARPGROUP = 'asm volatile("bar.sync %0, 128;" ::"r"(15 - threadIdx.x / 128) : "memory");'
"""The barrier on which the warps of a warpgroup meet in ports, too."""

_THREADS = 128
"""Of a warpgroup."""


def mend(ported: Ported, builder: Builder) -> None:
    """Add to a port what its originals lack, as groups of safety `review`; what cannot be placed is named.

    Raises:
        PorterError: BAD_OPTION where no file has a case to run; what binding, compiling and running raise.
    """
    found = [(root.path, case) for root in ported.roots for case in _cases(root.path)]
    if not found:
        raise PorterError(Code.BAD_OPTION, option="--mend", problem="needs a case beside the kernel, to run it")
    for root, case in found:
        _Mender(ported, root, case, builder).run()


def _cases(root: str) -> Iterator[Case]:
    if is_python(Path(root)):
        return
    try:
        yield from (load_case(path) for path in cases_of(Path(root)))
    except PorterError as error:
        if error.diagnostic.code is not Code.CASE_NOT_FOUND:
            raise


class _Mender:
    def __init__(self, ported: Ported, root: str, case: Case, builder: Builder) -> None:
        self.ported, self.case, self.builder = ported, case, builder
        self.kernel = Path(root)
        self.problem = bind(case)
        inputs = generate(self.problem, choose(None, self.problem)[0], 0)
        self.images = {name: make_image(t, inputs.get(name), 0) for name, t in self.problem.tensors.items()}

    def run(self) -> None:
        """Deal with each cause; lines are those of the original as it was given."""
        original, port = self._check([])
        had = {id(i.hazard): i.original for i in port.inherited}
        found = causes([i.hazard for i in port.inherited])
        # What mends an error often mends what is to review as well.
        for cause in sorted(found, key=lambda c: had[id(c.lead)].severity != "error"):
            if _key(cause.lead) not in {_key(i.hazard) for i in port.inherited}:
                continue  # Gone with another one.
            theirs = [had[id(h)] for h in cause.hazards]
            reason = self._mend(cause, theirs, original, port)
            if reason:
                kind = theirs[0].kind
                values = {"id": kind.id, "what": kind.title, "reason": reason}
                self.ported.diagnostics.append(Diagnostic(Code.HAZARD_NOT_MENDED, self._where(theirs[0]), values))
            else:
                original, port = self._check([])

    def _mend(self, cause: Cause, theirs: Sequence[Hazard], original: HazardRun, port: HazardRun) -> str:
        """Offer what one cause lacks; `theirs` are the original's hazards of it. The reason if that cannot be done."""
        hazard = theirs[0]
        texts = _texts(hazard, self.problem.launch.block[0])
        if hazard.first is None or not texts:
            return f"what is missing ({hazard.missing}) is no fence or barrier between two accesses"
        found = [self._gap(h) for h in theirs]
        places = [(path, place) for path, place in found if path is not None and place is not None]
        behind, ahead = (max((p.behind for _, p in places), default=0), min((p.ahead for _, p in places), default=-1))
        if len(places) < len(found) or len({(path, p.indent) for path, p in places}) != 1 or behind > ahead:
            return "the accesses have no place in one block of a file that is ported, the one before the other"
        path, place = places[0][0], Gap(behind, ahead, places[0][1].indent)
        for text, behind in texts:
            offset = place.behind if behind else place.ahead
            edit = Edit(path, Span(offset, offset), place.indent + text.encode() + b"\n")
            group = EditGroup(
                hazard.kind.code.id,
                f"{hazard.kind.id} of the original: {'proxy fence' if behind else 'barrier'}",
                Safety.REVIEW,
                (edit,),
                f"The original lacks it, and its port with it: {hazard.missing}.",
                (hazard.kind.source,),
            )
            try:
                mended = self._check([group])
            except (PorterError, EditConflict):
                continue
            if self._better(cause, original, port, *mended):
                self._take(group)
                return ""
        return f"with {' or '.join(t for t, _ in texts)} between the accesses the simulator still finds something"

    def _gap(self, hazard: Hazard) -> tuple[str | None, Gap | None]:
        """The file and the place between the two accesses of a hazard of the original."""
        lines = _apart(hazard.first.loc if hazard.first else None, hazard.second.loc)
        path = None if lines is None else self._path(lines[0])
        if lines is None or path is None:
            return None, None
        return path, gap(parse_cuda(path, self.ported.old[path]), lines[1], lines[2])

    def _better(self, cause: Cause, *runs: HazardRun) -> bool:
        """Whether of (original, port) and both mended the mended ones have less, the cause not at all, and no more."""
        original, port, mended_original, mended = runs
        if mended_original.status != "ok" or mended.status != "ok":
            return False
        before = Counter(_key(h) for h in (*original.hazards, *port.hazards, *(i.hazard for i in port.inherited)))
        left = [*mended_original.hazards, *mended.hazards, *(i.hazard for i in mended.inherited)]
        after = Counter(_key(h) for h in left)
        return after <= before and not any(after[_key(h)] for h in cause.hazards)

    def _check(self, groups: Sequence[EditGroup]) -> tuple[HazardRun, HazardRun]:
        """Original and port with these groups added to what is mended already."""
        mends = [*(g for g in self.ported.groups if g.rule.startswith("PT4")), *groups]
        files = apply_groups(dict(self.ported.old), mends)
        plans = PortPlan(files=files), PortPlan(files=self._ported(groups))
        found = []
        for program, plan, arch in zip(("original", "port"), plans, (ORIGINAL_ARCH, PORT_ARCH), strict=True):
            source = materialize(plan, self.kernel)
            kernel = self.builder.build(self.problem, source, arch)
            launch = changed_launch(launch_of(self.problem, kernel), plan)
            level = usual_level(program)
            run = check_case(kernel, self.problem, launch, self.images, program, level, SimOptions(), [0])
            found.append((source, run))
        (base, original), (source, port) = found
        judged, baseline = against_original(port, original, LineMap(base, source))
        return baseline, judged

    def _ported(self, groups: Sequence[EditGroup]) -> dict[str, bytes]:
        if not groups:
            return self.ported.new
        changed = apply_groups(dict(self.ported.old), [*self.ported.groups, *groups])
        return {path: changed.get(path, data) for path, data in self.ported.new.items()}

    def _take(self, group: EditGroup) -> None:
        self.ported.new = self._ported([group])
        self.ported.groups.append(group)

    def _path(self, file: str) -> str | None:
        """How the port knows a file: a copy of it was compiled."""
        name = Path(file).name
        same = [p for p in self.ported.old if Path(p).resolve() == Path(file).resolve()]
        return next(iter(same or [p for p in self.ported.old if Path(p).name == name]), None)

    def _where(self, hazard: Hazard) -> Location:
        loc = hazard.second.loc
        return Location(str(self.kernel)) if loc is None else Location(self._path(loc.file) or loc.file, loc.line)


def _key(hazard: Hazard) -> tuple[str, ...]:
    """What stays of a hazard when lines move."""
    return hazard.kind.id, hazard.first.opcode if hazard.first else "", hazard.second.opcode, hazard.missing


def _texts(hazard: Hazard, threads: int) -> list[tuple[str, bool]]:
    """What supplies the missing edge in blocks of so many threads, the narrowest first: (statement, whether it goes
    right behind the first access)."""
    if "shared memory" not in hazard.kind.title and "operand" not in hazard.kind.title:
        return []
    if hazard.remedy == "fence.proxy.async":
        return [(_FENCE, True)]
    if hazard.missing.startswith("synchronization"):
        if threads <= _THREADS:
            return [(_BLOCK, False)]
        warps = [site.warp // 4 for site in (hazard.first, hazard.second) if site and site.warp is not None]
        near = len(set(warps)) == 1
        return [(text, False) for text in ((_WARPGROUP, _BLOCK) if near else (_BLOCK, _WARPGROUP))]
    return []


def _apart(first: SourceLoc | None, second: SourceLoc | None) -> tuple[str, int, int] | None:
    """(file, line, line) in the innermost function that both places are in."""
    chains = [_chain(first), _chain(second)]
    for (file, line), (other, other_line) in zip(*chains, strict=False):
        if (file, line) != (other, other_line):
            return (file, line, other_line) if file == other else None
    return None


def _chain(loc: SourceLoc | None) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while loc is not None:
        found.insert(0, (loc.file, loc.line))
        loc = loc.inlined_at
    return found
