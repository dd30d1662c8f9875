# SPDX-License-Identifier: Apache-2.0
"""Trees with files that are nobody's: what is read, what is written, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.diagnostics import ExitCode

KERNEL = """__global__ void k(float* out) {
    float d[4] = {0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(0ull), "l"(0ull));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
void f(float* p) { k<<<1, 128>>>(p); }
"""
PLAIN = "__global__ void zero(float* p) { *p = 0; }\n"
DSL = "import cutlass.cute as cute\n@cute.kernel\ndef k():\n    cute.nvgpu.warpgroup.fence()\n"
Tree = dict[str, str | bytes]


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(tree: Tree, *options: str) -> Result:
        for name, text in tree.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.chdir(tmp_path)
        return CliRunner().invoke(main, ["port", ".", "--no-compile", "--jobs", "1", "-o", "out", *options])

    return run


def written() -> set[str]:
    return {p.relative_to("out").as_posix() for p in Path("out").rglob("*") if p.is_file()}


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "zeros": (b"\0\1\2", "PT0002"),
    "another coding": ("__global__ void k() {}".encode("utf-16"), "PT0002"),
    "too many includes": (b'#include "a.h"\n' * 2_001, "PT"),
    "nested too deep": (b"int f() { return " + b"(" * 5000 + b")" * 5000 + b"; }", "PT"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_does_not_end_the_others(port: Callable[..., Result], name: str) -> None:
    text, code = UNREADABLE[name]
    done = port({"k.cu": KERNEL, "src/bad.cu": text})
    assert done.exit_code in (ExitCode.UNPORTED, ExitCode.OK), done.output
    assert "PT0099" not in done.output
    assert {"k.cu", "tcgen05.cuh"} <= written() | {"tcgen05.cuh"}
    if name in ("zeros", "another coding"):
        assert done.exit_code == ExitCode.UNPORTED
        assert code in done.stderr
        assert "src/bad.cu" in done.stderr
    assert not any("bad" in name for name in written())


def test_one_that_was_named_ends_the_run(port: Callable[..., Result]) -> None:
    done = port({"k.cu": KERNEL, "src/bad.cu": b"\0\1"}, "src/bad.cu")
    assert done.exit_code == ExitCode.USAGE
    assert not Path("out").exists()


def test_a_dsl_kernel_is_left_where_both_chips_are_asked_for(port: Callable[..., Result]) -> None:
    done = port({"k.cu": KERNEL, "d.py": DSL}, "--keep-hopper")
    assert done.exit_code == ExitCode.UNPORTED, done.output
    assert "k.cu" in written()
    assert not any(name.endswith(".py") for name in written())


IDLE: dict[str, Tree] = {
    "sources": {"a.cu": PLAIN, "b.cu": PLAIN, "c.cpp": "int c;\n", "d.cc": "int d;\n", "e/f.cu": PLAIN},
    "sources with headers": {"a.cu": '#include "a.h"\n' + PLAIN, "a.h": "int a();\n"},
    "a header without sources": {"zero.cuh": PLAIN},
    "a DSL module": {"m.py": "import cutlass.cute as cute\n@cute.kernel\ndef z():\n    pass\n"},
    "a build file": {"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 80)\n", "a.cu": PLAIN},
    "nothing": {},
}


@pytest.mark.parametrize("name", IDLE)
def test_what_stays_as_it_is_is_not_written(port: Callable[..., Result], name: str) -> None:
    done = port({"k.cu": KERNEL, **IDLE[name]})
    assert done.exit_code == ExitCode.OK, done.output
    assert written() == {"k.cu", "k_tcgen05.cuh"} or written() == {"k.cu", "tcgen05.cuh"}
    assert done.stderr.count("PT0007") <= 3


def test_it_is_with_whole(port: Callable[..., Result]) -> None:
    port({"k.cu": KERNEL, **IDLE["sources"]}, "--whole")
    assert set(IDLE["sources"]) <= written()


def test_many_are_counted(port: Callable[..., Result]) -> None:
    done = port({"k.cu": KERNEL, **IDLE["sources"]})
    assert "PT0007]: 5 files: nothing to port" in done.stderr


def test_a_source_that_leads_to_what_changes_is_written(port: Callable[..., Result]) -> None:
    done = port({"k.cuh": KERNEL, "main.cu": '#include "k.cuh"\n', "b.cu": PLAIN})
    assert done.exit_code == ExitCode.OK, done.output
    assert {"k.cuh", "main.cu"} <= written()
    assert "b.cu" not in written()
