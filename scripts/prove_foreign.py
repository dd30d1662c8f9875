# SPDX-License-Identifier: Apache-2.0
"""docs/results/proofs_foreign.txt: what `porter hazards --prove` says of kernels for SM100 that others wrote.

    python scripts/prove_foreign.py [--seconds 60] [--launches DIR] [NAME ...] > docs/results/proofs_foreign.txt

CUTLASS's tutorials and examples are those of the wheel nvidia-cutlass, captured on the simulator into the folder
`--launches`, where they stay; example 70 and its like need nvidia-curand. CuTe DSL kernels are those of quack-kernels,
and NVIDIA's that flashinfer-python brings along (0.7.2). Their code is run on this machine: it is imported to compile
it. Each kernel is looked at as it was launched, at practice level (docs/rulings.md).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import nvidia_kernels
import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from foreign.dsl_cases import BLOCK_SCALED, FURTHER, KERNELS, attention_case, block_scaled_case, case_of

from porter.build.trust import VARIABLE
from porter.cli.main import main as porter
from porter.diagnostics import PorterError
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import LAUNCH_FILE, load_case
from porter.verify.launch_file import load_launch
from porter.verify.problem import Problem, bind
from porter.verify.proving import Proof, Prover

ARCH = "sm_100a"
TUTORIALS = {
    "01_mma_sm100": (128, 256, 320),
    "02_mma_tma_sm100": (128, 256, 320),
    "03_mma_tma_multicast_sm100": (512, 1024, 320),
    "04_mma_tma_2sm_sm100": (512, 1024, 320),
    "05_mma_tma_epi_sm100": (512, 1024, 128),
}
"""M, N, K by name."""
EXAMPLES = {
    "70_blackwell_gemm/70_blackwell_fp8_gemm": "--m=512 --n=512 --k=128 --iterations=0",
    "70_blackwell_gemm/70_blackwell_fp16_gemm": "--m=512 --n=512 --k=128 --iterations=0",
    "72_blackwell_narrow_precision_gemm/72a_blackwell_nvfp4_bf16_gemm": "--m=512 --n=256 --k=512 --iterations=0",
    "72_blackwell_narrow_precision_gemm/72b_blackwell_nvfp4_nvfp4_gemm": "--m=512 --n=256 --k=512 --iterations=0",
    "72_blackwell_narrow_precision_gemm/72c_blackwell_mixed_mxfp8_bf16_gemm":
        "--m=512 --n=256 --k=512 --iterations=0",
    "75_blackwell_grouped_gemm/75_blackwell_grouped_gemm":
        "--m=128 --n=128 --k=128 --groups=2 --iterations=0 --alpha=1 --beta=0 --cluster_m=2 --cluster_n=1 "
        "--cluster_fallback_m=2 --cluster_fallback_n=1",
    "76_blackwell_conv/76_blackwell_conv_fprop":
        "--n=1 --d=1 --h=8 --w=16 --c=64 --k=128 --t=1 --r=3 --s=3 --pad_d=0 --pad_h=1 --pad_w=1 --iterations=0",
    "71_blackwell_gemm_with_collective_builder/71_blackwell_gemm_with_collective_builder":
        "--m=128 --n=128 --k=64 --l=1",
}  # fmt: skip
"""Arguments by name."""

Launch = tuple[BuiltKernel, Problem]
Foreign = Callable[[Path], list[Launch]]
"""Gives the launches of one program, with a folder to work in."""


def captured(source: str, kernel: str, arguments: list[str], launches: Path, folder: Path) -> list[Launch]:
    """The launches of a program of CUTLASS's, from the folder of launches if they were captured before."""
    kept = launches / Path(source).stem
    if not list(kept.rglob(LAUNCH_FILE)):
        words = ["capture", "--backend", "sim", "--arch", ARCH, "-o", str(kept), "--kernel", kernel, "-l", "cuda"]
        for include in nvidia_kernels.include_dirs():
            words += ["-I", str(include)]
        done = CliRunner().invoke(
            porter, [*words, "--", str(nvidia_kernels.cutlass() / "examples" / source), *arguments]
        )
        if done.exit_code:
            raise SystemExit(done.output)
    found = [load_launch(path) for path in sorted(kept.rglob(LAUNCH_FILE))]
    return [(launch.kernel, launch.problem) for launch in found]


def of_dsl(case: Callable[[Path], Path], folder: Path) -> list[Launch]:
    """The launch that the host code of a CuTe DSL kernel makes, compiled without a GPU."""
    problem = bind(load_case(case(folder)))
    kernel = ToolkitBuilder().build(problem, problem.case.kernel, ARCH)
    # each size has a kernel of its own
    return [(kernel, replace(kernel.bound(problem), sizes={}))]


def kernels(launches: Path) -> Iterator[tuple[str, Foreign]]:
    for name, sizes in TUTORIALS.items():
        source = f"cute/tutorial/blackwell/{name}.cu"
        yield f"cutlass {name}", partial(captured, source, "gemm_device", list(map(str, sizes)), launches)
    for name, arguments in EXAMPLES.items():
        yield (
            f"cutlass {Path(name).name}",
            partial(captured, f"{name}.cu", "device_kernel", arguments.split(), launches),
        )
    for name, (arch, _, _) in (KERNELS | FURTHER).items():
        if arch == ARCH:
            yield f"dsl {name}", partial(of_dsl, lambda folder, name=name: case_of(name, folder)[1])
    for variant in BLOCK_SCALED:
        yield f"dsl block-scaled-{variant}", partial(of_dsl, partial(block_scaled_case, variant, 256, 256, 512))
    for keys, depth, heads in ((256, 128, 1), (512, 64, 2)):
        yield f"dsl attention-{depth}", partial(of_dsl, partial(attention_case, keys, depth, heads))


def line(name: str, proof: Proof) -> str:
    said = "its sizes"
    if proof.status == "unknown":
        said = proof.checked.unknown
    elif proof.status == "hazard":
        said = ", ".join(sorted({f.kind for f in proof.checked.findings if f.level != "review"}))
    reviews = sorted({f.kind for f in proof.checked.findings if f.level == "review"})
    said += f" (to review: {', '.join(reviews)})" if reviews and proof.status == "proved" else ""
    return f"{name:52} {proof.status:8} {proof.seconds:6.1f} s  {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kernel")
    parser.add_argument("--launches", type=Path, default=Path("build/foreign"), help="where captured launches are kept")
    parser.add_argument("names", nargs="*", help="only kernels whose names these are parts of")
    args = parser.parse_args()
    os.environ[VARIABLE] = "1"
    print(f"python scripts/prove_foreign.py --seconds {args.seconds:g} {' '.join(args.names)}".rstrip())
    seen: Counter[str] = Counter()
    for name, launched in kernels(args.launches):
        if args.names and not any(part in name for part in args.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = launched(Path(folder))
            except (PorterError, pytest.skip.Exception) as error:
                print(f"{name:52} not compiled: {str(error).splitlines()[0][:120]}", flush=True)
                continue
            for number, launch in enumerate(found):
                whole = f"{name} {number + 1}" if len(found) > 1 else name
                budget = Budget(args.seconds)
                proof = Prover("kernel", lambda sizes, launch=launch: launch, budget, "practice").prove([{}])
                print(line(whole, proof), flush=True)
                seen[proof.status] += 1
    print(", ".join(f"{count} {status}" for status, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
