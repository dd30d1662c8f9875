# SPDX-License-Identifier: Apache-2.0
"""`porter review`: groups accepted and refused, edited, kept, and merged with what was edited by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes_cli import porter_json
from terminal import Terminal

from porter.cli.main import main
from porter.passes.review.groups import Review, State, review_of, split
from porter.passes.review.record import Record, load_record, recall, remember
from porter.rules.load import load_rules

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
Answer = Callable[..., Result]
GUARD = "if (prop.major != 9)"


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Runs the command in a folder with a kernel, and with these lines as answers."""
    shutil.copytree(CORPUS / "gemm_ws", tmp_path / "src")
    monkeypatch.chdir(tmp_path)

    def run(lines: str, *args: str) -> Result:
        text = "".join(f"{line}\n" for line in lines.split())
        return CliRunner().invoke(main, ["review", "--no-compile", *args], input=text)

    return run


BEGIN = ("src/gemm_ws.cu", "-o", "out")


def test_all_accepted_is_the_port(answer: Answer) -> None:
    done = answer("a", *BEGIN)
    assert done.exit_code == 0, done.output
    CliRunner().invoke(main, ["port", "--no-compile", "src/gemm_ws.cu", "-o", "direct"])
    for path in Path("direct").rglob("*.*"):
        assert Path("out", path.relative_to("direct")).read_bytes() == path.read_bytes()


def test_a_refused_group_says_what_falls_and_leaves_the_original(answer: Answer) -> None:
    done = answer("y n y a", *BEGIN)
    assert done.exit_code == 3
    assert "Without PTR101 these fall too" in done.output
    assert "PTR110  wgmma.mma_async to tcgen05.mma" in done.output
    assert "PTR100  Accumulator to Tensor Memory (accepted before)" in done.output
    assert "PT2031" in done.output
    assert not Path("out").exists()


@pytest.mark.slow
def test_a_refusal_is_taken_back_where_its_price_is_too_high(answer: Answer) -> None:
    done = answer("n n a", *BEGIN)
    assert done.exit_code == 0
    assert "out/gemm_ws.cu" in done.output


def test_a_group_that_stands_alone_is_refused_alone(answer: Answer) -> None:
    done = answer("y " * 10 + "n y", *BEGIN)
    assert done.exit_code == 3
    assert "11 accepted, 1 refused" in done.output
    text = Path("out/gemm_ws.cu").read_text()
    assert GUARD in text
    assert "tcgen05" in text
    assert "src/gemm_ws.cu:" in done.output


@pytest.mark.slow
def test_what_is_decided_is_kept_when_one_stops(answer: Answer) -> None:
    stopped = answer("y y q", *BEGIN)
    assert stopped.exit_code == 3
    assert "PT2033" in stopped.output
    assert not Path("out").exists()
    states = [d.state for d in load_record(Path(".porter/session.json")).decisions.values()]
    assert states == [State.ACCEPTED, State.ACCEPTED]
    resumed = answer("a")
    assert resumed.exit_code == 0
    assert "(3/12)" in resumed.output
    assert "(2/12)" not in resumed.output


@pytest.mark.slow
def test_the_end_of_the_input_stops(answer: Answer) -> None:
    assert answer("y", *BEGIN).exit_code == 3


@pytest.mark.slow
def test_help_and_what_cannot_be_taken_apart(answer: Answer) -> None:
    done = answer("? s q", *BEGIN)
    assert "accept this group and all that follow" in done.output
    assert "cannot be taken apart" in done.output


@pytest.mark.slow
def test_a_refused_rule_is_asked_about_again(answer: Answer) -> None:
    answer("y " * 10 + "n y", *BEGIN)
    done = answer("y", "--again", "PTR210")
    assert done.exit_code == 0
    assert GUARD not in Path("out/gemm_ws.cu").read_text()


@pytest.mark.slow
def test_safe_groups_need_no_question(answer: Answer) -> None:
    done = answer("y y", *BEGIN, "--accept-safe")
    assert done.exit_code == 0
    assert "(11/12)" in done.output
    assert "(1/12)" not in done.output


# --- Edits by hand


def editor(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str | None]) -> None:
    monkeypatch.setattr("click.edit", lambda text, extension: change(text))


def test_an_edited_group_has_the_reviewers_text(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(monkeypatch, lambda text: text.replace("!= 10", "< 10"))
    done = answer("y " * 10 + "e y", *BEGIN)
    assert done.exit_code == 0
    assert "PT2508" in done.output
    assert "prop.major < 10" in Path("out/gemm_ws.cu").read_text()
    again = answer("")
    assert again.exit_code == 0
    assert "prop.major < 10" in Path("out/gemm_ws.cu").read_text()


@pytest.mark.slow
def test_an_edit_that_loses_its_markers_changes_nothing(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(monkeypatch, lambda text: "")
    done = answer("y " * 10 + "e q", *BEGIN)
    assert "have to stay" in done.output
    assert done.exit_code == 3


def test_a_new_port_keeps_what_was_edited_in_the_output(answer: Answer) -> None:
    answer("a", *BEGIN)
    out, source = Path("out/gemm_ws.cu"), Path("src/gemm_ws.cu")
    out.write_text(out.read_text().replace("constexpr int STAGES = 3;", "constexpr int STAGES = 3;  // by hand"))
    source.write_text("// a new first line\n" + source.read_text())
    done = answer("")
    assert done.exit_code == 0, done.output
    assert "changed since the last review: src/gemm_ws.cu" in done.output
    text = out.read_text()
    assert text.startswith("// a new first line\n")
    assert "// by hand" in text
    assert "tcgen05" in text


@pytest.mark.slow
def test_conflicts_stand_there_as_git_writes_them(answer: Answer) -> None:
    answer("a", *BEGIN)
    out, source = Path("out/gemm_ws.cu"), Path("src/gemm_ws.cu")
    out.write_text(out.read_text().replace("constexpr int STAGES = 3;", "constexpr int STAGES = 4;"))
    source.write_text(source.read_text().replace("constexpr int STAGES = 3;", "constexpr int STAGES = 2;"))
    done = answer("")
    assert done.exit_code == 3
    assert "PT2032" in done.output
    stages = "<<<<<<< yours\n    constexpr int STAGES = 4;\n=======\n    constexpr int STAGES = 2;\n>>>>>>> port\n"
    assert stages in out.read_text()


@pytest.mark.slow
def test_a_file_that_the_review_did_not_write_is_not_overwritten(answer: Answer) -> None:
    Path("out").mkdir()
    Path("out/gemm_ws.cu").write_text("int mine;\n")
    done = answer("a", *BEGIN)
    assert done.exit_code == 3
    assert "int mine;" in Path("out/gemm_ws.cu").read_text()


# --- Sessions


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "review-session", "schema_version": 9}', "no json"])
def test_a_session_that_cannot_be_read_is_refused(answer: Answer, text: str) -> None:
    Path(".porter").mkdir()
    Path(".porter/session.json").write_text(text)
    done = answer("a", *BEGIN)
    assert done.exit_code == 2
    assert "PT2030" in done.output


@pytest.mark.slow
def test_a_session_of_other_paths_is_not_taken(answer: Answer) -> None:
    answer("q", *BEGIN)
    shutil.copytree(CORPUS / "gemm_tma", "other")
    assert answer("a", "other/gemm_tma.cu", "-o", "out").exit_code == 2


def test_without_a_path_or_a_place_nothing_is_done(answer: Answer) -> None:
    assert answer("a").exit_code == 2
    assert answer("a", "src/gemm_ws.cu").exit_code == 2


def test_json_asks_nothing_and_says_the_states(answer: Answer) -> None:
    answer("y n y q", *BEGIN)
    body = porter_json("review", "--no-compile", code=3)
    states = [g["state"] for g in body["groups"]]
    assert states[1] == "refused"
    assert set(states) == {"refused", "fallen"}


def test_groups_with_independent_edits_are_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CORPUS / "gemm_ws", tmp_path / "src")
    monkeypatch.chdir(tmp_path)
    seen = reviewed("src/gemm_ws.cu")
    build = next(i for i in seen.items if i.group.rule == "PTR220")
    parts = split(seen, build)
    assert parts is not None
    assert len(parts) == len(build.group.edits) == 2
    parts[0].state = State.ACCEPTED
    parts[1].state = State.REFUSED
    record = Record(split=[build.key])
    remember(record, seen, load_rules())
    later = reviewed("src/gemm_ws.cu")
    recall(record, later)
    assert [i.state for i in later.items if i.group.rule == "PTR220"] == [State.ACCEPTED, State.REFUSED]


def reviewed(path: str) -> Review:
    from porter.cli.porting import look
    from porter.passes.port import PortOptions
    from porter.passes.ported import port_paths

    return review_of(port_paths([Path(path)], PortOptions(), [], look), load_rules())


SLOW = [
    pytest.param(n, marks=pytest.mark.slow)
    for n in ("gemm_cluster", "attention_fwd", "gemm_persistent", "dsl_gemm", "dsl_gemm_helpers")
]


@pytest.mark.parametrize("name", ["gemm_tma", *SLOW])
def test_every_refusal_leaves_a_whole_port_or_none(name: str) -> None:
    """Whatever one group is refused, each port is there with all of its groups or not at all."""
    seen = reviewed(str(CORPUS / name))
    for refused in seen.items:
        for item in seen.items:
            item.state = State.REFUSED if item is refused else State.ACCEPTED
        standing = seen.standing()
        for unit in {i.unit for i in seen.items if i.core}:
            whole = sum(1 for i in seen.items if i.core and i.unit == unit)
            assert sum(1 for i in standing if i.core and i.unit == unit) in (0, whole)
        files = seen.files()
        if refused.core and len({i.unit for i in seen.items if i.core}) == 1:
            assert files == {p: t for p, t in seen.ported.old.items() if p not in seen.added}
        else:
            assert refused not in standing


# --- A terminal


@pytest.mark.slow
def test_a_review_on_a_terminal(tmp_path: Path) -> None:
    """Accept, refuse one with dependents, edit, quit, resume, port again after an edit by hand."""
    shutil.copytree(CORPUS / "gemm_ws", tmp_path / "src")
    script = tmp_path / "editor.sh"
    script.write_text("#!/bin/sh\nsed -i 's/!= 10/< 10/' \"$1\"\n")
    script.chmod(0o755)
    first = Terminal(tmp_path, *BEGIN)
    first.expect("Accept PTR100 [y,n,a,d,e,s,q,?]?")
    first.send("y")
    first.expect("Accept PTR101")
    first.send("n")
    first.expect("Refuse 12 groups [y,n]?")
    first.send("n")
    first.expect("Accept PTR101")
    first.send("q")
    assert first.end() == 3
    second = Terminal(tmp_path, editor=str(script))
    for rule in ("101", "110", "120", "121", "130", "140", "142", "150", "160"):
        second.expect(f"Accept PTR{rule}")
        second.send("y")
    second.expect("Accept PTR210")
    second.send("e")
    second.expect("Accept PTR220")
    second.send("y")
    assert second.end() == 0
    out = tmp_path / "out" / "gemm_ws.cu"
    assert "prop.major < 10" in out.read_text()
    out.write_text(out.read_text().replace("constexpr int STAGES = 3;", "constexpr int STAGES = 3;  // by hand"))
    source = tmp_path / "src" / "gemm_ws.cu"
    source.write_text("// new\n" + source.read_text())
    third = Terminal(tmp_path)
    assert third.end() == 0
    text = out.read_text()
    assert text.startswith("// new\n")
    assert "// by hand" in text
    assert "prop.major < 10" in text
    fourth = Terminal(tmp_path, "--again", "PTR110")
    fourth.expect("Accept PTR110")
    fourth.send("n")
    fourth.expect("Refuse 12 groups [y,n]?")
    fourth.send("y")
    assert fourth.end() == 3
    assert "PT2031" in fourth.text
    session: dict[str, Any] = json.loads((tmp_path / ".porter" / "session.json").read_text())
    assert session["written"] == {}
