# SPDX-License-Identifier: Apache-2.0
"""The pages under docs/ as a web site (mkdocs.yml), and the picture of a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PICTURE = DOCS / "images" / "terminal.svg"


def pages_of(nav: Any) -> Iterator[str]:
    for item in nav:
        if isinstance(item, str):
            yield item
        else:
            yield from pages_of(next(iter(item.values())))


def test_every_page_has_one_place() -> None:
    listed = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    assert sorted(listed) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))


def test_the_picture_is_of_a_verified_port_and_asks_nobody_for_a_font() -> None:
    """`python docs/terminal_picture.py` draws it."""
    text = PICTURE.read_text("utf-8")
    shown = re.sub(r"<[^>]+>", "", text).replace("&#160;", " ")
    assert "porter verify" in shown
    assert "(9 clean)" in shown
    assert "@font-face" not in text
    assert not re.search(r"(?:href|url)\W+https?:", text)
    assert "docs/images/terminal.svg" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="pip install 'porter-sm100[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    made = (tmp_path / "site" / "rules" / "index.html").read_text("utf-8")
    assert "(?&lt;![" in made
    assert "\ue000" not in made
