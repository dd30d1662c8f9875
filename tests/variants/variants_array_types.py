# SPDX-License-Identifier: Apache-2.0
"""Accumulators whose type is an alias of an array's, or an array of such."""

from __future__ import annotations

from variant_template import asm, loop, registers, variant
from variant_types import plus

DONE = """<loop>
    d[0] += 1.f;
    <store>"""
EACH = loop("d[3] += 1.f;") + "\n    <store>"


def put(name: str, declare: str, types: str = "", body: str = DONE, mma: str = "", **more: object) -> None:
    want = more.pop("want", plus({0: 1}))
    text = f"{declare}\n    <zero>\n    {body}"
    if mma:
        more["mma"] = f"\n{mma} {{\n    {asm(registers('d', 16))}\n}}\n"
    variant(f"typed_{name}", text, axis="typed", types=types and f"\n{types}\n", want=want, **more)


put("using", "Fragment d;", "using Fragment = float[16];")
put("typedef", "Fragment d;", "typedef float Fragment[16];")
put("using_each_turn", "Fragment d;", "using Fragment = float[16];", EACH, want=plus({3: 3}))
put("of_count", "Fragment d;", "constexpr int kCount = 8 * 2;\nusing Fragment = float[kCount];")
put("of_template", "Fragment<16> d;", "template <int N>\nusing Fragment = float[N];")
put("of_type", "Fragment<float> d;", "template <class T>\nusing Fragment = T[16];")
put("of_alias", "Fragment d;", "using Element = float;\nusing First = Element[16];\nusing Fragment = First;")
put("in_function", "using Fragment = float[16];\n    Fragment d;")
put("in_namespace", "tiles_of::Fragment d;", "namespace tiles_of {\nusing Fragment = float[16];\n}")
put("in_class", "Traits::Fragment d;", "struct Traits {\n    using Fragment = float[16];\n};")
put(
    "in_template_class",
    "typename Traits<16>::Fragment d;",
    "template <int N>\nstruct Traits {\n    using Fragment = float[N];\n};",
)
put(
    "const_pointer_beside",
    "Fragment d;\n    const float* p = d;",
    "using Fragment = float[16];",
    DONE.replace("<store>", "for (int i = 0; i < 16; ++i) c[at(i)] = p[i];"),
)
put("of_macro", "FRAGMENT d;", "using Fragment = float[16];\n#define FRAGMENT Fragment")
put("decltype_of_other", "float e[16];\n    decltype(e) d;\n    e[0] = 0.f;")
put(
    "parameter",
    "Fragment d;",
    body=DONE,
    mma="using Fragment = float[16];\n__device__ __forceinline__ void mma(Fragment& d, uint64_t a, uint64_t b)",
)
put(
    "parameter_beside_array",
    "float d[16];",
    body=DONE,
    mma="using Fragment = float[16];\n__device__ __forceinline__ void mma(Fragment& d, uint64_t a, uint64_t b)",
)
put(
    "parameter_of_template",
    "Fragment<16> d;",
    body=DONE,
    mma="template <int N>\nusing Fragment = float[N];\n"
    "__device__ __forceinline__ void mma(Fragment<16>& d, uint64_t a, uint64_t b)",
)
TWO = {
    "two": "mma(d[0], a + 2 * t * kA, b + 2 * t * kB);\n        mma(d[1], a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    "zero": "for (int i = 0; i < 32; ++i) d[i / 16][i % 16] = 0.f;",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];",
}
PAIR = DONE.replace("d[0] += 1.f;", "d[1][0] += 1.f;")
put("two_of_them", "Fragment d[2];", "using Fragment = float[16];", PAIR, pieces=TWO)
put("alias_of_two", "Pair d;", "using Pair = float[2][16];", PAIR, pieces=TWO)
put("alias_of_two_aliases", "Pair d;", "using Fragment = float[16];\nusing Pair = Fragment[2];", PAIR, pieces=TWO)
put(
    "two_of_them_each_turn",
    "Fragment d[2];",
    "using Fragment = float[16];",
    loop("d[1][0] += 1.f;") + "\n    <store>",
    pieces=TWO,
    want=plus({0: 3}),
)
