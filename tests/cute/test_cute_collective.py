# SPDX-License-Identifier: Apache-2.0
"""A collective whose mainloop is a member function, in SM100's own words: compiled, verified, and equal on PTX."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.tune.verifying import Proofs
from porter.verify.builder import PORT_ARCH
from porter.verify.gate import GateOptions
from porter.verify.types import types_of

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCES = Path(__file__).parent / "collective"
INTERLEAVED = """            multiply<true, -1>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
            multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            warpgroup_wait<1>();
"""
IN_TURN = """            multiply<false, 0>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            multiply<true>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
"""
CALL = "    mainloop.mma(storage, tOrO, softmax, refill, blocks, length - 1, threadIdx.x);\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [("", ""), (INTERLEAVED, IN_TURN), (CALL, f"    for (int turn = 0; turn < 1; ++turn) {{\n    {CALL}    }}\n")],
    ids=["interleaved", "in turn", "phases of the kernel"],
)
def test_a_member_function_is_verified(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(SOURCES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "attention.cu"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = port_paths([path], PortOptions(types=partial(types_of, GateOptions())), (), look)
    assert not found.roots[0].added
    assert Proofs(make_builder(None, PORT_ARCH)).of(found, found.roots[0]).missing == ""
