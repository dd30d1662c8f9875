# SPDX-License-Identifier: Apache-2.0
"""Columns of Tensor Memory: accumulators that are never live at once share them, and nothing else does. What the ports
compute is in `tests/variants/variants_columns.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import kernel, port_text, ported, refused, wrapper

STORE = "for (int i = 0; i < 8; ++i) out[i] += {0}[i];"
MMA = "arrive(); mma({0}, a, b); commit(); wait<0>();"


def block(name: str, batch: str = MMA, *, use: str = STORE, before: str = "") -> str:
    """A block with an accumulator of its own."""
    return f"{{ float {name}[8] = {{}}; {before}\n    {batch.format(name)}\n    {use.format(name)} }}\n"


def columns(port: str) -> int:
    """Columns that the kernel allocates for a warpgroup."""
    found = re.search(r"tcgen05::Tmem<(\d+), 1>", port)
    assert found is not None
    return int(found[1])


HELPER = """
__device__ void helper(float* out, uint64_t a, uint64_t b) {
    float h[8] = {};
    arrive(); mma(h, a, b); commit(); wait<0>();
    for (int i = 0; i < 8; ++i) out[i] += h[i];
}
"""
TWO = HELPER + HELPER.replace("helper", "second")
ASM = wrapper(16).split("{", 1)[1].rsplit("}", 1)[0].replace("d[", "r[")
OBJECT = f"""
struct Tile {{
    float r[8];
    __device__ void run(uint64_t a, uint64_t b) {{ arrive(); {ASM} commit(); wait<0>(); }}
    __device__ void put(float* out) {{ for (int i = 0; i < 8; ++i) out[i] += r[i]; }}
}};
"""
UNDER_WAY = "arrive(); mma({0}, a, b); commit();"
LAMBDA = "auto f = [&] {{ arrive(); mma({0}, a, b); commit(); wait<0>(); }}; f();"

SHARED = {
    "blocks": (block("d") + block("e"), ""),
    "three blocks": (block("d") + block("e") + block("d"), ""),
    "branches": (f"if (steps > 1) {block('d')} else {block('e')}", ""),
    "blocks of a loop": (f"for (int k = 0; k < steps; ++k) {{ {block('d')} {block('e')} }}", ""),
    "a second batch that only the next block waits for":
        (block("d", "arrive(); mma({0}, a, b); commit(); wait<0>();") + block("e", "arrive(); mma({0}, a, b); commit();"
         " arrive(); mma({0}, a, b); commit(); wait<1>(); wait<0>();"), ""),
    "functions": ("helper(out, a, b); second(out, a, b);", TWO),
    "a function and a block": (block("d") + "helper(out, a, b);", HELPER),
    "one function inside the other": ("second(out, a, b);", HELPER + HELPER.replace("helper", "second").replace(
        "float h[8] = {};", "{ helper(out, a, b); }\n    float h[8] = {};")),
    "objects": ("{ Tile t; t.run(a, b); t.put(out); } { Tile u; u.run(a, b); u.put(out); }", OBJECT),
    "registers that are changed": (block("d") + block("e", f"{MMA} e[0] += 1.f; {MMA}".replace("e[0]", "{0}[0]")), ""),
}  # fmt: skip
APART = {
    "cases that may be passed through":
        (f"switch (steps) {{ case 1: {block('d', UNDER_WAY, use='')} case 2: {block('e')} }}", ""),
    "one block": ("float d[8] = {}, e[8] = {}; " + MMA.format("d") + MMA.format("e") + STORE.format("d")
                  + STORE.format("e"), ""),
    "what lives around the other": ("float d[8] = {}; " + MMA.format("d") + block("e") + STORE.format("d"), ""),
    "what lives around a loop": ("float d[8] = {}; for (int k = 0; k < steps; ++k) { " + MMA.format("d") + block("e")
                                 + "} " + STORE.format("d"), ""),
    "an MMA under way": (block("d", UNDER_WAY, use="") + block("e"), ""),
    "an older MMA under way": (block("d", "arrive(); mma({0}, a, b); commit(); wait<1>();", use="") + block("e"), ""),
    "an MMA under way on one path":
        (block("d", "arrive(); mma({0}, a, b); commit(); if (steps > 3) wait<0>();", use="") + block("e"), ""),
    "an MMA under way when the loop comes round":
        (f"for (int k = 0; k < steps; ++k) {{ {block('d')} "
         f"{block('e', 'arrive(); mma({0}, a, b); commit();', use='')} }} wait<0>();", ""),
    "warps that have not met":
        (block("d") + block("e", "mma({0}, a, b); commit(); wait<0>();"), ""),
    "a pointer": ("float* p; " + block("d", before="p = d;", use="out[0] = *p;") + block("e"), ""),
    "a reference": (block("d", before="float (&r)[8] = d;", use="out[0] = r[1];") + block("e"), ""),
    "a lambda": (block("d", LAMBDA) + block("e"), ""),
    "a jump": (block("d") + "if (steps == 7) goto end;\n" + block("e") + "end: out[9] = 0.f;", ""),
    "a function that is called meanwhile": ("float d[8] = {}; " + MMA.format("d") + "helper(out, a, b); "
                                            + STORE.format("d"), HELPER),
    "a function that a function calls meanwhile": ("second(out, a, b);", HELPER + HELPER.replace(
        "helper", "second").replace("h[8] = {};", "h[8] = {};\n    helper(out, a, b);")),
    "a function that a lambda calls": (block("d") + "auto f = [&] { helper(out, a, b); }; f();", HELPER),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_accumulators_share_columns(tmp_path: Path, name: str) -> None:
    body, before = SHARED[name]
    port = ported(tmp_path, kernel(body, before=before))
    assert columns(port) == 16


@pytest.mark.parametrize("name", APART)
def test_accumulators_that_may_be_live_at_once_do_not(tmp_path: Path, name: str) -> None:
    body, before = APART[name]
    port = ported(tmp_path, kernel(body, before=before))
    assert columns(port) == 32


def test_more_columns_than_there_are_fit_one_after_the_other(tmp_path: Path) -> None:
    names = "cdefghijk"
    wide = [block(n).replace("[8]", "[64]").replace("< 8", "< 64") for n in names]
    assert columns(ported(tmp_path, kernel("".join(wide), n=128))) == 128
    declared = "".join(f"float {n}[64] = {{}}; " for n in names)
    at_once = "".join(MMA.format(n) + STORE.format(n).replace("< 8", "< 64") for n in names)
    assert "1152 Tensor Memory columns" in refused(tmp_path, kernel(declared + at_once, n=128))[0]


def test_what_lies_between_is_kept(tmp_path: Path) -> None:
    body = f"float c[8] = {{}}; {MMA.format('c')} {block('d')} {block('e')} {STORE.format('c')}"
    port = ported(tmp_path, kernel(body))
    assert columns(port) == 32
    assert "c_tmem{tc.tmem}" in port
    assert port.count("_tmem{uint32_t(tc.tmem + 16)}") == 2


SEVERAL = """
template <int T> __device__ void NAME(float* out, uint64_t a, uint64_t b) {
    float h[T][8] = {};
    arrive(); for (int t = 0; t < T; ++t) mma(h[t], a + t, b); commit(); wait<0>();
    for (int t = 0; t < T; ++t) for (int i = 0; i < 8; ++i) out[i] += h[t][i];
}
"""
INNER, OUTER = SEVERAL.replace("NAME", "inner"), SEVERAL.replace("NAME", "outer")


def test_tiles_that_the_compiler_counts_lie_behind_all_others(tmp_path: Path) -> None:
    body = f"float d[8] = {{}}; {MMA.format('d')} inner<2>(out, a, b); inner<3>(out, a, b); {STORE.format('d')}"
    port = ported(tmp_path, kernel(body, before=INNER))
    assert "tc.place(h_tmem, 16, sizeof(h[0]) / 2);" in port
    assert "d_tmem{tc.tmem}" in port


def test_tiles_that_the_compiler_counts_may_follow_each_other(tmp_path: Path) -> None:
    port = ported(tmp_path, kernel("inner<2>(out, a, b); outer<3>(out, a, b);", before=INNER + OUTER))
    assert port.count("tc.place(h_tmem, 0, sizeof(h[0]) / 2);") == 2


def test_two_numbers_that_only_the_compiler_knows_are_refused(tmp_path: Path) -> None:
    before = INNER + OUTER.replace("= {};", "= {}; inner<2>(out, a, b);", 1)
    assert "how many tiles" in refused(tmp_path, kernel("outer<3>(out, a, b);", before=before))[0]


@pytest.mark.parametrize(
    ("before", "inside", "count"),
    [
        ("constexpr int kTiles = 2;\n", "constexpr int kTiles = 3;", "kTiles"),
        ('#include "lib.h"\nusing namespace lib;\nconstexpr int kTiles = 2;\n', "", "lib::kTiles"),
        ("namespace own { constexpr int kTiles = 2; }\n", "", "other::kTiles"),
    ],
    ids=["a local constant", "a library's constant", "a constant of an unknown scope"],
)
def test_a_constant_is_not_another_of_its_name(tmp_path: Path, before: str, inside: str, count: str) -> None:
    body = f"{inside} float d[{count}][8] = {{}}; float e[8] = {{}}; arrive(); mma(d[0], a, b); mma(e, a, b); commit();"
    text = kernel(f"{body} wait<0>(); {STORE.format('d[0]')} {STORE.format('e')}", before=before)
    port = port_text(tmp_path, text)
    written = port.files[port.sources.root].decode()
    if count == "kTiles":
        assert "e_tmem{uint32_t(tc.tmem + 48)}" in written
    else:
        assert "tc.place(d_tmem, 16, sizeof(d[0]) / 2);" in written
        assert f"Tmem<16 + 16 * {count}, 1>" in written


def test_a_constant_further_down_is_none_of_what_stands_in_front(tmp_path: Path) -> None:
    body = f"{tiles('s', 'W')} constexpr int W = 1; {tiles('t', 'W')} {LIVE}".replace("q < T", "q < 1")
    port = ported(tmp_path, kernel(body, before="constexpr int W = 4;\n"))
    assert "tc.place(t_tmem, 64, sizeof(t[0]) / 2);" in port


def batch(name: str) -> str:
    return f"arrive(); for (int q = 0; q < T; ++q) mma({name}[q], a + q, b); commit(); wait<0>();\n"


def tiles(name: str, extent: str = "T") -> str:
    """An array of tiles that the compiler counts, with a batch."""
    return (
        f"float {name}[{extent}][8] = {{}};\n    {batch(name)}    for (int i = 0; i < 8; ++i) out[i] += {name}[0][i];\n"
    )


def counted(body: str, before: str = "") -> str:
    """A kernel whose tiles hang on an argument of its template."""
    head = "template <int T>\n__global__"
    return kernel(body, before=before).replace("__global__", head) + INSTANCE


INSTANCE = "template __global__ void kernel<2>(float*, uint64_t, uint64_t, int);\n"
LIVE = "for (int i = 0; i < 8; ++i) out[i] += s[0][i];"


def test_tiles_of_blocks_in_turn_that_the_compiler_counts_share_columns(tmp_path: Path) -> None:
    port = ported(
        tmp_path, counted(f"float t = 1.f; {tiles('s')} {{ {tiles('t')} }} {{ {tiles('t')} }} {LIVE} out[1] += t;")
    )
    assert "tc.place(s_tmem, 0, " in port
    assert port.count("tc.place(t_tmem, 16 * T, sizeof(t[0]) / 2);") == 2
    assert "Tmem<16 * T + 16 * T, 1>" in port


def test_of_blocks_in_turn_the_widest_counts(tmp_path: Path) -> None:
    port = ported(tmp_path, counted(f"{tiles('s')} {{ {tiles('t')} }} {{ {tiles('u', 'T + 1')} }} {LIVE}"))
    assert (
        "Tmem<((16 * T + 16 * T) > (16 * T + 16 * (T + 1)) ? (16 * T + 16 * T) : (16 * T + 16 * (T + 1))), 1>" in port
    )


@pytest.mark.parametrize(
    ("first", "second", "column"),
    [
        ("constexpr int W = T;", "constexpr int W = 1;", "16 * (T)"),
        ("", "constexpr int W = T;", "32"),
        ("using C = Count<T>; constexpr int W = C::n;", "using C = int; constexpr int W = 1;", "16 * (Count<T>::n)"),
        ("enum { W = T };", "constexpr int W = 1;", "16 * (T)"),
    ],
)  # fmt: skip
def test_a_place_is_said_in_names_that_mean_the_same_there(
    tmp_path: Path, first: str, second: str, column: str
) -> None:
    before = "template <int N> struct Count { static constexpr int n = N; };\nconstexpr int W = 2;\n"
    body = f"{first} {tiles('s', 'W')} {{ {second} {tiles('t', 'W')} }} {LIVE}"
    port = ported(tmp_path, counted(body, before))
    assert f"tc.place(t_tmem, {column}, sizeof(t[0]) / 2);" in port


@pytest.mark.parametrize("guard", ["#ifndef W\n%s#endif\n", "#if !defined(W)\n%s#endif\n"])
def test_a_number_that_the_command_line_may_give_is_no_number_of_a_port(tmp_path: Path, guard: str) -> None:
    before = guard % "#define W 2\n" + "constexpr int kTiles = W * 2;\n"
    port = ported(
        tmp_path, kernel(f"{tiles('s', 'kTiles')} {tiles('t', 'W')} {LIVE}".replace("T;", "1;"), before=before)
    )
    assert "tc.place(t_tmem, 16 * kTiles, sizeof(t[0]) / 2);" in port


def test_where_nothing_says_how_many_columns_tiles_take_they_are_refused(tmp_path: Path) -> None:
    before = "#define W T\n"
    undone = f"{{ {tiles('s', 'W')} \n#undef W\n#define W 2\n {{ float s = 1.f; {tiles('t')} out[2] = s; }} {LIVE} }}"
    said = refused(tmp_path, counted(undone, before))
    assert "PT2070" in said[0]
    assert "nothing says how many Tensor Memory columns `s` takes" in said[0]
