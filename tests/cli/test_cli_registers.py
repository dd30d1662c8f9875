# SPDX-License-Identifier: Apache-2.0
"""`--style native`: registers are shared out anew where the compiler says that a port spills, and only there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from porter.cli.building import make_builder
from porter.cli.context import Session
from porter.cli.porting import look
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import tuning
from porter.tune.verifying import Proofs
from porter.verify.builder import PORT_ARCH

CORPUS = Path(__file__).parents[2] / "corpus"


@cache
def made(name: str, registers: frozenset[tuple[str, int]] = frozenset()) -> Ported:
    options = PortOptions(full_rate=True, native=STEPS, registers=registers)
    return port_paths([CORPUS / name / f"{name}.cu"], options, (), look)


def tuned(
    name: str, monkeypatch: pytest.MonkeyPatch | None = None, enough: int = 0
) -> tuple[Ported, list[int], list[str]]:  # fmt: skip
    """The port, the numbers that were tried, and what was said. Of a stand-in for the compiler a port spills with fewer
    registers than `enough`."""
    tried: list[int] = []

    def make(registers: frozenset[tuple[str, int]] = frozenset()) -> Ported:
        return made(name, registers)

    def spilled(session: Session, ported: Ported, root: object) -> int:
        (one,) = ported.roots
        tried.append(one.registers)
        return 0 if one.registers >= enough else 12

    if monkeypatch is not None:
        monkeypatch.setattr(tuning, "_spilled", spilled)
    found, counts, said = tuning.tuned(Session(), make(), make)
    assert counts == frozenset((r.path, r.registers) for r in found.roots if r.registers)
    return found, tried, [str(d.values["what"]) for d in said]


def test_a_port_that_spills_gets_the_fewest_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried, said = tuned("gemm_persistent", monkeypatch, 64)
    assert (tried, said) == ([0, 48, 56, 64], [])
    text = found.new[found.roots[0].path].decode()
    assert "registers_decrease<64>();" in text
    assert "registers_increase<216>();" in text


def test_a_port_that_does_not_spill_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried, said = tuned("gemm_persistent", monkeypatch)
    assert (found.roots[0].registers, tried, said) == (0, [0], [])


@pytest.mark.slow
def test_what_no_number_helps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried, said = tuned("gemm_persistent", monkeypatch, 1000)
    assert found.roots[0].registers == 0
    assert len(tried) == 9
    assert said == ["numbers of setmaxnreg with which ptxas does not spill 12 bytes"]


def test_a_kernel_without_setmaxnreg_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tried, said = tuned("gemm_tma", monkeypatch, 64)
    assert (tried, said) == ([], [])


def test_two_blocks_that_spill_share_nothing_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = CORPUS / "attention_fwd/attention_fwd.cu"
    options = PortOptions(full_rate=True, native=STEPS, chosen=frozenset({(path.as_posix(), "blocks")}))
    ported = port_paths([path], options, (), look)
    assert ported.roots[0].native == ("blocks",)
    monkeypatch.setattr(tuning, "_spilled", lambda session, ported, root: 12)
    found, counts, said = tuning.tuned(Session(), ported, lambda *, registers: ported)
    assert (found, counts) == (ported, frozenset())
    assert [str(d.values["what"]) for d in said] == [
        "registers of one block: the step blocks shares out those of 2, where ptxas spills 12 bytes"
    ]


@pytest.mark.slow
@pytest.mark.external
def test_the_port_of_a_corpus_kernel_spills_nothing() -> None:
    found, _, said = tuned("gemm_persistent")
    (root,) = found.roots
    assert said == []
    assert root.registers > 40
    assert tuning._spilled(Session(), found, root) == 0
    assert tuning._spilled(Session(), made("gemm_persistent"), root) > 0
    assert Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing == ""


@pytest.mark.slow
@pytest.mark.external
def test_warps_that_wait_for_registers_for_good_fail_the_gate() -> None:
    """As many for those that take as they had, beside more for the others: there are not so many."""
    found = made("gemm_persistent", frozenset({(str(CORPUS / "gemm_persistent/gemm_persistent.cu"), 64)}))
    (root,) = found.roots
    text = found.new[root.path].decode()
    assert "registers_increase<216>" in text
    found.new[root.path] = text.replace("registers_increase<216>", "registers_increase<232>").encode()
    what = Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing
    assert "registers" in what
