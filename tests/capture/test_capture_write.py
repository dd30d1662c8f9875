# SPDX-License-Identifier: Apache-2.0
"""From recorded bytes to a case: number formats, addresses, tensor maps, modules."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from porter.build.toolchain import find_toolkit
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.verify.arguments import MapValue, Pointer
from porter.verify.capture.events import Block, Captured, CapturedLaunch
from porter.verify.capture.modules import Modules
from porter.verify.capture.types import parameter_types, pointee
from porter.verify.capture.write import Source, write_cases
from porter.verify.case import load_case
from porter.verify.layout import Area, Layout
from porter.verify.problem import bind

BASE = 0x7F12_3450_0000
PTX = """.version 8.3
.target %s
.address_size 64
.visible .entry %s(.param .u64 a, .param .align 64 .b8 b[256], .param .u32 n)
{
  ret;
}
"""
KERNEL = "_Z4tilePK6__halfN2ns6ParamsEi"  # tile(__half const*, ns::Params, int)


def test_types_of_parameters() -> None:
    assert parameter_types("_Z14gemm_ws_kernelILi128ELi64EEviiiPf14CUtensorMap_stS1_") == [
        "int", "int", "int", "float*", "CUtensorMap_st", "CUtensorMap_st",
    ]  # fmt: skip
    assert parameter_types(KERNEL) == ["__half const*", "ns::Params", "int"]
    assert parameter_types("plain_c_name") == []
    assert parameter_types("_Z4nonev") == []


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [
        ("float*", "f32"), ("float const*", "f32"), ("cutlass::half_t*", "f16"), ("__nv_bfloat16 const*", "bf16"),
        ("c10::BFloat16*", "bf16"), ("__nv_fp8_e4m3*", "f8e4m3"), ("unsigned char*", "u8"), ("signed char*", "s8"),
        ("unsigned long*", "u64"), ("ns::Params*", None), ("float", None), ("void*", None),
    ],
)  # fmt: skip
def test_what_pointers_lead_to(type_: str, dtype: str | None) -> None:
    assert pointee(type_) == dtype


def a_map(address: int) -> TensorMap:
    return TensorMap(
        TensorMapType.FLOAT16, address, (64, 32), (128,), (64, 8), swizzle=TensorMapSwizzle.B128
    )  # fmt: skip


def test_addresses_and_maps_among_bytes() -> None:
    layout = Layout([Area("t", BASE, 4096), Area("u", BASE + 8192, 100)], lambda i: f"map{i}")
    word = struct.pack("<Q", BASE + 4095)
    data = word + struct.pack("<Q", BASE + 4096) + bytes(48) + a_map(BASE).encode() + struct.pack("<Q", BASE + 8192)
    assert layout.contents(data) == ((0, Pointer("t", 4095)), (64, MapValue("map0")), (192, Pointer("u")))
    assert layout.contents(a_map(BASE).encode()) == ((0, MapValue("map0")),)
    assert layout.maps["map0"] == ("t", a_map(0))
    # Outside of all memory, or nowhere near a map's alignment, it is none.
    assert layout.contents(a_map(BASE + (1 << 30)).encode()) == ()
    assert [at for at, what in layout.contents(bytes(8) + a_map(BASE).encode()) if isinstance(what, MapValue)] == []


def captured(folder: Path, ptx: str, changed: bool = True, device: dict | None = None) -> Captured:
    given, out = np.arange(4096, dtype=np.uint8), np.zeros(256, np.uint8)
    (folder / "a").write_bytes(given.tobytes())
    (folder / "b").write_bytes(out.tobytes())
    (folder / "c").write_bytes(bytes([1]) * 256)
    blocks = (
        Block(BASE, 4096, folder / "a", None),
        Block(BASE + 8192, 256, folder / "b", folder / "c" if changed else None),
    )
    params = (
        struct.pack("<Q", BASE + 8192),
        a_map(BASE).encode() + struct.pack("<Q", BASE + 128) + bytes(range(120)),
        struct.pack("<i", -7),
    )
    launch = CapturedLaunch(KERNEL, (3, 2, 1), (128, 1, 1), (1, 1, 1), 1024, params, blocks)
    return Captured((launch,), (ptx.encode(),), (), device or {"name": "x", "capability": [9, 0]})


def test_a_case(tmp_path: Path) -> None:
    source = tmp_path / "source" / "tile.cu"
    source.parent.mkdir()
    source.write_text("")
    found = write_cases(
        captured(tmp_path, PTX % ("sm_90a", KERNEL)), tmp_path / "out", {"program": "p"}, Source(source)
    )
    (path,), refusals = found.cases, found.refusals
    assert refusals == ()
    assert path.parent.name == "001_tile"
    case = load_case(path)
    assert case.source is not None
    assert case.source.resolve() == source
    problem = bind(case)
    assert {n: (t.dtype.name, t.shape, t.role) for n, t in problem.tensors.items()} == {
        "arg0": ("f16", (128,), "inout"),
        "arg1": ("f16", (32, 64), "input"),
    }
    assert problem.tensor_maps["map0"].map == a_map(0)
    raw = yaml.safe_load(path.read_text())
    assert raw["params"][0] == "arg0"
    assert raw["params"][1]["contains"] == [
        {"at": 0, "tensor_map": "map0"}, {"at": 128, "address_of": "arg1", "byte_offset": 128},
    ]  # fmt: skip
    assert raw["params"][2] == -7
    assert raw["reference"]["recorded"]["arch"] == "sm_90a"


def test_long_names_are_cut(tmp_path: Path) -> None:
    found = captured(tmp_path, PTX % ("sm_90a", "k" * 400))
    found = dataclasses.replace(found, launches=(dataclasses.replace(found.launches[0], kernel="k" * 400),))
    (path,) = write_cases(found, tmp_path / "out", {}).cases
    assert path.parent.name == "001_" + "k" * 40
    assert load_case(path).entry == "k" * 400


def test_launches_that_make_no_case(tmp_path: Path) -> None:
    found = write_cases(captured(tmp_path, PTX % ("sm_90a", KERNEL), changed=False), tmp_path / "1", {})
    assert [r.reason for r in found.refusals] == ["nothing"]
    found = write_cases(captured(tmp_path, PTX % ("sm_90a", "other")), tmp_path / "2", {})
    assert [r.reason for r in found.refusals] == ["module"]
    found = write_cases(captured(tmp_path, PTX % ("sm_100a", KERNEL)), tmp_path / "3", {})
    assert [r.reason for r in found.refusals] == ["module"]
    assert not list(tmp_path.glob("?/*/case.yaml"))


def test_approximate_instructions_get_a_tolerance(tmp_path: Path) -> None:
    ptx = (PTX % ("sm_90a", KERNEL)).replace("  ret;", "  ex2.approx.f32 %f1, %f2;\n  ret;")
    from_gpu = write_cases(captured(tmp_path, ptx), tmp_path / "1", {})
    assert load_case(from_gpu.cases[0]).tolerance == 2.0**-8
    from_simulator = write_cases(captured(tmp_path, ptx, device={"name": "simulator"}), tmp_path / "2", {})
    assert load_case(from_simulator.cases[0]).tolerance == 0


@pytest.mark.parametrize("mode", ["none", "speed", "default", "size"])
def test_ptx_out_of_fat_binaries(mode: str, tmp_path: Path) -> None:
    try:
        toolkit = find_toolkit()
    except Exception as error:
        pytest.skip(str(error))
    source = tmp_path / "k.cu"
    body = "".join(f"p[threadIdx.x + {i}] *= 3;" for i in range(40))
    source.write_text(f'extern "C" __global__ void k(float* p) {{ {body} }}')
    flags = ["-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]", f"--compress-mode={mode}"]
    subprocess.run([toolkit.nvcc, *flags, "-fatbin", source, "-o", tmp_path / "k.fatbin"], check=True)
    modules = Modules([(tmp_path / "k.fatbin").read_bytes()])
    found = modules.find("k", 90)
    assert found is not None
    assert found.arch == "sm_90a"
    assert found.ptx is not None
    assert ".entry k(" in found.ptx
    assert modules.find("k", 100) is None
    assert modules.find("other", 90) is None


def test_a_cubin_where_there_is_no_ptx() -> None:
    cubin = b"\x7fELF" + b"\0.text.k\0" + b"\0" * 8
    found = Modules([cubin]).find("k", 90)
    assert found is not None
    assert (found.arch, found.ptx, found.cubin) == ("sm_90a", None, cubin)


def test_events_that_end_early(tmp_path: Path) -> None:
    from porter.verify.capture.events import read_events

    (tmp_path / "7").mkdir()
    whole = json.dumps({"event": "device", "name": "d", "capability": [9, 0], "driver": 1})
    (tmp_path / "7" / "events.jsonl").write_text(whole + '\n{"event":"launch","ker')
    assert read_events(tmp_path).device["name"] == "d"
