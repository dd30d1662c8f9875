# SPDX-License-Identifier: Apache-2.0
"""`porter mutate` on PTX with a launch file: kernels that Porter did not write."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from check_ptx import BULK, HEADER, TENSOR, WGMMA, try_wait
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.report.json import schema

BODIES = {"bulk": ("sm_90a", BULK), "tensor": ("sm_100a", TENSOR), "wgmma": ("sm_90a", WGMMA)}


def written(folder: Path, name: str, body: str | None = None) -> list[str]:
    """The options that name a kernel and its launch."""
    target, text = BODIES[name]
    ptx, launch = folder / "kernel.ptx", folder / "launch.yaml"
    ptx.write_text(HEADER.format(target=target) + (body or text) + "\n}\n")
    np.save(folder / "in.npy", np.arange(2048).astype(np.float16) % 8)
    fields = {
        "version": 1,
        "launch": {"grid": [1], "block": [128], "dynamic_smem": 8192},
        "tensors": {
            "source": {"dtype": "f16", "shape": [2048], "init": {"file": "in.npy"}},
            "out": {"dtype": "u32", "shape": [16384], "init": 0},
        },
        "params": ["source", "out"],
    }
    launch.write_text(yaml.safe_dump(fields))
    return ["--ptx", str(ptx), "--launch", str(launch)]


def porter(*words: str) -> Result:
    result = CliRunner().invoke(main, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def mutants(folder: Path, name: str) -> list[dict]:
    result = porter("--format", "json", "mutate", *written(folder, name))
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("mutate"))
    (kernel,) = document["kernels"]
    assert (kernel["program"], kernel["kernel"], kernel["status"]) == ("kernel", "kernel", "ok")
    assert not kernel["hazards"]
    return kernel["mutants"]


CAUGHT = {
    "tensor": ["tcgen05.commit", "mbarrier.try_wait", "tcgen05.wait::ld", "tcgen05.wait::st", "bar.sync",
               "fence.proxy.async", "tcgen05.alloc", "tcgen05.dealloc", "mbarrier.init"],
    "bulk": ["mbarrier.try_wait", "mbarrier.arrive.expect_tx", "cp.async.bulk.wait_group", "fence.proxy.async",
             "bar.sync"],
    "wgmma": ["wgmma.wait_group", "wgmma.fence", "wgmma.commit_group", "fence.proxy.async", "bar.sync"],
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_mutants_of_a_kernel_with_its_launch(name: str, tmp_path: Path) -> None:
    """Those that take something away are caught, or a run shows what covers them."""
    rows = mutants(tmp_path, name)
    dropped = [row for row in rows if row["how"] in ("drop", "pass at once")]
    for opcode in CAUGHT[name]:
        assert any(row["caught"] for row in dropped if row["opcode"].startswith(opcode)), opcode
    left = [row["opcode"] for row in dropped if not (row["caught"] or row["reason"])]
    # At practice level, at which mutants run, one warp's wait stands for the warpgroup's wgmma.
    assert left == (["bar.sync"] if name == "wgmma" else [])


def test_the_table_and_the_exit_code_of_a_kernel_that_is_not_clean(tmp_path: Path) -> None:
    left_out = TENSOR.replace(try_wait("W1", 0, "wait"), "")
    assert left_out != TENSOR
    result = porter("mutate", *written(tmp_path, "tensor", left_out))
    assert result.exit_code == 5
    assert "mutants caught by hazard" in result.stdout


def test_a_kernel_that_does_not_run_has_no_mutants(tmp_path: Path) -> None:
    result = porter("mutate", *written(tmp_path, "bulk", "trap; ret;"))
    assert result.exit_code == 5
    assert "no mutants run" in result.stdout
    assert "trap" in result.stderr


@pytest.mark.parametrize("more", [
    ["--original"], ["--sizes", "M=64"], ["--record", "DIR"], ["--case", "FILE"], ["--port", "FILE"], ["FILE"],
])  # fmt: skip
def test_options_of_cases_are_refused(more: list[str], tmp_path: Path) -> None:
    words = [str(tmp_path / "kernel.ptx") if w == "FILE" else str(tmp_path) if w == "DIR" else w for w in more]
    result = porter("mutate", *written(tmp_path, "bulk"), *words)
    assert result.exit_code == 2
    assert (more[0] if more[0].startswith("--") else "--launch") in result.stderr


@pytest.mark.parametrize("left", [slice(0, 2), slice(0, 0)])
def test_a_kernel_needs_its_launch(left: slice, tmp_path: Path) -> None:
    assert porter("mutate", *written(tmp_path, "bulk")[left]).exit_code == 2
