# SPDX-License-Identifier: Apache-2.0
"""`porter cc`, completion and the fixture for pytest: Porter where builds, shells and tests are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from porter.cli import pytest_plugin
from porter.cli.cc import for_port, include_dirs, source_of
from porter.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
COMPILER = """#!{python}
import sys, pathlib
words = sys.argv[1:]
sources = [w for w in words if w.endswith(".cu") and pathlib.Path(w).exists()]
print("CALL", *words)
for s in sources:
    print("TEXT", "tcgen05" in pathlib.Path(s).read_text())
sys.exit(7 if "--fail" in words else 0)
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "nvcc"
    path.write_text(COMPILER.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return path


def launched(*words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = [sys.executable, "-m", "porter", "cc", *map(str, words)]
    return subprocess.run(asked, capture_output=True, text=True, check=False, env=environment)


def test_what_is_for_hopper_is_ported_on_its_way(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "gemm.cu").write_text((ROOT / "tests" / "walk" / "linear_gelu.cu").read_text())
    words = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-c", "gemm.cu", "-o", "gemm.o"]
    done = launched(compiler, *words)
    assert done.returncode == 0, done.stderr
    assert "TEXT True" in done.stdout
    assert "arch=compute_100a,code=sm_100a" in done.stdout
    assert "-o gemm.o" in done.stdout
    assert "wgmma" in (tmp_path / "gemm.cu").read_text()


@pytest.mark.parametrize(
    "words",
    [("--version",), ("-arch=sm_80", "-c", "plain.cu"), ("-c", "host.cpp"),
     ("-E", "plain.cu", "other.cu", "-arch=sm_90a"), ("-arch=sm_90a", "gemm.o", "-o", "program")],
    ids=" ".join,
)  # fmt: skip
def test_other_calls_go_through_as_they_are(words: tuple[str, ...], compiler: Path, tmp_path: Path) -> None:
    for name in ("plain.cu", "other.cu", "host.cpp", "gemm.o"):
        (tmp_path / name).write_text("__global__ void k() {}\n")
    done = launched(compiler, *words)
    assert done.stdout.splitlines()[0] == f"CALL {' '.join(words)}"


def test_the_exit_status_is_the_compilers(compiler: Path) -> None:
    assert launched(compiler, "--fail").returncode == 7
    assert launched("/nowhere/nvcc", "-c", "x.cu").returncode == 2
    assert CliRunner().invoke(main, ["cc"]).exit_code == 2


def test_a_source_without_anything_of_hoppers_is_compiled_for_sm100(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.cu").write_text("__global__ void k() {}\n")
    done = launched(compiler, "-arch=sm_90a", "-c", "plain.cu")
    assert done.stdout.splitlines()[0] == "CALL -arch=sm_100a -c plain.cu"


def test_what_cannot_be_ported_fails_the_build(compiler: Path, tmp_path: Path) -> None:
    regs = ", ".join(f"%{n}" for n in range(4))
    outs = ", ".join(f'"+r"(d[{n}])' for n in range(4))
    asm = f"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {{{regs}}}, %4, %5, 1;"
    (tmp_path / "bits.cu").write_text(
        "__global__ void __launch_bounds__(128) k(int* o, unsigned long long a, unsigned long long b) {\n"
        f'    int d[4] = {{}};\n    asm volatile("{asm}" : {outs} : "l"(a), "l"(b));\n    o[threadIdx.x] = d[0];\n}}\n'
    )
    done = launched(compiler, "-arch=sm_90a", "-c", "bits.cu")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "CALL" not in done.stdout
    assert "b1 operands" in done.stderr


def test_words_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    (tmp_path / "a.cu").write_text("")
    assert source_of(["-o", "b.cu", "-c", "a.cu"]) == Path("a.cu")
    assert source_of(["-c", "missing.cu"]) is None
    assert include_dirs(["-Iinc", "-I", "inc", "-Igone"]) == (Path("inc"), Path("inc"))
    ported = Path("/cache/a.cu")
    assert for_port(["-arch=sm_90a", "a.cu"], Path("a.cu"), ported) == ["-arch=sm_100a", "/cache/a.cu", "-I."]


def test_shells_complete_commands() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_PORTER_COMPLETE": "bash_complete",
                   "COMP_WORDS": "porter ver", "COMP_CWORD": "1"}  # fmt: skip
    code = "import sys; sys.argv = ['porter']; from porter.cli.main import main; main(prog_name='porter')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["plain,verify"]


def answering(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]) -> None:
    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, document["exit_code"], json.dumps(document), "")

    monkeypatch.setattr(pytest_plugin.subprocess, "run", run)


def test_the_fixture_gives_the_answer_or_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"kind": "verify", "schema_version": 1, "rows": [], "not_run": [], "diagnostics": [], "causes": []}
    answering(monkeypatch, {**head, "exit_code": 0, "verdict": "clean"})
    assert pytest_plugin.verified("gemm.cu")["verdict"] == "clean"
    cause = {"id": "PT5021", "severity": "error", "message": "C: the port differs", "next_step": "", "count": 1,
             "locations": [{"path": "gemm.cu", "line": 4}]}  # fmt: skip
    answering(monkeypatch, {**head, "exit_code": 5, "verdict": "error", "causes": [cause]})
    with pytest.raises(pytest.fail.Exception, match=r"error\n  PT5021 C: the port differs \(gemm.cu:4\)"):
        pytest_plugin.verified("gemm.cu")
