# SPDX-License-Identifier: Apache-2.0
"""The pages made from code say what the code says, and the README's tables with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts_loaded import script

from porter.verify.rows import as_rows

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return script("docs/generate.py")


def test_generated_pages_are_current(generator: ModuleType) -> None:
    pages = generator.pages().items()
    stale = [path.name for path, text in pages if not path.exists() or path.read_text("utf-8") != text]
    assert not stale, f"out of date: {stale}; run `make docs`"


def test_readme_has_the_exit_codes(generator: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "\n".join(generator.exit_code_table()) in readme


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_that_are_named_exist(page: str) -> None:
    readme = (ROOT / page).read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = {t for call in re.findall(r"(?:`|^)make ([a-z -]+)", readme, re.MULTILINE) for t in call.split()}
    assert {"test", "lint"} <= named
    assert not [target for target in named if f"\n{target}:" not in makefile]


RESULTS = sorted(p for p in (ROOT / "docs" / "results").rglob("*.json") if p.name != "h200-instructions.json")


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.name)
def test_records_have_one_row_a_line(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text == as_rows(json.loads(text))


def test_parts_made_from_records_are_made_anew(generator: ModuleType) -> None:
    page = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    changed = page.replace("h100.json` | NVIDIA", "h100.json` | another")
    assert changed != page
    assert generator.with_blocks(changed) == page


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text("utf-8"))]
    assert links
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_the_changelog_has_the_form() -> None:
    """Keep a Changelog: versions, newest first, with sections of its names."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0] == "Unreleased"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds
