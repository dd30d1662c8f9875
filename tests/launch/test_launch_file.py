# SPDX-License-Identifier: Apache-2.0
"""Kernels that are known as PTX only, run as launch files say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import Code, PorterError
from porter.ptx.tensormap import TensorMapInterleave, TensorMapL2Promotion, TensorMapSwizzle, TensorMapType
from porter.report.json import schema
from porter.verify.backends import SimBackend
from porter.verify.launch_file import load_launch
from porter.verify.yaml_file import load_yaml

KERNELS = Path(__file__).with_name("kernels.ptx")

Launch = dict[str, Any]
X = np.arange(64, dtype=np.float32) - 20


def launch(entry: str, params: list[Any], tensors: Launch | None = None, **more: Any) -> Launch:
    at = {"grid": [1], "block": [64], **more.pop("at", {})}
    return {"version": 1, "entry": entry, "launch": at, "tensors": tensors or {}, "params": params, **more}


def written(folder: Path, fields: Launch, ptx: str | None = None) -> Path:
    """A launch file of the kernels beside it."""
    shutil.copy(KERNELS, folder / "kernels.ptx")
    if ptx is not None:
        (folder / "kernels.ptx").write_text(ptx)
    path = folder / "launch.yaml"
    path.write_text(yaml.safe_dump({"ptx": "kernels.ptx", **fields}, sort_keys=False))
    return path


def output(path: Path, name: str = "y") -> Any:
    found = load_launch(path)
    result = SimBackend().run(found.kernel, found.problem, found.launch, found.images)
    assert result.status == "ok", result.findings
    return result.after[name].elements()


def porter(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


F32 = {"dtype": "f32", "shape": [64]}
XS = {**F32, "init": [float(v) for v in X]}
U32 = {"dtype": "u32", "shape": [64], "init": 0}
ROWS = {"dtype": "u32", "shape": [8, 16], "init": "iota"}
TILE = {"tensor": "x", "box": [4, 16]}
SLICE = np.arange(128, dtype=np.uint32)[32:96]

VARIANTS = {
    "numbers": (launch("scale", ["x", "y", 2, 64], {"x": XS, "y": F32}), X * 2),
    "types": (
        launch("scale", ["x", "y", {"value": 0.5, "type": "f32"}, {"value": 64, "type": "u32"}], {"x": XS, "y": F32}),
        X / 2,
    ),
    "sizes": (
        launch(
            "scale", ["x", "y", "F", "N"], {"x": {**XS, "shape": ["N"]}, "y": {**F32, "shape": ["N"]}},
            at={"grid": ["ceil_div(N, T)"], "block": ["T"]}, sizes={"N": 64, "F": 3}, constants={"T": "N / 2"},
        ),
        X * 3,
    ),
    "part of a name": (launch("scal", ["x", "y", 2, 64], {"x": XS, "y": F32}), X * 2),
    "offset": (
        launch("scale", [{"address_of": "x", "offset": 4}, "y", 2, 60], {"x": XS, "y": {**F32, "init": 7}}),
        np.append(X[4:] * 2, [7, 7, 7, 7]),
    ),
    "struct": (
        launch(
            "packed",
            [{"struct": ["x", {"value": 1, "type": "s32"}, {"value": -1, "type": "f32"}, "y"]}],
            {"x": {**F32, "shape": [65], "init": "iota"}, "y": F32},
        ),
        -np.arange(1, 65),
    ),
    "bytes": (
        launch(
            "packed",
            [{"bytes": "00" * 8 + "02000000" + "00000040" + "00" * 8,
              "contains": [{"at": 0, "address_of": "x"}, {"at": 16, "address_of": "y"}]}],
            {"x": {**F32, "shape": [66], "init": "iota"}, "y": F32},
        ),
        2 * np.arange(2, 66),
    ),
    "address table": (
        launch(
            "gather", ["table", "y"],
            {"table": {"dtype": "u64", "shape": [3], "init": 0,
                       "contains": [{"at": 8 * i, "address_of": "x", "byte_offset": 4 * i * i} for i in range(3)]},
             "x": {**U32, "init": "iota"}, "y": {**U32, "shape": [3]}},
            at={"block": [3]},
        ),
        np.array([0, 1, 4]),
    ),
    "dynamic shared memory": (
        launch("box", ["map", "y", 256, 2], {"x": ROWS, "y": U32}, at={"dynamic_smem": 256}, tensor_maps={"map": TILE}),
        SLICE,
    ),
    "map of a part": (
        launch(
            "box", ["map", "y", 256, 0], {"x": ROWS, "y": U32}, at={"dynamic_smem": 256},
            tensor_maps={"map": {**TILE, "dims": [6, 16], "strides": [16, 1], "offset": 32}},
        ),
        SLICE,
    ),
    "map past the end": (
        launch("box", ["map", "y", 256, 6], {"x": ROWS, "y": U32}, at={"dynamic_smem": 256}, tensor_maps={"map": TILE}),
        np.append(np.arange(96, 128), np.zeros(32)),
    ),
    "map with a swizzle": (
        launch(
            "box", ["map", "y", 256, 2], {"x": ROWS, "y": U32}, at={"dynamic_smem": 256},
            tensor_maps={"map": {**TILE, "swizzle": "64B"}},
        ),
        SLICE.reshape(4, 4, 4)[np.arange(4)[:, None], np.arange(4) ^ np.arange(4)[:, None] // 2].reshape(-1),
    ),
    "cluster that the kernel requires": (
        launch("ranks", ["y"], {"y": {**U32, "shape": [4]}}, at={"grid": [4], "block": [32]}), np.array([0, 1, 0, 1]),
    ),
    "strides": (
        launch(
            "scale", ["x", "y", 2, 7],
            {"x": {"dtype": "f32", "shape": [2, 3], "strides": [4, 1], "init": [1, 2, 3, 4, 5, 6]},
             "y": {**F32, "shape": [2, 3], "strides": [4, 1]}},
        ),
        np.array([[2, 4, 6], [8, 10, 12]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_arguments_and_memory(name: str, tmp_path: Path) -> None:
    fields, expected = VARIANTS[name]
    np.testing.assert_array_equal(output(written(tmp_path, fields)), expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_clean_under_the_checker(name: str, tmp_path: Path) -> None:
    done = porter("--format", "json", "hazards", "--launch", written(tmp_path, VARIANTS[name][0]))
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["verdict"], run["program"]) == ("clean", "kernel")


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("zeros", np.zeros(64)), ("ones", np.ones(64)), ("iota", np.arange(64)), (3, np.full(64, 3)),
        ("N / 2", np.full(64, 32)), ({"file": "x.npy"}, X), ({"file": "x.bin"}, X), (None, np.full(64, np.nan)),
    ],
)  # fmt: skip
def test_contents(init: object, expected: object, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    x = F32 if init is None else {**F32, "init": init}
    path = written(tmp_path, launch("scale", ["x", "y", 1, 64], {"x": x, "y": F32}, sizes={"N": 64}))
    np.testing.assert_array_equal(output(path), expected)


@pytest.mark.parametrize("init", ["normal", "uniform", "integers"])
def test_drawn_contents_follow_the_seed(init: str, tmp_path: Path) -> None:
    tensors = {"x": {**F32, "init": init}, "y": F32}
    path = written(tmp_path, launch("scale", ["x", "y", 1, 64], tensors))
    first, again, other = (load_launch(path, seed=seed).images["x"].elements() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert np.unique(first.astype(np.float32)).size > 3


def test_all_fields_of_a_tensor_map(tmp_path: Path) -> None:
    tensors = {"x": {"dtype": "u8", "shape": [4096]}, "y": F32}
    plain = {"tensor": "x", "dims": [4, 8, 32], "strides": [256, 32, 1], "box": [1, 2, 32]}
    maps = {
        "all": {**plain, "dtype": "f32_ftz", "dims": [2, 4, 8], "strides": [64, 16, 1], "offset": 4, "box": [1, 2, 8],
                "element_strides": [1, 2, 1], "swizzle": "128B_ATOM_32B", "l2_promotion": "256B", "oob": "nan"},
        "interleaved": {**plain, "interleave": "32B"},
        "nibbles": {**plain, "dtype": "b4x16", "dims": [8, 64], "strides": [64, 1], "box": [8, 64]},
        "padded": {**plain, "dtype": "b6x16_p32", "dims": [8, 128], "strides": [128, 1], "box": [8, 128]},
        "im2col": {**plain, "dims": [2, 4, 4, 32], "strides": [512, 128, 32, 1], "box": [16, 32],
                   "im2col": {"lower": [-1, 0], "upper": [1, 2]}},
    }  # fmt: skip
    fields = launch("scale", ["x", "y", 1, 64], tensors, tensor_maps=maps)
    found = {name: bound.map for name, bound in load_launch(written(tmp_path, fields)).problem.tensor_maps.items()}
    one = found["all"]
    assert (one.dtype, one.sizes, one.strides, one.box) == (TensorMapType.FLOAT32_FTZ, (8, 4, 2), (64, 256), (8, 2, 1))
    assert (one.address, one.element_strides, one.oob_nan) == (16, (1, 2, 1), True)
    assert (one.swizzle, one.l2_promotion) == (TensorMapSwizzle.B128_ATOM_32B, TensorMapL2Promotion.B256)
    assert found["interleaved"].interleave is TensorMapInterleave.B32
    assert (found["nibbles"].dtype, found["nibbles"].strides) == (TensorMapType.U4_ALIGN8B, (32,))
    assert (found["padded"].dtype, found["padded"].strides) == (TensorMapType.U6_ALIGN16B, (96,))
    assert (found["im2col"].lower, found["im2col"].upper, found["im2col"].box) == ((0, -1), (2, 1), (32, 16))


def changed(**fields: Any) -> Callable[[Launch], None]:
    return lambda data: data.update(fields)


def inside(*keys: Any, value: Any) -> Callable[[Launch], None]:
    def change(data: Launch) -> None:
        at: Any = data
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


BAD = {
    "version": (changed(version=2), Code.CASE_FIELD, "version"),
    "field": (changed(grid=[1]), Code.CASE_FIELD, "grid"),
    "no block": (changed(launch={"grid": [1]}), Code.CASE_FIELD, "launch"),
    "grid": (inside("launch", "grid", value=[0]), Code.CASE_DOES_NOT_FIT, "- 0"),
    "grid and cluster": (inside("launch", "cluster", value=[2]), Code.CASE_DOES_NOT_FIT, "cluster"),
    "threads": (inside("launch", "block", value=[64, 32]), Code.CASE_DOES_NOT_FIT, "block"),
    "shared memory": (inside("launch", "dynamic_smem", value=1 << 20), Code.CASE_DOES_NOT_FIT, "dynamic_smem"),
    "format": (inside("tensors", "x", "dtype", value="f23"), Code.CASE_FIELD, "dtype"),
    "shape": (inside("tensors", "x", "shape", value=["n"]), Code.CASE_EXPRESSION, "- n"),
    "contents": (inside("tensors", "x", "init", value="random"), Code.CASE_FIELD, "init"),
    "file": (inside("tensors", "x", "init", value={"file": "no.npy"}), Code.FILE_NOT_FOUND, "init"),
    "length of a file": (inside("tensors", "x", "init", value={"file": "kernels.ptx"}), Code.CASE_DOES_NOT_FIT, "x"),
    "list": (inside("tensors", "x", "init", value=[1, 2]), Code.CASE_DOES_NOT_FIT, "init"),
    "tensor of a map": (changed(tensor_maps={"m": {"tensor": "z", "box": [1]}}), Code.CASE_FIELD, "tensor"),
    "box": (changed(tensor_maps={"m": {"tensor": "x", "box": [3]}}), Code.CASE_DOES_NOT_FIT, "m"),
    "name of an argument": (inside("params", 0, value="z"), Code.CASE_DOES_NOT_FIT, "- z"),
    "number of arguments": (inside("params", value=["x"]), Code.CASE_PARAMETERS, "params"),
    "size of an argument": (inside("params", 3, value={"value": 1, "type": "u8"}), Code.CASE_PARAMETERS, "- value: 1"),
    "value of an argument": (inside("params", 3, value=1.5), Code.CASE_PARAMETERS, "- 1.5"),
    "struct without a type": (inside("params", 0, value={"struct": [1, 2]}), Code.CASE_PARAMETERS, "- 1"),
    "bytes": (inside("params", 0, value={"bytes": "0"}), Code.CASE_FIELD, "bytes"),
    "contained": (
        inside("params", 0, value={"bytes": "00" * 8, "contains": [{"at": 4, "address_of": "x"}]}),
        Code.CASE_DOES_NOT_FIT, "at",
    ),
    "expected file": (inside("tensors", "y", "expected", value="no.bin"), Code.FILE_NOT_FOUND, "expected"),
    "kernel's file": (changed(ptx="no.ptx"), Code.FILE_NOT_FOUND, "ptx"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_error_at_its_line(name: str, tmp_path: Path) -> None:
    change, code, at = BAD[name]
    fields = json.loads(json.dumps({"ptx": "kernels.ptx", **VARIANTS["numbers"][0]}))
    change(fields)
    path = written(tmp_path, fields)
    with pytest.raises(PorterError) as error:
        load_launch(path)
    (one,) = error.value.diagnostics
    assert one.code is code, str(error.value)
    assert one.where is not None
    assert one.where.path == str(path)
    assert at in path.read_text().splitlines()[one.where.line - 1], one
    done = porter("hazards", "--launch", path)
    assert done.exit_code == 2
    assert done.output.count("error[") == 1


def test_text_that_is_no_yaml(tmp_path: Path) -> None:
    path = written(tmp_path, {})
    path.write_text("version: 1\nlaunch: {grid: [1\n")
    done = porter("run", "--launch", path)
    assert (done.exit_code, "PT5002" in done.output, f"{path}:3" in done.output) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hazards"], "name a file"),
        (["run"], "name a file"),
        (["hazards", "--ptx", KERNELS], "needs --launch"),
        (["run", "--ptx", KERNELS], "needs --launch"),
        (["hazards", "--launch", "l.yaml", KERNELS], "choose one"),
        (["run", "--launch", "l.yaml", KERNELS], "choose one"),
        (["hazards", "--launch", "no.yaml"], "no such file"),
    ],
)
def test_options_that_do_not_go_together(words: list[object], says: str) -> None:
    done = porter(*words)
    assert (done.exit_code, says in done.output) == (2, True), done.output


def test_a_race_is_found_and_a_barrier_ends_it(tmp_path: Path) -> None:
    fields = launch("exchange", ["y"], {"y": U32})
    assert porter("hazards", "--launch", written(tmp_path, fields)).exit_code == 0
    racing = KERNELS.read_text().replace("    bar.sync 0;\n    xor", "    xor")
    path = written(tmp_path, fields, racing)
    done = porter("hazards", "--launch", path)
    assert (done.exit_code, "missing: synchronization" in done.output) == (5, True), done.output
    document = json.loads(porter("--format", "json", "run", "--hazards", "--launch", path).stdout)
    assert (document["exit_code"], document["hazards"]["verdict"]) == (5, "error")
    jsonschema.validate(document, schema("run"))


def test_expected_outputs(tmp_path: Path) -> None:
    y = {**F32, "expected": "y.npy"}
    path = written(tmp_path, launch("scale", ["x", "y", 2, 64], {"x": XS, "y": y}))
    np.save(tmp_path / "y.npy", X * 2)
    done = porter("run", "--launch", path)
    assert (done.exit_code, "1 of 1 tensors as expected" in done.output) == (0, True), done.output
    np.save(tmp_path / "y.npy", np.append(X[:-1] * 2, np.float32(0)))
    done = porter("--format", "json", "run", "--launch", path)
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema("run"))
    assert done.exit_code == document["exit_code"] == 5
    (said,) = document["diagnostics"]
    assert said["id"] == "PT5054"
    assert re.search("1 of 64 elements", said["message"])


def test_a_fault_is_an_error(tmp_path: Path) -> None:
    tensors = {"x": {**XS, "shape": [32], "init": 1}, "y": F32}
    done = porter("run", "--launch", written(tmp_path, launch("scale", ["x", "y", 2, 64], tensors)))
    assert (done.exit_code, "PT4004" in done.output) == (5, True), done.output


def test_the_example_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "launches.md").read_text()
    example, several, parameter = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "launch.yaml"
    path.write_text(example + parameter)
    fields = load_yaml(path, "launch")
    assert [type(p) for p in fields["params"]] == [str, str, str, str, dict, dict, dict]
    shared = {name: value for name, value in fields.items() if name not in ("entry", "launch", "params")}
    path.write_text(yaml.safe_dump(shared) + several)
    assert [part["entry"] for part in load_yaml(path, "launch")["launches"]] == ["fill", "gemm"]


PROGRAM = """
#include <cstdint>
template <int N> __global__ void twice(const float *x, float *y) { y[threadIdx.x] = N * x[threadIdx.x]; }
__global__ void other(float *y) { y[threadIdx.x] = 1; }
int main() { twice<2><<<1, 64>>>(nullptr, nullptr); other<<<1, 64>>>(nullptr); }
"""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with PTX for both chips in them."""
    try:
        toolkit = find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    folder = tmp_path_factory.mktemp("binaries")
    (folder / "p.cu").write_text(PROGRAM)
    chips = [f"-gencode=arch=compute_{a},code=compute_{a}" for a in ("90a", "100a")]
    kinds = {"fatbin": ["-fatbin"], "object": ["-c"], "compressed": ["-c", "-Xfatbin", "-compress-all"]}
    for kind, words in kinds.items():
        command = [toolkit.nvcc, *chips, *words, "p.cu", "-o", kind]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    subprocess.run([toolkit.nvcc, "-arch=sm_90a", "-cubin", "p.cu", "-o", "cubin"], cwd=folder, check=True)
    return {p.name: p for p in folder.iterdir()}


@pytest.mark.spread(3)
@pytest.mark.parametrize("kind", ["fatbin", "object", "compressed"])
@pytest.mark.parametrize(("arch", "target"), [(None, "sm_100a"), ("sm_90a", "sm_90a")])
def test_ptx_within_a_binary(
    kind: str, arch: str | None, target: str, binaries: dict[str, Path], tmp_path: Path
) -> None:
    path = written(tmp_path, launch("twice", ["x", "y"], {"x": XS, "y": F32}))
    found = load_launch(path, binaries[kind], chip=arch)
    assert found.kernel.arch == target
    result = SimBackend().run(found.kernel, found.problem, found.launch, found.images)
    np.testing.assert_array_equal(result.after["y"].elements(), X * 2)
    words = ["--arch", arch] if arch else []
    assert porter("hazards", "--ptx", binaries[kind], "--launch", path, *words).exit_code == 0


@pytest.mark.parametrize(
    ("kind", "entry", "arch", "code"),
    [
        ("cubin", "twice", None, "PT5053"),
        ("p.cu", "twice", None, "PT5010"),
        ("object", "", None, "PT3007"),
        ("object", "thrice", None, "PT3006"),
        ("object", "twice", "sm_120a", "PT5053"),
    ],
)
def test_binaries_without_the_kernel(
    kind: str, entry: str, arch: str | None, code: str, binaries: dict[str, Path], tmp_path: Path
) -> None:
    fields = launch(entry, ["x", "y"], {"x": XS, "y": F32})
    if not entry:
        del fields["entry"]
    words = ["--arch", arch] if arch else []
    done = porter("hazards", "--ptx", binaries[kind], "--launch", written(tmp_path, fields), *words)
    assert done.exit_code in (2, 6)
    assert f"error[{code}" in done.output, done.output


DSL = """
import sys
import cutlass, cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor

@cute.kernel
def scale(x: cute.Tensor, y: cute.Tensor, f: cutlass.Float32, n: cutlass.Int32):
    i = cute.arch.block_idx()[0] * 32 + cute.arch.thread_idx()[0]
    if i < n:
        y[i] = x[i] * f

@cute.jit
def host(x: cute.Tensor, y: cute.Tensor, f: cutlass.Float32, n: cutlass.Int32):
    scale(x, y, f, n).launch(grid=[2, 1, 1], block=[32, 1, 1])

one = make_fake_compact_tensor(cutlass.Float32, (64,), assumed_align=16)
open(sys.argv[1], "w").write(cute.compile(host, one, one, cutlass.Float32(1), cutlass.Int32(1)).__ptx__)
"""


@pytest.mark.external
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_ptx_of_cute_dsl(arch: str, tmp_path: Path) -> None:
    if find_spec("cutlass") is None:
        pytest.skip("nvidia-cutlass-dsl is not installed")
    (tmp_path / "k.py").write_text(textwrap.dedent(DSL))
    environment = {**os.environ, "CUTE_DSL_ARCH": arch, "CUTE_DSL_KEEP_PTX": "1"}
    command = [sys.executable, "k.py", "kernel.ptx"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    # Tensors are structs in parameters, here of a pointer alone.
    params = [{"struct": ["x"]}, {"struct": ["y"]}, 2, 60]
    fields = launch("scale", params, {"x": XS, "y": {**F32, "init": 1}}, at={"grid": [2], "block": [32]})
    path = written(tmp_path, fields)
    found = load_launch(path, tmp_path / "kernel.ptx")
    assert found.kernel.arch == arch
    result = SimBackend().run(found.kernel, found.problem, found.launch, found.images)
    np.testing.assert_array_equal(result.after["y"].elements(), np.append(X[:60] * 2, [1, 1, 1, 1]))
    assert porter("hazards", "--ptx", tmp_path / "kernel.ptx", "--launch", path).exit_code == 0


# Block 0 looks a while for the flag that block 1 sets, and says whether it came.
WAVES = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry waves(.param .u64 y)
{
.reg .b32 %r<9>; .reg .b64 %d<2>; .reg .pred %p<4>;
ld.param.u64 %d0, [y]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; mov.u32 %r1, 2000;
@%p0 bra SETS;
LOOKS: ld.acquire.gpu.global.u32 %r2, [%d0]; sub.u32 %r1, %r1, 1;
setp.eq.u32 %p1, %r2, 0; setp.ne.and.u32 %p2, %r1, 0, %p1; @%p2 bra LOOKS;
st.global.u32 [%d0+4], %r2; ret;
SETS: st.release.gpu.global.u32 [%d0], %r0; ret;
}
"""


@pytest.mark.parametrize(("resident", "seen"), [(None, 1), (1, 0), (2, 1), ("N / 2", 0)])
def test_how_many_blocks_run_at_a_time(resident: Any, seen: int, tmp_path: Path) -> None:
    at = {"grid": [2], "block": [1], **({} if resident is None else {"resident": resident})}
    fields = launch("waves", ["y"], {"y": {"dtype": "u32", "shape": [2], "init": 0}}, at=at, sizes={"N": 2})
    assert output(written(tmp_path, fields, WAVES)).tolist() == [1, seen]


@pytest.mark.parametrize("resident", [0, -1, 0.5, "N"])
def test_blocks_that_cannot_run_at_a_time_are_refused(resident: Any, tmp_path: Path) -> None:
    fields = launch("waves", ["y"], {"y": {"dtype": "u32", "shape": [2], "init": 0}},
                    at={"block": [1], "resident": resident})  # fmt: skip
    with pytest.raises(PorterError) as error:
        load_launch(written(tmp_path, fields, WAVES))
    assert "launch.resident" in str(error.value)
