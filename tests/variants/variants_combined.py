# SPDX-License-Identifier: Apache-2.0
"""Kernels that combine what other modules write one at a time: every pair of choices of two axes is in one of them.

Axes are the home of the accumulator, how it reaches the MMA, the loop, what changes registers between tiles, the
epilogue, and the shape.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from variant_template import asm, registers, variant
from variant_types import Values, Want, total

COUNT = 260
"""Kernels of this module: those that cover all pairs, and further ones by the same dice."""


@dataclass(frozen=True)
class Home:
    """Where registers live: `types` before the kernel, a declaration, the array as a whole, and an element of it."""

    types: str
    declare: str
    whole: str
    element: str

    def at(self, index: str | int) -> str:
        return self.element.replace("$", str(index))


ACC = "\nstruct Acc {\n    float v[<R>];\n};\n"
HOMES = {
    "array": Home("", "float d[<R>];", "d", "d[$]"),
    "member": Home(ACC, "Acc s;", "s.v", "s.v[$]"),
    "nested": Home(
        ACC + "struct Outer {\n    int first;\n    Acc in;\n};\n", "Outer o;\n    o.first = 1;", "o.in.v", "o.in.v[$]"
    ),
    "vector": Home(
        """
template <class T, int N>
struct Vector {
    T regs[N];
    __device__ T& operator[](int i) { return regs[i]; }
};
""",
        "Vector<float, <R>> f;",
        "f.regs",
        "f[$]",
    ),
    "row": Home("", "float d[1][<R>];", "d[0]", "d[0][$]"),
    "second_row": Home("", "float d[2][<R>];\n    d[0][0] = 0.f;", "d[1]", "d[1][$]"),
    "reference": Home("", "float raw[<R>];\n    float (&d)[<R>] = raw;", "d", "d[$]"),
    "pointer_beside": Home("", "float raw[<R>];\n    float* p = raw;", "raw", "p[$]"),
    "alias": Home("\nusing Fragment = float[<R>];\n", "Fragment d;", "d", "d[$]"),
    "base": Home(ACC + "struct Derived : Acc {\n    int k = 0;\n};\n", "Derived s;", "s.v", "s.v[$]"),
    "macro": Home("\n#define ACCUMULATOR sums_of_tile\n", "float ACCUMULATOR[<R>];", "ACCUMULATOR", "ACCUMULATOR[$]"),
    "of_two": Home(ACC, "Acc s[2];\n    s[0].v[0] = 0.f;", "s[1].v", "s[1].v[$]"),
    "getter": Home(
        """
class Hidden {
    float v[<R>];

public:
    __device__ float (&get())[<R>] { return v; }
};
""",
        "Hidden h;",
        "h.get()",
        "h.get()[$]",
    ),
    "aligned": Home("\nconstexpr int kCount = <R>;\n", "alignas(16) float d[kCount];", "d", "d[$]"),
}


@dataclass(frozen=True)
class Way:
    """How registers reach the MMA: its wrapper, statements in the kernel, and a call with `$d`, `$a`, `$b`. With a
    flag, `$first` says that the product overwrites them, and nobody zeroes them."""

    text: Callable[[int, str], str]
    call: str = "mma($d, $a, $b);"
    before: str = ""
    flag: bool = False


def function(parameter: str, *, head: str = "", body: str = "<asm>", name: str = "mma") -> Callable[[int, str], str]:
    def text(count: int, kind: str) -> str:
        return (
            f"\n{head}__device__ __forceinline__ void {name}({parameter}, uint64_t a, uint64_t b) {{\n"
            f"    {body.replace('<asm>', asm(registers('d', count), kind))}\n}}\n"
        )

    return text


def _inside(struct: str, before: str) -> Callable[[int, str], str]:
    def text(count: int, kind: str) -> str:
        return f"\nstruct {struct} {{\n    {before}{function('float (&d)[<R>]')(count, kind).strip()}\n}};\n"

    return text


def _functor(count: int, kind: str) -> str:
    inner = function("float (&d)[<R>]", name="operator()")(count, kind).strip().replace("b) {", "b) const {")
    return f"\nstruct Mma {{\n    {inner}\n}};\n"


def _macro(count: int, kind: str) -> str:
    text = asm(registers("(D)", count), kind, a="(A)", b="(B)")
    return "\n#define MMA(D, A, B) " + " \\\n    ".join(text.splitlines()) + "\n"


def _two_levels(count: int, kind: str) -> str:
    inner = function("float (&d)[<R>]", name="inner")(count, kind)
    return inner + function("float (&d)[<R>]", body="inner(d, a, b);")(count, kind)


def _flagged(count: int, kind: str) -> str:
    return f"""
__device__ __forceinline__ void mma(float (&d)[<R>], uint64_t a, uint64_t b, int accumulate) {{
    {asm(registers("d", count), kind, flag="accumulate")}
}}
"""


def _by_kind(count: int, kind: str) -> str:
    general = "\ntemplate <bool Wide>\nstruct Op;\n"
    for wide in ("false", "true"):
        inner = function("float (&d)[<R>]", head="static ", name="go")(count, kind).strip()
        general += f"template <>\nstruct Op<{wide}> {{\n    {inner}\n}};\n"
    return general


WAYS = {
    "reference": Way(function("float (&d)[<R>]")),
    "pointer": Way(function("float* d")),
    "unsized": Way(function("float d[]")),
    "sized_template": Way(function("float (&d)[N]", head="template <int N>\n")),
    "type_template": Way(function("D& d", head="template <class D>\n")),
    "forwarded": Way(function("D&& d", head="template <class D>\n"), "mma($d, $a, $b);"),
    "macro": Way(_macro, "MMA($d, $a, $b)"),
    "static_member": Way(_inside("Ops", "static "), "Ops::mma($d, $a, $b);"),
    "method": Way(_inside("Ops", ""), "ops.mma($d, $a, $b);", "Ops ops;"),
    "functor": Way(_functor, "op($d, $a, $b);", "const Mma op{};"),
    "lambda": Way(
        function("float (&d)[<R>]"), "go($d, $a, $b);",
        "auto go = [](float (&x)[<R>], uint64_t p, uint64_t q) { mma(x, p, q); };",
    ),
    "two_levels": Way(_two_levels),
    "flag": Way(_flagged, "mma($d, $a, $b, $first ? 0 : 1);", flag=True),
    "specialized": Way(_by_kind, "Op<(<R> > 16)>::go($d, $a, $b);"),
    "restricted": Way(function("float* __restrict__ d")),
}  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """A loop over the tiles: `$two` are both MMAs of tile `t`, `$change` what follows each tile. `late` ones have a
    batch in flight where others change registers, so nothing is changed there."""

    text: str
    late: bool = False
    after: str = ""


TILE_OF = "fence();\n        $two\n        commit();\n        wait<0>();\n        $change"
LOOPS = {
    "for": Loop("for (int t = 0; t < tiles; ++t) {\n        " + TILE_OF + "\n    }"),
    "while": Loop("int t = 0;\n    while (t < tiles) {\n        " + TILE_OF + "\n        ++t;\n    }"),
    "do": Loop("int t = 0;\n    do {\n        " + TILE_OF + "\n    } while (++t < tiles);"),
    "peeled": Loop(
        "{\n        constexpr int t = 0;\n        " + TILE_OF + "\n    }\n"
        "    for (int t = 1; t < tiles; ++t) {\n        " + TILE_OF + "\n    }"
    ),
    "one_late": Loop(
        "for (int t = 0; t < tiles; ++t) {\n        fence();\n        $two\n        commit();\n        wait<1>();\n"
        "    }\n    wait<0>();",
        late=True,
    ),
    "waits_behind": Loop(
        "for (int t = 0; t < tiles; ++t) {\n        fence();\n        $two\n        commit();\n    }\n    wait<0>();",
        late=True,
    ),
    "arms": Loop(
        "for (int t = 0; t < tiles; ++t) {\n        if (t % 2 == 0) {\n        " + TILE_OF + "\n        } else {\n"
        "        " + TILE_OF + "\n        }\n    }"
    ),
    "continued": Loop(
        "for (int t = -1; t < tiles; ++t) {\n        if (t < 0) continue;\n        " + TILE_OF + "\n    }"
    ),
    "broken": Loop("for (int t = 0;; ++t) {\n        if (t == tiles) break;\n        " + TILE_OF + "\n    }"),
    "unrolled": Loop("#pragma unroll\n    for (int t = 0; t < 3; ++t) {\n        " + TILE_OF + "\n    }"),
    "nested": Loop(
        "for (int u = 0; u < tiles; u += 2)\n        for (int t = u; t < min(u + 2, tiles); ++t) {\n        "
        + TILE_OF
        + "\n        }"
    ),
    "called_at_once": Loop(
        "[&] {\n        for (int t = 0; t < tiles; ++t) {\n        " + TILE_OF + "\n        }\n    }();"
    ),
}


@dataclass(frozen=True)
class Change:
    """What follows each tile, with `$i` for element i, and what it makes of a fragment in NumPy (element, thread)."""

    text: str
    want: Callable[[Values, int], None] | None = None
    types: str = ""


def _set(d: Values, i: int, value: object) -> None:
    d[i] = value


def _turned(d: Values, t: int) -> None:
    d[2] = d[2][np.arange(d.shape[1]) ^ 1]


def _exchanged(d: Values, t: int) -> None:
    d[[0, 3]] = d[[3, 0]]


def _scaled(d: Values, t: int) -> None:
    d *= 2


def _once(d: Values, t: int) -> None:
    if t == 1:
        d[1] = 5


CHANGES = {
    "nothing": Change(""),
    "first": Change("$0 += 1.f;", lambda d, t: _set(d, 0, d[0] + 1)),
    "scaled": Change("for (int i = 0; i < <R>; ++i) $i *= 2.f;", _scaled),
    "once": Change("if (t == 1) $1 = 5.f;", _once),
    "by_function": Change("bump($3);", lambda d, t: _set(d, 3, d[3] + 2),
                          "\n__device__ void bump(float& x) { x += 2.f; }\n"),
    "exchanged": Change(
        'asm volatile("" : "+f"($0), "+f"($3)::"memory");\n        '
        "{ const float x = $0; $0 = $3; $3 = x; }", _exchanged
    ),
    "turned": Change("$2 = __shfl_xor_sync(~0u, $2, 1);", _turned),
    "by_lambda": Change("[&] { $0 -= 3.f; }();", lambda d, t: _set(d, 0, d[0] - 3)),
    "by_turn": Change("$1 += float(t);", lambda d, t: _set(d, 1, d[1] + t)),
    "read": Change("if ($0 > 1e30f) c[0] = $0;"),
}  # fmt: skip


@dataclass(frozen=True)
class Epilogue:
    text: str
    keeps: Callable[[Values], Values] | None = None
    types: str = ""
    shared: bool = False


CLEAR = "for (int i = 0; i < <R>; ++i) c[at(i)] = 0.f;\n    "
EPILOGUES = {
    "stored": Epilogue("for (int i = 0; i < <R>; ++i) c[at(i)] = $i;"),
    "backwards": Epilogue("for (int i = <R> - 1; i >= 0; --i) c[at(i)] = $i;"),
    "in_pairs": Epilogue(
        "for (int i = 0; i < <R>; i += 2) *reinterpret_cast<float2*>(c + at(i)) = make_float2($i, $(i + 1));"
    ),
    "copied": Epilogue(
        "float out[<R>];\n    for (int i = 0; i < <R>; ++i) out[i] = $i;\n"
        "    for (int i = 0; i < <R>; ++i) c[at(i)] = out[i];"
    ),
    "by_lambda": Epilogue("auto put = [&](int i) { c[at(i)] = $i; };\n    for (int i = 0; i < <R>; ++i) put(i);"),
    "by_function": Epilogue(
        "save(c, $d);",
        types="\n__device__ void save(float* c, const float (&d)[<R>]) {\n"
        "    for (int i = 0; i < <R>; ++i) c[at(i)] = d[i];\n}\n",
    ),
    "guarded": Epilogue("for (int i = 0; i < <R>; ++i)\n        if (row_of(i) < 1 << 20) c[at(i)] = $i;"),
    "even_lanes": Epilogue(
        CLEAR + "if (threadIdx.x & 1) return;\n    for (int i = 0; i < <R>; ++i) c[at(i)] = $i;",
        lambda d: np.where(np.arange(d.shape[1]) % 2 == 0, d, 0.0),
    ),
    "doubled": Epilogue("for (int i = 0; i < <R>; ++i) c[at(i)] = $i + $i;", lambda d: 2 * d),
    "staged": Epilogue(
        "__shared__ float stage[128 * <R>];\n"
        "    for (int i = 0; i < <R>; ++i) stage[i * 128 + threadIdx.x % 128] = $i;\n    __syncthreads();\n"
        "    for (int i = 0; i < <R>; ++i) c[at(i)] = stage[i * 128 + threadIdx.x % 128];",
        shared=True,
    ),
}


@dataclass(frozen=True)
class Shape:
    n: int = 32
    kind: str = "bf16"
    warpgroups: int = 1


SHAPES = {
    "n32": Shape(),
    "n16": Shape(16),
    "n64_f16": Shape(64, "f16"),
    "n128": Shape(128),
    "n32_tf32": Shape(32, "tf32"),
    "two": Shape(32, "bf16", 2),
}

AXES: tuple[Sequence[str], ...] = (
    tuple(HOMES), tuple(WAYS), tuple(LOOPS), tuple(CHANGES), tuple(EPILOGUES), tuple(SHAPES)
)  # fmt: skip
Choice = tuple[str, ...]


def fits(choice: Choice) -> bool:
    """Whether the kernel is legal: registers in flight are not touched, one warpgroup stages."""
    _, _, loop, change, epilogue, shape = choice
    if LOOPS[loop].late and change != "nothing":
        return False
    return not (EPILOGUES[epilogue].shared and SHAPES[shape].warpgroups > 1)


Pair = tuple[tuple[int, str], tuple[int, str]]


def _pairs(choice: Choice) -> set[Pair]:
    return set(itertools.combinations(enumerate(choice), 2))


def choices(count: int) -> Iterator[Choice]:
    """Combinations, first those that cover every pair that fits, then others; the same in every run."""
    dice = random.Random(39)

    def thrown(fixed: Mapping[int, str]) -> Choice:
        return tuple(fixed.get(i) or dice.choice(axis) for i, axis in enumerate(AXES))

    seen: set[Choice] = set()
    two_axes = itertools.combinations(range(len(AXES)), 2)
    wanted = [((i, x), (j, y)) for i, j in two_axes for x in AXES[i] for y in AXES[j]]
    dice.shuffle(wanted)
    uncovered = set(wanted)
    for pair in itertools.chain(wanted, itertools.repeat(())):
        if len(seen) == count:
            return
        if pair and pair not in uncovered:
            continue
        candidates = [c for c in (thrown(dict(pair)) for _ in range(100)) if fits(c) and c not in seen]
        if candidates:
            best = max(candidates, key=lambda c: len(_pairs(c) & uncovered))
            seen.add(best)
            uncovered -= _pairs(best)
            yield best


def _wanted(change: Change, epilogue: Epilogue) -> Want:
    def want(p: Values) -> Values:
        d = np.zeros_like(p[0]).T
        for t, part in enumerate(p):
            d = d + part.T
            if change.want:
                change.want(d, t)
        return (epilogue.keeps(d) if epilogue.keeps else d).T

    return want if change.want or epilogue.keeps else total


def _written(text: str, home: Home) -> str:
    """The text with this home in it: `$d` is all of it, `$i`, `$(i + 1)` and `$0` to `$3` are elements."""
    text = text.replace("$d", home.whole)
    return re.sub(r"\$(?:\((.*?)\)|(\w))", lambda found: home.at(found[1] or found[2]), text)


def take_in(choice: Choice) -> None:
    home, way, loop = HOMES[choice[0]], WAYS[choice[1]], LOOPS[choice[2]]
    change, epilogue, shape = CHANGES[choice[3]], EPILOGUES[choice[4]], SHAPES[choice[5]]
    two = []
    for step in (0, 1):
        call = way.call.replace("$d", home.whole).replace("$first", f"(t == 0 && {step} == 0)")
        place = f"(2 * t + {step})"
        two.append(call.replace("$a", f"a + {place} * kA").replace("$b", f"b + {place} * kB"))
    zero = "" if way.flag else f"for (int i = 0; i < <R>; ++i) {home.at('i')} = 0;"
    text = loop.text.replace("$two", "\n        ".join(two)).replace("$change", _written(change.text, home))
    body = "\n    ".join(x for x in (home.declare, zero, way.before, text, _written(epilogue.text, home)) if x)
    variant(
        "combined_" + "-".join(choice),
        body,
        axis="combined",
        types=home.types + change.types + epilogue.types,
        mma=way.text(shape.n // 2, shape.kind),
        want=_wanted(change, epilogue),
        n=shape.n,
        kind=shape.kind,
        warpgroups=shape.warpgroups,
    )


for chosen in choices(COUNT):
    take_in(chosen)
