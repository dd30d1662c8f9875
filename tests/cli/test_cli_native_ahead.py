# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: the first product of a turn is issued a turn ahead where the grade finds that faster
and a case verified it. The slow tests run ports of kernels in different forms, and plant mistakes in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import attention_kernels as kernels
import pytest
from attention_kernels import Pairs
from fakes_cli import porter
from test_cli_native_port import CORPUS, failure, planted

from porter.build import trust
from porter.cli.porting import look
from porter.grade.changes import Impossible, ahead, blocks
from porter.grade.model import grade
from porter.grade.shape import Epilogue, Mma, Residency, Shape, Work
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import issuing, search, verifying
from porter.tune.choosing import Built, Chosen
from porter.tune.searching import of_step
from porter.tune.staging import Staged
from porter.verify.proof import Claim, Proof

ALONE = Shape("sm_100a", ((Mma(128, 64), 8), (Mma(128, 128, a="tensor"), 4)), None, None, 32768, 2, "specialized", 128,
              waits_each=True, epilogue=Epilogue(), work=Work(4000, 8704, True), batches=2,
              residency=Residency(150000, 256, 384, 168))  # fmt: skip
"""A kernel whose MMAs and threads wait for each other, and which has an SM for itself."""
AHEAD = ahead(ALONE)
TWO = blocks(replace(ALONE, residency=replace(ALONE.residency, smem=100000)), 2)


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Shape = ALONE,
    after: Shape = AHEAD,
    spilled: int = 0,
    two: tuple[Shape, Shape] | None = None,
    wrong: Callable[[str], bool] = lambda _: False,
) -> tuple[str, str]:
    """The text of a port and what was said, where cases compile these shapes; `two`: those with two blocks on an SM,
    without and with the step. Texts that are `wrong` fail."""

    def prove(claim: Claim, *how: object) -> Proof:
        text = b"".join(claim.plan.files.values()).decode()
        return Proof(missing="results differ") if wrong(text) else Proof(("case.yaml",), 4)

    def built(choice: object, ported: Ported) -> dict[str, Built]:
        steps = {step for root in ported.roots for step in root.native}
        shapes = two if two is not None and "blocks" in steps else (before, after)
        return {"kernel": Built("kernel<128>", 20 + ("ahead" in steps) * spilled, shapes["ahead" in steps])}

    def shared(session: object, ported: Ported, make: Callable[..., Ported]) -> Chosen:
        roots = frozenset(r.path for r in ported.roots if r.kernels) if two is not None else frozenset[str]()
        return Chosen(make(chosen=of_step("blocks", roots)) if roots else ported, roots)

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "shared", shared)
    monkeypatch.setattr(search, "stored", lambda session, ported, make: Chosen(ported))
    for module in (search, issuing):
        monkeypatch.setattr(module, "tuned", lambda session, ported, make: (ported, frozenset(), []))
    monkeypatch.setattr(issuing._Choice, "built_of", built)
    kernel = CORPUS / "attention_fwd" / "attention_fwd.cu"
    result = porter("port", "--style", "native", "--no-compile", kernel, "-o", folder)
    return (folder / kernel.name).read_text(), " ".join(result.output.split())


def test_the_first_product_is_issued_ahead_where_that_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = ported(tmp_path, monkeypatch)
    assert "issue_ahead(ring, 0);" in text
    assert "has the step ahead; case.yaml verified it at 4 sizes" in said


LEFT = {
    "as fast": ({"after": ALONE}, "a gain: by the grade its loops are as fast without"),
    "slower": ({"after": replace(ALONE, work=Work(9000, 8704, True))}, "is slower with its first product a turn ahead"),
    "spills": ({"spilled": 8}, "registers for kernel<128>: ptxas spills 8 bytes more"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT)
def test_products_are_issued_in_their_turn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, expected = LEFT[name]
    text, said = ported(tmp_path, monkeypatch, **given)  # type: ignore[arg-type]
    assert expected in said
    assert "has the step ahead" not in said
    assert "issue_ahead" not in text


SLOW = replace(TWO, work=Work(20000, 8704, True))
WITH_TWO = {
    "both": ((TWO, ahead(TWO)), True, True),
    "two blocks alone": ((TWO, SLOW), True, False),
    "one block, ahead": ((SLOW, SLOW), False, True),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n != "one block, ahead" else []) for n in WITH_TWO]
)
def test_the_fastest_of_blocks_and_ahead_is_given(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two, has_two, has_ahead = WITH_TWO[name]
    fast = replace(TWO, work=Work(3000, 8704, True))
    shapes = (two[0] if two[0] is SLOW else fast, two[1] if two[1] is SLOW else ahead(fast))
    text, said = ported(tmp_path, monkeypatch, two=shapes)
    assert ("__launch_bounds__(kThreads, 2)" in text) is has_two
    assert ("issue_ahead" in text) is has_ahead
    assert ("has the step blocks" in said) is has_two


@pytest.mark.slow
def test_a_port_that_fails_is_given_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch, wrong=lambda text: "issue_ahead" in text)
    assert "is without the step ahead: results differ" in said
    assert "issue_ahead" not in text


def test_what_if_products_were_issued_ahead() -> None:
    before, after = (grade(shape, None, lifts=False) for shape in (ALONE, AHEAD))
    assert after.rate > 1.2 * before.rate
    # nothing is faster than what threads compute
    assert after.stage_clocks >= ALONE.work.instructions / 4
    with pytest.raises(Impossible, match="a stage ahead"):
        ahead(AHEAD)
    with pytest.raises(Impossible, match="threads do nothing"):
        ahead(replace(ALONE, work=Work()))
    with pytest.raises(Impossible, match="one product"):
        ahead(replace(ALONE, mmas=ALONE.mmas[:1]))


# --- the gate itself, on a simulator

FORMS: dict[str, tuple[Pairs, dict[str, object]]] = {
    "functions of its own": (kernels.OWN_HELPERS, {}),
    "a function that waits and issues": (kernels.WHOLE_HELPERS, {"heads": (64,)}),
    "stages by the turn": (kernels.MODULO, {}),
    "a loop that counts in its body": (kernels.WHILE, {"heads": (64,)}),
    "a stage that goes on ahead of the results": (kernels.EARLY_NEXT, {}),
    "K and V in one ring": (kernels.ONE_RING, {"stages": 4, "one_ring": True}),
    "one warpgroup": (kernels.ALONE, {"consumers": 1}),
    "one tile after another": (kernels.TILES, {"heads": (64,), "one_block": True}),
    "128 keys a turn": (kernels.WIDE, {"keys": 128, "heads": (128,)}),
    "as in the corpus": ((), {}),
}


def made(folder: Path, pairs: Pairs = (), full: bool = True, **options: object) -> Ported:
    path = kernels.written(folder, pairs, **options)
    asked = of_step("ahead", [path.as_posix()])
    found = port_paths([path], PortOptions(full_rate=full, native=("ahead",), chosen=asked), (), look)
    assert found.roots[0].native == ("ahead",)
    return found


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", FORMS)
def test_the_gate_takes_a_form(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the reference is a function
    monkeypatch.setattr(trust, "_said", True)
    pairs, options = FORMS[name]
    assert failure(made(tmp_path, pairs, **options)) == ""


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_products_of_64_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each warpgroup issues its own, and both take turns."""
    monkeypatch.setattr(trust, "_said", True)
    found = made(tmp_path, full=False, heads=(64,))
    assert b"named_barrier_sync(kTurn0 + consumer" in b"".join(found.new.values())
    assert failure(found) == ""


PLANTED = {
    "no wait for results in registers": (r'asm volatile\("tcgen05.wait::ld.sync.aligned;" ::: "memory"\);', ""),
    "the stage of this turn": (r"(mutable __attribute__\(\(always_inline\)\) \{\s*)ring.next\(\);", r"\1"),
    "the phase of this turn": (r"mbarrier_wait\(&smem.k_full\[ring.stage\], ring.phase\);(\s*warpgroup_arrive)",
                               r"mbarrier_wait(&smem.k_full[ring.stage], ring.phase ^ 1);\1"),
    "one turn too many": (r"if \(!\(block < blocks\)\) return false;", ""),
    "one turn too few": (r"if \(!\(block < blocks\)\)", "if (!(block + 1 < blocks))"),
    "K given back ahead of its MMAs": (
        r"(tc.wait\(sums_behind \? 1 : 0\);\s*)mbarrier_arrive\(&smem.k_empty\[ring.stage\]\);",
        r"mbarrier_arrive(&smem.k_empty[ring.stage]);\n\1",
    ),
    "a product that is not waited for": (r"tc.wait\(sums_behind \? 1 : 0\);", ""),
    "sums that are not waited for": (r"tc.wait\(issued \? 1 : 0\);", ""),
    "sums that are waited for a batch short": (r"tc.wait\(issued \? 1 : 0\);", "tc.wait(1);"),
    "V given back for another stage": (r"ring_before = ring;(\s*sums)", r"\1"),
    "V given back once less": (r"\}\s*if \(sums_behind\) complete_sums\(ring_before, false\);", "}"),
    "products ahead of the results": (r"tcgen05::load\(scores, scores_tmem\);(.*?\}\(\);)",
                                      r"\1 tcgen05::load(scores, scores_tmem);"),
    "no meeting of both warpgroups": (
        r"(mbarrier_wait\(&smem.k_full\[ring.stage\], ring.phase\);\s*)warpgroup_arrive\(\);", r"\1",
    ),
    "one mbarrier for two batches": (r"constexpr uint32_t kRing = 2;", "constexpr uint32_t kRing = 1;"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_said", True)
    what = failure(planted(made(tmp_path, heads=(64,)), *PLANTED[name]))
    assert what
    assert "nvcc" not in what
