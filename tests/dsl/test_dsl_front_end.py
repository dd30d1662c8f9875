# SPDX-License-Identifier: Apache-2.0
"""Python sources: names through imports and aliases, spans, and every byte kept."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.cute_dsl import DslFile, parse_dsl
from porter.model.dsl.reach import marked
from porter.passes.dsl.port import port_python
from porter.rules.load import own_names

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
    file = parse_dsl("a.py", ALIASES, dialect=own_names().dialect)
    assert names(file) == [
        "cutlass.cute.nvgpu.warpgroup.fence",
        "cutlass.cute.nvgpu.warpgroup.Field.ACCUMULATE",
        "cutlass.utils.hopper_helpers.make_smem_layout_a",
        "cutlass.cute.nvgpu.cpasync.tma_partition",
        "cutlass.utils.LayoutEnum",
        "cutlass.pipeline.sync",
    ]


def test_spans_are_bytes_of_the_file_also_behind_a_byte_order_mark() -> None:
    file = parse_dsl("a.py", ALIASES, dialect=own_names().dialect)
    texts = [file.text(node) for node, _ in file.references()]
    assert texts[0] == "wg.fence"
    assert texts[-1] == "pipeline.sync"
    assert file.location(file.span(next(file.references())[0])).line == 9


def test_lines_end_where_python_ends_them() -> None:
    file = parse_dsl("a.py", b"\xef\xbb\xbfa = 1\r\nb = 2\rc = '\x0c\xe2\x80\xa8'\nd = 4")
    texts = [file.text(statement) for statement in file.module.body]
    assert texts == ["a = 1", "b = 2", "c = '\x0c\u2028'", "d = 4"]
    last = file.span(file.module.body[-1])
    assert (file.line_start(last.end), file.line_end(last.start)) == (last.start, last.end)
    assert [file.line_break(file.span(s).end) for s in file.module.body] == [b"\r\n", b"\r", b"\n", b"\r\n"]


SCOPES = {
    "a function's own": ("def f(cute): cute.a\ncute.b", ["b"]),
    "a class's, seen by itself": ("class A:\n    cute = 1\n    cute.a\n    def f(self): cute.b", ["b"]),
    "a function in a function": ("def f():\n    cute = 1\n    def g(): cute.a\ncute.b", ["b"]),
    "of another module, declared": ("def f():\n    global cute\n    cute.a", ["a"]),
    "a first iterable": ("[cute.a for cute in cute.b]", ["b"]),
    "a default": ("def f(cute=cute.a): cute.b", ["a"]),
    "an annotation": ("def f(cute: cute.a) -> cute.b: pass", ["a", "b"]),
    "a walrus in a comprehension": ("def f():\n    [(cute := i) for i in x]\n    cute.a\ncute.b", ["b"]),
    "a type of an assignment": ("x: cute.a = 1", ["a"]),
    "a deleted name": ("def f():\n    del cute\n    cute.a", []),
    "the rest of a mapping": ("def f(x):\n    match x:\n        case {**cute}: cute.a", []),
}


@pytest.mark.parametrize("name", SCOPES)
def test_scopes_are_those_of_python(name: str) -> None:
    text, expected = SCOPES[name]
    file = parse_dsl("a.py", f"import cutlass.cute as cute\n{text}\n".encode(), dialect=own_names().dialect)
    assert [n.removeprefix("cutlass.cute.") for n in names(file)] == expected


def test_relative_imports_are_named_from_the_package() -> None:
    source = b"from . import a\nfrom .b import c\nfrom .. import d\nfrom ..e.f import g\na, c, d, g\n"
    file = parse_dsl("a.py", source, "top.sub", own_names().dialect)
    assert [r.name for r in file.all_references] == ["top.sub.a", "top.sub.b.c", "top.d", "top.e.f.g"]


def test_kernels_are_found_through_aliases() -> None:
    source = (
        b"from cutlass import cute as c\nclass A:\n"
        b"    @c.kernel\n    def k(self): pass\n    @c.jit\n    def j(self): pass\n"
    )
    file = parse_dsl("a.py", source, dialect=own_names().dialect)
    assert [k.name.value for k in file.decorated(lambda name: own_names().is_a(name, "kernel"))] == ["k"]


@pytest.mark.parametrize(
    ("source", "code"),
    [(b"def f(:\n", Code.DSL_UNREADABLE), (b"x = '\xff'\n", Code.NOT_TEXT), (b"\x00\x01", Code.DSL_UNREADABLE)],
)
def test_bad_files_have_diagnostics(source: bytes, code: Code) -> None:
    with pytest.raises(PorterError) as caught:
        parse_dsl("a.py", source)
    assert caught.value.diagnostic.code is code


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        (b"def f(:\n", Code.DSL_UNREADABLE, 4),
        (b"x = " + b"(" * 300 + b")" * 300 + b"\n", Code.DSL_UNREADABLE, 4),
        (b"x = '\xff'\n", Code.NOT_TEXT, 0),
    ],
)
def test_a_kernel_that_is_no_python_is_named_with_its_line(end: bytes, code: Code, line: int, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"import cutlass.cute as cute\n@cute.kernel\ndef kernel(): pass\n" + end)
    with pytest.raises(PorterError) as caught:
        marked(path, own_names(), "kernel")
    assert caught.value.diagnostic.code is code
    where = caught.value.diagnostic.where
    assert where is not None
    assert where.line == line


def test_shared_memory_layouts_are_not_hopper_only() -> None:
    assert not own_names().hopper_only("cutlass.utils.hopper_helpers.make_smem_layout_a")
    assert not own_names().hopper_only("cutlass.cute.nvgpu.warpgroup.SmemLayoutAtomKind.K_SW128")
    assert not own_names().hopper_only("cutlass.cute.nvgpu.warp.StMatrix8x8x16bOp")
    assert not own_names().hopper_only("cutlass.pipeline.PipelineTmaAsync.create")
    assert own_names().hopper_only("cutlass.cute.nvgpu.warpgroup.MmaF16BF16Op")
    assert own_names().hopper_only("cutlass.utils.sm90.make_trivial_tiled_mma")


def python_files(package: str) -> list[Path]:
    spec = find_spec(package)
    where = spec.submodule_search_locations if spec is not None else None
    return sorted(p for d in where or () for p in Path(d).rglob("*.py") if p.stat().st_size < 400_000)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("package", ["cutlass", "quack"])
def test_every_name_of_a_package_stands_where_the_tree_says(package: str) -> None:
    files = python_files(package)
    if not files:
        pytest.skip(f"{package} is not installed")
    count = 0
    for path in files:
        file = parse_dsl(str(path), path.read_bytes(), dialect=own_names().dialect)
        for reference in file.all_references:
            count += 1
            chain = reference.chain
            words = re.sub(r"#[^\r\n]*|[\s\\()]+", "", file.text(chain.node))
            assert words == ".".join([chain.base.value, *chain.attributes]).replace("()", ""), (path, words)
    assert count > 1000


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("package", ["cutlass", "quack"])
def test_without_rules_every_file_of_a_package_stays(package: str) -> None:
    files = [p for p in python_files(package) if b"warpgroup" in p.read_bytes()]
    if not files:
        pytest.skip(f"{package} is not installed")
    for path in files:
        result = port_python(path, select=("no rule",))
        assert result.files[str(path)] == path.read_bytes()
        assert not result.groups
