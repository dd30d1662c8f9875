# SPDX-License-Identifier: Apache-2.0
"""Programs of the manifest of public sources that are run from local clones of their repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts_loaded import script

ECOSYSTEM = script("scripts/ecosystem.py")


def cutlass() -> str:
    library = pytest.importorskip("cutlass_library", reason="nvidia-cutlass is not installed")
    return str(Path(library.__file__).parent / "source" / "include")


def check_bits(entry: dict[str, Any], clones: Path) -> None:
    """The port of an entry's program gives its original's bits; skips where a clone is at another commit."""
    said = ECOSYSTEM.verify_one(entry, clones, [cutlass()])
    if said == "another version":
        pytest.skip(f"the clone is not at {entry['commit']}")
    assert said == ECOSYSTEM.SAME
