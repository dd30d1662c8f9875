# SPDX-License-Identifier: Apache-2.0
"""The shape of a kernel from what its PTX says of its stages. What nothing says stays None; what is concluded rather
than read stands in `assumed`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from porter.facts.code import Code, Loop
from porter.facts.launched import static_shared
from porter.facts.ring import ring_stages
from porter.facts.stages import Roles, Stages, bytes_moved
from porter.grade.kinds import counted, is_issued
from porter.grade.shape import Epilogue, Mma, Residency, Shape, Store, Work
from porter.grade.tiling import USUAL_ROW, Tiling, solve
from porter.ptx import ast
from porter.ptx.arch import MUFU, WARP
from porter.ptx.idesc import M_FIELD, M_SHIFT, N_SHIFT, OPERAND_FIELDS
from porter.ptx.launch_bounds import blocks_of_cluster, threads_at_most
from porter.ptx.shared_access import rounds
from porter.ptx.table import decode
from porter.ptx.tmem_access import TmemAccess
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
        self.code, self.module, self.launch = code, module, launch
        threads = launch.threads if launch.threads is not None else threads_at_most(code.entry.directives)
        self.stages = Stages(code, threads, launch.block)
        self.unknown, self.assumed = self.stages.unknown, self.stages.assumed

    def read(self) -> Reading:
        if not self.stages.mmas:
            return Reading(None, ("tensor-core instructions: there is no tcgen05.mma and no wgmma",))
        loop = self.stages.loop
        found = [(at, self._mma(at)) for at in self._inside]
        if any(mma is None for _, mma in found):
            what = "M and N of its MMAs: those bits of the instruction descriptor are no constants"
            return Reading(None, (*self.unknown, what))
        if loop is None:
            self.assumed.append("no loop over K was found: what is graded is all MMAs as one stage")
        mmas = Counter[Mma]()
        for at, mma in found:
            assert mma is not None
            mmas[mma] += self.stages.times(at)
        shape = self._shape(loop, mmas)
        return Reading(shape, tuple(dict.fromkeys(self.unknown)))

    @property
    def _inside(self) -> list[int]:
        """The MMAs of a stage."""
        loop = self.stages.loop
        return [at for at in self.stages.mmas if loop is None or at in loop.members]

    # MMAs ---------------------------------------------------------------------------------------------

    def _mma(self, at: int) -> Mma | None:
        ins = decode(self.code.code[at])
        if ins.parts[0] == "wgmma":
            op = WgmmaOp.of(ins.modifiers)
            a = ins.rows["a"][1] if "a" in ins.rows else None
            return Mma(64, op.n, _wgmma_kind(op), 1, "registers" if isinstance(a, ast.Vec) else "shared", True)
        umma = UmmaOp.of(ins.modifiers)
        word = self.stages.warps.bits(at, ins["idesc"])
        if (M_FIELD.mask | OPERAND_FIELDS["n"].mask) & ~word.known:
            return None
        a_operand = ins["a"] if "a" in ins else ins.operands[1]
        where = "tensor" if isinstance(a_operand, ast.Mem) else "shared"
        m, n = M_FIELD.get(word.value) << M_SHIFT, OPERAND_FIELDS["n"].get(word.value) << N_SHIFT
        if not m or not n:
            return None
        return Mma(m, n, umma.kind, umma.cta_group, "tensor" if where == "tensor" else "shared")

    # The stage ----------------------------------------------------------------------------------------

    def _shape(self, loop: Loop | None, mmas: Counter[Mma]) -> Shape:
        read = self.stages
        roles = read.roles
        first = next(iter(mmas))
        nbytes, phases = read.nbytes
        groups = self._issuing_groups(first, roles)
        suggested = read.phases(phases if roles != "specialized" else 0)
        tiling = solve(mmas, nbytes, groups, suggested, self.launch.row_bytes or USUAL_ROW)
        if tiling is None and nbytes is not None:
            self.assumed.append("a stage is no plain product: no output tile is known")
            own = first.wgmma or read.reads_results
            tiling = Tiling.of_all(mmas, self._operand_bytes(mmas, nbytes), self._issuers(groups) if own else 1)
        elif tiling is None:
            tiling = Tiling.of_all(mmas, None, 1)
        shared, own_shared = static_shared(self.code)
        smem = None if self.launch.smem is None else shared + self.launch.smem
        stages = ring_stages(read.warps, read.ring_loops, tiling.load_bytes or nbytes, smem)
        if roles == "serial":
            stages = 1
        if stages is None:
            self.unknown.append("the number of stages")
        columns = read.columns
        if self.launch.row_bytes is None:
            self.assumed.append("boxes of TMA have rows of 128 bytes")
        taken = None if smem is None else smem + own_shared
        return Shape(
            self.module.target, tiling.mmas, tiling.m, tiling.n, tiling.load_bytes, stages, roles,
            self.launch.row_bytes, read.waits_each, tiling.issuers, self._cluster(), read.is_persistent,
            read.multicast, not read.loads and bool(nbytes), read.in_turns,
            self._epilogue(loop, tiling, columns, read.is_persistent),
            self._work(loop, tiling), Residency(taken, columns, read.threads, self.launch.registers),
            tuple(dict.fromkeys(self.assumed)), 1 if tiling.m is not None else read.batches,
            self._ahead(), read.late,
        )  # fmt: skip

    def _ahead(self) -> tuple[tuple[Mma, int], ...]:
        """The MMAs of batches that threads go on computing behind, before they wait for anything."""
        found = Counter[Mma]()
        for batch in self.stages.ahead:
            for mma in filter(None, map(self._mma, batch)):
                found[mma] = max(found[mma], sum(self.stages.times(at) for at in batch))
        return tuple(found.items())

    def _operand_bytes(self, mmas: Counter[Mma], nbytes: int) -> int:
        """Of a stage that is no plain product: B of all its MMAs, if loads come in such parts."""
        b = sum(K_BYTES * mma.n * count for mma, count in mmas.items())
        return b if b % nbytes == 0 else nbytes

    def _issuing_groups(self, first: Mma, roles: Roles | None) -> Sequence[int]:
        """How many warpgroups (wgmma, and ports that keep them) may issue MMAs of their own."""
        threads = self.stages.threads
        if threads is None:
            return (1, 2, 3)
        groups = max(1, threads // WARPGROUP)
        # The warps that load are a warpgroup of their own, or those that are left over.
        whole = threads % WARPGROUP == 0
        most = groups - 1 if roles == "specialized" and groups > 1 and whole else groups
        return tuple(range(1, most + 1))

    def _issuers(self, groups: Sequence[int]) -> int:
        """How many warpgroups issue MMAs of their own, of the most that could: of tcgen05, as many as warps come to
        them."""
        warps = len(self.stages.warps.to(frozenset(self._inside))) if self.stages.knows_threads else 0
        if self.code.code[self.stages.mmas[0]].parts[0] == "wgmma":
            warps //= WARPGROUP // WARP
        return min(groups[-1], warps) if warps else groups[-1]

    # The block ----------------------------------------------------------------------------------------

    def _cluster(self) -> int:
        return self.launch.cluster or blocks_of_cluster(self.code.entry.directives)

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
        width = max((TmemAccess.of(decode(rows[at]).modifiers).columns for at in loads), default=None)
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
            lanes = self.stages.warps.address(at, where) if isinstance(where, ast.Mem) else None
            if isinstance(lanes, tuple):
                found.append(rounds(lanes, bytes_moved(ins)))
        return max(found)

    def _another_role(self, at: int, loop: Loop | None) -> bool:
        """Whether an instruction stands in a loop over tiles that is not the one around the MMAs."""
        outer = self.code.around(at)
        return bool(outer) and loop is not None and not any(loop.members < one.members for one in outer)

    def _work(self, loop: Loop | None, tiling: Tiling) -> Work:
        """What threads compute in a stage: in the MMAs' loop, or in one that reads Tensor Memory and evaluates."""
        threads = self.stages.threads
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
                if not self.stages.knows_threads:
                    self.assumed.append(f"{warps} warps work on results in each stage")
        return self._issued(chosen, warps)

    def _issued(self, loop: Loop, warps: int) -> Work:
        """What warps issue in a pass of a loop: each by its longest way through it, if the text says which warps come
        to it; else `warps` of them all of it."""
        rows = self.code.code
        known = self.stages.warps
        if not self.stages.knows_threads:
            issued = [rows[at] for at in loop.body] * warps
        else:
            paths = (known.path(warp, loop) for warp in range(known.count))
            issued = [rows[at] for path in paths for at in path]
        issued = [ins for ins in issued if is_issued(ins)]
        mufu = sum(ins.parts[0] in MUFU for ins in issued)
        return Work(len(issued), mufu * WARP, True, counted(issued)) if mufu else Work()


def _wgmma_kind(op: WgmmaOp) -> Kind:
    return {16: Kind.F16, 8: Kind.TF32}.get(op.k, Kind.I8 if op.d_type.value == "s32" else Kind.F8F6F4)
