# SPDX-License-Identifier: Apache-2.0
"""Ports made by hand that need another tensor map, block or shared memory than their originals: they verify with the
section `port` of a case, and with no other."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from corpus_kernels import CORPUS

from porter.cli.context import current
from porter.cli.making import Ports
from porter.cli.porting import look
from porter.diagnostics import Code, PorterError
from porter.passes.helpers import Placement
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import VerifyResult
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.slow

KERNEL = CORPUS / "gemm_ws"

# One M=128 MMA of both consumers, which meet; rows of A lie in shared memory as its lanes are owned.
JOINED = (
    ('"bar.sync %0, 128;" ::"r"(15 - threadIdx.x / 128) :', '"bar.sync 15, 256;" :::'),
    ("if (threadIdx.x / 32 % 4 == 0) {\n        asm", "if (threadIdx.x / 32 == 4) {\n        asm"),
    ("shared_address(&shared_.done[index][0])", "shared_address(&shared_.done[0][0])"),
    ("64u >> 4 << 24", "128u >> 4 << 24"),
    ("cp_async_bulk_tensor_2d_global_to_shared(&sA", "cp_async_bulk_tensor_4d_global_to_shared(&sA"),
    ("num_block_m * BM, full[qidx]", "0, num_block_m * BM / 64, 0, full[qidx]"),
)
JOINED_MAP = "{tensor_maps: {map_a: {dims: [4, M // 64, 16, K], strides: [16 * K, 64 * K, K, 1], box: [4, 2, 16, BK]}}}"

DEEPER = "{constants: {STAGES: 4}}"  # a template argument, and shared memory


def changed(folder: Path, edits: tuple[tuple[str, str], ...], section: str) -> tuple[Path, Path]:
    """The case with a section, and the port of the kernel with edits by hand."""
    for file in ("gemm_ws.cu", "case.yaml"):
        shutil.copy(KERNEL / file, folder / file)
    case = folder / "case.yaml"
    if section:
        case.write_text(case.read_text() + f"port: {section}\n")
    source = folder / "gemm_ws.cu"
    ported = port_paths([source], PortOptions(placement=Placement(inline=True)), (), look).new[str(source)].decode()
    for before, after in edits:
        assert before in ported, before
        ported = ported.replace(before, after)
    port = folder / "by_hand.cu"
    port.write_text(ported)
    return case, port


def verified(folder: Path, edits: tuple[tuple[str, str], ...], section: str) -> VerifyResult:
    case, port = changed(folder, edits, section)
    wanted = Wanted(
        SimOptions(), families=("integers",), port_of=partial(Ports(current()).of_case, port=port), finished=True
    )
    return verify_cases([load_case(case)], wanted, ToolkitBuilder())


@pytest.mark.parametrize(("edits", "section"), [(JOINED, JOINED_MAP), ((), DEEPER)], ids=["tensor-map", "stages"])
def test_a_port_with_its_section_is_strictly_clean(tmp_path, edits, section):
    result = verified(tmp_path, edits, section)
    assert [r.verdict for r in result.rows] == [Verdict.CLEAN] * 3
    assert all(h.level == "strict" for r in result.rows for h in r.hazards if h.program == "port")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        pytest.param("", "4 coordinates for a tensor map of rank 2", id="none"),
        pytest.param(JOINED_MAP.replace("[4, 2, 16, BK]", "[2, 2, 16, BK]"), "", id="box"),
        pytest.param(JOINED_MAP.replace("box", "swizzle: none, box"), "", id="swizzle"),
    ],
)
def test_a_port_with_another_tensor_map_is_not_clean(tmp_path, section, said):
    row = verified(tmp_path, JOINED, section).rows[0]
    assert row.verdict is Verdict.ERROR
    assert {d.code for d in row.diagnostics} & {Code.PORT_DIFFERS, Code.RUN_FAILED}
    assert said in row.diagnostics[0].message


def test_a_tensor_map_beyond_its_tensor_is_refused_at_its_place(tmp_path):
    wide = JOINED_MAP.replace("[16 * K, 64 * K, K, 1]", "[32 * K, 64 * K, K, 1]")
    with pytest.raises(PorterError) as caught:
        verified(tmp_path, JOINED, wide)
    said = caught.value.diagnostic
    assert said.code is Code.CASE_DOES_NOT_FIT
    assert said.where.line == (tmp_path / "case.yaml").read_text().count("\n")
