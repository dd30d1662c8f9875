# SPDX-License-Identifier: Apache-2.0
"""Arguments of templates in host code: which a function is instantiated with, and which nothing tells."""

from __future__ import annotations

import re

from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.scan.draft import classes as cls
from porter.scan.draft.values import Scope

_ON_HOST = (Style.HOST, Style.DEVICE, Style.METHOD)


def instantiated(program: Program, function: Function) -> dict[str, str]:
    """The template arguments of a function's first explicit instantiation, by the names of its parameters."""
    pattern = rf"\btemplate\s+[\w:]+[\s&*]+(?:\w+::)*{function.name}\s*<([^;()]*)>\s*\("
    for file in program.sources.files.values() if function.template_params else ():
        found = re.search(pattern, file.lexed.plain.decode("utf-8", "replace"))
        given = cls.split_arguments(found[1]) if found is not None else []
        if len(given) == len(function.template_params):
            return dict(zip(function.template_params, given, strict=True))
    return {}


def filled(text: str, scope: Scope) -> str:
    """A type with what the parameters of templates among its arguments stand for."""
    if "<" not in text:
        return text
    return re.sub(r"(?<![:\w])[A-Za-z_]\w*(?!\w|\s*::)", lambda m: scope.type_of(m.group()) or m.group(), text)


def is_open(text: str, program: Program, classes: cls.Classes) -> bool:
    """Whether a template argument is made of a parameter of host code, or of a variable of it."""
    if "decltype" in text:
        return True
    names = {n for f in program.functions if f.style in _ON_HOST for n in f.template_params}
    words = set(re.findall(r"(?<![:\w])[A-Za-z_]\w*", text)) & names
    return any(classes.find(word) is None and word not in classes.aliases for word in words)
