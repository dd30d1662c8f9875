# SPDX-License-Identifier: Apache-2.0
"""Operands of tensor copies (TMA, PTX ISA 9.7.9.25.5), thread by thread; see `bulk_operands`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from porter.diagnostics import Code
from porter.ptx.operand_errors import OperandError
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap
from porter.sim.codegen import runtime
from porter.sim.datapath.tma import Mode, as_copied, covered_bytes
from porter.sim.effects import Effect, Outside, Tile
from porter.sim.exec_tmem import refused
from porter.sim.machine import Machine
from porter.sim.memory import MemoryAccessError
from porter.sim.reduction import ReduceOp
from porter.sim.results import Stop
from porter.sim.threads import Issuer, Signal, int_or_none, issuers, per_lane, per_lane_or_none


@dataclass(frozen=True)
class TensorCopyForm:
    """A tensor copy: how coordinates name elements, whether it signals a block pair (.cta_group::2), how it
    reduces (None: it copies)."""

    mode: Mode
    pair: bool = False
    how: ReduceOp | None = None


def _tensor_map(by: Issuer, address: int) -> TensorMap:
    """The tensor map at a generic address."""
    M = by.machine
    try:
        raw = bytes(M.everything.view(address, ENCODED_BYTES))
        found = M.tensor_maps.get(raw)
        if found is None:
            found = M.tensor_maps[raw] = TensorMap.decode(raw)
        return found
    except (MemoryAccessError, ValueError) as problem:
        raise Stop(Code.SIM_TENSOR_MAP, f"at {address:#x}: {problem}", by.at, by.warp, by.lane) from problem


class TensorLoad(NamedTuple):
    """One thread's tensor copy into shared memory. `place` are the coordinates, `shift` the im2col offsets."""

    by: Issuer
    form: TensorCopyForm
    dst: int
    map: int
    place: list[int]
    mbar: int
    multicast: int | None
    shift: list[int]

    def tensor_map(self) -> TensorMap:
        found = _tensor_map(self.by, self.map)
        try:
            return as_copied(found, self.form.mode, self.place, self.shift)
        except OperandError as problem:
            raise refused(problem, self.by.at, self.by.warp, Code.SIM_DESCRIPTOR) from problem

    def target(self, tm: TensorMap) -> tuple[int, int]:
        """(block, offset) of the destination address."""
        return self.by.place(self.dst, covered_bytes(tm, self.form.mode))

    def targets(self, first: int) -> list[int]:
        return self.by.targets(first, self.multicast)

    def signals(self, targets: list[int]) -> list[Signal]:
        return self.by.signals(targets, self.mbar, self.form.pair)

    def effect(self, tm: TensorMap, targets: list[int], signals: list[Signal], offset: int) -> Effect:
        source = Outside(Tile(tm, self.place, self.form.mode, self.shift), False)
        return self.by.copy_in(targets, signals, offset, covered_bytes(tm, self.form.mode), source, self.map)


class TensorLoadOperands(NamedTuple):
    """Operands of a tensor copy into shared memory."""

    dst: Any
    map: Any
    coords: tuple[Any, ...]
    mbar: Any
    multicast: Any
    offsets: tuple[Any, ...]

    def threads(self, M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm) -> Iterator[TensorLoad]:
        d, a, b = (per_lane(x, n) for x in (self.dst, self.map, self.mbar))
        m = per_lane_or_none(self.multicast, n)
        coords, offsets = ([per_lane(x, n) for x in values] for values in (self.coords, self.offsets))
        for by, i in issuers(M, at, idx, n, mask):
            place, shift = [int(x[i]) for x in coords], [int(x[i]) for x in offsets]
            yield TensorLoad(by, form, int(d[i]), int(a[i]), place, int(b[i]), int_or_none(m, i), shift)


class TensorStore(NamedTuple):
    """One thread's tensor copy or reduction from shared to global memory; `place` are the coordinates."""

    by: Issuer
    form: TensorCopyForm
    map: int
    place: list[int]
    src: int

    def tensor_map(self) -> TensorMap:
        return _tensor_map(self.by, self.map)

    def origin(self, nbytes: int) -> tuple[int, int]:
        """(block, offset) of the source."""
        return self.by.place(self.src, nbytes)

    def effect(self, tm: TensorMap, owner: int, offset: int, nbytes: int) -> Effect:
        target, same = Tile(tm, self.place, self.form.mode), (self.map, *self.place)
        return self.by.copy_out((owner, offset, nbytes), target, same, self.form.how is not None, self.map)


class TensorStoreOperands(NamedTuple):
    """Operands of a tensor copy from shared to global memory."""

    map: Any
    coords: tuple[Any, ...]
    src: Any

    def threads(self, M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm) -> Iterator[TensorStore]:
        a, s = per_lane(self.map, n), per_lane(self.src, n)
        coords = [per_lane(x, n) for x in self.coords]
        for by, i in issuers(M, at, idx, n, mask):
            yield TensorStore(by, form, int(a[i]), [int(x[i]) for x in coords], int(s[i]))


for _operands in (TensorLoadOperands, TensorStoreOperands):
    runtime(_operands)
