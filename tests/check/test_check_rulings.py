# SPDX-License-Identifier: Apache-2.0
"""docs/rulings.md says what the checker does: every ruling has a section, an ID in the code and a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from check_ptx import BULK, TENSOR, WGMMA, check, names, without

from porter.sim.check.rulings import Ruling

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rulings.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([a-z0-9-]+): .*\n((?:(?!^## ).*\n?)*)", PAGE, re.MULTILINE))
CHECKER = "".join(p.read_text("utf-8") for p in (ROOT / "porter" / "sim").rglob("*.py") if p.name != "rulings.py")


def test_there_is_a_section_for_every_ruling_and_no_other() -> None:
    assert list(SECTIONS) == sorted(r.value for r in Ruling)


@pytest.mark.parametrize("ruling", Ruling, ids=lambda r: r.value)
def test_a_section_has_all_parts(ruling: Ruling) -> None:
    text = SECTIONS[ruling]
    assert "*Question.*" in text
    assert "*Both levels*" in text or ("*Strict*" in text and "*Practice*" in text)
    assert "*Touches*" in text


@pytest.mark.parametrize("ruling", Ruling, ids=lambda r: r.value)
def test_the_checker_uses_it(ruling: Ruling) -> None:
    assert f"Ruling.{ruling.name}" in CHECKER or f"`{ruling.value}`" in CHECKER


KERNELS = [(k, t, n) for k, t in ((TENSOR, "sm_100a"), (BULK, "sm_90a"), (WGMMA, "sm_90a")) for n in names(k)]


@pytest.mark.parametrize(("kernel", "target", "name"), KERNELS, ids=lambda x: x if len(str(x)) < 30 else "")
def test_what_is_to_review_names_its_ruling(kernel: str, target: str, name: str) -> None:
    body = without(kernel, name)
    for h in check(body, target, level="practice").hazards:
        assert (h.severity == "review") == (h.ruling is not None), h.message
    assert all(h.ruling is not None for h in check(body, target).hazards if h.strict)
