# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md says what the code does: its journeys are walked, its recipes are cooked."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from porter.passes.rule_examples import try_examples
from porter.rules.load import load_rules

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LONGEST = {
    "An accumulator, from text to report": 12,
    "An accumulator of a library's tiled MMA": 7,
    "`tcgen05.mma`, from PTX to hazard": 8,
}
"""Files of each journey, at most. These numbers only shrink."""

Step = tuple[str, tuple[str, ...]]


def section(title: str) -> str:
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """Cells of the table of a section, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def journey(title: str) -> list[Step]:
    return [(row[0].strip("`"), tuple(re.findall(r"`([^`]+)`", row[1]))) for row in rows(title)]


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def defined(file: str) -> set[str]:
    return {
        node.name
        for node in ast.parse((ROOT / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def takes(file: str, other: str, symbols: tuple[str, ...]) -> bool:
    """Whether a file imports another one, or one of its symbols, and uses it."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    package, _, name = module_of(other).rpartition(".")
    names = {alias.name for node in imports if node.module == module_of(other) for alias in node.names} & set(symbols)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    whole = any(node.module == package and name in {a.name for a in node.names} for node in imports)
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    bases = {ast.unparse(base) for n in ast.walk(tree) if isinstance(n, ast.ClassDef) for base in n.bases}
    return bool(names & (used | bases)) or (whole and bool(attributes & set(symbols)))


def broken(steps: list[Step]) -> list[str]:
    """What a journey says that is not so."""
    found = [f"{file} has no {name}" for file, symbols in steps for name in symbols if name not in defined(file)]
    for i, (file, symbols) in enumerate(steps[1:], 1):
        before = steps[:i]
        if not any(takes(file, other, names) or takes(other, file, symbols) for other, names in before):
            found.append(f"{file}: no step above uses it or is used by it")
    return found


@pytest.mark.parametrize("title", LONGEST)
def test_journeys_are_those_of_the_code(title: str) -> None:
    steps = journey(title)
    assert not broken(steps)
    assert len(steps) == len({file for file, _ in steps}) <= LONGEST[title]


def test_a_step_that_is_off_the_way_is_seen() -> None:
    steps = journey("`tcgen05.mma`, from PTX to hazard")
    assert broken([*steps, ("porter/lang/lexical.py", ("Lexed",))])
    assert broken([*steps[:-1], (steps[-1][0], ("NoSuchReports",))])


def test_every_part_stands_in_the_table() -> None:
    parts = {f"porter/{p.parent.name}" for p in (ROOT / "porter").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(porter/\w+)` \|", PAGE, re.MULTILINE)) == parts


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(r"`((?:porter|tests|mappings|docs)/[\w./]*)`", PAGE))
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_a_spelling_is_one_file(tmp_path: Path) -> None:
    text = re.search(r"```yaml\n(.*?)```", section("Add a rule"), re.DOTALL)
    assert text
    (tmp_path / "house.yaml").write_text(text[1], "utf-8")
    rules = load_rules((str(tmp_path),))
    (own,) = [rule for rule in rules if rule.id == "HOUSE100"]
    tried = list(try_examples([own], [str(tmp_path)]))
    assert len(tried) == 2
    assert not [problem for one in tried for problem in one.problems]


def test_an_instruction_is_three_places() -> None:
    """Files of Porter that spell the opcode are those of the recipe, and with the test they are all there is to do."""
    files = [row[0].strip("`") for row in rows("Add an instruction")]
    assert len(files) <= 3
    spelt = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "porter").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"fns\b(?!\()", node.value)
    }
    assert {file for file in files if file.startswith("porter/")} == spelt
    assert all("fns" in (ROOT / file).read_text("utf-8") for file in files)


def test_a_pass_is_called_in_one_place() -> None:
    for row in rows("Add a pass"):
        assert (ROOT / row[0].strip("`")).exists()
    assert "rewrite" in defined("porter/passes/kernel_port.py")
