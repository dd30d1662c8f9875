# SPDX-License-Identifier: Apache-2.0
"""Mistakes that scripts/checker_plants.py plants in others' kernels: each kind edits one instruction, a run shows what
it does, and what the checker says of it is told apart from what it says of the kernel as it is."""

from __future__ import annotations

import random
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts_loaded import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
plants = import_module("checker_plants")
KINDS = {kind.name: kind for kind in plants.PLANTED}
EDITS = {
    "wait for bulk stores": ("cp.async.bulk.wait_group.read 0;", ""),
    "wait for fewer bulk stores": ("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"),
    "product of all threads": (
        "@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p2;",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p2;",
    ),
    "another barrier": ("bar.sync 0, 128;", "bar.sync 14, 128;"),
    "barrier of fewer threads": ("bar.sync 3, 64;", "bar.sync 3, 32;"),
    "load tells another mbarrier": (
        "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3];",
        "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3+8];",
    ),
    "wait for another mbarrier": (
        "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;",
        "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], %r2;",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_edits(name: str) -> None:
    line, new = EDITS[name]
    text = f".visible .entry k()\n{{\n{line}\nret;\n}}\n"
    was, edited = plants.planted(text, "k", KINDS[name], {3}, random.Random(0))
    assert was == line
    assert edited.count(line) == (new == line)
    assert edited.count(new) > 0


def test_what_all_threads_do_is_not_given_to_all() -> None:
    text = ".visible .entry k()\n{\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p2;\nret;\n}\n"
    with pytest.raises(plants.NotThereError):
        plants.planted(text, "k", KINDS["product of all threads"], {3}, random.Random(0))


HANDED = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<9>;
.reg .b64 %rd<4>;
.reg .pred %p<2>;
.shared .align 4 .b8 words[512];
mov.u32 %r1, %tid.x;
mov.u32 %r2, words;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
mov.u32 %r8, 0;
LATER:
add.u32 %r8, %r8, 32;
setp.lt.u32 %p1, %r8, %r1;
@%p1 bra LATER;
st.shared.b32 [%r4], %r1;
bar.sync 0;
xor.b32 %r5, %r3, 384;
add.u32 %r6, %r2, %r5;
ld.shared.b32 %r7, [%r6];
ld.param.u64 %rd1, [out];
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.b32 [%rd3], %r7;
ret;
}
"""
FIELDS: dict[str, Any] = {
    "version": 1,
    "ptx": "kernel.ptx",
    "launch": {"grid": [1], "block": [128]},
    "tensors": {"out": {"dtype": "u32", "shape": [128], "init": 0}},
    "params": ["out"],
}


def handed(tmp_path: Path) -> Any:
    (tmp_path / "kernel.ptx").write_text(HANDED)
    (tmp_path / "launch.yaml").write_text(yaml.safe_dump(FIELDS))
    return plants.Planted("handed", tmp_path / "launch.yaml")


def test_an_effective_mistake_is_told(tmp_path: Path) -> None:
    of = handed(tmp_path)
    opcode, kernel = of.with_mistake(KINDS["barrier"], random.Random(0))
    effect = of.effect(kernel)
    said = of.said(KINDS["barrier"], opcode, kernel, effect)
    assert opcode == "bar.sync"
    assert effect.endswith("bits")
    assert (said.verdict, said.unruled) == ("error", 0)
    assert any(hazard.startswith("G1") for hazard in said.told)


def test_an_edit_that_does_nothing_is_clean(tmp_path: Path) -> None:
    of = handed(tmp_path)
    opcode, kernel = of.with_mistake(KINDS["another barrier"], random.Random(0))
    effect = of.effect(kernel)
    assert effect == ""
    assert of.said(KINDS["another barrier"], opcode, kernel, effect).verdict == "clean"


def test_what_is_missed_is_counted() -> None:
    said = [plants.Said("k", "barrier", "bar.sync", "late 0: bits", verdict, (), 0) for verdict in ("error", "clean")]
    lines = list(plants.counted(said, 0, 1))
    assert "1 kernels, 2 plants, 2 of them effective" in lines
    assert "effective: 1 error, 1 clean" in lines


@pytest.mark.external
@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("name", ["Triton, warp-specialized", "Triton, attention", "Triton, two CTAs"])
def test_none_that_is_effective_is_clean(name: str, tmp_path: Path) -> None:
    found, left = plants.of_kernel((name, plants.KERNELS[name](tmp_path), 1, float("inf")))
    effective = [one for one in found if one.effect]
    assert left == 0
    assert len(effective) > 15
    assert [one for one in effective if one.verdict not in ("error", "review")] == []
    assert sum(one.unruled for one in found) == 0
