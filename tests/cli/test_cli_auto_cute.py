# SPDX-License-Identifier: Apache-2.0
"""`--style auto` gives kernels of CuTe C++ in SM100's own words where a run or PTX shows that right and the grade finds
it no slower, else the compat port with one note. Stand-ins for the compiler, runs and grade."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes_cli import porter
from test_cli_full_rate import CORPUS
from test_cli_style_auto import a_machine_with_a_compiler, compat, lose, notes, on_ptx, ported  # noqa: F401

from porter.passes.idiom.types import answering
from porter.passes.ported import Ported
from porter.tune import search, verifying
from porter.tune.choosing import Chosen
from porter.tune.full_rate import equal
from porter.tune.rates import Slower
from porter.tune.staging import Staged
from porter.verify.proof import Judgement

OF_WORDS = ("PT2570", "PT2580", "PT2581")


def types(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """What the compiler says of a kernel."""
    monkeypatch.setattr("porter.cli.porting.types_of", lambda options, *asked: answering(*numbers)(*asked))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    types(monkeypatch, 128, 128, 128, 4, 16)
    monkeypatch.setattr("porter.cli.porting.latent", lambda paths, options: (frozenset(), frozenset()))
    for module in ("port", "porting"):
        monkeypatch.setattr(f"porter.cli.{module}.preprocessed", lambda *asked: "nothing is asked")
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(("case.yaml",), 3))
    return shutil.copytree(CORPUS / "cute_gemm_tma", tmp_path / "kernel") / "cute_gemm_tma.cu"


def said_of(text: str) -> list[str]:
    """What is said of the words of a port, and of its MMAs."""
    return [f"PT{word[:4]}" for word in text.split("[PT")[1:] if f"PT{word[:4]}" in OF_WORDS] + notes(text)


def test_what_a_case_verified_is_in_sm100s_own_words(kernel: Path) -> None:
    text, said = ported(kernel)
    assert "TMEM::Allocator1Sm" in text
    assert "porter" not in text
    assert [path.name for path in (kernel.parent / "out").iterdir()] == [kernel.name]
    assert said_of(said) == ["PT2581"]
    assert "is in SM100's own words (mode W); case.yaml verified it at 3 sizes" in said
    assert text == ported(kernel, "--style", "idiomatic", out="own")[0]


def test_what_no_run_proves_has_the_compat_port(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(missing="C differs"))
    text, said = ported(kernel)
    assert (text, said_of(said)) == (compat(kernel), ["PT2580"])
    assert "is not in SM100's own words: C differs" in said


def test_what_the_grade_finds_slower_has_the_compat_port(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch)
    text, said = ported(kernel)
    assert (text, said_of(said)) == (compat(kernel), ["PT2532"])
    assert "and 26.6 % with the words of SM100 itself" in said


def test_without_a_case_ptx_is_asked(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel.parent / "case.yaml").unlink()
    on_ptx(monkeypatch, equal(str(kernel), "cute_gemm_tma at M=128", "is in SM100's own words (mode W)"))
    text, said = ported(kernel)
    assert "TMEM::Allocator1Sm" in text
    assert said_of(said) == ["PT2543"]
    on_ptx(monkeypatch, "not known to be equal")
    text, said = ported(kernel)
    assert (text, said_of(said)) == (compat(kernel), ["PT2534"])


def test_a_fact_that_is_missing_is_the_one_note(kernel: Path) -> None:
    said = ported(kernel, "--keep-hopper")[1]
    assert said_of(said)[0] == "PT2570"
    assert not {"PT2503", "PT2510"} & set(said_of(said))


@pytest.mark.parametrize("option", [("--ignore", "PTR764"), ("--select", "PTR6")])
def test_who_leaves_one_of_its_rules_out_gets_the_compat_port(option: tuple[str, str], kernel: Path) -> None:
    text, said = ported(kernel, *option)
    assert "SM100_MMA" not in text
    assert "PT2570" not in said_of(said)


def test_full_rate_is_that_of_sm100s_own_words(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    text, said = ported(kernel, "--style", "full-rate")
    assert "TMEM::Allocator1Sm" in text
    assert said_of(said) == ["PT2581"]


@pytest.mark.parametrize("faster", [False, True])
def test_steps_stay_where_the_grade_finds_them_no_slower(
    faster: bool, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types(monkeypatch, 128, 128, 256, 4, 16)
    own: list[str] = []

    def slower(session: object, found: Ported, other: Callable[[], Ported], *rest: object) -> Slower | None:
        own.extend(r.path for r in other().roots if r.idiomatic)
        return Slower("gemm", 0.3, 0.4) if faster and any(r.native for r in found.roots) else None

    monkeypatch.setattr(verifying, "slower", slower)
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "shared", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr("porter.cli.making.judge", lambda *asked: lambda *claim: Judgement("equal", ""))
    another = shutil.copytree(CORPUS / "cute_gemm_ws", kernel.parent / "ws") / "cute_gemm_ws.cu"
    text, said = ported(another, "--style", "native")
    assert own == [str(another)]
    assert ("SM100_MMA_F16BF16_2x1SM_SS" in text) is not faster
    assert ("[PT2515]" in said) is not faster
    assert "PT2581" in said_of(said), "with steps or without it is in the words of SM100"


def test_the_plan_says_what_a_run_has_to_show(kernel: Path) -> None:
    said = " ".join(porter("plan", kernel).output.split())
    assert "it is in SM100's own words" in said
    assert "to be shown by the grade it is no slower" in said
