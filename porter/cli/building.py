# SPDX-License-Identifier: Apache-2.0
"""The compiler as commands use it: sources of every kind that Porter reads become files that nvcc reads."""

from __future__ import annotations

from porter.build.toolchain import Toolkit
from porter.cli.context import current
from porter.tune.searching import compilable
from porter.verify.builder import ToolkitBuilder


def make_builder(toolkit: Toolkit | None, target: str | None = None) -> ToolkitBuilder:
    """Without a toolkit the first one is found on first use; without a target ports are for the session's."""
    return ToolkitBuilder(toolkit, compilable, target or current().target)
