# SPDX-License-Identifier: Apache-2.0
"""cp.async, bulk copies, copies of tensors (PTX ISA 9.7.9.25), and stores that complete on an mbarrier.

Bytes are there when their copy is issued: where synchronization is proved nobody looks before they have landed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from porter.equal.contents import UNDEFINED, Addresses, Contents, Taken
from porter.equal.forms import Forms, Terms
from porter.equal.global_uses import User
from porter.equal.meaning import Means, Then, lane_addresses, meaning, read
from porter.equal.meaning import places as places_of
from porter.equal.meanings.atomics import add_to_shared, in_any_order
from porter.equal.rows import Read
from porter.equal.words import Words, joined, mixed, of_addresses, word
from porter.facts.instructions.registry import Step
from porter.facts.operands import Reader
from porter.facts.state import Group, Warp
from porter.facts.values import bits, is_known
from porter.ptx import table
from porter.ptx.bits import signed, type_bytes
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.tensormap import TensorMap
from porter.sim.datapath.tma import MODES, PADDING, Mode, as_copied, fill_bytes, places


@meaning("cp")
def cp(step: Step) -> Means | None:
    parts = step.ins.parts
    if "commit_group" in parts or "wait_group" in parts or "wait_all" in parts or "prefetch" in parts:
        return None
    if "bulk" not in parts:
        return None if "mbarrier" in parts else _cp_async(step)
    if "tensor" in parts:
        return _tensor_load(step) if "mbar" in step.ins else _tensor_store(step)
    return _bulk(step)


def _cp_async(step: Step) -> Means:
    target, source, size = step.value("dst"), places_of(step, "src"), step.value("size")
    used = step.optional("src_size")
    used_data = read(step, step.ins["src_size"], 4) if used is not None else None

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        to = lane_addresses(step, target(machine, warp, group), taken.mask)
        origin = source(contents, warp, group, taken.mask)
        nbytes = size(machine, warp, group)
        count = used(machine, warp, group) if used is not None else nbytes
        if taken.where is not None or not isinstance(nbytes, int):
            raise step.not_understood("the guard, which is data,")
        length = None
        if contents.forms is not None and used_data is not None and not is_known(count, taken.mask):
            length = used_data(contents, warp, group)
        lengths = lane_addresses(step, count, taken.mask) if length is None else {}

        def then() -> None:
            inner = np.arange(nbytes)
            addresses = np.array([[origin[lane]] for lane in to], np.int64) + inner
            found = contents.global_bytes(addresses, User(warp, None, step.at))
            if length is None:
                found[inner >= np.array([[lengths[lane]] for lane in to])] = 0
            else:
                # each byte is there or zero, as the number of bytes says
                of_lanes = joined(length)[list(to)][:, None]
                found = mixed(word("copied"), of_lanes, inner.astype(np.uint64), found)
            contents.put_shared(np.array([[place] for place in to.values()], np.int64) + inner, found)

        return then

    return means


def _targets(step: Step, contents: Contents, warp: Warp, group: Group, mask: Reader | None, place: int) -> list[int]:
    """The addresses that a copy to one writes to."""
    if mask is None:
        return [place]
    wanted = mask(contents.machine, warp, group)
    if not isinstance(wanted, int):
        raise step.not_understood("the mask of blocks")
    there = range(len(contents.machine.blocks))
    return [place & OFFSET_MASK | rank << RANK_SHIFT for rank in bits(wanted & 0xFFFF) if rank in there]


def _mask(step: Step) -> Reader | None:
    return step.optional("mask") if step.has("multicast::cluster") else None


def _bulk(step: Step) -> Means:
    if step.has("cp_mask") or step.ins.parts[0] == "multimem":
        raise step.not_understood("the operation")
    target, source, size, mask = places_of(step, "dst"), places_of(step, "src"), step.value("size"), _mask(step)
    from_shared, to_shared = (step.ins.space(name).startswith("shared") for name in ("src", "dst"))
    how = " ".join(p for p in step.ins.parts if p in (step.ins.modifiers.get("op"), step.ins.modifiers.get("type"))) \
        if step.has("reduce") else ""  # fmt: skip

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        to, origin = (place(contents, warp, group, taken.mask) for place in (target, source))
        count = lane_addresses(step, size(contents.machine, warp, group), taken.mask)

        def then() -> None:
            for lane, start in origin.items():
                addresses = start + np.arange(count[lane], dtype=np.int64)
                user = User(warp, None, step.at)
                data = contents.shared_bytes(addresses) if from_shared else contents.global_bytes(addresses, user)
                if not to_shared:
                    _out(user, contents, to[lane] + np.arange(len(data), dtype=np.int64), data, how,
                         type_bytes(step.ins.parts[-1]) if how else 1)  # fmt: skip
                    continue
                if how:
                    _add(step, contents, to[lane], data)
                    continue
                for place in _targets(step, contents, warp, group, mask, to[lane]):
                    contents.put_shared(place + np.arange(len(data), dtype=np.int64), data)

        return then

    return means


def _add(step: Step, contents: Contents, place: int, data: Words) -> None:
    """A reduction in shared memory.

    Raises:
        NotUnderstood: its order counts.
    """
    op, kind = step.ins.modifiers["op"], step.ins.parts[-1]
    if not in_any_order(op, kind):
        raise step.not_understood("the operation")
    values = data.reshape(-1, type_bytes(kind))
    addresses = place + np.arange(data.size).reshape(values.shape)
    add_to_shared(contents, f"{op} {kind}", addresses, values)


def _out(user: User, contents: Contents, addresses: Addresses, data: Words, how: str, size: int) -> None:
    if how:
        contents.reduce_global(addresses[::size], data.reshape(-1, size), user, how)
    else:
        contents.put_global(addresses, data, user)


# Tensors ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Box:
    """The bytes of shared memory, as offsets, and of global memory that a copy moves, and what it fills in."""

    inside: Addresses
    outside: Addresses
    fill: Words
    map: TensorMap

    @cached_property
    def there(self) -> npt.NDArray[np.bool_]:
        """Which of them lie in the tensor."""
        return self.outside >= 0

    @cached_property
    def at_launch(self) -> Words:
        """What those hold at the launch."""
        return of_addresses(self.outside[self.there])


def _box(
    step: Step, contents: Contents, address: int, given: list[_Coordinate], place: int, offsets: Sequence[int] = ()
) -> _Box:
    data = contents.machine.maps.at(address)
    if data is None:
        raise step.not_understood("the tensor map")
    mode = MODES[step.ins.modifiers.get("mode", "tile")]
    coordinates, decoded = [signed(coordinate.number, 32) for coordinate in given], TensorMap.decode(data)
    if contents.forms is not None:
        return _box_of_any(step, contents.forms, decoded, given, place & OFFSET_MASK)
    found = as_copied(decoded, mode, coordinates, offsets)
    inside, outside = places(found, coordinates, place & OFFSET_MASK, mode, offsets)
    fill = np.where(outside == PADDING, UNDEFINED, fill_bytes(found, mode).astype(np.uint64))
    return _Box(inside, outside, fill, found)


_LARGEST_EXTENT = 1 << 31
_STRIDES = {1: (34,), 2: (17, 34), 3: (14, 26, 34), 4: (12, 22, 28, 34), 5: (12, 20, 26, 30, 34)}
"""By rank the strides behind each dimension, as powers of two, by which elements are known where extents are
symbols."""


_MOST_BOXES = 64


def _box_of_any(step: Step, forms: Forms, found: TensorMap, given: list[_Coordinate], place: int) -> _Box:
    """The same of a tensor that may end anywhere: an element is known by its coordinates, and whether it lies outside
    follows from them and from the tensor. What is filled in is a part of what is loaded. So it is the same for all
    sizes, and executions for some of them find it again."""
    mode, powers = MODES[step.ins.modifiers.get("mode", "tile")], _STRIDES[found.rank]
    largest = tuple(_LARGEST_EXTENT for _ in range(found.rank))
    endless = replace(found, sizes=largest, strides=tuple(1 << power for power in powers[:-1]))
    key = mode, endless, tuple(given), place
    known = forms.boxes.pop(key, None)
    if known is None:
        while len(forms.boxes) >= _MOST_BOXES:
            del forms.boxes[next(iter(forms.boxes))]
        known = _endless_box(step, forms, mode, endless, given, place)
    forms.boxes[key] = known
    return known


def _endless_box(
    step: Step, forms: Forms, mode: Mode, found: TensorMap, given: list[_Coordinate], place: int
) -> _Box:  # fmt: skip
    numbers = [signed(coordinate.number, 32) for coordinate in given]
    strides = [1 << power for power in _STRIDES[found.rank]]
    ends = [number + extent for number, extent in zip(numbers, found.box, strict=False)]
    reached = [
        ends[0] * found.dtype.element_bits // 8,
        *(e * stride for e, stride in zip(ends[1:], strides, strict=False)),
    ]
    if mode != "tile" or min(numbers) < 0 or any(end > stride for end, stride in zip(reached, strides, strict=True)):
        raise step.not_understood("a box where sizes are symbols")
    inside, outside = places(found, numbers, place, mode)
    key = f"{found.address} {found.dtype.name} {found.oob_nan} {[coordinate.products for coordinate in given]}"
    outside = np.where(outside == PADDING, outside, forms.coded(outside, key))
    return _Box(inside, outside, np.full(outside.shape, UNDEFINED, np.uint64), found)


def _lanes(
    step: Step, contents: Contents, warp: Warp, group: Group, lanes: int, readers: list[Reader]
) -> list[list[int]]:
    """What operands are, lane by lane."""
    by_operand = [lane_addresses(step, r(contents.machine, warp, group), lanes) for r in readers]
    return [[found[lane] for found in by_operand] for lane in bits(lanes)]


class _Coordinate(NamedTuple):
    """A number, and what is added to it."""

    number: int
    products: Terms = ()


def _coordinates(step: Step) -> Callable[[Contents, Warp, Group, int], list[list[_Coordinate]]]:
    """Gives the coordinates of a copy, lane by lane."""
    operands = table.items(step.ins["coords"])
    readers, data = step.values("coords"), [read(step, operand, 4) for operand in operands]

    def found(contents: Contents, warp: Warp, group: Group, lanes: int) -> list[list[_Coordinate]]:
        by_operand: list[list[_Coordinate]] = []
        for number_of, data_of in zip(readers, data, strict=True):
            value = number_of(contents.machine, warp, group)
            if contents.forms is None or is_known(value, lanes):
                by_operand.append([_Coordinate(n) for n in lane_addresses(step, value, lanes).values()])
            else:
                forms = [contents.forms.of(data_of(contents, warp, group)[lane]) for lane in bits(lanes)]
                by_operand.append([_Coordinate(form.number, form.products) for form in forms])
        return [list(row) for row in zip(*by_operand, strict=True)]

    return found


def _tensor_load(step: Step) -> Means:
    readers, coordinates_of = [step.value("dst"), step.value("map")], _coordinates(step)
    info = step.values("info") if "info" in step.ins else []
    mask = _mask(step)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        lanes = _lanes(step, contents, warp, group, taken.mask, readers)
        offsets = _lanes(step, contents, warp, group, taken.mask, info)
        all_coordinates = coordinates_of(contents, warp, group, taken.mask)

        def then() -> None:
            for (place, address), coordinates, further in zip(lanes, all_coordinates, offsets, strict=True):
                box = _box(step, contents, address, coordinates, place, further)
                data = box.fill.copy()
                user = User(warp, None, step.at)
                data[box.there] = contents.global_bytes(box.outside[box.there], user, box.at_launch)
                for target in _targets(step, contents, warp, group, mask, place):
                    contents.put_shared((target >> RANK_SHIFT << RANK_SHIFT) + box.inside, data)

        return then

    return means


def _tensor_store(step: Step) -> Means:
    readers, coordinates_of = [step.value("src"), step.value("map")], _coordinates(step)
    reduces = step.has("reduce")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        lanes = _lanes(step, contents, warp, group, taken.mask, readers)
        all_coordinates = coordinates_of(contents, warp, group, taken.mask)

        def then() -> None:
            for (place, address), coordinates in zip(lanes, all_coordinates, strict=True):
                box = _box(step, contents, address, coordinates, place)
                if box.map.dtype.padded:
                    raise step.not_understood("the type of elements")
                there = box.there
                data = contents.shared_bytes((place >> RANK_SHIFT << RANK_SHIFT) + box.inside[there])
                how = f"{step.ins.modifiers['op']} {box.map.dtype.name}" if reduces else ""
                _out(
                    User(warp, None, step.at), contents, box.outside[there], data, how, box.map.dtype.element_bits // 8
                )

        return then

    return means


# st.async ---------------------------------------------------------------------------------------------


@meaning("st.async")
def store_async(step: Step) -> Means:
    size, address = type_bytes(step.ins.parts[-1]), step.value("a")
    values: list[Read] = [read(step, o, size) for o in table.items(step.ins["b"])]

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        where = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        data = np.concatenate([v(contents, warp, group) for v in values], axis=1)
        if taken.where is not None:
            raise step.not_understood("the guard, which is data,")

        def then() -> None:
            lanes = np.fromiter(where, np.intp)
            starts = np.fromiter(where.values(), np.int64)
            contents.put_shared(starts[:, None] + np.arange(data.shape[1]), data[lanes])

        return then

    return means
