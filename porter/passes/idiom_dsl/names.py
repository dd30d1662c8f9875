# SPDX-License-Identifier: Apache-2.0
"""Names of the DSL: those that are observed and those that become others (mappings/emit/sm100_dsl.yaml)."""

from __future__ import annotations

from typing import Any

import yaml

from porter.rules.load import mappings_directory

_DATA: dict[str, Any] = yaml.safe_load((mappings_directory() / "emit" / "sm100_dsl.yaml").read_text("utf-8"))

OBSERVED: dict[str, list[str]] = _DATA["observed"]
"""Full names by the part that they play."""
BECOMES: dict[str, list[str]] = _DATA["becomes"]
METHODS: dict[str, str] = _DATA["methods"]
OPTIONAL: dict[str, str] = _DATA["optional"]
"""Names that ports have where the DSL has them, by what sections call them."""
ALL_OBSERVED = (*(name for names in OBSERVED.values() for name in names), *OPTIONAL.values())
MODULES = frozenset(_DATA["modules"])
SHORT: dict[str, str] = _DATA["short"]
"""What modules are called where they are imported."""
SISTERS: dict[str, str] = _DATA["sisters"]
"""Blackwell's modules, with those that have the same part for Hopper."""
KNOWN: dict[str, Any] = _DATA["known"]
"""Full names that a kernel is recognized by."""
OPERANDS: dict[str, dict[str, str]] = _DATA["operands"]
"""What lays out each operand, what loads it, and methods of a tiled MMA for it."""
ONE_BLOCK: str = _DATA["one_block"]
"""The pattern of a layout of one block in a cluster."""
IN_SECTIONS: dict[str, str] = _DATA["sections"]
"""Modules and names by what sections of emitted text call them."""
