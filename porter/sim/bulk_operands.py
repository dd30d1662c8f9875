# SPDX-License-Identifier: Apache-2.0
"""Operands of bulk copies and of stores that complete on an mbarrier (PTX ISA 9.7.9.25 to 9.7.9.27), thread by thread.

Code generation makes the *form*, what an instruction says once for all threads. The *operands* are values of all
threads, [n, 32] or what broadcasts to it. Their `threads` are what the simulator works from; each one's `effect` is
for an observer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.sim.codegen import runtime
from porter.sim.effects import Effect, Outside, Shared, Span, Touch
from porter.sim.footprints import range_bits
from porter.sim.machine import Machine
from porter.sim.results import Stop
from porter.sim.threads import Issuer, Signal, int_or_none, issuers, per_lane, per_lane_or_none

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class BulkForm:
    """A bulk copy: from shared memory or not, and how it reduces elements of which type ("": it copies). `multimem`: to
    all the places that a multimem address stands for."""

    from_shared: bool = False
    how: str = ""
    kind: str = ""
    multimem: bool = False


class BulkLoad(NamedTuple):
    """One thread's bulk copy of `nbytes` into shared memory."""

    by: Issuer
    form: BulkForm
    dst: int
    src: int
    nbytes: int
    mbar: int
    multicast: int | None

    def target(self) -> tuple[int, int]:
        """(block, offset) of the destination address."""
        return self.by.place(self.dst, self.nbytes)

    def targets(self, first: int) -> list[int]:
        return self.by.targets(first, self.multicast)

    def signals(self, targets: list[int]) -> list[Signal]:
        if self.form.from_shared and self.multicast is None:
            return [self.by.mbarrier(self.mbar) for _ in targets]
        return self.by.signals(targets, self.mbar)

    def origin(self) -> tuple[int, int] | None:
        """(block, offset) of a source in shared memory."""
        return self.by.place(self.src, self.nbytes) if self.form.from_shared else None

    def effect(self, targets: list[int], signals: list[Signal], offset: int, origin: tuple[int, int] | None) -> Effect:
        source: Touch = Outside(Span(self.src, self.nbytes), False)
        if origin is not None:
            source = Shared(origin[0], range_bits(origin[1], self.nbytes), False)
        return self.by.copy_in(targets, signals, offset, self.nbytes, source, reduces=bool(self.form.how))


class BulkLoadOperands(NamedTuple):
    """Operands of a bulk copy into shared memory."""

    dst: Any
    src: Any
    size: Any
    mbar: Any
    multicast: Any = None

    def threads(self, M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm) -> Iterator[BulkLoad]:
        d, s, z, b = (per_lane(x, n) for x in self[:4])
        m = per_lane_or_none(self.multicast, n)
        for by, i in issuers(M, at, idx, n, mask):
            yield BulkLoad(by, form, int(d[i]), int(s[i]), int(z[i]), int(b[i]), int_or_none(m, i))


class BulkStore(NamedTuple):
    """One thread's bulk copy of `nbytes` from shared to global memory; `chosen` are the bits of .cp_mask."""

    by: Issuer
    dst: int
    src: int
    nbytes: int
    chosen: int | None

    def origin(self) -> tuple[int, int]:
        """(block, offset) of the source."""
        return self.by.place(self.src, self.nbytes)

    def effect(self, owner: int, offset: int, form: BulkForm) -> Effect:
        target = Span(self.dst, self.nbytes)
        return self.by.copy_out((owner, offset, self.nbytes), target, (self.dst,), bool(form.how))


class BulkStoreOperands(NamedTuple):
    """Operands of a bulk copy from shared to global memory."""

    dst: Any
    src: Any
    size: Any
    chosen: Any = None

    def threads(self, M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm) -> Iterator[BulkStore]:
        d, s, z = (per_lane(x, n) for x in self[:3])
        c = per_lane_or_none(self.chosen, n)
        for by, i in issuers(M, at, idx, n, mask):
            for place in _places(by, int(d[i]), int(z[i])) if form.multimem else (int(d[i]),):
                yield BulkStore(by, place, int(s[i]), int(z[i]), int_or_none(c, i))


def _places(by: Issuer, address: int, nbytes: int) -> list[int]:
    """Where a multimem address stands for."""
    found = by.machine.memory.find_multicast(address)
    if found is None or address + nbytes > found.end:
        what = f"{nbytes} bytes at {address:#x} are no multimem addresses"
        raise Stop(Code.SIM_OUT_OF_BOUNDS, what, by.at, by.warp, by.lane)
    return [target + address - found.start for target in found.targets]


@dataclass(frozen=True)
class AsyncStoreForm:
    """st.async, or red.async with an operation: `item` bytes an element of a type."""

    item: int
    how: str
    kind: str


class AsyncStore(NamedTuple):
    """One thread's store of `data` into shared memory of the cluster."""

    by: Issuer
    dst: int
    mbar: int
    data: Array

    def target(self) -> tuple[int, int]:
        """(block, offset) of the destination."""
        return self.by.place(self.dst, self.data.nbytes)

    def signal(self) -> Signal:
        return self.by.mbarrier(self.mbar)


class AsyncStoreOperands(NamedTuple):
    """Operands of st.async and red.async; `values` are the elements."""

    dst: Any
    values: tuple[Any, ...]
    mbar: Any

    def threads(self, M: Machine, at: int, idx: Any, n: int, mask: Any, form: AsyncStoreForm) -> Iterator[AsyncStore]:
        d, b = per_lane(self.dst, n), per_lane(self.mbar, n)
        words = [per_lane(v, n) for v in self.values]
        for by, i in issuers(M, at, idx, n, mask):
            yield AsyncStore(by, int(d[i]), int(b[i]), np.array([w[i] for w in words], f"<u{form.item}"))


for _operands in (BulkLoadOperands, BulkStoreOperands, AsyncStoreOperands):
    runtime(_operands)
