# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code
from porter.lang.coverage import reading_findings
from porter.lang.sources import load_sources


def findings(root: Path, text: str, **headers: str) -> list[tuple[Code, int]]:
    (root / "k.cu").write_text(text)
    for name, body in headers.items():
        (root / f"{name}.cuh").write_text(body)
    return [(d.code, d.where.line if d.where else 0) for d in reading_findings(load_sources(root / "k.cu"))]


def test_nothing_to_say_about_a_clean_file(tmp_path: Path) -> None:
    text = '#include "a.cuh"\n__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n'
    assert findings(tmp_path, text, a="int a;\n") == []


def test_unread_wgmma_is_named_and_other_ptx_is_not(tmp_path: Path) -> None:
    text = """__global__ void k() {
  asm volatile("wgmma.fence" SUFFIX ";");
  asm volatile("mov.u32 " SUFFIX ";");
}
#define MMA(N) asm volatile("wgmma.mma_async.m64n" #N ";")
"""
    assert findings(tmp_path, text) == [(Code.UNREAD_PTX, 2), (Code.UNREAD_PTX, 5)]


def test_string_macro_from_a_header_makes_ptx_readable(tmp_path: Path) -> None:
    text = '#include "a.cuh"\n__global__ void k() {\n  asm volatile("wgmma.fence" SUFFIX ";");\n}\n'
    assert findings(tmp_path, text, a='#define SUFFIX ".sync.aligned"\n') == []


def test_missing_header_and_unparsed_kernel(tmp_path: Path) -> None:
    text = '#include "gone.cuh"\nint a = ) + ;\n__global__ }} void k( { asm volatile("wgmma"\n'
    named = [(Code.UNRESOLVED_INCLUDE, 1), (Code.UNPARSED_REGION, 3), (Code.UNREAD_ASM, 3)]
    assert findings(tmp_path, text) == named
    assert load_sources(tmp_path / "k.cu").main.coverage < 1


def test_unparsed_text_without_device_code_is_only_counted(tmp_path: Path) -> None:
    text = "int a = ) + ;\nvoid f() { g(); }\n"
    assert findings(tmp_path, text) == []
    assert 0.3 < load_sources(tmp_path / "k.cu").main.coverage < 1
