# SPDX-License-Identifier: Apache-2.0
"""What of a file set was not understood, as diagnostics: nothing is skipped in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from porter.diagnostics import Code, Diagnostic
from porter.lang.asm import AsmStatement, asm_in_macro, asm_statements, macro_definitions, unread_asm
from porter.lang.cuda import CudaFile
from porter.lang.sources import SourceSet

_MATTERS = re.compile(rb"\bwgmma\b|\b__global__\b|\b(?:asm|__asm__)\b|\bsetmaxnreg\b|\bSM90_\w+|\bwarpgroup_\w+")
"""Words that make an unparsed region one that a port may depend on."""
_NAMED = 5
"""Missing headers that a summary names."""


def reading_findings(sources: SourceSet) -> list[Diagnostic]:
    """Diagnostics for all files of the set: headers that were not found; then, in file order, asm statements and PTX
    that could not be read and unparsed regions that hold code a port may depend on."""
    found: list[Diagnostic] = []
    for file in sources.files.values():
        found += sorted(_of_file(file, sources.string_macros), key=lambda d: d.where.start if d.where else 0)
    return missing_includes(sources) + found


def missing_includes(sources: SourceSet) -> list[Diagnostic]:
    """UNRESOLVED_INCLUDE for each header of the project that was not found, in the order of the files."""
    found = []
    for missing in sources.missing:
        include = missing.include
        values = {
            "name": include.text,
            "searched": ", ".join(missing.searched) or "any directory of -I (none was given)",
            "hint": f"; -I {missing.hint} would find it" if missing.hint else "",
        }
        found.append(Diagnostic(Code.UNRESOLVED_INCLUDE, sources.files[include.path].location(include.span), values))
    return found


def not_read(path: str, missing: Sequence[Diagnostic]) -> Diagnostic:
    """INCLUDE_NOT_READ for a file in which nothing was found, and whose headers are `missing`."""
    names = list(dict.fromkeys(str(d.values["name"]) for d in missing))
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    were = "was" if len(names) == 1 else "were"
    values = {"path": path, "count": len(names), "were": were, "names": shown}
    return Diagnostic(Code.INCLUDE_NOT_READ, missing[0].where, values)


def _of_file(file: CudaFile, macros: Mapping[str, str]) -> Iterator[Diagnostic]:
    for where in unread_asm(file):
        yield Diagnostic(Code.UNREAD_ASM, file.location(where))
    statements: list[AsmStatement] = asm_statements(file, macros)
    for macro in macro_definitions(file):
        statements += asm_in_macro(file, macro, macros)
    for statement in statements:
        # Only wgmma stops working on the new architecture; other text that is not read stays as it is.
        if statement.ptx is None and "wgmma" in statement.template:
            yield Diagnostic(Code.UNREAD_PTX, statement.where, {"reason": statement.ptx_error})
    for region in file.unparsed:
        if _MATTERS.search(file.lexed.code, region.start, region.end):
            yield Diagnostic(Code.UNPARSED_REGION, file.location(region), {"count": len(region)})
