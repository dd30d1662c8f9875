# SPDX-License-Identifier: Apache-2.0
"""Calls and the functions that they reach, as clang sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PRELUDE = Path(__file__).with_name("cuda_prelude.h")
_OPTIONS = (
    "-x cuda --cuda-device-only --cuda-gpu-arch=sm_90a -nocudainc -nocudalib -nostdinc -std=c++20 -ferror-limit=0 -w"
)
_MISSING = re.compile(r"'([^']+)' file not found")

Place = tuple[str, int]
"""A file's real path, and a byte offset in it."""


@dataclass
class Seen:
    """`called` has, by the place of the name in a call, the function that it reaches, as a number; `overloaded` those
    that it may reach where templates leave that open. `functions` has the numbers by the place of a declared name."""

    called: dict[Place, int] = field(default_factory=dict)
    overloaded: dict[Place, set[int]] = field(default_factory=dict)
    functions: dict[Place, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def ask_clang(root: Path, stubs: Path, include_dirs: tuple[Path, ...] = ()) -> Seen:
    """Parse one file. Headers that are not at hand are taken for empty ones in `stubs`."""
    import clang.cindex as ci

    arguments = [*_OPTIONS.split(), "-include", str(PRELUDE), f"-I{stubs}", *(f"-I{d}" for d in include_dirs)]
    index = ci.Index.create()
    for _ in range(40):
        unit = index.parse(str(root), args=arguments)
        missing = {m[1] for d in unit.diagnostics if (m := _MISSING.search(d.spelling))}
        if not missing:
            break
        for name in missing:
            stub = stubs / name
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text("")
    seen = Seen(errors=[str(d) for d in unit.diagnostics if d.severity >= ci.Diagnostic.Error])
    numbers: dict[str, int] = {}
    defined: set[str] = set()
    declared = {
        ci.CursorKind.FUNCTION_DECL,
        ci.CursorKind.FUNCTION_TEMPLATE,
        ci.CursorKind.CXX_METHOD,
        ci.CursorKind.CONSTRUCTOR,
    }
    places: dict[str, str] = {}

    def place(cursor: Any) -> Place | None:
        at = cursor.location
        if at.file is None:
            return None
        name = at.file.name
        if name not in places:
            places[name] = str(Path(name).resolve())
        return places[name], at.offset

    cursors = [c for c in _walk(unit.cursor) if _has_kind(c)]
    for cursor in cursors:
        at = place(cursor) if cursor.kind in declared else None
        if at is not None:
            name = cursor.get_usr()
            if cursor.is_definition() and name in defined:
                # templates that differ by what they require have one name
                name += str(at)
            elif cursor.is_definition():
                defined.add(name)
            seen.functions[at] = numbers.setdefault(name, len(numbers))
    for cursor in cursors:
        if cursor.kind in (ci.CursorKind.DECL_REF_EXPR, ci.CursorKind.MEMBER_REF_EXPR):
            target = cursor.referenced
            if target is not None and target.kind in declared:
                at, home = place(cursor), place(target)
                if at is not None and home in seen.functions:
                    seen.called[at] = seen.functions[home]
        elif cursor.kind == ci.CursorKind.CALL_EXPR:
            # a call of an object names the object
            target = cursor.referenced
            if target is not None and target.spelling == "operator()" and place(target) in seen.functions:
                start = cursor.extent.start
                if start.file is not None:
                    at = (str(Path(start.file.name).resolve()), start.offset)
                    seen.called[at] = seen.functions[place(target)]
        elif cursor.kind == ci.CursorKind.OVERLOADED_DECL_REF:
            at = place(cursor)
            count = ci.conf.lib.clang_getNumOverloadedDecls(cursor)
            homes = {place(ci.conf.lib.clang_getOverloadedDecl(cursor, i)) for i in range(count)}
            if at is not None:
                seen.overloaded.setdefault(at, set()).update(seen.functions[h] for h in homes if h in seen.functions)
    return seen


def _has_kind(cursor: Any) -> bool:
    """The bindings do not know the newest kinds of the library."""
    try:
        return cursor.kind is not None
    except ValueError:
        return False


def _walk(cursor: Any) -> Any:
    stack = [cursor]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.get_children())
