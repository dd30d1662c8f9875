# SPDX-License-Identifier: Apache-2.0
"""`ex2.approx.f32` against what an H200 gave (scripts/gpu_ex2.cu, 2026-11-20)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from porter.sim.datapath import ex2

COUNT = 1 << 16
ARGUMENTS = "2f7be5e899c3e22c4d0c38effc3548d5c7810d8f660b03e1bd8bbb150a0450fc"
RESULTS = "0a13920083f5002518e0837bcfc0dab55786af7bf278c0f585eafc769854ead5"


def _digest(words: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(words, np.uint32).tobytes()).hexdigest()


KEPT_ARGUMENTS = "92534fdf64f9bec0"
KEPT_RESULTS = "9b03675ccd6eb317eedca927dd82219dc6bf316180485f1056f33cae1a83a305"
PAIRS = 1 << 20
"""How many the script draws for each form."""


def _drawn(skip: int) -> np.ndarray:
    """Some of the recorded arguments, which the script draws."""
    state, words = 88172645463325252, []

    def draw() -> int:
        nonlocal state
        state ^= state << 13 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= state << 17 & 0xFFFFFFFFFFFFFFFF
        return state >> 16 & 0xFFFFFFFF

    for _ in range(2 * skip):
        draw()
    for _ in range(COUNT):
        bits = draw()
        words.append((bits & 0x807FFFFF) | (draw() % 44 + 92) << 23)
    return np.array(words, np.uint32)


@pytest.fixture(scope="module")
def arguments() -> np.ndarray:
    return _drawn(0)


def test_words_of_hardware(arguments: np.ndarray) -> None:
    assert _digest(arguments) == ARGUMENTS
    assert _digest(ex2.ex2_f32(arguments.view(np.float32), True).view(np.uint32)) == RESULTS


def test_words_of_hardware_without_flushing() -> None:
    arguments = _drawn(PAIRS)
    assert _digest(arguments).startswith(KEPT_ARGUMENTS)
    assert _digest(ex2.ex2_f32(arguments.view(np.float32), False).view(np.uint32)) == KEPT_RESULTS


@pytest.mark.parametrize("control", ["rounded", "without the table"])
def test_other_rules_give_other_words(arguments: np.ndarray, control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = arguments.view(np.float32)
    if control == "rounded":
        with np.errstate(over="ignore"):
            got = np.exp2(x.astype(np.float64)).astype(np.float32)
    else:
        monkeypatch.setattr(ex2, "fractions", lambda: ex2._nearby() - np.int32(0x3F800000))
        got = ex2.ex2_f32(x, True)
    assert _digest(got.view(np.uint32)) != RESULTS


def test_edges() -> None:
    x = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, -1e-9, 128.0, 200.0, -200.0, -126.5, -149.0], np.float32)
    flushed = [1, 1, 2, np.inf, 0, 1, np.inf, np.inf, 0, 0, 0]
    np.testing.assert_array_equal(ex2.ex2_f32(x, True), np.array(flushed, np.float32))
    kept = ex2.ex2_f32(x, False)
    np.testing.assert_allclose(kept[-2:], [2.0**-126.5, 2.0**-149], rtol=1e-6)
    assert np.isnan(ex2.ex2_f32(np.array([np.nan], np.float32), False))[0]
