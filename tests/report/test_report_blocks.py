# SPDX-License-Identifier: Apache-2.0
import ast
import string
from pathlib import Path

import pytest
from rich.console import Console

from porter.diagnostics import Code, Diagnostic, Location
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
