# SPDX-License-Identifier: Apache-2.0
"""Conditions on the chip that no rule knows: the preprocessor tells where a port would take another branch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes_cli import porter

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
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
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
    "a macro that has two bodies": "#ifdef HOUSE_FAST\n#define STEP 4\n#else\n#define STEP 2\n#endif\nx += STEP;",
    "a macro that is undefined": "#define TWO\n#ifndef HOUSE_FAST\n#undef TWO\n#endif\n#ifdef TWO\nx *= 2;\n#endif",
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
    "a value in inline PTX": '#define PTX_(v) "mov.f32 %0, " #v ".0;"\n#define PTX(v) PTX_(v)\n'
    'asm("" PTX(__CUDA_ARCH__) : "+f"(x));',
    "a feature": "#if __CUDA_ARCH_HAS_FEATURE__(SM90_ALL)\nx += 1;\n#endif",
    "a feature of the other chip": "#if !__CUDA_ARCH_HAS_FEATURE__(SM100_ALL)\nx += 1;\n#endif",
    "the chip's own number": "#if __CUDA_ARCH_SPECIFIC__ / 10 == 90\nx += 1;\n#endif",
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
    "a macro with two equal bodies": "#ifdef HOUSE_FAST\n#define SAME(v) (v) + 1\n#else\n#define SAME(v) (v)  + 1\n"
    "#endif\nx += SAME(2);",
    "text that nobody uses": "#ifdef HOUSE_FAST\n#define UNUSED 1\n#endif",
    "pragmas": "#ifdef HOUSE_FAST\n#pragma unroll 4\n#else\n#pragma unroll 2\n#endif\nwhile (x < 8) x += 1;",
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
    text = '#include <nv/target>\n#include "house/house.h"\n' + more + KERNEL
    places = {}
    for i, (name, code) in enumerate(conditions.items()):
        start = text.count("\n") + 1
        text += f"__device__ void f{i}(float& x) {{\n{code}\n}}\n"
        places[name] = range(start + 1, text.count("\n"))
    return text, places


BESIDE = "template <int N> struct Chosen { static constexpr int value = N; };\n"
ELSEWHERE = {"house/house.h": HOUSE, "house/one.h": "", "house/two.h": "", "house/three.h": ""}


def left_of(path: Path, *, keep_hopper: bool = False, **options: Any) -> list[Diagnostic]:
    """What is left over of a port, and notes, without its compilation."""
    asked = partial(preprocessed, GateOptions(**options))
    ported = port_paths([path], PortOptions(ask=asked, keep_hopper=keep_hopper), (), look)
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
    text, _ = file_of(ALIKE)
    path = kept({"src/k.cu": text}) / "src" / "k.cu"
    said = left_of(path, flags=elsewhere)
    assert not [(str(d.where), d.message) for d in said]


TWO = "__device__ float two() { NV_IF_ELSE_TARGET(NV_PROVIDES_SM_100, (return 2;), (return 1;)) }\n"


def lines_of(diagnostics: list[Diagnostic]) -> list[tuple[str, int]]:
    return [
        (Path(d.where.path).name, d.where.line) for d in diagnostics if d.code is Code.CHIP_TEXT_DIFFERS and d.where
    ]


@pytest.mark.slow
def test_text_that_the_port_writes_anew_counts(elsewhere: tuple[str, ...]) -> None:
    changed = KERNEL.replace("mma(d, a + k, b + k);", "mma(d, a + k + __CUDA_ARCH__, b + k);")
    path = kept({"k.cu": changed}) / "k.cu"
    assert lines_of(left_of(path)) == [("k.cu", 11)]
    macro = KERNEL.replace("mma(d, a + k, b + k);", "mma(d, a + k, b + HOUSE_PICK(k, 0));")
    path = kept({"k.cu": '#include "house/house.h"' + macro}) / "k.cu"
    assert lines_of(left_of(path, flags=elsewhere)) == [("k.cu", 11)]


def test_headers_of_the_project_count_and_no_others() -> None:
    own = "#pragma once\n#include <nv/target>\n" + TWO
    folder = kept({"src/k.cu": '#include "own.cuh"\n#include <other.cuh>\n' + KERNEL, "src/own.cuh": own})
    other = kept({"other.cuh": "#include <nv/target>\n" + TWO.replace("two", "three")})
    said = left_of(folder / "src" / "k.cu", flags=("-isystem", str(other)))
    assert lines_of(said) == [("own.cuh", 3)]
    folder = kept({"inc/own.cuh": own, "src/k.cu": "#define WHICH <own.cuh>\n#include WHICH\n" + KERNEL})
    assert lines_of(left_of(folder / "src" / "k.cu", include_dirs=(folder / "inc",))) == [("own.cuh", 3)]


def test_a_guard_that_the_chip_sets_counts(elsewhere: tuple[str, ...]) -> None:
    header = "#ifndef OWN_CUH\n#define OWN_CUH\n__device__ int own;\n#endif\n"
    text = '#include "house/house.h"\n#ifdef HOUSE_FAST\n#define OWN_CUH\n#endif\n#include "own.cuh"\n' + KERNEL
    path = kept({"k.cu": text, "own.cuh": header}) / "k.cu"
    assert lines_of(left_of(path, flags=elsewhere)) == [("own.cuh", 1)]


@pytest.mark.slow
def test_macros_of_the_command_line_count() -> None:
    text = KERNEL + "#if defined(FAST) && NV_TARGET == 9\n__device__ int fast;\n#endif\n"
    path = kept({"k.cu": text}) / "k.cu"
    assert left_of(path) == []
    assert left_of(path, defines=("FAST",)) == []
    assert lines_of(left_of(path, defines=("FAST", "NV_TARGET=(__CUDA_ARCH__/100)"))) == [("k.cu", 14)]


def test_host_code_counts(elsewhere: tuple[str, ...]) -> None:
    host = (
        '#include "house/house.h"\n#ifndef __CUDA_ARCH__\n#ifdef HOUSE_BUILT_FOR_HOPPER\nint built = 9;\n#endif\n#endif'
    )
    path = kept({"k.cu": host + KERNEL}) / "k.cu"
    assert lines_of(left_of(path, flags=elsewhere)) == [("k.cu", 3)]


def test_sources_in_strings_count() -> None:
    text = "#include <nv/target>\n" + TWO + KERNEL
    path = kept({"k.py": f'SOURCE = r"""{text}"""\nmodule = load_inline("g", "", SOURCE)\n'}) / "k.py"
    assert lines_of(left_of(path)) == [("k.py", 2)]
    path = kept({"k.cpp": f'const char* kSource = R"src({text})src";\n'}) / "k.cpp"
    assert lines_of(left_of(path)) == [("k.cpp", 2)]


def test_a_port_beside_its_original_is_held_against_it_too() -> None:
    text = "#include <nv/target>\n" + TWO + KERNEL
    path = kept({"k.cu": text}) / "k.cu"
    assert lines_of(left_of(path, keep_hopper=True)) == [("k.cu", 2)]
    assert left_of(kept({"k.cu": KERNEL}) / "k.cu", keep_hopper=True) == []


def test_kernels_that_are_left_say_nothing_of_the_chip() -> None:
    left = KERNEL.replace("gemm", "other").replace("mma(", "second(").replace("m64n8k16.f32.bf16.bf16", "m64n8k16.no")
    said = left_of(kept({"k.cu": KERNEL + left}) / "k.cu")
    assert lines_of(said) == []


def test_what_cannot_be_asked_is_said() -> None:
    path = kept({"k.cu": '#include "nowhere.h"\n' + KERNEL}) / "k.cu"
    (said,) = left_of(path)
    assert said.code is Code.CHIP_TEXT_UNKNOWN
    assert "nowhere.h" in said.message


def test_commands_end_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("#include <nv/target>\n" + TWO + KERNEL)
    result = porter("port", path, "-o", tmp_path / "out", code=3)
    assert "PT2075" in result.stderr
    assert "k.cu:2" in result.stderr
    result = porter("port", path, "-o", tmp_path / "other", "--no-compile", code=0)
    assert "PT2076" in result.stderr
    assert "--no-compile" in result.stderr
