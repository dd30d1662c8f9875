# SPDX-License-Identifier: Apache-2.0
"""Which kernels may reach an MMA, judged by the names that functions mention.

What tells in doubt is that a frame around a kernel without MMAs does nothing: names are compared, not objects.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from porter.lang.cute_dsl import KERNEL, Function
from porter.lang.dsl_modules import Closure, Module, close
from porter.model.dsl.names import hopper_only


def kernels_of(closure: Closure, module: Module) -> list[Function]:
    if not module.mentions(b"kernel"):
        return []
    return module.file.decorated(KERNEL, closure.canonical)


def uses_kernels(path: Path, search: Sequence[Path] = ()) -> bool:
    """Whether a Python file has kernels or MMAs of CuTe DSL, or imports a module that does.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE.
    """
    closure = close(path, search)
    return any(m.ported or kernels_of(closure, m) or _multiplies(m) for m in closure.modules.values())


def _multiplies(module: Module) -> bool:
    if not module.mentions(b"warpgroup", b"make_trivial_tiled_mma"):
        return False
    imported = (b for found in module.file.scope.names.values() for b in found if b is not None)
    return any(hopper_only(b.target) for b in imported) or any(hopper_only(n) for _, n in module.file.references())


def framed_kernels(closure: Closure, multiplying: set[str], native: set[str]) -> dict[str, list[Function]]:
    """By module the kernels from which an MMA of the modules `multiplying` may be reached: those in such a module, and
    those that mention, directly or not, a function of one that is imported or imports them. Modules in `native` issue
    Blackwell's own MMAs, and are left alone."""
    found: dict[str, list[Function]] = {}
    users = closure.spread(multiplying)
    for name, module in closure.modules.items():
        if module.ported or name in native:
            continue
        kernels = kernels_of(closure, module)
        if name not in multiplying and kernels:
            related = users if name in users else closure.spread({name}) & multiplying
            kernels = [k for k in kernels if related and _mentions_any(closure, k, multiplying, native)]
        if kernels:
            found[name] = kernels
    return found


def _mentions_any(closure: Closure, kernel: Function, multiplying: set[str], native: set[str]) -> bool:
    functions: dict[str, list[tuple[str, Function]]] = defaultdict(list)
    for name, module in closure.modules.items():
        if name not in native and module.mentions(b"def "):
            for function in module.file.functions():
                functions[function.name].append((name, function))
    seen: set[str] = set()
    pending: list[ast.AST] = [kernel]
    while pending:
        for node in ast.walk(pending.pop()):
            word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if word is None or word in seen:
                continue
            seen.add(word)
            for name, function in functions.get(word, ()):
                if name in multiplying:
                    return True
                pending.append(function)
    return False
