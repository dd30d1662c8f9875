# SPDX-License-Identifier: Apache-2.0
"""Which kernels may reach an MMA, judged by the names that functions mention.

What tells in doubt is that a frame around a kernel without MMAs does nothing: names are compared, not objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.lang.cute_dsl import Function, parse_dsl
from porter.lang.dsl_modules import Closure, Module, close
from porter.lang.sources import read_source
from porter.model.dsl.names import Names


def marked(path: Path, names: Names, of: str) -> tuple[str, ...]:
    """Names of the functions of a Python file that have a mark.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE with the place of the syntax error.
    """
    if not mentions(path, names, of):
        return ()
    file = parse_dsl(str(path), read_source(path), dialect=names.dialect, excerpt=True)
    return tuple(f.name.value for f in file.decorated(lambda name: names.is_a(name, of)))


def mentions(path: Path, names: Names, of: str) -> bool:
    """Whether a word of a mark stands in a file at all, be it in a comment. Raises PorterError as `marked` does."""
    source = read_source(path)
    return any(word in source for word in names.words(of))


def kernels_of(closure: Closure, module: Module, names: Names) -> list[Function]:
    """The kernels of a module, also where the mark itself was handed on by another module."""
    if not module.mentions(*names.words("kernel")):
        return []
    return module.file.decorated(lambda name: names.is_a(closure.canonical(name), "kernel"))


def uses_kernels(path: Path, names: Names, search: Sequence[Path] = ()) -> bool:
    """Whether a Python file has kernels or MMAs of CuTe DSL, or imports a module that does.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE.
    """
    closure = close(path, names.dialect, search)
    return any(m.ported or kernels_of(closure, m, names) or _multiplies(m, names) for m in closure.modules.values())


def _multiplies(module: Module, names: Names) -> bool:
    if not module.mentions(*names.words("hopper", "module")):
        return False
    return any(names.hopper_only(b.target) for b in module.file.bindings) or any(
        names.hopper_only(n) for _, n in module.file.references()
    )


def framed_kernels(
    closure: Closure, names: Names, multiplying: set[str], native: set[str]
) -> dict[str, list[Function]]:
    """By module the kernels from which an MMA of the modules `multiplying` may be reached: those in such a module, and
    those that mention, directly or not, a function of one that is imported or imports them. Modules in `native` issue
    Blackwell's own MMAs, and are left alone."""
    found: dict[str, list[Function]] = {}
    users = closure.spread(multiplying)
    for module in closure.open:
        kernels = kernels_of(closure, module, names) if module.name not in native else []
        if kernels and module.name not in multiplying:
            related = module.name in users or not multiplying.isdisjoint(closure.spread({module.name}))
            kernels = [k for k in kernels if related and _reaches(closure, module, k, multiplying, native)]
        if kernels:
            found[module.name] = kernels
    return found


def _reaches(closure: Closure, module: Module, kernel: Function, multiplying: set[str], native: set[str]) -> bool:
    seen: set[str] = set()
    pending = [(module, kernel)]
    while pending:
        holder, function = pending.pop()
        words = set(holder.file.words_in(function)) - seen
        seen |= words
        named = [(m, f) for word in words for m, f in closure.functions.get(word, ()) if m.name not in native]
        if any(m.name in multiplying for m, _ in named):
            return True
        pending += named
    return False
