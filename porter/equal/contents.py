# SPDX-License-Identifier: Apache-2.0
"""What registers, shared memory, Tensor Memory and global memory of an execution hold, byte by byte, as words."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from porter.equal.words import Words, chosen, constant, of_addresses, opposite, word
from porter.facts.events import NotUnderstood
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import ALL, Value, bits
from porter.ptx.arch import SHARED_LIMIT, WARP
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT, SYSTEM_SHARED
from porter.ptx.tmem import COLUMNS, LANES

Addresses = npt.NDArray[np.int64]
UNDEFINED = word("undefined")
_TENSOR = 34
"""Bits of an address below those that tell tensors apart."""


class Stored(NamedTuple):
    """Bytes that an instruction stores to global memory. `how`: what a reduction does there, if it is one; then one
    word stands for each value, and `addresses` are theirs."""

    addresses: Addresses
    words: Words
    at: int
    how: str = ""


@dataclass
class Taken:
    """The lanes that an instruction is executed for: `mask`, and of these those for which the data `where` [32, 1]
    hold, if there are any; then `old` are the registers that it writes, as it finds them."""

    mask: int
    where: Words | None = None
    old: dict[str, Words] = field(default_factory=dict)

    def index(self) -> npt.NDArray[np.intp]:
        return np.fromiter(bits(self.mask), np.intp)


class _Choice(NamedTuple):
    """`data` where `where` holds, else `before`."""

    where: Words
    data: Words
    before: Words


@dataclass
class Contents:
    """Of a cluster. Registers are [32, bytes] by warp and name, shared memory is [blocks, bytes], Tensor Memory
    [blocks, lanes, columns, 4]."""

    machine: Machine
    stored: list[Stored] = field(default_factory=list)
    sums: dict[str, dict[int, np.uint64]] = field(default_factory=lambda: defaultdict(dict))
    """By opcode and the word of its result the sum of what a greatest or least value is made of."""
    registers: dict[Warp, dict[str, Words]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        blocks = len(self.machine.blocks)
        self.shared = np.full((blocks, SHARED_LIMIT + SYSTEM_SHARED), UNDEFINED, np.uint64)
        self.tensor = np.full((blocks, LANES, COLUMNS, 4), UNDEFINED, np.uint64)
        self.local: dict[Warp, dict[int, Words]] = defaultdict(dict)
        self.path: Words | None = None
        """What holds where an instruction is executed behind a branch on data."""
        self._chosen: dict[tuple[Warp, str], _Choice] = {}
        """The newest value of registers, where that is one of some way behind a branch."""
        self._written: set[int] = set()
        self._newest: dict[int, np.uint64] | None = None
        self.loads_what_it_stores = False
        self.operands: dict[object, Words] = {}
        """Those that products have found in shared memory as it is."""

    def forget(self) -> None:
        """What registers and memory hold has been changed: nothing is known of how it was made."""
        self._chosen.clear()
        self.sums.clear()
        self.operands.clear()

    # Registers ----------------------------------------------------------------------------------------

    def value(self, warp: Warp, name: str, value: Value, size: int) -> Words:
        """A register [32, size] of which `value` is known as numbers."""
        if isinstance(value, int):
            return constant(value, size)
        data = self.registers[warp].get(name)
        newest = self._chosen.get((warp, name)) if self.path is not None else None
        if newest is not None and self.path is not None and bool((newest.where == self.path).all()):
            data = newest.data
        found = fitted(data, size) if data is not None else np.full((WARP, size), UNDEFINED, np.uint64)
        if isinstance(value, tuple):
            found = found.copy()
            for lane, number in enumerate(value):
                if number is not None:
                    found[lane] = constant(number, size)[0]
        return found

    def read(self, warp: Warp, group: Group, name: str, size: int) -> Words:
        return self.value(warp, name, group.registers.get(name), size)

    def put(self, warp: Warp, name: str, taken: Taken, data: Words) -> None:
        """Have a register hold data in some lanes. What it holds as a number counts first, as it does for readers."""
        registers = self.registers[warp]
        if taken.where is not None:
            data = self._choice(warp, name, taken.where, data, taken.old[name])
        else:
            self._chosen.pop((warp, name), None)
        old = registers.get(name)
        if taken.mask != ALL and old is not None:
            size = max(old.shape[1], data.shape[1])
            whole = fitted(old, size).copy()
            index = taken.index()
            whole[index] = fitted(data, size)[index]
            data = whole
        registers[name] = data

    def _choice(self, warp: Warp, name: str, where: Words, data: Words, old: Words) -> Words:
        """Where both ways of a branch write a register, what was there before does not count."""
        before = fitted(old, data.shape[1])
        newest = self._chosen.get((warp, name))
        if newest is not None and newest.data.shape == data.shape:
            if bool((newest.where == opposite(where)).all()):
                before = newest.data
            elif bool((newest.where == where).all()):
                before = newest.before
        self._chosen[warp, name] = _Choice(where, data, before)
        return chosen(where, data, before)

    # Shared memory ------------------------------------------------------------------------------------

    def shared_bytes(self, addresses: Addresses) -> Words:
        """Bytes at addresses of the shared window.

        Raises:
            NotUnderstood: they are in no block's.
        """
        self._require_shared(addresses)
        found: Words = self.shared[addresses >> RANK_SHIFT, addresses & OFFSET_MASK]
        return found

    def put_shared(self, addresses: Addresses, data: Words) -> None:
        """Raises NotUnderstood: they are in no block's."""
        self._require_shared(addresses)
        self.shared[addresses >> RANK_SHIFT, addresses & OFFSET_MASK] = data
        self.operands.clear()

    def _require_shared(self, addresses: Addresses) -> None:
        blocks, size = self.shared.shape
        if bool(
            (addresses < 0).any()
            or (addresses >> RANK_SHIFT >= blocks).any()
            or (addresses & OFFSET_MASK >= size).any()
        ):
            raise NotUnderstood("an address of no block's shared memory")

    # Local memory -------------------------------------------------------------------------------------

    def local_bytes(self, warp: Warp, lanes: npt.NDArray[np.intp], addresses: Addresses) -> Words:
        """Bytes [lanes, bytes] of the lanes' own memory."""
        found = np.full(addresses.shape, UNDEFINED, np.uint64)
        memory = self.local[warp]
        for (row, column), address in np.ndenumerate(addresses):
            if address in memory:
                found[row, column] = memory[int(address)][lanes[row]]
        return found

    def put_local(self, warp: Warp, lanes: npt.NDArray[np.intp], addresses: Addresses, data: Words) -> None:
        memory = self.local[warp]
        for (row, column), address in np.ndenumerate(addresses):
            words = memory.setdefault(int(address), np.full(WARP, UNDEFINED, np.uint64))
            words[lanes[row]] = data[row, column]

    # Global memory ------------------------------------------------------------------------------------

    def global_bytes(self, addresses: Addresses) -> Words:
        """Bytes at addresses of global memory, as the cluster itself has left them."""
        found = of_addresses(addresses)
        if self._written.isdisjoint(np.unique(addresses >> _TENSOR).tolist()):
            return found
        self.loads_what_it_stores = True
        newest = self._latest()
        flat = found.reshape(-1)
        for index, address in enumerate(addresses.reshape(-1).tolist()):
            if address in newest:
                flat[index] = newest[address]
        return flat.reshape(found.shape)

    def _latest(self) -> dict[int, np.uint64]:
        if self._newest is None:
            self._newest = {}
            for stored in self.stored:
                if not stored.how:
                    self._newest.update(zip(stored.addresses.tolist(), stored.words, strict=True))
        return self._newest

    def put_global(self, addresses: Addresses, data: Words, at: int, how: str = "") -> None:
        flat = addresses.reshape(-1)
        self.stored.append(Stored(flat, data.reshape(-1), at, how))
        if not how:
            self._written.update(np.unique(flat >> _TENSOR).tolist())
            self._newest = None


def fitted(data: Words, size: int) -> Words:
    """Data [32, bytes] as so many bytes: of wider ones the lowest, narrower ones with zeros above."""
    if data.shape[1] >= size:
        return data[:, :size]
    return np.concatenate((data, np.zeros((len(data), size - data.shape[1]), np.uint64)), axis=1)
