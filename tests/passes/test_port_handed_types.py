# SPDX-License-Identifier: Apache-2.0
"""Functions that go by the type of the registers they are handed keep them; lambdas that list what they capture are
given the tile."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import STORE, kernel, ported, refused

HEAD = "#include <type_traits>\n"
MANY = "for (int k = 0; k < count; ++k) mma(d, a + k, b + k);"
TAKEN = "uint64_t a, uint64_t b)"
ANY = "template <class D> __device__ void step(D& d, <taken>"


def around(call: str, declared: str = "float acc[8] = {0};") -> str:
    return f"{declared} for (int k = 0; k < steps; ++k) {{ arrive(); {call} commit(); wait<0>(); }} {STORE}"


ASKED = {
    "sizeof": ANY + " { constexpr int count = sizeof(D) / 16; <many> }",
    "sizeof of the parameter": "__device__ void step(float (&d)[8], <taken> { int count = sizeof(d) / 16; <many> }",
    "sizeof of an element": "__device__ void step(float (&d)[8], <taken> {\n"
    "    int count = sizeof(d) / sizeof(d[0]); <many> }",
    "decltype": ANY + " { int count = sizeof(decltype(d)) / 16; <many> }",
    "trait": ANY + " { int count = std::extent_v<D>; <many> }",
    "constant branch": ANY + " {\n"
    "    if constexpr (std::is_array_v<D>) { mma(d, a, b); mma(d, a, b); } else { mma(d, a, b); } }",
    "assertion": ANY + " { static_assert(sizeof(D) == 32); mma(d, a, b); }",
    "guard in the head": "template <class D, std::enable_if_t<std::is_array_v<D>, int> = 0>\n"
    "__device__ void step(D& d, <taken> { mma(d, a, b); }",
    "concept": "template <class T> concept Regs = std::is_array_v<T>;\n"
    "template <Regs D> __device__ void step(D& d, <taken> { mma(d, a, b); }",
    "clause": ANY + " requires (sizeof(D) == 32) { mma(d, a, b); }",
    "value of a parameter": "template <class D, int count = sizeof(D) / 16>\n"
    "__device__ void step(D& d, <taken> { <many> }",
    "class of a constant": "template <class T> struct Count; template <class T, int N> struct Count<T[N]> {\n"
    "    static constexpr int value = N; };\n" + ANY + " { int count = Count<D>::value; <many> }",
    "deduced element": "template <class T, int N> __device__ void step(T (&d)[N], <taken> { mma(d, a, b); }",
    "automatic": "__device__ void step(auto& d, <taken> { int count = sizeof(d) / 16; <many> }",
}


@pytest.mark.parametrize("function", ASKED.values(), ids=ASKED)
def test_a_function_that_asks_for_the_type_keeps_the_registers(tmp_path: Path, function: str) -> None:
    before = function.replace("<taken>", TAKEN).replace("<many>", MANY)
    port = ported(tmp_path, kernel(around("step(acc, a, b);"), head=HEAD, before=before))
    assert "step(acc, acc_tmem, a, b)" in port
    assert "mma(d_tmem, " in port


def test_a_type_that_a_call_states_is_that_of_the_registers(tmp_path: Path) -> None:
    before = f"template <class D> __device__ void step(D& d, {TAKEN} {{ mma(d, a, b); }}"
    port = ported(tmp_path, kernel(around("step<float[8]>(acc, a, b);"), before=before))
    assert "step<float[8]>(acc, acc_tmem, a, b)" in port


def test_a_member_of_the_type_is_that_of_the_registers(tmp_path: Path) -> None:
    before = f"struct Frag {{ float d[8]; static constexpr int count = 2; }};\n\
template <class F> __device__ void step(F& f, {TAKEN} {{ for (int k = 0; k < F::count; ++k) mma(f.d, a, b); }}"
    text = kernel(around("step(acc, a, b);", "Frag acc = {};").replace("acc[i]", "acc.d[i]"), before=before)
    assert "step(acc, acc_tmem, a, b)" in ported(tmp_path, text)


@pytest.mark.parametrize("head", ["float (&d)[8]", "auto& d"])
def test_one_that_does_not_is_handed_the_tile(tmp_path: Path, head: str) -> None:
    before = f"__device__ void step({head}, {TAKEN} {{ static_assert(sizeof(a) == 8); mma(d, a, b); }}"
    assert "step(acc_tmem, a, b)" in ported(tmp_path, kernel(around("step(acc, a, b);"), before=before))


CAPTURES = {
    "[&acc]": "[&acc, &acc_tmem]",
    "[&acc, a, b]": "[&acc, a, b, &acc_tmem]",
    "[a, b, &acc]": "[a, b, &acc, &acc_tmem]",
    "[=, &acc]": "[=, &acc, &acc_tmem]",
    "[ & acc ]": "[ & acc , &acc_tmem]",
    "[&]": "[&]",
    "[&, steps]": "[&, steps]",
}


@pytest.mark.parametrize(("written", "expected"), CAPTURES.items(), ids=CAPTURES)
def test_a_lambda_that_lists_its_captures_is_given_the_tile(tmp_path: Path, written: str, expected: str) -> None:
    declared = f"float acc[8] = {{0}}; auto issue = {written}(uint64_t a, uint64_t b) {{ mma(acc, a, b); }};"
    port = ported(tmp_path, kernel(around("issue(a, b);", declared)))
    assert f"auto issue = {expected}(uint64_t a, uint64_t b) {{ mma(acc_tmem, a, b); }};" in port


def test_lambdas_in_lambdas_are_given_it_too(tmp_path: Path) -> None:
    inner = "auto one = [&acc](uint64_t a, uint64_t b) { mma(acc, a, b); };"
    declared = f"float acc[8] = {{0}}; auto issue = [&acc, a, b](int k) {{ {inner} one(a + k, b + k); }};"
    port = ported(tmp_path, kernel(around("issue(k);", declared)))
    assert port.count("&acc_tmem]") == 2


def test_two_accumulators_are_two_captures(tmp_path: Path) -> None:
    declared = "float acc[8] = {0}, e[8] = {0}; auto issue = [&acc, &e](uint64_t a) { mma(acc, a, a); mma(e, a, a); };"
    port = ported(tmp_path, kernel(around("issue(a);", declared) + STORE.replace("acc", "e")))
    assert "[&acc, &e, &acc_tmem, &e_tmem]" in port


def test_one_that_clears_registers_is_given_the_tile(tmp_path: Path) -> None:
    declared = "float acc[8]; auto zero = [&acc]() { for (int i = 0; i < 8; ++i) acc[i] = 0.f; }; zero();"
    assert "[&acc, &acc_tmem]() { acc_tmem.clear(); }" in ported(tmp_path, kernel(around("mma(acc, a, b);", declared)))


def test_a_lambda_that_only_waits_lists_nothing_more(tmp_path: Path) -> None:
    declared = "float acc[8] = {0}; auto rest = [steps] { commit(); wait<0>(); };"
    text = around("mma(acc, a, b); rest();", declared).replace("rest(); commit(); wait<0>();", "rest();")
    assert "[steps](tcgen05::Warpgroup& tc)" in ported(tmp_path, kernel(text))


def test_one_that_declares_the_registers_lists_nothing_more(tmp_path: Path) -> None:
    inner = around("mma(acc, a, b);", "float acc[8] = {0};")
    port = ported(tmp_path, kernel(f"auto all = [a, b, out, steps]() {{ {inner} }}; all();"))
    assert "auto all = [a, b, out, steps](tcgen05::Warpgroup& tc) {" in port


def test_mmas_onto_a_copy_are_refused(tmp_path: Path) -> None:
    declared = "float acc[8] = {0}; auto issue = [acc](uint64_t a, uint64_t b) mutable { mma(acc, a, b); };"
    assert any("PT2021" in text for text in refused(tmp_path, kernel(around("issue(a, b);", declared))))
