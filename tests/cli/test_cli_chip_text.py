"""Conditions on the chip that no rule knows: the preprocessor tells where a port would take another branch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.cli.porting import look
from porter.diagnostics import Code, Diagnostic
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.verify.gate import GateOptions
from porter.verify.preprocessed import preprocessed
from tests.kept_sources import kept

KERNEL = r"""
__device__ __forceinline__ void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__global__ void __launch_bounds__(128) gemm(float* out, unsigned long long a, unsigned long long b, int steps) {
    float d[4] = {0};
    for (int k = 0; k < steps; ++k) mma(d, a + k, b + k);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i]ADDED;
}
"""

HOUSE = r"""#pragma once
#if defined(__CUDA_ARCH__)
#define HOUSE_GENERATION (__CUDA_ARCH__ / 100)
#if HOUSE_GENERATION == 9
#define HOUSE_FAST 1
#define HOUSE_PICK(a, b) a
#define HOUSE_NAME(x) x##_fast
#define HOUSE_HEADER "house/one.h"
#else
#define HOUSE_PICK(a, b) b
#define HOUSE_NAME(x) x##_slow
#define HOUSE_HEADER "house/two.h"
#endif
#define HOUSE_GUARDED
#else
#define HOUSE_GENERATION 0
#define HOUSE_PICK(a, b) b
#define HOUSE_NAME(x) x##_slow
#define HOUSE_HEADER "house/two.h"
#endif
#define HOUSE_JOIN(a, b) a##b
#define HOUSE_ARCH HOUSE_JOIN(__CUDA_, ARCH__)
#if __CUDA_ARCH_LIST__ == 900
#define HOUSE_BUILT_FOR_HOPPER
#endif
"""
"""A header from elsewhere, of which no rule knows anything."""

DIFFERENT = {
    "a macro of a header": "#ifdef HOUSE_FAST\nx += 1;  // <-\n#endif",
    "its negation": "#ifndef HOUSE_FAST\nx += 1;\n#endif",
    "another of its macros": "#if HOUSE_GENERATION >= 10\nx += 1;\n#else\nx += 2;\n#endif",
    "a macro that chooses an argument": "x += HOUSE_PICK(1, 2);",
    "a macro that pastes a name": "x += HOUSE_NAME(add)();",
    "a pasted name of the macro": "x += HOUSE_ARCH;",
    "a macro of the file's own in between": "#define OWN HOUSE_GENERATION\n#if OWN == 9\nx += 1;\n#endif",
    "a macro that is defined under a condition": "#ifdef HOUSE_FAST\n#define STEP 4\n#else\n#define STEP 2\n#endif\nx += STEP;",
    "a macro undefined under one": "#define TWICE\n#ifndef HOUSE_FAST\n#undef TWICE\n#endif\n#ifdef TWICE\nx *= 2;\n#endif",
    "an arm between others": "#if defined(NOBODY)\nx = 3;\n#elif HOUSE_GENERATION == 9\nx = 4;\n#else\nx = 5;\n#endif",
    "a condition in a condition": "#if 1\n#ifdef HOUSE_FAST\nx += 1;\n#endif\n#endif",
    "a condition over several lines": "#if defined(HOUSE_FAST) && \\\n    1\nx += 1;\n#endif",
    "an argument over several lines": "x += HOUSE_PICK(\n    1,\n    2);",
    "a header for one chip": '#ifdef HOUSE_FAST\n#include "house/three.h"\n#endif',
    "a header that a macro names": "#include HOUSE_HEADER",
    "a value": "x += __CUDA_ARCH__;",
    "a value in an array's size": "float y[__CUDA_ARCH__ / 100]; y[0] = x; x = y[0];",
    "a value as a template's argument": "x += Chosen<__CUDA_ARCH__>::value;",
    "a value in a comparison": "x += __CUDA_ARCH__ / 10 == 90 ? 1 : 2;",
    "a value in a constant": "constexpr int kArch = __CUDA_ARCH__; if (kArch == 900) x += 1;",
    "a value in a cast": "x += static_cast<float>(__CUDA_ARCH__);",
    "a value as text": "#define TEXT_(v) #v\n#define TEXT(v) TEXT_(v)\nx += sizeof(TEXT(__CUDA_ARCH__));",
    "a value in inline PTX": '#define PTX_(v) "add.f32 %0, %0, " #v ".0;"\n#define PTX(v) PTX_(v)\nasm("" PTX(__CUDA_ARCH__) : "+f"(x));',
    "a feature": "#if __CUDA_ARCH_HAS_FEATURE__(SM90_ALL)\nx += 1;\n#endif",
    "a feature of the other chip": "#if !__CUDA_ARCH_HAS_FEATURE__(SM100_ALL)\nx += 1;\n#endif",
    "the chip's own number": "#if defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ / 10 == 90\nx += 1;\n#endif",
    "the family's number": "#if __CUDA_ARCH_FAMILY_SPECIFIC__ % 1000 == 900\nx += 1;\n#endif",
    "the list of architectures": "constexpr int kList[] = {__CUDA_ARCH_LIST__}; x += kList[0];",
    "NV_IF_TARGET": "NV_IF_TARGET(NV_IS_EXACTLY_SM_90, (x += 1;))",
    "NV_IF_TARGET of a feature": "NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (x += 1;), (x += 2;))",
    "NV_IF_ELSE_TARGET": "NV_IF_ELSE_TARGET(NV_PROVIDES_SM_100, (x += 1;), (x += 2;))",
    "NV_DISPATCH_TARGET": "NV_DISPATCH_TARGET(NV_PROVIDES_SM_100, (x += 1;), NV_PROVIDES_SM_80, (x += 2;))",
    "a macro of CCCL": "#if _NV_TARGET___NV_IS_EXACTLY_SM_90\nx += 1;\n#endif",
    "arithmetic in a condition": "#if __CUDA_ARCH__ * 2 < 1900\nx += 1;\n#endif",
    "a condition that is true by another value": "#if (__CUDA_ARCH__ & 4) != 0\nx += 1;\n#endif",
    "a reflection": 'x += __nvvm_reflect("__CUDA_ARCH");',
    "a reflection behind a macro": '#define MIRROR __nvvm_reflect\nx += MIRROR("__CUDA_ARCH");',
    "a question of CCCL's": "x += cuda::device::current_arch_id();",
}
"""In a function each; `x` is a float."""

ALIKE = {
    "both chips meet it": "#if __CUDA_ARCH__ >= 800\nx += 1;\n#endif",
    "a comparison that both meet": "if (__CUDA_ARCH__ >= 900) x += 1;",
    "a part of one": "if (x > 0 && __CUDA_ARCH__ > 700) x += 1;",
    "a constant that both give": "constexpr bool kNew = __CUDA_ARCH__ >= 800; x += kNew;",
    "an assertion": 'static_assert(__CUDA_ARCH__ >= 750, "old");',
    "arms that come to the same": "#ifdef HOUSE_FAST\nx += 7;\n#else\nx += 7;\n#endif",
    "a macro with two equal bodies": "#ifdef HOUSE_FAST\n#define SAME(v) (v) + 1\n#else\n#define SAME(v) (v)  + 1\n#endif\nx += SAME(2);",
    "text that nobody uses": "#ifdef HOUSE_FAST\n#define UNUSED 1\n#endif",
    "pragmas": "#ifdef HOUSE_FAST\n#pragma unroll 4\n#else\n#pragma unroll 2\n#endif\nfor (int i = 0; i < 8; ++i) x += i;",
    "comments": "#ifdef HOUSE_FAST\n// for Hopper\n#else\n// for others\n#endif",
    "lines and files": "x += __LINE__ + sizeof(__FILE__) + sizeof(__TIME__) + __COUNTER__;",
    "NV_IF_TARGET that both meet": "NV_IF_TARGET(NV_PROVIDES_SM_90, (x += 1;), (x += 2;))",
    "NV_IF_TARGET for the device": "NV_IF_TARGET(NV_IS_DEVICE, (x += 1;), (x += 2;))",
    "device code": "#ifdef __CUDA_ARCH__\nx += 1;\n#else\nx += 2;\n#endif",
    "a rule's condition": "#if __CUDA_ARCH__ == 900\nx += 1;\n#else\nx += 2;\n#endif",
    "a rule's feature": "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\nx += 1;\n#else\nx += 2;\n#endif",
    "an arm for Blackwell": "#if __CUDA_ARCH__ >= 1000\nx += 2;\n#elif __CUDA_ARCH__ >= 900\nx += 1;\n#endif",
    "a name that is like one": "int nvvm_reflect_mode = 1; x += nvvm_reflect_mode;",
}  # fmt: skip


def file_of(conditions: dict[str, str], more: str = "") -> tuple[str, dict[str, range]]:
    """A kernel with a function for each condition, and where those stand."""
    text = '#include <nv/target>\n#include "house/house.h"\n' + more + KERNEL.replace("ADDED", "")
    places = {}
    for i, (name, code) in enumerate(conditions.items()):
        start = text.count("\n") + 1
        text += f"__device__ void f{i}(float& x) {{\n{code}\n}}\n"
        places[name] = range(start + 1, text.count("\n"))
    return text, places


BESIDE = "template <int N> struct Chosen { static constexpr int value = N; };\n"
ELSEWHERE = {"house/house.h": HOUSE, "house/one.h": "", "house/two.h": "", "house/three.h": ""}


def left_of(path: Path, *, flags: Sequence[str] = (), defines: Sequence[str] = ()) -> list[Diagnostic]:
    """What is left over of a port, and notes, without its compilation."""
    asked = partial(preprocessed, GateOptions(defines=tuple(defines), flags=tuple(flags)))
    ported = port_paths([path], PortOptions(ask=asked), (), look)
    assert ported.changed
    return [*ported.left_over, *(d for d in ported.diagnostics if d.code is Code.CHIP_TEXT_UNKNOWN)]


@pytest.fixture(scope="module")
def elsewhere() -> tuple[str, ...]:
    """The options that lead to the header, as to one of the system's."""
    return ("-isystem", str(kept(ELSEWHERE)))


def test_each_place_that_comes_to_something_else_is_named(elsewhere: tuple[str, ...]) -> None:
    text, places = file_of(DIFFERENT, BESIDE)
    path = kept({"src/k.cu": text}) / "src" / "k.cu"
    lines = {d.where.line for d in left_of(path, flags=elsewhere) if d.where}
    missed = [name for name, where in places.items() if not lines & set(where)]
    assert not missed
    assert all(any(line in where for where in places.values()) for line in lines)


def test_nothing_is_said_of_what_comes_to_the_same(elsewhere: tuple[str, ...]) -> None:
    text, places = file_of(ALIKE)
    path = kept({"src/k.cu": text}) / "src" / "k.cu"
    said = left_of(path, flags=elsewhere)
    assert not [(str(d.where), d.message) for d in said]
