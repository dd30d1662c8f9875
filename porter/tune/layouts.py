# SPDX-License-Identifier: Apache-2.0
"""How the files of a port lie."""

from __future__ import annotations

from pathlib import Path

from porter.build.closure import Named
from porter.build.layout import Layout
from porter.passes.ported import Ported


def layout_of(ported: Ported) -> Layout:
    """The layout of a port of which all files are written."""
    return Layout.of(map(Path, ported.elsewhere()), (), named_by(ported))


def named_by(ported: Ported) -> list[Named]:
    return [
        Named(Path(i.path), i.name, i.quoted, Path(i.resolved), i.through)
        for i in ported.includes
        if i.resolved is not None
    ]
