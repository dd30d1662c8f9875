# SPDX-License-Identifier: Apache-2.0
"""The C++ of these passes, which stands in `mappings/emit/idiom.cuh`."""

from __future__ import annotations

import re

from porter.model.program import Program
from porter.passes.emit import lines

_USING = re.compile(rb"\busing\s+namespace\s+(?:::\s*)?cute\s*;")
_OPENED = re.compile(rb"\bnamespace\s+cute\s*\{")


def cpp(section: str, unit: str = "    ", **values: object) -> str:
    """A section with its values, indented as a file is."""
    text = lines(section, "idiom.cuh", **values)
    return re.sub(r"(?m)^(?: {4})+", lambda m: unit * (len(m[0]) // 4), text)


def qualifier(program: Program) -> str:
    """What names of CuTe have in front of them."""
    texts = [f.lexed.plain for f in program.sources.files.values()]
    return "" if any(_USING.search(t) or _OPENED.search(t) for t in texts) else cpp("qualifier")
