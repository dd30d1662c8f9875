# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make when they port by hand, planted in a right port: verify must refuse each one.

Needs a CUDA compiler. Each mistake is a change of the ported text that has to be found there, so that a port
that is written differently one day fails here instead of testing nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept, kept_folder
from planted_mistakes import KERNEL as NAME
from planted_mistakes import MISTAKES, planted

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.cli.main import main
from porter.diagnostics import ExitCode, PorterError

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "corpus" / NAME / f"{NAME}.cu"


def _compiler_missing() -> str | None:
    try:
        find_toolkit()
        find_host_compiler()
    except PorterError as error:
        return error.diagnostic.message
    return None


pytestmark = pytest.mark.skipif(_compiler_missing() is not None, reason=str(_compiler_missing()))


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def verify(port: Path) -> tuple[int, str]:
    return run("verify", KERNEL, "--port", port, "--families", "integers", "--sizes", "M=128,N=128,K=256",
               "--budget", 3_000_000)  # fmt: skip


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ported")
    code, output = run("port", "--style", "compat", KERNEL, "-o", out)
    assert code == 0, output
    return kept_folder(out) / KERNEL.name


def test_the_port_itself_is_clean(ported: Path) -> None:
    code, output = verify(ported)
    assert code == ExitCode.OK, output
    assert "clean" in output


# Of those that one check finds like another, one always runs.
SLOW = {"wrong-type", "wrong-n", "alloc-missing", "dealloc-missing", "constant-parity", "k-advance-missing"}


@pytest.mark.spread(8)
@pytest.mark.parametrize(("pattern", "replacement"), [
    pytest.param(*m[1:], id=m[0], marks=pytest.mark.slow if m[0] in SLOW else ()) for m in MISTAKES
])  # fmt: skip
def test_a_planted_mistake_is_refused(ported: Path, pattern: str, replacement: str) -> None:
    folder = kept(planted({p.name: p.read_bytes() for p in ported.parent.iterdir()}, pattern, replacement))
    code, output = verify(folder / ported.name)
    assert code == ExitCode.DIFFERENT, output
