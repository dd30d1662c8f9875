# SPDX-License-Identifier: Apache-2.0
"""The port of every corpus kernel, as a diff that was read by eye. `make golden` writes them anew."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

import pytest

from porter.lang.cute_dsl import SUPPORT
from porter.lang.diff import unified_diff
from porter.lang.sources import load_sources
from porter.passes.dsl.port import DslPortResult, port_python
from porter.passes.header import NAME
from porter.passes.port import PortResult, port_sources
from porter.passes.tiled.port import HEADER
from porter.verify.case import load_case

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent
SAME = (f"{SUPPORT}.py", HEADER)
CASES = sorted(ROOT.glob("corpus/*/case.yaml"))


@functools.cache
def port_of(case: Path) -> PortResult | DslPortResult:
    """The port of a case's kernel, with paths relative to the checkout."""
    before, kernel = Path.cwd(), load_case(case).kernel.relative_to(ROOT)
    os.chdir(ROOT)
    try:
        return _port(kernel)
    finally:
        os.chdir(before)


def _port(kernel: Path) -> PortResult | DslPortResult:
    return port_python(kernel) if kernel.suffix == ".py" else port_sources(load_sources(kernel))


def diff_of(result: PortResult | DslPortResult) -> str:
    """The diff without the support module of CuTe DSL ports and the header of CuTe C++ ports, which are the same for
    all; of the header with the helpers what it declares, as its text stands in `mappings/emit`."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        old = {**result.sources.sources(), **{p: Path(p).read_bytes() for p in result.build_files}}
        new = {p: text for p, text in {**result.files, **result.build_files}.items() if Path(p).name not in SAME}
        headers = [f"# {p} declares {declared(new.pop(p).decode())}\n" for p in sorted(new) if Path(p).name == NAME]
        return "".join(headers) + unified_diff(old, new, result.groups).decode()
    finally:
        os.chdir(before)


DECLARED = re.compile(r"^(?:constexpr \w+ (\w+ = \d+);|(?:struct|class) (.*?) \{|[^\s/#].*?\b(\w+)\(.*)", re.MULTILINE)


def declared(header: str) -> str:
    """Constants with their values, classes and functions of a header, in order, behind a digest of its text."""
    digest = hashlib.sha256(header.encode()).hexdigest()[:16]
    return f"{', '.join(''.join(found) for found in DECLARED.findall(header))} ({digest})"


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.parent.name)
def test_port_is_the_golden_one(case: Path) -> None:
    result = port_of(case)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    golden = GOLDEN / f"{case.parent.name}.diff"
    if os.environ.get("PORTER_WRITE_GOLDEN"):
        golden.write_text(diff_of(result), encoding="utf-8")
    assert diff_of(result) == golden.read_text(encoding="utf-8")


@pytest.mark.spread(3)
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.parent.name)
def test_second_port_is_empty(case: Path, tmp_path: Path) -> None:
    result = port_of(case)
    for path, text in result.files.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    again = _port(tmp_path / result.sources.root)
    assert int(again.exit_code) == 0
    assert not again.groups
    assert all(again.sources.sources().get(path) == text for path, text in again.files.items())
