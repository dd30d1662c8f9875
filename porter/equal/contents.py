# SPDX-License-Identifier: Apache-2.0
"""What registers, shared memory, Tensor Memory and global memory of an execution hold, byte by byte, as words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from porter.equal.chains import Chain, nothing
from porter.equal.forms import Forms, Noted, without_region
from porter.equal.global_uses import GlobalUses, User, different
from porter.equal.words import (
    Words,
    chosen,
    constant,
    element_words,
    joined,
    mixed,
    of_addresses,
    opposite,
    spread,
    word,
)
from porter.facts.events import NotUnderstood
from porter.facts.launched import VARIABLE_ROOM, VARIABLES
from porter.facts.machine import Machine
from porter.facts.operands import OF_GRID
from porter.facts.state import Group, Warp
from porter.facts.values import ALL, Value, bits
from porter.ptx import ast
from porter.ptx.arch import SHARED_LIMIT, WARP
from porter.ptx.initial import initial_bytes
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT, SYSTEM_SHARED
from porter.ptx.symbols import without_file
from porter.ptx.tmem import COLUMNS, LANES

Addresses = npt.NDArray[np.int64]
UNDEFINED = word("undefined")
Threads = Sequence[tuple[Warp, int]]
"""Warp and lane of each."""
Names = tuple[str, ...]
_UNIT = 4
_DATA_ALONE = {None}
"""The numbers of registers of which none is one."""
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


class Tile(NamedTuple):
    """Registers of a warp that hold an accumulator: which elements, of `size` bytes each, by lane."""

    names: Names
    size: int
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]


Windows = Sequence[tuple[slice, tuple[slice, slice]]]
"""Rows of an accumulator, with the lanes and columns of Tensor Memory in which they are."""


class _InTensor(NamedTuple):
    windows: Windows
    size: int
    chain: Chain


class _Choice(NamedTuple):
    """`data` where `where` holds, else `before`."""

    where: Words
    data: Words
    before: Words


class Way(NamedTuple):
    """What holds on the way `around` a branch, and on the other one behind it."""

    around: Words
    other: Words


@dataclass
class Contents:
    """Of a cluster. Registers are [32, bytes] by warp and name, shared memory is [blocks, bytes], Tensor Memory
    [blocks, lanes, columns, 4]."""

    machine: Machine
    forms: Forms | None = None
    """Where sizes are symbols."""
    undefined: np.uint64 = UNDEFINED
    """The word of what nobody has written."""
    noted: Noted = field(default_factory=Noted)
    lanes: int = ALL
    """Those that an instruction computes for."""
    stored: list[Stored] = field(default_factory=list)
    sums: dict[str, dict[int, np.uint64]] = field(default_factory=lambda: defaultdict(dict))
    """By opcode and the word of its result the sum of what that is made of, in any order."""

    def __post_init__(self) -> None:
        self._registers: dict[Warp, dict[str, Words]] = defaultdict(dict)
        self._waiting: dict[Warp, dict[str, tuple[Tile, Chain]]] = defaultdict(dict)
        """By register the accumulators to which products have been added that nobody has asked for."""
        self._in_tensor: dict[tuple[int, object], _InTensor] = {}
        """The same in the Tensor Memory of blocks."""
        self.local: dict[Warp, dict[int, Words]] = defaultdict(dict)
        self.path: Words | None = None
        """What holds where an instruction is executed behind a branch on data."""
        self.ways: dict[bytes, Way] = {}
        """By what holds on them the ways behind branches on data that stand behind others."""
        self._chosen: dict[tuple[Warp, str], _Choice] = {}
        """The newest value of registers, where that is one of some way behind a branch."""
        self._written: set[int] = set()
        self._parameters: dict[tuple[int, int], Words | None] = {}
        self._variables: dict[int, Words] = {}
        self._reduced: dict[int, str] = {}
        """By the number of four bytes of global memory what is added there."""
        self._readings: Counter[object] = Counter()
        """Units of memory that reductions have changed."""
        self._before: dict[tuple[Warp, int, int, str], np.uint64] = {}
        """The newest reduction of a thread at a place, of those whose order counts."""
        self._newest: dict[int, np.uint64] = {}
        """What global memory holds by what was stored, as far as that is `_noted`."""
        self._noted = 0
        self.loads_what_it_stores = False
        self.uses = GlobalUses(self.machine)
        self.waited: set[Warp] = set()
        """Warps that have waited for the grid ahead."""
        self.operands: dict[object, tuple[int, Words]] = {}
        """Those in shared memory that warpgroups have found, with the number of their product."""
        self._rows: dict[tuple[Warp, Names], tuple[Words, list[Words]]] = {}
        """Rows of registers that were put together: all of them as one array, and each."""

    @cached_property
    def shared(self) -> Words:
        """Some megabytes, which blocks without work do not ask for."""
        room = SHARED_LIMIT + SYSTEM_SHARED + self.machine.launched.moved
        return np.full((len(self.machine.blocks), room), self.undefined, np.uint64)

    @cached_property
    def _tensor(self) -> Words:
        return np.full((len(self.machine.blocks), LANES, COLUMNS, 4), self.undefined, np.uint64)

    def forget(self) -> None:
        """What registers and memory hold has been changed: nothing is known of how it was made."""
        self._chosen.clear()
        self.sums.clear()
        self.operands.clear()

    def in_any_order(self, opcode: str, size: int, given: Sequence[Words]) -> Words:
        """The greatest of some values [..., size], or their sum, is made of all of them, in whatever order they are
        taken: the sum of their words stands for them."""
        key, sums = word(opcode), self.sums[opcode]
        total = np.zeros(given[0].shape[:-1], np.uint64)
        for data in given:
            one = joined(data)
            leaf = mixed(key, one)
            for place, value in np.ndenumerate(one):
                if int(value) in sums:
                    leaf[place] = sums[int(value)]
            total += leaf
        found = spread(mixed(key, total), size)
        sums.update(zip(joined(found).reshape(-1).tolist(), total.reshape(-1), strict=True))
        return found

    def reading(self, warp: Warp, timer: str) -> Words:
        """What a timer shows [32, 8]: something else each time, in each lane."""
        self._readings[warp, timer] += 1
        key = word(f"{timer}, {warp.name}, {self._readings[warp, timer]}")
        return spread(mixed(key, np.arange(WARP, dtype=np.uint64)), 8)

    # Registers ----------------------------------------------------------------------------------------

    def value(self, warp: Warp, name: str, value: Value, size: int) -> Words:
        """A register [32, size] of which `value` is known as numbers."""
        if isinstance(value, int):
            return constant(value, size)
        if name in self._waiting[warp]:
            self._settle(warp, name)
        data = self._registers[warp].get(name)
        newest = self._chosen.get((warp, name)) if self.path is not None else None
        if newest is not None and self._holds(newest.where):
            data = newest.data
        found = fitted(data, size) if data is not None else np.full((WARP, size), self.undefined, np.uint64)
        if isinstance(value, tuple):
            found = found.copy()
            for lane, number in enumerate(value):
                if number is not None:
                    found[lane] = constant(number, size)[0]
        return found

    def read(self, warp: Warp, group: Group, name: str, size: int) -> Words:
        return self.value(warp, name, group.registers.get(name), size)

    def held(self, warp: Warp, group: Group, name: str, size: int) -> Words:
        """The same, whatever way is taken."""
        path, self.path = self.path, None
        found = self.read(warp, group, name, size)
        self.path = path
        return found

    def _holds(self, where: Words) -> bool:
        """Whether something holds on the whole way behind a branch."""
        path = self.path
        while path is not None:
            if bool((where == path).all()):
                return True
            path = self.ways[key].around if (key := path.tobytes()) in self.ways else None
        return False

    def put(self, warp: Warp, name: str, taken: Taken, data: Words) -> None:
        """Have a register hold data in some lanes. What it holds as a number counts first, as it does for readers."""
        if name in self._waiting[warp]:
            self._settle(warp, name)
        registers = self._registers[warp]
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

    def read_row(self, warp: Warp, group: Group, names: Names) -> Words:
        """Registers of 4 bytes each [32, registers, 4]."""
        for name in self._waiting[warp].keys() & names:
            self._settle(warp, name)
        known, held, numbers = self._rows.get((warp, names)), self._registers[warp], group.registers
        is_known = known is not None and self.path is None and all(map(is_, map(held.get, names), known[1]))
        if known is not None and is_known and {*map(numbers.get, names)} == _DATA_ALONE:
            return known[0]
        return np.stack([self.read(warp, group, name, 4) for name in names], axis=1)

    def put_row(self, warp: Warp, names: Sequence[str | None], taken: Taken, data: Words) -> None:
        """Have registers hold data [32, registers, 4]; a name that is None stands for none."""
        pieces = list(data.swapaxes(0, 1))
        own = tuple(name for name in names if name is not None)
        if len(own) == len(pieces):
            self._rows[warp, own] = data, pieces
            if taken.mask == ALL and taken.where is None and not self._chosen:
                for one in self._waiting[warp].keys() & own:
                    self._settle(warp, one)
                self._registers[warp].update(zip(own, pieces, strict=True))
                return
        for name, piece in zip(names, pieces, strict=True):
            if name is not None:
                self.put(warp, name, taken, piece)

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

    def held_by(self, warp: Warp) -> dict[str, Words]:
        """What its registers hold."""
        for name in list(self._waiting[warp]):
            self._settle(warp, name)
        return self._registers[warp]

    # Accumulators -------------------------------------------------------------------------------------

    def may_wait(self, group: Group, taken: Taken, added_to: Names) -> bool:
        """Whether a product may be made when somebody asks for it: all lanes make it, and what it is `added_to` is
        data."""
        alone = taken.mask == ALL and taken.where is None and self.path is None and not self._chosen
        return alone and (not added_to or {*map(group.registers.get, added_to)} == _DATA_ALONE)

    def chain(self, warp: Warp, group: Group, tile: Tile, adding: bool) -> Chain:
        """The accumulator in a warp's registers, to which a product may be added."""
        waiting = self._waiting[warp]
        known = waiting.get(tile.names[0])
        is_own = known is not None and known[0][:2] == tile[:2]
        if known is not None and is_own and adding:
            return known[1]
        for name in waiting.keys() & tile.names if not is_own else ():
            self._settle(warp, name)
        base = nothing(tile.size)
        if adding:
            elements = element_words(self.read_row(warp, group, tile.names).reshape(WARP, -1, tile.size))
            base = np.empty((int(tile.rows.max()) + 1, int(tile.columns.max()) + 1), np.uint64)
            base[tile.rows, tile.columns] = elements
        chain = Chain(base)
        waiting.update(dict.fromkeys(tile.names, (tile, chain)))
        return chain

    def _settle(self, warp: Warp, name: str) -> None:
        """Have a register hold what was added to it."""
        waiting = self._waiting[warp]
        if name not in waiting:
            return
        tile, chain = waiting[name]
        for one in tile.names:
            del waiting[one]
        data = spread(chain.words()[tile.rows, tile.columns], tile.size).reshape(WARP, len(tile.names), 4)
        pieces = list(data.swapaxes(0, 1))
        self._rows[warp, tile.names] = data, pieces
        self._registers[warp].update(zip(tile.names, pieces, strict=True))

    @property
    def tensor(self) -> Words:
        """Tensor Memory."""
        for key in list(self._in_tensor):
            self._settle_in_tensor(key)
        return self._tensor

    def tensor_of(self, rank: int, lanes: Addresses, columns: Addresses) -> Words:
        """The Tensor Memory of a block, of which these lanes and columns are asked for."""
        if self._in_tensor:
            part = tuple(slice(int(one.min()), int(one.max()) + 1) for one in (lanes, columns))
            self._settle_around(rank, [part])
        found: Words = self._tensor[rank]
        return found

    def chain_in_tensor(self, rank: int, key: object, windows: Windows, size: int, adding: bool) -> Chain:
        """The accumulator in some windows of a block's Tensor Memory, to which a product may be added. `key`: which
        tells it from others in the same windows."""
        known = self._in_tensor.get((rank, key))
        if known is not None and adding:
            return known.chain
        if known is not None:
            del self._in_tensor[rank, key]
        self._settle_around(rank, [where for _, where in windows])
        base = nothing(size)
        if adding:
            base = np.concatenate([element_words(self._tensor[rank][where][..., :size]) for _, where in windows])
        chain = Chain(base)
        self._in_tensor[rank, key] = _InTensor(windows, size, chain)
        return chain

    def _settle_around(self, rank: int, parts: Sequence[tuple[slice, ...]]) -> None:
        for key, known in list(self._in_tensor.items()):
            own = [where for _, where in known.windows]
            if key[0] == rank and any(_overlap(one, other) for one in own for other in parts):
                self._settle_in_tensor(key)

    def _settle_in_tensor(self, key: tuple[int, object]) -> None:
        windows, size, chain = self._in_tensor.pop(key)
        words, tensor = chain.words(), self._tensor[key[0]]
        for own, where in windows:
            cells = tensor[where]
            cells[..., :size] = spread(words[own], size)
            cells[..., size:] = UNDEFINED

    # Symbols ------------------------------------------------------------------------------------------

    def index_of_grid(self, warp: Warp, name: str) -> Words | None:
        """The bytes of a special register that follows the grid, if that is a symbol."""
        of, _, axis = name.partition(".")
        if self.forms is None or of not in OF_GRID:
            return None
        number = "xyz".index(axis)
        geometry = self.machine.launched.geometry
        extent, inside = geometry.cluster[number], (warp.block.coordinates[number] - geometry.first[number])
        if extent > 1 and of in ("ctaid", "nctaid"):
            of_cluster = "clusterid" if of == "ctaid" else "nclusterid"
            row = self.forms.symbol(f"{of_cluster}.{axis}", extent, inside if of == "ctaid" else 0)
        else:
            row = self.forms.symbol(name if extent > 1 else name.replace("cluster", "cta"))
        return np.broadcast_to(row, (WARP, len(row)))

    def parameter(self, address: int, size: int) -> Words | None:
        """So many bytes of parameters; None outside of all."""
        if (address, size) not in self._parameters:
            self._parameters[address, size] = self._parameter(address, size)
        return self._parameters[address, size]

    def _parameter(self, address: int, size: int) -> Words | None:
        launched = self.machine.launched
        number = launched.parameter(address, size)
        if number is not None:
            return constant(number, size)[0]
        if self.forms is None:
            return None
        first, pieces = address & -4, []
        for at in range(first, address + size, 4):
            name = launched.symbol(at)
            number = None if name else launched.parameter(at, 4)
            if not name and number is None:
                return None
            pieces.append(self.forms.symbol(name) if name else constant(number or 0, 4)[0])
        if len(pieces) == 2 and not pieces[1].any():
            return self.forms.row(self.forms.of(pieces[0])._replace(width=64))
        return np.concatenate(pieces)[address - first :][:size]

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
        found = np.full(addresses.shape, self.undefined, np.uint64)
        memory = self.local[warp]
        for (row, column), address in np.ndenumerate(addresses):
            if address in memory:
                found[row, column] = memory[int(address)][lanes[row]]
        return found

    def put_local(self, warp: Warp, lanes: npt.NDArray[np.intp], addresses: Addresses, data: Words) -> None:
        memory = self.local[warp]
        for (row, column), address in np.ndenumerate(addresses):
            words = memory.setdefault(int(address), np.full(WARP, self.undefined, np.uint64))
            words[lanes[row]] = data[row, column]

    # Global memory ------------------------------------------------------------------------------------

    def global_bytes(self, addresses: Addresses, user: User, at_launch: Words | None = None) -> Words:
        """Bytes at addresses of global memory, as the cluster itself has left them. `at_launch`: what they held then,
        if that is known.

        Raises:
            NotUnderstood: a reduction has changed them.
        """
        self.uses.note("load", addresses, user)
        if not self._written.isdisjoint(self._tensors(addresses)):
            self.loads_what_it_stores = True
            if self.forms is not None:
                raise NotUnderstood("a load from a tensor that is stored to, at an address of symbols")
        found = self.before(addresses, at_launch)
        # what the grid ahead leaves is there behind the wait for it
        return mixed(word("griddepcontrol.wait"), found) if user.warp in self.waited else found

    def before(self, addresses: Addresses, at_launch: Words | None = None) -> Words:
        """The same where it stands for itself: a byte that is not stored remains."""
        self._require_unreduced(addresses)
        found = self._at_launch(addresses, at_launch)
        if self._written.isdisjoint(self._tensors(addresses)):
            return found
        newest = self._latest()
        flat = found.reshape(-1).copy()
        for index, address in enumerate(addresses.reshape(-1).tolist()):
            if address in newest:
                flat[index] = newest[address]
        return flat.reshape(found.shape)

    def _tensors(self, addresses: Addresses) -> set[int]:
        return different((addresses if self.forms is None else without_region(addresses)) >> _TENSOR)

    def _at_launch(self, addresses: Addresses, known: Words | None = None) -> Words:
        found = of_addresses(addresses) if known is None else known
        inside = addresses >= VARIABLES
        if inside.any():
            found = found.copy()
            numbers, offsets = np.divmod(addresses[inside] - VARIABLES, VARIABLE_ROOM)
            data = [self._of_variable(int(n)) for n in range(int(numbers.max()) + 1)]
            if any(offset >= len(data[n]) for n, offset in zip(numbers.tolist(), offsets.tolist(), strict=True)):
                raise NotUnderstood("an address behind the end of a variable")
            found[inside] = [data[n][offset] for n, offset in zip(numbers.tolist(), offsets.tolist(), strict=True)]
        return found

    def _of_variable(self, number: int) -> Words:
        """The bytes of a variable of the module: by its name, as hosts may have written it, and by what it begins
        with."""
        if number not in self._variables:
            variable = self.machine.launched.module_variables[number]
            begins_with = np.full(variable.size, 256, np.uint64)
            data = initial_bytes(variable, self.machine.launched.variable_addresses)[: variable.size]
            begins_with[: len(data)] = list(data)
            name = word(f"variable {without_file(variable.name)}")
            self._variables[number] = mixed(name, np.arange(variable.size, dtype=np.uint64), begins_with)
        return self._variables[number]

    @cached_property
    def tables(self) -> np.uint64:
        """What all variables hold that the entry names: one of them may be what a pointer leads to."""
        launched = self.machine.launched
        named = {o.name for i in launched.flow.code.code for o in _symbols(i.operands)}
        words = [joined(self._of_variable(n)) for n, v in enumerate(launched.module_variables) if v.name in named]
        return np.uint64(joined(np.array(words, np.uint64)))

    def _require_unreduced(self, addresses: Addresses) -> None:
        if self._reduced and not self._reduced.keys().isdisjoint(different(addresses // _UNIT)):
            raise NotUnderstood("what reductions have left in global memory")

    def _latest(self) -> dict[int, np.uint64]:
        for stored in self.stored[self._noted :]:
            if not stored.how:
                self._newest.update(zip(stored.addresses.tolist(), stored.words, strict=True))
        self._noted = len(self.stored)
        return self._newest

    def put_global(self, addresses: Addresses, data: Words, user: User) -> None:
        """Raises NotUnderstood: a reduction has changed what was there."""
        self.uses.note("store", addresses, user, data)
        self._require_unreduced(addresses)
        flat = addresses.reshape(-1)
        self.stored.append(Stored(flat, data.reshape(-1), user.at))
        self._written.update(self._tensors(flat))

    def trap(self, where: Words, lanes: Addresses, at: int) -> None:
        """The grid stops with an error if the data `where` [32, 1] hold in some lane.

        Raises:
            NotUnderstood: for all sizes that is not followed.
        """
        if self.forms is not None:
            raise NotUnderstood("a trap that data decide", at)
        data = [where, where if self.path is None else self.path]
        words = mixed(word("trap"), *(np.broadcast_to(d, (WARP, 1))[lanes, 0] for d in data))
        self.stored.append(Stored(np.zeros(len(lanes), np.int64), words, at, "trap"))

    def reduce_global(
        self, addresses: Addresses, data: Words, user: User, how: str, threads: Threads | None = None,
        where: Words | None = None,
    ) -> None:  # fmt: skip
        """Reductions of values [number, bytes] to places [number], if the data `where` [number] hold. `threads`: who
        makes them, where the order of those that one makes counts. Nobody knows that of different ones."""
        values = joined(data) if where is None else mixed(word("where"), where, joined(data))
        places = addresses[:, None] + np.arange(data.shape[1])
        self.uses.note("reduction", places, user)
        if not self._written.isdisjoint(self._tensors(places)):
            newest = self._latest()
            for index, row in enumerate(places.tolist()):
                before = [newest[place] for place in row if place in newest]
                if before:
                    values[index] = mixed(values[index], joined(np.array(before, np.uint64)))
        for index, (warp, lane) in enumerate(threads or ()):
            key = warp, lane, int(addresses[index]), how
            if key in self._before:
                values[index] = mixed(self._before[key], values[index])
            self._before[key] = values[index]
        if any(self._reduced.setdefault(unit, how) != how for unit in different(places // _UNIT)):
            # one thread's are in order, and that counts
            raise NotUnderstood("reductions of several kinds to one place", user.at)
        self.stored.append(Stored(addresses, values, user.at, how))


def _overlap(one: Sequence[slice], other: Sequence[slice]) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))


def _symbols(operands: Iterable[ast.Operand]) -> Iterator[ast.Sym]:
    for operand in operands:
        inner = operand.base if isinstance(operand, ast.Mem) else operand
        yield from [inner] if isinstance(inner, ast.Sym) else ()


def fitted(data: Words, size: int) -> Words:
    """Data [..., bytes] as so many bytes: of wider ones the lowest, narrower ones with zeros above."""
    *places, width = data.shape
    if width >= size:
        return data[..., :size]
    return np.concatenate((data, np.zeros((*places, size - width), np.uint64)), axis=-1)
