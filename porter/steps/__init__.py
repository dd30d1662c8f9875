# SPDX-License-Identifier: Apache-2.0
"""Steps that make a port faster. A step of others is a module of this package in a folder of their own on Python's
path: `porter/steps/NAME.py`, without an `__init__.py`."""

import sys
from collections.abc import Iterable
from pathlib import Path


def others_on(path: Iterable[str]) -> list[str]:
    """Folders with modules of this package."""
    folders = [Path(at) / "porter" / "steps" for at in path]
    return [str(f) for f in folders if f.is_dir() and not (f / "__init__.py").exists()]


__path__ += others_on(sys.path)
