# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that threads change and publish (PTX ISA 9.7.9.28, 9.7.13.16): they are bytes like others."""

from __future__ import annotations

import numpy as np

from porter.equal.contents import Contents, Taken
from porter.equal.global_uses import User
from porter.equal.meaning import Means, Then, lane_addresses, meaning
from porter.equal.words import Words, constant
from porter.facts.instructions.registry import Step
from porter.facts.instructions.tensor_maps import map_bytes
from porter.facts.launched import GLOBAL
from porter.facts.state import Group, Warp
from porter.facts.values import is_known
from porter.ptx.tensormap import ENCODED_BYTES, TILED_BYTES


@meaning("tensormap")
def tensormap(step: Step) -> Means:
    return _replaced(step) if step.ins.parts[1] == "replace" else _published(step)


def _replaced(step: Step) -> Means:
    address, value = step.value("map"), step.value("value")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        machine = contents.machine
        places = lane_addresses(step, address(machine, warp, group), taken.mask)
        if taken.where is not None or not is_known(value(machine, warp, group), taken.mask):
            raise step.not_understood("a tensor map that data change, which")

        def then() -> None:
            for lane, place in places.items():
                data = map_bytes(machine, place, step.at)
                if data is None:
                    raise step.not_understood("the tensor map")
                words = constant(int.from_bytes(data[:TILED_BYTES], "little"), TILED_BYTES)[0]
                _put(contents, place, words, User(warp, np.array([lane]), step.at))

        return then

    return means


def _published(step: Step) -> Means:
    target, source = step.value("dst"), step.value("src")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        found = [v(contents.machine, warp, group) for v in (target, source)]
        (where, *_), (read, *_) = (lane_addresses(step, value, taken.mask).values() for value in found)

        def then() -> None:
            words = contents.shared_bytes(read + np.arange(ENCODED_BYTES, dtype=np.int64))
            _put(contents, where, words, User(warp, taken.index()[:1], step.at))

        return then

    return means


def _put(contents: Contents, place: int, words: Words, user: User) -> None:
    addresses = place + np.arange(len(words), dtype=np.int64)
    if place >= GLOBAL:
        contents.put_global(addresses, words, user)
    else:
        contents.put_shared(addresses, words)
