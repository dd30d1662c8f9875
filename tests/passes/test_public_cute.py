# SPDX-License-Identifier: Apache-2.0
"""The table of public kernels: a row for each file whose sources have a TiledMMA of Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest
from idiom_kernels import TEXT, TYPES
from scripts_loaded import script

from porter.passes.idiom.types import answering
from porter.verify.gate import GateOptions


def test_a_file_has_the_modes_of_its_kernels_or_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = script("scripts/public_cute.py")
    answer = answering(*TYPES)
    made = {"": "", "sm_100a": "tcgen05.mma"}
    monkeypatch.setattr(
        table, "types_of", lambda options, root, files, dirs, arch="": [made[arch], *answer(root, files, dirs)]
    )
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "plain.cu").write_text("__global__ void k() {}\n")
    (folder / "ported.cu").write_text(TEXT)
    (folder / "shuffled.cu").write_text(TEXT.replace("    copy(tCrC,", "    __shfl_sync(~0u,\n 0, 0);\n    copy(tCrC,"))
    rows = [str(row) for row in table.rows([folder], GateOptions())]
    assert rows[0] == "kernels/ported.cu: W"
    assert rows[1].startswith("kernels/shuffled.cu: no: ")
    assert "\n" not in rows[1]
    assert len(rows) == 2
    made["sm_100a"] = "wgmma"
    assert str(next(table.rows([folder], GateOptions()))) == "kernels/ported.cu: no: the port has no MMA"
    assert str(next(table.rows([folder], GateOptions(), False))) == "kernels/ported.cu: W"
