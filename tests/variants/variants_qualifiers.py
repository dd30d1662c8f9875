# SPDX-License-Identifier: Apache-2.0
"""Accumulators and their parameters with qualifiers, specifiers and attributes."""

from __future__ import annotations

from functools import partial

from variant_template import TWO_TILES, asm, variant, wrapper
from variant_types import plus

put = partial(variant, axis="qualifier")
DONE = """<declare>
    <loop>
    <store>"""


def volatile_wrapper(parameter: str = "volatile float (&d)[16]", names: str = "d", kind: str = "bf16") -> str:
    return wrapper(32, kind, parameter=parameter).replace("(d[", f"({names}[")


def of(declaration: str, *, zero: str = "d[i] = 0", read: str = "d[i]") -> dict[str, str]:
    """Pieces with another declaration of the registers."""
    return {
        "declare": f"{declaration}\n    for (int i = 0; i < 16; ++i) {zero};",
        "store": f"for (int i = 0; i < 16; ++i) c[at(i)] = {read};",
    }


racing = partial(put, serialized=True)
racing("volatile_registers", DONE, mma=volatile_wrapper(), pieces=of("volatile float d[16];"))
racing(
    "volatile_behind_the_type",
    DONE,
    mma=volatile_wrapper("float volatile (&d)[16]"),
    pieces=of("float volatile d[16];"),
)
racing(
    "volatile_by_a_typedef",
    DONE,
    mma="typedef volatile float reg;\n" + volatile_wrapper("reg (&d)[16]"),
    pieces=of("reg d[16];"),
)
racing(
    "volatile_by_an_alias_of_the_array",
    DONE,
    mma="using Regs = volatile float[16];\n" + volatile_wrapper("Regs& d"),
    pieces=of("Regs d;"),
)
racing(
    "volatile_by_a_template",
    DONE,
    mma="template <class T> struct Kept { using type = volatile T; };\n"
    + volatile_wrapper("Kept<float>::type (&d)[16]"),
    pieces=of("Kept<float>::type d[16];"),
)
racing("volatile_parameter_alone", DONE, mma=volatile_wrapper())
racing(
    "volatile_template_parameter",
    DONE,
    mma="template <class T>" + volatile_wrapper("T (&d)[16]"),
    pieces=of("volatile float d[16];"),
)
racing(
    "volatile_member",
    DONE,
    mma="struct Tile { volatile float d[16]; };\n" + volatile_wrapper("Tile& x", "x.d"),
    pieces=of("Tile d;", zero="d.d[i] = 0", read="d.d[i]"),
)
racing(
    "volatile_object",
    DONE,
    mma="struct Tile { float d[16]; };\n" + volatile_wrapper("volatile Tile& x", "x.d"),
    pieces=of("volatile Tile d;", zero="d.d[i] = 0", read="d.d[i]"),
)
racing(
    "volatile_scalars",
    """volatile float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(d0, d1, d2, d3, a + 2 * t * kA, b + 2 * t * kB);
        mma(d0, d1, d2, d3, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    c[at(0)] = d0; c[at(1)] = d1; c[at(2)] = d2; c[at(3)] = d3;""",
    n=8,
    mma="__device__ __forceinline__ void mma(volatile float& d0, volatile float& d1, volatile float& d2, "
    "volatile float& d3, uint64_t a, uint64_t b) {\n    " + asm(["d0", "d1", "d2", "d3"]) + "\n}\n",
)
racing(
    "volatile_by_const_cast",
    DONE,
    pieces={
        **of("volatile float d[16];"),
        "two": "mma(const_cast<float (&)[16]>(d), a + 2 * t * kA, b + 2 * t * kB);\n"
        "        mma(const_cast<float (&)[16]>(d), a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    },
)
racing(
    "volatile_by_pointer",
    DONE,
    mma=volatile_wrapper("volatile float* d"),
    pieces=of("volatile float d[16];"),
)
racing(
    "volatile_tiles",
    "volatile float " + TWO_TILES,
    mma=volatile_wrapper(),
)
racing(
    "volatile_registers_that_change",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        d[t] = d[t] + 1.f;
    }
    <store>""",
    mma=volatile_wrapper(),
    pieces=of("volatile float d[16];"),
    want=plus({0: 1, 1: 1, 2: 1}),
)
racing(
    "volatile_packed_registers",
    DONE,
    kind="f16acc",
    mma=volatile_wrapper("volatile uint32_t (&d)[8]", kind="f16acc"),
    pieces={
        "declare": "volatile uint32_t d[8];\n    for (int i = 0; i < 8; ++i) d[i] = 0;",
        "store": "for (int i = 0; i < 8; ++i) c[at(2 * i) / 2] = d[i];",
    },
)
racing(
    "volatile_whole_numbers",
    DONE,
    kind="s8",
    mma=volatile_wrapper("volatile int (&d)[16]", kind="s8"),
    pieces=of("volatile int d[16];"),
)
racing(
    "volatile_beside_plain",
    """volatile float e[16];
    for (int i = 0; i < 16; ++i) e[i] = 0;
    <declare>
    <loop>
    fence();
    mma(e, a, b);
    commit();
    wait<0>();
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + e[i] - e[i];""",
    mma=wrapper() + volatile_wrapper(),
)
put("volatile_elsewhere", "volatile int seen = tiles;\n    if (seen < 0) return;\n    " + DONE)

for name, declared in (
    ("alignas", "alignas(16) float d[16];"),
    ("attribute_in_front", "[[maybe_unused]] float d[16];"),
    ("attribute_behind_the_name", "float d [[maybe_unused]] [16];"),
    ("gnu_attribute", "__attribute__((aligned(16))) float d[16];"),
    ("gnu_attribute_behind", "float d[16] __attribute__((aligned(16)));"),
    ("align_macro", "__align__(16) float d[16];"),
    ("auto_type", "using T = float;\n    T d[16];"),
    ("decltype_of_another", "float one = 1.f;\n    decltype(one) d[16];"),
):
    put(f"registers_with_{name}", DONE, pieces=of(declared))
put("registers_in_register", DONE, pieces=of("register float d[16];"), head="#define register\n")
put("parameter_restrict", DONE, mma=wrapper(parameter="float (&__restrict__ d)[16]"))
put("parameter_pointer_restrict", DONE, mma=wrapper(parameter="float* __restrict__ d"))
put("parameter_const_pointer", DONE, mma=wrapper(parameter="float* const d"))
put("parameter_with_an_attribute", DONE, mma=wrapper(parameter="[[maybe_unused]] float (&d)[16]"))
put("parameter_array", DONE, mma=wrapper(parameter="float d[16]"))
put(
    "parameter_by_right_reference",
    DONE,
    mma=wrapper(parameter="float (&&d)[16]"),
    pieces={
        "two": "mma(static_cast<float (&&)[16]>(d), a + 2 * t * kA, b + 2 * t * kB);\n"
        "        mma(static_cast<float (&&)[16]>(d), a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"
    },
)
put(
    "registers_read_by_const_reference",
    """<declare>
    <loop>
    const float (&e)[16] = d;
    for (int i = 0; i < 16; ++i) c[at(i)] = e[i];""",
)
put(
    "registers_read_by_a_const_parameter",
    """<declare>
    <loop>
    keep(d, c);""",
    types="""
__device__ void keep(const float (&d)[16], float* __restrict__ c) { for (int i = 0; i < 16; ++i) c[at(i)] = d[i]; }
""",
)
put(
    "registers_read_by_a_volatile_parameter",
    """<declare>
    <loop>
    keep(d, c);""",
    types="""
__device__ void keep(const volatile float* d, float* c) { for (int i = 0; i < 16; ++i) c[at(i)] = d[i]; }
""",
)
