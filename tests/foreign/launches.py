# SPDX-License-Identifier: Apache-2.0
"""Kernels for SM100, each as PTX with a launch file: two of this folder, NVIDIA's tutorials, captured on the simulator
from the package nvidia-cutlass, and CuTe DSL kernels of other packages. Inputs are small integers.
"""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import yaml
from click.testing import CliRunner
from foreign.dsl_cases import attention_case, case_of

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.verify.arguments import Raw
from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.capture.events import Block, Captured, CapturedLaunch
from porter.verify.capture.write import write_cases
from porter.verify.case import LAUNCH_FILE, load_case
from porter.verify.dsl import made_up_addresses
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.launch_file import PtxLaunch, against_expected
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

HERE = Path(__file__).resolve().parent
RNG_SEED = 7
TILE = 128
DEPTH = 64
"""Of attention's heads."""


def compile_ptx(name: str, folder: Path) -> None:
    """`kernel.ptx` of a source in this folder. Raises PorterError where there is no CUDA compiler."""
    toolkit = find_toolkit()
    command = [toolkit.nvcc, "-arch=sm_100a", "-ptx", "-I", toolkit.include_dir, "-o", folder / "kernel.ptx",
               HERE / f"{name}.cu"]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


def _write(folder: Path, launch: dict[str, Any], data: dict[str, np.ndarray], **more: Any) -> Path:
    tensors = {}
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
        result = name == "out"
        dtype = {"float16": "f16", "uint8": "u8", "float32": "f32"}[array.dtype.name]
        contents = {"init": 0} if result else {"init": {"file": f"{name}.npy"}}
        tensors[name] = {"dtype": dtype, "shape": list(array.shape), **contents}
    fields = {"version": 1, "ptx": "kernel.ptx", "launch": launch, "tensors": tensors, **more}
    (folder / "launch.yaml").write_text(yaml.safe_dump(fields), "utf-8")
    return folder / "launch.yaml"


def block_scaled(folder: Path, m: int, n: int, k: int) -> Path:
    """MXFP8."""
    compile_ptx("block_scaled_sm100", folder)
    rng, data, values = np.random.default_rng(RNG_SEED), {}, []
    for name, rows in (("a", m), ("b", n)):
        elements = rng.integers(-3, 4, (rows, k)).astype(ml_dtypes.float8_e4m3fn)
        factors = rng.integers(125, 130, (rows, k // 32)).astype(np.uint8)
        values.append(elements.astype(float) * np.repeat(2.0 ** (factors.astype(float) - 127), 32, axis=1))
        blocks = factors.reshape(rows // TILE, 4, 32, k // TILE, 4).transpose(0, 3, 2, 1, 4)
        data[name], data[f"{name}_factors"] = elements.view(np.uint8), blocks.reshape(-1)
    data["out"] = (values[0] @ values[1].T).astype(np.float32)
    maps = {f"{name}_map": {"tensor": name, "box": [TILE, TILE], "swizzle": "128B"} for name in "ab"}
    params = ["a_map", "b_map", "a_factors", "b_factors", "out", n, k]
    launch = {"grid": [n // TILE, m // TILE], "block": [192], "dynamic_smem": 3 * (2 * TILE * TILE + 1024)}
    return _write(folder, launch, data, tensor_maps=maps, params=params)


def attention(folder: Path, keys: int, heads: int) -> Path:
    """`out` is right within what f16 probabilities allow."""
    compile_ptx("attention_sm100", folder)
    rng = np.random.default_rng(RNG_SEED)
    q, k, v = (rng.integers(-3, 4, (heads, keys, DEPTH)).astype(np.float16) for _ in range(3))
    scores = np.einsum("hsd,htd->hst", q.astype(float), k.astype(float)) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("hst,htd->hsd", weights / weights.sum(-1, keepdims=True), v.astype(float)).astype(np.float32)
    data = {name: x.reshape(-1, DEPTH) for name, x in (("q", q), ("k", k), ("v", v), ("out", out))}
    maps = {f"{name}_map": {"tensor": name, "box": [TILE, DEPTH], "swizzle": "128B"} for name in "qkv"}
    scale = {"value": float(np.log2(np.e) / 8), "type": "f32"}
    launch = {"grid": [keys // TILE, heads], "block": [192], "dynamic_smem": 5 * TILE * DEPTH * 2}
    return _write(folder, launch, data, tensor_maps=maps, params=["q_map", "k_map", "v_map", "out", keys, scale])


def pair(folder: Path, m: int, n: int, k: int) -> Path:
    """NVIDIA's tutorial for pairs of blocks, in clusters of 4 x 4."""
    return tutorial("04_mma_tma_2sm_sm100", folder, m, n, k)


def tutorial(name: str, folder: Path, m: int, n: int, k: int) -> Path:
    """One of NVIDIA's tutorials for SM100, as it was launched."""
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    words = ["capture", "--backend", "sim", "--arch", "sm_100a", "-o", str(folder), "--kernel", "gemm_device"]
    for include in ("include", "tools/util/include"):
        words += ["-I", str(root / include)]
    source = root / f"examples/cute/tutorial/blackwell/{name}.cu"
    done = CliRunner().invoke(main, [*words, "--", str(source), *map(str, (m, n, k))])
    assert done.exit_code == 0, done.output
    (launch,) = folder.rglob("launch.yaml")
    return launch


def dsl_gemm(name: str, folder: Path, m: int, n: int, k: int, resident: int | None = None) -> Path:
    """One of `dsl_cases.KERNELS`; `resident` blocks run at a time."""
    launch = dsl(case_of(name, folder, M=m, N=n, K=k)[1])
    if resident is not None:
        launch.write_text(launch.read_text().replace("launch:\n", f"launch:\n  resident: {resident}\n", 1))
    return launch


def dsl_attention(folder: Path, keys: int, depth: int, heads: int) -> Path:
    """NVIDIA's."""
    return dsl(attention_case(keys, depth, heads, folder))


def dsl(case_path: Path) -> Path:
    """The launch that the host code of a CuTe DSL case makes for Blackwell, with the outputs of a run."""
    folder = case_path.parent
    problem = bind(load_case(case_path))
    built = ToolkitBuilder().build(problem, problem.case.kernel, "sm_100a")
    assert built.recorded is not None
    inputs = generate(problem, choose(["integers"], problem)[0], RNG_SEED)
    images = {n: make_image(t, inputs.get(n), 0) for n, t in problem.tensors.items()}
    values = built.launch(problem)
    result = SimBackend(SimOptions()).run(built, problem, values, images)
    assert result.status == "ok", result.findings
    blocks = []
    for tensor, address in made_up_addresses(problem).items():
        before, after = folder / f"{tensor}.before", folder / f"{tensor}.after"
        before.write_bytes(images[tensor].data.tobytes())
        after.write_bytes(result.after[tensor].data.tobytes())
        changed = before.read_bytes() != after.read_bytes()
        blocks.append(Block(address, images[tensor].data.size, before, after if changed else None))
    params = tuple(p.data for p in built.recorded.arguments if isinstance(p, Raw))
    launch = CapturedLaunch(
        built.entry, values.grid, values.block, values.cluster, values.dynamic_smem, params, tuple(blocks)
    )
    captured = Captured((launch,), (built.ptx.encode(),))
    (case,) = write_cases(captured, folder / "launches", {"program": case_path.parent.name}, chip=100).cases
    return case.parent / LAUNCH_FILE


def right(path: Path, launch: PtxLaunch, result: RunResult) -> bool:
    """Whether a run of a launch file of this module left what it is to compute: bit for bit, where that can be told."""
    if result.status != "ok":
        return False
    if "out" not in result.after:
        return not against_expected(launch, result)
    off = np.abs(result.after["out"].elements() - np.load(path.parent / "out.npy"))
    return bool(off.max() <= (2e-3 if "q" in result.after else 0))
