# SPDX-License-Identifier: Apache-2.0
"""The kernels of `external`, as their authors wrote them, against references in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from external import EXTERNAL, Missing, write_case

from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.runner import VerifyOptions, verify

pytestmark = [pytest.mark.external, pytest.mark.slow]


@pytest.mark.parametrize("name", EXTERNAL)
def test_the_original_is_right(name: str, tmp_path: Path) -> None:
    try:
        case = load_case(write_case(name, tmp_path))
    except Missing as missing:
        pytest.skip(str(missing))
    rows = verify(case, None, ToolkitBuilder(), SimBackend(), VerifyOptions()).rows
    said = [(d.message, d.detail) for row in rows for d in row.diagnostics]
    if EXTERNAL[name].fails:
        assert {row.verdict for row in rows} == {Verdict.ERROR}
        assert EXTERNAL[name].fails in str(said)
    else:
        assert {row.verdict for row in rows} == {Verdict.CLEAN}, said
