# SPDX-License-Identifier: Apache-2.0
"""Classes that hold the registers or issue the MMAs, and names that need C++'s rules to be found."""

from __future__ import annotations

from functools import partial

from variant_template import asm, registers, variant
from variant_types import plus

put = partial(variant, axis="class")
ONE = plus({0: 1})
MMA = asm(registers("d", 16))
USED = {
    "declare": "Tile tile;",
    "two": "tile.mma(a + 2 * t * kA, b + 2 * t * kB);\n        tile.mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.d[i];",
}
CLEAR = "for (int i = 0; i < 16; ++i) d[i] = 0.f;"


def classes(
    name: str,
    types: str,
    body: str = """Tile tile;
    tile.clear();
    <loop>
    <store>""",
    **more: object,
) -> None:
    """A variant whose registers are the member `d` of a `Tile`."""
    types = types.replace("<mma>", MMA).replace("<clear>", CLEAR)
    pieces = {**USED, **more.pop("pieces", {})}
    put(name, body, mma=f"\n{types}\n", pieces=pieces, **more)


MEMBERS = """    __device__ __forceinline__ void clear() { <clear> }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    <mma>
    }
"""
PLAIN = f"""struct Tile {{
    float d[16];
{MEMBERS}}};"""
classes("members", PLAIN)
classes(
    "member_changed_outside",
    PLAIN,
    """Tile tile;
    tile.clear();
    <loop>
    tile.d[0] += 1.f;
    <store>""",
    want=ONE,
)
classes(
    "member_initialised",
    PLAIN.replace("float d[16];", "float d[16] = {};"),
    """Tile tile;
    <loop>
    <store>""",
)
classes(
    "constructor_clears",
    PLAIN.replace(
        "    __device__ __forceinline__ void clear",
        """    __device__ Tile() { clear(); }
    __device__ __forceinline__ void clear""",
    ),
    """Tile tile;
    <loop>
    <store>""",
)
classes(
    "constructor_list",
    PLAIN.replace(
        "    __device__ __forceinline__ void clear",
        """    __device__ Tile() : d{} {}
    __device__ __forceinline__ void clear""",
    ),
    """Tile tile;
    <loop>
    <store>""",
)
classes(
    "private_members",
    f"""class Tile {{
    float d[16];
  public:
{MEMBERS}    __device__ float get(int i) const {{ return d[i]; }}
    __device__ void set(int i, float x) {{ d[i] = x; }}
}};""",
    """Tile tile;
    tile.clear();
    <loop>
    tile.set(0, tile.get(0) + 1.f);
    <store>""",
    pieces={"store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.get(i);"},
    want=ONE,
)
classes(
    "inherited_member",
    f"""struct Base {{ float d[16]; }};
struct Tile : Base {{
{MEMBERS}}};""",
)
classes(
    "inherited_member_changed",
    f"""struct Base {{
    float d[16];
    __device__ void bump() {{ d[0] += 1.f; }}
}};
struct Tile : Base {{
{MEMBERS}}};""",
    """Tile tile;
    tile.clear();
    <loop>
    tile.bump();
    <store>""",
    want=ONE,
)
classes(
    "inherited_methods",
    f"""struct Base {{
    float d[16];
{MEMBERS}}};
struct Tile : Base {{ int unused; }};""",
)
classes(
    "inherited_twice",
    f"""struct Root {{ float d[16]; }};
struct Base : Root {{ }};
struct Tile : Base {{
{MEMBERS}}};""",
)
classes(
    "inherited_from_template",
    f"""template <int R>
struct Base {{ float d[R]; }};
struct Tile : Base<16> {{
{MEMBERS}}};""",
)
classes(
    "inherited_dependent",
    f"""template <int K>
struct Base {{ float d[K]; }};
template <int K>
struct Of : Base<K> {{
    using Base<K>::d;
{MEMBERS}}};
using Tile = Of<16>;""",
)
classes(
    "inherited_through_this",
    """template <int K>
struct Base { float d[K]; };
template <int K>
struct Of : Base<K> {
"""
    + MEMBERS.replace("<clear>", CLEAR.replace("d[i]", "this->d[i]")).replace("<mma>", asm(registers("this->d", 16)))
    + """};
using Tile = Of<16>;""",
)
classes(
    "two_bases",
    f"""struct Counter {{ int turns = 0; }};
struct Base {{ float d[16]; }};
struct Tile : Counter, Base {{
{MEMBERS}}};""",
    """Tile tile;
    tile.clear();
    <loop>
    ++tile.turns;
    tile.d[0] += tile.turns;
    <store>""",
    want=ONE,
)
classes(
    "crtp",
    """template <class Self>
struct Base {
    __device__ __forceinline__ void step(uint64_t a, uint64_t b) { static_cast<Self*>(this)->mma(a, b); }
    __device__ __forceinline__ void bump() { static_cast<Self*>(this)->d[0] += 1.f; }
};
struct Tile : Base<Tile> {
    float d[16];
"""
    + MEMBERS
    + "};",
    """Tile tile;
    tile.clear();
    <loop>
    tile.bump();
    <store>""",
    pieces={
        "two": """tile.step(a + 2 * t * kA, b + 2 * t * kB);
        tile.step(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
    want=ONE,
)
classes(
    "index_operator",
    PLAIN.replace(
        "};",
        """    __device__ float& operator[](int i) { return d[i]; }
};""",
    ),
    """Tile tile;
    tile.clear();
    <loop>
    tile[0] += 1.f;
    <store>""",
    pieces={"store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile[i];"},
    want=ONE,
)
classes(
    "call_operator_multiplies",
    PLAIN.replace("void mma(", "void operator()("),
    pieces={
        "two": """tile(a + 2 * t * kA, b + 2 * t * kB);
        tile(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
classes(
    "call_operator_by_name",
    PLAIN.replace("void mma(", "void operator()("),
    pieces={
        "two": """tile.operator()(a + 2 * t * kA, b + 2 * t * kB);
        tile.operator()(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
classes(
    "chained_methods",
    PLAIN.replace("void clear() { <clear> }", "Tile& clear() { <clear> return *this; }").replace(
        """void mma(uint64_t a, uint64_t b) {
    <mma>""",
        """Tile& mma(uint64_t a, uint64_t b) {
    <mma>
    return *this;""",
    ),
    pieces={"two": "tile.mma(a + 2 * t * kA, b + 2 * t * kB).mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"},
)
classes(
    "defined_outside",
    """struct Tile {
    float d[16];
    __device__ void clear();
    __device__ void mma(uint64_t a, uint64_t b);
};
__device__ __forceinline__ void Tile::clear() { <clear> }
__device__ __forceinline__ void Tile::mma(uint64_t a, uint64_t b) {
    <mma>
}""",
)
classes(
    "static_members",
    f"""struct Tile {{
    float d[16];
{MEMBERS}    static __device__ void sync() {{ wait<0>(); }}
    static __device__ void begin() {{ fence(); }}
}};""",
    pieces={
        "batch": """Tile::begin();
        <two>
        commit();""",
        "multiply": """<batch>
        Tile::sync();""",
    },
)
classes(
    "synchronising_methods",
    f"""struct Tile {{
    float d[16];
{MEMBERS}    __device__ void begin() {{ fence(); }}
    __device__ void end() {{
        commit();
        wait<0>();
    }}
}};""",
    pieces={
        "multiply": """tile.begin();
        <two>
        tile.end();"""
    },
)
classes(
    "nested_class",
    f"""struct Outer {{
    struct Inner {{
    float d[16];
{MEMBERS}    }};
    Inner inner;
}};""",
    """Outer outer;
    Outer::Inner& tile = outer.inner;
    tile.clear();
    <loop>
    <store>""",
)
classes(
    "nested_class_used_directly",
    f"""struct Outer {{
    struct Inner {{
    float d[16];
{MEMBERS}    }};
    Inner tile;
}};""",
    """Outer outer;
    outer.tile.clear();
    <loop>
    <store>""",
    pieces={
        "two": USED["two"].replace("tile.mma", "outer.tile.mma"),
        "store": USED["store"].replace("tile.d", "outer.tile.d"),
    },
)
classes(
    "local_class",
    "",
    f"""{PLAIN}
    Tile tile;
    tile.clear();
    <loop>
    <store>""".replace("<mma>", MMA).replace("<clear>", CLEAR),
)
classes(
    "class_template",
    f"""template <int R>
struct Tile {{
    float d[R];
{MEMBERS}}};""",
    """Tile<16> tile;
    tile.clear();
    <loop>
    <store>""",
)
classes(
    "member_template",
    PLAIN.replace(
        "    __device__ __forceinline__ void mma(",
        """    template <int S>
    __device__ void step(uint64_t a, uint64_t b) { mma(a + S * kA, b + S * kB); }
    __device__ __forceinline__ void mma(""",
    ),
    pieces={
        "two": """tile.step<0>(a + 2 * t * kA, b + 2 * t * kB);
        tile.template step<1>(a + 2 * t * kA, b + 2 * t * kB);"""
    },
)
classes(
    "whole_loop_method",
    PLAIN.replace(
        "};",
        """    __device__ void multiply(uint64_t a, uint64_t b, int tiles) {
        for (int t = 0; t < tiles; ++t) {
            fence();
            mma(a + 2 * t * kA, b + 2 * t * kB);
            mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
            commit();
            wait<0>();
        }
    }
    __device__ void store(float* c) const {
        for (int i = 0; i < 16; ++i) c[at(i)] = d[i];
    }
};""",
    ),
    """Tile tile;
    tile.clear();
    tile.multiply(a, b, tiles);
    tile.store(c);""",
)
classes(
    "two_objects",
    PLAIN,
    """Tile tile, other;
    tile.clear();
    other.clear();
    <loop>
    <store>""",
    pieces={
        "two": """tile.mma(a + 2 * t * kA, b + 2 * t * kB);
        other.mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);""",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.d[i] + other.d[i];",
    },
)
classes(
    "array_of_objects",
    PLAIN,
    """Tile tile[2];
    for (Tile& x : tile) x.clear();
    <loop>
    <store>""",
    pieces={
        "two": "for (int s = 0; s < 2; ++s) tile[s].mma(a + (2 * t + s) * kA, b + (2 * t + s) * kB);",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile[0].d[i] + tile[1].d[i];",
    },
)
classes(
    "object_by_reference",
    PLAIN
    + """
__device__ void bump(Tile& x) { x.d[0] += 1.f; }""",
    """Tile tile;
    tile.clear();
    <loop>
    bump(tile);
    <store>""",
    want=ONE,
)
classes(
    "lambda_in_method",
    PLAIN.replace(
        "};",
        """    __device__ void bump() {
        auto f = [this] { d[0] += 1.f; };
        f();
    }
};""",
    ),
    """Tile tile;
    tile.clear();
    <loop>
    tile.bump();
    <store>""",
    want=ONE,
)
classes(
    "method_overloads",
    PLAIN.replace(
        "};",
        """    __device__ void add(int i) { d[i] += 1.f; }
    __device__ void add(float f) { d[1] += f; }
};""",
    ),
    """Tile tile;
    tile.clear();
    <loop>
    tile.add(0);
    tile.add(4.f);
    <store>""",
    want=plus({0: 1, 1: 4}),
)
classes(
    "method_in_loop",
    PLAIN.replace(
        "};",
        """    __device__ void bump(int i = 0) { d[i] += 1.f; }
};""",
    ),
    """Tile tile;
    tile.clear();
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        tile.bump();
    }
    <store>""",
    want=plus({0: 3}),
)
classes(
    "member_of_object_with_operands",
    """struct Tile {
    uint64_t a, b;
    float d[16];
    __device__ Tile(uint64_t a_, uint64_t b_) : a(a_), b(b_) { <clear> }
    __device__ __forceinline__ void mma(int s) { issue(a + s * kA, b + s * kB); }
    __device__ __forceinline__ void issue(uint64_t a, uint64_t b) {
    <mma>
    }
};""",
    """Tile tile(a, b);
    <loop>
    <store>""",
    pieces={
        "two": """tile.mma(2 * t);
        tile.mma(2 * t + 1);"""
    },
)
classes(
    "scope_guard_waits",
    PLAIN
    + """
struct Batch {
    __device__ Batch() { fence(); }
    __device__ ~Batch() {
        commit();
        wait<0>();
    }
};""",
    pieces={
        "multiply": """{
            Batch batch;
            <two>
        }"""
    },
)
classes(
    "final_and_const",
    PLAIN.replace("struct Tile {", "struct Tile final {").replace(
        "};",
        """    __device__ const float& get(int i) const noexcept { return d[i]; }
};""",
    ),
    pieces={
        "store": """const Tile& seen = tile;
    for (int i = 0; i < 16; ++i) c[at(i)] = seen.get(i);"""
    },
)
