# SPDX-License-Identifier: Apache-2.0
"""Places that tell a thread's index and are no call in a function that a kernel calls: those of an index are renamed;
functions of libraries that tell one are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_full_rate_tiled import missing, ported, texts

WARP = "cutlass::canonical_warp_idx"
ASK = "template <class F> __device__ int ask(F f) { return f(); }"

NOT_CALLED = {
    "variable": {"AFTER": f"auto f = {WARP}; if (f() == 4) out[0] = acc(0);"},
    "argument": {"HEAD": ASK, "AFTER": f"if (ask({WARP}) == 4) out[0] = acc(0);"},
    "address": {"HEAD": "using namespace cutlass; " + ASK, "AFTER": "out[ask(&canonical_warp_idx)] = acc(0);"},
    "template argument": {"HEAD": "template <auto F> __device__ int ask() { return F(); }",
                          "AFTER": f"out[ask<{WARP}>()] = acc(0);"},
    "constant": {"HEAD": f"__device__ constexpr auto kWarp = {WARP};", "AFTER": "out[kWarp()] = acc(0);"},
    "macro": {"HEAD": f"#define WARP {WARP}()", "AFTER": "out[WARP] = acc(0);"},
    "macro with parameters": {"HEAD": f"#define WARP() ({WARP}())", "AFTER": "out[WARP()] = acc(0);"},
    "default": {"HEAD": f"__device__ void put(float* o, int w = {WARP}()) {{ o[w] = 1; }}", "AFTER": "put(out);"},
    "member": {"HEAD": f"struct Own {{ int w = {WARP}(); }};", "AFTER": "Own own; out[own.w] = acc(0);"},
    "constructor": {"HEAD": f"struct Own {{ int w; __device__ Own() : w({WARP}()) {{}} }};",
                    "AFTER": "Own own; out[own.w] = acc(0);"},
    "capture": {"AFTER": f"auto f = [w = {WARP}()] {{ return w; }}; out[f()] = acc(0);"},
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_CALLED)
def test_a_function_that_tells_a_warp_and_is_not_called_is_named(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, **NOT_CALLED[name])
    assert any("tells which warp a thread is in where it is not followed" in m for m in missing(result))
    assert [p.mma_rows for p in result.plans] == [64]


@pytest.mark.parametrize("parts", [
    {"HEAD": "using cutlass::canonical_warp_idx;", "AFTER": "out[canonical_warp_idx()] = acc(0);"},
    {"AFTER": f"auto f = [&] {{ return {WARP}(); }}; out[f()] = acc(0);"},
    {"AFTER": f"const int warp = {WARP} (); out[warp] = acc(0);"},
])  # fmt: skip
def test_calls_are_renamed(tmp_path: Path, parts: dict[str, str]) -> None:
    result = ported(tmp_path, **parts)
    assert missing(result) == []
    assert "int(porter::thread_index() / 32)" in texts(result)[0]


def test_the_thread_of_a_number_is_another_one_in_two_warpgroups(tmp_path: Path) -> None:
    result = ported(tmp_path, AFTER="if (cute::thread(160)) out[0] = acc(0);")
    assert missing(result) == ["`thread` of a library tells which thread this is"]
    own = "__device__ bool thread(int i) { return threadIdx.x == i; }"
    assert missing(ported(tmp_path, HEAD=own, AFTER="if (thread(160)) out[0] = acc(0);")) == []
