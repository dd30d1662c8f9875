# SPDX-License-Identifier: Apache-2.0
"""Python sources: names through imports and aliases, spans, and every byte kept."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import libcst as cst
import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.cute_dsl import DslFile, parse_dsl, walk
from porter.model.dsl.names import hopper_only
from porter.passes.dsl.port import port_python

ALIASES = b"""\xef\xbb\xbfimport cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90, os
from cutlass.cute.nvgpu import warpgroup as wg, tcgen05
from cutlass import pipeline
import cutlass.cute.nvgpu.cpasync

def f():
    from cutlass.utils import LayoutEnum
    wg.fence()  # \xc3\xa4
    x = cute.nvgpu.warpgroup.Field.ACCUMULATE; sm90.make_smem_layout_a(1)
    cutlass.cute.nvgpu.cpasync.tma_partition(LayoutEnum, fence=pipeline.sync)
"""


def names(file: DslFile) -> list[str]:
    return [name for _, name in file.references()]


def test_names_are_resolved_through_imports_and_aliases() -> None:
    file = parse_dsl("a.py", ALIASES)
    assert names(file) == [
        "cutlass.cute.nvgpu.warpgroup.fence",
        "cutlass.cute.nvgpu.warpgroup.Field.ACCUMULATE",
        "cutlass.utils.hopper_helpers.make_smem_layout_a",
        "cutlass.cute.nvgpu.cpasync.tma_partition",
        "cutlass.utils.LayoutEnum",
        "cutlass.pipeline.sync",
    ]


def test_spans_are_bytes_of_the_file_also_behind_a_byte_order_mark() -> None:
    file = parse_dsl("a.py", ALIASES)
    texts = [file.text(node) for node, _ in file.references()]
    assert texts[0] == "wg.fence"
    assert texts[-1] == "pipeline.sync"
    assert file.location(file.span(next(file.references())[0])).line == 9


def test_whole_lines_of_a_statement_leave_its_neighbours() -> None:
    source = b"def f():\n    # what\n    if a:\n        b()\n\n    # c\n    c()\n"
    file = parse_dsl("a.py", source)
    block = next(n for n in walk(file.module) if isinstance(n, cst.If))
    span = file.whole_lines(block)
    assert source[span.start : span.end] == b"    if a:\n        b()\n"
    above = file.comments_above(block)
    assert source[above.start : above.end] == b"    # what\n"


def test_kernels_are_found_through_aliases() -> None:
    source = (
        b"from cutlass import cute as c\nclass A:\n"
        b"    @c.kernel\n    def k(self): pass\n    @c.jit\n    def j(self): pass\n"
    )
    assert [k.name.value for k in parse_dsl("a.py", source).kernels] == ["k"]


@pytest.mark.parametrize(
    ("source", "code"),
    [(b"def f(:\n", Code.DSL_UNREADABLE), (b"x = '\xff'\n", Code.NOT_TEXT), (b"\x00\x01", Code.DSL_UNREADABLE)],
)
def test_bad_files_have_diagnostics(source: bytes, code: Code) -> None:
    with pytest.raises(PorterError) as caught:
        parse_dsl("a.py", source)
    assert caught.value.diagnostic.code is code


def test_shared_memory_layouts_are_not_hopper_only() -> None:
    assert not hopper_only("cutlass.utils.hopper_helpers.make_smem_layout_a")
    assert not hopper_only("cutlass.cute.nvgpu.warpgroup.SmemLayoutAtomKind.K_SW128")
    assert not hopper_only("cutlass.cute.nvgpu.warp.StMatrix8x8x16bOp")
    assert hopper_only("cutlass.cute.nvgpu.warpgroup.MmaF16BF16Op")
    assert hopper_only("cutlass.pipeline.PipelineTmaAsync.create")


def python_files(package: str) -> list[Path]:
    spec = find_spec(package)
    where = spec.submodule_search_locations if spec is not None else None
    return sorted(p for d in where or () for p in Path(d).rglob("*.py") if p.stat().st_size < 400_000)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("package", ["cutlass", "quack"])
def test_every_file_of_a_package_comes_out_byte_for_byte(package: str) -> None:
    files = python_files(package)
    if not files:
        pytest.skip(f"{package} is not installed")
    for path in files:
        source = path.read_bytes()
        assert parse_dsl(str(path), source).module.bytes == source
        if b"warpgroup" in source:
            result = port_python(path, select=("no rule",))
            assert result.files[str(path)] == source
            assert not result.groups
