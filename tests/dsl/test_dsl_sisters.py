# SPDX-License-Identifier: Apache-2.0
"""scripts/dsl_sisters.py: a port's names beside those of another kernel that does the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from scripts_loaded import script

PORT = """import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100_utils
import cutlass.utils.hopper_helpers as sm90_utils
import cutlass._mlir.ir as ir

def run(a):
    mma = sm100_utils.make_trivial_tiled_mma(a)
    cute.copy(sm90_utils.make_smem_layout_a(mma), ir.Value)
    print(cutlass.torch.matrix(a))
"""
SISTER = """import cutlass.cute as cute
from cutlass.utils import sm100 as utils

def run(a):
    mma = utils.make_trivial_tiled_mma(a)
    cute.copy(utils.make_smem_layout_a(mma))
    cute.arch.fence_proxy()
"""
EXPECTED = """port.py: 2 names as sister/other.py, 1 of cutlass._mlir
  tiled MMA: as the sister
  layouts of operands
    port: utils.hopper_helpers.make_smem_layout_a
    sister: utils.blackwell_helpers.make_smem_layout_a
  fences
    sister: arch.fence_proxy
  others
    port: _mlir.ir.Value"""


def test_names_that_one_of_both_has_alone(tmp_path: Path) -> None:
    port, sister = tmp_path / "port.py", tmp_path / "sister" / "other.py"
    sister.parent.mkdir()
    port.write_text(PORT)
    sister.write_text(SISTER)
    assert "\n".join(script("scripts/dsl_sisters.py").table(port, sister)) == EXPECTED


@pytest.mark.external
@pytest.mark.parametrize("is_attribute", [False, True])
def test_layouts_of_a_file_or_what_they_lack(is_attribute: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    shutil.copytree(Path(__file__).parents[2] / "corpus" / "dsl_gemm", tmp_path / "dsl_gemm")
    path = tmp_path / "dsl_gemm" / "dsl_gemm.py"
    said = script("scripts/dsl_sisters.py").laid_out
    if is_attribute:
        path.write_text(path.read_text().replace("tiled_mma = sm90", "tiled_mma = self.mma = sm90", 1))
        assert said(path).startswith("dsl_gemm.py: without sm100-layouts (PTR592); missing: PT25")
    else:
        assert said(path) == "dsl_gemm.py: sm100-layouts (PTR592)"
