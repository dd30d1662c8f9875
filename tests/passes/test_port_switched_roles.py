# SPDX-License-Identifier: Apache-2.0
"""Roles that a `switch` tells apart: no jump passes by the state of the warpgroup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import LOOP, STORE, kernel, ported

ROLE = "{ float acc[8] = {0};" + LOOP + STORE + "break; }"
SIGN = "const int role = threadIdx.x / 128;"
SWITCHES = {
    "two": f"switch (role) {{ case 0: {ROLE} case 1: {ROLE} }}",
    "two and a default": f"switch (role) {{ case 0: {ROLE} case 1: {ROLE} default: break; }}",
    "default first": f"switch (role) {{ default: {ROLE} case 1: {ROLE} }}",
    "one": f"switch (role) {{ case 0: out[0] = 1.f; break; case 1: {ROLE} }}",
    "a label of two": f"switch (role) {{ case 0: case 1: {ROLE} }}",
    "a switch in a switch": f"switch (role) {{ case 0: switch (steps) {{ case 3: {ROLE} default: {ROLE} }} }}",
    "in a branch": f"if (steps) {{ switch (role) {{ case 0: {ROLE} case 1: {ROLE} }} }}",
    "in a loop": f"for (int n = 0; n < 2; ++n) switch (role) {{ case 0: {ROLE} case 1: {ROLE} }}",
    "with a head": f"switch (int n = role; n) {{ case 0: {ROLE} case 1: {ROLE} }}",
}


@pytest.mark.parametrize("body", SWITCHES.values(), ids=SWITCHES)
def test_the_state_is_declared_where_no_jump_passes_by(tmp_path: Path, body: str) -> None:
    port = ported(tmp_path, kernel(SIGN + body, bounds="__launch_bounds__(256)"))
    rest = port[port.index("__global__") :]
    at = rest.index("tcgen05::Warpgroup tc = ")
    in_braces = re.search(r"(?:case \d|default): \{\s*$", rest[:at])
    assert at < rest.index("switch (") or in_braces
