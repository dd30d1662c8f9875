# SPDX-License-Identifier: Apache-2.0
"""Ports whose names need C++'s rules: namespaces, classes of one name, bases, recursion, deep calls."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kernels import LOOP, STORE, SYNC, kernel, port_text, ported, refused, wrapper


def in_namespace(name: str, n: int) -> str:
    """A kernel with its helpers in a namespace."""
    registers = n // 2
    store = STORE.replace("8", str(registers))
    return f"""namespace {name} {{
{SYNC}{wrapper(n)}
__global__ void __launch_bounds__(128) kernel_{name}(float* out, uint64_t a, uint64_t b, int steps) {{
    float acc[{registers}] = {{0}};
{LOOP}{store}}}
}}
"""


def with_class(name: str, n: int, derived: str = "", type_name: str = "Tile") -> str:
    """A kernel in a namespace whose accumulator is a member of class `Tile`."""
    registers = n // 2
    asm = wrapper(n, parameter="").split("asm volatile")[1].rsplit("}", 1)[0]
    return f"""namespace {name} {{
{SYNC}
struct Tile {{
    float d[{registers}];
    __device__ void clear() {{ for (int i = 0; i < {registers}; ++i) d[i] = 0.f; }}
    __device__ void step(uint64_t a, uint64_t b) {{ asm volatile{asm} }}
}};
{derived}
__global__ void __launch_bounds__(128) kernel_{name}(float* out, uint64_t a, uint64_t b, int steps) {{
    {type_name} t;
    t.clear();
    for (int k = 0; k < steps; ++k) {{ arrive(); t.step(a, b); commit(); wait<0>(); }}
    for (int i = 0; i < {registers}; ++i) out[threadIdx.x * {registers} + i] = t.d[i];
}}
}}
"""


@pytest.mark.parametrize("sizes", [(16, 16), (16, 32), (32, 16), (64, 128)])
def test_two_kernels_in_two_namespaces(sizes: tuple[int, int], tmp_path: Path) -> None:
    one, two = sizes
    text = ported(tmp_path, "#include <cstdint>\n" + in_namespace("one", one) + in_namespace("two", two))
    first, second = text.split("namespace two {")
    assert f"Tmem<{one}, 1>" in first
    assert f"Tmem<{two}, 1>" in second


@pytest.mark.parametrize("sizes", [(16, 16), (16, 32), (32, 16), (64, 128)])
def test_two_classes_of_one_name(sizes: tuple[int, int], tmp_path: Path) -> None:
    one, two = sizes
    text = ported(tmp_path, "#include <cstdint>\n" + with_class("one", one) + with_class("two", two))
    first, second = text.split("namespace two {")
    for part, n in ((first, one), (second, two)):
        assert part.count("tcgen05::Accumulator d_tmem;") == 1
        assert f"Tmem<{n}, 1>" in part
        assert "t.load_d();" in part


DERIVED = [
    ("struct Sub : Tile {};", "Sub"),
    ("struct Sub : public Tile { int extra; };", "Sub"),
    ("struct Mid : Tile {}; struct Sub : Mid {};", "Sub"),
    ("template <int N> struct Sub : Tile {};", "Sub<3>"),
    ("struct Sub : Tile { __device__ void step(uint64_t a, uint64_t b) { Tile::step(a, b); } };", "Sub"),
    ("using Sub = Tile;", "Sub"),
    ("typedef Tile Sub;", "Sub"),
    ("namespace inner { struct Sub : Tile {}; } using inner::Sub;", "Sub"),
    ("struct Sub : one::Tile {};", "one::Sub"),
    ("template <class B> struct Sub : B {};", "Sub<Tile>"),
]


@pytest.mark.parametrize(("derived", "name"), DERIVED)
def test_inherited_accumulators(derived: str, name: str, tmp_path: Path) -> None:
    result = port_text(tmp_path, "#include <cstdint>\n" + with_class("one", 16, derived, name))
    text = result.files[result.sources.root].decode()
    if int(result.exit_code) == 0:
        assert text.count("tcgen05::Accumulator d_tmem;") == 1
        assert "t.d_tmem.address = tc.tmem;" in text
        assert "t.load_d();" in text
    else:
        # the base is a template argument: the object is not known to hold the accumulator
        assert name == "Sub<Tile>"
        assert not result.changed


HIDDEN = """{
  public:
    __device__ void go(uint64_t a, uint64_t b) { step(a, b); }
    __device__ float at(int i) { return d[i]; }
};"""


@pytest.mark.parametrize("base", ["class Sub : Tile", "struct Sub : private Tile", "struct Sub : protected Tile"])
def test_bases_that_the_kernel_cannot_reach(base: str, tmp_path: Path) -> None:
    """The port would name the tile of an object whose members only its own class may name."""
    text = with_class("one", 16, f"{base} {HIDDEN}", "Sub").replace("t.clear();", "").replace("t.step", "t.go")
    assert refused(tmp_path, "#include <cstdint>\n" + text.replace("t.d[i]", "t.at(i)"))


def test_object_that_is_not_found_is_refused(tmp_path: Path) -> None:
    text = "#include <cstdint>\n" + with_class("one", 16).replace("    Tile t;\n", "    OF(Tile, t)\n")
    assert any("was not found" in d or "not ported" in d for d in refused(tmp_path, text))


PARAMETERS = ["float d[][8]", "float (*d)[8]", "float (&d)[2][8]", "float d[2][8]", "float (*const d)[8]"]


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_arrays_of_tiles_as_parameters(parameter: str, tmp_path: Path) -> None:
    step = f"__device__ void both({parameter}, uint64_t a, uint64_t b) {{ mma(d[0], a, b); mma(d[1], a + 64, b); }}\n"
    loop = "for (int k = 0; k < steps; ++k) { arrive(); both(acc, a, b); commit(); wait<0>(); }\n"
    store = "for (int m = 0; m < 2; ++m) for (int i = 0; i < 8; ++i) out[m * 8 + i] = acc[m][i];\n"
    text = ported(tmp_path, kernel("float acc[2][8] = {};\n" + loop + store, before=step))
    assert "tcgen05::Accumulator acc_tmem[2];" in text
    shape = "d[], " if "][]" in parameter or "[][8]" in parameter or "*" in parameter else "(&d)[2], "
    assert f"both(tcgen05::Accumulator {shape}" in text


STEPS = [
    "template <int J> __device__ void step(F, U a, U b) {"
    " mma(d, a + J, b); if constexpr (J + 1 < 4) step<J + 1>(d, a, b); }",
    "template <int J> __device__ void step(F, U a, U b) {"
    " if constexpr (J < 4) { mma(d, a, b); step<J + 1>(d, a, b); } }",
    "template <int J> __device__ void step(F, U a, U b) {"
    " if constexpr (J < 4) { step<J + 1>(d, a, b); mma(d, a, b); } }",
    "template <int J> __device__ void step(F, U a, U b) { mma(d, a, b); if constexpr (J < kN) step<J + 1>(d, a, b); }",
    "template <int J> __device__ void step(F, U a, U b) { mma(d, a, b); if (a < b) step<J>(d, a + 1, b); }",
    "template <int J> __device__ void step(F, U a, U b);\n"
    "template <int J> __device__ void other(F, U a, U b) { if constexpr (J < 3) step<J + 1>(d, a, b); }\n"
    "template <int J> __device__ void step(F, U a, U b) { mma(d, a, b); other<J>(d, a, b); }",
    "template <int J> __device__ void step(F, U a, U b) { mma(d, a, b); if constexpr (J > -4) step<J - 1>(d, a, b); }",
    "template <int J> __device__ void step(F, U a, U b) {"
    " mma(d, a, b); if constexpr (!(J == 3)) step<J + 1>(d, a, b); }",
    "template <int J, int N = 4> __device__ void step(F, U a, U b) {"
    " mma(d, a, b); if constexpr (J + 1 < N) step<J + 1, N>(d, a, b); }",
    "template <int J> __device__ void step(F, U a, U b) {"
    " mma(d, a, b); if constexpr (J < 64) { step<J * 2 + 1>(d, a, b); step<J * 2 + 2>(d, a, b); } }",
]


@pytest.mark.parametrize("step", STEPS)
def test_recursive_templates(step: str, tmp_path: Path) -> None:
    before = "constexpr int kN = 5;\n" + step.replace("F,", "float (&d)[8],").replace("U ", "uint64_t ") + "\n"
    loop = "for (int k = 0; k < steps; ++k) { arrive(); step<0>(acc, a, b); commit(); wait<0>(); }\n"
    text = ported(tmp_path, kernel("float acc[8] = {0};\n" + loop + STORE, before=before))
    assert "step<0>(acc_tmem, a, b);" in text


def chain(levels: int, calls: int, template: bool) -> str:
    """Helpers of which each calls the one before several times."""
    head = "template <int T> " if template else ""
    given = "<T>" if template else ""
    signature = "(float (&d)[8], uint64_t a, uint64_t b)"
    text = f"{head}__device__ void f0{signature} {{ mma(d, a, b); }}\n"
    for level in range(1, levels + 1):
        text += f"{head}__device__ void f{level}{signature} {{ {f'f{level - 1}{given}(d, a, b); ' * calls}}}\n"
    return text


@pytest.mark.parametrize(("levels", "calls"), [(12, 2), (30, 2), (8, 5), (35, 3), (38, 1)])
@pytest.mark.parametrize("template", [False, True])
def test_calls_in_calls_end(levels: int, calls: int, template: bool, tmp_path: Path) -> None:
    given = "<1>" if template else ""
    loop = f"for (int k = 0; k < steps; ++k) {{ arrive(); f{levels}{given}(acc, a, b); commit(); wait<0>(); }}\n"
    text = kernel("float acc[8] = {0};\n" + loop + STORE, before=chain(levels, calls, template))
    start = time.perf_counter()
    assert f"f{levels}{given}(acc_tmem, a, b);" in ported(tmp_path, text)
    assert time.perf_counter() - start < 20


def test_calls_too_deep_are_refused(tmp_path: Path) -> None:
    loop = "for (int k = 0; k < steps; ++k) { arrive(); f60(acc, a, b); commit(); wait<0>(); }\n"
    text = kernel("float acc[8] = {0};\n" + loop + STORE, before=chain(60, 1, False))
    assert any("nest too deep" in d for d in refused(tmp_path, text))


OTHERS = [
    "other::warpgroup_arrive();",
    "mine::warpgroup_arrive();",
    "::other::warpgroup_arrive();",
    "Sync::warpgroup_arrive();",
    "object.warpgroup_arrive();",
    "pointer->warpgroup_arrive();",
    "o::warpgroup_arrive();",
]


@pytest.mark.parametrize("call", OTHERS)
def test_functions_of_others_are_not_those_of_cute(call: str, tmp_path: Path) -> None:
    before = "namespace o = other;\nnamespace mine { __device__ void warpgroup_arrive() {} }\n"
    body = LOOP.replace("arrive();", "arrive(); " + call)
    text = ported(tmp_path, kernel("float acc[8] = {0};\n" + body + STORE, before=before))
    assert call in text


@pytest.mark.parametrize("call", ["cute::warpgroup_arrive();", "::cute::warpgroup_arrive();", "c::warpgroup_arrive();"])
def test_functions_of_cute_are(call: str, tmp_path: Path) -> None:
    body = LOOP.replace("arrive();", call)
    text = ported(tmp_path, kernel("float acc[8] = {0};\n" + body + STORE, before="namespace c = cute;\n"))
    assert call not in text


MEMSET = "memset(acc, 0, sizeof(acc));"


def _each_turn(statement: str, before: str = "") -> str:
    loop = LOOP.replace("arrive();", f"{statement}\n        arrive();")
    return kernel("    float acc[8] = {0};\n" + loop + STORE, before=before)


def _moves_back(tmp_path: Path, text: str) -> bool:
    """Whether the port takes what the registers hold into the tile again."""
    result = ported(tmp_path, text)
    main = result[result.index("__global__") :]
    return "store(acc" in main or "to_registers(acc" in main


@pytest.mark.parametrize(
    ("call", "before"),
    [
        (MEMSET, ""),
        (f"std::{MEMSET}", ""),
        (f"::{MEMSET}", ""),
        (f"::std::{MEMSET}", ""),
        (MEMSET, "using std::memset;\n"),
        (f"s::{MEMSET}", "namespace s = std;\n"),
    ],
)
def test_a_function_of_the_language_zeroes(tmp_path: Path, call: str, before: str) -> None:
    text = ported(tmp_path, _each_turn(call, before))
    assert "memset" not in text[text.index("__global__") :]


@pytest.mark.parametrize(
    ("call", "before"),
    [
        (f"other::{MEMSET}", ""),
        (f"other::std::{MEMSET}", ""),
        (MEMSET, "using other::memset;\n"),
        (MEMSET, "__device__ void memset(float* p, int x, int n);\n"),
        (MEMSET, "__device__ void memset(float (&d)[8], int x, int n) { d[0] = x; }\n"),
        (MEMSET, "#define memset(p, x, n) p[0] = 1.f\n"),
        (f"o::{MEMSET}", "namespace o = other;\n"),
        (f"object.{MEMSET}", "extern __device__ Hidden object;\n"),
    ],
)
def test_a_function_of_its_name_does_not(tmp_path: Path, call: str, before: str) -> None:
    assert call in ported(tmp_path, _each_turn(call, before))
    assert _moves_back(tmp_path, _each_turn(call, before))


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        ("out[k] = exp(acc[0]);", False),
        ("out[k] = std::max(acc[0], 1.f);", False),
        ("out[k] = __expf(acc[0]);", False),
        ("other::exp(acc[0]);", True),
        ("other::max(acc[0], 1.f);", True),
        ("other::__swap(acc[0], acc[1]);", True),
        ("object.exp(acc[0]);", True),
        ("object->max(acc[0], 1.f);", True),
        ("own::exp(acc[0]);", True),
    ],
)
def test_a_function_that_is_not_known_may_change_registers(tmp_path: Path, call: str, changes: bool) -> None:
    before = "extern __device__ Hidden object;\nnamespace own { __device__ void exp(float& x) { x = 1.f; } }\n"
    assert _moves_back(tmp_path, _each_turn(call, before)) == changes
