# SPDX-License-Identifier: Apache-2.0
"""Packages that only some commands need."""

from __future__ import annotations

import importlib
from typing import Any

import porter
from porter.diagnostics import Code, PorterError


def require_package(module: str, extra: str, what: str) -> Any:
    """A module of a package that is an extra of Porter's.

    Raises:
        PorterError: PACKAGE_MISSING.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = f"{module.partition('.')[0]} (pip install '{porter.__distribution__}[{extra}]')"
        raise PorterError(Code.PACKAGE_MISSING, what=what, package=package) from None
