# SPDX-License-Identifier: Apache-2.0
"""Naming kernels: from a C++ name with template arguments to the mangled name of a PTX entry.

The compiler itself is asked. The translation unit instantiates a variable template with the kernel's address
as argument, so the variable's mangled name holds the kernel's. Only the back references (`S_`, `S0_`, …:
Itanium C++ ABI 5.1.10) differ, by the number of components that the variable's own name adds in front.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from porter.diagnostics import Location

_LONGEST = 60
"""Characters of a name, or of the arguments in one, that a message shows."""
_LONG_MESSAGE = 160
_PROBE = "porter_entry_probe"
_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)?\.entry\s+([A-Za-z_$][\w$]*)", re.MULTILINE)
_VARIABLE = re.compile(rf"^[^\n]*\.global[^\n]*?\b(\w*{_PROBE}\w*)[^\n]*;[^\n]*\n", re.MULTILINE)
_REFERENCE = re.compile(r"S([0-9A-Z]*)_")
_HEAD = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/|\s+|\\\n)|(?P<word>[A-Za-z_]\w*)|(?P<open>[(<\[])|(?P<end>[{};=]|$|\n[ \t]*#)|.",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\\\n]|\\.)*", re.MULTILINE | re.DOTALL)
_CLOSES = {"(": ")", "<": ">", "[": "]"}
_BEHIND = ("noexcept", "requires", "const")
"""Words behind the parameters of a function."""


def probe_text(kernel: str, looked_up_in: Sequence[str] = ()) -> str:
    """C++ (17 or later) that instantiates `kernel`, a name or template-id, and records its address.

    The name is looked up in the given namespaces too.
    """
    directives = "".join(f"using namespace {name};\n" for name in looked_up_in)
    return (
        directives + f"template <auto* Kernel> __device__ int {_PROBE};\ntemplate __device__ int {_PROBE}<&{kernel}>;\n"
    )


def entries(ptx: str) -> tuple[str, ...]:
    """Mangled names of the kernels in a PTX text, in order."""
    return tuple(dict.fromkeys(_ENTRY.findall(ptx)))


def take_probe(ptx: str) -> tuple[str, str | None]:
    """The PTX without the probe variable, and the variable's mangled name if there was one."""
    found = _VARIABLE.search(ptx)
    return (_VARIABLE.sub("", ptx), found.group(1)) if found else (ptx, None)


def matching(probe: str, candidates: Iterable[str]) -> list[str]:
    """The entries whose mangled name the probe variable's name holds."""
    start = probe.find("L_Z", probe.index(_PROBE))
    if start < 0:
        return []
    inside = probe[start + 1 :].rstrip("E")
    return [name for name in candidates if _same(inside, name)]


def _same(inside: str, name: str) -> bool:
    # `extern "C"` kernels are emitted unmangled, static ones without the L of internal linkage.
    if not name.startswith("_Z"):
        return inside.startswith(f"_Z{len(name)}{name}") or inside.startswith(f"_ZL{len(name)}{name}")
    inside = re.sub(r"^_ZL(?=\d)", "_Z", inside)
    name = re.sub(r"^_ZL(?=\d)", "_Z", name)
    mine, theirs = _REFERENCE.split(inside)[::2], _REFERENCE.split(name.rstrip("E"))[::2]
    if mine != theirs:
        return False
    shifts = {
        _sequence(a) - _sequence(b) for a, b in zip(_REFERENCE.findall(inside), _REFERENCE.findall(name), strict=True)
    }
    return len(shifts - {0}) <= 1


def _sequence(digits: str) -> int:
    return int(digits, 36) + 1 if digits else 0


def kernel_names(source: str) -> list[str]:
    """Names of the `__global__` functions that a C++ text writes out, for messages."""
    return list(kernel_lines(source))


def kernel_lines(source: str) -> dict[str, int]:
    """The line, counted from 1, on which the name of each of them stands first."""
    found: dict[str, int] = {}
    macros = [m.span() for m in _DIRECTIVE.finditer(source)]
    for match in re.finditer(r"\b__global__\b", source):
        if any(start <= match.start() < end for start, end in macros):
            continue
        at = _name_in_head(source, match.end())
        if at is not None:
            found.setdefault(at[0], source.count("\n", 0, at.start()) + 1)
    return found


def kernel_place(path: str, kernel: str) -> Location:
    """Where a file writes out a kernel, which may be mangled; the file alone where it does not."""
    line = 0
    with suppress(OSError):
        line = kernel_lines(Path(path).read_text("utf-8", "replace")).get(function_name(kernel), 0)
    return Location(path, line)


def _name_in_head(source: str, at: int) -> re.Match[str] | None:
    """The name of the function whose head goes on at `at`: the word in front of the last parentheses, which are those
    of its parameters. Attributes, and macros that stand for some, are in front of it."""
    found = before = None
    while (token := _HEAD.match(source, at)) is not None and token.lastgroup != "end":
        at = token.end()
        if token.lastgroup == "word":
            if found is not None and token[0] in _BEHIND:
                break
            before = token
        elif token.lastgroup == "open":
            at = _closed(source, token.start())
            if token[0] == "(":
                # two pairs in a row: a macro makes the name
                found, before = before, None
        elif token.lastgroup != "comment":
            before = None
        if at < 0:
            return None
    return found if found is not None and not re.fullmatch(r"__\w+__", found[0]) else None


def _closed(source: str, at: int) -> int:
    """Behind what closes the bracket at `at`; -1 if nothing does."""
    open_, close, depth = source[at], _CLOSES[source[at]], 0
    while at < len(source):
        if source[at] == open_:
            depth += 1
        elif source[at] == close:
            depth -= 1
            if not depth:
                return at + 1
        elif source[at] == "(":
            at = _closed(source, at)
            if at < 0:
                return -1
            continue
        at += 1
    return -1


def opened_namespaces(source: str) -> list[str]:
    """The named namespaces that a C++ text opens, in order, each nested one after the one around it."""
    return list(dict.fromkeys(re.findall(r"\bnamespace\s+([A-Za-z_][\w:]*)\s*\{", source)))


def named(candidates: Sequence[str], name: str) -> list[str]:
    """The entries whose function is called `name`, in whatever namespace and with whatever arguments."""
    wanted = re.compile(r"(?:^|::|\s)" + re.escape(name) + r"(?:<.*>)?\s*(?:\(|$)", re.DOTALL)
    return [c for c in candidates if c == name or wanted.search(without_arguments(demangle(c)))]


def without_arguments(demangled: str) -> str:
    """The part before the parameter list."""
    depth = 0
    for at, char in enumerate(demangled):
        if char == "<":
            depth += 1
        elif char == ">":
            depth -= 1
        elif char == "(" and depth == 0 and not demangled.startswith("(anonymous namespace)", at):
            return demangled[: at + 1]
    return demangled


def function_name(mangled: str) -> str:
    """The function's own name, without namespaces, template arguments and parameters."""
    text, depth, kept = without_arguments(demangle(mangled)).rstrip("( "), 0, ""
    for char in text:
        depth += (char == "<") - (char == ">")
        kept += char if depth == 0 and char != ">" else ""
    return re.split(r"::|\s", kept)[-1]


def display_name(mangled: str) -> str:
    """A function as people write it, with namespaces and template arguments, without result and parameters."""
    return without_arguments(demangle(mangled)).removesuffix("(").removeprefix("void ")


def kernel_name(mangled: str) -> str:
    """As people write it, without arguments, and no longer than a line can bear."""
    name = display_name(mangled)
    return name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "..."


def demangled(text: str) -> str:
    """A text with the mangled names in it as people read them."""
    return re.sub(r"\b_Z\w+", lambda match: display_name(match[0]), text)


def readable(text: str) -> str:
    """A message as a line can bear it: mangled names as people read them, and of names that are too long neither
    template arguments nor parameters."""
    text = demangled(text)
    if len(text) <= _LONG_MESSAGE:
        return text
    kept, at = "", 0
    for match in re.finditer(r"\w<", text):
        end = _closed(text, match.end() - 1) if match.start() >= at else -1
        if end - match.end() <= _LONGEST:
            continue
        kept, at = f"{kept}{text[at : match.end()]}...>", end
        close = _closed(text, at) if text.startswith("(", at) else -1
        if close - at > _LONGEST:
            kept, at = f"{kept}(...)", close
    # no path is cut
    return re.sub(rf"[^\s/]{{{_LONG_MESSAGE},}}", lambda m: f"{m[0][: _LONG_MESSAGE - 3]}...", kept + text[at:])


@cache
def demangle(name: str) -> str:
    """The C++ name as people read it; `name` itself where the platform cannot demangle."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if text and status.value == 0:
            try:
                return (ctypes.string_at(text)).decode("utf-8", "replace")
            finally:
                ctypes.CDLL(None).free(ctypes.c_void_p(text))
    except (OSError, AttributeError):
        pass
    if tool := shutil.which("c++filt"):
        done = subprocess.run([tool, name], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return name
