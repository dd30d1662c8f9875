# SPDX-License-Identifier: Apache-2.0
"""Copies of accumulators and of their registers: what only may be one is no reason to load while MMAs are in flight,
addresses that are kept are followed, and MMAs add to no copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ported_text import ported, refused
from test_port_tiled_written import ACC, PAIR, STORE, batch, kernel

LOAD = "porter::load(acc);"
OPEN = "  warpgroup_arrive();\n  gemm(mma, tA, tB, acc);\n  warpgroup_commit_batch();\n"
COPIES = {
    "a sum": ("", "auto x = acc(0) * 2.f + acc(1);", "x"),
    "a number of another type": ("", "half_t x = half_t(acc(0));", "x"),
    "two numbers": ("", "float2 x = make_float2(acc(2), acc(3));", "x.x"),
    "a struct": ("struct Pair { float x, y; };\n", "Pair p{acc(0), acc(1)};", "p.y"),
    "what a function gives": ("", "auto x = cute::max(acc(0), acc(1));", "x"),
    "other registers": ("template <class C> __device__ auto other(C const& c) { auto x = c; return x; }\n",
                        "auto x = other(acc);", "x(3)"),
    "several of a function": (
        "template <class C> __device__ auto both(C const& c) { return make_tuple(c(0), c(1)); }\n",
        "auto [x, y] = both(acc);",
        "y",
    ),
    "a lambda's": ("", "auto f = [=](int i) { return acc(i); };", "f(3)"),
    "a lambda's own": ("", "auto f = [c = acc](int i) { return c(i); };", "f(3)"),
}  # fmt: skip


@pytest.mark.parametrize("closed", ["  warpgroup_wait<0>();\n", "  warpgroup_wait<1>();\n  warpgroup_wait<0>();\n"])
@pytest.mark.parametrize("name", COPIES)
def test_no_load_for_a_copy_while_mmas_are_in_flight(tmp_path: Path, name: str, closed: str) -> None:
    before, copy, use = COPIES[name]
    used = f"  out(n) = {use};\n"
    waits = closed.splitlines(keepends=True)
    body = ACC + batch() + f"  {copy}\n{OPEN}{''.join(waits[:-1])}{used}{waits[-1]}{STORE}"
    text = ported(tmp_path, kernel(body, before)).split("__global__")[1]
    first, second = text.split("porter::commit(acc);", 2)[1:]
    assert LOAD in first
    assert LOAD not in second.split("porter::wait<0>")[0]
    assert LOAD in second


USE = "  out(n) = x;\n  warpgroup_wait<0>();\n"
FLIGHTS = {
    "a loop's end": "  for (int i = 0; i < n; ++i) {\n    out(i) = x;\n" + OPEN + "  }\n  warpgroup_wait<0>();\n",
    "a branch": "  if (n) {\n" + OPEN + "  }\n" + USE,
    "a wait under a condition": OPEN + "  if (n) warpgroup_wait<0>();\n" + USE,
    "a switch": "  switch (n) {\n  case 1: {\n" + OPEN + "    break;\n  }\n  }\n" + USE,
    "a loop that may not be run": OPEN + "  for (int i = 1; i < n; ++i) warpgroup_wait<0>();\n" + USE,
    "a loop that is not run": OPEN + "  if (n) warpgroup_wait<0>();\n  for (int i = 4; i < 4; ++i) {}\n" + USE,
    "a loop that is left": "  while (n) {\n" + OPEN + "  if (n > 3) break;\n  warpgroup_wait<0>();\n  }\n" + USE,
}


@pytest.mark.parametrize("name", FLIGHTS)
def test_a_copy_where_mmas_may_be_in_flight_is_refused(tmp_path: Path, name: str) -> None:
    text = kernel(ACC + batch() + "  auto x = cute::max(acc(0), acc(1));\n" + FLIGHTS[name] + STORE)
    assert "`x` may be registers of `acc` or a copy, and MMAs may be in flight here" in refused(tmp_path, text)


LANDED = {
    "a wait in a function": ("__device__ void all() { warpgroup_wait<0>(); }\n", OPEN + "  all();\n"),
    "a wait in a lambda": ("", "  auto all = [&] { warpgroup_wait<0>(); };\n" + OPEN + "  all();\n"),
    "a younger batch": ("", OPEN + OPEN.replace("acc)", "other)") + "  warpgroup_wait<1>();\n"),
    "a wait that a template's argument asks for": ("WAITS", OPEN + "  waits<0>();\n"),
    "a wait that a template's argument leaves out": ("WAITS", OPEN + "  waits<-1>();\n  warpgroup_wait<0>();\n"),
    "a wait by default": ("WAITS", OPEN + "  waits();\n"),
    "a loop that waits": ("", "  for (int i = 0; i < n; ++i) {\n" + OPEN + "  warpgroup_wait<0>();\n  }\n"),
    "a loop that is run": ("", OPEN + "  for (int i = 1; i < 4; ++i) warpgroup_wait<0>();\n"),
    "both arms wait": ("", OPEN + "  if (n) warpgroup_wait<0>(); else { warpgroup_wait<0>(); }\n"),
}


WAITS = """template <int kLeft = 0>
__device__ void waits() { if constexpr (kLeft >= 0) { warpgroup_wait<kLeft>(); } }
"""


@pytest.mark.parametrize("name", LANDED)
def test_what_may_be_a_view_is_loaded_behind_all_waits(tmp_path: Path, name: str) -> None:
    before, body = LANDED[name]
    body = PAIR + batch("other") + "  auto x = viewed(acc);\n" + body + "  out(n) = x(3);\n" + STORE
    text = kernel(body, before.replace("WAITS", WAITS))
    assert f"  {LOAD}\n  out(n) = x(3);\n" in ported(tmp_path, text)


PARTS = OPEN.replace("tA, tB, acc", "tA(_, 0, n), tB(_, 0, n), acc(_, 0, 0)")
PARTS += PARTS.replace("_, 0, n), tB", "_, 1, n), tB").replace("acc(_, 0, 0)", "acc(_, 1, 0)")
ROW = "  copy(acc(_, 0, 0), out);\n"
BY_PARTS = {
    "one of two batches": (ACC, PARTS + "  warpgroup_wait<1>();\n" + ROW + "  warpgroup_wait<0>();\n"),
    "elements": (ACC, PARTS + "  warpgroup_wait<1>();\n  out(n) = acc(n);\n  warpgroup_wait<0>();\n"),
    "a view": (ACC + "  Tensor row = acc(_, 0, 0);\n", PARTS + "  warpgroup_wait<1>();\n  copy(row, out);\n"),
    "perhaps": (ACC, PARTS + "  if (n) warpgroup_wait<0>();\n" + ROW),
    "by views": (
        ACC + "  auto upper = acc(_, 0, 0);\n  auto lower = acc(_, 1, 0);\n",
        PARTS.replace("acc(_, 0, 0)", "upper").replace("acc(_, 1, 0)", "lower")
        + "  warpgroup_wait<1>();\n  copy(upper, out);\n",
    ),
}


@pytest.mark.parametrize("name", BY_PARTS)
def test_a_part_that_is_used_while_mmas_write_another_is_refused(tmp_path: Path, name: str) -> None:
    body = "".join(BY_PARTS[name]) + STORE
    assert re.search(
        r"registers of `\w+` are used where MMAs that write a part of them may be", refused(tmp_path, kernel(body))
    )


def test_parts_that_are_all_waited_for_are_loaded(tmp_path: Path) -> None:
    text = ported(tmp_path, kernel(ACC + PARTS + "  warpgroup_wait<0>();\n" + ROW))
    assert f"  {LOAD}\n{ROW}" in text


ADDRESSES = ["Tensor src = tiled.retile_S(acc);", "float const* src = &acc(0);", "auto* src = acc.data();"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_taken_in_flight_is_loaded_where_it_is_used(tmp_path: Path, address: str) -> None:
    text = ported(tmp_path, kernel(ACC + OPEN + f"  {address}\n  warpgroup_wait<0>();\n  copy(src, out);\n"))
    assert f"  porter::wait<0>(acc);\n  {LOAD}\n  copy(src, out);\n" in text
    assert text.count(LOAD) == 1


HOLDER = "struct Holder { float* p; __device__ void bind(float* x) { p = x; } };\n"
KEPT = {
    "a pointer": "float* p;\n  p = acc.data();",
    "a pointer to an element": "float* p = nullptr;\n  p = &acc(0);",
    "a pointer behind": "float* p;\n  p = acc.data() + 1;",
    "one of two": "float* p;\n  p = n ? acc.data() : &acc(1);",
    "by a cast": "float* p;\n  p = reinterpret_cast<float*>(acc.data());",
    "from another": "auto q = acc.data();\n  float* p;\n  p = q;",
    "a member": "Holder h;\n  h.p = &acc(0);",
    "by a method": "Holder h;\n  h.bind(&acc(0));",
    "an element": "float* h[2];\n  h[1] = acc.data();",
    "by address": "Holder h;\n  bind(&h, acc.data());",
    "both of a structured binding": "auto [p, h] = halves(acc);",
}


@pytest.mark.parametrize("name", KEPT)
def test_an_address_that_is_kept_is_followed(tmp_path: Path, name: str) -> None:
    used = "h[n]" if " h" in KEPT[name] else "p[n]"
    text = ported(tmp_path, kernel(ACC + f"  {KEPT[name]}\n" + batch() + f"  out(n) = {used};\n", HOLDER))
    assert f"  porter::wait<0>(acc);\n  {LOAD}\n  out(n) = {used};\n" in text


NUMBERS = [
    "float p;\n  p = acc(0);",
    "float p = 0;\n  p += acc(0) * 2;",
    "out(0) = acc(0);",
    "float p[2];\n  p[1] = acc(0);",
]


@pytest.mark.parametrize("assigned", NUMBERS)
def test_a_number_that_is_assigned_is_no_address(tmp_path: Path, assigned: str) -> None:
    used = "  out(n) = p;\n" if " p" in assigned else ""
    text = ported(
        tmp_path, kernel(ACC + batch() + f"  {assigned}\n" + OPEN + used + "  warpgroup_wait<0>();\n" + STORE)
    )
    assert LOAD not in text.split("porter::commit(acc);", 2)[2].split("porter::wait<0>")[0]


def test_an_address_that_is_kept_elsewhere_is_refused(tmp_path: Path) -> None:
    before = "__device__ float* kept;\n"
    why = refused(tmp_path, kernel(ACC + "  kept = acc.data();\n" + batch() + STORE, before))
    assert "`kept = acc.data()` keeps the address of registers where it is not followed" in why


STEP = """template <class M, class A, class B, class C>
__device__ void step(M& m, A const& x, B const& y, PARAM) {
  warpgroup_arrive();
  gemm(m, x, y, c);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
}
"""
LAMBDA = "  auto step = [&](auto& m, auto& x, auto& y, PARAM) {\n" + batch("c") + "  };\n"


@pytest.mark.parametrize("given", ["acc", "(acc)", "r"])
@pytest.mark.parametrize(
    ("by", "param"), [("function", "C c"), ("function", "C const c"), ("lambda", "auto c"), ("lambda", "auto const c")]
)
def test_mmas_that_add_to_a_copy_are_refused(tmp_path: Path, param: str, given: str, by: str) -> None:
    before = STEP.replace("PARAM", param) if by == "function" else ""
    inside = LAMBDA.replace("PARAM", param) if by == "lambda" else ""
    body = f"{ACC}  auto& r = acc;\n{inside}  step(mma, tA, tB, {given});\n{STORE}"
    assert "`c` of `step` copies accumulator `acc`, and MMAs add to the copy" in refused(tmp_path, kernel(body, before))


@pytest.mark.parametrize(
    ("param", "given"), [("C& c", "acc"), ("C&& c", "acc"), ("C c", "acc(_, _, 0)"), ("C c", "acc(_, 0, _)")]
)
def test_mmas_that_add_to_what_is_referred_to_are_ported(tmp_path: Path, param: str, given: str) -> None:
    body = ACC + f"  step(mma, tA, tB, {given});\n" + STORE
    assert f"  {LOAD}\n" in ported(tmp_path, kernel(body, STEP.replace("PARAM", param)))


def test_mmas_that_add_to_what_a_function_makes_of_an_accumulator_are_refused(tmp_path: Path) -> None:
    before = (
        STEP.replace("PARAM", "C& c").replace("__device__ void", "__device__ auto").replace("\n}", "\n  return c;\n}")
    )
    body = ACC + "  auto other = step(mma, tA, tB, acc);\n" + batch("other") + STORE
    why = refused(tmp_path, kernel(body, before))
    assert "`other` is what `step` makes of accumulator `acc`, and MMAs add to it" in why
    assert "porter::" in ported(tmp_path, kernel(body.replace(batch("other"), ""), before))


SWAP = "template <class C> __device__ void swap_them(C& a, C& b) { C t = a; a = b; b = t; }\n"


@pytest.mark.parametrize(
    ("body", "before", "what"),
    [
        ("  other = acc;\n", "", "other"),
        ("  acc = other;\n", "", "acc"),
        ("  auto& r = acc;\n  r = other;\n", "", "r"),
        ("  swap_them(acc, other);\n", SWAP, "a"),
        ("  auto set = [&](auto& c) { c = other; };\n  set(acc);\n", "", "c"),
    ],
)
def test_assignments_of_whole_accumulators_are_refused(tmp_path: Path, body: str, before: str, what: str) -> None:
    text = kernel(PAIR + batch() + batch("other") + body + batch() + STORE, before)
    assert f"`{what}` is assigned as a whole, which copies accumulators" in refused(tmp_path, text)


ROWS = """struct Rows {
  using Scales = decltype(make_tensor<float>(Shape<_2>{}));
  template <bool kFirst, class C> __device__ Scales scale(C const& c) { return make_tensor<float>(Shape<_2>{}); }
};
"""


def test_registers_of_a_function_are_its_own_whichever_arm_gives_them(tmp_path: Path) -> None:
    copy = "auto x = n ? rows.template scale<true>(acc) : rows.template scale<false>(acc);"
    text = kernel(f"  Rows rows;\n{ACC}{batch()}  {copy}\n{FLIGHTS['a branch']}{STORE}", ROWS)
    assert f"    {LOAD}" not in ported(tmp_path, text)
