# SPDX-License-Identifier: Apache-2.0
"""MkDocs' hooks: regular expressions pass its look at raw HTML, which takes `<![` for a declaration even in code."""

from __future__ import annotations

from typing import Any

_MARK = "\ue000"


def on_page_markdown(markdown: str, **given: Any) -> str:
    return markdown.replace("<![", f"<{_MARK}![")


def on_page_content(html: str, **given: Any) -> str:
    return html.replace(_MARK, "")
