# SPDX-License-Identifier: Apache-2.0
"""The port of a kernel whose registers keep the layout of Hopper's MMAs: Tensor Memory is the kernel's, and what it
calls is handed it with its shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import outermost
from porter.model.kernels import top_level_above
from porter.model.scopes import loop_around
from porter.model.tiled.batches import Batches
from porter.model.tiled.flight import Flight
from porter.passes.idiom.allocation import allocate
from porter.passes.idiom.arms import Arms
from porter.passes.idiom.fragments import Fragments
from porter.passes.idiom.places import Place, calls_in, hand, hand_storage, places_of
from porter.passes.idiom.preserving import Preserving, block_around
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.storage import Storage, find_storage
from porter.passes.idiom.text import cpp
from porter.passes.idiom.types import Ask, Question, answered
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.names import Names
from porter.ptx.tmem import COLUMNS
from porter.ptx.wgmma import THREADS as WARPGROUP

RULE, FREE_RULE = "PTR779", "PTR766"


@dataclass(eq=False)
class RowsKept:
    """Writes the port of one kernel."""

    site: Site
    fragments: list[Fragments] = field(init=False)
    storage: Storage = field(init=False)
    arms: Arms = field(init=False)

    def take(self, ask: Ask) -> int:
        """Gives the columns of Tensor Memory that the kernel has.

        Raises:
            Left: a fact is missing.
        """
        site, tiled = self.site, self.site.tiled
        places = places_of(site)
        self.fragments, self.arms = [Fragments(place) for place in places], Arms(places)
        self._ask(ask)
        self._require_followed(places)
        self.fragments = [f for f in self.fragments if f.sums]
        places = [f.place for f in self.fragments]
        if not places:
            raise site.left(site.kernel.body, "an instantiation that the compiler makes")
        context = TiledContext(site.port, tiled, site.activity, Batches(tiled), Flight(tiled))
        context.reached = {id(f) for f in site.program.functions}
        names = Names(context)
        for one in self.fragments:
            one.settle(names)
        site.groups = max(f.groups for f in self.fragments)
        columns = max(f.columns for f in self.fragments)
        site.columns_apart = any(f.fills_lanes for f in self.fragments)
        allocated = self._allocated(columns)
        site.allocated, site.meets_whole = str(allocated), self._is_whole
        self.storage = find_storage(site)
        late = allocate(site, hand_storage(places, self.storage, RULE), True)
        self._phases(places)
        for one in self.fragments:
            Preserving(one, context, names, columns, late, self.arms).take()
        self._free(places)
        return allocated

    def _require_followed(self, places: list[Place]) -> None:
        """What opens, closes or waits for batches stands where MMAs do."""
        site, scopes = self.site, {id(s) for p in places for s in p.scopes}
        scopes |= {id(g.function) for p in places for g in p.gemms.values()}
        reached = site.program.reached([site.kernel], [s.call.caller for s in site.tiled.synchronizations])
        for one in site.tiled.synchronizations:
            is_known = id(one.call.caller) in scopes or not self.arms.is_live(one.call.caller, one.call.node)
            if id(one.call.caller) in reached and not is_known:
                what = "batches that are opened and waited for where MMAs stand"
                raise site.left(one.call.node, what, one.call.caller)
        for call in site.tiled.copy_waits:
            if id(call.caller) not in scopes:
                raise site.left(call.node, "a wait for copies where MMAs stand", call.caller)

    def _ask(self, ask: Ask) -> None:
        """Raises Left if the compiler does not say what types are."""
        site, sources = self.site, self.site.program.sources
        asked = [f.ask() for f in self.fragments]
        at = site.kernel.span(top_level_above(site.kernel, site.at)).start
        whole = Question(site.kernel.file.path, at, "question_of_number", {"number": site.count})
        questions = [*(q for one in asked for q in one), whole, *self.arms.questions]
        found = answered(questions, sources.root, sources.sources(), sources.include_dirs, ask)
        if isinstance(found, str):
            raise site.left(site.at, f"what the compiler says of its types: {found}")
        count = len(questions) - len(self.arms.questions)
        self.arms.take(found[count:])
        answers, warpgroups = found[: count - 1], found[count - 1]
        for one, own in zip(self.fragments, asked, strict=True):
            one.take(answers[: len(own)], warpgroups, self.arms.is_live)
            answers = answers[len(own) :]

    def _allocated(self, columns: int) -> int:
        groups = self.site.groups
        wanted = max(32, columns * (groups if self.site.columns_apart else -(-groups // 2)))
        allocated = 1 << (wanted - 1).bit_length()
        if allocated > COLUMNS:
            raise self.site.left(self.site.at, f"{COLUMNS} columns of Tensor Memory: {allocated} are needed")
        return allocated

    # --- threads

    @property
    def _block(self) -> int | None:
        return self.site.program.constants_in(self.site.kernel).evaluate(self.site.threads or "")

    @property
    def _is_whole(self) -> bool:
        """Whether the threads of a block are one warpgroup, which multiplies."""
        return self.site.groups == 1 and self.site.first_warpgroup == 0 and self._block == WARPGROUP

    @property
    def _counts(self) -> set[int | None]:
        """How many threads multiply, in each instantiation."""
        return {t.threads for f in self.fragments for m in f.mmas.values() for t in m.every}

    @property
    def _threads(self) -> str:
        """Raises Left if that is not a number, and no name of the kernel's says it."""
        one = next(iter(self._counts))
        if len(self._counts) == 1:
            return str(one)
        own = next((m for f in self.fragments if f.place.is_kernel for m in f.mmas.values()), None)
        if own is None:
            raise self.site.left(self.site.at, "a number of threads that all instantiations have")
        return cpp("size_of_mma", c=self.site.c, mma=own.name)

    # --- what the kernel has for others

    def _phases(self, places: list[Place]) -> None:
        """Phases of mbarriers go on from call to call of a function."""
        site = self.site
        names = [*([] if site.meets_whole else [site.name("registers_phase")]), site.name("accumulator_phase")]
        calls = [c for p in places for c in p.calls]
        if len(places) == 1 and (not calls or (len(calls) == 1 and not loop_around(calls[0].node, site.kernel.body))):
            return
        first = min(self._active(places), key=lambda n: n.start_byte)
        block = block_around(site.kernel, self._active(places))
        statement = next(n for n in block.named_children if inside(n, first))
        text = cpp("phases", met=not site.meets_whole, met_phase=names[0], phase=names[-1])
        site.draft.before(RULE, site.kernel, statement, text)
        for place in places:
            if not place.is_kernel:
                hand(place, RULE, {name: cpp("phase_by_reference", name=name) for name in names})
            place.has_phases = True

    def _active(self, places: list[Place]) -> list[Node]:
        """Where the kernel multiplies, or calls what does."""
        own = [m.call.node for p in places if p.is_kernel for m in p.multiplies]
        own += [n for p in places if p.is_kernel for s in p.scopes for n in calls_in(p, s)]
        return [*own, *(c.node for p in places for c in p.calls)]

    def _free(self, places: list[Place]) -> None:
        site, kernel = self.site, self.site.kernel
        nodes = self._active(places)
        own = [s.call.node for s in site.tiled.synchronizations if outermost(s.call.caller) is kernel]
        own = [n for n in own if not site.draft.takes_away(kernel.file.path, kernel.span(n))]
        block = block_around(kernel, nodes)
        last = max((n for n in block.named_children if any(inside(n, a) for a in (*nodes, *own))),
                   key=lambda n: n.start_byte)  # fmt: skip
        ends = [n for n in kernel.own_nodes("return_statement") if site.allocated_at <= n.start_byte < last.end_byte]
        if len(ends) > (site.first_warpgroup > 0) or any(inside(block, n) and loop_around(n, block) for n in ends):
            # one is that of the warpgroups in front, which do not multiply
            raise site.left(ends[-1], "one end of the part of the kernel that multiplies")
        all_threads = site.first_warpgroup == 0 and {self._block} == self._counts
        text = cpp("leave", whole=all_threads, threads=self._threads)
        names = {"warp": site.name("warp"), "tmem": site.name("tmem"), "base": site.name("tmem_base")}
        free = cpp("free", site.unit, first=site.first_warp, storage=self.storage.front, columns=site.columns_text,
                   rotates=False, **names)  # fmt: skip
        site.draft.behind(FREE_RULE, kernel, last, f"{text}\n{free}")
