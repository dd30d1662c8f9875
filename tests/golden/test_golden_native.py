# SPDX-License-Identifier: Apache-2.0
"""What `--style native` makes another in the port of a corpus kernel at full rate, or in SM100's own words, as a diff
that was read by eye; steps that it leaves out, with the facts that are missing. `make golden` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_golden_full_rate import full_rate_port
from test_golden_ports import GOLDEN

from porter.diagnostics import Code
from porter.lang.diff import unified_diff
from porter.passes.native.step import STEPS

STAGES = 6
"""What is asked for; how many are best is the grade's to say."""
KERNELS = sorted(p.stem for p in (GOLDEN / "native").glob("*.diff"))


def test_there_are_goldens() -> None:
    assert {"gemm_ws", "gemm_persistent"} <= set(KERNELS)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", KERNELS)
def test_native_changes_what_the_golden_one_says(name: str) -> None:
    before, result = full_rate_port(name), full_rate_port(name, STEPS, STAGES)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    left = [
        f"# {d.values['step']}: {d.values['what']}\n" for d in result.diagnostics if d.code is Code.NATIVE_LEFT
    ]  # fmt: skip
    text = "".join(left) + unified_diff(before.files, result.files, ()).decode()
    golden = Path(GOLDEN / "native" / f"{name}.diff")
    if os.environ.get("PORTER_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
