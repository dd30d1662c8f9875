# SPDX-License-Identifier: Apache-2.0
"""`porter verify PATH` with no option finds what the default size cannot show. Needs a CUDA compiler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from test_verify_planted import _compiler_missing

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.report.json import schema

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
pytestmark = pytest.mark.skipif(_compiler_missing() is not None, reason=str(_compiler_missing()))


def run(*args: object, code: int) -> str:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def ported(tmp_path: Path, kernel: Path) -> Path:
    run("port", "--style", "compat", kernel, "-o", tmp_path, code=0)
    return tmp_path / kernel.name


def plant(port: Path, text: str, instead: str) -> None:
    before = port.read_text()
    assert before.count(text) == 1, f"the port holds {before.count(text)} of {text}"
    port.write_text(before.replace(text, instead))


MISTAKES = {
    # (kernel, text in its port, what stands there instead, why the size was added that shows it)
    "edge-of-rows": ("gemm_coop", "if (row < M) {", "if (true) {", "edge of K and M and N"),
    "edge-of-columns": ("gemm_coop", "if (col < N) {", "if (true) {", "edge of K and M and N"),
    "second-instantiation": ("attention_fwd", "(Causal && key > query)", "(Causal && HeadDim == 64 && key > query)",
                             "other instantiation"),
    "step-17": ("gemm_tma", "&tile_b[kk])", "&tile_b[k == 16 * BK ? 0 : kk])", "long K"),
    "block-17": ("attention_fwd", "smem.k[ring.stage][k / 4] + k % 4 * 16);",
                 "smem.k[ring.stage][k / 4] + (block == 16 ? 0 : k % 4 * 16));", "long S"),
}  # fmt: skip
SLOW = ("edge-of-rows", "second-instantiation", "block-17")


def codes(document: dict) -> set[str]:
    return {d["id"] for row in document["rows"] for d in row["diagnostics"]}


@pytest.mark.spread(3)
@pytest.mark.parametrize("mistake", [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MISTAKES
])  # fmt: skip
def test_a_mistake_beyond_the_default_size_is_found(tmp_path: Path, mistake: str) -> None:
    name, text, instead, added = MISTAKES[mistake]
    kernel = CORPUS / name / f"{name}.cu"
    port = ported(tmp_path, kernel)
    plant(port, text, instead)
    # The default size alone says nothing.
    run("verify", kernel, "--port", port, "--sizes", "default", code=ExitCode.OK)
    document = json.loads(run("--format", "json", "verify", kernel, "--port", port, code=ExitCode.DIFFERENT))
    jsonschema.validate(document, schema("verify"))
    wrong = [row for row in document["rows"] if row["verdict"] == "error"]
    assert {row["added"] for row in wrong} == {added}


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    """A branch that no size of the case takes, a size and an instantiation that were not asked for."""
    shutil.copytree(CORPUS / "attention_fwd", tmp_path / "original")
    kernel = tmp_path / "original/attention_fwd.cu"
    case = kernel.with_name("case.yaml")
    case.write_text(case.read_text().replace("sizes: {H: 2, S: 320,", "sizes: {H: 1, S: 64,", 1))
    port = ported(tmp_path / "port", kernel)
    plant(port, "row_max[h] = largest;", "row_max[h] = largest;\nif (seqlen == 77) atomicAdd(lse, 1.f);")
    line = port.read_text().splitlines().index("if (seqlen == 77) atomicAdd(lse, 1.f);") + 1
    arguments = ["verify", kernel, "--port", port, "--sizes", "default", "--families", "index"]
    document = json.loads(run("--format", "json", *arguments, code=ExitCode.OK))
    jsonschema.validate(document, schema("verify"))
    (not_run,) = document["not_run"]
    assert len(not_run["sizes"]) == 3
    assert not_run["instantiations"] == ["<64, false>", "<128, true>", "<128, false>"]
    assert 0 < not_run["missed"] < not_run["instructions"]
    places = {(p["path"], p["line"]): p for p in not_run["places"]}
    place = places[str(port), line]
    assert 0 < place["missed"] <= place["instructions"], "the branch, not its condition"
    shown = run(*arguments, code=ExitCode.OK)
    assert f"instructions of the port ({port.name}:" in shown.replace("\n", " ")
    assert "3 instantiations: <64, false>" in shown
