# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of threads, and matrices that a warp loads or stores."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from porter.equal.contents import Addresses, Contents, Taken
from porter.equal.global_uses import User
from porter.equal.meaning import Means, Then, lane_addresses, meaning, places, read
from porter.equal.rows import Read
from porter.equal.words import Words, chosen, constant, extended, is_number, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.launched import GLOBAL, LOCAL, PARAMETERS
from porter.facts.state import Group, Warp
from porter.facts.values import is_known
from porter.ptx import ast, table
from porter.ptx.bits import type_bytes
from porter.ptx.matrix_rows import ROW_BYTES, byte_places, rows_of, shape_of
from porter.ptx.memory_order import memory_order
from porter.ptx.packing import CHUNK_ELEMENTS, SOURCE_BITS, SOURCE_SHIFT


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
    space, address, place, found_at = step.ins.space("a"), step.value("a"), step.ins["a"], places(step, "a")
    assert isinstance(place, ast.Mem)
    base, offset = read(step, place.base, 8), place.offset
    if space.startswith("param"):
        return _parameter(step, names, size)
    nbytes = size * len(names)
    strong, is_signed = memory_order(step.ins).strong, step.ins.parts[-1][0] == "s"
    is_cached = step.has("nc") or step.ins.parts[0] == "ldu" or space == "const"

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)
        at_data = None if is_known(where, taken.mask) else base(contents, warp, group)
        of_lanes: dict[int, int] = {}
        if at_data is None:
            of_lanes = found_at(contents, warp, group, taken.mask)
        elif contents.forms is not None:
            of_lanes = contents.forms.addresses(at_data, offset, taken.mask) or {}

        def then() -> None:
            values = [group.registers.get(n) if n is not None else 0 for n in names]
            if taken.where is None and all(is_known(v, taken.mask) for v in values):
                return
            data = constant(0, nbytes).copy()
            if not of_lanes:
                assert at_data is not None
                if strong or space == "local":
                    raise step.not_understood("the address, which is data,")
                key = mixed(word("behind a pointer"), contents.tables, joined(at_data), np.uint64(offset % (1 << 64)))
                data = spread(key, nbytes)
            else:
                lanes, addresses = rows(of_lanes, nbytes)
                if is_local(step, of_lanes):
                    data[lanes] = contents.local_bytes(warp, lanes, addresses)
                elif is_shared(step, of_lanes, space):
                    data[lanes] = contents.shared_bytes(addresses)
                elif strong:
                    raise step.not_understood("what other blocks have left there")
                else:
                    data[lanes] = contents.global_bytes(addresses, User(warp, lanes, step.at, is_cached))
            for index, name in enumerate(names):
                if name is not None:
                    piece = data[:, size * index : size * (index + 1)]
                    contents.put(warp, name, taken, extended(piece) if is_signed else piece)

        return then

    return means


def _parameter(step: Step, names: list[str | None], size: int) -> Means:
    """A number, also where a branch on data leads to it."""
    address = step.value("a")
    live = step.flow.live[step.at + 1] if step.at + 1 < len(step.flow.live) else frozenset[str]()

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = address(contents.machine, warp, group)

        def then() -> None:
            for index, name in enumerate(names):
                if name not in live or (taken.where is None and is_known(group.registers.get(name), taken.mask)):
                    continue
                data = constant(0, size).copy()
                for lane, place in lane_addresses(step, where, taken.mask).items():
                    found = contents.parameter(place + index * size, size)
                    if found is None:
                        raise step.not_understood("what is no parameter of the launch")
                    data[lane] = found
                contents.put(warp, name, taken, data)

        return then

    return means


def given(step: Step, name: str, size: int) -> Read:
    operands = [read(step, o, size) for o in table.items(step.ins[name])]
    return lambda contents, warp, group: np.concatenate([o(contents, warp, group) for o in operands], axis=1)


@meaning("st")
def store(step: Step) -> Means | None:
    size, space, address = type_bytes(step.ins.parts[-1]), step.ins.space("a"), places(step, "a")
    values = given(step, "b", size)
    if space.startswith("param"):
        return None

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        of_lanes = address(contents, warp, group, taken.mask)
        data = values(contents, warp, group)
        lanes, addresses = rows(of_lanes, data.shape[1])
        local = is_local(step, of_lanes)
        shared = not local and is_shared(step, of_lanes, space)

        def then() -> None:
            stored = data[lanes]
            if local:
                if taken.where is not None:
                    stored = chosen(taken.where[lanes], stored, contents.local_bytes(warp, lanes, addresses))
                contents.put_local(warp, lanes, addresses, stored)
                return
            if taken.where is not None:
                before = contents.shared_bytes(addresses) if shared else contents.before(addresses)
                stored = chosen(taken.where[lanes], stored, before)
            if shared:
                _require_one_thing(step, of_lanes.values(), stored)
                contents.put_shared(addresses, stored)
            else:
                contents.put_global(addresses, stored, User(warp, lanes, step.at))

        return then

    return means


def _require_one_thing(step: Step, starts: Collection[int], data: Words) -> None:
    """Raises NotUnderstood: lanes store different things [lanes, ...] to one place."""
    if len(set(starts)) < len(starts):
        _, which = np.unique(np.fromiter(starts, np.int64), return_inverse=True)
        _, first = np.unique(which, return_index=True)
        if bool((data != data[first[which]]).any()):
            raise step.not_understood("lanes that store different things to one place of shared memory,")


@meaning("st.bulk")
def store_bulk(step: Step) -> Means:
    """Zeros (PTX ISA 9.7.9.13)."""
    address, size = step.value("a"), step.value("size")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        places = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        count = size(contents.machine, warp, group)
        if taken.where is not None or not isinstance(count, int):
            raise step.not_understood("the guard or the size, which is data,")

        def then() -> None:
            _, addresses = rows(places, count)
            contents.put_shared(addresses, np.zeros(addresses.shape, np.uint64))

        return then

    return means


@meaning("mapa", "getctarank")
def numbers_alone(step: Step) -> Means | None:
    """Addresses are numbers, or are not understood where they are used."""
    return None


@meaning("stmatrix", "ldmatrix")
def matrix(step: Step) -> Means | None:
    shape, given = shape_of(step.ins.parts), step.ins.modifiers
    count, source, address = rows_of(shape, int(given["num"][1:])), given.get("source", ""), step.value("p")
    registers = step.registers("r")
    row, byte = byte_places(shape, len(registers), step.has("trans"))
    pieces = [read(step, o, 4) for o in table.items(step.ins["r"])]
    writes = step.ins.parts[0] == "stmatrix"

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        starts = lane_addresses(step, address(contents.machine, warp, group), (1 << count) - 1)
        addresses = np.fromiter(starts.values(), np.int64)[:, None] + np.arange(ROW_BYTES)
        data = [p(contents, warp, group) for p in pieces] if writes else []

        def then() -> None:
            if writes:
                stored = np.empty(addresses.shape, np.uint64)
                stored[row, byte] = np.stack(data, axis=1)
                _require_one_thing(step, starts.values(), stored)
                contents.put_shared(addresses, stored)
                return
            found = contents.shared_bytes(addresses)
            found = (unpacked(found, source) if source else found)[row, byte]
            for index, name in enumerate(registers):
                if name is not None:
                    contents.put(warp, name, taken, found[:, index])

        return then

    return means


def unpacked(data: Words, source: str) -> Words:
    """Rows whose chunks of 16 bytes hold elements of 4 or 6 bits, with each in a byte."""
    width, chunks = SOURCE_BITS[source], data.reshape(len(data), -1, CHUNK_ELEMENTS)
    first = np.arange(CHUNK_ELEMENTS) * width
    low, high = chunks[..., first // 8], chunks[..., (first + width - 1) // 8]
    bit = (first % 8).astype(np.uint64)
    number = (low | high << np.uint64(8)) >> bit & np.uint64((1 << width) - 1)
    made = mixed(word(f"element of {source}"), low, high, bit)
    known = is_number(low) & is_number(high)
    return np.where(known, number << np.uint64(SOURCE_SHIFT[source]), made).reshape(data.shape)
