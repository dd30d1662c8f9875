# SPDX-License-Identifier: Apache-2.0
"""Several accumulators: which of them may lie in the same columns of Tensor Memory, and which live at once."""

from __future__ import annotations

from functools import partial

from variant_template import kernel, variant
from variant_types import total

put = partial(variant, axis="columns")

SUM = "float s[<R>];\n    for (int i = 0; i < <R>; ++i) s[i] = 0;\n    "
STORE_SUM = "for (int i = 0; i < <R>; ++i) c[at(i)] = s[i];"
ADD = "for (int i = 0; i < <R>; ++i) s[i] += d[i];"


def part(t: str, *, name: str = "d", step: str = "", end: str = "") -> str:
    """A block with an accumulator of its own, which computes a tile or one of its steps, and adds it to the sum."""
    steps = [step] if step else ["2 * t", "2 * t + 1"]
    mmas = "\n        ".join(f"mma({name}, a + ({s}) * kA, b + ({s}) * kB);".replace("t", t) for s in steps)
    end = end or f"wait<0>();\n        {ADD.replace('d[', name + '[')}"
    return f"""{{
        float {name}[<R>];
        for (int i = 0; i < <R>; ++i) {name}[i] = 0;
        fence();
        {mmas}
        commit();
        {end}
    }}
    """


BLOCKS = part("0") + part("1", name="e") + part("2", name="f", step="2 * 2") + part("2", name="g", step="2 * 2 + 1")
put("columns_of_blocks_in_turn", SUM + BLOCKS + STORE_SUM, n=160)
put(
    "columns_of_blocks_in_a_loop",
    f"""{SUM}for (int t = 0; t < tiles; ++t) {{
        {part("t", name="d", step="2 * t")}{part("t", name="e", step="2 * t + 1")}
    }}
    {STORE_SUM}""",
    n=32,
)
put(
    "columns_of_branches",
    f"""{SUM}for (int t = 0; t < tiles; ++t) {{
        if (t == 0) {part("t")} else if (t == 1) {part("t", name="e")} else if (t == 2) {part("t", name="f")}
        else {part("t", name="g")}
    }}
    {STORE_SUM}""",
    n=160,
)
ROLES = f"""{SUM}if (threadIdx.x / 128 == 0) {{
        for (int t = 0; t < tiles; ++t) {part("t")}
    }} else {{
        for (int t = 0; t < tiles; ++t) {part("t", name="e")}
    }}
    {STORE_SUM}"""
put("columns_of_two_roles", ROLES, warpgroups=2)
FUNCTION = """
__device__ void %(name)s(float (&s)[<R>], uint64_t a, uint64_t b) {
    float d[<R>];
    for (int i = 0; i < <R>; ++i) d[i] = 0;
    fence();
    mma(d, a, b);
    mma(d, a + kA, b + kB);
    commit();
    wait<0>();
    for (int i = 0; i < <R>; ++i) s[i] += d[i];
}
"""
DECLARED = "\n__device__ void %(name)s(float (&s)[<R>], uint64_t a, uint64_t b);\n"
FUNCTIONS = "".join(FUNCTION % {"name": f"part{i}"} for i in range(4))
put(
    "columns_of_functions_in_turn",
    f"""{SUM}part0(s, a, b);
    part1(s, a + 2 * kA, b + 2 * kB);
    if (tiles > 2) part2(s, a + 4 * kA, b + 4 * kB);
    else part3(s, a, b);
    {STORE_SUM}""",
    n=160,
    types=FUNCTIONS,
)
put(
    "columns_of_a_function_inside",
    f"""<declare>
    {SUM}fence();
    mma(d, a, b);
    mma(d, a + kA, b + kB);
    commit();
    wait<0>();
    part0(s, a + 2 * kA, b + 2 * kB);
    part1(s, a + 4 * kA, b + 4 * kB);
    for (int i = 0; i < <R>; ++i) c[at(i)] = s[i] + d[i];""",
    types=FUNCTIONS,
)
put(
    "columns_of_a_function_beside_an_array",
    f"""float d[2][<R>];
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < <R>; ++j) d[i][j] = 0;
    {SUM}fence();
    mma(d[0], a, b);
    mma(d[1], a + kA, b + kB);
    commit();
    wait<0>();
    part0(s, a + 2 * kA, b + 2 * kB);
    part1(s, a + 4 * kA, b + 4 * kB);
    fence();
    mma(d[1], a + 4 * kA, b + 4 * kB);
    commit();
    wait<0>();
    for (int i = 0; i < <R>; ++i) c[at(i)] = s[i] + d[0][i] + d[1][i];""",
    types=DECLARED % {"name": "part0"} + DECLARED % {"name": "part1"},
    after=FUNCTION % {"name": "part0"} + FUNCTION % {"name": "part1"},
    want=lambda p: total(p) + p[4],
    by_step=True,
)
put(
    "columns_of_a_function_of_two_kernels",
    f"""<declare>
    {SUM}part0(s, a + 2 * kA, b + 2 * kB);
    part0(s, a + 4 * kA, b + 4 * kB);
    fence();
    mma(d, a, b);
    mma(d, a + kA, b + kB);
    commit();
    wait<0>();
    for (int i = 0; i < <R>; ++i) c[at(i)] = s[i] + d[i];""",
    types=DECLARED % {"name": "part0"},
    after=kernel(
        f"""<T> d[<R>], e[<R>], f[<R>];
    for (int i = 0; i < <R>; ++i) d[i] = e[i] = f[i] = 0;
    {SUM}fence();
    mma(d, a, b);
    mma(e, a + kA, b + kB);
    mma(f, a + 2 * kA, b + 2 * kB);
    mma(f, a + 3 * kA, b + 3 * kB);
    commit();
    wait<0>();
    part0(s, a + 4 * kA, b + 4 * kB);
    for (int i = 0; i < <R>; ++i) c[at(i)] = s[i] + d[i] + e[i] + f[i];""",
        name="other",
    )
    + FUNCTION % {"name": "part0"},
)
put(
    "columns_of_what_lives_around_a_loop",
    f"""<declare>
    {SUM}for (int t = 0; t < tiles; ++t) {{
        fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        commit();
        wait<0>();
        {part("t", name="e", step="2 * t + 1")}
    }}
    for (int i = 0; i < <R>; ++i) c[at(i)] = s[i] + d[i];""",
)
put(
    "columns_while_an_mma_is_under_way",
    f"""{SUM}for (int t = 0; t < tiles; ++t) {{
        {part("t", end=";")}{part("t", name="e")}
    }}
    {STORE_SUM}""",
)
put(
    "columns_written_by_threads",
    f"""{SUM}for (int t = 0; t < tiles; ++t) {{
        {part("t", step="2 * t")}{{
            float e[<R>];
            for (int i = 0; i < <R>; ++i) e[i] = s[i];
            fence();
            mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
            commit();
            wait<0>();
            for (int i = 0; i < <R>; ++i) s[i] = e[i];
        }}
    }}
    {STORE_SUM}""",
)
