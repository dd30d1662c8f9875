# SPDX-License-Identifier: Apache-2.0
"""Commands that show a port show the one that `porter port` writes in the same style."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from corpus_kernels import CORPUS

from porter.build.gate import Gated
from porter.cli import kit, making
from porter.cli.comparing import Told, unproved
from porter.cli.main import main
from porter.cli.making import Ports
from porter.diagnostics import Code, Diagnostic, PorterError

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
    assert asked == [style or "auto"]
    if command == "review":
        again = CliRunner().invoke(main, [str(word) for word in ["review", *words[command]]])
        assert again.exit_code == 0, again.output
        assert asked == [style or "auto"] * 2
        assert json.loads((tmp_path / "s.json").read_text())["options"]["style"] == (style or "auto")


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
@pytest.mark.parametrize(
    ("name", "style"),
    [("gemm_int8", "native"), ("gemm_ws", None), ("gemm_tma", "auto"), ("gemm_tma", "native")],
)
def test_every_command_shows_the_port_that_is_written(
    name: str, style: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, without files of a build beside it, also where nobody says a style. Of gemm_int8 PTX refuses a
    step that its text allows."""
    kernel = CORPUS / name / f"{name}.cu"
    shown: list[dict[str, bytes]] = []
    of_file, in_style = Ports.of_file, making.port_in_style

    def looked_at(*given: Any) -> Any:
        plan, said = of_file(*given)
        if given[5:] and given[5] not in (None, "sm_100a"):
            return plan, said
        shown.append({Path(path).name: text for path, text in plan.files.items()} if plan is not None else {})
        return plan, said

    def made(*given: Any) -> Any:
        ported = in_style(*given)
        shown.append({Path(path).name: text for path, text in ported.elsewhere().items()})
        return ported

    monkeypatch.setattr(Ports, "of_file", looked_at)
    for command in ("port", "report", "review"):
        monkeypatch.setattr(f"porter.cli.{command}.port_in_style", made)
    asked = [] if style is None else ["--style", style]
    done = PROVING.invoke(main, ["port", *asked, str(kernel), "-o", str(tmp_path / "port")])
    assert done.exit_code == 0, done.output
    written = {path.name: path.read_bytes() for path in (tmp_path / "port").iterdir()}
    packs = ["kit", "--no-probes", "--no-timing", "--families", "integers", "-o", str(tmp_path / "kit.tar")]
    reviews = ["review", "-o", str(tmp_path / "reviewed"), "--session", str(tmp_path / "s.json")]
    for words in (*SHOWING.values(), ["report", "--html", str(tmp_path / "page.html")], packs, reviews):
        shown.clear()
        done = PROVING.invoke(main, [*words, *asked, str(kernel)], input="a\n")
        assert done.exit_code in (0, 5), done.output
        assert shown, words
        assert all(one.items() <= written.items() and kernel.name in one for one in shown), words
    assert {path.name: path.read_bytes() for path in (tmp_path / "reviewed").iterdir()} == written


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
@pytest.mark.parametrize("words", [["kit", "-o", "kit.tar"], ["verify", "--against", "record.txt"]])
def test_ports_of_a_kit(style: str | None, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all chips, and of the record that comes back, are those of the style that is asked for."""
    asked: list[tuple[str | None, str]] = []

    def runs(case: Any, sizes: Any, names: Any, seed: Any, builder: Any, port_of: Any, *more: Any) -> Any:
        assert port_of(case, "sm_100a") == port_of(case, "sm_103a") == ("port", [])
        raise PorterError(Code.NO_TOOLKIT)

    def of_case(ports: Ports, case: Any, port: Any, target: str) -> Any:
        asked.append((ports.session.style, target))
        return "port", []

    label = "gemm_tma M=256,N=128,K=320 integers 0 port"
    monkeypatch.setattr(kit, "kit_runs", runs)
    monkeypatch.setattr(kit.Ports, "of_case", of_case)
    monkeypatch.setattr("porter.cli.verify.is_kit_record", lambda path: True)
    record = SimpleNamespace(path="record.txt", runs=[SimpleNamespace(label=label)])
    monkeypatch.setattr(kit, "load_kit_record", lambda path: record)
    monkeypatch.chdir(tmp_path)
    style_words = [] if style is None else ["--style", style]
    CliRunner().invoke(main, [*words, *style_words, str(CORPUS / "gemm_tma" / "gemm_tma.cu")])
    assert asked == [(style or "auto", "sm_100a"), (style or "auto", "sm_103a")]


def test_a_port_that_is_given_is_of_one_kernel(tmp_path: Path) -> None:
    kernels = [str(CORPUS / name) for name in ("gemm_tma", "gemm_ws")]
    given = ["--port", kernels[0], "-o", str(tmp_path / "kit.tar")]
    done = CliRunner().invoke(main, ["kit", *kernels, *given])
    assert (done.exit_code, "one kernel" in done.output) == (2, True), done.output


def test_a_port_that_is_given_is_packed_for_the_chips_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []

    def runs(*said: Any) -> Any:
        given.append((said[5](said[0], "sm_100a")[0].source, said[7]))
        raise PorterError(Code.NO_TOOLKIT)

    monkeypatch.setattr(kit, "kit_runs", runs)
    kernel, port = CORPUS / "gemm_tma" / "gemm_tma.cu", tmp_path / "port.cu"
    for target in ("sm_100a", "sm_110a"):
        words = ["kit", "--port", str(port), "--to", target, "-o", str(tmp_path / "kit.tar"), str(kernel)]
        CliRunner().invoke(main, words)
    assert given == [(port, ()), (port, ("sm_110a",))]
