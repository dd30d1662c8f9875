# SPDX-License-Identifier: Apache-2.0
"""Small CuTe GEMMs over types, shapes, majors and places of A, as for Hopper and with the header of a port."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from cute_run import Array, cutlass_directories


@dataclass(frozen=True)
class Types:
    """An MMA's types as CuTe's names have them, the C++ and NumPy types of A, B and D, and its K."""

    name: str
    a: str
    b: str
    d: str
    k: int

    @property
    def integers(self) -> bool:
        return self.d == "int32_t"

    @property
    def bits(self) -> int:
        return 256 // self.k


NUMPY: dict[str, type] = {
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
    "tfloat32_t": np.float32,
    "float": np.float32,
    "float_e4m3_t": ml_dtypes.float8_e4m3fn,
    "float_e5m2_t": ml_dtypes.float8_e5m2,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int32_t": np.int32,
}
E4M3, E5M2 = "float_e4m3_t", "float_e5m2_t"
TYPES = {
    t.name: t
    for t in (
        Types("F32F16F16", "half_t", "half_t", "float", 16),
        Types("F16F16F16", "half_t", "half_t", "half_t", 16),
        Types("F32BF16BF16", "bfloat16_t", "bfloat16_t", "float", 16),
        Types("F32TF32TF32", "tfloat32_t", "tfloat32_t", "float", 8),
        Types("F32E4M3E4M3", E4M3, E4M3, "float", 32),
        Types("F32E4M3E5M2", E4M3, E5M2, "float", 32),
        Types("F32E5M2E4M3", E5M2, E4M3, "float", 32),
        Types("F16E5M2E5M2", E5M2, E5M2, "half_t", 32),
        Types("S32S8S8", "int8_t", "int8_t", "int32_t", 32),
        Types("S32S8U8", "int8_t", "uint8_t", "int32_t", 32),
        Types("S32U8S8", "uint8_t", "int8_t", "int32_t", 32),
    )
}
SWIZZLES = {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128}
"""Bytes of a line of each layout."""


@dataclass(frozen=True)
class Case:
    """`m` and `n` are tiles of an MMA each warpgroup has; `steps` of K are two MMAs and more."""

    types: str
    size: int
    registers: bool
    m: int
    n: int
    warpgroups: int
    swizzle: str
    major_a: str
    major_b: str
    negate: str

    @property
    def kind(self) -> Types:
        return TYPES[self.types]

    @property
    def entry(self) -> str:
        source = "rs" if self.registers else "ss"
        return (
            f"{self.types}_n{self.size}_{source}_{self.m}x{self.n}_w{self.warpgroups}_{self.swizzle}"
            f"_{self.major_a}_{self.major_b}_{self.negate}".lower()
        )

    @property
    def threads(self) -> int:
        return 128 * self.warpgroups

    @property
    def rows(self) -> int:
        return 64 * self.m * self.warpgroups

    @property
    def columns(self) -> int:
        return self.size * self.n

    @property
    def depth(self) -> int:
        """Of K: two MMAs, or a line of the layout."""
        return max(64, SWIZZLES[self.swizzle]) * 8 // self.kind.bits

    @property
    def shared(self) -> int:
        return (self.rows + self.columns) * self.depth * self.kind.bits // 8

    @property
    def valid(self) -> bool:
        kind, line = self.kind, SWIZZLES[self.swizzle] * 8 // self.kind.bits
        free_majors = kind.bits == 16
        return (
            (free_majors or (self.major_a, self.major_b) == ("K", "K"))
            and (self.major_a == "K" or not self.registers)
            and (self.major_b == "K" or self.size % line == 0)
            and not (kind.integers and (self.negate != "no" or self.size == 24))
            and not (self.negate == "a" and self.registers and kind.bits != 16)
            and self.m * self.n * self.size <= 256
            and not (self.warpgroups == 1 and self.m == 3 and self.size > 64)
        )

    def atom(self) -> str:
        """CuTe's name of the MMA."""
        kind = self.kind
        base = f"SM90_64x{self.size}x{kind.k}_{self.types}_{'RS' if self.registers else 'SS'}"
        if kind.integers:
            return base + "_TN" + ("_SATURATE" if self.negate == "clamp" else "")
        scales = [f"GMMA::ScaleIn::{'Neg' if self.negate == operand else 'One'}" for operand in "ab"]
        if kind.bits != 16:
            return f"{base}_TN<{', '.join(scales)}>"
        majors = [f"GMMA::Major::{m}" for m in (self.major_a, self.major_b)]
        return f"{base}<{', '.join([*majors, *scales])}>"

    def loads(self) -> int:
        """`tcgen05.ld` instructions that one load of the accumulator is: pieces of at most 32 registers."""
        most = 16 if self.kind.d == "half_t" else 8
        groups = self.size // 8
        return self.m * self.n * (groups // most + (groups % most).bit_count())

    def instance(self) -> str:
        kind = self.kind
        layouts = [f"GMMA::Layout_{m}_{self.swizzle}_Atom<{t}>" for m, t in zip(
            (self.major_a, self.major_b), (kind.a, kind.b), strict=True)]  # fmt: skip
        values = [self.atom(), *layouts, self.rows, self.columns, self.depth, self.warpgroups]
        return (
            f'extern "C" __global__ void __launch_bounds__({self.threads}) '
            f"{self.entry}({kind.a} const* a, {kind.b} const* b, {kind.d}* d) {{\n"
            f"    two_products<{', '.join(map(str, values))}>(a, b, d);\n}}\n"
        )


LEVELS: dict[str, tuple[object, ...]] = {
    "types": tuple(TYPES),
    "size": (8, 16, 24, 32, 64, 96, 128, 192, 256),
    "registers": (False, True),
    "m": (1, 2, 3),
    "n": (1, 2),
    "warpgroups": (1, 2),
    "swizzle": tuple(SWIZZLES),
    "major_a": ("K", "MN"),
    "major_b": ("K", "MN"),
    "negate": ("no", "a", "b"),
}
assert list(LEVELS) == [f.name for f in fields(Case)]


CENTRAL = LEVELS | {
    "types": ("F32F16F16", "F16F16F16", "F32BF16BF16", "F32TF32TF32", "F32E4M3E5M2", "S32S8U8"),
    "size": (8, 24, 64, 96, 256),
    "m": (1, 2),
    "negate": ("no", "a"),
}


def every_case(levels: dict[str, tuple[Any, ...]]) -> Iterator[Case]:
    for values in itertools.product(*levels.values()):
        case = Case(*values)
        if case.valid:
            yield case


def covering(cases: Iterable[Case], strength: int) -> list[Case]:
    """Some of the cases that have each combination of so many levels that any of them has: greedy, the same each
    time."""
    numbers: dict[tuple[object, ...], int] = {}
    masks = {}
    for case in cases:
        values = list(enumerate(astuple(case)))
        found = [numbers.setdefault(c, len(numbers)) for c in itertools.combinations(values, strength)]
        masks[case] = sum(1 << number for number in found)
    missing = (1 << len(numbers)) - 1
    chosen = []
    while missing:
        best = max(masks, key=lambda case: (masks[case] & missing).bit_count())
        chosen.append(best)
        missing &= ~masks[best]
    return chosen


KERNEL = """
#include <cute/tensor.hpp>
@shapes@
@include@
#include <cutlass/arch/barrier.h>
using namespace cute;

// D = 2 * (A * B^T) + A * B^T: an MMA that overwrites, a change of the registers, an MMA that adds.
template <class Op, class LayoutA, class LayoutB, int kM, int kN, int kK, int kWarpgroups, class TA, class TB, class TD>
CUTE_DEVICE void two_products(TA const* a, TB const* b, TD* d) {
    extern __shared__ __align__(1024) char storage[];
    Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<TA*>(storage)),
                            tile_to_shape(LayoutA{}, Shape<Int<kM>, Int<kK>>{}));
    Tensor sB = make_tensor(make_smem_ptr(reinterpret_cast<TB*>(storage + kM * kK * sizeof(TA))),
                            tile_to_shape(LayoutB{}, Shape<Int<kN>, Int<kK>>{}));
    auto mma = make_tiled_mma(Op{}, Layout<Shape<Int<kWarpgroups>, _1, _1>>{});
    auto thread = mma.get_slice(threadIdx.x);
    @setup@
    Tensor acc = @accumulator@;
    #pragma unroll 1
    for (int i = threadIdx.x; i < kM * kK; i += blockDim.x) sA(i / kK, i % kK) = a[i];
    #pragma unroll 1
    for (int i = threadIdx.x; i < kN * kK; i += blockDim.x) sB(i / kK, i % kK) = b[i];
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    Tensor tB = thread.partition_fragment_B(sB);
    Tensor tA = thread.partition_fragment_A(sA);
    if constexpr (!is_base_of<GMMA::DescriptorIterator, decltype(tA.data())>::value) copy(thread.partition_A(sA), tA);
    const auto multiply = [&](GMMA::ScaleOut first) {
        mma.accumulate_ = first;
        warpgroup_fence_operand(acc);
        @arrive@;
        CUTE_UNROLL
        for (int k = 0; k < size<2>(tA); ++k) {
            gemm(mma, tA(_, _, k), tB(_, _, k), acc);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
        @commit@;
        @wait@;
        warpgroup_fence_operand(acc);
        @load@
    };
    multiply(GMMA::ScaleOut::Zero);
    CUTE_UNROLL
    for (int i = 0; i < size(acc); ++i) acc(i) = acc(i) + acc(i);
    multiply(GMMA::ScaleOut::One);
    Tensor gD = make_tensor(make_gmem_ptr(d), make_layout(Shape<Int<kM>, Int<kN>>{}, Stride<Int<kN>, _1>{}));
    copy(acc, thread.partition_C(gD));
}
"""

HOPPER = {
    "include": "",
    "setup": "",
    "accumulator": "partition_fragment_C(mma, Shape<Int<kM>, Int<kN>>{})",
    "arrive": "warpgroup_arrive()",
    "commit": "warpgroup_commit_batch()",
    "wait": "warpgroup_wait<0>()",
    "load": "",
}
BLACKWELL = {
    "include": '#include "cute_sm100.hpp"',
    "setup": """using Mma = decltype(mma);
    constexpr int kColumns = porter::columns<kWarpgroups>(Mma{}, Shape<Int<kM>, Int<kN>>{});
    constexpr int kOperands = porter::operand_columns(Mma{}, Shape<Int<kM>, Int<kN>, Int<kK>>{});
    __shared__ porter::Shared<kWarpgroups> slots;
    const porter::Tmem<kColumns + kOperands, kWarpgroups> tmem(slots);
    auto tc = tmem.warpgroup(threadIdx.x / 128);
    tc.operand = tc.tmem + kColumns;""",
    "accumulator": "porter::accumulator(tc, mma, partition_fragment_C(mma, Shape<Int<kM>, Int<kN>>{}))",
    "arrive": "porter::arrive(acc, tA)",
    "commit": "porter::commit(acc)",
    "wait": "porter::wait<0>(acc)",
    "load": "porter::load(acc);",
}


_SELDOM = frozenset({24})
"""Sizes that CuTe has behind CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED only, with 23 more, which take 20 s to compile."""


@cache
def _seldom_shapes() -> str:
    """CuTe's own text of its extended shapes, without those of other sizes."""
    include, _ = cutlass_directories()
    texts = []
    for name in ("arch/mma_sm90_gmma_ext.hpp", "atom/mma_traits_sm90_gmma_ext.hpp"):
        text = (include / "cute" / name).read_text().replace("#pragma once", "")
        head, *shapes, end = re.split(r"^/{40,}\n", text, flags=re.MULTILINE)
        kept = [s for s in shapes if any(f"_64x{size}x" in s for size in _SELDOM)]
        assert len(kept) < len(shapes) / 10
        texts.append("".join([head, *kept, end]))
    return "\n".join(texts)


def source(cases: Iterable[Case], spelling: dict[str, str]) -> str:
    """A translation unit with a kernel for each case."""
    cases = list(cases)
    shapes = _seldom_shapes() if any(case.size in _SELDOM for case in cases) else ""
    text = KERNEL.replace("@shapes@", shapes)
    for name, value in spelling.items():
        text = text.replace(f"@{name}@", value)
    return text + "\n" + "\n".join(case.instance() for case in cases)


def inputs(case: Case) -> tuple[Array, Array, Array]:
    """A, B and what the kernel writes, exact in each type."""
    kind, rng = case.kind, np.random.default_rng(len(case.entry))
    low = 0 if "U8" in kind.name else -2
    a = rng.integers(low, 3, (case.rows, case.depth))
    b = rng.integers(low, 3, (case.columns, case.depth))
    sign = -1 if case.negate in ("a", "b") else 1
    product = sign * 3 * (a @ b.T)
    types = [NUMPY[t] for t in (kind.a, kind.b, kind.d)]
    return tuple(x.astype(t) for x, t in zip((a, b, product), types, strict=True))  # type: ignore[return-value]
