# SPDX-License-Identifier: Apache-2.0
"""Turns and tiles together: mistakes that no execution shows that varies one of them alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_nested_turns import tiled
from turning_kernels import flow_of, launched, ring

from porter.facts import executor
from porter.facts.flow import Flow
from porter.facts.launched import Launched
from porter.facts.machine import Machine
from porter.ptx.parser import parse_module
from porter.report import proofs as report
from porter.sync import together
from porter.sync.checked import Verdict, check
from porter.sync.together import Columns
from porter.sync.turns import Recorder, find_lasso
from porter.verify import proving
from porter.verify.budget import Budget
from porter.verify.proved import _unknown
from porter.verify.proving import Prover

TILES, TURNS = 2, 2
COUNT = 13
"""Executions along a line: as many as a period of four needs."""
UNIT = 1 << 14


def of_both(text: str) -> str:
    text = tiled(text.replace("(.param .u32 turns)", "(.param .u32 turns, .param .u32 tiles)"))
    text = text.replace("setp.lt.u32 %p9, %r40, 3;", "setp.lt.u32 %p9, %r40, %r41;")
    return text.replace("ld.param.u32 %r1, [turns];\n", "ld.param.u32 %r1, [turns];\nld.param.u32 %r41, [tiles];\n")


class Kernel:
    def __init__(self, text: str, flow: Flow | None = None, count: int = COUNT) -> None:
        self._flow, self._count = flow or flow_of(text), count

    def launched(self, turns: int, tiles: int) -> Launched:
        one = launched(self._flow, turns)
        return replace(one, parameters=dict(one.parameters) | {"tiles": tiles.to_bytes(4, "little")})

    def run(self, turns: int, tiles: int) -> tuple[Recorder, Verdict]:
        one = self.launched(turns, tiles)
        recorder = Recorder(machine := Machine(one))
        return recorder, check(one, machine=machine).verdict

    def line(self, fixed: int, of_tiles: bool) -> list[Recorder]:
        found = [self.run(*(fixed, n) if of_tiles else (n, fixed)) for n in range(1, self._count + 1)]
        assert {verdict for _, verdict in found} == {Verdict.CLEAN}
        return [run for run, _ in found]

    def together(self) -> tuple[str, int]:
        """Why turns and tiles are not known together, empty if they are, and columns."""
        lasso = find_lasso(self.line(TILES, of_tiles=False), UNIT)
        assert lasso is not None
        assert not lasso.why_not
        columns = Columns(lasso, UNIT)
        for turns in range(1, lasso.needed + 1):
            runs: list[Recorder] = []
            while True:
                run, verdict = self.run(turns, len(runs) + 1)
                if verdict is not Verdict.CLEAN:
                    return str(verdict), turns
                runs.append(run)
                of_tiles = find_lasso(runs, UNIT) if len(runs) >= columns.least else None
                if of_tiles is not None and not of_tiles.why_not and of_tiles.needed <= len(runs):
                    break
                if len(runs) > self._count:
                    return "no period", turns
            if why := columns.add(runs, of_tiles.period):
                return why, turns
        return "", turns


EXTRA = ".shared .align 8 .b64 full[4];\n.shared .align 8 .b64 extra[1];"


def at_the_end(parity: str) -> str:
    """A wait behind all tiles for a phase that never ends, unless its parity is 1."""
    text = ring().replace(".shared .align 8 .b64 full[4];", EXTRA)
    text = text.replace("@%p1 bra $READY;\n", "@%p1 bra $READY;\nmbarrier.init.shared::cta.b64 [extra], 1;\n")
    wait = "$LAST:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [extra], %r30;\n@!%p4 bra $LAST;\n"
    return text.replace("$OUT:\n", parity + "xor.b32 %r30, %r30, 1;\n" + wait + "$OUT:\n")


THIRD = "and.b32 %r30, %r1, 1;\nsetp.gt.u32 %p7, %r40, 1;\nselp.b32 %r30, %r30, 0, %p7;\n"
OF_BOTH = {
    "a parity, in the third tile of odd numbers of turns": ring(before_wait=THIRD + "xor.b32 %r19, %r19, %r30;\n"),
    "an index that drifts, from the third such tile on": ring(
        before_wait=THIRD + "add.u32 %r30, %r11, %r30;\nand.b32 %r30, %r30, 1;\nshl.b32 %r30, %r30, 3;\n"
        "add.u32 %r15, %r7, %r30;\n"
    ),
    "a release, in the third such tile": ring(
        before_release=THIRD + "setp.ne.u32 %p8, %r30, 0;\n@%p8 bra $ON;\n"
    ),
    "a stage, in the third such tile": ring(
        before_wait=THIRD + "shl.b32 %r30, %r30, 2;\nxor.b32 %r17, %r17, %r30;\n"
    ),
    "a wait at the end, for odd numbers of odd tiles": at_the_end(
        "mul.lo.u32 %r30, %r1, %r41;\nand.b32 %r30, %r30, 1;\n"
    ),
    "the same by the turns in all": at_the_end("and.b32 %r30, %r42, 1;\n").replace(
        "mov.u32 %r10, 0;\n", "mov.u32 %r10, 0;\nmov.u32 %r42, 0;\n", 1
    ).replace("add.u32 %r10, %r10, 1;\n", "add.u32 %r10, %r10, 1;\nadd.u32 %r42, %r42, 1;\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_BOTH)
def test_a_mistake_of_both_is_met(name: str) -> None:
    kernel = Kernel(of_both(OF_BOTH[name]))
    for fixed, of_tiles in ((TURNS, True), (TILES, False)):
        lasso = find_lasso(kernel.line(fixed, of_tiles), UNIT)
        assert lasso is not None
        assert not lasso.why_not
    why, turns = kernel.together()
    assert (why, turns) in (("error", 1), ("error", 3), ("strict", 1), ("strict", 3))


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_ring_is_right_for_all_turns_and_tiles_together(stages: int) -> None:
    assert Kernel(of_both(ring(stages=stages))).together()[0] == ""


LATE = """mul.lo.u32 %r30, %r40, %r1;
add.u32 %r31, %r40, %r1;
mul.lo.u32 %r31, %r31, 15;
add.u32 %r31, %r31, 1;
setp.gt.s32 %p7, %r30, %r31;
@%p7 bra $GO;
"""


def test_what_follows_the_product_of_both_may_change_where_both_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """i * k > 15 * (i + k) + 1: along each row and each column that is looked at both sides go apart."""
    kernel = Kernel(of_both(ring(stages=1, before_wait=LATE)))
    assert "product" in kernel.together()[0]
    assert kernel.run(33, 33)[1] is Verdict.ERROR
    monkeypatch.setattr(together, "_products", lambda corners, area: iter(()))
    assert kernel.together()[0] == ""


@pytest.mark.slow
def test_low_bits_of_what_counts_all_turns_of_all_tiles() -> None:
    """The producer's stage comes from such a counter."""
    text = ring(before_wait="add.u32 %r42, %r42, 1;\n").replace("$WRITE:\n", "$WRITE:\nand.b32 %r11, %r42, 1;\n", 1)
    text = text.replace("mov.u32 %r10, 0;\n", "mov.u32 %r10, 0;\nmov.u32 %r42, 0;\n", 1)
    assert Kernel(of_both(text)).together()[0] == ""


THIRD_OF_ALL = """$TILEWRITE:
mul.hi.u32 %r30, %r42, 0xAAAAAAAB;
shr.u32 %r30, %r30, 1;
mul.lo.u32 %r30, %r30, 3;
sub.u32 %r30, %r42, %r30;
shl.b32 %r30, %r30, 2;
add.u32 %r30, %r5, %r30;
st.shared.u32 [%r30+160], %r10;
"""


@pytest.mark.slow
def test_what_takes_it_apart_otherwise_is_known_for_each_size_alone() -> None:
    """Which word is written once a tile: all turns so far % 3, which is right as long as no bit is lost."""
    text = of_both(ring(stages=1, before_wait="add.u32 %r42, %r42, 1;\n"))
    text = text.replace("mov.u32 %r40, 0;\n", "mov.u32 %r40, 0;\nmov.u32 %r42, 0;\n", 1)
    kernel = Kernel(text.replace("$TILEWRITE:\n", THIRD_OF_ALL).replace("+132]", "+144]"), count=19)
    for fixed, of_tiles in ((TURNS, True), (TILES, False)):
        lasso = find_lasso(kernel.line(fixed, of_tiles), UNIT)
        assert lasso is not None
        assert not lasso.why_not
    assert "product" in kernel.together()[0]


def prover_of(text: str, monkeypatch: pytest.MonkeyPatch) -> Prover:
    """Of a kernel whose case has two turns and two tiles."""
    module = parse_module(of_both(text))
    kernel = SimpleNamespace(ptx=text, entry="ring", module=module, function=module.entries()[0])
    case = SimpleNamespace(name="ring", dsl=None)

    def clusters(problem: SimpleNamespace, flow: Flow) -> Iterator[Launched]:
        yield Kernel(of_both(text), flow).launched(problem.sizes["TURNS"], problem.sizes["TILES"])

    monkeypatch.setattr(proving, "clusters_looked_at", clusters)
    base = {"TURNS": 2, "TILES": 2}
    return Prover("kernel", lambda sizes: (kernel, SimpleNamespace(sizes=base | sizes, case=case)), Budget())  # type: ignore[arg-type]


def proof_of(text: str, monkeypatch: pytest.MonkeyPatch, *others: dict[str, int]) -> tuple[str, list[str]]:
    """What is said of such a kernel, and of these other sizes."""
    proof = prover_of(text, monkeypatch).prove([{}, *others])
    return proof.status, [line.strip() for line in report.text([proof])]


def test_the_report_says_that_both_are_known_together(monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines = proof_of(ring(stages=1), monkeypatch)
    assert status == "proved"
    assert "TURNS and TILES: all of both together" in lines
    assert "assumed: TURNS and TILES together: a block makes fewer than 67108864 turns in all" in lines
    assert not any("each by itself" in line for line in lines)


def test_what_is_not_asked_for_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    both, tiles = frozenset(("TURNS", "TILES")), frozenset(("TILES",))
    proof = prover_of(ring(stages=1), monkeypatch).prove([{}], but={both})
    assert [count.is_all for count in proof.counts] == [True, True]
    assert proof.pairs == ()
    assert _unknown(proof) == {both}
    proof = prover_of(ring(stages=1), monkeypatch).prove([{}], but={tiles})
    assert [(count.name, count.is_all) for count in proof.counts] == [("TURNS", True), ("TILES", False)]
    assert _unknown(proof) == {tiles}
    assert not _unknown(prover_of(ring(stages=1), monkeypatch).prove([{}]))


def test_what_is_too_large_is_looked_at_where_the_case_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MOST_EVENTS", 150)
    status, lines = proof_of(ring(stages=1), monkeypatch, {"TILES": 1})
    assert status == "proved"
    assert any(line.startswith("TURNS: all multiples of 1 at TILES=1 (they repeat") for line in lines), lines
    status, lines = proof_of(ring(stages=1), monkeypatch)
    assert any(line.startswith("TURNS: multiples of 1 up to ") for line in lines), lines


def test_what_stops_a_size_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "_MOST_TURNS", (10,))
    text = ring(stages=1, before_wait="and.b32 %r30, %r10, 64;\nsetp.ne.u32 %p7, %r30, 0;\n@%p7 bra $GO;\n")
    _, lines = proof_of(text, monkeypatch)
    wanted = "TURNS: multiples of 1 up to 10, not all: .* low bits, at PTX line [0-9]+"
    assert any(re.fullmatch(wanted, line) for line in lines)


def test_a_mistake_of_both_is_a_hazard(monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines = proof_of(OF_BOTH["a release, in the third such tile"], monkeypatch)
    assert status == "hazard"
    assert any("at TURNS=1, TILES=" in line for line in lines)


def test_the_report_says_how_far_there_was_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Columns, "add", lambda columns, runs, period: "no time for more" if len(runs) > 4 else "")
    status, lines = proof_of(ring(stages=2), monkeypatch)
    assert status == "proved"
    assert "else TURNS and TILES each by itself, with the others as in the case" in lines
    assert any(line.startswith("TURNS and TILES: together up to TURNS=") for line in lines)
