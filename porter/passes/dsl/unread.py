# SPDX-License-Identifier: Apache-2.0
"""What is said of modules that are not found and may hold kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.lang.dsl_modules import Closure, close
from porter.model.dsl.missing import MissingName, missing_names
from porter.model.dsl.names import Names


def modules_not_found(closure: Closure, names: Names) -> list[Diagnostic]:
    """UNRESOLVED_MODULE for each name that comes from nowhere, at its first use."""
    return [_not_found(missing) for missing in missing_names(closure, names)]


def not_found_from(path: Path, names: Names, search: Sequence[Path]) -> list[Diagnostic]:
    """The same for a file and what it imports; nothing for one that cannot be read."""
    try:
        return modules_not_found(close(path, names.dialect, search), names)
    except PorterError:
        return []


def _not_found(missing: MissingName) -> Diagnostic:
    what = f"`{missing.name.rpartition('.')[2]}` is not in it" if missing.there else "it was not found"
    values = {"name": missing.name, "module": missing.module, "what": what}
    return Diagnostic(Code.UNRESOLVED_MODULE, missing.where, values)


def nothing_read(path: str, missing: Sequence[Diagnostic]) -> Diagnostic:
    """MODULE_NOT_READ for a file in which nothing was found, and whose modules are `missing`."""
    names = [str(d.values["name"]) for d in missing]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return Diagnostic(Code.MODULE_NOT_READ, missing[0].where, {"path": path, "names": ", ".join(names[:4]) + more})
