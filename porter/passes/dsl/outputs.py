# SPDX-License-Identifier: Apache-2.0
"""The files of a port: changed modules in their places, copies of installed ones, the support module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.lang.cute_dsl import SUPPORT, read_dsl
from porter.lang.dsl_modules import Closure, Module, module_paths
from porter.passes.emit import joined

_PARTS = ("head", "private", "host", "calls", "values", "program", "threads", "flow", "finish", "code", "emitter")
"""What the support module is made of, in `mappings/emit`; each part names what stands in others."""
_COPY = "# Part of a port to sm_100a: the modules beside this file changed, all others are those of {0}.\nimport {0}\n"
_SCAFFOLD = """\
# Part of a port to sm_100a: modules that are not here come from the package that was ported.
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
"""


@cache
def support_module() -> bytes:
    """The module that ports of CuTe DSL import which are not in Blackwell's own words."""
    return joined(f"{SUPPORT}.py", _PARTS).encode()


def copied_name(name: str) -> str:
    """The name of the copy of an installed module."""
    top, dot, rest = name.partition(".")
    return f"{top}_sm100{dot}{rest}"


def place_of(closure: Closure, module: Module) -> Path:
    """Where the copy of an installed module goes: where the project's imports find it, as the user would name it."""
    as_package, as_file = module_paths(closure.top, copied_name(module.name))
    return as_package if module.is_package else as_file


def written(
    closure: Closure,
    places: Mapping[str, str],
    patched: AbstractSet[str],
    ported: Mapping[str, bytes],
) -> tuple[dict[str, bytes], dict[str, bytes], list[Diagnostic]]:
    """All files of a port, the scaffold that it needs away from the originals, and what has to be said."""
    files, said = dict(ported), []
    for name, path in places.items():
        module = closure.modules[name]
        if module.own:
            if module is not closure.root and ported[path] != module.file.source:
                said.append(Diagnostic(Code.DSL_PATCHED, Location(path), {"module": name, "path": path}))
            continue
        how = "ported" if name in patched else "with its imports changed"
        values = {"module": name, "path": path, "how": how, "source": module.path}
        said.append(Diagnostic(Code.DSL_COPIED, Location(module.path), values))
        files |= {p: t for p, t in _packages(closure, module) if p not in ported}
    support = closure.top / f"{SUPPORT}.py"
    text = support_module()
    if support.is_file() and support.read_bytes() != text:
        said.append(Diagnostic(Code.DSL_SUPPORT_TAKEN, Location(str(support)), {"path": str(support)}))
    files[str(support)] = text
    return files, _scaffold(closure, files), said


def _packages(closure: Closure, module: Module) -> Iterator[tuple[str, bytes]]:
    """An `__init__.py` for each package on the way to a copy: it runs the original's."""
    package = module.name
    for original in list(Path(module.path).parents)[module.is_package :]:
        package = package.rpartition(".")[0]
        if not package:
            return
        if (original / "__init__.py").is_file():
            yield str(module_paths(closure.top, copied_name(package))[0]), _COPY.format(package).encode()


def _scaffold(closure: Closure, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What stands for the `__init__.py` of the project's packages: the originals import all of the package."""
    found: dict[str, bytes] = {}
    top = closure.top
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
        return not read_dsl(path).import_statements
    except PorterError:
        return False
