# SPDX-License-Identifier: Apache-2.0
"""Launches for which an entry does the same: they give the same to all that decides what is done.

A size that only moves coordinates of copies and addresses in global memory leaves the execution of a cluster as it was,
so that one stands for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from porter.facts.deciding import deciding
from porter.facts.flow import Flow
from porter.facts.instructions.registry import computes
from porter.facts.machine import Machine
from porter.facts.tensor_maps import Box, box_of
from porter.ptx import ast
from porter.sync.sizes import given_by

_OWN = frozenset(("shared", "local", "param"))
_ACCESSES = frozenset(("ld", "ldu", "atom", "st", "red"))


def what_decides(machine: Machine) -> object:
    """What a launch gives a machine, that has not run, besides the boxes of its tensor maps; equal where the same is
    done. None where nobody knows."""
    launched, flow = machine.launched, machine.flow
    if machine.reads_global or flow.asks_for_work or _takes_from_memory(flow):
        return None
    geometry = launched.geometry
    given = [
        tuple((key, value) for key, value in sorted(of_block.items()) if _decides(flow, *key))
        for of_block in given_by(machine)
    ]
    return (geometry.block, geometry.cluster, geometry.dynamic_smem, geometry.handed_out, launched.moved, *given)


def has_boxes(machine: Machine, copied: Mapping[tuple[int, str], Box]) -> bool:
    """Whether what another one has copied by tensor maps is of the same size in a machine that has not run."""
    for (address, mode), box in copied.items():
        data = machine.maps.at(address)
        if data is None or box_of(data, mode) != box:
            return False
    return True


@lru_cache(maxsize=64)
def _takes_from_memory(flow: Flow) -> bool:
    """Whether what is loaded from global memory may decide something, or an address there is looked at."""
    behind = deciding(flow)
    for at, ins in enumerate(flow.code.code):
        spaces = {part.partition("::")[0] for part in ins.parts}
        if ins.parts[0] == "cp" and "tensor" not in spaces and sum(isinstance(o, ast.Mem) for o in ins.operands) > 1:
            return True
        if ins.parts[0] not in _ACCESSES or not spaces.isdisjoint(_OWN):
            continue
        if "global" not in spaces or not flow.writes[at].isdisjoint(behind[at + 1]):
            return True
    return False


def _decides(flow: Flow, at: int, name: str) -> bool:
    """Whether what an instruction takes from the launch decides something; `name`: a register that it writes, or what
    it reads."""
    ins = flow.decoded[at]
    if ins is None or not (computes(ins) or ins.parts[0] == "ld"):
        return True
    return not flow.writes[at].isdisjoint(deciding(flow)[at + 1])
