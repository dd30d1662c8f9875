# SPDX-License-Identifier: Apache-2.0
"""A compute capability that a program asks for is followed to what it decides, in C++ and in Python. What decides and
is not understood is named; conditions that admit chips on which the port does not run are named once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM

from porter.cli.main import main
from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.build_files import port_build_files
from porter.passes.embedded import port_cuda_file
from porter.passes.port import PortOptions, PortResult
from porter.rules.engine import Selection
from porter.rules.load import load_rules

MARK = "// host\n"
P = "cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);"
CAPABILITY = "torch.cuda.get_device_capability()"
V = "int v; cudaDeviceGetAttribute(&v, cudaDevAttrComputeCapabilityMajor, 0);"


def cases(title: str) -> list[tuple[str, str]]:
    """Names and texts of a section of `chip_flow.txt`."""
    text = Path(__file__).with_name("chip_flow.txt").read_text()
    parts = [part.partition("\n") for part in text.split("### ")[1:]]
    found = [(head.partition(": "), body) for head, _, body in parts]
    return [(name, body) for (section, _, name), body in found if section == title]


def named(title: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "text"), cases(title), ids=[name for name, _ in cases(title)])


def ported(text: str, keep: bool, tmp_path: Path) -> tuple[str, PortResult]:
    """What stands for host code behind a kernel. `P` and `V` in it are queries."""
    text = text.replace("$P", P).replace("$V", V)
    path = tmp_path / "k.cu"
    path.write_text(f"#include <cuda_runtime.h>\n{GEMM}\n{MARK}{text}")
    result = port_cuda_file(load_sources(path), PortOptions(keep_hopper=keep))
    assert result.kernels == ["kernel"]
    return result.files[str(path)].decode().split(MARK)[1], result


@named("decides")
def test_what_a_capability_decides_is_named(name: str, text: str, tmp_path: Path) -> None:
    made, result = ported(text, False, tmp_path)
    assert {d.code for d in result.left_over} == {Code.CHIP_CHECK_LEFT}, made


@named("decides nothing")
def test_what_it_does_not_decide_stays(name: str, text: str, tmp_path: Path) -> None:
    made, result = ported(text, False, tmp_path)
    assert made == text.replace("$P", P).replace("$V", V)
    assert result.left_over == []


@pytest.mark.parametrize("keep", [False, True])
def test_the_chip_of_a_compiled_kernel(keep: bool, tmp_path: Path) -> None:
    made, result = ported("bool f(cudaFuncAttributes a) { return a.binaryVersion != 90; }", keep, tmp_path)
    assert ("(a.binaryVersion != 90 && a.binaryVersion != 100)" if keep else "a.binaryVersion != 100") in made
    assert result.left_over == []


@named("python decides")
def test_what_a_capability_decides_in_python_is_named(name: str, text: str) -> None:
    text = "import torch\n" + text.replace("$C", CAPABILITY)
    made = port_build_files({"op.py": text.encode()}, load_rules(()), Selection())
    assert {d.code for d in made.left} == {Code.BUILD_FILE_LEFT}


@named("python decides nothing")
def test_what_it_does_not_decide_in_python_stays(name: str, text: str) -> None:
    text = "import torch\n" + text.replace("$C", CAPABILITY)
    made = port_build_files({"op.py": text.encode()}, load_rules(()), Selection())
    assert (made.left, made.files) == ([], {})


ADMITS = [
    ("p.major == 9", "p.major == 10", "10.1, 10.3"),
    ("p.major >= 9", "p.major >= 10", "10.1, 10.3, 11.0, 12.0, 12.1"),
    ("100 * p.major + 10 * p.minor < 900", "100 * p.major + 10 * p.minor < 900", "9.0, 10.1, 10.3, 11.0, 12.0, 12.1"),
    ("p.major == 9 && p.minor == 0", "p.major == 10 && p.minor == 0", None),
    ("p.major * 10 + p.minor == 90", "p.major * 10 + p.minor == 100", None),
    ("p.major >= 8", "p.major >= 8", None),
]


@pytest.mark.parametrize(("before", "after", "others"), ADMITS)
def test_conditions_that_admit_other_chips(before: str, after: str, others: str | None, tmp_path: Path) -> None:
    made, result = ported(f"bool f() {{ $P return {before}; }}", False, tmp_path)
    assert after in made
    assert result.left_over == []
    said = [d.values for d in result.diagnostics if d.code is Code.CHIP_CHECK_ADMITS]
    assert [(s["text"], s["others"]) for s in said] == ([(after, others)] if others else [])


def test_other_chips_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(GEMM)
    (tmp_path / "a.cpp").write_text("bool f(const cudaDeviceProp& p) { return p.major == 9; }\n")
    (tmp_path / "b.cpp").write_text("bool g(const cudaDeviceProp& p) { return p.major >= 9; }\n")
    python = "import torch\ndef f(): return torch.cuda.get_device_capability() >= (9, 0)\n"
    (tmp_path / "c.py").write_text(python)
    ran = CliRunner().invoke(main, ["port", "--no-compile", "-o", str(tmp_path / "out"), str(tmp_path)])
    assert ran.exit_code == ExitCode.OK
    assert ran.output.count("PT2080") == 1
    said = ran.output[ran.output.index("PT2080") :].split("\n")[0]
    assert all(place in said for place in ("b.cpp:1", "c.py:2"))


def test_a_helper_of_another_module(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(GEMM)
    helper = "import torch\ndef gen():\n    a, b = torch.cuda.get_device_capability()\n    return a * 10 + b\n"
    (tmp_path / "device.py").write_text(helper)
    (tmp_path / "one.py").write_text("from .device import gen as g\ndef ok(): return g() == 90\n")
    (tmp_path / "two.py").write_text("from . import device\ndef ok(): return device.gen() in (80, 90)\n")
    (tmp_path / "three.py").write_text("from . import device\ndef ok(): return device.gen() >= 90\n")
    ran = CliRunner().invoke(main, ["port", "--no-compile", "-o", str(tmp_path / "out"), str(tmp_path)])
    assert ran.exit_code == ExitCode.UNPORTED
    assert [f"{name}.py:2" in ran.output for name in ("one", "two", "three")] == [True, True, False]


def test_a_module_of_cute_dsl_is_asked_too(tmp_path: Path) -> None:
    kernel = (Path(__file__).parents[2] / "corpus" / "dsl_gemm" / "dsl_gemm.py").read_text()
    host = "import torch\ndef a():\n    cc = torch.cuda.get_device_capability()\n    return cc in KNOWN\n"
    host += "def b():\n    match torch.cuda.get_device_properties(0).major:\n        case 9: return 1\n"
    (tmp_path / "k.py").write_text(f"{kernel}\n{host}")
    ran = CliRunner().invoke(main, ["port", "--no-compile", "-o", str(tmp_path / "out"), str(tmp_path / "k.py")])
    assert ran.exit_code == ExitCode.UNPORTED
    assert ran.output.count("PT2059") == 2
    assert "porter_dsl" in (tmp_path / "out" / "k.py").read_text()
