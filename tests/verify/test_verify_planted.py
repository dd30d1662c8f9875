# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make when they port by hand, planted in a right port: verify must refuse each one.

Needs a CUDA compiler. Each mistake is a change of the ported text that has to be found there, so that a port
that is written differently one day fails here instead of testing nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.cli.main import main
from porter.diagnostics import ExitCode, PorterError

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "corpus" / "gemm_ws" / "gemm_ws.cu"

MISTAKES = [
    ("sbo-halved", r"(matrix_descriptor_encode\(\(uint64_t\))1024(\) << 32)", r"\g<1>512\2"),
    ("k-advance-missing", r"&wgmma_sA\[k_it \* WGMMA_K\]", "&wgmma_sA[0]"),
    ("first-mma-accumulates", r"bool accumulate = false;", "bool accumulate = true;"),
    ("wrong-n", r"n >> 3 << 17", "n >> 4 << 17"),
    ("wrong-type", r"(kOperandBF16 = )1;", r"\g<1>0;"),
    ("wrong-lane-quarter", r"threadIdx\.x / 32 % 4 << 21", "(threadIdx.x / 32 + 1) % 4 << 21"),
    ("commit-missing", r'asm volatile\("tcgen05\.commit[^;]*;[^;]*;', ""),
    ("wait-missing", r"if \(committed <= pending\) return;", "if (committed) return;"),
    ("constant-parity", r'"r"\(batch % 2\)', '"r"(0)'),
    ("alloc-missing", r'asm volatile\("tcgen05\.alloc[^;]*;[^;]*;', ""),
    ("second-tile-in-the-same-lanes", r"index % 2 << 20", "index % 2 << 25"),
    ("version-bits-missing", r"kDescriptorVersion = 1ull << 46", "kDescriptorVersion = 0"),
]


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
    code, output = run("port", KERNEL, "-o", out)
    assert code == 0, output
    return out / KERNEL.name


def test_the_port_itself_is_clean(ported: Path) -> None:
    code, output = verify(ported)
    assert code == ExitCode.OK, output
    assert "clean" in output


@pytest.mark.parametrize(("pattern", "replacement"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_planted_mistake_is_refused(ported: Path, tmp_path: Path, pattern: str, replacement: str) -> None:
    text = ported.read_text()
    wrong, count = re.subn(pattern, replacement, text)
    assert count >= 1, f"the port holds nothing like {pattern}"
    path = tmp_path / ported.name
    path.write_text(wrong)
    code, output = verify(path)
    assert code == ExitCode.DIFFERENT, output
