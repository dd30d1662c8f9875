# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's kernels from a local clone of its repository, ported without an edit by hand: nothing in them is
refused, and programs that call them, forward and backward, give their original's bits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clones import ECOSYSTEM, check_bits

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources

pytestmark = [pytest.mark.external, pytest.mark.slow]

REPOSITORY = "Dao-AILab/flash-attention"


PROGRAMS = {Path(e["path"]).stem: e for e in ECOSYSTEM.manifest() if e["repository"] == REPOSITORY and "program" in e}
INSTANTIATIONS = (
    "fwd_hdim64_bf16_sm90",
    "fwd_hdim128_bf16_sm90",
    "fwd_hdim128_e4m3_sm90",
    "fwd_hdim64_512_bf16_sm90",
    "fwd_hdim256_fp16_packgqa_sm90",
    "bwd_hdim64_bf16_sm90",
)


@pytest.fixture(scope="module")
def hopper() -> Path:
    path = os.environ.get("PORTER_FLASH_ATTENTION")
    if not path or not (Path(path) / "hopper" / "instantiations").is_dir():
        pytest.skip("PORTER_FLASH_ATTENTION names no clone of FlashAttention with hopper/instantiations in it")
    return Path(path) / "hopper"


def ported(source: Path, hopper: Path) -> PortResult:
    result = port_sources(load_sources(source, [hopper]))
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    return result


@pytest.mark.parametrize("name", INSTANTIATIONS)
def test_instantiations_are_ported(name: str, hopper: Path) -> None:
    result = ported(hopper / "instantiations" / f"flash_{name}.cu", hopper)
    kind = name[:3]
    assert result.kernels == [f"flash::FlashAttn{kind.capitalize()}Sm90::operator()"]
    texts = {Path(path).name: text.decode() for path, text in result.files.items()}
    kernel = texts[f"flash_{kind}_kernel_sm90.h"]
    assert "porter::Tmem<" in kernel
    assert texts[f"mainloop_{kind}_sm90_tma_gmma_ws.hpp"].count("porter::accumulator(") == {"fwd": 3, "bwd": 4}[kind]
    assert not any("warpgroup_wait<" in text.replace("cute::warpgroup_wait<", "") for text in texts.values())
    # MMAs of single warps stay, and so does what instantiations choose
    for unchanged in (f"mainloop_{kind}_sm80.hpp", f"flash_{kind}_kernel_sm80.h", f"flash_{kind}_launch_template.h"):
        assert texts[unchanged] == (hopper / unchanged).read_text()


def test_programs_are_of_both_directions() -> None:
    assert {name.split("_")[1] for name in PROGRAMS} == {"fwd", "bwd"}
    assert {"flash_fwd_hdim128_e4m3_sm90", "flash_bwd_hdim128_bf16_sm90"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_port_gives_the_bits_of_its_original(name: str, hopper: Path, tmp_path: Path) -> None:
    (tmp_path / REPOSITORY.replace("/", "+")).symlink_to(hopper.parent.resolve())
    check_bits(PROGRAMS[name], tmp_path)
