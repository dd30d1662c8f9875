# SPDX-License-Identifier: Apache-2.0
"""The port of a text that stands in a file of its own."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources


def port(tmp_path: Path, text: str, options: PortOptions | None = None) -> PortResult:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return port_sources(load_sources(path), options)


def ported(tmp_path: Path, text: str, options: PortOptions | None = None) -> str:
    result = port(tmp_path, text, options)
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    return result.files[str(tmp_path / "kernel.cu")].decode()


def refused(tmp_path: Path, text: str) -> str:
    result = port(tmp_path, text)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed
    return "\n".join(d.message for d in result.diagnostics)
