# SPDX-License-Identifier: Apache-2.0
"""Arrays that only the port keeps in local memory are named, spilled registers and those of the original are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import porter, porter_json

from porter.build.ptxas import Resources, assemble
from porter.build.table import ResourceRow, metrics
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.report.exits import gate_exit
from porter.verify.builder import BuiltKernel
from porter.verify.depot import depot_of_port, depots
from porter.verify.gate import GateOptions, Unit, compile_units


@pytest.fixture
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except PorterError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Resources(90), Resources(90, stack=512), (0, 512)),
        (Resources(90, stack=512), Resources(90, stack=512), None),
        (Resources(90, stack=512), Resources(90, stack=256), None),
        (Resources(90, stack=128), Resources(90, stack=512), (128, 512)),
        (Resources(90), Resources(90), None),
        (Resources(90), Resources(90, stack=8, spill_stores=4, spill_loads=4), None),
        (Resources(90), Resources(90, stack=32, spill_stores=40, spill_loads=80), None),
        (Resources(90), Resources(90, stack=96, spill_stores=32, spill_loads=32), (0, 64)),
        (Resources(90, stack=96, spill_stores=96), Resources(90, stack=96), (0, 96)),
        (Resources(90), None, None),
        (None, Resources(90, stack=64), (0, 64)),
    ],
)
def test_what_is_told(
    tmp_path: Path, before: Resources | None, after: Resources | None, told: tuple[int, int] | None
) -> None:
    source = tmp_path / "k.cu"
    source.write_text("// what it does\n\n__global__ void\nk(float* o) {}\n")
    found = depots([ResourceRow("k(float*)", "sm_90a", "sm_100a", metrics(before, after))], source)
    assert [(d.values["before"], d.values["after"]) for d in found] == ([told] if told else [])
    assert [(d.code, d.where.line if d.where else 0) for d in found] == ([(Code.PORT_LOCAL_MEMORY, 4)] if told else [])


_PTX = """.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 o, .param .u32 i) {{
 .local .align 16 .b8 depot[{bytes}];
 .reg .b64 %rd<6>; .reg .b32 %r<4>;
 ld.param.u64 %rd1, [o];
 ld.param.u32 %r1, [i];
 mov.u64 %rd2, depot;
 mul.wide.u32 %rd3, %r1, 4;
 add.u64 %rd4, %rd2, %rd3;
 {access}
 st.global.u32 [%rd1], %r2;
 ret;
}}
"""
_AT_RUN_TIME = "st.local.u32 [%rd4], %r1; st.local.u32 [%rd2+8], %r1; ld.local.u32 %r2, [%rd4+4];"
_CONSTANT = "st.local.u32 [%rd2+8], %r1; ld.local.u32 %r2, [%rd2+8];"


def _built(toolkit: Toolkit, arch: str, count: int, access: str) -> BuiltKernel:
    ptx = _PTX.format(arch=arch, bytes=count, access=access)
    module = ast.Module((8, 8), arch, 64, (), ())
    return BuiltKernel(arch, "k", module, ptx, assembled=lambda: assemble(toolkit, ptx, arch))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((16, _CONSTANT), (64, _AT_RUN_TIME), [(0, 64)]),
        ((64, _AT_RUN_TIME), (64, _AT_RUN_TIME), []),
        ((32, _AT_RUN_TIME), (64, _AT_RUN_TIME), [(32, 64)]),
        ((16, _CONSTANT), (64, _CONSTANT), []),
    ],
    ids=["only the port", "both", "a larger one", "one that ptxas dissolves"],
)
def test_compiled_programs(
    toolkit: Toolkit, before: tuple[int, str], after: tuple[int, str], told: list[tuple[int, int]]
) -> None:
    original, port = _built(toolkit, "sm_90a", *before), _built(toolkit, "sm_100a", *after)
    found = depot_of_port(original, port, Path("k.cu"))
    assert [(d.values["before"], d.values["after"]) for d in found] == told


_KERNEL = """\
__global__ void scale(const float* a, float* o, int n) {
    float acc[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[i] = a[i];
UNROLLED    for (int i = 0; i < n; ++i) { acc[INDEX] *= 2.0f; o[i] = acc[(INDEX) ^ 1]; }
#pragma unroll
    for (int i = 0; i < 32; ++i) o[64 + i] = acc[i];
}
"""
_CLEAN = _KERNEL.replace("UNROLLED", "").replace("INDEX", "3")
_PLANTED = _KERNEL.replace("UNROLLED", "#pragma unroll 1\n").replace("INDEX", "i % 32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("original", "port", "told"), [(_CLEAN, _PLANTED, 1), (_CLEAN, _CLEAN, 0), (_PLANTED, _PLANTED, 0)]
)
def test_build_and_the_gate(tmp_path: Path, toolkit: Toolkit, original: str, port: str, told: int) -> None:
    before, after = tmp_path / "scale.cu", tmp_path / "scale_sm100.cu"
    before.write_text(original)
    after.write_text(port)
    made = porter_json("build", before, "--port", after)["diagnostics"]
    assert [(d["id"], d["location"]["line"]) for d in made if d["id"] == "PT3019"] == [("PT3019", 1)] * told
    assert ("PT3019" in porter("build", before, "--port", after).output) == bool(told)
    unit = Unit(str(before), "cuda", {str(before): port.encode()}, lambda: ([], []))
    (gated,) = compile_units([unit], GateOptions(toolkit=toolkit.root))
    assert gated.status == "compiled"
    assert [d.code for d in gated.diagnostics].count(Code.PORT_LOCAL_MEMORY) == told
    assert gate_exit([gated]) == 0


_CASE = """\
version: 1
kernel: twice.cu
entry: twice
sizes: {N: 32}
tensors:
  a: {dtype: f32, shape: [N], role: input}
  o: {dtype: f32, shape: [N], role: output}
launch: {grid: [1, 1, 1], block: [1, 1, 1]}
params: [a, o]
reference: "2 * a"
families: [integers]
"""
_TWICE = """\
extern "C" __global__ void twice(const float* a, float* o) {
    float acc[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[i] = a[i];
#pragma unroll COUNT
    for (int i = 0; i < 32; ++i) { acc[i] *= 2.0f; o[i] = acc[i]; }
}
"""
_IN_REGISTERS, _IN_MEMORY = _TWICE.replace("COUNT", "32"), _TWICE.replace("COUNT", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("original", "port", "told"),
    [(_IN_REGISTERS, _IN_MEMORY, 1), (_IN_REGISTERS, _IN_REGISTERS, 0), (_IN_MEMORY, _IN_MEMORY, 0)],
    ids=["only the port", "none", "both"],
)
@pytest.mark.usefixtures("toolkit")
def test_verify_and_report(tmp_path: Path, original: str, port: str, told: int) -> None:
    kernel, finished, page = tmp_path / "twice.cu", tmp_path / "twice_sm100.cu", tmp_path / "page.html"
    kernel.write_text(original)
    finished.write_text(port)
    (tmp_path / "case.yaml").write_text(_CASE)
    rows = porter_json("verify", kernel, "--port", finished)["rows"]
    assert {r["verdict"] for r in rows} == {"clean"}
    said = [(d["id"], d["location"]["line"]) for r in rows for d in r["diagnostics"]]
    assert said == [("PT3019", 1)] * told * len(rows)
    assert porter("verify", kernel, "--port", finished).output.count("PT3019") == told
    porter("report", kernel, "--port", finished, "--html", page)
    assert page.read_text().count("PT3019") == told
    # without a case it is only compiled
    (tmp_path / "case.yaml").unlink()
    porter("report", kernel, "--port", finished, "--html", page, code=None)
    assert page.read_text().count("PT3019") == told
