# SPDX-License-Identifier: Apache-2.0
"""How ports issue their MMAs."""

AUTO = "auto"
FULL_RATE = "full-rate"
NATIVE = "native"
COMPAT = "compat"
IDIOMATIC = "idiomatic"
KEPT, SM100 = LAYOUTS = ("kept", "sm100")
"""Layouts of operands in shared memory that ports of CuTe DSL have: the original's, or those of Blackwell's helpers."""
TAKEN, HANDED_OUT = TILES = ("taken", "handed-out")
"""Tiles of persistent kernels of CuTe DSL: a block takes each so-many-th, or is handed the next that nobody has."""
STYLES = (AUTO, COMPAT, FULL_RATE, IDIOMATIC, NATIVE)
