# SPDX-License-Identifier: Apache-2.0
"""Kernels whose registers keep Hopper's layout, in SM100's own words: a collective whose mainloop is a member function,
two tiles for each of two warpgroups, A of 8 bits from registers; compiled, verified, and equal on PTX."""

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
from porter.verify import proof
from porter.verify.builder import PORT_ARCH
from porter.verify.gate import GateOptions
from porter.verify.types import types_of

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCES = Path(__file__).parent
INTERLEAVED = """            multiply<true, -1>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
            multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            warpgroup_wait<1>();
"""
IN_TURN = """            multiply<false, 0>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            multiply<true>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
"""
CALL = "    mainloop.mma(storage, tOrO, refill, blocks, threadIdx.x);\n"


@pytest.fixture(autouse=True)
def _has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine has the time for the comparison that an idle one has."""
    monkeypatch.setattr(proof, "_JUDGED", 200.0)


@pytest.mark.parametrize(
    "changes",
    [(), ((INTERLEAVED, IN_TURN), (CALL, f"    for (int turn = 0; turn < 1; ++turn) {{\n    {CALL}    }}\n"))],
    ids=["interleaved", "in turn, with phases of the kernel"],
)
def test_a_member_function_is_verified(tmp_path: Path, changes: tuple[tuple[str, str], ...]) -> None:
    shutil.copytree(SOURCES / "collective", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "products.cu"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    assert missing(path) == ""


@pytest.mark.parametrize("source", ["tiles/alternating.cu", "bytes/bytes.cu"])
def test_two_tiles_of_a_warpgroup_and_registers_of_bytes_are_verified(source: str) -> None:
    assert missing(SOURCES / source) == ""


def missing(path: Path) -> str:
    """What keeps the port of a file with MMAs of 64 rows from being given."""
    found = port_paths([path], PortOptions(types=partial(types_of, GateOptions())), (), look)
    assert not found.roots[0].added
    assert found.roots[0].modes == ("P",)
    return Proofs(make_builder(None, PORT_ARCH)).of(found, found.roots[0]).missing
