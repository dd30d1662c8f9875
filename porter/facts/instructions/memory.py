# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and atomics of threads, and addresses of other blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from porter.facts import cells
from porter.facts.events import Edge, Engine, Event, MapEvent, MapUse, Space, Stored
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.integers import Operation, operation
from porter.facts.launched import GLOBAL, VARIABLES
from porter.facts.machine import Machine
from porter.facts.placed import look_at_place
from porter.facts.state import Group, Undefined, Warp
from porter.facts.tensor_maps import places
from porter.facts.values import Value, bits, first, is_known, of_lane, shifted, squeezed, with_sign
from porter.ptx import ast, table
from porter.ptx.arch import WARP
from porter.ptx.bits import type_bytes
from porter.ptx.matrix_rows import rows_of, shape_of
from porter.ptx.memory_order import memory_order
from porter.ptx.shared_window import OFFSET_MASK, RANK_MASK, RANK_SHIFT, SYSTEM_SHARED

_ELSEWHERE = frozenset(("global", "const", "local"))
_UNKNOWN_PLACE = "a generic address that is data is none of shared memory"
_OF_SYSTEM = cells.of_bytes(0, SYSTEM_SHARED)


def lane_addresses(address: Value, lanes: int) -> Iterator[tuple[int, int]]:
    """(lane, address) of each lane, of one where all have the same."""
    if isinstance(address, tuple):
        for lane in bits(lanes):
            found = address[lane]
            assert found is not None
            yield lane, found
    elif address is not None:
        yield first(lanes), address


def touch(
    machine: Machine, warp: Warp, event: Event, lanes: int, address: Value, nbytes: int, write: bool, at: int,
    engine: Engine = Engine.THREAD, what: str = "", multiple: int | None = None, stored: Stored | None = None,
) -> None:  # fmt: skip
    """An access of threads to shared memory, of whatever blocks. `multiple`: of how many bytes its address has to be
    one, if not of its own; `stored`: what it writes, if that is known."""
    look_at_place(machine, address, lanes, nbytes, at, multiple)
    for rank, touched in _touched(address, lanes, nbytes):
        machine.block_of(rank << RANK_SHIFT, at)
        machine.access(Space(rank, False), engine, write, touched, event.index, event.index, at, stored=stored)
        machine.reach(event, rank, warp, what or ("a store" if write else "a load"), at, by_thread=True)
        if write:
            not_over_barriers(machine, rank, touched, at)


@lru_cache(maxsize=4096)
def _touched(address: Value, lanes: int, nbytes: int) -> tuple[tuple[int, int], ...]:
    """(rank, cells) of the blocks that lanes touch."""
    by_rank: dict[int, int] = defaultdict(int)
    for _, place in lane_addresses(address, lanes):
        by_rank[place >> RANK_SHIFT] |= cells.of_bytes(place & OFFSET_MASK, nbytes)
    return tuple(by_rank.items())


def _holds_numbers(machine: Machine, address: Value, lanes: int, nbytes: int) -> bool:
    """Whether numbers have been stored where lanes store: most shared memory only ever holds data."""
    return any(touched & machine.blocks[rank].numbered for rank, touched in _touched(address, lanes, nbytes))


def not_over_barriers(machine: Machine, rank: int, touched: int, at: int) -> None:
    for address in machine.history.barriers:
        if address >> RANK_SHIFT == rank and touched & cells.of_bytes(address & OFFSET_MASK, 8):
            machine.problem("barrier", f"{machine.named(address)} is overwritten", at)


def _where(step: Step, machine: Machine, address: Value, lanes: int, space: str, nbytes: int) -> bool:
    """Whether an access is to shared memory; of another one the place is looked at.

    Raises:
        NotUnderstood: its address is data although it is of shared memory.
    """
    is_shared = _is_shared(step, machine, address, lanes, space)
    if not is_shared and (space != "global" or machine.knows_global):
        look_at_place(machine, address, lanes, nbytes, step.at)
    return is_shared


def _is_shared(step: Step, machine: Machine, address: Value, lanes: int, space: str) -> bool:
    if space in _ELSEWHERE or space.startswith("param"):
        return False
    if not is_known(address, lanes):
        if space.startswith("shared"):
            raise step.not_understood("the address")
        # it comes from a pointer in memory
        machine.history.assumed.add(_UNKNOWN_PLACE)
        return False
    places = [place for _, place in lane_addresses(address, lanes)]
    return space.startswith("shared") or any(place < GLOBAL for place in places)


@family("ld", "ldu")
def load(step: Step) -> Run:
    size = type_bytes(step.ins.parts[-1])
    names = step.registers("d")
    space = step.ins.space("a")
    address = step.value("a")
    nbytes = size * len(names)
    is_signed = step.ins.parts[-1][0] == "s"
    if space.startswith("param"):
        return _signed(_parameter(step, names, size), names, size) if is_signed else _parameter(step, names, size)
    order = memory_order(step.ins)
    engine = Engine.ATOMIC if order.strong else Engine.THREAD

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        if not _where(step, machine, where, group.lanes, space, nbytes):
            group.pc += 1
            for index, name in enumerate(names):
                if name is not None and space == "local":
                    group.registers[name] = warp.local.load(shifted(where, index * size), size, group.lanes)
                elif name is not None:
                    plain = not order.strong and space != "const"
                    group.registers[name] = _given(machine, where, group.lanes, index * size, size) if plain else None
            _tell(machine, warp, group, step.at, names)
            if order.strong and machine.history.unfollowed is None:
                machine.history.unfollowed = step.at
            return None
        if order.strong and _is_polled(step, machine, warp, group, where, nbytes):
            return Outcome.BLOCKED
        group.pc += 1
        for event, lanes in machine.single(warp, group.lanes, "ld.shared", step.at):
            touch(machine, warp, event, lanes, where, nbytes, False, step.at, engine)
            if order.strong and isinstance(where, int):
                _see(machine, where, event, order.acquires)
        for index, name in enumerate(names):
            if name is not None:
                group.registers[name] = _loaded(machine, where, group.lanes, index * size, size, step.at)
        _tell(machine, warp, group, step.at, names)
        if _is_unwritten(machine, where, group.lanes, nbytes):
            group.undefined.update(dict.fromkeys((n for n in names if n is not None), Undefined(group.lanes, step.at)))
        return None

    return _signed(run, names, size) if is_signed else run


def _signed(load: Run, names: list[str | None], size: int) -> Run:
    """A load of signed numbers, above which their sign stands in the register."""

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        outcome = load(machine, warp, group)
        for name in names if outcome is None else ():
            if name is not None:
                group.registers[name] = with_sign(group.registers.get(name), 8 * size)
        return outcome

    return run


def _tell(machine: Machine, warp: Warp, group: Group, at: int, names: list[str | None]) -> None:
    """Tell of numbers that come from memory."""
    if machine.on_load is not None:
        found = ((name, group.registers.get(name)) for name in names if name is not None)
        machine.on_load(warp, at, {name: value for name, value in found if value is not None})


def _is_polled(step: Step, machine: Machine, warp: Warp, group: Group, where: Value, nbytes: int) -> bool:
    """Whether a group comes to a load again, has done nothing else meanwhile, and finds what it found before: it waits
    until that is another."""
    if not isinstance(where, int):
        return False
    machine.history.assumed.add(_ORDER)
    block = machine.block_of(where, step.at)
    found = block.read(where, nbytes)
    newest = warp.last[first(group.lanes)]
    if group.polled != (step.at, where, found, newest):
        # this load is the next event
        group.polled = (step.at, where, found, len(machine.history.events))
        return False
    group.wait(
        lambda: block.read(where, nbytes) != found,
        lambda: f"another value at {machine.names.place(where)} than {found}",
    )
    return True


_ORDER = "atomics in shared memory happen in the order of warps that was executed"


def _see(machine: Machine, address: int, event: Event, acquires: bool) -> None:
    """A strong operation sees those before it on its place."""
    for before, released in machine.atomics[address]:
        event.edges.append((_EDGES[released, acquires], before))


_EDGES = {(True, True): Edge.SYNC, (False, True): Edge.RELAXED, (True, False): Edge.SEEN, (False, False): Edge.WEAK}
"""By whether the first releases and the second acquires."""


def _given(machine: Machine, address: Value, lanes: int, offset: int, size: int) -> Value:
    """What an ordinary load from global memory finds, or from parameters by a generic address."""
    if not is_known(address, lanes):
        return None
    if isinstance(address, int):
        return machine.given(address + offset, size)
    by_lane = list(lane_addresses(address, lanes))
    at = [place + offset for _, place in by_lane]
    if not machine.may_give(min(at), max(at)):
        return None
    found: list[int | None] = [None] * WARP
    for lane, place in by_lane:
        found[lane] = machine.given(place + offset, size)
    return squeezed(tuple(found), lanes)


def _overwrite(machine: Machine, address: Value, lanes: int, at: int) -> None:
    if machine.launched.areas and is_known(address, lanes):
        for _, place in lane_addresses(address, lanes):
            machine.overwrite(place, at)


def _write_map(
    machine: Machine, warp: Warp, lanes: int, address: Value, given: list[Value], size: int, at: int
) -> None:
    """Numbers may be those of a tensor map."""
    numbers = [v for v in given if v is not None]
    for event, some in machine.single(warp, lanes, "st.global", at) if numbers else ():
        for place in {p for _, start in lane_addresses(address, some) for p in places(start, size * len(given))}:
            machine.history.maps.append(MapEvent(MapUse.WRITE, place, event.index, at))
    for lane, place in lane_addresses(address, lanes):
        for index, value in enumerate(given):
            machine.maps.store(place + index * size, size, of_lane(value, lane))


def _loaded(machine: Machine, address: Value, lanes: int, offset: int, size: int, at: int) -> Value:
    if isinstance(address, int):
        return machine.block_of(address, at).read(address + offset, size)
    found: list[int | None] = [None] * WARP
    for lane, place in lane_addresses(address, lanes):
        found[lane] = machine.block_of(place, at).read(place + offset, size)
    return squeezed(tuple(found), lanes)


def _is_unwritten(machine: Machine, address: Value, lanes: int, nbytes: int) -> bool:
    """Whether nothing writes any of it, nor stores to a place that is not known."""
    if _UNKNOWN_PLACE in machine.history.assumed:
        return False
    for rank, touched in _touched(address, lanes, nbytes):
        if touched & (machine.blocks[rank].written | _OF_SYSTEM):
            return False
    return True


def _parameter(step: Step, names: list[str | None], size: int) -> Run:
    address = step.value("a")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        look_at_place(machine, where, group.lanes, size * len(names), step.at)
        for index, name in enumerate(names):
            if name is None:
                continue
            if isinstance(where, int):
                group.registers[name] = machine.launched.parameter(where + index * size, size)
            else:
                places = [of_lane(where, lane) for lane in range(WARP)]
                read = (None if p is None else machine.launched.parameter(p + index * size, size) for p in places)
                group.registers[name] = squeezed(tuple(read), group.lanes)
        group.pc += 1
        return None

    return run


@family("st")
def store(step: Step) -> Run:
    size = type_bytes(step.ins.parts[-1])
    space = step.ins.space("a")
    address, values = step.value("a"), step.values("b")
    nbytes = size * len(values)
    order = memory_order(step.ins)
    engine = Engine.ATOMIC if order.strong else Engine.THREAD

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        group.pc += 1
        where = address(machine, warp, group)
        if not _where(step, machine, where, group.lanes, space, nbytes):
            if space == "local":
                for index, read in enumerate(values):
                    warp.local.store(shifted(where, index * size), size, read(machine, warp, group), group.lanes)
                return None
            if space != "global":
                warp.local.forget()
            _overwrite(machine, where, group.lanes, step.at)
            if step.flow.changes_maps and is_known(where, group.lanes):
                _write_map(machine, warp, group.lanes, where, [v(machine, warp, group) for v in values], size, step.at)
            return None
        given = [v(machine, warp, group) for v in values]
        for event, lanes in machine.single(warp, group.lanes, "st.shared", step.at):
            stored = _stored(lanes, where, given, size)
            touch(machine, warp, event, lanes, where, nbytes, True, step.at, engine, stored=stored)
            if order.strong and isinstance(where, int):
                machine.atomics[where].append((event.index, order.releases))
        if all(v is None for v in given) and not _holds_numbers(machine, where, group.lanes, nbytes):
            return None
        for lane in bits(group.lanes):
            place = of_lane(where, lane)
            assert place is not None
            for index, value in enumerate(given):
                machine.block_of(place, step.at).write(place + index * size, size, of_lane(value, lane))
        return None

    return run


def _stored(lanes: int, where: Value, given: list[Value], size: int) -> Stored | None:
    """What lanes store, if all of it is known and no two of them store different numbers to one place."""
    if not all(is_known(value, lanes) for value in given):
        return None
    found: dict[int, int] = {}
    for lane in bits(lanes):
        for index, value in enumerate(given):
            place, number = of_lane(where, lane), of_lane(value, lane)
            assert place is not None
            assert number is not None
            if found.setdefault(place + index * size, number) != number:
                return None
    return Stored(tuple(sorted(found.items())), size)


@family("stmatrix", "ldmatrix")
def matrix(step: Step) -> Run:
    write = step.ins.parts[0] == "stmatrix"
    rows = rows_of(shape_of(step.ins.parts), int(step.ins.modifiers["num"][1:]))
    address = step.value("p")
    names = [] if write else [n for n in step.registers("r") if n is not None]

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        where = address(machine, warp, group)
        lanes = (1 << rows) - 1
        if not is_known(where, lanes):
            raise step.not_understood("the address")
        event = machine.joint(warp, group.lanes, step.ins.parts[0], step.at)
        touch(machine, warp, event, lanes, where, 16, write, step.at)
        if write and _holds_numbers(machine, where, lanes, 16):
            for _, place in lane_addresses(where, lanes):
                machine.block_of(place, step.at).write(place, 16, None)
        group.registers.update(dict.fromkeys(names))
        group.pc += 1
        return None

    return run


_CHANGES: dict[str, Operation] = {
    "exch": lambda old, new: new,
    "inc": lambda old, most: 0 if old >= most else old + 1,
    "dec": lambda old, most: most if not 0 < old <= most else old - 1,
}
_ATOMIC = frozenset((*_CHANGES, "add", "and", "or", "xor", "min", "max"))


def _no_number(old: int, new: int) -> None:
    return None


def _change(step: Step) -> Operation | None:
    """What an atomic makes of what is there; None where somebody may wait for that."""
    name = next((p for p in step.ins.parts[1:] if p in _ATOMIC), None)
    return None if name is None else _CHANGES.get(name) or operation((name, step.ins.parts[-1])) or _no_number


@family("atom", "red")
def atomic(step: Step) -> Run:
    space, address = step.ins.space("a"), step.value("a")
    name = step.register("d") if "d" in step.ins else None
    amount = None if isinstance(step.ins["b"], ast.Vec) else step.value("b")
    change = _change(step)
    size = type_bytes(step.ins.type("b")) * len(table.items(step.ins["b"]))
    written = step.flow.writes[step.at]
    order = memory_order(step.ins)
    counts = step.ins.parts[0] == "atom" and step.has("add")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        given = amount(machine, warp, group) if amount is not None else None
        group.registers.update(dict.fromkeys(written))
        group.pc += 1
        if not _where(step, machine, where, group.lanes, space, size):
            _overwrite(machine, where, group.lanes, step.at)
            if name is not None:
                group.registers[name] = _of_grid(machine, where, given, group.lanes) if counts else None
                _tell(machine, warp, group, step.at, [name])
            if order.acquires and machine.history.unfollowed is None:
                machine.history.unfollowed = step.at
            return None
        if change is None:
            raise step.not_understood("the operation")
        machine.history.assumed.add(_ORDER)
        found: list[int | None] = [None] * WARP
        for event, lane in machine.lane_starts(warp, group, "atomic", step.at):
            place = of_lane(where, lane)
            assert place is not None
            _see(machine, place, event, order.acquires)
            machine.atomics[place].append((event.index, order.releases))
            touch(machine, warp, event, 1 << lane, place, size, True, step.at, Engine.ATOMIC, "an atomic")
            block = machine.block_of(place, step.at)
            old, new = block.read(place, size), of_lane(given, lane)
            found[lane] = old
            block.write(place, size, None if old is None or new is None else change(old, new))
        if name is not None:
            group.registers[name] = squeezed(tuple(found), group.lanes)
            _tell(machine, warp, group, step.at, [name])
        return None

    return run


def _of_grid(machine: Machine, address: Value, amount: Value, lanes: int) -> Value:
    """A counter in global memory by which blocks take their work: the first one is that behind the grid's."""
    if not isinstance(address, int) or not isinstance(amount, int) or lanes.bit_count() != 1 or address >= VARIABLES:
        return None
    old = machine.counters.get(address, machine.launched.geometry.grid[0])
    machine.counters[address] = old + amount
    machine.history.assumed.add("a counter in global memory starts at the number of blocks, and nobody else counts")
    return old


@family("mapa")
def mapa(step: Step) -> Run:
    name, address, rank = step.register("d"), step.value("a"), step.value("b")

    def mapped(place: int | None, target: int | None) -> int | None:
        if place is None or target is None:
            return None
        return place & OFFSET_MASK | (target & RANK_MASK) << RANK_SHIFT

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        place, target = address(machine, warp, group), rank(machine, warp, group)
        found = tuple(mapped(of_lane(place, lane), of_lane(target, lane)) for lane in range(WARP))
        if name is not None:
            group.registers[name] = squeezed(found, group.lanes)
        group.pc += 1
        return None

    return run


@family("getctarank")
def getctarank(step: Step) -> Run:
    name, address = step.register("d"), step.value("a")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        place = address(machine, warp, group)
        if name is not None:
            group.registers[name] = place >> RANK_SHIFT & RANK_MASK if isinstance(place, int) else None
        group.pc += 1
        return None

    return run
