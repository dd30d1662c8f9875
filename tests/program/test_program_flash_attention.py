# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's forward kernel from a local clone of its repository, ported without an edit by hand: nothing in it
is refused, and the port gives its original's bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources
from porter.sim import Options
from porter.verify.program import ProgramOptions, ProgramOutcome, run_program

pytestmark = [pytest.mark.external, pytest.mark.slow]

DRIVER = Path(__file__).with_name("flash_attention_forward.h")
FLAGS = ("--expt-relaxed-constexpr", "--expt-extended-lambda")
CONFIGURATIONS = {
    "bf16_d64": ("bfloat16_t", 64, 64, True),
    "bf16_d128": ("bfloat16_t", 128, 128, True),
    "fp8_d128": ("float_e4m3_t", 128, 128, True),
    "bf16_d64_dv512": ("bfloat16_t", 64, 512, False),
}
"""Element, head dimensions of Q and V, causal."""
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


def cutlass() -> Path:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "source" / "include"


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


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_port_gives_the_bits_of_its_original(
    name: str, hopper: Path, built: Callable[..., Path], tmp_path: Path
) -> None:
    element, d, dv, causal = CONFIGURATIONS[name]
    source = tmp_path / f"{name}.cu"
    source.write_text(
        f"#include <cutlass/numeric_types.h>\nusing Element = cutlass::{element};\n"
        "using ElementOut = cutlass::bfloat16_t;\n"
        f"constexpr int kHeadDim = {d}, kHeadDimV = {dv};\nconstexpr bool kCausal = {str(causal).lower()};\n"
        f'#include "{DRIVER.name}"\nint main() {{ return run(); }}\n'
    )
    (tmp_path / DRIVER.name).write_bytes(DRIVER.read_bytes())
    folder = tmp_path / "port"
    folder.mkdir()
    for path, text in ported(source, hopper).files.items():
        (folder / Path(path).name).write_bytes(text)
    outcomes = [
        ran(built(tmp_path / source.name, "sm_90a", (hopper, cutlass()), (*FLAGS, "-DCUTLASS_ENABLE_GDC_FOR_SM90"))),
        ran(built(folder / source.name, "sm_100a", (hopper, cutlass()), (*FLAGS, "-DCUTLASS_ENABLE_GDC_FOR_SM100"))),
    ]
    assert outcomes[0].stdout.startswith("no error bad 0 hash ")
    assert outcomes[0].stdout == outcomes[1].stdout


def ran(program: Path) -> ProgramOutcome:
    outcome = run_program(program, [], ProgramOptions(Options(), multiprocessors=2))
    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    return outcome
