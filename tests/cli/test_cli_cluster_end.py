# SPDX-License-Identifier: Apache-2.0
"""Ports get the cluster barrier behind which no block ends that others of its cluster still need."""

from __future__ import annotations

import json
from pathlib import Path

import cluster_ends
import cluster_gemm
import pytest
from click.testing import CliRunner
from kept_sources import kept

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.endings import latent
from porter.cli.main import main
from porter.grade.endings import endings
from porter.verify.gate import GateOptions

ALL = {**cluster_ends.MENDED, **cluster_ends.ENDED, **cluster_ends.NAMED}


def source(name: str) -> Path:
    return kept({"case.yaml": cluster_gemm.CASE, "cluster_gemm.cu": ALL[name]}) / "cluster_gemm.cu"


def run(*args: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(main, ["--no-config", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def document(*args: object, code: int = 0) -> dict:
    return json.loads(run("--format", "json", *args, code=code)[0])


@pytest.mark.external
@pytest.mark.spread(20)
@pytest.mark.parametrize("name", ALL)
def test_the_compiler_says_which_kernels_end_too_early(name: str) -> None:
    path = source(name)
    found, _ = latent([path], GateOptions())
    assert found == ({(str(path.resolve()), "cluster_gemm")} if name in cluster_ends.MENDED else set())


@pytest.mark.external
def test_the_barrier_is_a_group_of_its_own(tmp_path: Path) -> None:
    path, out = source("nothing at the end"), tmp_path / "out"
    port = document("port", "--style", "compat", path, "-o", out)
    (group,) = (g for g in port["groups"] if g["rule"] == "PT4112")
    assert group["safety"] == "review"
    assert "barrier.cluster.arrive;" in group["edits"][0]["replacement"]
    assert not [d for d in port["diagnostics"] if d["id"] == "PT4112"]
    ptx = compile_ptx(CompileRequest(out / path.name, "sm_100a")).ptx
    assert endings(ptx) == []

    plain = document("port", "--style", "compat", "--no-mend", path)
    assert not [g for g in plain["groups"] if g["rule"] == "PT4112"]
    (said,) = (d for d in plain["diagnostics"] if d["id"] == "PT4112")
    assert said["severity"] == "warning"
    assert said["location"]["path"] == str(path)


@pytest.mark.slow
@pytest.mark.external
def test_it_is_refused_alone(tmp_path: Path) -> None:
    path, out = source("nothing at the end"), tmp_path / "out"
    result = CliRunner().invoke(
        main,
        ["--no-config", "review", str(path), "-o", str(out), "--session", str(tmp_path / "s.json"), "--no-compile"],
        input="a\n",
    )
    assert "PT4112" not in result.output, "nothing was compiled"
    words = ["review", "--style", "compat", str(path), "-o", str(out), "--session", str(tmp_path / "t.json")]
    result = CliRunner().invoke(main, ["--no-config", *words], input="n\na\n")
    assert result.exit_code == 3, result.output
    text = (out / path.name).read_text()
    assert "tcgen05::Tmem<" in text
    assert "ClusterEnd" not in text


@pytest.mark.slow
@pytest.mark.external
def test_a_template_gets_what_all_of_its_kernels_can_have() -> None:
    path = kept({"cluster_gemm.cu": cluster_ends.OF_TWO}) / "cluster_gemm.cu"
    assert latent([path], GateOptions())[0] == set()
    without = cluster_ends.OF_TWO.replace("if constexpr (CLUSTER == 1) __syncthreads();", "")
    path = kept({"cluster_gemm.cu": without}) / "cluster_gemm.cu"
    assert len(latent([path], GateOptions())[0]) == 1


@pytest.mark.external
@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("name", "why"), list(zip(cluster_ends.NAMED, ("an arrival", "counts all threads"), strict=True))
)
def test_what_could_hang_is_named(name: str, why: str) -> None:
    path = source(name)
    port = document("port", "--style", "compat", path)
    assert not [g for g in port["groups"] if g["rule"] == "PT4112"]
    (said,) = (d for d in port["diagnostics"] if d["id"] == "PT4112")
    assert why in said["message"]


@pytest.mark.slow
@pytest.mark.external
def test_both_forms(tmp_path: Path) -> None:
    path, out = source("a role that returns"), tmp_path / "out"
    run("port", "--style", "compat", "--keep-hopper", path, "-o", out)
    # the gate has compared the form for Hopper with the original
    assert (out / path.name).read_text().count("~ClusterEnd()") == 1


@pytest.mark.slow
@pytest.mark.external
def test_one_header_of_two_files(tmp_path: Path) -> None:
    """Only one of them makes a kernel of the template."""
    head, _, launch = cluster_ends.BARE.partition("void launch")
    for name, text in (("gemm.cuh", f"#pragma once\n{head}"), ("a.cu", f'#include "gemm.cuh"\nvoid launch{launch}'),
                       ("b.cu", '#include "gemm.cuh"\nint unused() { return 0; }\n')):  # fmt: skip
        (tmp_path / name).write_text(text)
    run("port", "--style", "compat", tmp_path, "-o", tmp_path / "out")
    (header,) = (tmp_path / "out").rglob("gemm.cuh")
    assert header.read_text().count("~ClusterEnd()") == 1


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", [*cluster_ends.MENDED, *cluster_ends.ENDED])
def test_the_port_is_clean(tmp_path: Path, name: str) -> None:
    path, out = source(name), tmp_path / "out"
    run("port", "--style", "compat", path, "-o", out)
    assert ("~ClusterEnd" in (out / path.name).read_text()) is (name in cluster_ends.MENDED)
    found = document("hazards", path, "--port", out / path.name)
    assert [(r["verdict"], r["inherited"]) for r in found["runs"]] == [("clean", [])]


@pytest.mark.slow
@pytest.mark.external
def test_without_it_the_port_has_what_its_original_has(tmp_path: Path) -> None:
    path, out = source("nothing at the end"), tmp_path / "out"
    run("port", "--style", "compat", "--no-mend", path, "-o", out)
    found = document("hazards", path, "--port", out / path.name)
    assert {h["hazard"] for r in found["runs"] for h in r["inherited"]} == {"H26"}
