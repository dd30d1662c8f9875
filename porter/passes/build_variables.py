# SPDX-License-Identifier: Apache-2.0
"""Compiler options of build files that take the architecture from a variable.

nvcc takes `-arch=sm_100a` for one more target than it names, in which tcgen05 does not exist; so an option whose
variable may hold Hopper's architecture becomes -gencode, or is listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from porter.lang.text import Edit, Span

_NAME = r"\$\(\w+\)|\$\{\w+\}|\$\w+|\{\{\s*\w+\s*\}\}|\{\w+\}"
_OPTION = re.compile(
    rf"(?<![\w-])(?:-arch|--gpu-architecture)(?P<sep>=|[ \t]+)(?P<q>\\?[\"']?)(?P<sm>sm_)?(?P<name>{_NAME})(?P=q)"
    r"(?![\w.(\[])"
)
_PAIR = re.compile(
    rf"(?<![\w-])(?P<option>-gencode|--generate-code)(?P<sep>=|[ \t]+)(?P<q>[\"']?)"
    rf"arch=compute_(?P<name>{_NAME}),code=(?P<code>sm|compute)_(?P=name)(?P=q)(?![\w.])"
)
_GIVEN = re.compile(
    r"(?<!\$)(?<!\$[({])(?<![\w-])(\w+)[\"']?\s*(?:[?:+]?=|:(?!=)|[ \t])\s*[\"']?(?:\$\{\w+:-)?(sm_)?90a\b(?![\w-])",
)
_TARGETS = re.compile(r"\bCUDA_ARCHITECTURES\s+\"?(?P<name>\$\{\w+\})\"?")
OPEN = re.compile(
    r"(?<![\w-])(?:-arch|--gpu-architecture)(?:=|[ \t]+)\\?[\"']?(?:sm_)?"
    r"(?:[\"']\s*[+%]|%s|\{[^}\n]*\}|@\d@|\$[\w({*])"
)
"""An option whose value is not all there to read."""

_VIRTUAL: Mapping[str, Callable[[str], str]] = {
    "make": lambda v: f"$(subst sm_,compute_,{v})",
    "shell": lambda v: f"compute_${{{v.strip('${}')}#sm_}}",
    "python": lambda v: f"{{{v.strip('{}')}.replace('sm_', 'compute_')}}",
    "just": lambda v: "{{replace(" + v.strip("{} ") + ", 'sm_', 'compute_')}}",
}
"""The virtual architecture of a variable that holds a real one such as sm_100a."""

Given = Mapping[str, frozenset[str]]
"""Variables that may hold Hopper's architecture, with how it is written: `sm_` for sm_90a, nothing for 90a."""


@dataclass
class Variables:
    """Edits of one file, and the places of options that nothing could be made of."""

    edits: list[Edit] = field(default_factory=list)
    open: list[int] = field(default_factory=list)


def given_hopper(texts: Iterable[str]) -> Given:
    """The variables that build files of one project give Hopper's architecture."""
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        for match in _GIVEN.finditer(text):
            found[match[1]] = found.get(match[1], frozenset()) | {match[2] or ""}
    return found


def ported_variables(path: str, text: str, kind: str, given: Given) -> Variables:
    """Options for the port alone."""
    result = Variables()
    for match in _OPTION.finditer(text):
        name, form = _bare(match["name"]), match["sm"] or ""
        # what the option itself puts in front does not stand in the variable
        if ("" if form else "sm_") not in given.get(name, ()):
            continue
        pair = _pair_of(text, match, kind, "100a")
        if pair is not None:
            new = f"-gencode{match['sep']}{match['q']}{pair}{match['q']}"
            result.edits.append(Edit(path, Span(match.start(), match.end()), new.encode("latin-1")))
    result.open = _still_open(text, result.edits, given)
    return result


def _pair_of(text: str, match: re.Match[str], kind: str, value: str) -> str | None:
    """The targets of -gencode for an option with a variable; None if the kind of file cannot say them."""
    variable = match["name"]
    if kind == "python" and not _is_format(text, match.start()):
        return None
    if match["sm"]:
        return f"arch=compute_{variable},code=sm_{variable}" if kind != "meson" else None
    if kind == "cmake":
        plain = _assignments(text, _bare(variable), kind)
        return f"arch=compute_{value},code={variable}" if plain == ["sm_90a"] else None
    language = "just" if variable.startswith("{{") else "shell" if kind in ("docker", "workflow") else kind
    made = _VIRTUAL.get(language)
    return None if made is None else f"arch={made(variable)},code={variable}"


def _still_open(text: str, edits: list[Edit], given: Given) -> list[int]:
    """Where options remain whose variable may hold Hopper's architecture, or that are put together."""
    found = []
    for match in OPEN.finditer(text):
        if any(e.span.start <= match.start() < e.span.end for e in edits):
            continue
        name = re.search(r"\w+", text[text.index("arch", match.start()) :].split("=", 1)[-1].replace("sm_", "", 1))
        if "+" in match[0] or "%" in match[0] or "@" in match[0] or (name is not None and name[0] in given):
            found.append(match.start())
    return found if given else []


def _bare(variable: str) -> str:
    return variable.strip("$(){} ")


def _is_format(text: str, at: int) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return re.search(r"\b[fF][rR]?[\"'][^\"']*$", line) is not None


# Both chips -------------------------------------------------------------------------------------------


def variables_of_both(path: str, text: str, kind: str, given: Given) -> Variables:
    """Options and variables for both chips: the variable becomes a list, the option one for each of its elements.

    Only where the variable's values are architectures alone, and nothing but options uses it.
    """
    result = Variables()
    for name in given:
        patterns = (_OPTION, _PAIR, _TARGETS) if kind == "cmake" else (_OPTION, _PAIR)
        options = [m for pattern in patterns for m in pattern.finditer(text) if _bare(m["name"]) == name]
        edits = _list_edits(path, text, kind, name, options) if options else None
        result.edits += edits or []
    result.open = _still_open(text, result.edits, given)
    return result


def _list_edits(path: str, text: str, kind: str, name: str, options: list[re.Match[str]]) -> list[Edit] | None:
    values = _assignments(text, name, kind)
    forms = {re.sub(r"\d+[a-z]?$", "", value) for value in values}
    uses = sum(len(re.findall(re.escape(use), text)) for use in (f"$({name})", f"${{{name}}}")) + len(
        re.findall(rf"\${name}\b", text)
    )
    in_options = sum(m[0].count(m["name"]) for m in options)
    if forms not in ({""}, {"sm_"}) or uses != in_options or sum(v.endswith("90a") for v in values) != 1:
        return None
    form = forms.pop()
    edits = []
    targets = [match for match in options if match.re is _TARGETS]
    if targets and len(targets) < len(options):
        return None
    for match in targets:
        # the value of one property is one argument
        if '"' not in match[0]:
            quoted = match[0].replace(match["name"], f'"{match["name"]}"')
            edits.append(Edit(path, Span(match.start(), match.end()), quoted.encode("latin-1")))
    for match in options if not targets else ():
        own = match["sm"] if match.re is _OPTION else "sm_"
        made = None if (own or "") == form or _is_one_word(text, match, kind) else _each(match, kind, form)
        if made is None:
            return None
        edits.append(Edit(path, Span(match.start(), match.end()), made.encode("latin-1")))
    at = next(m for m in _assigned(name, kind).finditer(text) if m["value"].endswith("90a"))
    both = f"{form}90a {form}100a"
    if kind == "cmake":
        both = "90a;100a" if targets else f"{form}90a"
    if kind in ("shell", "docker") and text[at.start("value") - 1] not in "\"'":
        both = f'"{both}"'
    where = Span(at.start("value"), at.end("value"))
    return [*edits, Edit(path, where, both.encode("latin-1"))]


def _each(match: re.Match[str], kind: str, form: str) -> str | None:
    """An option for each element of the list that its variable becomes."""
    name, sep = match["name"], match["sep"]
    code = match["code"] if match.re is _PAIR else "sm"
    if kind == "make":
        chip = "$(subst sm_,,$(arch))" if form else "$(arch)"
        return f"$(foreach arch,{name},-gencode{sep}arch=compute_{chip},code={code}_{chip})"
    if kind == "shell" or (kind == "docker" and not match["q"]):
        chip = "${arch#sm_}" if form else "$arch"
        return f'$(for arch in {name}; do echo "-gencode{sep}arch=compute_{chip},code={code}_{chip}"; done)'
    if kind == "cmake" and not match["q"]:
        again = [f"-gencode{sep}arch=compute_{chip},code={code}_{chip}" for chip in ("90a", "100a")]
        return " ".join(again)
    return None


def _is_one_word(text: str, match: re.Match[str], kind: str) -> bool:
    """Whether an option stands in quotes that CMake keeps together for the compiler."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    return kind == "cmake" and line.count('"') % 2 == 1 and re.search(r"_FLAGS\w*\s|SHELL:", line) is None


def _assigned(name: str, kind: str) -> re.Pattern[str]:
    """Assignments of one architecture to a variable, and of nothing else in the same line."""
    value = r"[\"']?(?P<value>(?:sm_)?\d+[a-z]?)[\"']?"
    if kind == "cmake":
        return re.compile(rf"\bset\(\s*{name}\s+{value}\s*\)")
    head = r"^[ \t]*(?:(?:export|override|readonly|local|ARG|ENV)[ \t]+)?"
    return re.compile(rf"{head}{name}[ \t]*[?:]?:?=[ \t]*{value}[ \t]*(?:#.*)?$", re.MULTILINE)


def _assignments(text: str, name: str, kind: str) -> list[str]:
    """The values that a variable gets, those that are no architecture among them."""
    found = [m["value"] for m in _assigned(name, kind).finditer(text)]
    head = rf"\bset\(\s*{name}\b" if kind == "cmake" else rf"(?<![\w$]){name}[ \t]*(?:[?:+]?:?=)(?!=)"
    other = len(re.findall(head, text)) - len(found)
    more = len(re.findall(rf"\b(?:foreach|list)\s*\(\s*(?:\w+\s+)?{name}\b|\bfor\s+{name}\s+in\b", text))
    return found + ["?"] * (other + more)
