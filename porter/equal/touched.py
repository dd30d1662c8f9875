# SPDX-License-Identifier: Apache-2.0
"""Which places of global memory an execution touches, without what its data are made of.

Where it is known already what each block leaves, that is all that is left to ask: whether blocks, or threads, meet in
some place. What data decide is refused; they have to be followed then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from porter.equal.contents import Addresses, Contents, Stored, Taken
from porter.equal.global_uses import User
from porter.equal.meaning import Follower, Then
from porter.equal.words import Words, constant, mixed, word
from porter.facts.events import NotUnderstood
from porter.facts.flow import Flow
from porter.facts.instructions.registry import computes
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value
from porter.ptx.global_memory import leaves_global_alone

_ACCESSES = frozenset(("ld", "ldu", "st", "cp"))
_NOTHING = np.zeros((), np.uint64)
_What = Literal["access", "near", "branch", "other"]


class _Places(Contents):
    """Of data nothing is told, but that each store has its own."""

    def value(self, warp: Warp, name: str, value: Value, size: int) -> Words:
        return constant(0, size)

    def put(self, warp: Warp, name: str, taken: Taken, data: Words) -> None:
        pass

    def shared_bytes(self, addresses: Addresses) -> Words:
        self._require_shared(addresses)
        return np.broadcast_to(_NOTHING, addresses.shape)

    def put_shared(self, addresses: Addresses, data: Words) -> None:
        self._require_shared(addresses)

    def local_bytes(self, warp: Warp, lanes: Addresses, addresses: Addresses) -> Words:
        return np.broadcast_to(_NOTHING, addresses.shape)

    def put_local(self, warp: Warp, lanes: Addresses, addresses: Addresses, data: Words) -> None:
        pass

    def global_bytes(self, addresses: Addresses, user: User, at_launch: Words | None = None) -> Words:
        self.uses.note("load", addresses, user)
        return np.zeros(addresses.shape, np.uint64)

    def put_global(self, addresses: Addresses, data: Words, user: User) -> None:
        self.uses.note("store", addresses, user)
        key = mixed(word(f"stored by {self.machine.launched.geometry.first}"), np.uint64(len(self.stored)))
        own = mixed(key, np.arange(addresses.size, dtype=np.uint64))
        self.stored.append(Stored(addresses.reshape(-1), own, user.at))


class PlaceFollower(Follower):
    """Follows accesses to global memory alone. Bytes that are stored twice have other words each time.

    Raises:
        NotUnderstood: data decide what is done, or memory is changed in some other way than by stores.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.contents = _Places(machine)
        self._whats = _whats(machine.flow)

    def follow(self, warp: Warp, group: Group) -> Then | None:
        at = group.pc
        what = self._whats[at]
        if what == "near":
            return None
        if what == "other" and self._taken(warp, group, None) is not None:
            raise NotUnderstood("what touches memory in some other way", at)
        return super().follow(warp, group)

    def follow_row(self, warp: Warp, group: Group, row: tuple[int, ...]) -> bool:
        return True

    def _guard(self, warp: Warp, group: Group) -> Words:
        raise NotUnderstood("what data decide", group.pc)


@lru_cache(maxsize=64)
def _whats(flow: Flow) -> list[_What]:
    """By instruction."""
    return [_what(flow, at) for at in range(len(flow.decoded))]


def _what(flow: Flow, at: int) -> _What:
    parts, ins = flow.code.code[at].parts, flow.decoded[at]
    if parts[0] == "bra":
        return "branch"
    if (ins is not None and computes(ins)) or leaves_global_alone(parts):
        return "near"
    return "access" if parts[0] in _ACCESSES and "reduce" not in parts else "other"
