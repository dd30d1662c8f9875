# SPDX-License-Identifier: Apache-2.0
"""All variants: the modules beside this one that write them down, each of which takes its own in."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from variant_types import VARIANTS as VARIANTS

for _path in sorted(Path(__file__).parent.glob("variants_*.py")):
    import_module(_path.stem)
