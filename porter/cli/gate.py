# SPDX-License-Identifier: Apache-2.0
"""What was ported, as the compile gate takes it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from porter.build.gate import Gated
from porter.lang.lexical import Lexed
from porter.lang.sources import is_python
from porter.passes.ported import Ported, PortedRoot
from porter.verify.gate import GateOptions, Tell, Unit, compile_units
from porter.verify.room import HINTS


def host_hint(sources: Iterable[bytes]) -> str:
    """What host code in some sources calls that asks how many blocks fit, or launches all at one time; empty if it
    does neither."""
    for data in sources:
        if (found := HINTS.search(Lexed(data).plain.decode("utf-8", "replace"))) is not None:
            return found[0]
    return ""


def compile_ports(ported: Ported, options: GateOptions, tell: Tell | None = None) -> list[Gated]:
    """As `porter.verify.gate.compile_units`, for every root that changed."""
    hint = host_hint(data for path, data in ported.old.items() if not is_python(Path(path)))
    return compile_units([_unit(ported, root, hint) for root in ported.changed_roots], options, tell)


def not_compiled(ported: Ported, reason: str) -> list[Gated]:
    """Every root that changed, without a word to the compiler."""
    return [Gated(root.path, "not compiled", reason) for root in ported.changed_roots]


def _unit(ported: Ported, root: PortedRoot, hint: str) -> Unit:
    return Unit(
        root.path,
        "dsl" if root.dsl else "strings" if is_python(Path(root.path)) else "cuda",
        ported.of_root(root),
        partial(ported.strings, root.path),
        ported.rewritten(root),
        not ported.exit_code,
        ported.keeps_hopper,
        root.include_dirs,
        hint,
    )
