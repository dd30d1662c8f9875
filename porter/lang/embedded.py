# SPDX-License-Identifier: Apache-2.0
"""CUDA source inside string literals: what `load_inline` of PyTorch or NVRTC compile at run time.

A string is read in place: the file with all but the string's content blanked is CUDA source whose offsets and
lines are those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.lang.cuda import CudaFile, find, function_specifiers, parse_cuda
from porter.lang.lexical import blanked
from porter.lang.sources import is_python, read_source
from porter.lang.text import Span

_KERNEL = re.compile(rb"\b__(?:global|device)__\b")
_ESCAPE = re.compile(rb"\\(.|\n)", re.DOTALL)
_PREFIX = re.compile(rb"([A-Za-z]*)(\"\"\"|'''|\"|')")


@dataclass(frozen=True)
class Embedded:
    """One string with CUDA source. `span` is its content in the file; `shadow` is as long as the file.

    `closing` ends the literal and cannot stand in its content. `escaped` says that a backslash is written twice.
    """

    span: Span
    shadow: bytes
    closing: bytes
    escaped: bool

    def literal(self, text: bytes) -> bytes | None:
        """Source text as it is written in the string, or None if this kind of string cannot hold it."""
        if len(self.closing) == 1 and b"\n" in text:
            return None
        written = text.replace(b"\\", b"\\\\") if self.escaped else text
        return None if self.closing in written else written


def is_embedded_source(text: bytes) -> bool:
    """Whether the text of a string is CUDA source with wgmma in it."""
    return b"wgmma" in text and b"asm" in text and _KERNEL.search(text) is not None


def embedded_in_python(path: Path) -> tuple[bytes, list[Embedded]]:
    """A Python file's bytes and the CUDA sources in its strings.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, EMBEDDED_SOURCE (a source in a format string, or with an escape
            that would change its length).
    """
    source = read_source(path)
    if not is_python(path) or not is_embedded_source(source):
        return source, []
    return source, [_python_string(path, source, span) for span in _python_strings(path, source, is_embedded_source)]


def kernel_in_python(path: Path, entry: str) -> bytes | None:
    """The source in a Python file's string that holds the kernel `entry`, blank but for it, for a compiler that has
    no PyTorch: host functions, and includes and declarations of PyTorch, are blank too. None if no string has it.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, EMBEDDED_SOURCE, as `embedded_in_python`.
    """
    source = read_source(path)
    name = re.compile(rb"\b" + entry.rsplit("::", 1)[-1].encode() + rb"\s*\(")

    def holds(text: bytes) -> bool:
        return b"__global__" in text and name.search(text) is not None

    for span in _python_strings(path, source, holds):
        return _device_part(parse_cuda(str(path), _python_string(path, source, span).shadow))
    return None


def device_sources(path: str, source: bytes) -> list[bytes]:
    """The CUDA sources in the strings of a Python file, or in the raw strings of a C++ file, in order, each as
    `kernel_in_python` gives it.

    Raises:
        PorterError: EMBEDDED_SOURCE, NOT_TEXT.
    """
    if is_python(Path(path)):
        spans = list(_python_strings(Path(path), source, lambda text: b"__global__" in text))
        shadows = [_python_string(Path(path), source, span).shadow for span in spans]
    else:
        inside = parse_cuda(path, source).literals("raw_string_content")
        held = [(span, source[span.start : span.end]) for span in inside]
        shadows = [_shadow(source, span, text) for span, text in held if b"__global__" in text]
    return [_device_part(parse_cuda(path, shadow)) for shadow in shadows]


_PYTORCH_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"](?:torch|ATen|c10|pybind11)/[^\n]*", re.MULTILINE)
_PYTORCH_NAME = re.compile(rb"\b(?:torch|at|c10|pybind11)\s*::")
_NAMESPACE_SCOPE = ("translation_unit", "declaration_list", "template_declaration", "linkage_specification")


def _device_part(file: CudaFile) -> bytes:
    text = bytearray(_PYTORCH_INCLUDE.sub(lambda m: blanked(m.group()), file.source))
    for node in find(file.root, "function_definition", "declaration"):
        if node.parent is None or node.parent.type not in _NAMESPACE_SCOPE:
            continue
        body = node.child_by_field_name("body")
        head = file.source[node.start_byte : body.start_byte if body is not None else node.end_byte]
        if node.type == "declaration":
            dropped = _PYTORCH_NAME.search(head) is not None
        else:
            dropped = not function_specifiers(file, node) & _ON_DEVICE and b"constexpr" not in head
        if dropped:
            whole = node.parent if node.parent.type == "template_declaration" else node
            text[whole.start_byte : whole.end_byte] = blanked(file.source[whole.start_byte : whole.end_byte])
    return bytes(text)


_ON_DEVICE = frozenset({"__global__", "__device__"})


def _python_strings(path: Path, source: bytes, wanted: Callable[[bytes], bool]) -> Iterator[Span]:
    # what reads Python takes long to load
    import libcst as cst

    from porter.lang.python import PythonFile

    file = PythonFile(str(path), source)
    try:
        literals = file.nodes(cst.SimpleString, cst.FormattedString)
    except PorterError:
        raise PorterError(Code.NOT_TEXT, Location(str(path)), path=path) from None
    for span, literal in sorted(((file.span(n), n) for n in literals), key=lambda found: found[0]):
        if not wanted(source[span.start : span.end]):
            continue
        if isinstance(literal, cst.FormattedString):
            raise _refused(path, file.line(literal), "it is a format string")
        yield span


def _python_string(path: Path, source: bytes, literal: Span) -> Embedded:
    head = _PREFIX.match(source, literal.start)
    assert head is not None
    prefix, closing = head.group(1).lower(), head.group(2)
    line = source.count(b"\n", 0, literal.start) + 1
    span = Span(head.end(), literal.end - len(closing))
    content = source[span.start : span.end]
    escaped = b"r" not in prefix
    if escaped:
        content = _ESCAPE.sub(lambda m: _unescaped(path, line, m), content)
    return Embedded(span, _shadow(source, span, content), closing, escaped)


def _unescaped(path: Path, line: int, match: re.Match[bytes]) -> bytes:
    """What an escape stands for, with a blank in front of it to keep its length."""
    if match.group(1) not in (b"\\", b'"', b"'"):
        raise _refused(path, line, f"it holds the escape {match.group().decode(errors='replace')!r}")
    after = match.string[match.end() : match.end() + 2]
    if match.group(1) == b"\\" and after == b"\\\\":
        raise _refused(path, line, "it holds two escaped backslashes in a row")
    return b" " + match.group(1)


def embedded_in_cuda(file: CudaFile) -> list[Embedded]:
    """The CUDA sources in raw strings of a C++ file."""
    found = []
    for span in file.literals("raw_string_content"):
        content = file.source[span.start : span.end]
        if is_embedded_source(content):
            # where the literal is not closed, the file ends
            end = (file.source.find(b'"', span.end) + 1) or len(file.source)
            found.append(Embedded(span, _shadow(file.source, span, content), file.source[span.end : end], False))
    return found


def _shadow(source: bytes, span: Span, content: bytes) -> bytes:
    return blanked(source[: span.start]) + content + blanked(source[span.end :])


def _refused(path: Path, line: int, reason: str) -> PorterError:
    return PorterError(Code.EMBEDDED_SOURCE, Location(str(path), line, 1), reason=reason)
