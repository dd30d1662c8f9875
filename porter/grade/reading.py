# SPDX-License-Identifier: Apache-2.0
"""The shape of a kernel from its PTX.

Loops, constants and the order of instructions say what a stage is. What they do not say stays None; what is concluded
rather than read stands in `assumed`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from porter.facts.code import Code, Loop
from porter.facts.ring import ring_stages
from porter.facts.warps import Warps
from porter.grade.kinds import MUFU, counted, is_issued
from porter.grade.shape import Epilogue, Mma, Residency, Roles, Shape, Store, Work
from porter.grade.tiling import USUAL_ROW, Tiling, solve
from porter.ptx import ast
from porter.ptx.arch import BANK_BYTES, BANKS, WARP
from porter.ptx.idesc import M_FIELD, M_SHIFT, N_SHIFT, OPERAND_FIELDS
from porter.ptx.table import decode
from porter.ptx.umma import K_BYTES, Kind, UmmaOp
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.ptx.wgmma import WgmmaOp


@dataclass(frozen=True)
class Launch:
    """What the host says of a launch; None where nobody knows. `smem`: dynamic bytes. `row_bytes`: the narrowest row of
    the tensor maps' boxes. `parameters`: the kernel's, by name. `block`: threads by axis."""

    threads: int | None = None
    smem: int | None = None
    cluster: int | None = None
    registers: int | None = None
    row_bytes: int | None = None
    parameters: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    block: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Reading:
    """`shape` is None where the kernel has no MMAs that this model knows. `unknown`: facts that were looked for and
    not found."""

    shape: Shape | None
    unknown: tuple[str, ...]


def read_shape(module: ast.Module, entry: ast.Function, launch: Launch | None = None) -> Reading:
    """What the text of a kernel and its launch say."""
    known = launch or Launch()
    return _Reader(Code(module, entry, known.parameters), module, known).read()


class _Reader:
    def __init__(self, code: Code, module: ast.Module, launch: Launch) -> None:
        self.code = code
        self.module = module
        self.launch = launch
        self.unknown: list[str] = []
        self.assumed: list[str] = []
        rows = code.code
        self.mma_at = [i for i, ins in enumerate(rows) if _is_mma(ins)]
        self.loads = [i for i, ins in enumerate(rows) if _is_load(ins)]
        self.commits = [i for i, ins in enumerate(rows) if ins.parts[:2] == ("tcgen05", "commit")]

    def read(self) -> Reading:
        if not self.mma_at:
            return Reading(None, ("tensor-core instructions: there is no tcgen05.mma and no wgmma",))
        loop = self._stage_loop()
        inside = [at for at in self.mma_at if loop is None or at in loop.members]
        found = [(at, self._mma(at)) for at in inside]
        if any(mma is None for _, mma in found):
            return Reading(None, (*self.unknown, "M and N of its MMAs: the instruction descriptor is no constant"))
        if loop is None:
            self.assumed.append("no loop over K was found: what is graded is all MMAs as one stage")
        mmas = Counter[Mma]()
        for at, mma in found:
            assert mma is not None
            mmas[mma] += self._times(at, loop)
        shape = self._shape(loop, mmas)
        return Reading(shape, tuple(dict.fromkeys(self.unknown)))

    # MMAs ---------------------------------------------------------------------------------------------

    def _stage_loop(self) -> Loop | None:
        """The innermost loop around MMAs that also waits, loads or commits: the one over K. Loops in it are over parts
        of a stage. Of several, such as a loop and what was left over when it was unrolled, that with most MMAs."""
        best: Counter[Loop] = Counter()
        for at in self.mma_at:
            around = self.code.around(at)
            chosen = next((loop for loop in around if self._synchronizes(loop)), around[0] if around else None)
            if chosen is not None:
                best[chosen] += 1
        inner = [loop for loop in best if not any(other.members < loop.members for other in best)]
        return max(inner, key=lambda loop: best[loop], default=None)

    def _synchronizes(self, loop: Loop) -> bool:
        events = {*self.code.waits, *self.loads, *self.commits}
        return any(
            at in events or self.code.code[at].parts[:2] == ("wgmma", "wait_group")
            or self.code.code[at].parts[0] in ("bar", "barrier")
            for at in loop.body
        )  # fmt: skip

    def _times(self, at: int, stage: Loop | None) -> int:
        """How often an instruction runs in one pass of the stage's loop."""
        times = 1
        for loop in self.code.around(at):
            if stage is None or loop is stage:
                break
            trips = self.facts.trips(loop)
            if trips is None:
                self.unknown.append("how often a loop inside a stage runs; it counts once")
            times *= trips or 1
        return times

    def _mma(self, at: int) -> Mma | None:
        ins = decode(self.code.code[at])
        if ins.parts[0] == "wgmma":
            op = WgmmaOp.of(ins.modifiers)
            a = ins.rows["a"][1] if "a" in ins.rows else None
            return Mma(64, op.n, _wgmma_kind(op), 1, "registers" if isinstance(a, ast.Vec) else "shared", True)
        umma = UmmaOp.of(ins.modifiers)
        word = self.facts.number(at, ins.get("idesc"))
        if word is None:
            return None
        a_operand = ins["a"] if "a" in ins else ins.operands[1]
        where = "tensor" if isinstance(a_operand, ast.Mem) else "shared"
        m, n = M_FIELD.get(word) << M_SHIFT, OPERAND_FIELDS["n"].get(word) << N_SHIFT
        if not m or not n:
            return None
        return Mma(m, n, umma.kind, umma.cta_group, "tensor" if where == "tensor" else "shared")

    # The stage ----------------------------------------------------------------------------------------

    def _shape(self, loop: Loop | None, mmas: Counter[Mma]) -> Shape:
        threads = self._threads()
        roles = self._roles(loop)
        first = next(iter(mmas))
        nbytes, phases = self._stage_bytes(loop, roles)
        groups = self._issuing_groups(first, threads, roles)
        suggested = self._phases(loop, phases if roles != "specialized" else 0)
        tiling = solve(mmas, nbytes, groups, suggested, self.launch.row_bytes or USUAL_ROW)
        if tiling is None and nbytes is not None:
            self.assumed.append("a stage is no plain product: no output tile is known")
            own = first.wgmma or self._reads_results(loop)
            tiling = Tiling.of_all(mmas, self._operand_bytes(mmas, nbytes), self._issuers(loop, groups) if own else 1)
        elif tiling is None:
            tiling = Tiling.of_all(mmas, None, 1)
        smem = self._smem()
        stages = ring_stages(self.facts, self._ring_loops(loop), tiling.load_bytes or nbytes, smem)
        if roles == "serial":
            stages = 1
        if stages is None:
            self.unknown.append("the number of stages")
        columns = self._columns()
        persistent = loop is not None and self._has_outer(loop)
        if self.launch.row_bytes is None:
            self.assumed.append("boxes of TMA have rows of 128 bytes")
        return Shape(
            self.module.target, tiling.mmas, tiling.m, tiling.n, tiling.load_bytes, stages, roles,
            self.launch.row_bytes, self._waits_each(loop), tiling.issuers, self._cluster(), persistent,
            self._multicast(), not self.loads and bool(nbytes), self._in_turns(loop),
            self._epilogue(loop, tiling, columns, persistent),
            self._work(loop, threads, tiling), Residency(self._taken(smem), columns, threads, self.launch.registers),
            tuple(dict.fromkeys(self.assumed)), 1 if tiling.m is not None else self._batches(loop),
            self._ahead(loop), self._late(loop),
        )  # fmt: skip

    def _phases(self, loop: Loop | None, expected: int) -> tuple[int, ...]:
        """How many stages a pass of the loop may hold: batches of MMAs, phases that loads are expected in, waits."""
        if loop is None:
            return ()
        rows = self.code.code
        batches = sum(at in loop.members for at in self.commits)
        batches += sum(rows[at].parts[:2] == ("wgmma", "commit_group") for at in loop.body)
        waits = len({self.code.waits[at] for at in loop.body if at in self.code.waits})
        return (expected, batches, waits, waits // 2)

    def _reads_results(self, loop: Loop | None) -> bool:
        """Whether those who issue MMAs also read what they give: then each warpgroup issues its own."""
        rows = self.code.code
        return loop is not None and any(rows[at].parts[:2] == ("tcgen05", "ld") for at in loop.body)

    def _roles(self, loop: Loop | None) -> Roles | None:
        if not self.loads and self._copies(loop):
            return "serial"
        if not self.loads:
            self.unknown.append("loads: there is neither TMA nor cp.async into shared memory")
            return None
        if loop is None:
            return "serial"
        inside = [at for at in self.loads if at in loop.members]
        if not inside:
            return "specialized"
        # Loads ahead of the loop are of its first stages if no MMA stands between; others belong to copies of its body.
        start = loop.body[0]
        last = max((at for at in self.mma_at if at < start), default=-1)
        return "pipelined" if any(last < at < start for at in self.loads) else "serial"

    def _load_loops(self, loop: Loop | None, roles: Roles | None) -> list[Loop]:
        """The loops that loads of stages stand in."""
        if roles in ("serial", "pipelined"):
            return [loop] if loop is not None else []
        found = list(dict.fromkeys(around[0] for at in self.loads if (around := self.code.around(at))))
        # A loop over tiles may load what epilogues read.
        as_deep = [one for one in found if loop is None or self._depth(one) >= self._depth(loop)]
        return as_deep or found

    def _depth(self, loop: Loop) -> int:
        return len(self.code.around(loop.head))

    def _ring_loops(self, loop: Loop | None) -> list[Loop]:
        return [*([loop] if loop is not None else []), *self._load_loops(loop, self._roles(loop))]

    def _stage_bytes(self, loop: Loop | None, roles: Roles | None) -> tuple[int | None, int]:
        """Bytes that one mbarrier expects per phase, and how many such phases a pass of the loader's loop has."""
        rows = self.code.code
        loops = self._load_loops(loop, roles)
        expects = [
            at for at, ins in enumerate(rows)
            if "expect_tx" in ins.parts and (not loops or any(at in one.members for one in loops))
        ]  # fmt: skip
        values = Counter(self.facts.number(at, rows[at].operands[-1]) for at in expects)
        values.pop(None, None)
        if values:
            (value, count), *others = values.most_common()
            if others:
                self.assumed.append(f"stages have {value} bytes; some mbarriers expect others")
            return value, count
        copies = [at for at in self.loads if rows[at].parts[:2] == ("cp", "async") and "bulk" not in rows[at].parts]
        inside = [at for at in copies if loop is None or at in loop.members]
        threads = self._threads()
        if inside and threads:
            sizes = [self.facts.number(at, rows[at].operands[2]) or 16 for at in inside]
            self.assumed.append("every thread of the block runs each cp.async of a stage")
            return sum(size * self._times(at, loop) for at, size in zip(inside, sizes, strict=True)) * threads, 1
        if not self.loads and threads and (copied := self._copies(loop)):
            self.assumed.append("every thread of the block runs each load of a stage")
            return copied * threads, 1
        self.unknown.append("the bytes of a stage: no mbarrier expects a constant number")
        return None, 1

    def _copies(self, loop: Loop | None) -> int:
        """Bytes that a thread loads to registers in a stage, where it stores some to shared memory."""
        rows = self.code.code
        inside = [at for at in range(len(rows)) if loop is None or at in loop.members]
        elsewhere = {"global", "local", "param", "async"}
        if not any(rows[at].parts[0] == "st" and not elsewhere & set(rows[at].parts) for at in inside):
            return 0
        loads = [at for at in inside if rows[at].parts[0] == "ld" and "global" in rows[at].parts]
        return sum(_bytes(rows[at]) * self._times(at, loop) for at in loads)

    def _operand_bytes(self, mmas: Counter[Mma], nbytes: int) -> int:
        """Of a stage that is no plain product: B of all its MMAs, if loads come in such parts."""
        b = sum(K_BYTES * mma.n * count for mma, count in mmas.items())
        return b if b % nbytes == 0 else nbytes

    def _issuing_groups(self, first: Mma, threads: int | None, roles: Roles | None) -> Sequence[int]:
        """How many warpgroups (wgmma, and ports that keep them) may issue MMAs of their own."""
        if threads is None:
            return (1, 2, 3)
        groups = max(1, threads // WARPGROUP)
        # The warps that load are a warpgroup of their own, or those that are left over.
        whole = threads % WARPGROUP == 0
        most = groups - 1 if roles == "specialized" and groups > 1 and whole else groups
        return tuple(range(1, most + 1))

    def _issuers(self, loop: Loop | None, groups: Sequence[int]) -> int:
        """How many warpgroups issue MMAs of their own, of the most that could: of tcgen05, as many as warps come to
        them."""
        inside = frozenset(at for at in self.mma_at if loop is None or at in loop.members)
        warps = len(self.warps.to(inside)) if self.warps is not None else 0
        if self.code.code[self.mma_at[0]].parts[0] == "wgmma":
            warps //= WARPGROUP // WARP
        return min(groups[-1], warps) if warps else groups[-1]

    @cached_property
    def warps(self) -> Warps | None:
        """The warps of a block; None where nobody knows how its threads are numbered."""
        several = any(isinstance(o, ast.SpecialReg) and o.name in ("tid.y", "tid.z") for i in self.code.code
                      for o in i.operands)  # fmt: skip
        threads = self._threads()
        if self.launch.block is not None:
            return Warps(self.code, self.launch.block)
        return None if several or threads is None else Warps(self.code, (threads,))

    @cached_property
    def facts(self) -> Warps:
        """The same for what may follow although nothing is known of threads."""
        return self.warps or Warps(self.code, None)

    def _batches(self, loop: Loop | None) -> int:
        """How many batches of MMAs of a stage are waited for, one after the other."""
        if loop is None:
            return 1
        rows = self.code.code
        groups = sum(rows[at].parts[:2] == ("wgmma", "wait_group") for at in loop.body)
        if groups:
            return groups
        commits = set(self.commits)
        found, open_batch, committed = 0, False, False
        for at in loop.body:
            if at in self.mma_at:
                open_batch, committed = True, False
            elif at in commits:
                committed = open_batch
            elif at in self.code.waits and committed:
                found, open_batch, committed = found + 1, False, False
        return max(1, found)

    def _ahead(self, loop: Loop | None) -> tuple[tuple[Mma, int], ...]:
        """The MMAs of batches that threads go on computing behind, before they wait for anything; others are waited
        for at once."""
        if loop is None or not self.commits:
            return ()
        rows, commits, mmas = self.code.code, set(self.commits), set(self.mma_at)
        found, waited, batch, closed = Counter[Mma](), False, list[int](), False
        for at in (*loop.body, *loop.body):
            if at in mmas:
                batch, closed = [at] if closed else [*batch, at], False
            elif at in commits:
                closed = bool(batch)
            elif closed and (at in self.code.waits or rows[at].parts[0] in MUFU):
                if at in self.code.waits:
                    waited = True
                else:
                    for one in batch:
                        if (mma := self._mma(one)) is not None:
                            found[mma] = max(found[mma], sum(self._times(b, loop) for b in batch))
                batch, closed = [], False
        return tuple(found.items()) if waited else ()

    def _late(self, loop: Loop | None) -> float:
        """The share of a pass of the loop from where sums of MMAs are waited for, behind those that are issued ahead,
        to the last MMAs; 0 where they are waited for at once."""
        if loop is None or not self._ahead(loop):
            return 0.0
        rows, first = self.code.code, next((i for i, at in enumerate(loop.body) if at in self.commits), None)
        last = max((i for i, at in enumerate(loop.body) if at in self.mma_at), default=0)
        for i, at in enumerate(loop.body[:last]):
            if first is None or i < first or at not in self.code.waits:
                continue
            then = next((ins for a in loop.body[i + 1 :] if (ins := rows[a]).parts[0] in ("tcgen05", "bar")), None)
            if then is not None and then.parts[1:2] == ("fence::after_thread_sync",):
                return (last - i) / len(loop.body)
        return 0.0

    def _waits_each(self, loop: Loop | None) -> bool:
        """Whether MMAs of a stage are waited for before more are issued."""
        if loop is None:
            return True
        rows = self.code.code
        groups = [at for at in loop.body if rows[at].parts[:2] == ("wgmma", "wait_group")]
        if groups:
            return all(self.facts.number(at, rows[at].operands[0]) == 0 for at in groups)
        early = set(self._ahead_of_mmas(loop))
        copied = {self._mbarrier(at) for at in early}
        waiting = {
            at: place
            for at, place in self.code.waited.items()
            if not self._is_meeting(loop, at) and self._mbarrier(at) not in copied
        }
        commits = set(self.commits) - early
        order = [at for at in loop.body if at in commits or at in set(self.mma_at) or at in waiting]
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

    def _ahead_of_mmas(self, loop: Loop) -> Iterator[int]:
        """Commits behind a copy to Tensor Memory, ahead of the MMAs that read it: who waits for one waits for no MMA of
        its stage, and those of the stage before go on meanwhile."""
        rows, last = self.code.code, ""
        for at in loop.body:
            if at in self.mma_at:
                last = "mma"
            elif rows[at].parts[:2] == ("tcgen05", "cp"):
                last = "cp"
            elif at in self.commits and last == "cp" and self._mbarrier(at) is not None:
                yield at

    def _is_meeting(self, loop: Loop, at: int) -> bool:
        """Whether threads wait for each other alone: for one mbarrier, in all passes of the loop the same, at which
        they arrive themselves."""
        rows, place = self.code.code, self._mbarrier(at)
        if place is None or (isinstance(place[1], int) and place[1] in loop.members):
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
            added = self.facts.number(at, made.operands[2]) if made.parts[0] == "add" else 0
            if made.parts[0] not in ("mov", "cvta", "cvt", "add") or added is None:
                return offset, at
            base, offset = made.operands[1], offset + added
        return offset, base

    # The block ----------------------------------------------------------------------------------------

    def _threads(self) -> int | None:
        if self.launch.threads is not None:
            return self.launch.threads
        for name in ("reqntid", "maxntid"):
            if given := self.code.entry.directives.get(name):
                product = 1
                for x in given:
                    product *= x
                return product
        return None

    def _cluster(self) -> int:
        if self.launch.cluster is not None:
            return self.launch.cluster
        product = 1
        for x in self.code.entry.directives.get("reqnctapercluster", ()):
            product *= x
        return product

    def _multicast(self) -> bool:
        return any("multicast::cluster" in self.code.code[at].parts for at in self.loads)

    def _in_turns(self, loop: Loop | None) -> bool:
        """Whether warps in the MMAs' loop tell others by a named barrier to go on."""
        rows = self.code.code
        return loop is not None and any(rows[at].parts[0] in ("bar", "barrier") and "arrive" in rows[at].parts
                                        and "cluster" not in rows[at].parts for at in loop.body)  # fmt: skip

    def _smem(self) -> int | None:
        if self.launch.smem is None:
            return None
        used = {o.name for ins in self.code.code for o in ins.operands if isinstance(o, ast.Sym)}
        used |= {o.base.name for ins in self.code.code for o in ins.operands
                 if isinstance(o, ast.Mem) and isinstance(o.base, ast.Sym)}  # fmt: skip
        static = sum(v.size for v in self.module.variables if v.space == "shared" and not v.extern and v.name in used)
        return static + self.launch.smem

    def _taken(self, smem: int | None) -> int | None:
        """Shared memory of a block: what rings may lie in, and what the kernel declares for itself."""
        own = sum(v.size for v in _declared(self.code.entry.body or ()) if v.space == "shared")
        return None if smem is None else smem + own

    def _columns(self) -> int:
        found = [
            self.facts.number(at, ins.operands[-1])
            for at, ins in enumerate(self.code.code) if ins.parts[:2] == ("tcgen05", "alloc")
        ]  # fmt: skip
        if any(value is None for value in found):
            self.unknown.append("columns of Tensor Memory that are allocated")
        return sum(value or 0 for value in found)

    def _has_outer(self, loop: Loop) -> bool:
        return any(loop.members < other.members for other in self.code.loops if not self.code.is_wait(other))

    # The epilogue -------------------------------------------------------------------------------------

    def _epilogue(self, loop: Loop | None, tiling: Tiling, columns: int, persistent: bool) -> Epilogue:
        rows = self.code.code
        behind = [at for at in range(len(rows)) if loop is None or at not in loop.members]
        by_tma = [
            at for at in behind if rows[at].parts[:3] == ("cp", "async", "bulk") and "bulk_group" in rows[at].parts
        ]
        loads = [at for at in behind if rows[at].parts[:2] == ("tcgen05", "ld")]
        store: Store = "tma" if by_tma else "threads"
        if not by_tma and any("32x32b" in rows[at].parts for at in loads):
            store = "rows"
        narrow = any(p in ins.parts for ins in rows for p in ("f16x2", "bf16x2") if ins.parts[0] == "cvt")
        narrow = narrow or any(ins.parts[0] == "cvt" and ins.parts[-1] == "f32" and
                               ("f16" in ins.parts or "bf16" in ins.parts) for ins in rows)  # fmt: skip
        width = max((_columns_of(rows[at]) for at in loads), default=None)
        overlapped = persistent and bool(tiling.n) and columns >= 2 * (tiling.columns or columns) and any(
            self._another_role(at, loop) for at in loads)  # fmt: skip
        return Epilogue(2 if narrow else 4, store, max(1, len(by_tma)), overlapped, width, self._ways(behind))

    def _ways(self, inside: Sequence[int]) -> int:
        """The most rounds that a store to shared memory takes whose lanes' addresses the text says."""
        rows = self.code.code
        found = [1]
        for at in inside:
            ins = rows[at]
            if ins.parts[0] != "st" or not any(p.startswith("shared") for p in ins.parts) or "async" in ins.parts:
                continue
            where = ins.operands[0]
            lanes = self.facts.address(at, where) if isinstance(where, ast.Mem) else None
            if isinstance(lanes, tuple):
                found.append(ways(lanes, _bytes(ins)))
        return max(found)

    def _another_role(self, at: int, loop: Loop | None) -> bool:
        """Whether an instruction stands in a loop over tiles that is not the one around the MMAs."""
        outer = self.code.around(at)
        return bool(outer) and loop is not None and not any(loop.members < one.members for one in outer)

    def _work(self, loop: Loop | None, threads: int | None, tiling: Tiling) -> Work:
        """What threads compute in a stage: in the MMAs' loop, or in one that reads Tensor Memory and evaluates."""
        if loop is None or threads is None:
            return Work()
        rows = self.code.code
        chosen, warps = loop, tiling.issuers * 4
        if not tiling.mmas[0][0].wgmma:
            reading = [
                one for one in self.code.loops
                if one is not loop and not self.code.is_wait(one) and not loop.members <= one.members
                and any(rows[at].parts[:2] == ("tcgen05", "ld") for at in one.body)
                and any(rows[at].parts[0] in MUFU for at in one.body)
            ]  # fmt: skip
            own = any(rows[at].parts[0] in MUFU for at in loop.body)
            if not reading and not own:
                return Work()
            if reading:
                chosen = max(reading, key=lambda one: len(one.body))
                warps = max(4, (threads // WARP - 2) // 4 * 4)
                if self.warps is None:
                    self.assumed.append(f"{warps} warps work on results in each stage")
        return self._issued(chosen, warps)

    def _issued(self, loop: Loop, warps: int) -> Work:
        """What warps issue in a pass of a loop: each by its longest way through it, if the text says which warps come
        to it; else `warps` of them all of it."""
        rows = self.code.code
        if self.warps is None:
            issued = [rows[at] for at in loop.body] * warps
        else:
            paths = (self.warps.path(warp, loop) for warp in range(self.warps.count))
            issued = [rows[at] for path in paths for at in path]
        issued = [ins for ins in issued if is_issued(ins)]
        mufu = sum(ins.parts[0] in MUFU for ins in issued)
        return Work(len(issued), mufu * WARP, True, counted(issued)) if mufu else Work()


def _declared(body: Sequence[ast.Statement]) -> Iterator[ast.VarDecl]:
    """Variables of a kernel's own, such as shared memory that no other kernel uses."""
    for statement in body:
        if isinstance(statement, ast.VarDecl):
            yield statement
        elif isinstance(statement, ast.Block):
            yield from _declared(statement.body)


def _is_mma(ins: ast.Instruction) -> bool:
    p = ins.parts
    return (p[0] == "tcgen05" and p[1] == "mma") or (p[0] == "wgmma" and p[1] == "mma_async")


def _is_load(ins: ast.Instruction) -> bool:
    """Whether an instruction copies from global to shared memory without the thread's waiting for it."""
    p = ins.parts
    if p[:2] != ("cp", "async") or "commit_group" in p or "wait_group" in p or "wait_all" in p:
        return False
    if "bulk" in p:
        return "prefetch" not in p and any(x.startswith("mbarrier::complete_tx") for x in p)
    return "global" in p and any(x.startswith("shared") for x in p)


def _bytes(ins: ast.Instruction) -> int:
    """Bytes that a load or store of a thread moves."""
    vector = next((int(p[1:]) for p in ins.parts if p in ("v2", "v4", "v8")), 1)
    return vector * int(ins.parts[-1].lstrip("bufs") or 0) // 8


def ways(lanes: Sequence[int | None], nbytes: int) -> int:
    """How many rounds an access to shared memory takes, of those that it needs at least, whose lanes access `nbytes`
    each at these addresses: lanes go in groups that access 128 bytes (PTX ISA)."""
    together = BANKS * BANK_BYTES // max(nbytes, BANK_BYTES)
    most = 1
    for first in range(0, len(lanes), together):
        words: dict[int, set[int]] = defaultdict(set)
        for start in lanes[first : first + together]:
            for at in range(start, start + max(nbytes, 1), BANK_BYTES) if start is not None else ():
                words[at // BANK_BYTES % BANKS].add(at // BANK_BYTES)
        most = max(most, *(len(found) for found in words.values()))
    return most


def _wgmma_kind(op: WgmmaOp) -> Kind:
    return {16: Kind.F16, 8: Kind.TF32}.get(op.k, Kind.I8 if op.d_type.value == "s32" else Kind.F8F6F4)


def _columns_of(ins: ast.Instruction) -> int:
    """Columns of Tensor Memory that a tcgen05.ld reads."""
    number = next((int(p[1:]) for p in ins.parts if p[:1] == "x" and p[1:].isdigit()), 1)
    shape = next((p for p in ins.parts if "x" in p and p.endswith("b") and p[0].isdigit()), "32x32b")
    return max(1, int(shape.partition("x")[2].rstrip("b")) // 32) * number
