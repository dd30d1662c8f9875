# SPDX-License-Identifier: Apache-2.0
"""A lambda with MMAs whose calls are not all seen is refused where it gets lost: nobody would know how many batches
are under way."""

from __future__ import annotations

from pathlib import Path

import pytest
from variant_catalog import VARIANTS

from porter.cli.porting import port_paths
from porter.diagnostics import Code, ExitCode
from porter.passes.ported import Ported

LOST = {
    "lambda_by_pointer_to_it": "auto* g = &batch",
    "lambda_by_arrow": "auto* g = &batch",
    "lambda_in_object": "held{batch}",
    "lambda_in_object_called": "held{batch}",
    "lambda_captured_as": "[f = batch]",
    "lambda_of_function": "return [&d, a, b]",
    "batch_kept_by_maker": "later = in_batch(",
}
SEEN = ("lambda_by_operator", "lambda_by_copy_of_it", "lambda_handed_on", "steps_handed_to_batch", "lambda_template")


def ported(name: str, directory: Path) -> Ported:
    kernel = directory / "kernel.cu"
    kernel.write_text(VARIANTS[name].source)
    return port_paths([kernel])


@pytest.mark.parametrize("name", LOST)
def test_a_lambda_that_gets_lost_is_refused_there(name: str, tmp_path: Path) -> None:
    result = ported(name, tmp_path)
    assert result.exit_code is ExitCode.UNPORTED
    assert result.new == result.old
    found = [d for d in result.diagnostics if "not all seen" in d.message]
    assert {d.code for d in found} == {Code.CALL_NOT_FOLLOWED}
    lines = VARIANTS[name].source.splitlines()
    assert any(LOST[name] in lines[d.where.line - 1] for d in found if d.where is not None and d.where.line)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", SEEN)
def test_other_spellings_of_calls_are_seen(name: str, tmp_path: Path) -> None:
    result = ported(name, tmp_path)
    assert result.exit_code is ExitCode.OK
    assert result.new != result.old
