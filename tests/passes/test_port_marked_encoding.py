# SPDX-License-Identifier: Apache-2.0
"""Files that begin with the mark of UTF-8: their ports are those without it, with the mark in front."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.cli.porting import look
from porter.diagnostics import ExitCode
from porter.lang.lexical import lexed
from porter.lang.text import MARK
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths

OPS = """#include <cstdint>
__device__ void mma(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
"""
KERNEL = """__global__ void __launch_bounds__(128) k(float* out, uint64_t a, uint64_t b) {
    float acc[4] = {0};
    mma(acc, a, b);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = acc[i];
}
"""
TREES = {
    "an include": {"k.cu": '#include "ops.cuh"\n' + KERNEL, "ops.cuh": OPS},
    "a header that is read once": {"k.cu": '#include "ops.cuh"\n' + KERNEL, "ops.cuh": "#pragma once\n" + OPS},
    "a header with a guard": {
        "k.cu": '#include "ops.cuh"\n' + KERNEL,
        "ops.cuh": "#ifndef OPS\n#define OPS\n" + OPS + "#endif\n",
    },
    "a header of the language": {"k.cu": OPS + KERNEL},
    "a comment": {"k.cu": "// a kernel\n" + OPS + KERNEL},
    "a macro": {"k.cu": "#define N 4\n" + (OPS + KERNEL).replace("float acc[4]", "float acc[N]")},
    "a condition": {"k.cu": "#if 1\n#define N 4\n#endif\n" + (OPS + KERNEL).replace("float acc[4]", "float acc[N]")},
    "code": {"k.cu": "using uint64_t = unsigned long;\nusing uint32_t = unsigned;\n"
             + OPS.replace("#include <cstdint>\n", "") + KERNEL},
    "the kernel": {"k.cu": KERNEL.replace("mma(acc, a, b);", OPS[OPS.index("    asm") : OPS.rindex("}")])
                   .replace("d[", "acc[").replace("uint64_t", "unsigned long")},
    "a guard of Hopper": {"k.cu": "#if __CUDA_ARCH__ >= 900\n#define H\n#endif\n" + OPS + KERNEL},
}  # fmt: skip


def ported(folder: Path, files: dict[str, str], mark: bytes, keep: bool) -> tuple[dict[str, bytes], list[str]]:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(mark + text.encode())
    made = port_paths([folder], PortOptions(keep_hopper=keep), (), look)
    assert made.exit_code is ExitCode.OK, [str(d) for d in made.diagnostics]
    return {Path(p).name: text for p, text in made.new.items()}, [d.code.id for d in made.diagnostics]


@pytest.mark.parametrize("keep", [False, True], ids=["", "both"])
@pytest.mark.parametrize("name", TREES)
def test_the_mark_changes_nothing(name: str, keep: bool, tmp_path: Path) -> None:
    plain, said = ported(tmp_path / "plain", TREES[name], b"", keep)
    marked, said_too = ported(tmp_path / "marked", TREES[name], MARK, keep)
    assert any(b"tcgen05.mma" in text for text in plain.values())
    assert said_too == said
    assert marked == {n: MARK + text if n in TREES[name] else text for n, text in plain.items()}


def test_a_mark_is_no_text() -> None:
    found = lexed(MARK + b'#include "a.h"\n#define A 1\n')
    assert [(n, q, s.start) for n, q, s in found.includes()] == [("a.h", True, 3)]
    assert [m.name for m in found.macros()] == ["A"]
    assert len(found.code) == len(found.plain) == len(found.source)


def test_a_port_with_a_mark_is_a_port(tmp_path: Path) -> None:
    made, _ = ported(tmp_path / "one", TREES["an include"], MARK, False)
    (tmp_path / "two").mkdir()
    for name, text in made.items():
        (tmp_path / "two" / name).write_bytes(text)
    again = port_paths([tmp_path / "two"], PortOptions(), (), look)
    assert again.exit_code is ExitCode.OK
    assert not again.groups
