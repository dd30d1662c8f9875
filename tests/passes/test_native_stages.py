# SPDX-License-Identifier: Apache-2.0
"""The step that gives a ring more stages: ways of writing their number that are understood, and what host code
makes of it, which refuses the step. That ports are right is shown by the slow tests of
`tests/cli/test_cli_native_stages.py`; what they are wrong for stands in `stage_kernels`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import HEAD, left, missing, taken, text_of

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

KERNEL = """\
#include <cuda_runtime.h>
@COUNT@
@STORAGE@
@HELP@
@TEMPLATE@
__global__ void __launch_bounds__(384) kernel(float* out, const void* map, uint64_t a, uint64_t b, int steps) {
    @SHARED@
    if (threadIdx.x == 0) {
        for (int i = 0; i < @N@; ++i) {
            init(&@FULL@[i], 1);
            init(&@EMPTY@[i], 256);
        }
    }
    __syncthreads();
    if (threadIdx.x / 128 == 0) {
        if (threadIdx.x == 0) {
            for (int k = 0; k < steps; ++k) {
                @AHEAD@
                wait(&@EMPTY@[@SLOT@], @ROUND@ ^ 1);
                expect(&@FULL@[@SLOT@], 4096);
                load(@TILE@, map, &@FULL@[@SLOT@], k);
            }
        }
    } else {
        const int consumer = threadIdx.x / 128 - 1;
        float acc[8] = {};
        for (int k = 0; k < steps; ++k) {
            wait(&@FULL@[@SLOT@], @ROUND@);
            fence(); wgmma_m64n16k16(acc, a + consumer * 512, b); commit(); drain<0>();
            arrive(&@EMPTY@[@SLOT@]);
        }
        @AFTER@
        for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];
    }
}
void run(float* out, const void* map, uint64_t a, uint64_t b, int steps) {
    @HOST@
}
"""
LAUNCH = "kernel@ARGUMENTS@<<<1, 384, @BYTES@>>>(out, map, a, b, steps);"
DEFAULTS = {
    "COUNT": "constexpr int kStages = 2;",
    "STORAGE": "struct Ring { alignas(1024) char tile[@N@][4096]; uint64_t full[@N@], empty[@N@]; };",
    "HELP": "",
    "TEMPLATE": "",
    "SHARED": "extern __shared__ char memory[]; Ring& ring = *reinterpret_cast<Ring*>(memory);",
    "AHEAD": "",
    "AFTER": "",
    "HOST": "cudaFuncSetAttribute(kernel@ARGUMENTS@, cudaFuncAttributeMaxDynamicSharedMemorySize, @BYTES@); " + LAUNCH,
    "SLOT": "k % @N@",
    "ROUND": "k / @N@ % 2",
    "TILE": "ring.tile[@SLOT@]",
    "FULL": "ring.full",
    "EMPTY": "ring.empty",
    "ARGUMENTS": "",
    "BYTES": "sizeof(Ring)",
    "N": "kStages",
}


def ported(folder: Path, count: int, **parts: str) -> PortResult:
    text = HEAD + KERNEL
    given = {**DEFAULTS, **parts}
    for _ in range(4):
        for name, value in given.items():
            text = text.replace(f"@{name}@", value)
    assert "@" not in text.replace("@!p", "")
    path = folder / "kernel.cu"
    path.write_text(text)
    sources = load_sources(path)
    options = PortOptions(full_rate=True, native=("stages",), stages=frozenset({(sources.root, count)}))
    return port_sources(sources, options)


APART = {
    "STORAGE": "constexpr int kTiles = kStages * 4096;",
    "SHARED": "extern __shared__ char memory[]; uint64_t* after = reinterpret_cast<uint64_t*>(memory + kTiles);"
              " __shared__ uint64_t full[kStages], empty[kStages];",
    "TILE": "memory + k % kStages * 4096", "FULL": "full", "EMPTY": "empty", "BYTES": "kTiles",
}  # fmt: skip
OF_TEMPLATE = {
    "TEMPLATE": "template <int Depth>", "N": "Depth", "ARGUMENTS": "<kStages>", "BYTES": "sizeof(Ring<kStages>)",
    "STORAGE": "template <int Slots> struct Ring { char tile[Slots][4096]; uint64_t full[Slots], empty[Slots]; };",
    "SHARED": "extern __shared__ char memory[]; Ring<Depth>& ring = *reinterpret_cast<Ring<Depth>*>(memory);",
}  # fmt: skip
WRAPPED = "if (++slot == kStages) { slot = 0; phase ^= 1; }"
UNDERSTOOD = {
    "a constexpr": ({}, "constexpr int kStages = 6;"),
    "an enumerator": ({"COUNT": "enum : int { kStages = 2, kOther = 7 };"}, "enum : int { kStages = 6, kOther = 7 };"),
    "a macro": ({"COUNT": "#define STAGES 2", "N": "STAGES"}, "#define STAGES 6"),
    "an unsigned literal": ({"COUNT": "static const unsigned kStages = 2u;"}, "static const unsigned kStages = 6u;"),
    "a member": ({"COUNT": "struct C { static constexpr int Depth = 2, K = 64; };", "N": "C::Depth"}, "Depth = 6, K"),
    "a namespace": ({"COUNT": "namespace c { constexpr int kStages = 2; }", "N": "c::kStages"}, "kStages = 6; }"),
    "another name for it": ({"COUNT": "constexpr int kRing = 2; constexpr int kStages = kRing;"}, "int kRing = 6;"),
    "a template parameter": (OF_TEMPLATE, "constexpr int kStages = 6;"),
    "a template parameter, a constant of the host": (
        {**OF_TEMPLATE, "COUNT": "", "HOST": "constexpr int n = 2; " + DEFAULTS["HOST"], "ARGUMENTS": "<n>",
         "BYTES": "sizeof(Ring<n>)"},
        "constexpr int n = 6;",
    ),
    "a kernel by a variable": (
        {**OF_TEMPLATE, "HOST": "auto* f = kernel<kStages>; constexpr int size = sizeof(Ring<kStages>);"
         " cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, size);"
         " f<<<1, 384, size>>>(out, map, a, b, steps);"},
        "constexpr int kStages = 6;",
    ),
    "mbarriers beside the stages": (APART, "constexpr int kStages = 6;"),
    "a template handed another number": (
        {"HELP": "template <int S> struct Other { char c[S]; }; using One = Other<kStages>; using Two = Other<5>;"},
        "constexpr int kStages = 6;",
    ),
    "static shared memory": ({"SHARED": "__shared__ Ring ring;"}, "constexpr int kStages = 6;"),
    "bytes as a product": ({"BYTES": "kStages * 4112"}, "constexpr int kStages = 6;"),
    "a mask": ({"COUNT": "constexpr int kStages = 2;", "SLOT": "k & (kStages - 1)"}, "constexpr int kStages = 4;"),
    "a static_assert": ({"HELP": 'static_assert(kStages >= 2, "a ring");'}, "constexpr int kStages = 6;"),
    "variables of slot and round": (
        {"AHEAD": "const int slot = k % kStages; const int round = k / kStages;", "SLOT": "k % kStages",
         "ROUND": "k / kStages % 2"},
        "constexpr int kStages = 6;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, 6, **parts)
    assert expected in taken(result, "stages")
    assert result.plans[0].stages == (4 if "mask" in name else 6)


REFUSED = {
    "a condition of the host": ({"HOST": "if (steps < kStages) return; " + DEFAULTS["HOST"]}, "what `steps < kStages`"),
    "a grid of it": ({"HOST": DEFAULTS["HOST"].replace("<<<1,", "<<<kStages,")}, "has to do with stages"),
    "a literal slot": ({"SLOT": "k % 2"}, "the constant that `2` stands for"),
    "memory of a literal size": ({"BYTES": "8224"}, "grows with the stages"),
    "an attribute of a literal size": (
        {"HOST": "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 8224); " + LAUNCH},
        "ask for the same shared memory",
    ),
    "the least K of the host": (
        {"HELP": "constexpr int kLeast = kStages * 64;", "HOST": "if (steps < kLeast) return; " + DEFAULTS["HOST"]},
        "what `steps < kLeast` has to do with stages",
    ),
    "a function of both": (
        {"HELP": "constexpr int least() { return kStages * 64; }", "AFTER": "if (steps > least()) out[0] = 1;",
         "HOST": "if (steps < least()) return; " + DEFAULTS["HOST"]},
        "has to do with stages",
    ),
    "a function for both": (
        {"HELP": "__host__ __device__ int least() { return kStages * 64; }",
         "AFTER": "if (steps > least()) out[0] = 1;"},
        "has to do with stages",
    ),
    "a condition by the size of what grows": (
        {"HOST": "if (steps < int(sizeof(Ring)) / 4112) return; " + DEFAULTS["HOST"]}, "has to do with stages",
    ),
    "a grid by a number that is such a size": (
        {"HOST": "const int size = sizeof(Ring), blocks = size / 4112; "
         + DEFAULTS["HOST"].replace("<<<1,", "<<<blocks,")}, "has to do with stages",
    ),
    "no host code": ({"HOST": ""}, "who launches it"),
    "a launch by a function that is handed it": (
        {"HELP": "template <typename F> void go(F f, int bytes);", "HOST": DEFAULTS["HOST"] + " go(kernel, 8224);"},
        "what is launched here",
    ),
    "a launch without a size": ({"HOST": DEFAULTS["HOST"] + " kernel<<<1, 384>>>(out, map, a, b, steps);"}, "here"),
    "a build that chooses it": (
        {"COUNT": "#ifndef STAGES\n#define STAGES 2\n#endif", "N": "STAGES"}, "a build may choose it",
    ),
    "two constants of that name": (
        {"HELP": "namespace other { constexpr int kStages = 3; }"}, "which `kStages` of several is meant",
    ),
    "a variable of that name": (
        {"HELP": "__device__ int twice(int kStages) { return 2 * kStages; }"}, "which `kStages` of several is meant",
    ),
    "a number that is computed": ({"COUNT": "constexpr int kStages = 8192 / 4096;"}, "is a number in the text"),
    "a literal template argument": (
        {**OF_TEMPLATE, "ARGUMENTS": "<2>", "BYTES": "sizeof(Ring<2>)"}, "the constant that `Depth` stands for",
    ),
    "two instantiations": (
        {**OF_TEMPLATE, "HELP": "constexpr int kFew = 2;", "HOST": DEFAULTS["HOST"] + " kernel<kFew><<<1, 384, 8224>>>"
         "(out, map, a, b, steps);"},
        "the constant that `Depth` stands for",
    ),
    "a macro that uses it": ({"HELP": "#define NEXT(s) ((s) + 1) % kStages"}, "what a macro or a pragma makes of"),
    "another ring": (
        {"STORAGE": "constexpr int kBack = 2; struct Ring { alignas(1024) char tile[kStages][4096];"
                    " uint64_t full[kStages], empty[kStages], done[kBack]; };",
         "AFTER": "wait(&ring.done[steps % kBack], 0);"},
        "one number of stages that all mbarriers have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_refuses_the_step(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, 6, **parts)
    assert len(missing(result)) == 1
    assert "kStages = 6" not in left(result, expected)


def test_a_header_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.cuh").write_text("#pragma once\nconstexpr int kStages = 2;\n")
    result = ported(tmp_path, 6, COUNT='#include "config.cuh"')
    assert "the header that it stands in" in missing(result)[0]


def test_no_more_than_there_are_is_no_step(tmp_path: Path) -> None:
    assert "room for more than 2 stages" in missing(ported(tmp_path, 2))[0]
    (tmp_path / "mask").mkdir()
    said = missing(ported(tmp_path / "mask", 3, SLOT="k & (kStages - 1)"))
    assert "room for more than 2 stages by a power of two" in said[0]


def test_without_a_number_nobody_changes_it(tmp_path: Path) -> None:
    result = ported(tmp_path, 0)
    assert missing(result) == []
    assert result.plans[0].stages == 0
    assert "constexpr int kStages = 2;" in text_of(result)
