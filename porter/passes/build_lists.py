# SPDX-License-Identifier: Apache-2.0
"""Compiler options whose architecture comes out of a list: a loop, a matrix of jobs, a pattern of a rule.

nvcc takes `-arch=sm_100a` for one more target than it names, in which tcgen05 does not exist. Which element of a list
an option gets is not followed, so it is named where the list has Hopper's architecture.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from porter.lang.text import Span
from porter.model.spellings import Spellings
from porter.passes.build_both import logical_line
from porter.passes.build_variables import OPEN

_OPTION = re.compile(
    r"-{1,2}(?:arch|code|gencode|generate-code|gpu-architecture|gpu-code|gpu-name)\b(?:=|[ \t]+)[^\s,;)\]]*"
)
_ELEMENT = re.compile(r"(?<![\w.])(?:sm_)?90a(?![\w.])")
_STEM = re.compile(r"(?<![\w.])\w+_90a(?![\w.])")
"""A target of make whose last part a pattern rule takes as `$*`."""
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|//)[^\n]*", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")


def options_of_lists(text: str, edits: Collection[Span], said: Spellings) -> list[int]:
    """Where options of nvcc begin that may get Hopper's architecture from a list, without those in `edits`."""
    code = _COMMENT.sub(lambda m: " " * len(m[0]), text)
    rest = _OPTION.sub(" ", code)
    listed, stem = _ELEMENT.search(rest) is not None, _STEM.search(rest) is not None
    if not listed and not stem:
        return []
    inside = {at for span in edits for at in range(span.start, span.end)}
    another: dict[str, bool] = {}
    found = []
    for match in OPEN.finditer(code):
        at, line = match.start(), code[match.start() : code.find("\n", match.start()) + 1 or len(code)]
        if not (listed or match[0].endswith("$*")) or at in inside:
            continue
        if said.stand_in("tool_of_one_target", logical_line(text, at, match.end())):
            continue
        value = line[len(match[0]) - 1 :]
        name = _NAME.search(value)
        if name is not None and name[0] not in another:
            another[name[0]] = _has_another(name[0], code)
        if name is None or not another[name[0]]:
            found.append(at)
    return found


def _has_another(name: str, code: str) -> bool:
    """Whether a variable is given one architecture, which is not Hopper's, and nothing else."""
    given = re.findall(rf"(?<![\w$.]){name}[ \t]*[?:]?:?=(?!=)[ \t]*([^\n]*)", code)
    return bool(given) and all(re.fullmatch(r"[\"']?(?:sm_)?\d+[a-z]?[\"']?\s*", g) and "90a" not in g for g in given)
