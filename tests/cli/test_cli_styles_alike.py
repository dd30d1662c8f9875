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
from porter.cli import kit
from porter.cli.comparing import Told, unproved
from porter.cli.context import Session
from porter.cli.main import main
from porter.diagnostics import Code, Diagnostic
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
    monkeypatch.setattr(kit, "plan_of_case", lambda *given: ("compat", []))
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
