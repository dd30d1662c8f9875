# SPDX-License-Identifier: Apache-2.0
"""A module that is not found is named where a kernel may stand in it, and then nothing is said to be without Hopper
code; of other modules nothing is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.diagnostics import ExitCode

CORPUS = Path(__file__).parents[2] / "corpus"
DIALECT = "import cutlass\nimport cutlass.cute as cute"
METHODS = """@cute.jit
    def __call__(self, a):
        self.kernel(a).launch(grid=[1, 1, 1], block=[128, 1, 1])

    @cute.kernel
    def kernel(self, a):
        self.mainloop(a)
"""
KERNEL = "@cute.kernel\ndef kern(a):\n    a[0] = 1"


def cases(title: str) -> list[tuple[str, str]]:
    """Names and texts of a section of `missing.txt`."""
    text = Path(__file__).with_name("missing.txt").read_text()
    for short, long in (("$H", DIALECT), ("$J", METHODS), ("$K", KERNEL)):
        text = text.replace(short, long)
    parts = [part.partition("\n") for part in text.split("### ")[1:]]
    return [(head.partition(": ")[2], body) for head, _, body in parts if head.partition(": ")[0] == title]


def named(title: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", [t for _, t in cases(title)], ids=[name for name, _ in cases(title)])


def ran(text: str, tmp_path: Path, command: str = "port") -> Result:
    main_text, *others = re.split(r"^--- (.*)\n", text, flags=re.MULTILINE)
    project = tmp_path / "proj"
    for name, body in [("k.py", main_text), *zip(others[::2], others[1::2], strict=True)]:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(body)
    options = ["--no-compile", "-o", str(tmp_path / "out")] if command == "port" else []
    return CliRunner().invoke(main, [command, *options, str(project / "k.py")], catch_exceptions=False)


@named("named")
def test_what_may_hide_a_kernel_is_named(text: str, tmp_path: Path) -> None:
    found = ran(text, tmp_path)
    assert found.exit_code == ExitCode.UNPORTED
    assert "PT1008" in found.output
    assert "PT1009" in found.output


@named("quiet")
def test_other_modules_are_not_asked_for(text: str, tmp_path: Path) -> None:
    found = ran(text, tmp_path)
    assert found.exit_code == ExitCode.OK
    assert "PT100" not in found.output


def test_beside_a_port_it_is_a_warning_with_its_place(tmp_path: Path) -> None:
    text = (CORPUS / "dsl_gemm" / "dsl_gemm.py").read_text()
    found = ran(f"{text}\n\nfrom .gone import B\nclass G(B):\n    {METHODS}", tmp_path)
    assert found.exit_code == ExitCode.OK
    assert found.output.count("PT1008") == 1
    assert "PT1009" not in found.output
    assert f"k.py:{text.count(chr(10)) + 4}:9" in found.output


def test_a_directory_of_the_search_path_has_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "elsewhere_base.py").write_text("class B:\n    pass\n")
    text = f"{DIALECT}\nfrom elsewhere_base import B\nclass G(B):\n    {METHODS}"
    assert ran(text, tmp_path).exit_code == ExitCode.UNPORTED
    options = ["--no-compile", "-o", str(tmp_path / "out"), "-I", str(tmp_path / "lib")]
    found = CliRunner().invoke(main, ["port", *options, str(tmp_path / "proj" / "k.py")], catch_exceptions=False)
    assert found.exit_code == ExitCode.OK


def test_scan_says_it_too(tmp_path: Path) -> None:
    text = f"{DIALECT}\nfrom .gone import B\nclass G(B):\n    {METHODS}"
    assert "PT1008" in ran(text, tmp_path, "scan").output
