# SPDX-License-Identifier: Apache-2.0
"""A driver without a GPU, built once a session, and a program that uses it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from porter.build.toolchain import Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import PorterError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fakes:
    toolkit: Toolkit
    libraries: Path
    program: Path
    ptx: Path

    @property
    def command(self) -> list[str]:
        return [str(self.program), str(self.ptx)]


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    try:
        toolkit, compiler = find_toolkit(), str(find_host_compiler().path)
    except PorterError as error:
        pytest.skip(f"no compiler: {error}")
    folder = tmp_path_factory.mktemp("driver")
    flags = [compiler, "-std=c++17", "-Wall", f"-I{toolkit.include_dir}"]
    shared = [*flags, "-shared", "-fPIC", str(HERE / "fake_driver.cpp")]
    driver = folder / "libcuda.so.1"
    subprocess.run([*shared, "-Wl,-soname,libcuda.so.1", "-o", driver, "-ldl"], check=True)
    subprocess.run([*shared, "-DFAKE_CUPTI", "-o", folder / "libcupti.so", "-ldl"], check=True)
    program = folder / "program"
    link = [str(driver), f"-Wl,-rpath,{folder}"]
    subprocess.run([*flags, str(HERE / "program.cpp"), *link, "-o", program], check=True)
    return Fakes(toolkit, folder, program, HERE / "kernels.ptx")


@pytest.fixture
def cupti(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake CUPTI is the one that is found."""
    monkeypatch.setenv("CUPTI_LIBRARY_DIR", str(fakes.libraries))
    return fakes.libraries
