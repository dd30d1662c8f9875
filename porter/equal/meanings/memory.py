# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and atomics of threads, and matrices that a warp loads or stores."""

from __future__ import annotations

import numpy as np

from porter.equal.contents import Addresses, Contents, Taken
from porter.equal.meaning import Means, Read, Then, lane_addresses, meaning, read, refused
from porter.equal.words import chosen, constant, extended, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.launched import GLOBAL, LOCAL, PARAMETERS
from porter.facts.state import Group, Warp
from porter.facts.values import is_known
from porter.ptx import ast, table
from porter.ptx.arch import WARP
from porter.ptx.bits import type_bytes
from porter.ptx.matrix_rows import ROWS, element_places
from porter.ptx.memory_order import memory_order


def is_shared(step: Step, places: dict[int, int], space: str) -> bool:
    """Whether an access is to shared memory.

    Raises:
        NotUnderstood: some lanes' is and others' is not.
    """
    inside = {place < GLOBAL for place in places.values()}
    if len(inside) > 1:
        raise step.not_understood("addresses of two spaces")
    return space.startswith("shared") or (not space and inside == {True})


def is_local(step: Step, places: dict[int, int]) -> bool:
    """Whether an access is to the threads' own memory.

    Raises:
        NotUnderstood: some lanes' is and others' is not.
    """
    inside = {LOCAL <= place < PARAMETERS for place in places.values()}
    if len(inside) > 1:
        raise step.not_understood("addresses of two spaces")
    return inside == {True}


def rows(places: dict[int, int], nbytes: int) -> tuple[np.ndarray, Addresses]:
    """The lanes, and the addresses [lanes, bytes] of what they access."""
    lanes = np.fromiter(places, np.intp)
    return lanes, np.fromiter(places.values(), np.int64)[:, None] + np.arange(nbytes)


@meaning("ld", "ldu")
def load(step: Step) -> Means | None:
    size, names = type_bytes(step.ins.parts[-1]), step.registers("d")
    space, address, place = step.ins.space("a"), step.value("a"), step.ins["a"]
    assert isinstance(place, ast.Mem)
    base, offset = read(step, place.base, 8), place.offset
    if space.startswith("param"):
        return None
    if space == "const":
        return refused(step, "constant memory")
    nbytes = size * len(names)
    strong, is_signed = memory_order(step.ins).strong, step.ins.parts[-1][0] == "s"

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)
        at_data = None if is_known(where, taken.mask) else base(contents, warp, group)

        def then() -> None:
            values = [group.registers.get(n) if n is not None else 0 for n in names]
            if taken.where is None and all(is_known(v, taken.mask) for v in values):
                return
            data = constant(0, nbytes).copy()
            if at_data is not None:
                if strong or space == "local":
                    raise step.not_understood("the address, which is data,")
                key = mixed(word("behind a pointer"), joined(at_data), np.uint64(offset % (1 << 64)))
                data = spread(key, nbytes)
            else:
                places = lane_addresses(step, where, taken.mask)
                lanes, addresses = rows(places, nbytes)
                if is_local(step, places):
                    data[lanes] = contents.local_bytes(warp, lanes, addresses)
                elif is_shared(step, places, space):
                    data[lanes] = contents.shared_bytes(addresses)
                elif strong:
                    raise step.not_understood("what other blocks have left there")
                else:
                    data[lanes] = contents.global_bytes(addresses)
            for index, name in enumerate(names):
                if name is not None:
                    piece = data[:, size * index : size * (index + 1)]
                    contents.put(warp, name, taken, extended(piece) if is_signed else piece)

        return then

    return means


def _given(step: Step, name: str, size: int) -> Read:
    operands = [read(step, o, size) for o in table.items(step.ins[name])]
    return lambda contents, warp, group: np.concatenate([o(contents, warp, group) for o in operands], axis=1)


@meaning("st")
def store(step: Step) -> Means | None:
    size, space, address = type_bytes(step.ins.parts[-1]), step.ins.space("a"), step.value("a")
    values = _given(step, "b", size)
    if space.startswith("param"):
        return None

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        places = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        data = values(contents, warp, group)
        lanes, addresses = rows(places, data.shape[1])
        local = is_local(step, places)
        shared = not local and is_shared(step, places, space)

        def then() -> None:
            stored = data[lanes]
            if local:
                if taken.where is not None:
                    stored = chosen(taken.where[lanes], stored, contents.local_bytes(warp, lanes, addresses))
                contents.put_local(warp, lanes, addresses, stored)
                return
            if taken.where is not None:
                before = contents.shared_bytes(addresses) if shared else contents.global_bytes(addresses)
                stored = chosen(taken.where[lanes], stored, before)
            if shared:
                contents.put_shared(addresses, stored)
            else:
                contents.put_global(addresses, stored, step.at)

        return then

    return means


@meaning("atom", "red")
def atomic(step: Step) -> Means | None:
    """One that gives no data, to global memory: it is a part of the output. In shared memory only numbers."""
    behind = step.flow.live[step.at + 1] if step.at + 1 < len(step.flow.live) else frozenset[str]()
    name = step.register("d") if "d" in step.ins else None
    name = name if name in behind else None
    several = [n for n in step.registers("d") if n in behind] if "d" in step.ins else []
    if len(several) > 1 or (several and name is None):
        return refused(step, "the results")
    address, space = step.value("a"), step.ins.space("a")
    amount = _given(step, "b", type_bytes(step.ins.type("b")))
    how = " ".join(p for p in step.ins.parts[1:] if not p.startswith(("shared", "global", "relaxed", "release", "acq")))

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        places = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        shared = is_shared(step, places, space)
        data = amount(contents, warp, group)

        def then() -> None:
            if name is not None and not is_known(group.registers.get(name), taken.mask):
                raise step.not_understood("the result")
            if shared or name is not None:
                return
            if taken.where is not None:
                raise step.not_understood("the guard, which is data,")
            lanes, addresses = rows(places, 1)
            contents.put_global(addresses, joined(data)[lanes], step.at, how)

        return then

    return means


@meaning("mapa", "getctarank")
def numbers_alone(step: Step) -> Means | None:
    """Addresses are numbers, or are not understood where they are used."""
    return None


@meaning("stmatrix", "ldmatrix")
def matrix(step: Step) -> Means | None:
    if not step.has("m8n8") or not step.has("b16"):
        return refused(step, "the shape")
    count, address = int(step.ins.modifiers["num"][1:]), step.value("p")
    row, column = element_places(step.has("trans"))
    registers = step.registers("r")
    pieces = [read(step, o, 4) for o in table.items(step.ins["r"])]
    writes = step.ins.parts[0] == "stmatrix"

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)
        starts = lane_addresses(step, where, (1 << ROWS * count) - 1)
        base = np.fromiter(starts.values(), np.int64)
        data = [p(contents, warp, group) for p in pieces] if writes else []

        def then() -> None:
            for index in range(count):
                places = base[ROWS * index + row] + 2 * column
                addresses = (places[..., None] + np.arange(2)).reshape(WARP, 4)
                if writes:
                    contents.put_shared(addresses, data[index])
                elif (name := registers[index]) is not None:
                    contents.put(warp, name, taken, contents.shared_bytes(addresses))

        return then

    return means
