# SPDX-License-Identifier: Apache-2.0
"""Classes that hold the registers or issue the MMAs, and names that need C++'s rules to be found."""

from __future__ import annotations

from functools import partial

from variant_template import HEAD, SYNC, TILE, asm, file, kernel, registers, variant, whole, wrapper
from variant_types import plus, then

put = partial(variant, axis="class")
ONE = plus({0: 1})
MMA = asm(registers("d", 16))
USED = {
    "declare": "Tile tile;",
    "two": "tile.mma(a + 2 * t * kA, b + 2 * t * kB);\n        tile.mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.d[i];",
}
CLEAR = "for (int i = 0; i < 16; ++i) d[i] = 0.f;"


def classes(name: str, types: str, body: str = "Tile tile;\n    tile.clear();\n    <loop>\n    <store>", **more: object) -> None:
    """A variant whose registers are the member `d` of a `Tile`."""
    types = types.replace("<mma>", MMA).replace("<clear>", CLEAR)
    pieces = {**USED, **more.pop("pieces", {})}  # type: ignore[dict-item]
    put(name, body, mma=f"\n{types}\n", pieces=pieces, **more)  # type: ignore[arg-type]


MEMBERS = """    __device__ __forceinline__ void clear() { <clear> }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    <mma>
    }
"""
PLAIN = f"struct Tile {{\n    float d[16];\n{MEMBERS}}};"
classes("members", PLAIN)
classes("member_changed_outside", PLAIN, "Tile tile;\n    tile.clear();\n    <loop>\n    tile.d[0] += 1.f;\n    <store>", want=ONE)
classes("member_initialised", PLAIN.replace("float d[16];", "float d[16] = {};"), "Tile tile;\n    <loop>\n    <store>")
classes("constructor_clears", PLAIN.replace("    __device__ __forceinline__ void clear", "    __device__ Tile() { clear(); }\n    __device__ __forceinline__ void clear"), "Tile tile;\n    <loop>\n    <store>")
classes("constructor_list", PLAIN.replace("    __device__ __forceinline__ void clear", "    __device__ Tile() : d{} {}\n    __device__ __forceinline__ void clear"), "Tile tile;\n    <loop>\n    <store>")
classes("private_members", f"""class Tile {{
    float d[16];
  public:
{MEMBERS}    __device__ float get(int i) const {{ return d[i]; }}
    __device__ void set(int i, float x) {{ d[i] = x; }}
}};""", "Tile tile;\n    tile.clear();\n    <loop>\n    tile.set(0, tile.get(0) + 1.f);\n    <store>", pieces={"store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.get(i);"}, want=ONE)  # fmt: skip
classes("inherited_member", f"struct Base {{ float d[16]; }};\nstruct Tile : Base {{\n{MEMBERS}}};")
classes("inherited_member_changed", f"struct Base {{\n    float d[16];\n    __device__ void bump() {{ d[0] += 1.f; }}\n}};\nstruct Tile : Base {{\n{MEMBERS}}};", "Tile tile;\n    tile.clear();\n    <loop>\n    tile.bump();\n    <store>", want=ONE)
classes("inherited_methods", f"struct Base {{\n    float d[16];\n{MEMBERS}}};\nstruct Tile : Base {{ int unused; }};")
classes("inherited_twice", f"struct Root {{ float d[16]; }};\nstruct Base : Root {{ }};\nstruct Tile : Base {{\n{MEMBERS}}};")
classes("inherited_from_template", f"template <int R>\nstruct Base {{ float d[R]; }};\nstruct Tile : Base<16> {{\n{MEMBERS}}};")
classes("inherited_dependent", f"template <int K>\nstruct Base {{ float d[K]; }};\ntemplate <int K>\nstruct Of : Base<K> {{\n    using Base<K>::d;\n{MEMBERS}}};\nusing Tile = Of<16>;")
classes("inherited_through_this", "template <int K>\nstruct Base { float d[K]; };\ntemplate <int K>\nstruct Of : Base<K> {\n" + MEMBERS.replace("<clear>", CLEAR.replace("d[i]", "this->d[i]")).replace("<mma>", asm(registers("this->d", 16))) + "};\nusing Tile = Of<16>;")
classes("two_bases", f"struct Counter {{ int turns = 0; }};\nstruct Base {{ float d[16]; }};\nstruct Tile : Counter, Base {{\n{MEMBERS}}};", "Tile tile;\n    tile.clear();\n    <loop>\n    ++tile.turns;\n    tile.d[0] += tile.turns;\n    <store>", want=ONE)
classes("crtp", """template <class Self>
struct Base {
    __device__ __forceinline__ void step(uint64_t a, uint64_t b) { static_cast<Self*>(this)->mma(a, b); }
    __device__ __forceinline__ void bump() { static_cast<Self*>(this)->d[0] += 1.f; }
};
struct Tile : Base<Tile> {
    float d[16];
""" + MEMBERS + "};", "Tile tile;\n    tile.clear();\n    <loop>\n    tile.bump();\n    <store>",
    pieces={"two": "tile.step(a + 2 * t * kA, b + 2 * t * kB);\n        tile.step(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"}, want=ONE)  # fmt: skip
classes("index_operator", PLAIN.replace("};", "    __device__ float& operator[](int i) { return d[i]; }\n};"), "Tile tile;\n    tile.clear();\n    <loop>\n    tile[0] += 1.f;\n    <store>", pieces={"store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile[i];"}, want=ONE)
classes("call_operator_multiplies", PLAIN.replace("void mma(", "void operator()("), pieces={"two": "tile(a + 2 * t * kA, b + 2 * t * kB);\n        tile(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})
classes("chained_methods", PLAIN.replace("void clear() { <clear> }", "Tile& clear() { <clear> return *this; }").replace("void mma(uint64_t a, uint64_t b) {\n    <mma>", "Tile& mma(uint64_t a, uint64_t b) {\n    <mma>\n    return *this;"), pieces={"two": "tile.mma(a + 2 * t * kA, b + 2 * t * kB).mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})
classes("defined_outside", "struct Tile {\n    float d[16];\n    __device__ void clear();\n    __device__ void mma(uint64_t a, uint64_t b);\n};\n__device__ __forceinline__ void Tile::clear() { <clear> }\n__device__ __forceinline__ void Tile::mma(uint64_t a, uint64_t b) {\n    <mma>\n}")
classes("static_members", f"struct Tile {{\n    float d[16];\n{MEMBERS}    static __device__ void sync() {{ wait<0>(); }}\n    static __device__ void begin() {{ fence(); }}\n}};", pieces={"batch": "Tile::begin();\n        <two>\n        commit();", "multiply": "<batch>\n        Tile::sync();"})
classes("synchronising_methods", f"struct Tile {{\n    float d[16];\n{MEMBERS}    __device__ void begin() {{ fence(); }}\n    __device__ void end() {{\n        commit();\n        wait<0>();\n    }}\n}};", pieces={"multiply": "tile.begin();\n        <two>\n        tile.end();"})
classes("nested_class", f"struct Outer {{\n    struct Inner {{\n    float d[16];\n{MEMBERS}    }};\n    Inner inner;\n}};", "Outer outer;\n    Outer::Inner& tile = outer.inner;\n    tile.clear();\n    <loop>\n    <store>")
classes("nested_class_used_directly", f"struct Outer {{\n    struct Inner {{\n    float d[16];\n{MEMBERS}    }};\n    Inner tile;\n}};", "Outer outer;\n    outer.tile.clear();\n    <loop>\n    <store>", pieces={"two": USED["two"].replace("tile.mma", "outer.tile.mma"), "store": USED["store"].replace("tile.d", "outer.tile.d")})
classes("local_class", "", f"{PLAIN}\n    Tile tile;\n    tile.clear();\n    <loop>\n    <store>".replace("<mma>", MMA).replace("<clear>", CLEAR))
classes("class_template", f"template <int R>\nstruct Tile {{\n    float d[R];\n{MEMBERS}}};", "Tile<16> tile;\n    tile.clear();\n    <loop>\n    <store>")
classes("member_template", PLAIN.replace("    __device__ __forceinline__ void mma(", "    template <int S>\n    __device__ void step(uint64_t a, uint64_t b) { mma(a + S * kA, b + S * kB); }\n    __device__ __forceinline__ void mma("), pieces={"two": "tile.step<0>(a + 2 * t * kA, b + 2 * t * kB);\n        tile.template step<1>(a + 2 * t * kA, b + 2 * t * kB);"})
classes("whole_loop_method", PLAIN.replace("};", """    __device__ void multiply(uint64_t a, uint64_t b, int tiles) {
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
};"""), "Tile tile;\n    tile.clear();\n    tile.multiply(a, b, tiles);\n    tile.store(c);")  # fmt: skip
classes("two_objects", PLAIN, "Tile tile, other;\n    tile.clear();\n    other.clear();\n    <loop>\n    <store>", pieces={"two": "tile.mma(a + 2 * t * kA, b + 2 * t * kB);\n        other.mma(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);", "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile.d[i] + other.d[i];"})
classes("array_of_objects", PLAIN, "Tile tile[2];\n    for (Tile& x : tile) x.clear();\n    <loop>\n    <store>", pieces={"two": "for (int s = 0; s < 2; ++s) tile[s].mma(a + (2 * t + s) * kA, b + (2 * t + s) * kB);", "store": "for (int i = 0; i < 16; ++i) c[at(i)] = tile[0].d[i] + tile[1].d[i];"})
classes("object_by_reference", PLAIN + "\n__device__ void bump(Tile& x) { x.d[0] += 1.f; }", "Tile tile;\n    tile.clear();\n    <loop>\n    bump(tile);\n    <store>", want=ONE)
classes("lambda_in_method", PLAIN.replace("};", "    __device__ void bump() {\n        auto f = [this] { d[0] += 1.f; };\n        f();\n    }\n};"), "Tile tile;\n    tile.clear();\n    <loop>\n    tile.bump();\n    <store>", want=ONE)
classes("method_overloads", PLAIN.replace("};", "    __device__ void add(int i) { d[i] += 1.f; }\n    __device__ void add(float f) { d[1] += f; }\n};"), "Tile tile;\n    tile.clear();\n    <loop>\n    tile.add(0);\n    tile.add(4.f);\n    <store>", want=plus({0: 1, 1: 4}))
classes("method_in_loop", PLAIN.replace("};", "    __device__ void bump(int i = 0) { d[i] += 1.f; }\n};"), "Tile tile;\n    tile.clear();\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        tile.bump();\n    }\n    <store>", want=plus({0: 3}))
classes("member_of_object_with_operands", """struct Tile {
    uint64_t a, b;
    float d[16];
    __device__ Tile(uint64_t a_, uint64_t b_) : a(a_), b(b_) { <clear> }
    __device__ __forceinline__ void mma(int s) { issue(a + s * kA, b + s * kB); }
    __device__ __forceinline__ void issue(uint64_t a, uint64_t b) {
    <mma>
    }
};""", "Tile tile(a, b);\n    <loop>\n    <store>", pieces={"two": "tile.mma(2 * t);\n        tile.mma(2 * t + 1);"})  # fmt: skip
classes("scope_guard_waits", PLAIN + "\nstruct Batch {\n    __device__ Batch() { fence(); }\n    __device__ ~Batch() {\n        commit();\n        wait<0>();\n    }\n};", pieces={"multiply": "{\n            Batch batch;\n            <two>\n        }"})
classes("final_and_const", PLAIN.replace("struct Tile {", "struct Tile final {").replace("};", "    __device__ const float& get(int i) const noexcept { return d[i]; }\n};"), pieces={"store": "const Tile& seen = tile;\n    for (int i = 0; i < 16; ++i) c[at(i)] = seen.get(i);"})

# --- Names

put = partial(variant, axis="name")
DONE = "<declare>\n    <loop>\n    <store>"
W = wrapper()
put("namespaces_same_names", DONE, types="\nnamespace other {\n__device__ void fence() {}\n__device__ void commit() {}\ntemplate <int N>\n__device__ void wait() {}\n__device__ void mma(float (&d)[16], uint64_t a, uint64_t b) { d[0] = a < b; }\n}\n")
put("namespaces_chosen", DONE, sync="namespace nothing {\n__device__ void commit() {}\ntemplate <int N>\n__device__ void wait() {}\n}\nnamespace real {\n" + SYNC + "}\n",
    pieces={"batch": "real::fence();\n        <two>\n        nothing::commit();\n        real::commit();", "multiply": "<batch>\n        nothing::wait<0>();\n        real::wait<0>();"})  # fmt: skip
put("namespaces_both_real", DONE, sync=f"namespace one {{\n{SYNC}}}\nnamespace two {{\n{SYNC}}}\n",
    pieces={"batch": "one::fence();\n        <two>\n        two::commit();", "multiply": "<batch>\n        one::wait<0>();"})  # fmt: skip
put("namespace_using_directive", "using namespace wg;\n    <declare>\n    <loop>\n    <store>", sync=f"namespace wg {{\n{SYNC}}}\n")
put("namespace_using_declaration", "using wg::fence, wg::commit, wg::wait;\n    <declare>\n    <loop>\n    <store>", sync=f"namespace wg {{\n{SYNC}}}\n")
put("namespace_using_at_file", DONE, sync=f"namespace wg {{\n{SYNC}}}\nusing namespace wg;\n")
put("namespace_alias", DONE, sync=f"namespace hopper {{ namespace wgmma {{\n{SYNC}}} }}\nnamespace wg = hopper::wgmma;\n", pieces={"batch": "wg::fence();\n        <two>\n        wg::commit();", "multiply": "<batch>\n        wg::wait<0>();"})
put("namespace_nested", DONE, sync=f"namespace hopper::wgmma {{\n{SYNC}}}\n", pieces={"batch": "hopper::wgmma::fence();\n        <two>\n        hopper::wgmma::commit();", "multiply": "<batch>\n        hopper::wgmma::wait<0>();"})
put("namespace_anonymous", DONE, sync=f"namespace {{\n{SYNC}}}\n", mma=f"namespace {{{W}}}\n")
put("namespace_inline", DONE, sync=f"namespace wg {{ inline namespace v1 {{\n{SYNC}}} }}\n", pieces={"batch": "wg::fence();\n        <two>\n        wg::commit();", "multiply": "<batch>\n        wg::v1::wait<0>();"})
put("namespace_of_kernel", DONE, before="namespace gemm {\n", after="}\n")
put("namespace_reopened", DONE, sync=f"namespace wg {{\n{SYNC.splitlines()[0]}\n}}\nnamespace wg {{\n" + "\n".join(SYNC.splitlines()[1:]) + "\n}\n", pieces={"batch": "wg::fence();\n        <two>\n        wg::commit();", "multiply": "<batch>\n        wg::wait<0>();"})
put("namespace_global_qualified", DONE, types="\nnamespace local {\n__device__ void fence() {}\n}\n", pieces={"batch": "local::fence();\n        ::fence();\n        <two>\n        ::commit();", "multiply": "<batch>\n        ::wait<0>();"})
put("argument_dependent_lookup", DONE, mma="\nnamespace tiles_ns {\nstruct Tile { float d[16]; };\n__device__ __forceinline__ void mma(Tile& x, uint64_t a, uint64_t b) {\n    " + asm(registers("x.d", 16)) + "\n}\n}\n",
    pieces={"declare": "tiles_ns::Tile x;\n    for (float& v : x.d) v = 0.f;", "two": "mma(x, a + 2 * t * kA, b + 2 * t * kB);\n        mma(x, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);", "store": "for (int i = 0; i < 16; ++i) c[at(i)] = x.d[i];"})  # fmt: skip
put("overload_of_extent_used", "<declare>\n    float e[8];\n    for (float& x : e) x = 0.f;\n    for (int t = 0; t < tiles; ++t) {\n        fence();\n        <two>\n        mma(e, a + 2 * t * kA, b + 2 * t * kB);\n        commit();\n        wait<0>();\n    }\n    d[0] += e[0] - e[0];\n    <store>", types=wrapper(16))
put("overload_by_count", DONE, mma=W + "\n__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int s) { mma(d, a + s * kA, b + s * kB); }\n", pieces={"two": "mma(d, a, b, 2 * t);\n        mma(d, a, b, 2 * t + 1);"})
put("overload_by_type", DONE, types="\nstruct Step { int s; };\n__device__ __forceinline__ void mma(float (&d)[16], Step s, uint64_t a, uint64_t b) { mma(d, a + s.s * kA, b + s.s * kB); }\n__device__ __forceinline__ void mma(float (&d)[16], float, uint64_t, uint64_t) { d[0] = 1.f; }\n", pieces={"two": "mma(d, Step{2 * t}, a, b);\n        mma(d, Step{2 * t + 1}, a, b);"})
put("overload_of_template_and_function", DONE, types="\ntemplate <class T>\n__device__ void commit(T) {}\n__device__ void wait(int) {}\n", pieces={"multiply": "<batch>\n        commit(3);\n        wait(0);\n        wait<0>();"})
put("default_function_argument", DONE, mma="\n__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate = 1) {\n    " + asm(registers("d", 16), flag="accumulate") + "\n}\n")
put("local_shadows_function", "<declare>\n    {\n        auto mma = [](int x) { return x + 1; };\n        if (mma(tiles) == 99) return;\n    }\n    <loop>\n    <store>")
put("method_shadows_function", DONE, types="\nstruct Other {\n    __device__ void commit() {}\n    __device__ void fence() {}\n};\n", pieces={"multiply": "Other other;\n        other.fence();\n        <batch>\n        other.commit();\n        wait<0>();"})
put("static_method_same_name", DONE, types="\nstruct Wgmma {\n    static __device__ void fence() { ::fence(); }\n    static __device__ void commit() { ::commit(); }\n    template <int N>\n    static __device__ void wait() { ::wait<N>(); }\n};\n", pieces={"multiply": "Wgmma::fence();\n        <two>\n        Wgmma::commit();\n        Wgmma::wait<0>();"})
put("function_alias", "constexpr auto multiply = mma;\n    <declare>\n    <loop>\n    <store>", pieces={"two": "multiply(d, a + 2 * t * kA, b + 2 * t * kB);\n        multiply(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})
put("declared_before_defined", DONE, mma="\n__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b);\n", after=W)
put("unused_class_same_method", DONE, types="\nstruct Unused {\n    float d[4];\n    __device__ void mma(float (&x)[16], uint64_t a, uint64_t b) { x[0] = a + b; }\n};\n")
put("inner_scope_sizeof", "<declare>\n    {\n        float x[4] = {1.f, 2.f, 3.f, 4.f};\n        for (unsigned i = 0; i < sizeof(x) / sizeof(x[0]); ++i) d[i] += x[i];\n    }\n    <loop>\n    <store>", want=plus({0: 1, 1: 2, 2: 3, 3: 4}))
put("inner_scope_same_name", "<declare>\n    <loop>\n    {\n        float d[4] = {};\n        d[0] += 5.f;\n        if (d[0] < 0.f) return;\n    }\n    <store>")
put("inner_scope_accumulator", "float s[16] = {};\n    for (int t = 0; t < tiles; ++t) {\n        <declare>\n        <multiply>\n        for (int i = 0; i < 16; ++i) s[i] += d[i];\n    }\n    for (int i = 0; i < 16; ++i) c[at(i)] = s[i];")
put("keywords_as_parts", "float d_[16], d0[16], d[16];\n    <zero>\n    for (int i = 0; i < 16; ++i) d_[i] = d0[i] = float(i);\n    <loop>\n    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + d_[i] - d0[i];")

TWO_CLASSES = """
namespace one {
struct Tile {
    float d[16];
    __device__ __forceinline__ void clear() { for (float& x : d) x = 0.f; }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    """ + MMA + """
    }
};
}
namespace two {
struct Tile {
    float d[16];
    __device__ __forceinline__ void clear() { for (float& x : d) x = 1.f; }
    __device__ __forceinline__ void mma(uint64_t a, uint64_t b) {
    """ + MMA + """
    }
};
}
"""  # fmt: skip
OBJECT = "%s tile;\n    tile.clear();\n    <loop>\n    <store>"
for fill, first, second in (("both", "one", "two"),):
    whole(f"classes_of_one_name_{fill}", "".join([HEAD, SYNC, TILE.replace("<N>", "32"), TWO_CLASSES] + [
        kernel((OBJECT % f"{ns}::Tile").replace("<loop>", "for (int t = 0; t < tiles; ++t) {\n        fence();\n        " + USED["two"] + "\n        commit();\n        wait<0>();\n    }").replace("<store>", USED["store"]), name=f"kernel_{ns}") for ns in (first, second)]),
        axis="name", wants={"kernel_two": then(lambda d: d.__iadd__(1))})  # fmt: skip
whole("classes_of_one_name_one_used", "".join([HEAD, SYNC, TILE.replace("<N>", "32"), TWO_CLASSES,
    kernel((OBJECT % "two::Tile").replace("<loop>", "for (int t = 0; t < tiles; ++t) {\n        fence();\n        " + USED["two"] + "\n        commit();\n        wait<0>();\n    }").replace("<store>", USED["store"]))]),
    axis="name", want=then(lambda d: d.__iadd__(1)))  # fmt: skip
whole("kernels_in_two_namespaces", HEAD + "".join(f"namespace {ns} {{\n{SYNC}{TILE.replace('<N>', '32')}{W}{kernel(DONE)}}}\n" for ns in ("one", "two")), axis="name")
whole("kernels_of_one_name_sharing_helpers", file("".join(f"namespace {ns} {{\n{kernel(f'<declare>{chr(10)}    <loop>{chr(10)}    d[{i}] += 1.f;{chr(10)}    <store>')}}}\n" for i, ns in enumerate(("one", "two")))), axis="name", wants={"one::": ONE, "two::": plus({1: 1})})
whole("two_kernels", file(kernel(DONE, name="first") + kernel("<declare>\n    <loop>\n    d[0] += 1.f;\n    <store>", name="second")), axis="name", wants={"second": ONE})
whole("two_kernels_different_waits", file(kernel(DONE, name="first") + kernel("<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait<2>();\n    }\n    wait<0>();\n    <store>", name="second")), axis="name")
