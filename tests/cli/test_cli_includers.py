# SPDX-License-Identifier: Apache-2.0
"""Files that include what a port in place changes, and that nobody asked to port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from porter.build.gate import Gated
from porter.cli import includers
from porter.cli.comparing import Told
from porter.cli.context import Session
from porter.passes.ported import Ported, PortedRoot
from porter.verify.gate import GateOptions

HEADER = "#pragma once\n__device__ inline float moved(float x) { return x + 1.f; }\n"
KERNEL = """
__global__ void {name}(float* out, int n) {{ if (threadIdx.x < n) out[threadIdx.x] = {what}; }}
void run(float* out, int n) {{ {name}<<<1, 64>>>(out, n); }}
"""
SOURCES = {
    "own.cu": '#include "moved.cuh"\n',
    "beside.cu": '#define BESIDE\n#include "moved.cuh"\n',
    "further.cu": '#include "between.cuh"\n',
    "apart.cu": "",
}


@pytest.fixture
def port(tmp_path: Path) -> Ported:
    """A port of own.cu, whose header is another one for those that define BESIDE."""
    (tmp_path / "moved.cuh").write_text(HEADER)
    (tmp_path / "between.cuh").write_text('#include "moved.cuh"\n')
    for name, includes in SOURCES.items():
        what = "moved(n)" if includes else "1.f"
        (tmp_path / name).write_text(includes + KERNEL.format(name=Path(name).stem, what=what))
    own, header = str(tmp_path / "own.cu"), str(tmp_path / "moved.cuh")
    old = {path: Path(path).read_bytes() for path in (own, header)}
    changed = HEADER.replace("return", "\n#ifdef BESIDE\n x += 1.f;\n#endif\n return").encode()
    return Ported(old, {**old, header: changed}, roots=[PortedRoot(own, (own, header))])


def test_all_that_include_a_changed_text_are_looked_at(port: Ported, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(ported: Ported, options: GateOptions) -> list[Gated]:
        assert all(set(root.files) <= set(ported.new) for root in ported.roots)
        assert port.new.items() <= ported.new.items()
        return [Gated(r.path, "compiled" if "beside" in r.path else "refused", "no such name") for r in ported.roots]

    def compared(_: Session, ported: Ported, gated: Sequence[Gated], *more: Any) -> list[Told]:
        assert [root.path for root in ported.changed_roots] == [one.path for one in gated]
        return [Told(Path(one.path).name, {}, equality="equal") for one in gated]

    monkeypatch.setattr(includers, "compile_ports", compiled)
    monkeypatch.setattr(includers, "compared_ports", compared)
    uncompiled, equal = includers.compared_includers(Session(), port, GateOptions(), 1)
    assert (equal.case, equal.equality) == ("beside.cu", "equal")
    assert uncompiled.equality == ""
    assert "further.cu: not known: it includes moved.cuh, which changes: no such name" in uncompiled.lines[0]
    monkeypatch.setattr(includers, "_MOST", 1)
    late, _ = includers.compared_includers(Session(), port, GateOptions(), 1)
    assert "further.cu: not known: it includes moved.cuh, which changes, and 1 such files" in late.lines[0]
    assert not includers.compared_includers(Session(), port, GateOptions(), 0)


@pytest.mark.slow
def test_one_that_becomes_another_is_told(port: Ported) -> None:
    beside, further = includers.compared_includers(Session(), port, GateOptions(), 2)
    assert (beside.equality, further.equality) == ("differs", "equal")
    assert [d.code.id for d in beside.wrong] == ["PT3057"]
