# SPDX-License-Identifier: Apache-2.0
"""Kernels whose wgmma stands in a library that is not at hand, ported by a user's rules alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import BATCH, HEADER, RULES, codes, kernel, port_house, written

OTHER = "namespace other { template <int N> __device__ void mma(float*, int, int); }\n"
OF_CLASS = "struct X { template <int N> __device__ void mma(float*, int, int) {} };\n"
MMA = "acme::mma<64>(acc, a, b)"


def _in_order(text: str, pieces: list[str]) -> None:
    places = [text.index(piece) for piece in pieces]
    assert places == sorted(places), text


PORTED = ["Tmem<64, 1> tmem", "float acc[32];", "sync_warpgroup();", "mma_f16(", "acc_tmem, a, b,", "tc.commit();"]
PORTED += ["tc.wait(0);", "load(acc, acc_tmem);", "out["]


def test_a_kernel_without_a_line_of_asm_is_ported(tmp_path: Path) -> None:
    text = written(port_house(tmp_path, kernel()))
    _in_order(text[text.index("__global__ void __launch") :], PORTED)
    assert "acme::" not in text


def test_without_the_rules_nothing_is_there_to_port(tmp_path: Path) -> None:
    assert not port_house(tmp_path, kernel(), RULES.replace("acme::", "other::")).changed


@pytest.mark.parametrize(
    ("mma", "before", "inside"),
    [
        ("::acme::mma<64>(acc, a, b)", "", ""),
        ("acme :: mma /* n */ < 64 > (acc, a, b)", "", ""),
        ("mma<64>(acc, a, b)", "using namespace acme;\n", ""),
        ("mma<64>(acc, a, b)", "using acme::mma;\n", ""),
        ("mma<64>(acc, a, b)", "", "using acme::mma;"),
        ("mma<64>(acc, a, b)", "", "using namespace acme;"),
        ("h::mma<64>(acc, a, b)", "namespace h = acme;\n", ""),
        ("LIB::mma<64>(acc, a, b)", "#define LIB acme\n", ""),
        ("acme::mma<N>(acc, a, b)", "constexpr int N = 64;\n", ""),
        ("acme::mma<2 * kHalf>(acc, a, b)", "", "constexpr int kHalf = 32;"),
        ("acme::mma<(8 > 4 ? 64 : 8)>(acc, a + 2, b)", "", ""),
        (
            "acme::mma<64>(acc, a, b)",
            OTHER,
            "",
        ),
    ],
)
@pytest.mark.parametrize("header", [HEADER, None])
def test_ways_to_call_it(tmp_path: Path, mma: str, before: str, inside: str, header: str | None) -> None:
    text = kernel(inside + BATCH.replace(MMA, mma), before)
    if header is None:
        text = text.replace('#include "house.cuh"', "#include <acme/house.cuh>")
    result = port_house(tmp_path, text, header=header)
    body = written(result)
    assert body.count("tcgen05::mma_f16(") == 1
    assert "mma<" not in body[body.index("__global__ void __launch") :]


@pytest.mark.parametrize(
    ("mma", "before", "inside"),
    [
        ("acme::mma<64>(acc[0], a, b)", "", ""),
        ("acme::mma<64>(acc + 0, a, b)", "", ""),
        ("acme::mma<64>(&acc[0], a, b)", "", ""),
        ("acme::mma<64>(acc, a)", "", ""),
        ("acme::mma<64, 2>(acc, a, b)", "", ""),
        ("acme::mma(acc, a, b)", "", ""),
        ("acme::mma<64>(acc, a, b, 0)", "", ""),
        ("acme::mma<kUnknown>(acc, a, b)", "", ""),
        ("acme::mma<60>(acc, a, b)", "", ""),
        ("acme::mma<128>(acc, a, b)", "", ""),
        ("acme::mma<64>(p, a, b)", "", "float* p = acc;"),
        ("acme::mma<64>(part, a, b)", "", "auto& part = acc;"),
        ("acme::mma<64>(one, a, b)", "", "float one;"),
    ],
)
def test_a_form_that_is_not_known_is_refused_and_never_passed_over(
    tmp_path: Path, mma: str, before: str, inside: str
) -> None:
    result = port_house(tmp_path, kernel(inside + BATCH.replace(MMA, mma), before))
    assert int(result.exit_code) == 3, [str(d) for d in result.diagnostics]
    assert set(codes(result)) & {"RULE_NEAR_MISS", "ACCUMULATOR_DECLARED", "ACCUMULATOR_REFERENCE"}


@pytest.mark.parametrize(
    ("mma", "before", "inside"),
    [
        (
            "other::mma<64>(acc, a, b)",
            OTHER.replace(";", " {}"),
            "",
        ),
        ("mma<64>(acc, a, b)", "template <int N> __device__ void mma(float*, int, int) {}\n", ""),
        ("x.mma<64>(acc, a, b)", OF_CLASS, "X x;"),
        (
            "X::mma<64>(acc, a, b)",
            OF_CLASS.replace("__device__", "static __device__"),
            "",
        ),
        ("mma(acc, a, b)", "", "auto mma = [](float*, int, int) {};"),
    ],
)
def test_another_function_of_the_name_is_none_of_the_rules(tmp_path: Path, mma: str, before: str, inside: str) -> None:
    text = kernel(inside + f"{mma};\n" + BATCH, before)
    assert mma in written(port_house(tmp_path, text))


def test_a_batch_that_no_wait_covers_is_seen(tmp_path: Path) -> None:
    result = port_house(tmp_path, kernel(BATCH.replace("wait<0>", "wait<1>")))
    assert any("no wait covers" in str(d) for d in result.diagnostics)
    assert codes(result)


def test_a_template_argument_of_the_kernel_is_not_guessed(tmp_path: Path) -> None:
    text = kernel(BATCH.replace("<64>", "<N>")).replace("__global__", "template <int N> __global__")
    assert "RULE_NEAR_MISS" in codes(port_house(tmp_path, text))
