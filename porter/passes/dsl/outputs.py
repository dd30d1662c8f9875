# SPDX-License-Identifier: Apache-2.0
"""The files of a port: changed modules in their places, copies of installed ones, the support module."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cute_dsl import SUPPORT
from porter.lang.dsl_modules import Closure, Module
from porter.rules.load import mappings_directory

_COPY = "# Part of a port to sm_100a: the modules beside this file changed, all others are those of {0}.\nimport {0}\n"
_SCAFFOLD = """\
# Part of a port to sm_100a: modules that are not here come from the package that was ported.
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
"""


@cache
def support_module() -> bytes:
    """The module that every port of CuTe DSL imports."""
    return (mappings_directory() / "emit" / f"{SUPPORT}.py").read_bytes()


def copied_name(name: str) -> str:
    """The name of the copy of an installed module."""
    top, dot, rest = name.partition(".")
    return f"{top}_sm100{dot}{rest}"


def _beside(closure: Closure, name: str) -> Path:
    """A new file where the project's imports find it, as the user would name it."""
    root = Path(closure.root.path)
    depth = len(closure.root.name.split(".")) - (root.name != "__init__.py")
    directory = root.parent
    for _ in range(depth):
        directory = directory.parent if directory.name not in ("", "..") else directory / ".."
    return directory / name


def place_of(closure: Closure, module: Module) -> Path:
    """Where the copy of an installed module goes."""
    parts = copied_name(module.name).split(".")
    package = Path(module.path).name == "__init__.py"
    return _beside(closure, str(Path(*parts, "__init__.py") if package else Path(*parts[:-1], parts[-1] + ".py")))


def written(
    closure: Closure, places: Mapping[str, str], patched: AbstractSet[str], ported: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[str, bytes], list[Diagnostic]]:
    """All files of a port, the scaffold that it needs away from the originals, and what has to be said."""
    files, said = dict(ported), []
    for name, path in places.items():
        module = closure.modules[name]
        changed = ported[path] != module.file.source
        if module.own:
            if changed and module is not closure.root:
                said.append(Diagnostic(Code.DSL_PATCHED, Location(path), {"module": name, "path": path}))
            continue
        how = "ported" if name in patched else "with its imports changed"
        values = {"module": name, "path": path, "how": how, "source": module.path}
        said.append(Diagnostic(Code.DSL_COPIED, None, values))
        files |= {p: t for p, t in _packages(closure, name).items() if p not in ported}
    support = str(_beside(closure, f"{SUPPORT}.py"))
    there = Path(support)
    if there.is_file() and there.read_bytes() != support_module():
        said.append(Diagnostic(Code.DSL_SUPPORT_TAKEN, Location(support), {"path": support}))
    files[support] = support_module()
    return files, _scaffold(closure, files), said


def _packages(closure: Closure, name: str) -> dict[str, bytes]:
    """An `__init__.py` for each package on the way to a copy: it runs the original's."""
    module, parts = closure.modules[name], name.split(".")
    original, found = Path(module.path).parent, {}
    if Path(module.path).name == "__init__.py":
        original = original.parent
    for i in range(len(parts) - 1, 0, -1):
        package = ".".join(parts[:i])
        if (original / "__init__.py").is_file():
            path = _beside(closure, str(Path(*copied_name(package).split("."), "__init__.py")))
            found[str(path)] = _COPY.format(package).encode()
        original = original.parent
    return found


def _scaffold(closure: Closure, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What stands for the `__init__.py` of the project's packages: the originals import all of the package."""
    found: dict[str, bytes] = {}
    top = _beside(closure, "x").parent
    for module in closure.modules.values():
        directory = Path(module.path).parent
        while module.own and directory != top and len(directory.parts) > len(top.parts):
            path = directory / "__init__.py"
            if path.is_file() and str(path) not in files:
                found[str(path)] = path.read_bytes() if _imports_nothing(path) else _SCAFFOLD.encode()
            directory = directory.parent
    return found


def _imports_nothing(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree))
