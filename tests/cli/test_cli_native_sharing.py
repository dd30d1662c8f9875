# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: two blocks of a port share an SM where the grade finds that faster and ptxas spills no
more, and a case verified it. The slow tests plant mistakes in the port and run it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_cli import porter
from test_cli_native_port import CORPUS, failure, planted

from porter.build import trust
from porter.cli.porting import look
from porter.grade.changes import blocks
from porter.grade.shape import Epilogue, Mma, Residency, Shape, Work
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import search, sharing, verifying
from porter.tune.choosing import Built, Chosen
from porter.tune.issuing import Issued
from porter.tune.staging import Staged
from porter.verify.proof import Claim, Proof

ALONE = Shape("sm_100a", ((Mma(128, 64), 8), (Mma(128, 128, a="tensor"), 4)), None, None, 32768, 2, "specialized", 128,
              waits_each=True, epilogue=Epilogue(), work=Work(4000, 8704, True), batches=2,
              residency=Residency(100000, 256, 384, 168))  # fmt: skip
"""A kernel whose MMAs and threads wait for each other."""
TWO = blocks(ALONE, 2)
BUSY = replace(ALONE, waits_each=False, work=Work(), mmas=((Mma(128, 256), 16),))
"""One whose tensor core has no time for another block."""


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Shape = ALONE,
    after: Shape = TWO,
    spilled: int = 0,
    wrong: Callable[[str], bool] = lambda _: False,
    name: str = "attention_fwd",
    options: tuple[str, ...] = (),
) -> tuple[str, str]:
    """The text of a port and what was said, where cases compile these shapes; texts that are `wrong` fail."""

    def prove(claim: Claim, *how: object) -> Proof:
        text = b"".join(claim.plan.files.values()).decode()
        return Proof(missing="results differ") if wrong(text) else Proof(("case.yaml",), 4)

    def built(choice: object, ported: Ported) -> dict[str, Built]:
        two = any("blocks" in root.native for root in ported.roots)
        return {"kernel": Built("kernel<128>", 20 + two * spilled, after if two else before)}

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "widened", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "tuned", lambda session, ported, make: (ported, frozenset(), []))
    monkeypatch.setattr(search, "issued", lambda session, ported, make, two: Issued(Chosen(ported), two))
    monkeypatch.setattr(sharing._Choice, "built_of", built)
    kernel = CORPUS / name / f"{name}.cu"
    result = porter("port", "--style", "native", "--no-compile", *options, kernel, "-o", folder)
    return (folder / kernel.name).read_text(), " ".join(result.output.split())


def test_two_blocks_share_an_sm_where_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch)
    assert "__launch_bounds__(kThreads, 2)" in text
    assert "setmaxnreg.inc.sync.aligned.u32 104;" in text
    assert "tcgen05::update(o, o_tmem, [&](int i) { o[i] *= keep[(i >> 1) & 1]; });" in text
    assert "has the step blocks; case.yaml verified it at 4 sizes" in said


LEFT = {
    "spills": ({"spilled": 8}, "registers for 2 blocks of kernel<128>: ptxas spills 8 bytes more"),
    "no room on an SM": ({"before": replace(ALONE, residency=replace(ALONE.residency, smem=150000))},
                         "room on an SM for kernel<128>: 2 blocks do not fit an SM"),
    "no room for what ptxas made": ({"after": ALONE}, "room for 2 blocks of kernel<128> on an SM"),
    "two already": ({"before": TWO}, "an SM with one block of kernel<128>: it has 2"),
    "a tensor core without time": ({"before": BUSY, "after": blocks(BUSY, 2)}, "are as fast as one"),
    "more work than was thought": ({"after": replace(TWO, work=Work(9000, 8704, True))}, "is slower with 2 blocks"),
    "a persistent kernel": ({"before": replace(ALONE, persistent=True)}, "a persistent kernel has as many blocks"),
    "a fact that the text does not tell": ({"name": "gemm_ws"}, "missing: how many threads a block has"),
    "both chips in one source": ({"options": ("--keep-hopper",)}, "the original's form, which needs an SM"),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", LEFT)
def test_a_block_has_an_sm_for_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, expected = LEFT[name]
    text, said = ported(tmp_path, monkeypatch, **given)  # type: ignore[arg-type]
    assert "is without the step blocks; missing:" in said
    assert expected in said
    assert "has the step blocks" not in said
    assert "update(" not in text
    assert ", 2)" not in "".join(re.findall(r"__launch_bounds__\([^)]*\)", text))


def test_a_port_that_fails_is_given_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch, wrong=lambda text: "update(" in text)
    assert "is without the step blocks: results differ" in said
    assert "issues M=128 MMAs" in said
    assert "__launch_bounds__(kThreads, 1)" in text
    assert "u32 240;" in text


# --- the gate itself, on a simulator


def made() -> Ported:
    path = CORPUS / "attention_fwd" / "attention_fwd.cu"
    options = PortOptions(full_rate=True, native=STEPS, chosen=frozenset({(path.as_posix(), "blocks")}))
    found = port_paths([path], options, (), look)
    assert found.roots[0].native == ("blocks",)
    return found


PLANTED = {
    "more registers than there are": (r"setmaxnreg.inc.sync.aligned.u32 104", "setmaxnreg.inc.sync.aligned.u32 112"),
    "no wait for what a piece loads": (
        r'(first\);\s*)asm volatile\("tcgen05.wait::ld[^;]*;[^;]*;(\s*#pragma unroll\s*for[^;]*;[^;]*kPiece)', r"\1\2",
    ),
    "pieces that are not stored": (r"store\(r \+ first, address \+ 2 \* first\);", ""),
    "pieces at other columns": (r"store\(r \+ first, address \+ 2 \* first\)", "store(r + first, address + first)"),
    "sums that start anew": (r"(each\);\s*\}\s*asm volatile\([^;]*;[^;]*;\s*)tile.accumulate = true;",
                             r"\1tile.accumulate = false;"),
    "numbers of the first piece alone": (r"each\(first \+ i\)", "each(i)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_said", True)
    what = failure(planted(made(), *PLANTED[name]))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_the_corpus_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    # its reference is a function
    monkeypatch.setattr(trust, "_said", True)
    assert failure(made()) == ""
