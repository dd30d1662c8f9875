# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in the lowering: the comparison with the original sees each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lowered_ptx import parsed_library, run
from tensor_kernel import COMMIT, COMMIT_PAIR, Tensor, descriptor, inputs, mma

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.hopper import lower, tensor_memory
from porter.hopper.emit import Sequel
from porter.ptx.ast import Imm
from porter.ptx.parser import parse_module
from porter.ptx.tmem_access import Shape
from porter.ptx.umma import Kind

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)

A, B = descriptor(0, 0, 1024, 2), descriptor(16384, 0, 1024, 2)
ONE = Tensor(mma("cta_group::1.kind::f16", A, B, 1 << 4 | 16 >> 3 << 17 | 64 >> 4 << 24, 0) + COMMIT, columns=32)
PAIR = Tensor(mma("cta_group::2.kind::f16", A, B, 1 << 4 | 32 >> 3 << 17 | 256 >> 4 << 24, 0) + COMMIT_PAIR, 2, 32)


def caught(tensor: Tensor) -> str:
    """How the lowered kernel differs from the original: "" if it does not."""
    given = inputs(tensor, 1)
    original = run(parse_module(tensor.text), tensor.launch, given, tensor.out_bytes)
    assert original.ok, original.why
    own, shared = lower(parse_module(tensor.text)).module, parsed_library()
    functions = (*shared.functions, *own.functions)
    module = replace(own, variables=(*shared.variables, *own.variables), functions=functions)
    lowered = run(module, tensor.launch, given, tensor.out_bytes, mode="deferred", patience=400_000)
    if not lowered.ok:
        return lowered.why
    if any(lowered.allocated) or any(lowered.pending):
        return "left behind"
    return "" if (original.output == lowered.output).all() else "other values"


def test_without_a_mistake_nothing_is_seen() -> None:
    assert caught(ONE) == ""


def swapped_shapes(patch: pytest.MonkeyPatch) -> None:
    shapes = {**tensor_memory.SHAPES, Shape.S32X32B: tensor_memory.SHAPES[Shape.S16X64B]}
    patch.setattr(tensor_memory, "SHAPES", shapes)


def shifted_registers(patch: pytest.MonkeyPatch) -> None:
    right = tensor_memory._distance
    patch.setattr(tensor_memory, "_distance", lambda access, register: right(access, register ^ 1))


def other_kind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tensor_memory, "KINDS", {**tensor_memory.KINDS, Kind.F16: tensor_memory.KINDS[Kind.TF32]})


def no_pair(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tensor_memory, "PAIR", 0)


def always_adds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sequel, "predicate", lambda self, operand: Imm(1))


def no_multicast(patch: pytest.MonkeyPatch) -> None:
    right = tensor_memory._commit

    def commit(found, sequel, site, setting):  # type: ignore[no-untyped-def]
        right(replace(found, operands=found.operands[:1]), sequel, site, setting)

    patch.setitem(tensor_memory._FORMS, "commit", commit)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "plant"), [
    (ONE, swapped_shapes), (ONE, shifted_registers), (ONE, other_kind), (ONE, always_adds),
    (PAIR, no_pair), (PAIR, no_multicast),
])  # fmt: skip
def test_mistakes_of_the_lowering(tensor: Tensor, plant, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    plant(monkeypatch)
    assert caught(tensor) != ""
