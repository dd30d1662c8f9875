# SPDX-License-Identifier: Apache-2.0
"""Trees whose files share headers: each header is ported once, for all of them, or none of them is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import LOOP, STORE, SYNC, wrapper

from porter.build.files import write_all
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.porting import port_paths
from porter.diagnostics import Code, ExitCode
from porter.passes import ported as engine
from porter.passes.helpers import Placement
from porter.passes.port import PortOptions
from porter.passes.ported import Beside, Ported
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH

HEAD = "#pragma once\n#include <cstdint>\n"
OPS = HEAD + SYNC + wrapper(16)
INCLUDE = '#include "ops.cuh"\n'
UTILITY = INCLUDE + "__global__ void zero(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = 0.f; }\n"


def kernel(name: str, n: int = 16, bounds: str = "__launch_bounds__(128)") -> str:
    body = f"    float acc[8] = {{0}};\n{LOOP}{STORE}".replace("mma(", "mma(" if n == 16 else f"mma{n}(")
    body = body.replace("[8]", f"[{n // 2}]").replace("< 8", f"< {n // 2}")
    return f"__global__ void {bounds} {name}(float* out, uint64_t a, uint64_t b, int steps) {{\n{body}}}\n"


ONE, TWO = INCLUDE + kernel("first"), INCLUDE + kernel("second")
SCALE = "__device__ void scale(float (&d)[8], float s) { for (int i = 0; i < 8; ++i) d[i] *= s; }\n"
SCALED = ONE.replace("    for (int i", "    scale(acc, 2.f);\n    for (int i")
OTHER = """
__global__ void other(float* p) {
    float v[8] = {0};
    scale(v, 3.f);
    p[0] = v[0];
}
"""
ROWS, DYNAMIC = "if (threadIdx.y) out[0] = 1;", "extern __shared__ char s[];\n    s[0] = 0;"
ADDED = "for (int i = 0; i < 8; ++i) gemm.acc[i] += 1.f;"
ONCE = "#include <cstdint>\n" + SYNC
LAUNCHED = kernel("gemm", bounds="")
WIDE = wrapper(32, name="mma32")
MEMBERS = f"""
struct Gemm {{
    float acc[8];
{wrapper(16, name="multiply").replace("d[", "acc[").replace("float (&d)[8], ", "")}
    __device__ void step(uint64_t a, uint64_t b) {{
        arrive();
        multiply(a, b);
        commit();
        wait<0>();
    }}
}};
"""
OF_MEMBERS = """
__global__ void __launch_bounds__(128) NAME(float* out, uint64_t a, uint64_t b, int steps) {
    Gemm gemm;
    for (int i = 0; i < 8; ++i) gemm.acc[i] = 0.f;
    for (int k = 0; k < steps; ++k) {
        gemm.step(a, b);
        BODY
    }
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = gemm.acc[i];
}
"""


def launch(threads: int) -> str:
    return INCLUDE + f"void run(float* out) {{ gemm<<<1, {threads}>>>(out, 0, 0, 4); }}\n"


def of_members(name: str, body: str = "") -> str:
    return INCLUDE + OF_MEMBERS.replace("NAME", name).replace("BODY", body)


SETS: dict[str, tuple[dict[str, str], set[str]]] = {
    "a kernel that never calls wgmma": (
        {"ops.cuh": OPS, "one.cu": ONE, "util.cu": UTILITY},
        {"one.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "host code only": (
        {"ops.cuh": OPS, "one.cu": ONE, "main.cu": INCLUDE + "int main() { return 0; }\n"},
        {"one.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "a wrapper with a condition, which a utility reads too": (
        {
            "ops.cuh": HEAD
            + SYNC
            + wrapper(16, name="mma_if", parameter="bool on, float (&d)[8]").replace("{\n", "{ if (!on) return;", 1),
            "one.cu": ONE.replace("mma(acc", "mma_if(steps > 0, acc"),
            "util.cu": UTILITY,
        },
        {"one.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "two kernels": ({"ops.cuh": OPS, "one.cu": ONE, "two.cu": TWO}, {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"}),
    "two kernels that ask for different helpers": (
        {"ops.cuh": OPS + WIDE, "one.cu": ONE, "two.cu": INCLUDE + kernel("second", 32), "util.cu": UTILITY},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "one kernel with a block of two dimensions": (
        {"ops.cuh": OPS, "one.cu": ONE, "two.cu": TWO.replace("arrive();", f"{ROWS}\n        arrive();")},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "a file that has the port's names": (
        {"ops.cuh": OPS, "one.cu": ONE, "two.cu": TWO.replace("steps", "tc")},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "dynamic shared memory in one": (
        {"ops.cuh": OPS, "one.cu": ONE, "two.cu": TWO.replace("float acc", f"{DYNAMIC}\n    float acc")},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "two headers, of which one kernel has one": (
        {
            "ops.cuh": HEAD + SYNC,
            "mma.cuh": HEAD + wrapper(16),
            "one.cu": '#include "mma.cuh"\n' + ONE,
            "two.cu": INCLUDE + "__global__ void drain() { arrive(); commit(); wait<0>(); }\n",
            "util.cu": UTILITY,
        },
        {"one.cu", "two.cu", "ops.cuh", "mma.cuh", "tcgen05.cuh"},
    ),
    "another wrapper by a macro of the file": (
        {
            "ops.cuh": HEAD + SYNC + "#ifdef WIDE\n" + WIDE + "#else\n" + wrapper(16) + "#endif\n",
            "one.cu": ONE,
            "two.cu": "#define WIDE\n" + INCLUDE + kernel("second", 32),
        },
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "a wrapper that nobody calls": (
        {"ops.cuh": OPS + WIDE, "one.cu": ONE, "two.cu": TWO, "util.cu": UTILITY},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "directories": (
        {
            "include/ops.cuh": OPS,
            "a/one.cu": ONE.replace("ops.cuh", "../include/ops.cuh"),
            "b/two.cu": TWO.replace("ops.cuh", "../include/ops.cuh"),
            "util.cu": UTILITY.replace("ops.cuh", "include/ops.cuh"),
        },
        {"a/one.cu", "b/two.cu", "include/ops.cuh", "include/tcgen05.cuh"},
    ),
    "only a guard is shared": (
        {
            "guard.cuh": "#pragma once\n#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#define HOPPER 1\n#endif\n",
            "a/one.cu": '#include "../guard.cuh"\n' + ONCE + wrapper(16) + kernel("first"),
            "b/two.cu": '#include "../guard.cuh"\n' + ONCE + WIDE + kernel("second", 32),
            "util.cu": UTILITY.replace("ops.cuh", "guard.cuh"),
        },
        {"guard.cuh", "a/one.cu", "a/tcgen05.cuh", "b/two.cu", "b/tcgen05.cuh"},
    ),
    "a function of accumulators that another calls on other registers": (
        {
            "ops.cuh": OPS + SCALE,
            "one.cu": SCALED,
            "two.cu": TWO + OTHER,
        },
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "a class of accumulators, of which one kernel stores": (
        {"ops.cuh": OPS + MEMBERS, "one.cu": of_members("first"), "two.cu": of_members("second", ADDED)},
        {"one.cu", "two.cu", "ops.cuh", "tcgen05.cuh"},
    ),
    "a kernel that one file launches": (
        {"ops.cuh": OPS + LAUNCHED, "one.cu": launch(128), "util.cu": UTILITY},
        {"ops.cuh", "tcgen05.cuh"},
    ),
}  # fmt: skip
QUICK = ("a kernel that never calls wgmma", "two kernels that ask for different helpers")


def lay_out(root: Path, files: dict[str, str]) -> Path:
    (root / ".git").mkdir(parents=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def keeping(root: Path) -> Ported:
    return engine.port_paths([root], PortOptions(keep_hopper=True), (), lambda path: Beside())


def compile_all(ported: Ported, root: Path, out: Path, *archs: str) -> None:
    write_all({out / Path(path).relative_to(root): text for path, text in ported.new.items()})
    for path in sorted(out.rglob("*.cu")):
        for arch in archs:
            compile_ptx(CompileRequest(path, arch, lineinfo=False))


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", SETS)
def test_a_header_is_ported_once_for_all(tmp_path: Path, name: str) -> None:
    files, expected = SETS[name]
    root = lay_out(tmp_path / "in", files)
    ported = port_paths([root])
    assert ported.exit_code is ExitCode.OK, [str(d) for d in ported.diagnostics]
    assert {str(Path(p).relative_to(root)) for p in ported.changed} == expected
    edits = [edit for group in ported.groups for edit in group.edits]
    assert len(edits) == len(set(edits))
    assert not any(b"wgmma." in re.sub(rb"//[^\n]*", b"", ported.new[path]) for path in ported.changed)


@pytest.mark.spread(2)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SETS])
def test_every_file_compiles_with_the_ported_header(tmp_path: Path, name: str, keep: bool) -> None:
    root = lay_out(tmp_path / "in", SETS[name][0])
    ported = keeping(root) if keep else port_paths([root])
    assert ported.exit_code is ExitCode.OK, [str(d) for d in ported.diagnostics]
    compile_all(ported, root, tmp_path / "out", *([PORT_ARCH, ORIGINAL_ARCH] if keep else [PORT_ARCH]))


def test_a_second_port_finds_nothing(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "in", SETS["two kernels that ask for different helpers"][0])
    ported = port_paths([root])
    write_all({Path(path): text for path, text in ported.new.items()})
    assert not port_paths([root]).changed


DIFFERENT: dict[str, dict[str, str]] = {
    "block sizes of one kernel": {"ops.cuh": OPS + LAUNCHED, "one.cu": launch(128), "two.cu": launch(256)},
    "three block sizes": {"ops.cuh": OPS + LAUNCHED, "one.cu": launch(128), "two.cu": launch(256), "3.cu": launch(384)},
    "block sizes that only one file states": {
        "ops.cuh": OPS + LAUNCHED,
        "one.cu": launch(128),
        "two.cu": launch(256).replace("256", "threads").replace("float* out", "float* out, int threads"),
    },
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_texts_of_a_header_are_refused(tmp_path: Path, name: str) -> None:
    root = lay_out(tmp_path, {**DIFFERENT[name], "alone.cu": OPS.replace("#pragma once\n", "") + kernel("third")})
    ported = port_paths([root])
    found = [d for d in ported.diagnostics if d.code is Code.SHARED_HEADER]
    assert len(found) == 1
    assert ported.exit_code is ExitCode.UNPORTED
    assert "ops.cuh" in found[0].message
    assert sum(file in found[0].message for file in DIFFERENT[name]) == 3
    assert "--allow-dirty" not in found[0].code.value.next_step
    # a file that has no part in it is ported
    assert {Path(p).name for p in ported.changed} == {"alone.cu", "tcgen05.cuh"}


def test_helpers_may_stand_in_the_sources(tmp_path: Path) -> None:
    root = lay_out(tmp_path, SETS["two kernels"][0])
    ported = engine.port_paths([root], PortOptions(placement=Placement(inline=True)), (), lambda path: Beside())
    assert ported.exit_code is ExitCode.OK
    assert ported.new[str(root / "ops.cuh")].count(b"namespace tcgen05 {") == 1
    assert b"namespace tcgen05 {" not in ported.new[str(root / "one.cu")]
