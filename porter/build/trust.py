# SPDX-License-Identifier: Apache-2.0
"""Whether code that comes with the sources may run on this machine, with the rights of whoever runs Porter.

Importing a Python file, which CuTe DSL kernels and reference functions need, is such code; so are options of a found
configuration that the compiler may be told to load code with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError

VARIABLE = "PORTER_TRUST"


def _nobody(question: str) -> bool | None:
    return None


_said: bool | None = None
_ask: Callable[[str], bool | None] = _nobody


def settle(granted: bool, ask: Callable[[str], bool | None]) -> None:
    """Start a command: what its options say, and how to ask the user, which gives None where nobody can be asked."""
    global _said, _ask
    _said, _ask = granted or None, ask


def is_granted() -> bool:
    """Whether code may run, without asking anybody."""
    return os.environ.get(VARIABLE) == "1" or bool(_said)


def require_trust(path: Path, what: str) -> None:
    """Go on only if code may run. `what` says which code of `path` it is. One answer holds for the whole command.

    Raises:
        PorterError: NOT_TRUSTED.
    """
    global _said
    if is_granted():
        return
    if _said is None:
        _said = _ask(f"{path}: {what}, with your rights. Run this and all other code that the sources bring along?")
    if not _said:
        raise PorterError(Code.NOT_TRUSTED, Location(str(path)), path=path, what=what)
