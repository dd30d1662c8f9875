# SPDX-License-Identifier: Apache-2.0
"""The step whose results leave by bulk copies: ways of writing stores that are understood, and what has no
place. That ports are right is shown by the slow tests of `tests/cli/test_cli_native_bulk_store.py`; what they are wrong
for stands in `store_kernels`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import missing, taken
from store_kernels import DEFAULTS, ROWS, loop, source

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources


def ported(folder: Path, asked: bool = True, steps: tuple[str, ...] = ("bulk-store",), **parts: str) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(source(**parts))
    sources = load_sources(path)
    chosen = frozenset({(sources.root, "bulk-store")} if asked else ())
    return port_sources(sources, PortOptions(full_rate=False, native=steps, chosen=chosen))


BF16 = {"OUT": "__nv_bfloat16* __restrict__ out"}
UNDERSTOOD = {
    "elements through a pointer": (
        {}, ["tcgen05::Rows<4, 8, 2, 0, 4> leaving;", "leaving.put(0, 0, at[0], acc[4 * n]);",
             "leaving.put(1, 1, at[8 * ld + 1], acc[4 * n + 3]);", "leaving.next();", "leaving.end();"],
    ),
    "pairs": (
        loop("*reinterpret_cast<float2*>(&out[size_t(row) * ld + column + n * 8]) = {acc[4 * n], acc[4 * n + 1]};"
             "*(float2*)(out + (row + 8) * (size_t)ld + column + n * 8) = "
             "make_float2(acc[4 * n + 2], acc[4 * n + 3]);"),
        ["leaving.put_pair(0, 0, *reinterpret_cast<float2*>", "+ n * 8]), {acc[4 * n], acc[4 * n + 1]});",
         "leaving.put_pair(1, 0, *(float2*)(out"],
    ),
    "pointers of pairs": (
        {"BEHIND": "", "STORE": """\
float2* upper = reinterpret_cast<float2*>(out + (size_t)row * ld + column);
    float2* lower = reinterpret_cast<float2*>(out + (size_t)(row + 8) * ld + column);
    for (int n = 0; n < 2; ++n) {
        upper[n * 4] = make_float2(acc[4 * n], acc[4 * n + 1]);
        lower[n * 4] = make_float2(acc[4 * n + 2], acc[4 * n + 3]);
    }"""},
        ["leaving.put_pair(1, 0, lower[n * 4], make_float2(acc[4 * n + 2], acc[4 * n + 3]));"],
    ),
    "a macro for the place": (
        {"HELP": "#define AT(i, j) ((size_t)(i) * ld + (j))",
         **loop("out[AT(row, column + 8 * n)] = acc[4 * n]; out[AT(row, column + 8 * n + 1)] = acc[4 * n + 1];"
                "out[AT(row + 8, column + 8 * n)] = acc[4 * n + 2];"
                "out[AT(row + 8, column + 8 * n + 1)] = acc[4 * n + 3];")},
        ["leaving.put(1, 1, out[AT(row + 8, column + 8 * n + 1)], acc[4 * n + 3]);"],
    ),
    "a function for the place": (
        {"HELP": "__device__ size_t at(int r, int c, int ld) { return size_t(r) * ld + c; }",
         **loop("out[at(row, column + 8 * n, ld)] = acc[4 * n]; out[at(row, column + 8 * n + 1, ld)] = acc[4 * n + 1];"
                "out[at(row + 8, column + 8 * n, ld)] = acc[4 * n + 2];"
                "out[at(row + 8, column + 8 * n + 1, ld)] = acc[4 * n + 3];")},
        ["leaving.put(0, 1, out[at(row, column + 8 * n + 1, ld)], acc[4 * n + 1]);"],
    ),
    "a lambda for the place": (
        loop("auto at = [&](int r, int c) { return size_t(r) * ld + c; };" + ROWS
             + "out[at(row + 8 * h, column + 8 * n + e)] = acc[4 * n + 2 * h + e];"),
        ["leaving.put(h, e, out[at("],
    ),
    "edges, and registers by index": (
        loop("""\
const int c = column + i / 4 * 8;
        for (int h = 0; h < 2; ++h) {
            const int r = row + h * 8;
            if (r < rows) {
                if (c < columns) out[size_t(r) * ld + c] = 0.5f * acc[i + h * 2];
                if (c + 1 < columns) out[size_t(r) * ld + c + 1] = 0.5f * acc[i + h * 2 + 1];
            }
        }""", "int i = 0; i < 8; i += 4"),
        ["if (c < columns) leaving.put(h, 0, out[size_t(r) * ld + c], 0.5f * acc[i + h * 2]);",
         "if (c + 1 < columns) leaving.put(h, 1, "],
    ),
    "the lower half first": (
        loop("""\
for (int h = 1; h < 2; ++h) {
            for (int e = 0; e < 2; ++e) out[size_t(row + 8) * ld + column + 8 * n + e] = acc[4 * n + 2 * h + e];
        }
        for (int e = 0; e < 2; ++e) out[size_t(row) * ld + column + 8 * n + e] = acc[4 * n + e];"""),
        ["leaving.put(0, e, out[size_t(row + 8)", "leaving.put(1, e, out[size_t(row) * ld"],
    ),
    "16 columns a turn": (
        loop("for (int g = 0; g < 2; ++g) for (int h = 0; h < 2; ++h) for (int e = 0; e < 2; ++e) "
             "out[size_t(row + h * 8) * ld + column + 16 * n + 8 * g + e] = acc[4 * g + 2 * h + e];",
             "int n = 0; n < 1; ++n"),
        ["tcgen05::Rows<4, 16, 2, 0, 4> leaving;", "leaving.put(h, 8 * g + e, out["],
    ),
    "warps of one half of the block": (
        {"THREADS": "256", "STORE": "if (threadIdx.x >= 128) {\n    " + DEFAULTS["STORE"] + "\n}"},
        ["tcgen05::Rows<4, 8, 2, 4, 4> leaving;"],
    ),
    "where the problem has something": (
        {"STORE": "if (rows > 0) {\n    " + DEFAULTS["STORE"] + "\n}"}, ["leaving.put(0, 0, at[0], acc[4 * n]);"],
    ),
    "one row of each lane": (
        {"STORE": """\
for (int h = 0; h < 2; ++h) {
        for (int n = 0; n < 2; ++n) {
            out[size_t(row + 8 * h) * ld + column + 8 * n] = acc[4 * n + 2 * h];
            out[size_t(row + 8 * h) * ld + column + 8 * n + 1] = acc[4 * n + 2 * h + 1];
        }
    }"""},
        ["tcgen05::Rows<4, 8, 1, 0, 4> leaving;", "leaving.put(0, 1, out[size_t(row + 8 * h)"],
    ),
    "bf16": (
        {**BF16, **loop("""\
__nv_bfloat16* line = out + size_t(row) * ld;
        line[column + 8 * n] = __float2bfloat16(acc[4 * n]);
        line[column + 8 * n + 1] = __float2bfloat16(acc[4 * n + 1]);
        line[column + 8 * n + 8 * ld] = __float2bfloat16(acc[4 * n + 2]);
        line[column + 8 * n + 8 * ld + 1] = __float2bfloat16(acc[4 * n + 3]);""")},
        ["tcgen05::Rows<2, 8, 2, 0, 4> leaving;", "leaving.put(1, 1, line[column + 8 * n + 8 * ld + 1], "],
    ),
    "pairs of bf16": (
        {**BF16, **loop("for (int h = 0; h < 2; ++h) *reinterpret_cast<__nv_bfloat162*>(out + size_t(row + 8 * h) * ld "
                        "+ column + 8 * n) = __floats2bfloat162_rn(acc[4 * n + 2 * h], acc[4 * n + 2 * h + 1]);")},
        ["leaving.put_pair(h, 0, *reinterpret_cast<__nv_bfloat162*>"],
    ),
    "a number of columns that is not known": (
        {"STORE": DEFAULTS["STORE"].replace("n < 2", "n < columns / 8")}, ["leaving.put(0, 0, at[0], acc[4 * n]);"],
    ),
    "the lane by bits": (
        {"STORE": """\
const int l = threadIdx.x & 31;
    for (int n = 0; n < 2; ++n) {
        float* at = &out[(blockIdx.y * 128 + (threadIdx.x >> 5) * 16 + (l >> 2)) * ld + ((l & 3) << 1) + (n << 3)];
        at[0] = acc[4 * n]; at[1] = acc[4 * n + 1]; at[8 * ld] = acc[4 * n + 2]; at[8 * ld + 1] = acc[4 * n + 3];
    }"""},
        ["leaving.put(0, 0, at[0], acc[4 * n]);"],
    ),
    "a bias of another array": (
        {"OUT": "float* __restrict__ out", "MORE": ", const float* bias",
         **loop("for (int h = 0; h < 2; ++h) for (int e = 0; e < 2; ++e) { const float b = bias[column + 8 * n + e]; "
                "out[size_t(row + 8 * h) * ld + column + 8 * n + e] = fmaxf(acc[4 * n + 2 * h + e] + b, 0.0f); }")},
        ["leaving.put(h, e, out[size_t(row + 8 * h)"],
    ),
    "rows that are known": (
        {"STORE": DEFAULTS["STORE"].replace("ld", "512")}, ["leaving.put(1, 0, at[8 * 512], acc[4 * n + 2]);"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, **parts)
    text = taken(result, "bulk-store")
    assert [part for part in expected if part not in text] == []
    header = next(t.decode() for p, t in result.files.items() if p.endswith("tcgen05.cuh"))
    assert "cp.async.bulk.global.shared::cta.bulk_group" in header


REFUSED = {
    "added to what is there": (
        loop(ROWS + "out[size_t(row + 8 * h) * ld + column + 8 * n + e] += acc[4 * n + 2 * h + e];"),
        "results that are stored, not added",
    ),
    "every other column": (
        loop(ROWS + "out[size_t(row + 8 * h) * ld + 2 * (column + 8 * n + e)] = acc[4 * n + 2 * h + e];"),
        "whole groups of 8 columns in a turn",
    ),
    "columns by rows": (
        loop(ROWS + "out[row + 8 * h + size_t(column + 8 * n + e) * ld] = acc[4 * n + 2 * h + e];"),
        "store whole groups of 8 columns",
    ),
    "columns that another array names": (
        {"OUT": "float* __restrict__ out", "MORE": ", const int* order",
         **loop(ROWS + "out[size_t(row + 8 * h) * ld + order[column + 8 * n + e]] = acc[4 * n + 2 * h + e];")},
        "where this stores",
    ),
    "half of the columns": (
        loop("for (int h = 0; h < 2; ++h) out[size_t(row + 8 * h) * ld + column + 8 * n] = acc[4 * n + 2 * h];"),
        "each of 8 columns once",
    ),
    "lanes of another layout": (
        loop("float* at = out + size_t(threadIdx.x / 8) * ld + threadIdx.x % 8 * 2 + 16 * n; "
             "at[0] = acc[4 * n]; at[1] = acc[4 * n + 1];"),
        "each of 16 columns once",
    ),
    "no loop": (
        {"STORE": "out[size_t(row) * ld + column] = acc[0]; out[size_t(row) * ld + column + 1] = acc[1];"},
        "a loop over columns around this store",
    ),
    "a loop without braces": (
        {"STORE": "for (int n = 0; n < 2; ++n) " + ROWS
                  + "out[size_t(row + 8 * h) * ld + column + 8 * n + e] = acc[4 * n + 2 * h + e];"},
        "in braces",
    ),
    "threads that leave": (
        {"BEHIND": "if (int(threadIdx.x / 4) >= rows) return;"},
        "which threads `(int(threadIdx.x / 4) >= rows)` lets through",
    ),
    "as many turns as a lane has columns": (
        {"STORE": DEFAULTS["STORE"].replace("n < 2", "column + 8 * n < columns")}, "counted up from a number",
    ),
    "a macro that is the place": (
        {"HELP": "#define PLACE(r, c) out[size_t(r) * ld + (c)]",
         **loop(ROWS + "PLACE(row + 8 * h, column + 8 * n + e) = acc[4 * n + 2 * h + e];")},
        "a loop over columns in which threads store",
    ),
    "a flag for others": (
        {"MORE": ", int* done", "AFTER": "__threadfence(); atomicAdd(done, 1);"}, "nobody waits for results",
    ),
    "copies of its own": (
        {"AFTER": 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");'}, "nobody waits for results",
    ),
    "some lanes alone": (
        {"STORE": "if (row < rows) {\n" + DEFAULTS["STORE"] + "\n}"}, "which threads `(row < rows)` lets through",
    ),
    "a store elsewhere": (
        {"MORE": ", float* sum", "AFTER": "sum[threadIdx.x] = acc[0];"}, "a loop over columns around this store",
    ),
    "halves that no sum tells": (
        loop("for (int g = 0; g < 2; ++g) for (int e = 0; e < 4; ++e) "
             "out[size_t(row + e / 2 * 8) * ld + column + 16 * n + 8 * g + e % 2] = acc[4 * g + e];",
             "int n = 0; n < 1; ++n"),
        "which row and column each turn of an inner loop stores",
    ),
    "half a warp": (
        {"STORE": "if (threadIdx.x % 32 < 16) {\n" + DEFAULTS["STORE"] + "\n}"}, "that whole warps come to this loop",
    ),
    "stores that have to happen": ({"OUT": "volatile float* out"}, "a loop over columns in which threads store"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert any(expected in what for what in missing(result)), missing(result)
    assert "leaving" not in "".join(t.decode() for p, t in result.files.items() if p.endswith("kernel.cu"))


def test_it_is_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    assert "leaving" not in "".join(t.decode() for t in ported(tmp_path, asked=False).files.values())


def test_what_it_takes_of_shared_memory_is_said(tmp_path: Path) -> None:
    said = [d.message for d in ported(tmp_path).diagnostics if d.code.id == "PT2535"]
    assert said == ["kernel stages its results in 20480 bytes of static shared memory"]
