# SPDX-License-Identifier: Apache-2.0
"""What a port may read and where it may write."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import HEADER, KERNEL, fake_port_sources, porter


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda *args: [])
    monkeypatch.chdir(tmp_path)


def sources(folder: Path, includes: str = "") -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "gemm.cu").write_text(includes + KERNEL)
    (folder / "src" / "mma.cuh").write_text(HEADER)
    return folder / "src" / "gemm.cu"


def below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())


def test_files_outside_of_the_project_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "secret.cuh"
    outside.write_text("#define SECRET 1\n")
    project = tmp_path / "project"
    kernel = sources(
        project, f'#include "{outside}"\n#include "../../secret.cuh"\n#include "/etc/passwd"\n#include "link.cuh"\n'
    )
    (project / ".git").mkdir()
    (project / "src" / "link.cuh").symlink_to(outside)
    porter("port", kernel, "-o", "out", "--whole", code=None)
    assert below(tmp_path / "out") == ["gemm.cu", "mma.cuh"]
    # named with -I it is one of the project's
    porter("port", kernel, "-I", tmp_path, "-o", "all", "--whole", code=None)
    assert "secret.cuh" in {Path(p).name for p in below(tmp_path / "all")}
    assert not [p for p in below(tmp_path / "all") if "passwd" in p]


def test_only_what_changes_is_written(tmp_path: Path) -> None:
    kernel = sources(tmp_path / "project", '#include "same.cuh"\n')
    (kernel.parent / "same.cuh").write_text("#define SAME 1\n")
    porter("port", kernel, "-o", "out")
    assert below(tmp_path / "out") == ["gemm.cu", "mma.cuh"]
    porter("port", kernel, "-o", "out", "--whole")
    assert below(tmp_path / "out") == ["gemm.cu", "mma.cuh", "same.cuh"]
    porter("port", kernel, "--whole", code=2)


def test_no_link_leads_out_of_the_output(tmp_path: Path) -> None:
    kernel = sources(tmp_path / "project", '#include "../include/deep.cuh"\n')
    (tmp_path / "project" / "include").mkdir()
    (tmp_path / "project" / "include" / "deep.cuh").write_text(HEADER)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "src").symlink_to(tmp_path / "elsewhere")
    output = porter("port", kernel, "-o", "out", code=2).output
    assert "PT0004" in output
    assert below(tmp_path / "elsewhere") == []
    assert below(tmp_path / "out") == []


def test_a_link_stays_one_when_its_file_is_ported(tmp_path: Path) -> None:
    kernel = sources(tmp_path / "project")
    link = tmp_path / "linked.cu"
    link.symlink_to(kernel)
    (tmp_path / "mma.cuh").write_text(HEADER)
    porter("port", link, "--apply", "--allow-dirty")
    assert link.is_symlink()
    assert b"BLACKWELL" in kernel.read_bytes()


def test_a_port_finds_the_headers_that_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed header in `include` includes one beside it that stays as it is."""
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "include").mkdir()
    kernel = project / "src" / "k.cu"
    kernel.write_text('#include "../include/a.cuh"\n__global__ void k(int* out) { *out = HOPPER; }\n')
    (project / "include" / "a.cuh").write_text('#include "b.cuh"\n#define HOPPER VALUE\n#define BLACKWELL VALUE\n')
    (project / "include" / "b.cuh").write_text("#define VALUE 7\n")
    porter("port", kernel, "-o", "out")
    assert below(tmp_path / "out") == ["include/a.cuh", "src/k.cu"]
    porter("build", kernel, "--port", tmp_path / "out" / "src" / "k.cu")
