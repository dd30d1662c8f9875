# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from porter.build import toolchain
from porter.build.toolchain import find_host_compiler, find_toolkit, search_toolkits
from porter.diagnostics import Code, ExitCode, PorterError

NVCC = """#!/bin/sh
case "$1" in
  --version) echo "Cuda compilation tools, release {version}, V{version}.1" ;;
  --dryrun) echo "#\\$ TOP={top}" >&2 ;;
esac
"""


def fake_toolkit(root: Path, version: str = "13.0", top: Path | None = None) -> Path:
    for directory in ("bin", "include", "lib64"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for name, text in (("nvcc", NVCC.format(version=version, top=top or root)), ("ptxas", "#!/bin/sh\n")):
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    (root / "include" / "cuda_runtime.h").touch()
    (root / "lib64" / "libcudart.so.13").touch()
    return root


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any toolkit; returns a place to put some."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setattr(toolchain, "_pypi_roots", lambda: iter(()))
    return tmp_path


@pytest.fixture(autouse=True)
def shell_works(monkeypatch: pytest.MonkeyPatch) -> None:
    # The fakes are scripts with an absolute interpreter, so an empty PATH does not stop them.
    assert os.path.exists("/bin/sh")


def test_order_of_preference(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, home, path, on_path, package = (fake_toolkit(bare / name) for name in ("g", "h", "p", "o", "y"))
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("CUDA_PATH", str(path))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    monkeypatch.setattr(toolchain, "_pypi_roots", lambda: iter((package,)))
    origins = [(a.origin, a.toolkit.root) for a in search_toolkits() if a.toolkit]
    assert origins == [("CUDA_HOME", home), ("CUDA_PATH", path), ("PATH", on_path), ("PyPI", package)]
    assert find_toolkit(given).root == given
    assert find_toolkit(given).origin == "--toolkit"
    assert find_toolkit(given / "bin" / "nvcc").root == given
    assert find_toolkit().root == home
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH")
    assert find_toolkit().root == on_path
    monkeypatch.setenv("PATH", str(bare / "empty"))
    found = find_toolkit()
    assert found.root == package
    assert found.version == (13, 0)
    assert found.runtime_library() == package / "lib64" / "libcudart.so.13"


def test_compiler_that_is_a_script_elsewhere_is_followed(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_toolkit(bare / "real")
    scripts = bare / "scripts"
    scripts.mkdir()
    (scripts / "nvcc").write_text(NVCC.format(version="13.0", top=real))
    (scripts / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(scripts))
    assert find_toolkit().ptxas == real / "bin" / "ptxas"


def test_old_and_broken_toolkits_are_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_toolkit(bare / "old", "12.6")
    broken = fake_toolkit(bare / "broken")
    (broken / "bin" / "ptxas").unlink()
    good = fake_toolkit(bare / "good", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(old))
    monkeypatch.setenv("CUDA_PATH", str(broken))
    monkeypatch.setenv("PATH", str(good / "bin"))
    attempts = {a.origin: a.reason for a in search_toolkits() if a.toolkit is None}
    assert "older than 12.8" in attempts["CUDA_HOME"]
    assert "no ptxas" in attempts["CUDA_PATH"]
    assert find_toolkit().root == good


def test_nothing_found_names_every_place(bare: Path) -> None:
    with pytest.raises(PorterError) as error:
        find_toolkit()
    assert error.value.diagnostic.code is Code.NO_TOOLKIT
    assert error.value.exit_code is ExitCode.USAGE
    assert "PATH" in error.value.diagnostic.detail
    assert "PyPI" in error.value.diagnostic.detail


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_explicit_toolkit_must_be_one(bare: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(fake_toolkit(bare / "good")))
    with pytest.raises(PorterError) as error:
        find_toolkit(bare / place)
    assert error.value.diagnostic.code is Code.BAD_TOOLKIT


def test_no_host_compiler(bare: Path) -> None:
    with pytest.raises(PorterError) as error:
        find_host_compiler()
    assert error.value.diagnostic.code is Code.NO_HOST_COMPILER


def test_host_compiler_from_the_environment(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = bare / "my-c++"
    mine.write_text("#!/bin/sh\necho mine 1.0\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CXX", str(mine))
    assert find_host_compiler().path == mine
    assert find_host_compiler().version == "mine 1.0"


def test_toolkit_without_runtime_library(bare: Path) -> None:
    root = fake_toolkit(bare / "x")
    (root / "lib64" / "libcudart.so.13").unlink()
    (root / "lib64" / "libcudart_static.a").touch()
    with pytest.raises(PorterError) as error:
        find_toolkit(root).runtime_library()
    assert error.value.diagnostic.code is Code.TOOL_MISSING
