# SPDX-License-Identifier: Apache-2.0
"""`--style idiomatic`: without a compiler, or where nothing is compiled, ports are those of the compat style; the slow
tests ask the compiler, run the ports, and plant mistakes in them."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_cli_full_rate import CORPUS, failure

from porter.cli.main import main
from porter.cli.porting import look
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.verify.gate import GateOptions
from porter.verify.types import types_of

KERNELS = ("f16acc", "fp8_scaled", "multicast", "multistage", "persistent", "rs", "stsm", "tma", "ws")


def port(*words: str) -> dict[str, list[dict[str, str]]]:
    done = CliRunner().invoke(main, ["--no-config", "--format", "json", "port", "--style", "idiomatic", *words])
    assert done.exit_code == 0, done.output
    found: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return found


def test_where_nothing_is_compiled_the_port_is_that_of_the_compat_style() -> None:
    found = port("--no-compile", str(CORPUS / "cute_gemm_tma/cute_gemm_tma.cu"))
    (said,) = (d for d in found["diagnostics"] if d["id"] == "PT2570")
    assert "--no-compile" in said["message"]
    assert len(found["files"]) == 2


def test_sources_for_both_chips_are_left() -> None:
    found = port("--no-compile", "--keep-hopper", str(CORPUS / "cute_gemm_tma/cute_gemm_tma.cu"))
    (said,) = (d for d in found["diagnostics"] if d["id"] == "PT2570")
    assert "sources for one chip" in said["message"]


def test_kernels_of_their_own_mmas_are_as_in_the_compat_style(tmp_path: Path) -> None:
    source = str(CORPUS / "gemm_tma/gemm_tma.cu")
    found = port("--no-compile", source)
    assert not any(d["id"] == "PT2570" for d in found["diagnostics"])
    assert any("tcgen05" in f["diff"] for f in found["files"])


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_the_corpus_is_given_with_nothing_beside_it(name: str, tmp_path: Path) -> None:
    found = port("--trust", "-o", str(tmp_path), str(CORPUS / f"cute_gemm_{name}/cute_gemm_{name}.cu"))
    assert {d["id"] for d in found["diagnostics"]} - {"PT2571"} == {"PT2512"}
    (written,) = tmp_path.iterdir()
    text = written.read_text()
    assert "TMEM::Allocator1Sm" in text
    assert "porter" not in text


PLANTED = {
    ("ws", "no wait for sums"): (r"wait_barrier\(storage\.accumulator_full[^;]*;", "", ""),
    ("ws", "no fence behind the wait"): (r'(accumulator_full, 0\);\s*)asm[^;]*;', r"\1", "hazard"),
    ("ws", "the halves of the columns in each other's place"): (r"_0\{\}, warpgroup - 1\)", "_0{}, 2 - warpgroup)", ""),
    ("ws", "columns are freed while they are read"): (r"cutlass::arch::NamedBarrier::sync[^;]*;", "", "hazard"),
    ("tma", "all wait for operands"): (
        r"( *)if \(warp == 0\) \{\n( *)(Full::wait[^;]*;)", r"\1\3\n\1if (warp == 0) {", "hazard"),
    ("tma", "a stage goes back early"): (r"umma_arrive\(&storage\.empty", "ClusterBarrier::arrive(&storage.empty", ""),
    ("tma", "the first MMA adds"): (r"accumulate_ = UMMA::ScaleOut::Zero", "accumulate_ = UMMA::ScaleOut::One", ""),
    ("persistent", "the next tile overwrites"): (r"cutlass::arch::NamedBarrier::sync[^;]*;", "", "hazard"),
    ("persistent", "a phase that does not turn"): (r"accumulator_phase \^= 1;", "", ""),
    ("rs", "threads do not meet"): (r"cutlass::arch::NamedBarrier::sync[^;]*;", "", "hazard"),
    ("multistage", "no fence of what threads copied"): (r"cutlass::arch::fence_view_async_shared\(\);", "", ""),
}  # fmt: skip
"""Mistakes that the rules keep from ports, each in one line."""


def made(name: str) -> Ported:
    source = CORPUS / f"cute_gemm_{name}/cute_gemm_{name}.cu"
    return port_paths([source], PortOptions(types=partial(types_of, GateOptions())), (), look)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(("name", "mistake"), PLANTED, ids=" - ".join)
def test_a_planted_mistake_fails_the_gate(name: str, mistake: str) -> None:
    pattern, instead, says = PLANTED[name, mistake]
    found = made(name)
    (path,) = found.changed
    text, count = re.subn(pattern, instead, found.new[path].decode(), flags=re.DOTALL)
    assert count
    found.new[path] = text.encode()
    what = failure(found)
    assert what
    assert "nvcc" not in what
    assert says in what
