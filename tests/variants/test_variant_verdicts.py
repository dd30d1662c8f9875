# SPDX-License-Identifier: Apache-2.0
"""The harness of the variants names what it is shown: planted mistakes, each in its own way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import variant_run
from variant_catalog import VARIANTS
from variant_run import Outcome, run
from variant_types import Variant, plus

from porter.cli.porting import port_paths
from porter.diagnostics import Code, Diagnostic, ExitCode
from porter.passes.ported import Ported

PLAIN = VARIANTS["plain"]
BUMPED = VARIANTS["macro_assigned"]


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Let Porter's port be changed by someone."""

    def port(paths: Sequence[Path]) -> Ported:
        ported = port_paths(paths)
        for path, text in ported.new.items():
            ported.new[path] = change(text.decode()).encode()
        assert ported.new != port_paths(paths).new
        return ported

    monkeypatch.setattr(variant_run, "port_paths", port)


def original(variant: Variant, old: str, new: str) -> Variant:
    """The variant with another original."""
    assert old in variant.source
    return dataclasses.replace(variant, files={"kernel.cu": variant.source.replace(old, new)})


def test_a_right_port_is_right() -> None:
    assert run(PLAIN).outcome is Outcome.RIGHT


@pytest.mark.spread(3)
@pytest.mark.parametrize(("old", "new", "said"), [
    ("ACC[0] += 1.f;", "", "128 of 2048 values differ"),
    ("t < tiles", "t < tiles - 1", "values differ"),
    ("tcgen05.wait::ld.sync.aligned;", "", "H31"),
])  # fmt: skip
def test_a_wrong_port_is_wrong(monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str) -> None:
    planted(monkeypatch, lambda text: text.replace(old, new))
    result = run(BUMPED)
    assert result.outcome is Outcome.WRONG
    assert said in result.detail


def test_a_deadlock_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda text: text.replace("tcgen05.commit.", "// tcgen05.commit."))
    result = run(PLAIN)
    assert result.outcome is Outcome.WRONG
    assert "deadlock" in result.detail


def test_a_port_that_no_compiler_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda text: text.replace("float d[16];", "float d[16]", 1))
    assert run(PLAIN).outcome is Outcome.NOT_COMPILING


def test_an_original_left_alone_is_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lambda text: PLAIN.source)
    assert run(PLAIN).outcome is Outcome.NOT_COMPILING


def test_an_exception_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    def port(paths: Sequence[Path]) -> Ported:
        raise KeyError("d")

    monkeypatch.setattr(variant_run, "port_paths", port)
    assert run(PLAIN).outcome is Outcome.INTERNAL


def test_no_answer_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    def port(paths: Sequence[Path]) -> Ported:
        while True:
            pass

    monkeypatch.setattr(variant_run, "port_paths", port)
    monkeypatch.setattr(variant_run, "LONGEST", 1)
    result = run(PLAIN)
    assert result.outcome is Outcome.INTERNAL
    assert "no answer" in result.why


def test_a_refusal_names_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = [Diagnostic(Code.ACCUMULATOR_DECLARED, None, {"what": "it is elsewhere"})]
    monkeypatch.setattr(variant_run, "port_paths", lambda paths: Ported(diagnostics=cause, exit_code=ExitCode.UNPORTED))
    result = run(PLAIN)
    assert result.outcome is Outcome.REFUSED
    assert "it is elsewhere" in result.why
    monkeypatch.setattr(variant_run, "port_paths", lambda paths: Ported(exit_code=ExitCode.UNPORTED))
    assert run(PLAIN).outcome is Outcome.INTERNAL


@pytest.mark.parametrize(("old", "new", "said"), [
    ("wait<0>();", "", "original"),
    ("float d[16];", "", "nvcc refused"),
])  # fmt: skip
def test_an_original_that_is_wrong_is_no_variant(old: str, new: str, said: str) -> None:
    result = run(original(PLAIN, old, new))
    assert result.outcome is Outcome.INVALID
    assert said in result.why


def test_the_reference_is_looked_at() -> None:
    assert run(dataclasses.replace(PLAIN, want=plus({0: 1}))).outcome is Outcome.INVALID
