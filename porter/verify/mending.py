# SPDX-License-Identifier: Apache-2.0
"""What an original lacks, and its port with it: found, offered, and held against the simulator.

An instruction is offered only if the simulator agrees: with it in place neither original nor port has the hazard, nor
one that was not there before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.ptx.ast import SourceLoc
from porter.ptx.wgmma import THREADS
from porter.sim.check.causes import Cause, causes
from porter.sim.check.hazard import Hazard
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder
from porter.verify.case import Case
from porter.verify.hazards import HazardRun, against_original, check_case, usual_level
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.launching import launch_of
from porter.verify.line_map import LineMap, chain
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

_FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
_BLOCK = "__syncthreads();"
_WARPGROUP = f'asm volatile("bar.sync %0, {THREADS};" ::"r"(15 - threadIdx.x / {THREADS}) : "memory");'
"""The barrier on which the warps of a warpgroup meet in ports, too."""

Files = Mapping[str, bytes]


class Texts(Protocol):
    """The texts of an original and its port, to which instructions can be added. What an addition is only the texts
    know."""

    def path(self, file: str) -> str | None:
        """How they know a file, of which a copy was compiled."""

    def place(self, lines: Sequence[tuple[str, int, int]]) -> Any:
        """The one place between the two lines of each (file, line, line), None if there is none."""

    def addition(self, place: Any, text: str, behind: bool, rule: str, title: str, reason: str, reference: str) -> Any:
        """`text` as a statement `behind` the first line, or ahead of the second one."""

    def cluster_end(self, kernel: str) -> Any:
        """A cluster barrier on every way out of a kernel, None if it has no place."""

    def files(self, addition: Any = None) -> tuple[Files, Files] | None:
        """Original and port with all that was taken and an addition; None where that cannot be written."""

    def take(self, addition: Any) -> None:
        """The addition belongs to the port from here on."""


class Mender:
    def __init__(self, texts: Texts, kernel: Path, case: Case, builder: Builder) -> None:
        self.texts, self.kernel, self.case, self.builder = texts, kernel, case, builder
        self.problem = bind(case)
        inputs = generate(self.problem, choose(None, self.problem)[0], 0)
        self.images = {name: make_image(t, inputs.get(name), 0) for name, t in self.problem.tensors.items()}

    def run(self) -> list[Diagnostic]:
        """Deal with each cause; what cannot be mended is named. Lines are those of the original as it was given.

        Raises:
            PorterError: what compiling and running raise.
        """
        left: list[Diagnostic] = []
        original, port = self._check()
        had = {id(i.hazard): i.original for i in port.inherited}
        found = causes([i.hazard for i in port.inherited])
        # What mends an error often mends what is to review as well.
        for cause in sorted(found, key=lambda c: had[id(c.lead)].severity != "error"):
            if _key(cause.lead) not in {_key(i.hazard) for i in port.inherited}:
                continue  # Gone with another one.
            theirs = [had[id(h)] for h in cause.hazards]
            reason = self._mend(cause, theirs, original, port)
            if reason:
                left.append(self._left(theirs[0], reason))
            else:
                original, port = self._check()
        for one in port.similar:
            left.append(self._left(one.original, f"the port lacks more in its place: {one.more}"))
        return left

    def _left(self, hazard: Hazard, reason: str) -> Diagnostic:
        values = {"id": hazard.kind.id, "what": hazard.kind.title, "reason": reason}
        return Diagnostic(Code.HAZARD_NOT_MENDED, self._where(hazard), values)

    def _mend(self, cause: Cause, theirs: Sequence[Hazard], original: HazardRun, port: HazardRun) -> str:
        """Offer what one cause lacks; `theirs` are the original's hazards of it. The reason if that cannot be done."""
        hazard = theirs[0]
        if hazard.kind.id == "H26":
            return self._end_together(cause, original, port)
        texts = _texts(hazard, self.problem.launch.block[0])
        if hazard.first is None or not texts:
            return f"what is missing ({hazard.missing}) is no fence or barrier between two accesses"
        apart = [_apart(h.first.loc if h.first else None, h.second.loc) for h in theirs]
        place = None if None in apart else self.texts.place([lines for lines in apart if lines is not None])
        if place is None:
            return "the accesses have no place in one block of a file that is ported, the one before the other"
        for text, behind in texts:
            addition = self.texts.addition(
                place,
                text,
                behind,
                hazard.kind.code.id,
                f"{hazard.kind.id} of the original: {'proxy fence' if behind else 'barrier'}",
                f"The original lacks it, and its port with it: {hazard.missing}.",
                hazard.kind.source,
            )
            if self._taken(addition, cause, original, port):
                return ""
        return f"with {' or '.join(t for t, _ in texts)} between the accesses the simulator still finds something"

    def _end_together(self, cause: Cause, original: HazardRun, port: HazardRun) -> str:
        """The same for blocks that end before others are done with them."""
        addition = self.texts.cluster_end(self.case.entry.rsplit("::", 1)[-1])
        if addition is None:
            return "where the kernel sets up Tensor Memory was not found"
        if self._taken(addition, cause, original, port):
            return ""
        return "with a cluster barrier on every way out the simulator still finds something"

    def _taken(self, addition: Any, cause: Cause, original: HazardRun, port: HazardRun) -> bool:
        """Take an addition with which the cause is gone and nothing new is there."""
        if self.texts.files(addition) is None:
            return False
        try:
            mended = self._check(addition)
        except PorterError:
            return False
        if not self._better(cause, original, port, *mended):
            return False
        self.texts.take(addition)
        return True

    def _better(self, cause: Cause, *runs: HazardRun) -> bool:
        """Whether of (original, port) and both mended the mended ones have less, the cause not at all, and no more."""
        original, port, mended_original, mended = runs
        if mended_original.status != "ok" or mended.status != "ok":
            return False
        before = Counter(_key(h) for h in (*original.hazards, *port.hazards, *(i.hazard for i in port.inherited)))
        left = [*mended_original.hazards, *mended.hazards, *(i.hazard for i in mended.inherited)]
        after = Counter(_key(h) for h in left)
        return after <= before and not any(after[_key(h)] for h in cause.hazards)

    def _check(self, addition: Any = None) -> tuple[HazardRun, HazardRun]:
        """Original and port with an addition to what is mended already."""
        texts = self.texts.files(addition)
        assert texts is not None
        found = []
        for program, files, arch in zip(("original", "port"), texts, (ORIGINAL_ARCH, PORT_ARCH), strict=True):
            plan = PortPlan(files=files)
            source = materialize(plan, self.kernel)
            kernel = self.builder.build(self.problem, source, arch)
            launch = launch_of(self.problem, kernel)
            level = usual_level(program)
            run = check_case(kernel, self.problem, launch, self.images, program, level, SimOptions(), [0])
            found.append((source, run))
        (base, original), (source, port) = found
        judged, baseline = against_original(port, original, LineMap(base, source))
        return baseline, judged

    def _where(self, hazard: Hazard) -> Location:
        loc = hazard.second.loc
        return Location(str(self.kernel)) if loc is None else Location(self.texts.path(loc.file) or loc.file, loc.line)


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
        if threads <= THREADS:
            return [(_BLOCK, False)]
        warps = [site.warp // 4 for site in (hazard.first, hazard.second) if site and site.warp is not None]
        near = len(set(warps)) == 1
        return [(text, False) for text in ((_WARPGROUP, _BLOCK) if near else (_BLOCK, _WARPGROUP))]
    return []


def _apart(first: SourceLoc | None, second: SourceLoc | None) -> tuple[str, int, int] | None:
    """(file, line, line) in the innermost function that both places are in."""
    chains = [chain(first), chain(second)]
    for (file, line), (other, other_line) in zip(*chains, strict=False):
        if (file, line) != (other, other_line):
            return (file, line, other_line) if file == other else None
    return None
