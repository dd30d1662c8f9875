# SPDX-License-Identifier: Apache-2.0
"""The kernels of `external` through the commands: ported as they are, compiled, and compared with their originals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from external import EXTERNAL, Missing, write_case

from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.problem import bind

pytestmark = [pytest.mark.external, pytest.mark.slow]

SCHEDULES = {None, "eager", "random"}
"""What every port of CuTe DSL runs under: `late`, which is the default, and these."""


def written(name: str, folder: Path) -> Path:
    try:
        return write_case(name, folder)
    except Missing as missing:
        pytest.skip(str(missing))


def porter(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*words])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", [n for n, case in EXTERNAL.items() if not case.fails])
def test_the_port_has_the_originals_bits(name: str, tmp_path: Path) -> None:
    case, out = written(name, tmp_path / "case"), tmp_path / "out"
    code, text = porter("port", "--style", "compat", str(case.parent / "driver.py"), "-o", str(out))
    assert code == 0, text
    assert "compiled for sm_90a → sm_100a" in text
    port = next(out.rglob("driver.py"))
    code, text = porter("--format", "json", "verify", "--full", str(case), "--port", str(port))
    assert code == 0, text
    rows = json.loads(text)["rows"]
    assert {row["verdict"] for row in rows} <= {"clean", "review"}
    assert {row["schedule"] for row in rows} == SCHEDULES
    assert {(c["kind"], c["mismatches"]) for row in rows for c in row["between"]} == {("bits", 0)}


@pytest.mark.parametrize("name", [n for n, case in EXTERNAL.items() if case.fails])
def test_what_the_dsl_refuses_is_refused_before_and_after(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path / "case")
    code, text = porter("port", "--style", "compat", str(path.parent / "driver.py"), "-o", str(tmp_path / "out"))
    assert code == 0, text
    assert "the original does not compile here" in text
    case, port = load_case(path), next((tmp_path / "out").rglob("driver.py"))
    for source, arch in ((case.kernel, "sm_90a"), (port, "sm_100a")):
        with pytest.raises(PorterError) as caught:
            ToolkitBuilder().build(bind(case), source, arch)
        assert EXTERNAL[name].fails in caught.value.diagnostic.message + caught.value.diagnostic.detail
