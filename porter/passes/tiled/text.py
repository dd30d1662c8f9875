# SPDX-License-Identifier: Apache-2.0
"""The C++ of these passes, which stands in `mappings/emit/tiled.cuh`."""

from __future__ import annotations

from porter.passes.emit import lines


def cpp(section: str, **values: object) -> str:
    """A section with its values."""
    return lines(section, "tiled.cuh", **values)
