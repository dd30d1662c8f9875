# SPDX-License-Identifier: Apache-2.0
"""Where the helper namespace stands: once, behind what it needs, in front of every use. Each set compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import LOOP, STORE, SYNC, compiles, port_files, wrapper

from porter.build.files import write_all
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.porting import port_paths
from porter.diagnostics import ExitCode
from porter.passes.helpers import Placement
from porter.verify.builder import PORT_ARCH

NEEDS = "#include <cstdint>\n"
KERNEL = """
__global__ void __launch_bounds__(128) {name}(float* out, uint64_t a, uint64_t b, int steps) {{
    float acc[8] = {{0}};
{loop}{store}}}
"""


def kernel(name: str) -> str:
    return KERNEL.format(name=name, loop=LOOP, store=STORE)


def space(name: str, text: str) -> str:
    return f"namespace {name} {{\n{text}\n}}  // namespace {name}\n"


OPS = SYNC + wrapper(16)
GUARDED = "#ifndef OPS_CUH\n#define OPS_CUH\n\n{}\n#endif  // OPS_CUH\n"

SETS: dict[str, dict[str, str]] = {
    "two kernels' headers, a root of includes only": {
        "kernel.cu": '#include "one.cuh"\n#include "two.cuh"\n',
        "one.cuh": "#pragma once\n" + NEEDS + space("one", OPS + kernel("first")),
        "two.cuh": "#pragma once\n" + NEEDS + space("two", OPS + kernel("second")),
    },
    "includes only, with a comment and a macro above": {
        "kernel.cu": '// All kernels.\n#define STEPS 4\n#include <cstdint>\n#include "one.cuh"\n#include "two.cuh"\n',
        "one.cuh": space("one", OPS + kernel("first")),
        "two.cuh": space("two", OPS + kernel("second")),
    },
    "two headers that both need them, and a kernel in the root": {
        "kernel.cu": '#include "arrive.cuh"\n#include "mma.cuh"\n' + kernel("first"),
        "arrive.cuh": "#pragma once\n" + SYNC,
        "mma.cuh": "#pragma once\n" + NEEDS + wrapper(16),
    },
    "guarded header that is included twice": {
        "kernel.cu": '#include "ops.cuh"\n#include "more.cuh"\n' + kernel("first"),
        "more.cuh": '#include "ops.cuh"\nconstexpr int kMore = 1;\n',
        "ops.cuh": NEEDS + GUARDED.format(OPS),
    },
    "guard by #if !defined, includes inside": {
        "kernel.cu": '#include "ops.cuh"\n#include "ops.cuh"\n' + kernel("first"),
        "ops.cuh": GUARDED.replace("#ifndef OPS_CUH", "#if !defined(OPS_CUH)").format(NEEDS + OPS),
    },
    "guard behind a licence, nothing included": {
        "kernel.cu": '#include "ops.cuh"\n#include "ops.cuh"\n' + kernel("first"),
        "ops.cuh": "// Licence.\n" + GUARDED.format(OPS),
    },
    "header without a guard that is included twice": {
        "kernel.cu": NEEDS + 'namespace one {\n#include "ops.inl"\n}\nnamespace two {\n#include "ops.inl"\n}\n'
        "using one::arrive;\nusing one::mma;\nusing one::commit;\nusing one::wait;\n" + kernel("first"),
        "ops.inl": OPS,
    },
    "header inside a namespace": {
        "kernel.cu": NEEDS + 'namespace one {\n#include "ops.inl"\n' + kernel("first") + "}\n",
        "ops.inl": OPS,
    },
    "header under a condition": {
        "kernel.cu": NEEDS + '#ifndef NO_OPS\n#include "ops.cuh"\n#endif\n' + kernel("first"),
        "ops.cuh": "#pragma once\n" + OPS,
    },
    "include behind a definition": {
        "kernel.cu": 'struct Early {};\n#include "ops.cuh"\n' + kernel("first"),
        "ops.cuh": "#pragma once\n/* Operations. */\n" + OPS,
    },
    "a header over a header": {
        "kernel.cu": '#include "api.cuh"\n',
        "api.cuh": '#pragma once\n#include "ops.cuh"\n#include "kernels.cuh"\n',
        "ops.cuh": GUARDED.format("namespace ops {\n" + OPS + "}\nusing namespace ops;\n"),
        "kernels.cuh": '#pragma once\n#include "ops.cuh"\n' + kernel("first") + kernel("second"),
    },
    "another header's includes under a condition": {
        "kernel.cu": '#ifdef EXTRA\n#include "extra.cuh"\n#endif\n#include "ops.cuh"\n' + kernel("first"),
        "ops.cuh": "#ifdef EXTRA\n#include <cuda_fp16.h>\n#endif\n#ifndef OPS\n#define OPS\n" + OPS + "#endif\n",
        "extra.cuh": "#pragma once\n",
    },
}
QUICK = ("two kernels' headers, a root of includes only", "guarded header that is included twice")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SETS])
def test_a_port_of_several_files_compiles(tmp_path: Path, name: str) -> None:
    result = port_files(tmp_path / "in", SETS[name])
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    text = b"".join(result.files.values())
    assert text.count(b"namespace tcgen05 {") == 1
    assert b"wgmma." not in re.sub(rb"//[^\n]*", b"", text)
    compiles(result, tmp_path / "in", tmp_path / "out")


def test_roots_that_share_a_header_bring_their_own(tmp_path: Path) -> None:
    files = {
        "ops.cuh": "#pragma once\n" + NEEDS + OPS + wrapper(64, name="mma64"),
        "one.cu": '#include "ops.cuh"\n' + kernel("first"),
        "two.cu": '#include "ops.cuh"\n'
        + kernel("second").replace("mma(", "mma64(").replace("[8]", "[32]").replace("< 8", "< 32"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ported = port_paths([tmp_path])
    assert ported.exit_code == ExitCode.OK, [str(d) for d in ported.diagnostics]
    assert b"namespace tcgen05 {" not in ported.new[str(tmp_path / "ops.cuh")]
    write_all({tmp_path / "out" / Path(p).name: data for p, data in ported.new.items()})
    for name in ("one.cu", "two.cu"):
        compile_ptx(CompileRequest(tmp_path / "out" / name, PORT_ARCH, lineinfo=False))


def test_one_root_keeps_them_in_its_header(tmp_path: Path) -> None:
    files = {"ops.cuh": "#pragma once\n" + NEEDS + OPS, "kernel.cu": '#include "ops.cuh"\n' + kernel("first")}
    result = port_files(tmp_path, files)
    assert b'#include "tcgen05.cuh"' in result.files[str(tmp_path / "ops.cuh")]
    assert b"tcgen05.cuh" not in result.files[result.sources.root]
    (tmp_path / "again").mkdir()
    inline = port_files(tmp_path / "again", files, placement=Placement(inline=True))
    assert b"namespace tcgen05 {" in inline.files[str(tmp_path / "again" / "ops.cuh")]
    assert b"namespace tcgen05 {" not in inline.files[inline.sources.root]
    assert len(inline.files) == 2
