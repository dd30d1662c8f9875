# SPDX-License-Identifier: Apache-2.0
"""Kernels whose headers lie in other directories: ports are compiled against ported headers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept_folder

from porter.build.tree import left_out, mirrored, own_first
from porter.cli.main import main
from porter.diagnostics import ExitCode

CORPUS = Path(__file__).parents[2] / "corpus"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gemm_macro with its wgmma wrappers in `include/detail/`, behind a header that itself stays as it is."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(CORPUS / "gemm_macro", root / "src")
    source = root / "src" / "gemm_macro.cu"
    text = source.read_text()
    at, end = text.index("#define"), text.index("extern") if "extern" in text else text.index("__global__")
    (root / "include" / "detail").mkdir(parents=True)
    (root / "include" / "detail" / "mma.cuh").write_text("#pragma once\n#include <stdint.h>\n" + text[at:end])
    (root / "include" / "ops.cuh").write_text('#pragma once\n#include "detail/mma.cuh"\n')
    source.write_text(text[:at] + "#include <ops.cuh>\n" + text[end:])
    return kept_folder(root)


def run(*arguments: object) -> str:
    outcome = CliRunner().invoke(main, [str(a) for a in arguments])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    return outcome.output


def test_ports_meet_their_own_headers(project: Path, tmp_path: Path) -> None:
    source, include, out = project / "src" / "gemm_macro.cu", project / "include", tmp_path / "out"
    run("port", "--style", "compat", source, "-I", include, "-o", out)
    written = sorted(str(p.relative_to(out)) for p in out.rglob("*.cu*"))
    # ops.cuh stays as it is, and would lead to the original's mma.cuh
    assert written == [
        "include/detail/mma.cuh",
        "include/detail/tcgen05.cuh",
        "include/ops.cuh",
        "src/gemm_macro.cu",
    ]
    finished = out / "src" / "gemm_macro.cu"
    for port in ((), ("--port", finished)):
        run("build", "--style", "compat", source, "-I", include, *port)
        run("verify", "--style", "compat", source, "-I", include, "--sizes", "default", *port)
    run("build", "--style", "compat", source, "-I", include, "--keep-hopper")


@pytest.mark.slow
def test_build_files_say_where_headers_are(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.copytree(project, root)
    (root / ".git").mkdir()
    (root / "CMakeLists.txt").write_text("target_include_directories(gemm PRIVATE ${PROJECT_SOURCE_DIR}/include)\n")
    source = root / "src" / "gemm_macro.cu"
    assert "wgmma.mma_async" in run("scan", source)
    assert "Tensor Memory" in run("plan", source)
    run("port", "--style", "compat", root, "-o", tmp_path / "out")
    ported = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.cu*")}
    assert {"include/detail/mma.cuh", "src/gemm_macro.cu"} <= ported
    run("build", "--style", "compat", source)
    run("verify", "--style", "compat", source, "--families", "integers", "--sizes", "default")
    program = root / "src" / "program.cu"
    program.write_text('#include <ops.cuh>\n#include <cstdio>\nint main() { std::puts("ran"); }\n')
    assert "exit status 0" in run("run", program)


def test_directories_of_a_port(tmp_path: Path) -> None:
    for name in ("a/src/x/k.cu", "a/include/i.h", "b/src/x/k.cu", "b/include/i.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    original, port = tmp_path / "a" / "src" / "x" / "k.cu", tmp_path / "b" / "src" / "x" / "k.cu"
    directories = [tmp_path / "a" / "include", Path("/usr/include"), tmp_path / "a" / "src"]
    assert mirrored(original, port, directories) == (tmp_path / "b" / "include", tmp_path / "b" / "src")
    assert mirrored(original, original, directories) == ()
    (tmp_path / "k.cu").touch()
    assert mirrored(original, tmp_path / "k.cu", directories) == ()


def test_originals_stand_behind_the_port(tmp_path: Path) -> None:
    for name in ("a/src/k.cu", "a/src/same.h", "a/inc/o.h", "b/src/k.cu", "b/inc/o.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    original, port, include = tmp_path / "a" / "src" / "k.cu", tmp_path / "b" / "src" / "k.cu", tmp_path / "a" / "inc"
    original.write_text('#include "o.h"\n#include "same.h"\n')
    searched = [include, Path("/usr/include")]
    assert own_first(original, port, searched) == (tmp_path / "b" / "inc", include, Path("/usr/include"))
    # o.h is found through -I, and the port has one: the directory of the original's is not searched before
    assert left_out(original, port, searched) == (original.parent,)
    (tmp_path / "b" / "src" / "same.h").touch()
    assert left_out(original, port, searched) == ()
