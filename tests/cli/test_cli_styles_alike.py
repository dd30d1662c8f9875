# SPDX-License-Identifier: Apache-2.0
"""Commands that show a port show the one that `porter port` writes in the same style."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import Command, Context
from click.testing import CliRunner
from corpus_kernels import CORPUS

from porter.build.gate import Gated
from porter.cli import kit, making
from porter.cli.comparing import Told, unproved
from porter.cli.context import Session
from porter.cli.main import main
from porter.cli.making import Ports
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.verify.case import load_case

KERNEL = "#include <cstdint>\n__global__ void k() {}\n"


@pytest.mark.parametrize("style", ["auto", "compat", "idiomatic", "native", None])
@pytest.mark.parametrize("command", ["review", "report"])
def test_one_function_decides(command: str, style: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the style that is asked for, and of a review that goes on in the one that it began with."""
    kernel = tmp_path / "k.cu"
    kernel.write_text(KERNEL)
    asked: list[str | None] = []

    def decide(session: Any, make: Any, *given: Any) -> Any:
        asked.append(session.style)
        return make()

    monkeypatch.setattr(f"porter.cli.{command}.port_in_style", decide)
    words = {
        "review": ["--no-compile", "-o", tmp_path / "out", "--session", tmp_path / "s.json"],
        "report": ["--no-run", "--html", tmp_path / "page.html"],
    }
    style_words = [] if style is None else ["--style", style]
    done = CliRunner().invoke(main, list(map(str, [command, *style_words, *words[command], kernel])))
    assert done.exit_code == 0, done.output
    assert asked == [style]
    if command == "review":
        again = CliRunner().invoke(main, [str(word) for word in ["review", *words[command]]])
        assert again.exit_code == 0, again.output
        assert asked == [style, style]
        assert json.loads((tmp_path / "s.json").read_text())["options"]["style"] == style


PROVING = CliRunner(env={"PORTER_PROVE_SECONDS": "10"})
SHOWING = {
    "build": ["build"],
    "verify": ["verify"],
    "hazards": ["hazards", "--only", "port"],
    "proofs of hazards": ["hazards", "--prove", "--only", "port"],
    "equal": ["equal"],
    "mutate": ["mutate"],
}
"""Commands that look at the port of a case's kernel."""


@pytest.mark.parametrize("style", ["full-rate", "idiomatic", "native"])
@pytest.mark.parametrize("command", SHOWING)
def test_ports_that_are_looked_at_are_judged(command: str, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where they are written, by PTX and by runs, once, in all the time that it takes."""
    asked: list[tuple[Any, ...]] = []

    def judged(session: Any, ported: Any, make: Any, budget: Any, compares: Any, judge: Any, noted: Any) -> Any:
        asked.append((session.style, None not in (compares, judge), budget.seconds))
        raise PorterError(Code.NO_TOOLKIT)

    monkeypatch.setattr("porter.cli.making.verified", judged)
    words = [*SHOWING[command], "--style", style, str(CORPUS / "gemm_int8" / "gemm_int8.cu")]
    done = PROVING.invoke(main, words)
    assert done.exit_code, done.output
    assert asked == [(style, True, None)]


def test_grades_are_of_ports_that_nothing_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """And say so."""
    monkeypatch.setattr("porter.cli.making.verified", lambda *given, **asked: pytest.fail("a run"))
    done = CliRunner().invoke(main, ["grade", "--style", "full-rate", str(CORPUS / "gemm_tma" / "gemm_tma.cu")])
    assert done.exit_code == 0, done.output
    assert "was not proved by a run" in " ".join(done.output.split())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "style"), [("gemm_int8", "native"), ("gemm_tma", "auto"), ("gemm_tma", "native")])
def test_every_command_shows_the_port_that_is_written(
    name: str, style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, without files of a build beside it. Of gemm_int8 PTX refuses a step that its text allows."""
    kernel = CORPUS / name / f"{name}.cu"
    shown: list[dict[str, bytes]] = []
    of_file, in_style = Ports.of_file, making.port_in_style

    def looked_at(*given: Any) -> Any:
        plan, said = of_file(*given)
        shown.append({Path(path).name: text for path, text in plan.files.items()} if plan is not None else {})
        return plan, said

    def made(*given: Any) -> Any:
        ported = in_style(*given)
        shown.append({Path(path).name: text for path, text in ported.elsewhere().items()})
        return ported

    monkeypatch.setattr(Ports, "of_file", looked_at)
    for command in ("port", "report"):
        monkeypatch.setattr(f"porter.cli.{command}.port_in_style", made)
    done = PROVING.invoke(main, ["port", "--style", style, str(kernel), "-o", str(tmp_path / "port")])
    assert done.exit_code == 0, done.output
    written = {path.name: path.read_bytes() for path in (tmp_path / "port").iterdir()}
    for words in (*SHOWING.values(), ["report", "--html", str(tmp_path / "page.html")]):
        shown.clear()
        done = PROVING.invoke(main, [*words, "--style", style, str(kernel)])
        assert done.exit_code in (0, 5), done.output
        assert shown, words
        assert all(one.items() <= written.items() and kernel.name in one for one in shown), words


EARLY = Diagnostic(Code.BLOCK_ENDS_EARLY, None, {"kernel": "gemm<128, 64>", "what": "mapa", "obstacle": ""})


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        ([], [EARLY]),
        ([Told("c", {}, entries=("_Z4gemmILi128ELi64EEvv",), equality="equal")], []),
        ([Told("c", {}, entries=("_Z4gemmILi128ELi64EEvv",), equality="unknown")], [EARLY]),
        ([Told("c", {}, entries=("_Z4gemm",), equality=one) for one in ("equal", "differs")], [EARLY]),
        ([Told("c", {}, entries=("_Z5other",), equality="equal")], [EARLY]),
    ],
)
def test_ends_of_blocks_that_are_proved_are_no_matter(compared: list[Told], said: list[Diagnostic]) -> None:
    assert unproved([Gated("k.cu", "compiled", diagnostics=(EARLY,))], compared) == said


@pytest.mark.parametrize("style", [None, "auto", "compat", "idiomatic", "native"])
def test_ports_of_a_kit(style: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a style by its name, as `porter verify --against` is called, the compat port."""
    monkeypatch.setattr(kit.Ports, "of_case", lambda *given: ("compat", []))
    monkeypatch.setattr(kit, "port_in_style", lambda session, *given: session.style)
    monkeypatch.setattr(kit, "as_launched", lambda session, ported, case: (ported, []))
    case = load_case(CORPUS / "gemm_tma" / "case.yaml")
    with Context(Command("kit")):
        plan, _ = kit._port_for(Session(style=style), case, "sm_100a")
    assert plan == {None: "compat", "auto": "compat"}.get(style, style)


def test_a_kit_names_its_style(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["kit", "--style", "auto", str(CORPUS / "gemm_tma"), "-o", str(tmp_path / "kit.tar")]
    )
    assert (done.exit_code, "name one" in done.output) == (2, True), done.output
