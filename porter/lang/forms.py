# SPDX-License-Identifier: Apache-2.0
"""Sources that hold a form for each chip, as ports that keep Hopper do: what of them is not for Blackwell."""

from __future__ import annotations

import re
from dataclasses import replace

from porter.lang.cuda import CudaFile, parse_cuda
from porter.lang.lexical import blanked
from porter.lang.preprocessor import line_end
from porter.lang.sources import SourceSet
from porter.ptx.arch import PORT_TARGETS, PortTarget

_MACROS = tuple(t.macro.encode() for t in PORT_TARGETS)
_MACRO = b"(?:%b)" % b"|".join(_MACROS)
_OPENS = re.compile(
    rb"[ \t]*#[ \t]*(?:if[ \t]+defined[ \t]*(?:\([ \t]*%b[ \t]*\)|[ \t]%b)|ifdef[ \t]+%b)[ \t]*(?:/[/*][^\n]*)?$"
    % (_MACRO, _MACRO, _MACRO)
)
_WORD = re.compile(rb"[ \t]*#[ \t]*(\w+)")


def condition(target: PortTarget) -> bytes:
    """Holds where nvcc and NVRTC compile for a target (CUDA C++ Programming Guide, Feature-specific macros)."""
    return b"defined(%s)" % target.macro.encode()


def without_other_forms(sources: SourceSet) -> SourceSet:
    """The set without the branches that a compilation for a port's chip does not take because it takes their sisters;
    offsets stay. The same object if there are none."""
    files = {path: without_other_form(file) for path, file in sources.files.items()}
    if all(files[path] is file for path, file in sources.files.items()):
        return sources
    return replace(sources, files=files)


def without_other_form(file: CudaFile) -> CudaFile:
    """As `without_other_forms`, of one file."""
    if not any(macro in file.source for macro in _MACROS):
        return file
    source, text = file.source, bytearray(file.source)
    open_: list[tuple[bool, int | None]] = []
    for directive in file.lexed.directives:
        match = _WORD.match(source, directive.start)
        word = match[1] if match else b""
        if word in (b"if", b"ifdef", b"ifndef"):
            open_.append((_OPENS.fullmatch(source, directive.start, directive.end) is not None, None))
        elif word in (b"else", b"elif", b"elifdef", b"elifndef", b"endif") and open_:
            chosen, start = open_[-1]
            if chosen and start is None and word != b"endif":
                open_[-1] = chosen, line_end(source, directive.end - 1)
            if word == b"endif":
                open_.pop()
                if start is not None:
                    text[start : directive.start] = blanked(source[start : directive.start])
    return file if bytes(text) == source else parse_cuda(file.path, bytes(text), file.known)
