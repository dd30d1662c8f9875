# SPDX-License-Identifier: Apache-2.0
import ast
import string
from pathlib import Path

import pytest
from rich.console import Console

from porter.build.entry import readable
from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.text import LineIndex, Span
from porter.report import json as report_json
from porter.report.blocks import block
from porter.report.explain import all_codes, readable_title

PACKAGE = Path(__file__).resolve().parents[2] / "porter"


def shown(diagnostic, **options):
    console = Console(width=200, no_color=True, color_system=None)
    with console.capture() as capture:
        console.print(block(diagnostic, **options), end="", soft_wrap=True)
    return capture.get()


def test_a_block_points_at_the_place(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes("int x;\n\tfloat ä = wgmma;\r\n".encode())
    where = Location(str(path), 2, 2 + len("float ä = ".encode()))
    lines = shown(Diagnostic(Code.RUN_FAILED, where, {"program": "port", "reason": "r"}, "more")).splitlines()
    assert lines[0] == "error[PT5026]: the port did not finish: r"
    assert lines[1] == f"  --> {path}:2:{where.column}"
    assert lines[3] == " 2 |     float ä = wgmma;"
    assert lines[4].index("^") == lines[3].index("wgmma")
    assert "   = more" in lines
    assert lines[-1].startswith("   = next: ")


@pytest.mark.parametrize("where", [None, Location("gone.cu", 3, 1), Location("gone.cu")])
def test_a_block_needs_no_readable_place(where):
    text = shown(Diagnostic(Code.FILE_NOT_FOUND, where, {"path": "x"}))
    assert "no such file or directory: x" in text
    assert "^" not in text


def test_notes_are_short():
    assert shown(Diagnostic(Code.NOTHING_TO_PORT, None, {"path": "x"})).count("\n") == 1


def placeholders(code):
    return {name for _, name, _, _ in string.Formatter().parse(code.value.title) if name}


def constructions():
    """Every PorterError(Code.X, ...) and Diagnostic(Code.X, where, {...}) whose values stand in the
    source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            first = node.args[0]
            if not (isinstance(first, ast.Attribute) and isinstance(first.value, ast.Name)
                    and first.value.id == "Code"):  # fmt: skip
                continue
            if node.func.id == "PorterError":
                if any(k.arg is None for k in node.keywords):
                    continue
                names = {k.arg for k in node.keywords} - {"where", "detail"}
            elif node.func.id == "Diagnostic" and len(node.args) > 2 and isinstance(node.args[2], ast.Dict):
                names = {k.value for k in node.args[2].keys if isinstance(k, ast.Constant)}
            else:
                continue
            yield f"{path.relative_to(PACKAGE)}:{node.lineno}", first.attr, names


def test_every_message_is_given_the_values_its_title_names():
    found = list(constructions())
    assert len(found) > 40
    for place, name, names in found:
        assert hasattr(Code, name), f"{place}: no code {name}"
        assert placeholders(Code[name]) <= names, f"{place}: {name} lacks {placeholders(Code[name]) - names}"


def test_explanations_are_complete():
    for one in all_codes():
        assert "{" not in one.title
        assert all(text for _, text in one.fields), one.name
    assert readable_title("no {thing} in {path}!") == "no <thing> in <path>!"


NAME = "_ZN2ns1kILi64EN4cute5tupleIJNS1_1CILi64EEENS2_ILi128EEENS2_ILi32EEENS2_ILi16EEENS2_ILi8EEEEEEEEvPfT0_"


def test_names_in_a_message_are_those_that_people_read():
    long = readable(f"kernel {NAME} spills as a port: {'more ' * 20}of it")
    assert long.startswith("kernel ns::k<...> spills as a port: more ")
    assert readable("a < b, k<int, 128> and kernel _ZN2ns1kEPi") == "a < b, k<int, 128> and kernel ns::k"
    kernel = f"void ns::k<{'cute::C<1>, ' * 200}int>(ns::P<{'float, ' * 200}int>)"
    values = {"kernel": kernel, "stores": 1, "loads": 1, "before": 1, "after": 1}
    lines = shown(Diagnostic(Code.PORT_SPILLS, None, values))
    assert ": kernel void ns::k<...>(...) spills as a port" in lines
    assert max(map(len, lines.splitlines())) < 300
    # what is no name is not cut
    path = "/" + "/".join(["directory"] * 40)
    assert path in readable(f"{path} is written for another chip, as {'<'.join('abc' * 60)} says")


@pytest.mark.parametrize(
    ("text", "start", "end", "marked"),
    [
        ("int x = f(1);\n", 8, 12, "f(1)"),
        ("\tint x = f(1);\n", 9, 13, "f(1)"),
        ("\tfloat ä = wgmma(a);\r\n", len("\tfloat ä = ".encode()), len("\tfloat ä = wgmma(a)".encode()), "wgmma(a)"),
        ("f(a,\n  b);\n", 0, 9, "f(a,"),
        ("if (x) {   \n}\n", 7, 13, "{"),
        ("int x;\n", 4, 4, "x"),
    ],
)
def test_what_a_message_is_about_is_underlined(tmp_path, text, start, end, marked):
    path = tmp_path / "k.cu"
    path.write_bytes(text.encode())
    where = LineIndex(text.encode()).location(str(path), Span(start, end))
    lines = shown(Diagnostic(Code.FILE_NOT_FOUND, where, {"path": "x"})).splitlines()
    at = lines[4].index("^")
    assert lines[3][at : at + lines[4].count("^")] == marked
    said = report_json.location(where)
    assert (end > start) == ("start" in said)
    if end > start:
        assert text.encode()[said["start"] : said["end"]] == text.encode()[start:end]
        assert (said["end_line"], said["end_column"]) == LineIndex(text.encode()).line_column(end)


def test_no_message_sends_its_reader_back_to_itself():
    for code in Code:
        said = f"{code.value.title} {code.value.detail} {code.value.next_step}"
        assert f"porter explain {code.id}" not in said, code.id
        assert code.id not in said, code.id


def test_every_message_on_porting_is_given_a_place():
    """Those of a whole command have none."""
    allowed = {"FULL_RATE_UNTRIED", "FULL_RATE_PROVED"}
    made = [
        (f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.args[0].attr}", node.args[1:])
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Diagnostic", "PorterError") and node.args
        and isinstance(node.args[0], ast.Attribute) and getattr(node.args[0].value, "id", "") == "Code"
        and Code[node.args[0].attr].id.startswith("PT2") and node.args[0].attr not in allowed
    ]  # fmt: skip
    assert len(made) > 20
    assert not [what for what, rest in made if not rest or getattr(rest[0], "value", "") is None]
