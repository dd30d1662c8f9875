# SPDX-License-Identifier: Apache-2.0
"""Kernels for which steps of the native style are wrong, or not known to be right: the compiler, PTX or a run refuses
what is proposed for them, but for those that `scripts/shadow_native.py` gives a reason for."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts_loaded import script
from shadow_kernels import Kernel, cases

SHADOW = script("scripts/shadow_native.py")
QUICK = ("a shuffle in a helper",)


@pytest.mark.external
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(k, id=f"{k[0]}: {k[1]}", marks=[] if k[1] in QUICK else [pytest.mark.slow]) for k in cases()],
)
def test_a_wrong_step_is_refused(tmp_path: Path, kernel: Kernel) -> None:
    group, name, parts, steps = kernel
    who, what = SHADOW.judged(tmp_path, parts, steps, 20)
    assert who != "failed", what
    assert (who == "accepted") is ((group, name) in SHADOW.ACCEPTED), what


def test_what_is_accepted_is_a_kernel_of_these() -> None:
    assert set(SHADOW.ACCEPTED) <= {(group, name) for group, name, *_ in cases()}
