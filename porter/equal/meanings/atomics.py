# SPDX-License-Identifier: Apache-2.0
"""Atomics and reductions of threads (PTX ISA 9.7.13.5 to 9.7.13.7).

Those to global memory whose result nobody uses are a part of the output, in no order where different threads make them.
In shared memory they happen in the order that is executed; the order counts where the operation asks for it.
"""

from __future__ import annotations

import numpy as np

from porter.equal.contents import Addresses, Contents, Taken
from porter.equal.meaning import Means, Then, lane_addresses, meaning, refused
from porter.equal.meaning import places as placed
from porter.equal.meanings.memory import given, is_shared, rows
from porter.equal.words import Words, constant, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.facts.values import is_known
from porter.ptx.arch import WARP
from porter.ptx.bits import type_bytes

_ANY_ORDER = frozenset(("and", "or", "xor", "min", "max"))
_ORDERS = ("shared", "global", "relaxed", "release", "acq", "async", "mbarrier", "gpu", "cta", "cluster", "sys", "L2")


def in_any_order(op: str, kind: str) -> bool:
    """Whether an operation's result does not depend on the order of what it is made of."""
    return op in _ANY_ORDER or (op == "add" and kind[0] in "us")


def operation_of(step: Step) -> str:
    """What is done, without where and how it is ordered."""
    return " ".join(p for p in step.ins.parts[1:] if not p.startswith(_ORDERS))


@meaning("atom", "red")
def atomic(step: Step) -> Means | None:
    behind = step.flow.live[step.at + 1]
    name = step.register("d") if "d" in step.ins else None
    name = name if name in behind else None
    if name is None and "d" in step.ins and not behind.isdisjoint(filter(None, step.registers("d"))):
        return refused(step, "the results")
    address, space, kind = placed(step, "a"), step.ins.space("a"), step.ins.parts[-1]
    amount, how = given(step, "b", type_bytes(step.ins.type("b"))), operation_of(step)
    unordered = in_any_order(step.ins.modifiers.get("op", ""), kind)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        places = address(contents, warp, group, taken.mask)
        if len(places) < taken.mask.bit_count():
            places = {lane: place for place in places.values() for lane in range(WARP) if taken.mask >> lane & 1}
        shared, data = is_shared(step, places, space), amount(contents, warp, group)

        def then() -> None:
            is_number = name is None or is_known(group.registers.get(name), taken.mask)
            if taken.where is not None and (shared or name is not None):
                raise step.not_understood("the guard, which is data,")
            if shared:
                old = _in_shared(step, contents, places, data, how, unordered)
                if name is not None and not is_number:
                    contents.put(warp, name, taken, old)
                return
            if not is_number:
                raise step.not_understood("the result")
            if "c" in step.ins:
                raise step.not_understood("the operation")
            if name is None:
                lanes, addresses = rows(places, 1)
                threads = None if unordered else [(warp, lane) for lane in places]
                where = None if taken.where is None else taken.where[lanes, 0]
                contents.reduce_global(addresses[:, 0], data[lanes], step.at, how, threads, where)

        return then

    return means


def _in_shared(step: Step, contents: Contents, places: dict[int, int], data: Words, how: str, unordered: bool) -> Words:
    """What was there [32, bytes], lane by lane, each behind those before it."""
    size = type_bytes(step.ins.parts[-1])
    found = constant(0, size).copy()
    for lane, place in places.items():
        addresses = place + np.arange(size)
        found[lane] = contents.shared_bytes(addresses)
        number = contents.machine.block_of(place, step.at).read(place, size)
        if number is not None:
            new = constant(number, size)[0]
        else:
            new = changed(contents, how, unordered, found[lane], data[lane])
        contents.put_shared(addresses, new)
    return found


def changed(contents: Contents, how: str, unordered: bool, old: Words, data: Words) -> Words:
    """The bytes [size] that an operation leaves where `old` was."""
    if unordered:
        return contents.in_any_order(how, len(old), [old[None], data[None]])[0]
    if how.startswith("exch"):
        return data
    return spread(mixed(word(f"atomic {how}"), joined(old), joined(data)), len(old))


@meaning("red.async")
def reduce_async(step: Step) -> Means:
    """In shared memory, with no order."""
    address, kind = step.value("a"), step.ins.parts[-1]
    amount, how = given(step, "b", type_bytes(step.ins.type("b"))), operation_of(step)
    if not in_any_order(step.ins.modifiers["op"], kind):
        raise step.not_understood("the operation")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        places = lane_addresses(step, address(contents.machine, warp, group), taken.mask)
        data = amount(contents, warp, group)
        if taken.where is not None:
            raise step.not_understood("the guard, which is data,")

        def then() -> None:
            add_to_shared(contents, how, rows(places, data.shape[1])[1], data[list(places)])

        return then

    return means


def add_to_shared(contents: Contents, how: str, addresses: Addresses, data: Words) -> None:
    """Reductions of values [number, bytes] to addresses [number, bytes] of shared memory, in any order."""
    for places, value in zip(addresses, data, strict=True):
        contents.put_shared(places, changed(contents, how, True, contents.shared_bytes(places), value))
