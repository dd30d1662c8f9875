# SPDX-License-Identifier: Apache-2.0
"""Headers of known libraries are not what is ported, wherever a search directory has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.lang.sources import load_sources


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _read(root: Path, path: str, *include_dirs: str) -> set[str]:
    found = load_sources(root / path, [root / d for d in include_dirs])
    assert found.missing == ()
    return {Path(key).resolve().relative_to(root).as_posix() for key in found.files} - {path}


@pytest.mark.parametrize(
    ("line", "header", "where"),
    [
        ("#include <cute/tensor.hpp>", "cute/tensor.hpp", "project/3rdparty/cutlass/include"),
        ("#include <cute/tensor.hpp>", "cute/tensor.hpp", "opt/cutlass/include"),
        ('#include "cute/tensor.hpp"', "cute/tensor.hpp", "opt/cutlass/include"),
        ('#include "cutlass/arch/barrier.h"', "cutlass/arch/barrier.h", "project/include"),
        ("#include <torch/extension.h>", "torch/extension.h", "opt/torch/include"),
        ("#include <pybind11/pybind11.h>", "pybind11/pybind11.h", "opt/include"),
    ],
)
def test_headers_of_libraries_are_not_read(tmp_path: Path, line: str, header: str, where: str) -> None:
    inner = '#include "inner.h"\n'
    _write(tmp_path, {"project/.git/HEAD": "", "project/k.cu": f"{line}\n", f"{where}/{header}": inner})
    assert _read(tmp_path, "project/k.cu", where) == set()


@pytest.mark.parametrize(
    ("line", "header", "where"),
    [
        ("#include <cutlass_extensions/gemm.h>", "cutlass_extensions/gemm.h", "opt/include"),
        ("#include <house/mma.cuh>", "house/mma.cuh", "opt/include"),
        ("#include <benchmark/timer.h>", "benchmark/timer.h", "project/include"),
        ("#include <json.hpp>", "json.hpp", "project/include"),
    ],
)
def test_headers_of_the_project_are_read(tmp_path: Path, line: str, header: str, where: str) -> None:
    _write(tmp_path, {"project/.git/HEAD": "", "project/k.cu": f"{line}\n", f"{where}/{header}": "int x;\n"})
    assert _read(tmp_path, "project/k.cu", where) == {f"{where}/{header}"}


def test_beside_the_file_a_header_is_its_own(tmp_path: Path) -> None:
    _write(tmp_path, {"p/.git/HEAD": "", "p/k.cu": '#include "cute/own.cuh"\n', "p/cute/own.cuh": "int x;\n"})
    assert _read(tmp_path, "p/k.cu") == {"p/cute/own.cuh"}


def test_a_file_of_the_library_reads_the_library(tmp_path: Path) -> None:
    files = {"lib/.git/HEAD": "", "lib/include/cute/a.hpp": "#include <cute/b.hpp>\n", "lib/include/cute/b.hpp": ""}
    _write(tmp_path, files)
    assert _read(tmp_path, "lib/include/cute/a.hpp", "lib/include") == {"lib/include/cute/b.hpp"}
