# SPDX-License-Identifier: Apache-2.0
"""Namespaces, overloads, scopes: names that need C++'s rules to be found."""

from __future__ import annotations

from functools import partial

from variant_template import HEAD, SYNC, TILE, asm, file, kernel, registers, variant, whole, wrapper
from variant_types import plus, then

ONE = plus({0: 1})
MMA = asm(registers("d", 16))
TILE_LOOP = """for (int t = 0; t < tiles; ++t) {
        fence();
        tile.mma(a + 2 * t * kA, b + 2 * t * kB);
        tile.mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }"""
TILE_STORE = "for (int i = 0; i < 16; ++i) c[at(i)] = tile.d[i];"

put = partial(variant, axis="name")
DONE = """<declare>
    <loop>
    <store>"""
W = wrapper()
put(
    "namespaces_same_names",
    DONE,
    types="""
namespace other {
__device__ void fence() {}
__device__ void commit() {}
template <int N>
__device__ void wait() {}
__device__ void mma(float (&d)[16], uint64_t a, uint64_t b) { d[0] = a < b; }
}
""",
)
put(
    "namespaces_chosen",
    DONE,
    sync="""namespace nothing {
__device__ void commit() {}
template <int N>
__device__ void wait() {}
}
namespace real {
"""
    + SYNC
    + "}\n",
    pieces={
        "batch": """real::fence();
        <two>
        nothing::commit();
        real::commit();""",
        "multiply": """<batch>
        nothing::wait<0>();
        real::wait<0>();""",
    },
)
put(
    "namespaces_both_real",
    DONE,
    sync=f"""namespace one {{
{SYNC}}}
namespace two {{
{SYNC}}}
""",
    pieces={
        "batch": """one::fence();
        <two>
        two::commit();""",
        "multiply": """<batch>
        one::wait<0>();""",
    },
)
put(
    "namespace_using_directive",
    """using namespace wg;
    <declare>
    <loop>
    <store>""",
    sync=f"""namespace wg {{
{SYNC}}}
""",
)
put(
    "namespace_using_declaration",
    """using wg::fence, wg::commit, wg::wait;
    <declare>
    <loop>
    <store>""",
    sync=f"""namespace wg {{
{SYNC}}}
""",
)
put(
    "namespace_using_at_file",
    DONE,
    sync=f"""namespace wg {{
{SYNC}}}
using namespace wg;
""",
)
put(
    "namespace_alias",
    DONE,
    sync=f"""namespace hopper {{ namespace wgmma {{
{SYNC}}} }}
namespace wg = hopper::wgmma;
""",
    pieces={
        "batch": """wg::fence();
        <two>
        wg::commit();""",
        "multiply": """<batch>
        wg::wait<0>();""",
    },
)
put(
    "namespace_nested",
    DONE,
    sync=f"""namespace hopper::wgmma {{
{SYNC}}}
""",
    pieces={
        "batch": """hopper::wgmma::fence();
        <two>
        hopper::wgmma::commit();""",
        "multiply": """<batch>
        hopper::wgmma::wait<0>();""",
    },
)
put(
    "namespace_anonymous",
    DONE,
    sync=f"""namespace {{
{SYNC}}}
""",
    mma=f"namespace {{{W}}}\n",
)
put(
    "namespace_inline",
    DONE,
    sync=f"""namespace wg {{ inline namespace v1 {{
{SYNC}}} }}
""",
    pieces={
        "batch": """wg::fence();
        <two>
        wg::commit();""",
        "multiply": """<batch>
        wg::v1::wait<0>();""",
    },
)
put("namespace_of_kernel", DONE, before="namespace gemm {\n", after="}\n")
put(
    "namespace_reopened",
    DONE,
    sync=f"""namespace wg {{
{SYNC.splitlines()[0]}
}}
namespace wg {{
"""
    + "\n".join(SYNC.splitlines()[1:])
    + "\n}\n",
    pieces={
        "batch": """wg::fence();
        <two>
        wg::commit();""",
        "multiply": """<batch>
        wg::wait<0>();""",
    },
)
put(
    "namespace_global_qualified",
    DONE,
    types="""
namespace local {
__device__ void fence() {}
}
""",
    pieces={
        "batch": """local::fence();
        ::fence();
        <two>
        ::commit();""",
        "multiply": """<batch>
        ::wait<0>();""",
    },
)
put(
    "argument_dependent_lookup",
    DONE,
    mma="""
namespace tiles_ns {
struct Tile { float d[16]; };
__device__ __forceinline__ void mma(Tile& x, uint64_t a, uint64_t b) {
    """
    + asm(registers("x.d", 16))
    + "\n}\n}\n",
    pieces={
        "declare": """tiles_ns::Tile x;
    for (float& v : x.d) v = 0.f;""",
        "two": """mma(x, a + 2 * t * kA, b + 2 * t * kB);
        mma(x, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);""",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = x.d[i];",
    },
)
put(
    "overload_of_extent_used",
    """<declare>
    float e[8];
    for (float& x : e) x = 0.f;
    for (int t = 0; t < tiles; ++t) {
        fence();
        <two>
        mma(e, a + 2 * t * kA, b + 2 * t * kB);
        commit();
        wait<0>();
    }
    d[0] += e[0] - e[0];
    <store>""",
    types=wrapper(16),
)
put(
    "overload_by_count",
    DONE,
    mma=W
    + """
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int s) { mma(d, a + s * kA, b + s * kB); }
""",
    pieces={
        "two": """mma(d, a, b, 2 * t);
        mma(d, a, b, 2 * t + 1);"""
    },
)
put(
    "overload_by_type",
    DONE,
    types="""
struct Step { int s; };
__device__ __forceinline__ void mma(float (&d)[16], Step s, uint64_t a, uint64_t b) {
    mma(d, a + s.s * kA, b + s.s * kB);
}
__device__ __forceinline__ void mma(float (&d)[16], float, uint64_t, uint64_t) { d[0] = 1.f; }
""",
    pieces={
        "two": """mma(d, Step{2 * t}, a, b);
        mma(d, Step{2 * t + 1}, a, b);"""
    },
)
put(
    "overload_of_template_and_function",
    DONE,
    types="""
template <class T>
__device__ void commit(T) {}
__device__ void wait(int) {}
""",
    pieces={
        "multiply": """<batch>
        commit(3);
        wait(0);
        wait<0>();"""
    },
)
put(
    "default_function_argument",
    DONE,
    mma="""
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate = 1) {
    """
    + asm(registers("d", 16), flag="accumulate")
    + "\n}\n",
)
put(
    "local_shadows_function",
    """<declare>
    {
        auto mma = [](int x) { return x + 1; };
        if (mma(tiles) == 99) return;
    }
    <loop>
    <store>""",
)
put(
    "method_shadows_function",
    DONE,
    types="""
struct Other {
    __device__ void commit() {}
    __device__ void fence() {}
};
""",
    pieces={
        "multiply": """Other other;
        other.fence();
        <batch>
        other.commit();
        wait<0>();"""
    },
)
put(
    "static_method_same_name",
    DONE,
    types="""
struct Wgmma {
    static __device__ void fence() { ::fence(); }
    static __device__ void commit() { ::commit(); }
    template <int N>
    static __device__ void wait() { ::wait<N>(); }
};
""",
    pieces={
        "multiply": """Wgmma::fence();
        <two>
        Wgmma::commit();
        Wgmma::wait<0>();"""
    },
)
put(
    "function_alias",
    """constexpr auto multiply = mma;
    <declare>
    <loop>
    <store>""",
    pieces={
        "two": """multiply(d, a + 2 * t * kA, b + 2 * t * kB);
        multiply(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
put(
    "declared_before_defined",
    DONE,
    mma="""
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b);
""",
    after=W,
)
put(
    "unused_class_same_method",
    DONE,
    types="""
struct Unused {
    float d[4];
    __device__ void mma(float (&x)[16], uint64_t a, uint64_t b) { x[0] = a + b; }
};
""",
)
put(
    "inner_scope_sizeof",
    """<declare>
    {
        float x[4] = {1.f, 2.f, 3.f, 4.f};
        for (unsigned i = 0; i < sizeof(x) / sizeof(x[0]); ++i) d[i] += x[i];
    }
    <loop>
    <store>""",
    want=plus({0: 1, 1: 2, 2: 3, 3: 4}),
)
put(
    "inner_scope_same_name",
    """<declare>
    <loop>
    {
        float d[4] = {};
        d[0] += 5.f;
        if (d[0] < 0.f) return;
    }
    <store>""",
)
put(
    "inner_scope_accumulator",
    """float s[16] = {};
    for (int t = 0; t < tiles; ++t) {
        <declare>
        <multiply>
        for (int i = 0; i < 16; ++i) s[i] += d[i];
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = s[i];""",
)
put(
    "keywords_as_parts",
    """float d_[16], d0[16], d[16];
    <zero>
    for (int i = 0; i < 16; ++i) d_[i] = d0[i] = float(i);
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + d_[i] - d0[i];""",
)

TWO_CLASSES = (
    """
namespace one {
struct Tile {
    float d[16];
    __device__ __forceinline__ void clear() { for (float& x : d) x = 0.f; }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    """
    + MMA
    + """
    }
};
}
namespace two {
struct Tile {
    float d[16];
    __device__ __forceinline__ void clear() { for (float& x : d) x = 1.f; }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    """
    + MMA
    + """
    }
};
}
"""
)
OBJECT = f"""%s tile;
    tile.clear();
    {TILE_LOOP}
    {TILE_STORE}"""
BUMPED = """<declare>
    <loop>
    d[%s] += 1.f;
    <store>"""
CLASSES = HEAD + SYNC + TILE.replace("<N>", "32") + TWO_CLASSES
whole(
    "classes_of_one_name",
    CLASSES + kernel(OBJECT % "one::Tile", name="kernel_one") + kernel(OBJECT % "two::Tile", name="kernel_two"),
    axis="name",
    wants={"kernel_two": then("d += 1")},
)
whole("classes_of_one_name_one_used", CLASSES + kernel(OBJECT % "two::Tile"), axis="name", want=then("d += 1"))
whole(
    "kernels_in_two_namespaces",
    HEAD
    + "".join(
        f"""namespace {ns} {{
{SYNC}{TILE.replace("<N>", "32")}{W}{kernel(DONE)}}}
"""
        for ns in ("one", "two")
    ),
    axis="name",
)
whole(
    "kernels_of_one_name_sharing_helpers",
    file(
        "".join(
            f"""namespace {ns} {{
{kernel(BUMPED % i)}}}
"""
            for i, ns in enumerate(("one", "two"))
        )
    ),
    axis="name",
    wants={"one::": ONE, "two::": plus({1: 1})},
)
whole(
    "two_kernels",
    file(
        kernel(DONE, name="first")
        + kernel(
            """<declare>
    <loop>
    d[0] += 1.f;
    <store>""",
            name="second",
        )
    ),
    axis="name",
    wants={"second": ONE},
)
whole(
    "two_kernels_different_waits",
    file(
        kernel(DONE, name="first")
        + kernel(
            """<declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<2>();
    }
    wait<0>();
    <store>""",
            name="second",
        )
    ),
    axis="name",
)
