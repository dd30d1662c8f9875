# SPDX-License-Identifier: Apache-2.0
"""Builds programs for the simulator with the toolkit that Porter finds, each once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.build.program import build_program
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import PorterError


@pytest.fixture(scope="session")
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")


@pytest.fixture(scope="session")
def built(toolkit: Toolkit, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`built(source, arch, include_dirs, flags)` gives the executable's path."""
    directory = tmp_path_factory.mktemp("programs")

    def build(
        source: Path,
        arch: str,
        include_dirs: tuple[Path, ...] = (),
        flags: tuple[str, ...] = (),
        libraries: tuple[str, ...] = (),
    ) -> Path:
        out = directory / f"{source.stem}-{arch}-{abs(hash((flags, libraries))):x}"
        program = build_program(source, arch, out, include_dirs, flags=flags, libraries=libraries, toolkit=toolkit)
        return program.executable

    return build
