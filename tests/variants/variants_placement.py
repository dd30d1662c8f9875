# SPDX-License-Identifier: Apache-2.0
"""Tiles whose number only the compiler knows: where one begins is said in terms that mean the same where it stands."""

from __future__ import annotations

from functools import partial

from variant_template import kernel, variant, wrapper
from variant_types import Values, Want, total

put = partial(variant, axis="placement")


def twice(p: Values) -> Values:
    return 2 * total(p)


ARGUMENTS = "(const uint4*, const uint4*, float*, int);\n"
INSTANCE = f"template __global__ void kernel<2>{ARGUMENTS}"
HEAD = "template <int Q>\n"

SUM = "float sum[16];\n    for (int i = 0; i < 16; ++i) sum[i] = 0;\n    "
STORE = "for (int i = 0; i < 16; ++i) {{ c[at(i)] = sum[i]; for (int q = 0; q < Q; ++q) c[at(i)] += {0}[q][i]; }}"


def tiles(name: str, *, extent: str = "Q", mma: str = "mma", path: str = "", declared: str = "") -> str:
    """Declares an array of tiles, cleared."""
    text = declared or f"float {name}[{extent}][16];"
    return f"{text}\n        for (int q = 0; q < Q; ++q) for (int i = 0; i < 16; ++i) {name}{path}[q][i] = 0;\n        "


def batch(name: str, step: str = "t", *, mma: str = "mma", wait: str = "wait<0>();") -> str:
    """Multiplies the steps of a tile of K, each into a tile of its own."""
    return f"""fence();
#pragma unroll
        for (int q = 0; q < Q; ++q) {mma}({name}[q], a + (2 * {step} + q) * kA, b + (2 * {step} + q) * kB);
        commit();
        {wait}
        """


def add(name: str) -> str:
    return f"for (int q = 0; q < Q; ++q) for (int i = 0; i < 16; ++i) sum[i] += {name}[q][i];\n        "


def own(name: str = "u", step: str = "t", *, extent: str = "Q", mma: str = "mma", declared: str = "",
        path: str = "", before: str = "") -> str:  # fmt: skip
    """Tiles that are declared, multiplied and added to the sum."""
    made = tiles(name, extent=extent, declared=declared, path=path)
    return before + made + batch(name + path, step, mma=mma) + add(name + path)


def body(inner: str, *, first: str = "", extent: str = "Q", mma: str = "mma", declared: str = "", path: str = "",
         behind: str = "", name: str = "s", last: str = "") -> str:  # fmt: skip
    """A kernel in which `s` lives around a loop over tiles of K with `inner` behind its batch. `first` stands in front
    of it, `behind` at the end of the loop."""
    loop = f"for (int t = 0; t < tiles; ++t) {{\n        {batch(name + path, mma=mma)}{inner}\n    {behind}}}\n    "
    made = tiles(name, extent=extent, declared=declared, path=path)
    return f"{first}{SUM}{made}{loop}{last}{STORE.format(name + path)}"


def tile_variant(name: str, text: str, *, types: str = "", head: str = HEAD, after: str = INSTANCE,
                 want: Want = twice, mma: str | None = None) -> None:  # fmt: skip
    put(name, text, types=types, before=head, after=after, want=want, mma=mma)


ONE, OTHER = wrapper(name="mma_s"), wrapper(name="mma_u")
for order, wrappers in (("in_order", ONE + OTHER), ("swapped", OTHER + ONE)):
    for shown, first in (("", ""), ("_shadowing", "float u = tiles * 1.f;\n    if (u < 0.f) return;\n    ")):
        text = body(own(mma="mma_u"), mma="mma_s", first=first)
        tile_variant(f"wrappers_{order}{shown}", text, mma=wrappers + "\n")

tile_variant("inner_tiles_twice", body("{" + own() + "}\n{" + own() + "}"), want=lambda p: 3 * total(p))
tile_variant(
    "inner_tiles_behind_the_loop",
    body(own(), last="for (int t = 0; t < tiles; ++t) {\n" + own() + "}\n    "),
    want=lambda p: 3 * total(p),
)
tile_variant("inner_tiles_of_other_names", body("{" + own("u") + "}\n{" + own("v") + "}"), want=lambda p: 3 * total(p))
tile_variant(
    "tiles_inside_of_tiles",
    body("{" + tiles("u") + batch("u") + "{" + own("v") + "}" + add("u") + "}"),
    want=lambda p: 3 * total(p),
)
tile_variant(
    "tiles_under_way_of_a_block_before",
    body("{" + tiles("u") + batch("u", wait=";") + "}\n{" + own("v") + "}"),
)
tile_variant(
    "one_block_three_tiles",
    body("", first=tiles("u") + tiles("v"), behind=batch("u") + batch("v"), last=add("u") + add("v")),
    want=lambda p: 3 * total(p),
)
tile_variant(
    "declared_in_reverse",
    body(own("u"), name="z", first="float z0 = 0.f, s = 1.f;\n    if (s < z0) return;\n    "),
)
tile_variant("extent_of_a_constant_in_front", body(own(extent="W"), first="constexpr int W = Q;\n    ", extent="W"))
tile_variant("extent_of_a_constant_behind", body(own(extent="W", before="constexpr int W = Q;\n        ")))
tile_variant(
    "extents_of_two_constants_of_one_name",
    body(
        "{ constexpr int W = Q + 1;\n" + own(extent="W") + "}\n{ constexpr int W = Q;\n" + own("v", extent="W") + "}",
        first="constexpr int W = Q * 2;\n    ",
        extent="W",
    ),
    want=lambda p: 3 * total(p),
)
tile_variant(
    "extent_of_a_hidden_constant",
    body(own(extent="W") + "{ constexpr int W = 1;\n" + own("v", extent="W + Q - 1") + "}"),
    types="constexpr int W = 2;\n",
    want=lambda p: 3 * total(p),
)
tile_variant(
    "extent_of_an_enumerator",
    body(own(extent="W", before="enum { W = Q };\n        "), first="enum { V = Q };\n    ", extent="V"),
)
tile_variant(
    "extent_of_a_local_alias",
    body(own(extent="C::value", before="using C = Count<Q>;\n        ")),
    types="template <int N> struct Count { static constexpr int value = N; };\n",
)
tile_variant(
    "extents_of_two_local_aliases",
    body(
        "{ using C = Count<Q>;\n" + own(extent="C::value") + "}\n{ using C = Count<Q + 1>;\n"
        + own("v", extent="C::value") + "}"
    ),
    types="template <int N> struct Count { static constexpr int value = N; };\nusing C = Count<9>;\n",
    want=lambda p: 3 * total(p),
)  # fmt: skip
tile_variant("extent_of_a_macro", body(own(extent="W"), extent="W"), types="#define W Q\n")
tile_variant(
    "extent_of_a_macro_with_two_bodies",
    body("\n#undef W\n#define W (Q + 1)\n" + own(extent="W"), extent="W"),
    types="#define W Q\n",
)
tile_variant("extent_of_a_macro_in_the_body", body("\n#define W Q\n" + own(extent="W") + "\n#undef W\n"))
tile_variant(
    "extent_of_a_macro_of_a_constant",
    body(
        "{ constexpr int kW = Q;\n" + own(extent="W") + "}\n{ constexpr int kW = Q + 1;\n" + own("v", extent="W") + "}"
    ),
    types="#define W kW\n",
    want=lambda p: 3 * total(p),
)
tile_variant(
    "extent_of_a_constant_function",
    body(own(extent="count(Q)"), extent="count(Q)"),
    types="constexpr int count(int q) { return q; }\n",
)
tile_variant(
    "extent_of_a_traits_class",
    body(own(extent="T::kTiles"), extent="T::kTiles"),
    types="struct Traits { static constexpr int kTiles = 2; };\n",
    head="template <class T, int Q = T::kTiles>\n",
    after=INSTANCE.replace("<2>", "<Traits>"),
)
tile_variant(
    "names_used_by_two_kernels",
    body(own()),
    after=kernel(body("{" + own("s", extent="Q + 1") + "}", name="u"), before=HEAD, name="other")
    + INSTANCE + INSTANCE.replace("kernel", "other"),
)  # fmt: skip
MEMBERS = "template <int N> struct Regs { float d[N][16]; };\n"
tile_variant(
    "members_of_objects",
    body(
        own(declared="Regs<Q> u;", path=".d"),
        declared="Regs<Q> s;",
        path=".d",
        first="float u = 0.f;\n    sum0(u);\n    ",
    ),
    types=MEMBERS + "__device__ void sum0(float&) {}\n",
)
tile_variant(
    "members_of_objects_declared_late",
    body(own("u", declared="R u;", path=".d", before="using R = Regs<Q>;\n"), declared="Regs<Q> s;", path=".d"),
    types=MEMBERS,
)
tile_variant(
    "tiles_of_a_lambda",
    body("auto f = [&] {" + own() + "};\n f();"),
)
tile_variant(
    "tiles_of_two_lambdas",
    body("[&] {" + own() + "}();\n[&] { " + own() + "}();"),
    want=lambda p: 3 * total(p),
)
PART = """
template <int Q>
__device__ __forceinline__ void part(float (&sum)[16], uint64_t a, uint64_t b, int t) {
    %s
}
"""
ALONE = """for (int i = 0; i < 16; ++i) d[i] = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        <two>
        commit();
        wait<0>();
        %s
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + sum[i];"""
tile_variant(
    "tiles_of_a_function_behind_those_of_the_kernel",
    f"float u = 1.f; if (u < 0.f) return;\n    {SUM}float d[16];\n    " + ALONE % "part<2>(sum, a, b, t);",
    types=PART % own(),
    head="",
    after="",
)
tile_variant(
    "tiles_of_two_functions",
    SUM + "for (int t = 0; t < tiles; ++t) { part<2>(sum, a, b, t); rest<2>(sum, a, b, t); }\n"
    "    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];",
    types=PART % own() + PART.replace("part", "rest") % own(extent="Q + 1"),
    head="",
    after="",
)
tile_variant(
    "tiles_in_nested_loops",
    body("for (int r = 0; r < 2; ++r) { if (r == 0) {" + own() + "} else {" + own("v") + "} }"),
    want=lambda p: 3 * total(p),
)
KNOWN = {"head": "", "after": ""}
tile_variant(
    "constant_in_front_of_one_of_its_name",
    body(own("u", "t", extent="2"), extent="W", last="constexpr int W = 1;\n    if (W > tiles) return;\n    ").replace(
        "< Q", "< 2"
    ),
    types="constexpr int W = 2;\n",
    **KNOWN,
)
tile_variant(
    "constants_of_one_name_in_blocks",
    body(
        "{ constexpr int W = 3;\n" + own(extent="W") + "}\n{ constexpr int W = 2;\n" + own("v", extent="W") + "}",
        first="constexpr int W = 4;\n    ",
        extent="W",
    ).replace("< Q", "< 2"),
    want=lambda p: 3 * total(p),
    **KNOWN,
)
tile_variant(
    "constant_of_a_parameters_name",
    f"{SUM}part(2, sum, a, b, tiles);\n    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];",
    types="""constexpr int W = 2;
__device__ __forceinline__ void part(int, float (&sum)[16], uint64_t a, uint64_t b, int tiles) {
    """ + body(own(extent="W"), extent="W").replace(SUM, "").replace("c[at(i)] = sum[i]; ", "").replace(
        "c[at(i)] +=", "sum[i] +=").replace("< Q", "< 2") + "\n}\n",
    **KNOWN,
)  # fmt: skip
DONE = "<declare>\n    <loop>\n    <store>"
for name, inside in (
    ("a_constant", "constexpr int kThreads = 128;\n    if (tiles > kThreads) return;\n    "),
    ("a_variable", "int kThreads = tiles;\n    if (kThreads < 0) return;\n    "),
    ("an_enumerator", "enum { kThreads = 128 };\n    if (tiles > kThreads) return;\n    "),
):
    put(
        f"threads_by_the_name_of_{name}",
        inside + DONE,
        types="constexpr int kThreads = 512;\n",
        warpgroups=4,
        bounds="__launch_bounds__(kThreads)",
    )
OBJECTS = """struct Tile { float d[16]; };
"""
put(
    "array_of_objects_called_i",
    """constexpr int j = 2;
    Tile i[j];
    for (int q = 0; q < j; ++q) for (float& x : i[q].d) x = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        for (int q = 0; q < j; ++q) mma(i[q].d, a + (2 * t + q) * kA, b + (2 * t + q) * kB);
        commit();
        wait<0>();
    }
    for (int e = 0; e < 16; ++e) c[at(e)] = i[0].d[e] + i[1].d[e];""",
    types=OBJECTS,
)
put(
    "array_of_objects_by_a_constant_called_i",
    """constexpr int i = 2;
    Tile x[i];
    for (int q = 0; q < i; ++q) for (float& y : x[q].d) y = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        for (int q = 0; q < i; ++q) mma(x[q].d, a + (2 * t + q) * kA, b + (2 * t + q) * kB);
        commit();
        wait<0>();
    }
    for (int e = 0; e < 16; ++e) c[at(e)] = x[0].d[e] + x[1].d[e];""",
    types=OBJECTS,
)
