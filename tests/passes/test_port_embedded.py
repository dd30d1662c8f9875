# SPDX-License-Identifier: Apache-2.0
"""CUDA source in strings: `load_inline` in Python, NVRTC in C++."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import GEMM, ported

from porter.diagnostics import PorterError
from porter.lang.embedded import embedded_in_python
from porter.lang.sources import load_sources
from porter.passes.embedded import EmbeddedPortResult, port_cuda_file, port_python_strings

FLAGS = 'module = load_inline("g", "", SOURCE, extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"])\n'


def _port(tmp_path: Path, text: str) -> EmbeddedPortResult:
    path = tmp_path / "extension.py"
    path.write_text(text)
    result = port_python_strings(path)
    assert result is not None
    return result


def _text(result: EmbeddedPortResult) -> str:
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result.files[result.sources.root].decode()


def _value(text: str) -> str:
    """What the string assigned to SOURCE holds when the file runs."""
    body = ast.parse(text).body
    assigned = next(n for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "SOURCE")
    value = ast.literal_eval(assigned.value)
    assert isinstance(value, str)
    return value


LITERALS = {
    "raw": 'r"""\n' + GEMM + '"""',
    "single quotes": "r'''\n" + GEMM + "'''",
    "escaped": '"""\n' + GEMM.replace("\\", "\\\\").replace('"memory"', '\\"memory\\"') + '"""',
}


@pytest.mark.parametrize("literal", LITERALS.values(), ids=LITERALS)
def test_the_string_holds_the_port_of_its_source(tmp_path: Path, literal: str) -> None:
    before = f"# größer\nSOURCE = {literal}\n{FLAGS}"
    result = _port(tmp_path, before)
    text = _text(result)
    expected = ported(tmp_path, "\n" + GEMM)
    got = _value(text)
    # an escape may leave a blank where its backslash was
    assert got.replace(" ", "") == expected.replace(" ", "")
    assert "arch=compute_100a,code=sm_100a" in text
    assert text.startswith("# größer\nSOURCE = ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-arch=sm_90a"], ["-gencode=arch=compute_100a,code=sm_100a"]),
        (["-O3", "-arch", "sm_90a"], ["-O3", "-gencode", "arch=compute_100a,code=sm_100a"]),
        (["-gencode", "arch=compute_90a,code=sm_90a"], ["-gencode", "arch=compute_100a,code=sm_100a"]),
        (["-gencode=arch=compute_90a,code=sm_90a"], ["-gencode=arch=compute_100a,code=sm_100a"]),
        (["--gpu-architecture=sm_90a", "-O3"], ["-gencode=arch=compute_100a,code=sm_100a", "-O3"]),
    ],
)
def test_an_argument_of_the_compiler_stays_one_word(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    for written in (repr(words), str(words).replace("'", '"')):
        text = _text(_port(tmp_path, f"SOURCE = {LITERALS['raw']}\nFLAGS = {written}\n"))
        assert ast.literal_eval(text.split("FLAGS = ")[1]) == expected


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    result = _port(tmp_path, "\n\n\nSOURCE = " + LITERALS["raw"] + "\n")
    lines = ("\n\n\nSOURCE = " + LITERALS["raw"]).splitlines()
    place = next(d.where for d in result.diagnostics if d.where is not None)
    assert "__global__" in lines[place.line - 1]


def test_two_strings_are_two_sources(tmp_path: Path) -> None:
    text = _text(_port(tmp_path, f"SOURCE = {LITERALS['raw']}\nOTHER = {LITERALS['raw']}\n"))
    assert text.count("namespace tcgen05 {") == 2


def test_one_refusal_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    broken = LITERALS["raw"].replace("wait<0>", "wait<1>")
    before = f"SOURCE = {LITERALS['raw']}\nOTHER = {broken}\n{FLAGS}"
    result = _port(tmp_path, before)
    assert int(result.exit_code) == 3
    assert result.files[result.sources.root].decode() == before


@pytest.mark.parametrize(
    ("literal", "reason"),
    [
        ('f"""\n' + GEMM.replace("{", "{{").replace("}", "}}").replace("\\", "\\\\") + '"""', "format string"),
        ('"""\n' + GEMM.replace("\\n", "\\x0a") + '"""', "escape"),
        (repr(GEMM), "escape"),
    ],
    ids=["format string", "hexadecimal escape", "one line"],
)
def test_strings_that_are_not_their_source_are_refused_by_name(tmp_path: Path, literal: str, reason: str) -> None:
    path = tmp_path / "extension.py"
    path.write_text(f"SOURCE = {literal}\n")
    with pytest.raises(PorterError, match=reason) as caught:
        embedded_in_python(path)
    assert caught.value.diagnostic.code.id == "PT1006"


def test_a_string_that_cannot_hold_the_text_is_refused(tmp_path: Path) -> None:
    one_line = GEMM.replace("\\n", "").replace("#include <cstdint>\n", "").replace("\n", " ").replace("'", "")
    result = _port(tmp_path, f"SOURCE = r'{one_line}'\n")
    assert [d.code.id for d in result.diagnostics if int(d.code.value.exit_code) == 3] == ["PT1006"]


def test_raw_strings_of_a_host_program(tmp_path: Path) -> None:
    path = tmp_path / "host.cpp"
    source = f'const char* kSource = R"src({GEMM})src";\nconst char* kOption = "--gpu-architecture=sm_90a";\n'
    path.write_text(source)
    result = port_cuda_file(load_sources(path))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    text = result.files[result.sources.root].decode()
    assert text == f'const char* kSource = R"src({ported(tmp_path, GEMM)})src";\n' + (
        'const char* kOption = "--gpu-architecture=sm_100a";\n'
    )


def test_commands_take_such_files(tmp_path: Path) -> None:
    path = tmp_path / "extension.py"
    path.write_text(f"SOURCE = {LITERALS['raw']}\n{FLAGS}")
    for command, expected in (("port", "tcgen05"), ("plan", "Tensor Memory"), ("scan", "wgmma.mma_async")):
        done = subprocess.run(
            [sys.executable, "-m", "porter", command, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    path.write_text("x = 'nothing with wgmma and asm'\n")
    done = subprocess.run(
        [sys.executable, "-m", "porter", "port", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
