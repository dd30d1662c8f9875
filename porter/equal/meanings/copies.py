# SPDX-License-Identifier: Apache-2.0
"""cp.async, bulk copies, copies of tensors (PTX ISA 9.7.9.25), and stores that complete on an mbarrier.

Bytes are there when their copy is issued: where synchronization is proved nobody looks before they have landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from porter.equal.contents import UNDEFINED, Addresses, Contents, Taken
from porter.equal.global_uses import User
from porter.equal.meaning import Means, Read, Then, lane_addresses, meaning, read
from porter.equal.meanings.atomics import add_to_shared, in_any_order
from porter.equal.words import Words
from porter.facts.instructions.registry import Step
from porter.facts.operands import Reader
from porter.facts.state import Group, Warp
from porter.facts.values import bits
from porter.ptx import table
from porter.ptx.bits import type_bytes
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.tensormap import TensorMap
from porter.sim.datapath.tma import MODES, PADDING, as_copied, fill_bytes, places


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
    target, source, size = step.value("dst"), step.value("src"), step.value("size")
    used = step.optional("src_size")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        to = lane_addresses(step, target(machine, warp, group), taken.mask)
        origin = lane_addresses(step, source(machine, warp, group), taken.mask)
        nbytes = size(machine, warp, group)
        count = used(machine, warp, group) if used is not None else nbytes
        if taken.where is not None or not isinstance(nbytes, int):
            raise step.not_understood("the guard, which is data,")
        lengths = lane_addresses(step, count, taken.mask)

        def then() -> None:
            inner = np.arange(nbytes)
            addresses = np.array([[origin[lane]] for lane in to], np.int64) + inner
            found = contents.global_bytes(addresses, User(warp, None, step.at))
            found[inner >= np.array([[lengths[lane]] for lane in to])] = 0
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
    target, source, size, mask = step.value("dst"), step.value("src"), step.value("size"), _mask(step)
    from_shared, to_shared = (step.ins.space(name).startswith("shared") for name in ("src", "dst"))
    how = " ".join(p for p in step.ins.parts if p in (step.ins.modifiers.get("op"), step.ins.modifiers.get("type"))) \
        if step.has("reduce") else ""  # fmt: skip

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        values = [v(contents.machine, warp, group) for v in (target, source, size)]
        to, origin, count = (lane_addresses(step, v, taken.mask) for v in values)

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


class _Box(NamedTuple):
    """The bytes of shared memory, as offsets, and of global memory that a copy moves, and what it fills in."""

    inside: Addresses
    outside: Addresses
    fill: Words
    map: TensorMap


def _box(
    step: Step, contents: Contents, address: int, coordinates: list[int], place: int, offsets: Sequence[int] = ()
) -> _Box:
    data = contents.machine.maps.at(address)
    if data is None:
        raise step.not_understood("the tensor map")
    mode = MODES[step.ins.modifiers.get("mode", "tile")]
    found = as_copied(TensorMap.decode(data), mode, coordinates, offsets)
    inside, outside = places(found, coordinates, place & OFFSET_MASK, mode, offsets)
    fill = np.where(outside == PADDING, UNDEFINED, fill_bytes(found, mode).astype(np.uint64))
    return _Box(inside, outside, fill, found)


def _lanes(
    step: Step, contents: Contents, warp: Warp, group: Group, lanes: int, readers: list[Reader]
) -> list[list[int]]:
    """What operands are, lane by lane; coordinates as signed numbers are beyond them."""
    by_operand = [lane_addresses(step, r(contents.machine, warp, group), lanes) for r in readers]
    return [[found[lane] for found in by_operand] for lane in bits(lanes)]


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _tensor_load(step: Step) -> Means:
    readers = [step.value("dst"), step.value("map"), *step.values("coords")]
    info = step.values("info") if "info" in step.ins else []
    mask = _mask(step)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        lanes = _lanes(step, contents, warp, group, taken.mask, readers)
        offsets = _lanes(step, contents, warp, group, taken.mask, info)

        def then() -> None:
            for (place, address, *coordinates), further in zip(lanes, offsets, strict=True):
                box = _box(step, contents, address, [_signed(c) for c in coordinates], place, further)
                there = box.outside >= 0
                data = box.fill.copy()
                data[there] = contents.global_bytes(box.outside[there], User(warp, None, step.at))
                for target in _targets(step, contents, warp, group, mask, place):
                    contents.put_shared((target >> RANK_SHIFT << RANK_SHIFT) + box.inside, data)

        return then

    return means


def _tensor_store(step: Step) -> Means:
    readers = [step.value("src"), step.value("map"), *step.values("coords")]
    reduces = step.has("reduce")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        lanes = _lanes(step, contents, warp, group, taken.mask, readers)

        def then() -> None:
            for place, address, *coordinates in lanes:
                box = _box(step, contents, address, [_signed(c) for c in coordinates], place)
                if box.map.dtype.padded:
                    raise step.not_understood("the type of elements")
                there = box.outside >= 0
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
        places_of = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        data = np.concatenate([v(contents, warp, group) for v in values], axis=1)
        if taken.where is not None:
            raise step.not_understood("the guard, which is data,")

        def then() -> None:
            lanes = np.fromiter(places_of, np.intp)
            starts = np.fromiter(places_of.values(), np.int64)
            contents.put_shared(starts[:, None] + np.arange(data.shape[1]), data[lanes])

        return then

    return means
