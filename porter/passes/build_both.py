# SPDX-License-Identifier: Apache-2.0
"""Options and lists of build files for both chips: Blackwell's stands behind Hopper's, in the manner of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.lang.text import Edit, EditGroup, Safety, Span
from porter.model.spellings import Spellings
from porter.passes.build_variables import Variables

RULE = "PTR231"

_ITEMS = r"[\"'][ \t]*,\s*[bB]?[\"']|[\"'][ \t]+[\"']"
_VALUE = r"code=(?:\[[^\]\n]*\]|\\?\"[\w,]+\\?\"|[\w,]+)"
_OPTION = re.compile(
    rf"(?P<p>\b[bBrRuU]{{1,2}}(?=[\"']))?(?P<q>[\"']?)(?P<name>(?<![\w-])(?:-gencode|--generate-code))"
    rf"(?P<sep>=|[ \t]+|{_ITEMS})(?P<value>arch=compute_90a,{_VALUE})(?P<end>[\"']?)"
)
_SHORT = re.compile(
    rf"(?P<p>\b[bBrRuU]{{1,2}}(?=[\"']))?(?P<q>[\"']?)(?P<name>(?<![\w-])(?:-arch|--gpu-architecture))"
    rf"(?P<sep>=|[ \t]+|{_ITEMS})(?P<value>sm_90a\b)(?P<end>[\"']?)"
)
_SPLIT = re.compile(
    r"(?<![\w-])(?:-arch|--gpu-architecture)(?P<sep>=|[ \t]+)compute_90a[ \t]+-{1,2}(?:gpu-)?code=?[ \t]*sm_90a\b"
)
_APPENDED = re.compile(
    r"^(?P<in>[ \t]*)(?P<call>[\w.]+\.append)\((?P<q>[\"'])-gencode(?P=q)\)\n"
    r"(?P=in)(?P=call)\((?P=q)arch=compute_90a,(?P<code>code=[\w,]+)(?P=q)\)\n",
    re.MULTILINE,
)

_FOLLOWED = re.compile(r"[\s,\"'\\]*(?:-gencode|--generate-code)[\s,=\"']*arch=compute_100a")

_ONE_OUTPUT = re.compile(r"(?<![\w-])--?(?:cubin|ptx)\b")
"""nvcc writes one such file, for one architecture."""


def both_group(
    path: str, text: str, kind: str, variables: Variables, runtime: bool, said: Spellings
) -> tuple[EditGroup | None, list[Span]]:
    """What builds for Hopper builds for both chips; and the options for Hopper behind which those for Blackwell stand
    already. `runtime`: options may be NVRTC's, which compiles for one chip at a time."""
    edits = list(variables.edits)
    settled = []

    def put(start: int, end: int, new: str) -> None:
        if not any(e.span.overlaps(Span(start, end)) or e.span.start == start == end for e in edits):
            edits.append(Edit(path, Span(start, end), new.encode("latin-1")))

    for match in () if runtime else _APPENDED.finditer(text):
        again = match[0].replace("90a", "100a")
        if text.startswith(again, match.end()):
            settled.append(Span(match.start(), match.end()))
        else:
            put(match.start(), match.end(), match[0] + again)
    for match in () if runtime else (*_OPTION.finditer(text), *_SHORT.finditer(text), *_SPLIT.finditer(text)):
        line = logical_line(text, match.start(), match.end())
        if "100a" in line or _FOLLOWED.match(text, match.end()):
            settled.append(Span(match.start(), match.end()))
            continue
        if _ONE_OUTPUT.search(line) or said.stand_in("tool_of_one_target", line):
            continue
        made = _split(match) if match.re is _SPLIT else _options(text, match, kind)
        if made is not None:
            put(match.start(), match.end(), made)
    for place in _listed_places(text, kind, said):
        put(*place)
    if not edits:
        return None, settled
    reason = "Each object holds code for both architectures; the driver takes the one of the device."
    group = EditGroup(RULE, "Architecture options of both chips", Safety.REVIEW, tuple(edits), reason,
                      ("nvcc, Options for steering GPU code generation",))  # fmt: skip
    return group, settled


def logical_line(text: str, start: int, end: int) -> str:
    """The line of a place, with what backslashes join to it."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    while first > 1 and text[first - 2] == "\\":
        first = text.rfind("\n", 0, first - 1) + 1
    while last > 0 and text[last - 1] == "\\":
        last = text.find("\n", last + 1)
    return text[first : last if last >= 0 else len(text)]


# Options ----------------------------------------------------------------------------------------------


def _split(match: re.Match[str]) -> str:
    """-arch=compute_90a -code=sm_90a."""
    return " ".join(f"-gencode{match['sep']}arch=compute_{chip},code=sm_{chip}" for chip in ("90a", "100a"))


def _options(text: str, match: re.Match[str], kind: str) -> str | None:
    """An option for Hopper with the one for Blackwell behind it; None if how they are put together is not known."""
    prefix, quote, sep = match["p"] or "", match["q"], match["sep"]
    is_short = match.re is _SHORT
    name = "-gencode" if is_short else match["name"]
    one = "arch=compute_90a,code=sm_90a" if is_short else match["value"]
    values = (one, one.replace("90a", "100a"))
    if kind == "cmake" and _in_generator_expression(text, match.start()):
        return None
    if sep[0] in "\"'":
        # the option and its value are two words
        if match["end"] != quote or (not _listed_items(text, match, kind) and "," in sep):
            return None
        glue = re.sub(r"[bB]?[\"']", "", sep)
        return glue.join(f"{prefix}{quote}{name}{sep}{value}{quote}" for value in values)
    words = [f"{name}{sep}{value}" for value in values]
    if not quote or match["end"] != quote:
        # among other options of one text, or of a command line
        return f"{prefix}{quote}{' '.join(words)}{match['end']}"
    joined = _joined(text, match, kind)
    return None if joined is None else joined.join([f"{prefix}{quote}{words[0]}", f"{words[1]}{quote}"])


def _joined(text: str, match: re.Match[str], kind: str) -> str | None:
    """What stands between two options of which the first is a whole text in quotes."""
    prefix, quote = match["p"] or "", match["q"]
    before = text[: match.start()].rstrip()[-1:]
    if match["sep"] != "=" or kind == "presets":
        return " "
    if kind in ("python", "bazel", "meson", "package"):
        return f"{quote}, {prefix}{quote}" if _listed_items(text, match, kind) else None
    if kind == "cmake":
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        is_text = re.search(r"\b(?:\w*_FLAGS\w*|COMPILE_FLAGS|string\s*\()", line) and "list(" not in line
        return " " if is_text else f"{quote} {quote}"
    return " " if before in ("=", ":") else f"{quote} {quote}"


_ITEM_CALLS = re.compile(r"(?:\badd_\w+|\bfiles|\barray|^|[\[({=,:\s])$")


def _listed_items(text: str, match: re.Match[str], kind: str) -> bool:
    """Whether a text in quotes is an item of a list: others may stand behind it."""
    after = text[match.end() :].lstrip()[:1]
    depth = 0
    for at in range(match.start() - 1, max(-1, match.start() - 4000), -1):
        char = text[at]
        if char in ")]}":
            depth += 1
        elif char in "[({" and depth:
            depth -= 1
        elif char in "[{":
            return after in (",", "]", "}")
        elif char == "(":
            call = text[max(0, at - 60) : at]
            return after in (",", ")") and _ITEM_CALLS.search(call) is not None
    return False


def _in_generator_expression(text: str, at: int) -> bool:
    return re.search(r"\$<[^\n>]*:[^\n]*$", text[text.rfind("\n", 0, at) + 1 : at]) is not None


# Lists of architectures -------------------------------------------------------------------------------

_LIST = re.compile(
    r"(?P<mid>[^\n]*?[\s\"'=:;,]|[\"':=\s]*(?:\d+[\w-]*[;\s]+)*|[\"']\s*:\s*\{[^{}\n]*\"value\":\s*\")"
    r"(?P<item>(?:sm_)?90a(?:-real|-virtual)?|9\.0a(?:\+PTX)?)(?![\w.-])"
)
_COMPARED = re.compile(
    r"==|!=|=~|\b(?:IN_LIST|MATCHES|STREQUAL|EQUAL|VERSION_EQUAL|AND|OR|NOT)\b|\b(?:in|not|and|or)\s"
)
_CONDITION = {
    "cmake": re.compile(r"\s*(?:else)?(?:if|while)\s*\("),
    "make": re.compile(r"\s*(?:else\s+)?ifn?eq\b"),
    "shell": re.compile(r".*(?:\[|\btest\b)[^\]]*\s=\s*[\"']?$|.*\bcase\b"),
}
"""Lines up to an architecture with which something is held against, by kind of file."""
_LOOP = re.compile(
    r"(?:\bforeach\(\s*\w+\s+(?:IN\s+ITEMS\s+)?|^[ \t]*for\s+\w+\s+in\s+)(?P<mid>(?:\"?[\w.-]+\"?[ \t]+)*)"
    r"(?P<item>(?:sm_)?90a(?:-real|-virtual)?|9\.0a)(?=[ \t);]|$)",
    re.MULTILINE,
)
_ARGUMENT = re.compile(r"(?P<mid>\"?(?:[\d.a-z+]+;)*)(?P<item>9\.0a(?:\+PTX)?)(?=[;\")\s])")
"""Behind what a list of architectures is handed to."""
_BRACKETS = re.compile(
    r"\[(?P<mid>(?:\s*[\"']?(?:sm_)?\d+(?:\.\d)?[a-z]?[\"']?\s*,)+\s*[\"']?|\s*[\"']?(?=\S+\s*,))"
    r"(?P<item>(?:sm_)?90a|9\.0a)(?P<close>[\"']?)(?=\s*[,\]])"
)
"""A list of nothing but architectures, of which there are several."""
_FOREACH = re.compile(
    r"^[ \t]*(?P<name>\w+)[ \t]*[?:]?:?=(?P<mid>[ \t]*(?:(?:sm_)?\d+[a-z]?[ \t]+)*)(?P<item>(?:sm_)?90a)(?=[ \t\n]|$)",
    re.MULTILINE,
)


def _listed_places(text: str, kind: str, said: Spellings) -> list[tuple[int, int, str]]:
    """Where lists of architectures take in Blackwell: start, end, and what stands there."""
    found = []
    for name, match in _behind_words(text, "architecture_list", _LIST, said):
        if not _is_compared(text, match, kind):
            found.append(_after_item(text, name, match, kind))
    for match in _LOOP.finditer(text):
        found.append(_behind(text, match, " " + _other(match["item"])))
    for _, match in _behind_words(text, "architecture_argument", _ARGUMENT, said):
        glue = ";" if text[match.start("item") - 1] in '";' else " "
        found.append(_behind(text, match, glue + _other(match["item"])))
    for match in _BRACKETS.finditer(text):
        if kind in ("python", "bazel", "meson", "workflow", "package"):
            quote = match["close"]
            found.append(_behind(text, match, f", {quote}{_other(match['item'])}{quote}", match.end("close")))
    for match in _FOREACH.finditer(text):
        if kind == "make" and re.search(rf"\$\(foreach \w+,\$[({{]{match['name']}[)}}],", text):
            found.append(_behind(text, match, " " + _other(match["item"])))
    return [place for place in found if place is not None and not _has_other(text, place)]


def _behind_words(text: str, of: str, pattern: re.Pattern[str], said: Spellings) -> Iterator[tuple[str, re.Match[str]]]:
    """Words of a meaning with what matches behind each; a word in such a match is none of its own."""
    done = 0
    for start, end in said.places(of, text):
        match = pattern.match(text, end) if start >= done else None
        if match is not None:
            done = match.end()
            yield text[start:end], match


def _is_compared(text: str, match: re.Match[str], kind: str) -> bool:
    """Whether a list is not given an architecture but held against it: what both chips meet is not known."""
    line = text[text.rfind("\n", 0, match.start("item")) + 1 : match.start("item")]
    condition = _CONDITION.get("shell" if kind in ("docker", "workflow") else kind)
    return _COMPARED.search(match["mid"]) is not None or (condition is not None and condition.match(line) is not None)


def _behind(text: str, match: re.Match[str], added: str, end: int | None = None) -> tuple[int, int, str]:
    """An addition behind the item of a list, as a text in place of the item."""
    start, end = match.start("item"), match.end("item") if end is None else end
    return start, end, text[start:end] + added


def _other(item: str) -> str:
    return item.replace("9.0a", "10.0a").replace("90a", "100a")


def _has_other(text: str, place: tuple[int, int, str]) -> bool:
    """Whether Blackwell stands on the line already."""
    line = text[text.rfind("\n", 0, place[0]) + 1 : (text.find("\n", place[1]) + 1 or len(text) + 1) - 1]
    return re.search(r"(?<![\w.])(?:(?:sm_)?100a|10\.0a)\b", line) is not None


def _after_item(text: str, name: str, match: re.Match[str], kind: str) -> tuple[int, int, str] | None:
    """A list by a known name: where it takes in the other item."""
    item, start, end = match["item"], match.start("item"), match.end("item")
    other = _other(item)
    before, after = text[start - 1 : start], text[end : end + 1]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if before in "\"'" and before == after and kind in ("python", "bazel", "meson", "package") and "[" in match["mid"]:
        return _behind(text, match, f", {before}{other}{before}", end + len(before))
    comma = before == "," or after == "," or "TF_CUDA" in name or "HERMETIC" in name
    separator = "," if comma else ";"
    escaped = re.search(r"\\+[;,]$", text[max(0, start - 8) : start])
    separator = escaped[0] if escaped is not None else separator
    # in a shell a semicolon behind the last item ends the command
    goes_on = re.match(r"[;,]\s*[\"']?(?:sm_)?\d", text[end : end + 12]) is not None
    quoted = len(re.findall(r"[\"']", line)) % 2 == 1
    if quoted and (re.search(r"\d[\w+]*[ \t]+$", line) or re.match(r"[ \t]+(?:sm_)?\d", text[end : end + 12])):
        separator = " "
    if quoted or before in (";", ",") or goes_on:
        return _behind(text, match, separator + other)
    if kind == "cmake":
        # the value of one property is one argument
        return (start, end, f'"{item};{other}"') if "PROPERTIES" in line else _behind(text, match, f" {other}")
    is_command = kind != "make" or line.startswith("\t")
    if kind == "make" and not is_command:
        name = name.removesuffix(":STRING")
        is_used = re.search(rf"\$[({{]{re.escape(name)}[)}}]", text) is not None
        is_exported = re.search(rf"^\s*export\b[^\n]*\b{re.escape(name)}\b", text, re.MULTILINE) is not None
        if "-D" in line:
            return start, end, f'"{item};{other}"'
        # make hands quotes on as they are: a shell takes them away, a program's environment does not
        return None if is_used == is_exported else (start, end, f'"{item};{other}"' if is_used else f"{item};{other}")
    if before in "=: \t" and (kind == "shell" or (is_command and kind == "make")):
        return start, end, f'"{item};{other}"'
    if kind == "workflow":
        return start, end, f'"{item};{other}"'
    if kind == "docker":
        in_shell = re.match(r"\s*(?:RUN|&&)\b|.*\s-D\w+", line) is not None
        return (start, end, f'"{item};{other}"') if in_shell else _behind(text, match, separator + other)
    return _behind(text, match, separator + other) if kind in ("presets", "package", "bazel") else None
