# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native` of CuTe DSL files: two blocks share an SM where the support module finds that they can,
the grade that they are faster, and ptxas registers for both. Compiling and running is stood in for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_cli import porter
from test_cli_native_sharing import ALONE, BUSY, TWO

from porter.cli import full_rate
from porter.diagnostics import Code, Diagnostic
from porter.grade.changes import blocks
from porter.passes.dsl.outputs import DSL_STEPS, support_module
from porter.passes.ported import Ported
from porter.tune import sharing
from porter.tune.choosing import Built
from porter.tune.given import _last_of_dsl
from porter.verify.proof import Claim, Proof

KERNEL = Path(__file__).parents[2] / "corpus" / "dsl_attention"
ROOM = Diagnostic(Code.NATIVE_LEFT, None, {"kernel": "Attention of a case", "step": "blocks", "what": "room for both"})
FULL = replace(ALONE, residency=replace(ALONE.residency, smem=150000))
ONE = [Built("kernel<64>", 0, ALONE), Built("kernel<128>", 0, FULL)]
BOTH = [Built("kernel<64>", 0, TWO), Built("kernel<128>", 0, FULL, (ROOM,))]


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[Built] = ONE,
    after: list[Built] = BOTH,
    wrong: str = "class _Release",
) -> tuple[bytes, str]:
    """The support module of a port and what was said; modules with a text that is `wrong` fail."""

    def prove(claim: Claim, *how: object) -> Proof:
        module = b"".join(claim.plan.files.values()).decode()
        lacking = tuple(s for s in claim.steps if s in DSL_STEPS and wrong in "class _Release")
        return Proof(missing="its operand A", lacking=lacking) if wrong in module else Proof(("case.yaml",), 3)

    def built(choice: object, ported: Ported) -> dict[str, Built]:
        rows = after if any("blocks" in root.native for root in ported.roots) else before
        return {str(i): row for i, row in enumerate(rows)}

    monkeypatch.setattr(full_rate, "prove", prove)
    monkeypatch.setattr(full_rate, "slower", lambda *compared: None)
    monkeypatch.setattr(sharing._Choice, "built_of", built)
    kernel = shutil.copytree(KERNEL, folder / "kernel") / "dsl_attention.py"
    result = porter("port", "--style", "native", "--no-compile", kernel, "-o", folder / "out")
    return (folder / "out" / "porter_dsl.py").read_bytes(), " ".join(result.output.split())


@pytest.mark.slow
def test_one_kernel_shares_an_sm_and_another_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = ported(tmp_path, monkeypatch)
    assert module == support_module(True, ("blocks",))
    assert "has the step blocks; case.yaml verified it at 3 sizes" in said
    assert all(f"is without the step {step}: its operand A" in said for step in DSL_STEPS)


LEFT: dict[str, tuple[dict[str, list[Built]], str]] = {
    "no room for any": ({"before": ONE[1:]}, "room on an SM for kernel<128>: 2 blocks do not fit an SM"),
    "the module finds no room": ({"after": [replace(b, left=(ROOM,)) for b in BOTH]}, "missing: room for both"),
    "spills": (
        {"after": [replace(BOTH[0], spilled=8), BOTH[1]]},
        "registers for 2 blocks of kernel<64>: ptxas spills 8 bytes more",
    ),
    "a tensor core without time": (
        {"before": [Built("kernel<64>", 0, BUSY)], "after": [Built("kernel<64>", 0, blocks(BUSY, 2))]},
        "are as fast as one",
    ),
    "a persistent kernel": (
        {"before": [Built("kernel<64>", 0, replace(ALONE, persistent=True))]},
        "a persistent kernel has as many blocks",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "no room for any" else n for n in LEFT]
)
def test_a_block_has_an_sm_for_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, why = LEFT[name]
    before, after = given.get("before", ONE), given.get("after", BOTH)
    module, said = ported(tmp_path, monkeypatch, before, after)
    assert b"minctasm" not in module
    assert "is without the step blocks; missing:" in said
    assert why in said
    assert "has the step blocks" not in said


def test_a_port_that_fails_is_given_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = ported(tmp_path, monkeypatch, wrong="minctasm")
    assert module == support_module(True, DSL_STEPS)
    assert "is without the step blocks: its operand A" in said


ALL = (*DSL_STEPS, "blocks")
GOES = {
    "the last one fails": (ALL, (), ["blocks"]),
    "the last of those that build on each other": (DSL_STEPS, (), ["pair"]),
    "none that others build on": (ALL, ("release",), list(DSL_STEPS)),
    "none of the second": (ALL, ("mma-thread", "double-buffer"), ["mma-thread", "double-buffer", "pair"]),
    "no second block": (ALL, ("blocks",), ["blocks"]),
    "neither": (ALL, ("double-buffer", "blocks"), ["double-buffer", "pair", "blocks"]),
}


@pytest.mark.parametrize("name", GOES)
def test_the_steps_that_go_first(name: str) -> None:
    steps, none, expected = GOES[name]
    assert _last_of_dsl(steps, none) == expected
