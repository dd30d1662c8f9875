# SPDX-License-Identifier: Apache-2.0
"""Scripts of the repository as modules: they are in no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def script(path: str) -> ModuleType:
    """The module at a path of the repository, `scripts/ecosystem.py`."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
