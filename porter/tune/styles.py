# SPDX-License-Identifier: Apache-2.0
"""How ports issue their MMAs."""

AUTO = "auto"
FULL_RATE = "full-rate"
NATIVE = "native"
COMPAT = "compat"
IDIOMATIC = "idiomatic"
STYLES = (AUTO, COMPAT, FULL_RATE, IDIOMATIC, NATIVE)
