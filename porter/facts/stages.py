# SPDX-License-Identifier: Apache-2.0
"""The loop over K of a kernel of the tensor core: what a stage of it loads, multiplies and waits for.

Loops, constants and the order of instructions say what a stage is. What they do not say is in `unknown`; what is
concluded rather than read is in `assumed`.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

from porter.facts.code import Code, Loop, is_mma
from porter.facts.warps import Warps
from porter.ptx import ast
from porter.ptx.arch import MUFU
from porter.ptx.bits import type_bytes

Roles = Literal["serial", "pipelined", "specialized"]
"""Who loads: the thread that issues MMAs, after it has waited for them; the same, some stages ahead; another warp."""


class Stages:
    """`mmas`, `loads`, `commits`: the instructions. `threads` of a block, `block`: the same by axis; None where nobody
    knows."""

    def __init__(self, code: Code, threads: int | None, block: Sequence[int] | None) -> None:
        self.code, self.threads = code, threads
        self.unknown: list[str] = []
        self.assumed: list[str] = []
        self.mmas = [at for at, ins in enumerate(code.code) if is_mma(ins)]
        self.loads = [at for at, ins in enumerate(code.code) if _is_load(ins)]
        self.commits = [at for at, ins in enumerate(code.code) if ins.parts[:2] == ("tcgen05", "commit")]
        several = any(isinstance(o, ast.SpecialReg) and o.name in ("tid.y", "tid.z") for i in code.code
                      for o in i.operands)  # fmt: skip
        self.knows_threads = block is not None or (threads is not None and not several)
        """Whether it is known how the threads of a block are numbered."""
        known = block if block is not None else (threads,) if threads is not None and not several else None
        self.warps = Warps(code, known)

    @cached_property
    def loop(self) -> Loop | None:
        """The innermost loop around MMAs that also waits, loads or commits: the one over K. Loops in it are over parts
        of a stage. Of several, such as a loop and what was left over when it was unrolled, that with most MMAs."""
        best: Counter[Loop] = Counter()
        for at in self.mmas:
            around = self.code.around(at)
            chosen = next((loop for loop in around if self._synchronizes(loop)), around[0] if around else None)
            if chosen is not None:
                best[chosen] += 1
        inner = [loop for loop in best if not any(other.members < loop.members for other in best)]
        return max(inner, key=lambda loop: best[loop], default=self._written_out())

    def _written_out(self) -> Loop | None:
        """The first pass of a loop that the compiler wrote out: each pass waits for a stage and then issues MMAs that
        add to the same sums in Tensor Memory. None where MMAs stand otherwise."""
        waits, turns = sorted(set(self.code.waits.values())), dict[int, list[str]]()
        for at in self.mmas:
            place = bisect(waits, at)
            turns.setdefault(waits[place - 1] if place else -1, []).append(str(self.code.code[at].operands[0]))
        first, *others = turns or [-1]
        if first < 0 or not others or any(sums != turns[first] for sums in turns.values()):
            return None
        self.assumed.append(f"a loop over K that is written out {len(turns)} times")
        return Loop(first, tuple(range(first, others[0])))

    def _synchronizes(self, loop: Loop) -> bool:
        events = {*self.code.waits, *self.loads, *self.commits}
        return any(
            at in events or self.code.code[at].parts[:2] == ("wgmma", "wait_group")
            or self.code.code[at].parts[0] in ("bar", "barrier")
            for at in loop.body
        )  # fmt: skip

    def times(self, at: int) -> int:
        """How often an instruction runs in one pass of the stage's loop."""
        stage, times = self.loop, 1
        for loop in self.code.around(at):
            if stage is None or loop is stage:
                break
            trips = self.warps.trips(loop)
            if trips is None:
                self.unknown.append("how often a loop inside a stage runs; it counts once")
            times *= trips or 1
        return times

    @property
    def multicast(self) -> bool:
        return any("multicast::cluster" in self.code.code[at].parts for at in self.loads)

    @property
    def in_turns(self) -> bool:
        """Whether warps in the MMAs' loop tell others by a named barrier to go on."""
        loop = self.loop
        rows = self.code.code
        return loop is not None and any(rows[at].parts[0] in ("bar", "barrier") and "arrive" in rows[at].parts
                                        and "cluster" not in rows[at].parts for at in loop.body)  # fmt: skip

    @property
    def is_persistent(self) -> bool:
        """Whether a loop over tiles is around it."""
        loop = self.loop
        return loop is not None and any(
            loop.members < other.members for other in self.code.loops if not self.code.is_wait(other)
        )

    @property
    def reads_results(self) -> bool:
        """Whether those who issue MMAs also read what they give: then each warpgroup issues its own."""
        loop = self.loop
        rows = self.code.code
        return loop is not None and any(rows[at].parts[:2] == ("tcgen05", "ld") for at in loop.body)

    # Loads --------------------------------------------------------------------------------------------

    @cached_property
    def roles(self) -> Roles | None:
        loop = self.loop
        if not self.loads and self._copies:
            return "serial"
        if not self.loads:
            self.unknown.append("loads: there is neither TMA nor cp.async into shared memory")
            return None
        if loop is None:
            return "serial"
        inside = [at for at in self.loads if at in loop.members]
        if not inside:
            return "specialized"
        # Loads ahead of the loop are of its first stages if no MMA stands between, or if they have a loop of their own,
        # behind which the first MMAs may stand apart; others belong to copies of its body.
        start = loop.body[0]
        last = max((at for at in self.mmas if at < start), default=-1)
        ahead = [at for at in self.loads if at < start]
        return "pipelined" if any(last < at or self._fills(at) for at in ahead) else "serial"

    def _fills(self, at: int) -> bool:
        """Whether a load stands in a loop without MMAs."""
        around = self.code.around(at)
        return bool(around) and not any(mma in around[0].members for mma in self.mmas)

    @cached_property
    def _load_loops(self) -> list[Loop]:
        """The loops that loads of stages stand in."""
        loop, roles = self.loop, self.roles
        if roles in ("serial", "pipelined"):
            return [loop] if loop is not None else []
        found = list(dict.fromkeys(around[0] for at in self.loads if (around := self.code.around(at))))
        # A loop over tiles may load what epilogues read.
        as_deep = [one for one in found if loop is None or self._depth(one) >= self._depth(loop)]
        return as_deep or found

    def _depth(self, loop: Loop) -> int:
        return len(self.code.around(loop.head))

    @property
    def ring_loops(self) -> list[Loop]:
        loop = self.loop
        return [*([loop] if loop is not None else []), *self._load_loops]

    @cached_property
    def nbytes(self) -> tuple[int | None, int]:
        """Bytes that one mbarrier expects per phase, and how many such phases a pass of the loader's loop has."""
        loop = self.loop
        rows = self.code.code
        loops = self._load_loops
        expects = [
            at for at, ins in enumerate(rows)
            if "expect_tx" in ins.parts and (not loops or any(at in one.members for one in loops))
        ]  # fmt: skip
        values = Counter(self.warps.number(at, rows[at].operands[-1]) for at in expects)
        values.pop(None, None)
        if values:
            (value, count), *others = values.most_common()
            if others:
                self.assumed.append(f"stages have {value} bytes; some mbarriers expect others")
            return value, count
        copies = [at for at in self.loads if rows[at].parts[:2] == ("cp", "async") and "bulk" not in rows[at].parts]
        inside = [at for at in copies if loop is None or at in loop.members]
        threads = self.threads
        if inside and threads:
            sizes = [self.warps.number(at, rows[at].operands[2]) or 16 for at in inside]
            self.assumed.append("every thread of the block runs each cp.async of a stage")
            return sum(size * self.times(at) for at, size in zip(inside, sizes, strict=True)) * threads, 1
        if not self.loads and threads and (copied := self._copies):
            self.assumed.append("every thread of the block runs each load of a stage")
            return copied * threads, 1
        self.unknown.append("the bytes of a stage: no mbarrier expects a constant number")
        return None, 1

    @property
    def _copies(self) -> int:
        """Bytes that a thread loads to registers in a stage, where it stores some to shared memory."""
        loop = self.loop
        rows = self.code.code
        inside = [at for at in range(len(rows)) if loop is None or at in loop.members]
        elsewhere = {"global", "local", "param", "async"}
        if not any(rows[at].parts[0] == "st" and not elsewhere & set(rows[at].parts) for at in inside):
            return 0
        loads = [at for at in inside if rows[at].parts[0] == "ld" and "global" in rows[at].parts]
        return sum(bytes_moved(rows[at]) * self.times(at) for at in loads)

    # Waits --------------------------------------------------------------------------------------------

    def phases(self, expected: int) -> tuple[int, ...]:
        """How many stages a pass of the loop may hold: batches of MMAs, phases that loads are expected in, waits."""
        loop = self.loop
        if loop is None:
            return ()
        rows = self.code.code
        batches = sum(at in loop.members for at in self.commits)
        batches += sum(rows[at].parts[:2] == ("wgmma", "commit_group") for at in loop.body)
        waits = len({self.code.waits[at] for at in loop.body if at in self.code.waits})
        return (expected, batches, waits, waits // 2)

    @property
    def batches(self) -> int:
        """How many batches of MMAs of a stage are waited for, one after the other."""
        loop = self.loop
        if loop is None:
            return 1
        rows = self.code.code
        groups = sum(rows[at].parts[:2] == ("wgmma", "wait_group") for at in loop.body)
        if groups:
            return groups
        commits = set(self.commits)
        found, open_batch, committed = 0, False, False
        for at in loop.body:
            if at in self.mmas:
                open_batch, committed = True, False
            elif at in commits:
                committed = open_batch
            elif at in self.code.waits and committed:
                found, open_batch, committed = found + 1, False, False
        return max(1, found)

    @cached_property
    def ahead(self) -> list[list[int]]:
        """Batches of MMAs that threads go on computing behind, before they wait for anything; others are waited for at
        once."""
        loop = self.loop
        if loop is None or not self.commits:
            return []
        rows, commits, mmas = self.code.code, set(self.commits), set(self.mmas)
        found, waited, batch, closed = list[list[int]](), False, list[int](), False
        for at in (*loop.body, *loop.body):
            if at in mmas:
                batch, closed = [at] if closed else [*batch, at], False
            elif at in commits:
                closed = bool(batch)
            elif closed and (at in self.code.waits or rows[at].parts[0] in MUFU):
                if at in self.code.waits:
                    waited = True
                else:
                    found.append(batch)
                batch, closed = [], False
        return found if waited else []

    @property
    def late(self) -> float:
        """The share of a pass of the loop from where sums of MMAs are waited for, behind those that are issued ahead,
        to the last MMAs; 0 where they are waited for at once."""
        loop = self.loop
        if loop is None or not self.ahead:
            return 0.0
        rows, first = self.code.code, next((i for i, at in enumerate(loop.body) if at in self.commits), None)
        last = max((i for i, at in enumerate(loop.body) if at in self.mmas), default=0)
        for i, at in enumerate(loop.body[:last]):
            if first is None or i < first or at not in self.code.waits:
                continue
            then = next((ins for a in loop.body[i + 1 :] if (ins := rows[a]).parts[0] in ("tcgen05", "bar")), None)
            if then is not None and then.parts[1:2] == ("fence::after_thread_sync",):
                return (last - i) / len(loop.body)
        return 0.0

    @property
    def waits_each(self) -> bool:
        """Whether MMAs of a stage are waited for before more are issued."""
        loop = self.loop
        if loop is None:
            return True
        rows = self.code.code
        groups = [at for at in loop.body if rows[at].parts[:2] == ("wgmma", "wait_group")]
        if groups:
            return all(self.warps.number(at, rows[at].operands[0]) == 0 for at in groups)
        early = set(self._ahead_of_mmas())
        copied = {self._mbarrier(at) for at in early}
        waiting = {
            at: place
            for at, place in self.code.waited.items()
            if not self._is_meeting(at) and self._mbarrier(at) not in copied
        }
        commits = set(self.commits) - early
        order = [at for at in loop.body if at in commits or at in set(self.mmas) or at in waiting]
        kinds = ["W" if at in waiting else "C" if at in commits else "M" for at in order]
        if "C" not in kinds:
            return False
        # Once round from behind the last commit: a ring has one wait there, for the next stage's load.
        start = len(kinds) - 1 - kinds[::-1].index("C") + 1
        behind = [at for at, kind in zip(order[start:], kinds[start:], strict=True) if kind == "W"]
        ahead = [at for at, kind in zip(order, kinds, strict=True)][: kinds.index("M")] if "M" in kinds else []
        places = {waiting[at] for at in (*behind, *ahead) if at in waiting}
        waits = len(places)
        loads = any(at in loop.members for at in self.loads)
        return waits >= 2 or (loads and waits >= 1 and bool(behind))

    def _ahead_of_mmas(self) -> Iterator[int]:
        """Commits behind a copy to Tensor Memory, ahead of the MMAs that read it: who waits for one waits for no MMA of
        its stage, and those of the stage before go on meanwhile."""
        loop = self.loop
        rows, last = self.code.code, ""
        for at in loop.body if loop is not None else ():
            if at in self.mmas:
                last = "mma"
            elif rows[at].parts[:2] == ("tcgen05", "cp"):
                last = "cp"
            elif at in self.commits and last == "cp" and self._mbarrier(at) is not None:
                yield at

    def _is_meeting(self, at: int) -> bool:
        """Whether threads wait for each other alone: for one mbarrier, in all passes of the loop the same, at which
        they arrive themselves."""
        loop = self.loop
        rows, place = self.code.code, self._mbarrier(at)
        if loop is None or place is None or (isinstance(place[1], int) and place[1] in loop.members):
            return False
        arrivals = [i for i in loop.members if rows[i].parts[:2] == ("mbarrier", "arrive")]
        return any("expect_tx" not in rows[i].parts and self._mbarrier(i) == place for i in arrivals)

    def _mbarrier(self, at: int) -> tuple[int, int | ast.Operand] | None:
        """The mbarrier that an instruction is about: an offset, and the variable that it is added to or the place where
        an address is made; None of one that is made in several places."""
        operand = next((o for o in self.code.code[at].operands if isinstance(o, ast.Mem)), None)
        if operand is None:
            return None
        base, offset = operand.base, operand.offset
        while isinstance(base, ast.Reg):
            places = self.code.definitions(at, base)
            if len(places) != 1:
                return None
            at, made = places[0], self.code.code[places[0]]
            added = self.warps.number(at, made.operands[2]) if made.parts[0] == "add" else 0
            if made.parts[0] not in ("mov", "cvta", "cvt", "add") or added is None:
                return offset, at
            base, offset = made.operands[1], offset + added
        return offset, base

    # The block ----------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        found = [
            self.warps.number(at, ins.operands[-1])
            for at, ins in enumerate(self.code.code) if ins.parts[:2] == ("tcgen05", "alloc")
        ]  # fmt: skip
        if any(value is None for value in found):
            self.unknown.append("columns of Tensor Memory that are allocated")
        return sum(value or 0 for value in found)


def bytes_moved(ins: ast.Instruction) -> int:
    """Bytes that a load or store of a thread moves."""
    vector = next((int(p[1:]) for p in ins.parts if p in ("v2", "v4", "v8")), 1)
    return vector * type_bytes(ins.parts[-1])


def _is_load(ins: ast.Instruction) -> bool:
    """Whether an instruction copies from global to shared memory without the thread's waiting for it."""
    p = ins.parts
    if p[:2] != ("cp", "async") or "commit_group" in p or "wait_group" in p or "wait_all" in p:
        return False
    if "bulk" in p:
        return "prefetch" not in p and any(x.startswith("mbarrier::complete_tx") for x in p)
    return "global" in p and any(x.startswith("shared") for x in p)
