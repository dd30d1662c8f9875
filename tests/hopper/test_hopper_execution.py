# SPDX-License-Identifier: Apache-2.0
"""Lowered PTX does what its original does: both run in the simulator on the same inputs; Tensor Memory is compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pair_copy_kernel
import pytest
from lowered_ptx import lowered_module, run
from tensor_kernel import COMMIT, COMMIT_PAIR, Tensor, descriptor, inputs, mma

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.sim import Launch

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)

F16, BF16, TF32 = 0, 1, 2
NONE, B128, B64, B32 = 0, 2, 4, 6


def idesc(m: int, n: int, a: int = 0, b: int = 0, d: int = 1, more: int = 0) -> int:
    return d << 4 | a << 7 | b << 10 | n >> 3 << 17 | m >> 4 << 24 | more


A, B = descriptor(0, 0, 1024, B128), descriptor(16384, 0, 1024, B128)
NEGATE_A, NEGATE_B, A_MN, B_MN, SATURATE = 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 3


@dataclass(frozen=True)
class Form:
    """An instruction and the columns that its accumulator takes."""

    name: str
    columns: int
    text: str

    def at(self, column: int) -> str:
        return self.text.replace("@D", str(column))


def form(name: str, columns: int, opcode: str, *args: int | str, lane: int = 0, **more: str) -> Form:
    a, b, word, enable = args
    text = mma(opcode, a, int(b), int(word), int(enable), d=777_000_777, **more)
    where = f"{lane << 16}+@D" if lane else "@D"
    return Form(name, columns, text.replace("777000777", where))


ONE = "cta_group::1.kind::"
FORMS = [
    form("f16", 32, f"{ONE}f16", A, B, idesc(128, 32), 1),
    form("bf16 with A negated, over D", 16, f"{ONE}f16", A, B, idesc(128, 16, BF16, BF16, more=NEGATE_A), 0),
    form("tf32 M=64 with both negated", 24, f"{ONE}tf32", A, B, idesc(64, 24, TF32, TF32, more=NEGATE_A | NEGATE_B), 1),
    form("f16 M=64 in the odd half lanes", 24, f"{ONE}f16", A, B, idesc(64, 24), 1, lane=16),
    form("u8 by s8", 32, f"{ONE}i8", A, B, idesc(128, 32, 0, 1, 2), 1),
    form("s8 by u8, saturating", 16, f"{ONE}i8", A, B, idesc(64, 16, 1, 0, 2, SATURATE), 1),
    form("e4m3 by e5m2", 8, f"{ONE}f8f6f4", A, B, idesc(64, 8, 0, 1), 1),
    form("f16 onto f16", 8, f"{ONE}f16", A, B, idesc(64, 8, d=0), 1),
    form("f16 with scale-input-d", 8, f"{ONE}f16", A, B, idesc(64, 8), 1, extra=", 3"),
    form("A in Tensor Memory", 16, f"{ONE}f16", "480", B, idesc(128, 16), 1),
    form("MN-major", 32, f"{ONE}f16", descriptor(0, 4096, 1024, B128), descriptor(16384, 4096, 1024, B128),
         idesc(128, 32, more=A_MN | B_MN), 1),
    form("no swizzle", 16, f"{ONE}f16", descriptor(0, 2048, 128, NONE), descriptor(16384, 256, 128, NONE),
         idesc(128, 16), 1),
    form("64-byte and 32-byte swizzles", 16, f"{ONE}f16", descriptor(0, 0, 512, B64), descriptor(16384, 0, 256, B32),
         idesc(128, 16), 1),
    form("ws M=32", 16, f"ws.{ONE}f16", A, B, idesc(32, 64), 1),
    form("ws M=64", 32, f"ws.{ONE}tf32", A, B, idesc(64, 64, TF32, TF32), 1),
    form("lanes left alone", 16, f"{ONE}f16", A, B, idesc(128, 16), 1, disable="{%r31, %r32, %r33, %r34},"),
]  # fmt: skip
SMALL = 1 << 23
"""Scale factors that are powers of two."""
META, SCALES = "[%r6+472]", "[%r6+456], [%r6+464],"
EXTENDED = [
    form("narrow floats", 16, f"{ONE}f8f6f4", A, B, idesc(64, 16, 3, 5), 1),
    form("narrow floats, A in Tensor Memory", 16, f"{ONE}f8f6f4", "480", B, idesc(128, 16, 5, 4), 1),
    form("sparse f16", 16, f"sp.{ONE}f16", A, B, idesc(128, 16, more=1 << 2 | 1), 1, metadata=META),
    form("sparse tf32 M=64", 16, f"sp.{ONE}tf32", A, B, idesc(64, 16, TF32, TF32, more=1 << 2), 1, metadata=META),
    form("sparse integers", 16, f"sp.{ONE}i8", A, B, idesc(64, 16, 1, 1, 2, 1 << 2), 1, metadata=META),
    form("mxf8f6f4", 32, f"{ONE}mxf8f6f4.block_scale", A, B, idesc(128, 32, 0, 1, 0, SMALL | 2 << 29 | 1 << 4), 1,
         disable=SCALES),
]  # fmt: skip
FOUR_BITS = [
    form("mxf4", 16, f"{ONE}mxf4.block_scale", A, B, idesc(128, 16, 1, 1, 0, SMALL | 2 << 29), 1, disable=SCALES),
    form("nvf4", 16, f"{ONE}mxf4nvf4.block_scale.scale_vec::4X", A, B, idesc(128, 16, 1, 1, 0), 1, disable=SCALES),
]
PAIR = "cta_group::2.kind::"
PAIR_FORMS = [
    form("pair M=256", 64, f"{PAIR}f16", A, B, idesc(256, 64), 1),
    form("pair M=128", 32, f"{PAIR}tf32", A, B, idesc(128, 64, TF32, TF32), 1),
    form("pair M=128, A in Tensor Memory", 16, f"{PAIR}f16", "96", B, idesc(128, 32), 1),
    form("pair with lanes left alone", 16, f"{PAIR}f16", A, B, idesc(256, 16), 1,
         disable="{%r31, %r32, %r33, %r34, %r34, %r33, %r32, %r31},"),
]  # fmt: skip
MASKS = "mov.u32 %r31, 0xF0F0; mov.u32 %r32, -2; mov.u32 %r33, 0; mov.u32 %r34, 7;"


def kernel(forms: list[Form], group: int = 1, columns: int = 512) -> tuple[Tensor, dict[str, slice]]:
    """All instructions one after another, each onto columns of its own, and where those are."""
    places: dict[str, slice] = {}
    body, column = [MASKS], 0
    for one in forms:
        places[one.name] = slice(column, column + one.columns)
        body.append(one.at(column))
        column += one.columns
    assert column <= columns
    return Tensor("\n".join([*body, COMMIT if group == 1 else COMMIT_PAIR]), group, columns), places


Given = list[npt.NDArray[np.generic]]


def both(
    tensor: Tensor, mode: str, arithmetic: str = "exact", given: Given | None = None
) -> list[npt.NDArray[np.uint32]]:
    """Tensor Memory [CTAs, 128, columns] before, after the original, after the lowered kernel."""
    given = given or inputs(tensor, 1)
    original = run(parse_module(tensor.text), tensor.launch, given, tensor.out_bytes)
    assert original.ok, original.why
    lowered = run(lowered_module(tensor.text), tensor.launch, given, tensor.out_bytes, mode=mode, arithmetic=arithmetic)
    assert lowered.ok, lowered.why
    assert set(lowered.allocated) == set(lowered.pending) == {0}
    shape = (tensor.group, 128, tensor.columns)
    return [x.view(np.uint32).reshape(shape) for x in (given[1], original.output, lowered.output)]


def wrong(tensor: Tensor, places: dict[str, slice], mode: str = "deferred", given: Given | None = None) -> list[str]:
    """The instructions whose results differ. Each has changed something."""
    before, want, got = both(tensor, mode, given=given)
    for name, columns in places.items():
        assert (want[..., columns] != before[..., columns]).any(), f"{name} changed nothing"
    return [name for name, columns in places.items() if (want[..., columns] != got[..., columns]).any()]


LONG = {
    "f16", "bf16 with A negated, over D", "u8 by s8", "no swizzle", "ws M=64",
    "pair M=256", "pair M=128",
}  # fmt: skip
"""Each is computed as some other form is, and as one of test_hopper_planted."""


def chosen(forms: list[Form], quick: bool) -> list[Form]:
    return [f for f in forms if (f.name not in LONG) is quick]


ALL_IN_TWO = pytest.mark.parametrize("quick", [
    pytest.param(True, id="quick"), pytest.param(False, id="the others", marks=pytest.mark.slow),
])  # fmt: skip


@ALL_IN_TWO
def test_products_of_one_cta(quick: bool) -> None:
    assert wrong(*kernel(chosen(FORMS, quick))) == []


@pytest.mark.slow
@ALL_IN_TWO
def test_products_of_a_pair(quick: bool) -> None:
    assert wrong(*kernel(chosen(PAIR_FORMS, quick), 2, 128)) == []


def codes(tensor: Tensor) -> list[npt.NDArray[np.generic]]:
    """Inputs whose last columns of Tensor Memory hold metadata (which is legal) and scale factors near one."""
    image, cells = inputs(tensor, 1)
    words = cells.view(np.uint32).reshape(-1, tensor.columns)
    rng = np.random.default_rng(2)
    words[:, 456:472] = rng.integers(125, 130, (words.shape[0], 16, 4)).astype(np.uint8).view(np.uint32)[..., 0]
    pairs = np.array([0x4, 0xE], np.uint32)
    words[:, 472:480] = sum(
        rng.choice(pairs, (words.shape[0], 8)).astype(np.uint32) << np.uint32(4 * i) for i in range(8)
    )
    return [image, words.view(np.float32).reshape(-1)]


@pytest.mark.slow
def test_sparse_and_scaled_products() -> None:
    tensor, places = kernel(EXTENDED)
    assert wrong(tensor, places, given=codes(tensor)) == []


@pytest.mark.slow
def test_four_bit_products_are_near() -> None:
    """They are rounded to nearest, once."""
    tensor, places = kernel(FOUR_BITS)
    before, want, got = (x.view(np.float32) for x in both(tensor, "deferred", given=codes(tensor)))
    for columns in places.values():
        assert (want[..., columns] != before[..., columns]).any()
        np.testing.assert_allclose(got[..., columns], want[..., columns], rtol=1e-6, atol=1e-5)


STEPS = "".join(mma(f"{ONE}f16", A + 2 * i, B + 2 * i, idesc(128, 16), enable) for i, enable in enumerate((1, 1, 0, 1)))


@pytest.mark.slow
def test_products_onto_one_accumulator_keep_their_order() -> None:
    """The third starts anew; the one after the commit does not join."""
    last = mma(f"{ONE}f16", A, B, idesc(128, 16), 1, d=16)
    tensor = Tensor(STEPS + last + STEPS + COMMIT, columns=32)
    assert wrong(tensor, {"steps": slice(0, 16), "other": slice(16, 32)}) == []


@pytest.mark.slow
@pytest.mark.parametrize("names", [("f16 with scale-input-d",), ("e4m3 by e5m2",)])
def test_eager(names: tuple[str, ...]) -> None:
    tensor, places = kernel([f for f in FORMS if f.name in names], columns=32)
    assert wrong(tensor, places, "eager") == []


NARROW = {0: "e4m3", 1: "e5m2"}


@pytest.mark.slow
@pytest.mark.parametrize("code", NARROW)
def test_fast_arithmetic_is_near(code: int) -> None:
    """Floats of 8 bits as f16: other roundings of the same sums."""
    one = form("narrow", 16, f"{ONE}f8f6f4", A, B, idesc(64, 16, code, code), 1)
    tensor, _ = kernel([one], columns=32)
    before, want, got = (x.view(np.float32).astype(np.float64) for x in both(tensor, "deferred", "fast"))
    finite = np.isfinite(want)
    assert (finite == np.isfinite(got)).all()
    assert finite.mean() > 0.5
    scale = np.abs(want[finite]).max()
    assert np.abs(want[finite] - got[finite]).max() <= 1e-5 * scale
    assert (want[finite] != before[finite]).any()


COPIES = [
    ("128x256b", 0, 8), ("64x128b.warpx2::02_13", 4096, 4), ("64x128b.warpx2::01_23", 4096, 4),
    ("32x128b.warpx4", 8192, 4), ("4x256b", 8192, 8), ("128x128b.b8x16.b4x16_p64", 0, 4),
    ("128x128b.b8x16.b6x16_p32", 4096, 4),
]  # fmt: skip
"""Shape, where its rows are in shared memory, columns."""


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_copies_and_shift_of_tensor_memory(group: int) -> None:
    commit = COMMIT if group == 1 else COMMIT_PAIR
    copies = []
    places = {}
    for i, (shape, offset, columns) in enumerate(COPIES):
        copies.append(f"add.u64 %d10, %d9, {descriptor(offset, 2048, 128, NONE)};")
        copies.append(f"tcgen05.cp.cta_group::{group}.{shape} [%r6+{8 * i}], %d10;")
        places[shape] = slice(8 * i, 8 * i + columns)
    copies.append(f"tcgen05.shift.cta_group::{group}.down [%r6+{56 + (32 << 16)}];")
    places["shift"] = slice(56, 64)
    assert wrong(Tensor("\n".join([*copies, commit]), group, 64), places) == []


@pytest.mark.spread(2)
@pytest.mark.parametrize(("multicast", "mode", "schedule"), [
    (False, "eager", "random"), (True, "deferred", "late"),
])  # fmt: skip
def test_tensor_copies_of_a_pair(multicast: bool, mode: str, schedule: str) -> None:
    """Bytes for both CTAs count on the even one's mbarrier."""
    rows = 2 * pair_copy_kernel.TILES * pair_copy_kernel.ROWS
    source = np.arange(rows * pair_copy_kernel.COLUMNS, dtype=np.uint16)

    def tensor_map(address: int) -> bytes:
        return TensorMap(
            TensorMapType.FLOAT16, address, (pair_copy_kernel.COLUMNS, rows), (2 * pair_copy_kernel.COLUMNS,),
            (pair_copy_kernel.COLUMNS, pair_copy_kernel.ROWS), swizzle=TensorMapSwizzle.B128,
        ).encode()  # fmt: skip

    text = pair_copy_kernel.text(multicast)
    size = pair_copy_kernel.out_bytes(multicast)
    launch = Launch((2, 1, 1), (128, 1, 1), (2, 1, 1), 2 * pair_copy_kernel.TILE_BYTES)
    original = run(parse_module(text), launch, [source], size, tensor_map=tensor_map)
    assert original.ok, original.why
    lowered = run(lowered_module(text), launch, [source], size, mode=mode, schedule=schedule, tensor_map=tensor_map)
    assert lowered.ok, lowered.why
    assert len(set(original.output.view(np.uint16).tolist())) == source.size
    np.testing.assert_array_equal(original.output, lowered.output)
