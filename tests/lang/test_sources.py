# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.cuda import error_nodes, find, function_specifiers
from porter.lang.sources import load_sources


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def test_local_includes_are_followed_once_and_in_order(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/k.cu": b'#include <cuda.h>\n#include "b.cuh"\n#include "../inc/a.h"\n#include "gone.h"\nint k;\n',
            "src/b.cuh": b'#pragma once\n#include "../inc/a.h"\n#include "sub/c.h"\n',
            "src/sub/c.h": b'#include "../b.cuh"\nint c;\n',
            "inc/a.h": b"int a;\n",
        },
    )
    found = load_sources(tmp_path / "src/k.cu")
    assert [Path(p).relative_to(tmp_path).as_posix() for p in found.files] == [
        "src/k.cu",
        "src/b.cuh",
        "inc/a.h",
        "src/sub/c.h",
    ]
    assert found.main.source.endswith(b"int k;\n")
    assert [i.name for i in found.unresolved] == ["gone.h"]
    angle = next(i for i in found.includes if i.name == "cuda.h")
    assert angle.resolved is None
    twice = [i.resolved for i in found.includes if i.name == "../inc/a.h"]
    assert len(twice) == 2
    assert len(set(twice)) == 1


def test_include_directories(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/k.cu": b'#include <lib/x.cuh>\n#include "lib/y.cuh"\n',
            "inc/lib/x.cuh": b"int x;\n",
            "inc/lib/y.cuh": b"int y;\n",
        },
    )
    assert len(load_sources(tmp_path / "src/k.cu").files) == 1
    assert len(load_sources(tmp_path / "src/k.cu", [tmp_path / "inc"]).files) == 3


def test_keys_stay_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"src/k.cu": b'#include "../a.h"\n', "a.h": b"int a;\n"})
    monkeypatch.chdir(tmp_path)
    assert list(load_sources(Path("src/k.cu")).files) == ["src/k.cu", "a.h"]
    assert list(load_sources(Path("./src/../src/k.cu")).files) == ["src/k.cu", "a.h"]


def test_macros_of_headers_hold_in_the_including_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "k.cu": b'#include "m.h"\nodd_name void k(float *p) {\n  again\n  for (;;) { f(p); }\n}\n',
            "m.h": b'#define odd_name __global__\n#define again _Pragma("unroll")\n#define OP "ret;"\n',
        },
    )
    found = load_sources(tmp_path / "k.cu")
    assert not error_nodes(found.main.tree)
    (kernel,) = find(found.main.root, "function_definition")
    assert "__global__" in function_specifiers(found.main, kernel)
    assert found.string_macros == {"OP": "ret;"}


def test_bytes_survive(tmp_path: Path) -> None:
    source = b"\xef\xbb\xbf// \xe9\xff\r\nvoid f() {}\r\n\tint a;"
    write(tmp_path, {"k.cu": source})
    assert load_sources(tmp_path / "k.cu").sources() == {str(tmp_path / "k.cu"): source}


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("gone.cu", None, Code.FILE_NOT_FOUND),
        ("binary.cu", b"\x7fELF\0\0\1", Code.NOT_TEXT),
        ("notes.txt", b"hello", Code.UNKNOWN_SOURCE_KIND),
        ("kernel.py", b"import cutlass", Code.UNKNOWN_SOURCE_KIND),
    ],
)
def test_bad_inputs(tmp_path: Path, name: str, content: bytes | None, code: Code) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PorterError) as error:
        load_sources(tmp_path / name)
    assert error.value.diagnostic.code is code
    assert name in str(error.value)


def test_directory_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(PorterError) as error:
        load_sources(tmp_path)
    assert error.value.diagnostic.code is Code.UNKNOWN_SOURCE_KIND


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(b"int a;")
    path.chmod(0)
    with pytest.raises(PorterError) as error:
        load_sources(path)
    assert error.value.diagnostic.code is Code.UNREADABLE_SOURCE
