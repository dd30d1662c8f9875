# SPDX-License-Identifier: Apache-2.0
"""Functions of CUDA's libraries, and which of them do nothing but compute from numbers."""

from __future__ import annotations

import re

from porter.model.functions import Call, Component, Path
from porter.model.names.outside import Verdict
from porter.model.program import Program

_NAMESPACES: tuple[tuple[str, ...], ...] = ((), ("std",), ("cuda", "std"))

_PURE = re.compile(
    r"__\w+|make_\w+\d|f?(?:abs|max|min|ma|mod)f?|(?:r?sqrt|exp|exp2|exp10|expm1|log|log2|log10|log1p|tanh|tan|sin|cos"
    r"|erf|erfc|pow|ldexp|scalbn|scalbln|floor|ceil|round|rint|trunc|copysign|rcbrt|cbrt|sinh|cosh|asin|acos|atan|atan2|hypot|fdim)f?"
    r"|is(?:nan|inf|finite)|printf"
)
"""Functions of CUDA's libraries that take numbers by value (CUDA Math API)."""


def is_toolkit(program: Program, call: Call) -> bool:
    """Whether a call, whose function the sources do not declare, is of one of the language's or toolkit's."""
    callee = call.node.child_by_field_name("function") if call.node.type == "call_expression" else None
    if callee is None or callee.type in ("field_expression", "call_expression"):
        return False
    targets = [(*n, call.name) for n in _NAMESPACES]
    return any(program.names.outside(call.caller, callee, t) is Verdict.YES for t in targets)


def is_toolkit_text(program: Program, written: str) -> bool:
    """The same of a callee in text that is not parsed."""
    steps = re.sub(r"<.*", "", written, flags=re.DOTALL).split("::")
    if not all(re.fullmatch(r"\s*\w+\s*", s) for s in steps[not steps[0].strip() :]):
        return False
    path = Path(tuple(Component(s.strip()) for s in steps if s.strip()), not steps[0].strip())
    targets = [(*n, path.steps[-1].name) for n in _NAMESPACES]
    return any(program.names.outside_path(path, t) is Verdict.YES for t in targets)


def is_pure(name: str) -> bool:
    """Whether an unqualified name is of such a function."""
    return _PURE.fullmatch(name) is not None
