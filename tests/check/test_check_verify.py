# SPDX-License-Identifier: Apache-2.0
"""`porter verify`: values and synchronization in one go. Seeds that replay a finding."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from check_ptx import HEADER
from click.testing import CliRunner

from porter.cli.main import main
from porter.report.json import schema

CORPUS = Path(__file__).parents[2] / "corpus"


def run(*args: str, code: int) -> str:
    result = CliRunner().invoke(main, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.external
def test_values_and_hazards_in_one_go(tmp_path: Path) -> None:
    kernel = str(CORPUS / "gemm_coop/gemm_coop.cu")
    run("port", kernel, "-o", str(tmp_path), code=0)
    port = tmp_path / "gemm_coop.cu"
    arguments = ["verify", "--full", kernel, "--port", str(port), "--sizes", "default", "--families", "integers"]
    document = json.loads(run("--format", "json", *arguments, code=0))
    jsonschema.validate(document, schema("verify"))
    checked, other = document["rows"]
    assert [(r["program"], r["level"], r["verdict"]) for r in checked["hazards"]] == [
        ("original", "practice", "clean"),
        ("port", "strict", "clean"),
    ]
    assert not other["hazards"]

    text = port.read_text()
    fenced = "\n".join(line for line in text.splitlines() if "fence.proxy.async" not in line)
    assert fenced != text
    port.write_text(fenced)
    document = json.loads(run("--format", "json", *arguments, code=5))
    jsonschema.validate(document, schema("verify"))
    row = document["rows"][0]
    # Only the synchronization is wrong: every value is right.
    assert row["verdict"] == "error"
    assert all(c["ok"] for c in row["port"])
    assert {d["id"] for d in row["diagnostics"]} == {"PT4103"}
    assert {h["hazard"] for r in row["hazards"] for h in r["hazards"]} == {"H16"}
    output = run(*arguments, code=5)
    assert "port: H16" in output
    # Without the checker nothing is wrong, and the last line says that it did not run.
    output = run(*arguments, "--no-hazards", code=0)
    assert "not run: " in output
    assert "the hazard checker" in output


def test_hazards_need_the_simulator() -> None:
    run("verify", str(CORPUS / "gemm_coop"), "--hazards", "--against", "nothing.porter", code=2)


# Warp 0 waits for the copy unless warp 1 has set a flag by then: only then it reads too early.
SOMETIMES = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;
@%p0 st.shared.u32 [%r9], 0; bar.sync 0;
@!%p1 bra SET;
@!%p0 bra LOADED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8];
LOADED: mov.u32 %r60, 0;
L: add.u32 %r60, %r60, 1; setp.lt.u32 %p7, %r60, 4; @%p7 bra L;
ld.volatile.shared.u32 %r61, [%r9]; setp.ne.u32 %p7, %r61, 0; @%p7 bra READ;
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;
READ: ld.shared.u32 %r4, [%r2];
X: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra X; ret;
SET: st.volatile.shared.u32 [%r9], 1; ret;
"""


def test_the_seed_of_a_hazard_is_that_of_a_run_that_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_text(HEADER.format(target="sm_90a") + SOMETIMES + "\n}\n")
    shape = ["hazards", str(path), "--arg", "f16[2048]=ones", "--arg", "u8[65536]", "--block", "64", "--smem", "8192"]
    alone = ["--schedule", "random", "--seed"]
    bad = [CliRunner().invoke(main, [*shape, *alone, str(seed)]).exit_code == 5 for seed in range(8)]
    first = bad.index(False)
    wanted = bad.index(True, first)
    several = [*shape, "--seed", str(first), "--seeds", str(8 - first)]
    document = json.loads(run("--format", "json", *several, code=5))
    jsonschema.validate(document, schema("hazards"))
    (found,) = document["runs"][0]["hazards"]
    assert found["hazard"] == "H17"
    assert found["seed"] == document["runs"][0]["replay_seed"] == wanted
    assert f"replay: --schedule random --seed {wanted}" in run(*several, code=5)
