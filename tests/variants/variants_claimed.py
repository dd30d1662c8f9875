# SPDX-License-Identifier: Apache-2.0
"""Sources that have names for themselves which a port would bring along: a namespace, macros, a header."""

from __future__ import annotations

from functools import partial

from variant_template import SYNC, TWO_TILES, variant, wrapper

put = partial(variant, axis="claimed")
DONE = """<declare>
    <loop>
    <store>"""
OWN = "__device__ inline int load(int x) { return x + 1; } struct Accumulator { int a; }; struct Warpgroup { int b; };"
USED = "if (%s != 2) return;\n    " + DONE

# --- the name of the namespace

for name, head, use in (
    ("plain", f"namespace tcgen05 {{ {OWN} }}\n", "tcgen05::load(1)"),
    ("nested", f"namespace own {{ namespace tcgen05 {{ {OWN} }} }}\n", "own::tcgen05::load(1)"),
    ("nested_at_once", f"namespace own::tcgen05 {{ {OWN} }}\nusing namespace own;\n", "tcgen05::load(1)"),
    ("inline", f"namespace own {{ inline namespace tcgen05 {{ {OWN} }} }}\nusing namespace own;\n", "load(1)"),
    ("inline_at_top", f"inline namespace tcgen05 {{ {OWN} }}\n", "load(1)"),
    ("alias", f"namespace own {{ {OWN} }}\nnamespace tcgen05 = own;\n", "tcgen05::load(1)"),
    ("anonymous", f"namespace {{ namespace tcgen05 {{ {OWN} }} }}\n", "tcgen05::load(1)"),
    ("reopened", f"namespace tcgen05 {{ {OWN} }}\nnamespace tcgen05 {{ constexpr int two = 2; }}\n", "tcgen05::two"),
    ("of_a_class", f"struct tcgen05 {{ {OWN.replace('__device__', 'static __device__', 1)} }};\n", "tcgen05::load(1)"),
    ("of_an_enumeration", "enum class tcgen05 { none, one, two };\n", "int(tcgen05::two)"),
    ("of_a_function", "__device__ inline int tcgen05(int x) { return x + 1; }\n", "tcgen05(1)"),
    ("of_a_macro", "#define tcgen05 (1 + 1)\n", "tcgen05"),
    ("of_a_macro_with_parameters", "#define tcgen05(x) (x + 1)\n", "tcgen05(1)"),
    ("in_a_macro", f"namespace own {{ {OWN} }}\n#define NAME tcgen05\nnamespace NAME = own;\n", "NAME::load(1)"),
    ("of_an_alias", f"struct Own {{ {OWN.replace('__device__', 'static __device__', 1)} }};\nusing tcgen05 = Own;\n",
     "tcgen05::load(1)"),
    ("beside_that_of_a_port", f"namespace tcgen05 {{ {OWN} }}\nnamespace sm100_tcgen05 {{ {OWN} }}\n",
     "sm100_tcgen05::load(tcgen05::load(0))"),
):  # fmt: skip
    put(f"namespace_taken_{name}", USED % use, head=head)
put("namespace_taken_by_a_variable", "int tcgen05 = tiles;\n    if (tcgen05 < 0) return;\n    " + DONE)
put(
    "namespace_taken_around_the_kernel",
    USED % "tcgen05::load(1)",
    before=f"namespace own {{ namespace tcgen05 {{ {OWN} }}\n",
    after="}\n",
)
put(
    "namespace_taken_by_the_wrappers",
    DONE,
    sync="namespace tcgen05 {\n" + SYNC,
    mma=wrapper(name="mma_f16") + "}\nusing namespace tcgen05;\n",
    pieces={
        "two": "mma_f16(d, a + 2 * t * kA, b + 2 * t * kB);\n"
        "        mma_f16(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"
    },
)
put(
    "namespace_taken_in_a_header",
    USED % "tcgen05::load(1)",
    head='#include "own.h"\n',
    files={"own.h": f"#pragma once\nnamespace tcgen05 {{ {OWN} }}\n"},
)
put(
    "header_of_that_name",
    USED % "tcgen05::load(1)",
    head='#include "tcgen05.cuh"\n',
    files={"tcgen05.cuh": f"#pragma once\nnamespace tcgen05 {{ {OWN} }}\n"},
)
put(
    "namespace_taken_in_the_arguments",
    USED % "tcgen05::load(1)",
    head=f"namespace tcgen05 {{ {OWN} }}\n",
    pieces={"two": "mma(d, a + (tcgen05::load(2 * t) - 1) * kA, b + 2 * t * kB);\n"
                   "        mma(d, a + tcgen05::load(2 * t) * kA, b + (2 * t + 1) * kB);"},
)  # fmt: skip

# --- macros

for name, text in (
    ("parameters_of_templates", "#define M 1\n#define K 2\n#define T 3\n#define Registers 4\n#define kTiles 5\n"),
    ("locals", "#define lane 7\n#define warp 8\n#define quarter 9\n#define loaded 10\n#define elected 11\n"),
    ("parameters", "#define columns 12\n#define first 13\n#define index 14\n#define parity 15\n#define barrier\n"),
    ("functions", "#define load 1\n#define clear 2\n#define mma_f16 3\n#define sync_warpgroup 4\n"),
    ("functions_with_parameters", "#define load(x, y) 1\n#define place(x) 2\n#define mma_f16(a, b, c, d) 3\n"),
    ("classes", "#define Accumulator 1\n#define Warpgroup 2\n#define Tmem 3\n#define Shared 4\n"),
    ("constants", "#define kRing 1\n#define kAccumulateF32 2\n#define kOperandBF16 3\n#define kDescriptorVersion 4\n"),
    ("members", "#define accumulate 1\n#define full 2\n#define tmem 3\n#define done 4\n#define warpgroup 5\n"),
    ("names_beside_registers", "#define d_tmem 1\n#define tc 2\n#define idesc 3\n#define tmem_shared 4\n"),
    ("of_numbers", "#define min(a, b) ((a) < (b) ? (a) : (b))\n#define max(a, b) ((a) > (b) ? (a) : (b))\n"),
    ("without_text", "#define loaded\n#define pointer\n#define found\n#define Shared\n"),
    ("of_new_names", "#define load 1\n#define load_ 2\n#define mma_f16 3\n#define mma_f16_ 4\n"),
):
    put(f"macros_{name}", DONE, head=text)
    put(f"macros_{name}_in_a_header", DONE, head='#include "own.h"\n', files={"own.h": "#pragma once\n" + text})
put("macros_behind_the_wrappers", DONE, types="#define load 1\n#define clear 2\n#define commit_ 3\n#define Tmem 4\n")
put("macros_taken_back", DONE, head="#define load 1\n#define lane 2\n", types="#undef load\n#undef lane\n")
put("macro_of_both", DONE, head="#define load 1\n", types="#undef load\n#define load 2\n")
put(
    "macros_for_commit_and_wait",
    DONE,
    sync=SYNC.split("__device__ __forceinline__ void commit")[0]
    + """#define commit() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
""",
    pieces={"multiply": "<batch>;\n        wait(0);"},
)
put(
    "macro_that_stays_in_use",
    """float s[16];
    for (int i = 0; i < 16; ++i) s[i] = load;
    <declare>
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + s[i] - load;""",
    head="#define load 1.f\n#define clear(x) x = 0\n",
)
put(
    "macro_in_a_moved_text",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<lane - 7>();
    }
    <store>""",
    head="#define lane 7\n",
)
put(
    "macro_and_namespace",
    USED % "tcgen05::load(1)",
    head=f"namespace tcgen05 {{ {OWN} }}\n#define clear 1\n#define Tmem 2\n",
)
put(
    "macro_of_an_array_of_tiles",
    "float " + TWO_TILES,
    head="#define place 1\n#define load 2\n#define kEach 3\n#define first 4\n#define address_ 5\n",
)
