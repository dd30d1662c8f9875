# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote, from CUTLASS's examples: they run whole and pass their own checks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest
from known_kernels import record

from porter.build.toolchain import Toolkit
from porter.sim import Options
from porter.verify.program import ProgramOptions, run_program

pytestmark = [pytest.mark.external, pytest.mark.slow]

PROGRAMS = {
    "cute/tutorial/tiled_copy": ("sm_90a", (), "Success."),
    "00_basic_gemm/basic_gemm": ("sm_90a", ("128", "128", "64"), "Passed."),
    # Warp-specialized, TMA, clusters, FP8, with scales and aux tensors; the driver's memset.
    "54_hopper_fp8_warp_specialized_gemm/54_hopper_fp8_warp_specialized_gemm": (
        "sm_90a", ("--m=256", "--n=256", "--k=128", "--iterations=0"), "Disposition: Passed",
    ),
    # Pairs of blocks, dynamic scheduling with clusterlaunchcontrol.
    "70_blackwell_gemm/70_blackwell_fp8_gemm": (
        "sm_100a", ("--m=512", "--n=512", "--k=128", "--iterations=0"), "Disposition: Passed",
    ),
    # Ten kernels, of all schedules of collective builders and of trees of epilogue visitors.
    "71_blackwell_gemm_with_collective_builder/71_blackwell_gemm_with_collective_builder": (
        "sm_100a", ("--m=128", "--n=128", "--k=64", "--l=1"), "Passed",
    ),
    # NVFP4 with scale factors from TMA, copied to Tensor Memory.
    "72_blackwell_narrow_precision_gemm/72a_blackwell_nvfp4_bf16_gemm": (
        "sm_100a", ("--m=512", "--n=256", "--k=512", "--iterations=0"), "Disposition: Passed",
    ),
    # The same with NVFP4 results and their scale factors.
    "72_blackwell_narrow_precision_gemm/72b_blackwell_nvfp4_nvfp4_gemm": (
        "sm_100a", ("--m=512", "--n=256", "--k=512", "--iterations=0"), "Disposition: Passed",
    ),
    # MXFP8 by MXFP4.
    "72_blackwell_narrow_precision_gemm/72c_blackwell_mixed_mxfp8_bf16_gemm": (
        "sm_100a", ("--m=512", "--n=256", "--k=512", "--iterations=0"), "Disposition: Passed",
    ),
}  # fmt: skip


FILLED_ON_THE_DEVICE = ("54_", "71_")
# As many threads fill as the device holds, and each begins a sequence of its own, which takes long.
MULTIPROCESSORS = {"71_blackwell_gemm_with_collective_builder/71_blackwell_gemm_with_collective_builder": 1}


def curand_headers(toolkit: Toolkit) -> Path:
    """CUTLASS's reference kernels fill tensors with cuRAND's generators."""
    found = [toolkit.include_dir, *(Path(p) / "nvidia/cu13/include" for p in sys.path)]
    for folder in found:
        if (folder / "curand_kernel.h").is_file():
            return folder
    pytest.skip("no curand_kernel.h (pip install --no-deps nvidia-curand)")


# Kernels of the third edition alone; the reference kernels of the others would take minutes to check.
CHECKED = [name for name in PROGRAMS if "fp8" in name or "blackwell" in name]


@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "functional") for name in PROGRAMS), *((name, "checking") for name in CHECKED)]
)
def test_example(
    name: str, mode: Literal["functional", "checking"], built: Callable[..., Path], toolkit: Toolkit
) -> None:
    arch, arguments, wanted = PROGRAMS[name]
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    folders = [root / "include", root / "tools/util/include", root / "examples/common"]
    # The others fill tensors on the host, for which stand-ins of the headers are enough.
    if name.startswith(FILLED_ON_THE_DEVICE):
        folders.append(curand_headers(toolkit))
    program = built(root / "examples" / f"{name}.cu", arch, tuple(folders), libraries=("cuda",))
    options = ProgramOptions(Options(mode=mode, level="practice"), multiprocessors=MULTIPROCESSORS.get(name, 8))
    outcome = run_program(program, arguments, options)
    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    assert outcome.exit_status == 0
    assert wanted in outcome.stdout
    assert "Failed" not in outcome.stdout
    hazards = [h for r in outcome.launches if r.outcome for h in r.outcome.hazards]
    assert not [(h.kind.id, h.second.opcode, h.missing) for h in hazards if h.severity == "error"]
    assert bool(hazards) == (mode == "checking")
    if hazards and arch == "sm_100a":
        done = [r.outcome for r in outcome.launches if r.outcome and "device_kernel" in r.kernel]
        size = " x ".join(a.partition("=")[2] for a in arguments[:3])
        record("NVIDIA, CUTLASS examples", Path(name).name, size, done[0].stats.warp_instructions, hazards)
