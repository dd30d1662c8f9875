# SPDX-License-Identifier: Apache-2.0
"""Comments that speak of MMAs as Hopper has them: the port leaves them to their author, and says where they are."""

from __future__ import annotations

import re

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cuda import find
from porter.lang.text import Span
from porter.passes.idiom.draft import Draft
from porter.passes.idiom.site import Site

_HOPPERS = re.compile(
    r"\b(?:w?gmma|warpgroup_\w+|warpgroup mma|sm_?90a?|m64|hopper|(?:wait|commit)_group)\b|\b64\s+rows\b",
    re.IGNORECASE,
)


def speaking_of_hopper(site: Site, draft: Draft) -> Diagnostic | None:
    """A note of such comments in the kernel's file that stay."""
    file, lines = site.kernel.file, list[int]()
    for comment in find(file.root, "comment"):
        span = Span(comment.start_byte, comment.end_byte)
        if _HOPPERS.search(file.text(span)) and not draft.takes_away(file.path, span):
            lines.append(comment.start_point[0] + 1)
    if not lines:
        return None
    values = {"kernel": site.kernel.name, "lines": ", ".join(map(str, dict.fromkeys(lines)))}
    return Diagnostic(Code.IDIOM_COMMENTS, Location(file.path, lines[0]), values)
