# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs of kernels whose MMAs a library issues: files that differ in them have headers of their own; the slow
tests plant mistakes in the port and run it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from test_cli_full_rate import CORPUS, failure, made

from porter.build import trust
from porter.cli.porting import look
from porter.passes.full_rate.given import taken
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths


def test_files_with_other_mmas_have_headers_of_their_own(tmp_path: Path) -> None:
    names = ("cute_gemm_ws", "cute_gemm_multistage", "cute_gemm_persistent")
    files = [Path(shutil.copy(CORPUS / name / f"{name}.cu", tmp_path)) for name in names]
    found = port_paths(files, PortOptions(full_rate=True), (), look)
    headers = {}
    for file in files:
        (name,) = re.findall(r'#include "(\w*cute_sm100\w*\.hpp)"', found.new[str(file)].decode())
        text = found.new[str(tmp_path / name)].decode()
        headers[file.stem] = re.findall(r"kIssuer = (\d+);", text)
    assert headers == {"cute_gemm_ws": ["4"], "cute_gemm_multistage": ["0"], "cute_gemm_persistent": ["4"]}
    assert {Path(r.path).stem for r in taken(found)} == set(names)


# --- the gate itself, on a simulator

PLANTED = {
    # nothing but the join orders what the second warpgroup stores of A in cute_gemm_rs
    ("cute_gemm_rs", "no join"): (
        r"slots\.met\[i\], 8\);(.*)&slots\.met\[0\]",
        r"slots.met[i], 4);\1&slots.met[i]",
        "hazard",
    ),
    ("cute_gemm_ws", "no relabelling"): (r"return \(kIssuer \+ warp[^;]*;", "return threadIdx.x;", "differ"),
    ("cute_gemm_ws", "M = 64"): (r"make_instr_desc<TA, TB, TC, 128,", "make_instr_desc<TA, TB, TC, 64,", "differ"),
    ("cute_gemm_ws", "both issue"): (r"return first && warp == 0", "return warp == 0", ""),
    ("cute_gemm_ws", "the second tile over the first"): (r"slots\.tmem \+ i \* kUpperHalf", "slots.tmem", "differ"),
    ("cute_gemm_ws", "no wait for the MMAs"): (r"wait_barrier\(done\[[^;]*;", "", ""),
}


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(("name", "mistake"), PLANTED, ids=" - ".join)
def test_a_planted_mistake_fails_the_gate(name: str, mistake: str) -> None:
    pattern, instead, says = PLANTED[name, mistake]
    found = made(name)
    path = next(p for p in found.new if p.endswith(".hpp"))
    text, count = re.subn(pattern, instead, found.new[path].decode(), flags=re.DOTALL)
    assert count == 1
    found.new[path] = text.encode()
    what = failure(found)
    assert what
    assert "nvcc" not in what
    assert says in what


@pytest.mark.slow
@pytest.mark.external
def test_warpgroups_that_split_n_do_not_compile(tmp_path: Path) -> None:
    copy = shutil.copytree(CORPUS / "cute_gemm_ws", tmp_path / "cute_gemm_ws") / "cute_gemm_ws.cu"
    text = copy.read_text()
    for old, new in (("Shape<_2, _1, _1>", "Shape<_1, _2, _1>"),):
        assert old in text
        text = text.replace(old, new)
    copy.write_text(text)
    what = failure(port_paths([copy], PortOptions(full_rate=True), (), look))
    assert "below each other" in what


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    "name",
    [
        "cute_gemm_ws",
        "cute_gemm_stsm",
        "cute_gemm_rs",
        "cute_gemm_f16acc",
        "cute_gemm_multistage",
        "cute_attention",
    ],
)
def test_the_gate_takes_a_corpus_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # references of some cases are functions
    monkeypatch.setattr(trust, "_said", True)
    assert failure(made(name)) == ""
