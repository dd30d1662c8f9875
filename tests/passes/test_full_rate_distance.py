# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs take two A tiles that are as far apart in every launch: a case would show it of its own sizes alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_full_rate import CONSUMER, DEFAULTS, KERNEL, missing, port_of
from test_full_rate_stacked import ported as stacked

APART = "only a launch tells"
PICK = "__device__ uint64_t at(uint64_t a, int m, int n) { if (n > 64) return a + m * 512; return a; }\n"
SHARED = "extern __shared__ char raw[]; "


def consumers(folder: Path, a: str, role: str = "", head: str = "") -> list[str]:
    """What two consumers lack whose A is this."""
    kernel = KERNEL.replace("a + consumer * 512", a)
    return missing(port_of(folder, kernel, {**DEFAULTS, "HEAD": head, "ROLE": f"{CONSUMER} {role}"}))


OF_CONSUMERS = {
    "blocks between": ("a + tile * 512", "const int tile = blockIdx.x + (consumer ? gridDim.x : 0);"),
    "blocks between, in a variable": ("a + consumer * step", "const int step = gridDim.x * 512;"),
    "a tile that one goes on by": ("a + tile * 512", "int tile = 0; if (consumer == 1) tile += gridDim.x;"),
    "a tile that one sets": ("a + tile * 512", "int tile = 0; if (consumer == 1) tile = rows;"),
    "a tile by an if": (
        "a + tile * 512",
        "int tile; if (rows > 64) tile = consumer; else tile = 1 - consumer;",
    ),
    "two addresses": ("consumer ? b : a", ""),
    "two pointers": (
        "(uint64_t)(consumer ? second : first)",
        SHARED + "char* first = raw; char* second = raw + 128 * rows;",
    ),
    "a table": ("mine[consumer]", "uint64_t mine[2] = {a, b};"),
    "the least of two": ("a + min(consumer * 512, rows)", ""),
    "a comparison": ("a + (consumer < rows) * 512", ""),
    "two conditions": ("a + consumer * 512 + (consumer && rows > 300 ? 8 : 0)", ""),
    "a helper with two ways": ("at(a, consumer, rows)", ""),
}


@pytest.mark.parametrize("how", OF_CONSUMERS)
def test_consumers_are_apart_by(tmp_path: Path, how: str) -> None:
    a, role = OF_CONSUMERS[how]
    found = consumers(tmp_path, a, role, PICK)
    assert any(APART in text for text in found), found


ALIKE = {
    "one address": ("consumer ? a + 512 : a", ""),
    "two arrays": ("(uint64_t)(consumer ? second : first)", "__shared__ char first[8192], second[8192];"),
    "a table of arrays": (
        "(uint64_t)both[consumer]",
        "__shared__ char first[8192], second[8192]; char* both[2] = {first, second};",
    ),
    "two pointers": (
        "(uint64_t)(consumer ? second + k % 3 * 64 : first + k % 3 * 64)",
        SHARED + "char* first = raw; char* second = raw + 8192;",
    ),
    "an if": ("mine", "uint64_t mine; if (consumer == 0) mine = a; else mine = a + 512;"),
    "a step for one": ("mine", "uint64_t mine = a; if (consumer == 1) mine += 512;"),
    "a helper with two ways": ("at(a, consumer, 128)", ""),
}


@pytest.mark.parametrize("how", ALIKE)
def test_consumers_are_apart_by_a_constant(tmp_path: Path, how: str) -> None:
    a, role = ALIKE[how]
    assert consumers(tmp_path, a, role, PICK) == []


OF_TILES = {
    "a factor": ("a + m * rows", ""),
    "a factor in a variable": ("a + m * step", "const int step = gridDim.x * 512;"),
    "a choice": ("m ? a + rows : a", ""),
    "a choice of the tile": ("a + (rows > 64 ? m : 0) * 512", ""),
    "turns": ("a + (m ^ (rows & 1)) * 512", ""),
    "a stage": ("a + ((m + k) & 1) * 512", ""),
    "the least of two": ("a + min(m * 512, rows)", ""),
    "a helper with two ways": ("at(a, m, rows)", ""),
    "a lambda": ("mine(m)", "auto mine = [&](int m) { return a + m * rows; };"),
    "a table": ("a + mine[m]", "const int mine[2] = {0, rows};"),
}


@pytest.mark.parametrize("how", OF_TILES)
def test_tiles_are_apart_by(tmp_path: Path, how: str) -> None:
    a, role = OF_TILES[how]
    found = missing(stacked(tmp_path, HEAD=PICK, ROLE=role, MMA=f"wgmma_m64n16k16(acc[m], {a}, b);"))
    assert any(APART in text for text in found), found


@pytest.mark.parametrize("factor", ["rows", "step"])
@pytest.mark.parametrize(
    "mma",
    [
        "const uint64_t mine = a + m * FACTOR; wgmma_m64n16k16(acc[m], mine, b);",
        "multiply(acc[m], a, b, m, FACTOR);",
    ],
)
def test_tiles_are_apart_ahead_of_their_mma(tmp_path: Path, mma: str, factor: str) -> None:
    head = (
        "__device__ void multiply(float (&d)[8], uint64_t a, uint64_t b, int m, int n) "
        "{ wgmma_m64n16k16(d, a + m * n, b); }\n"
    )
    parts = {"HEAD": head, "ROLE": "const int step = 64 * 8;", "MMA": mma.replace("FACTOR", factor)}
    assert any(APART in text for text in missing(stacked(tmp_path, **parts))) == (factor == "rows")


TILES_ALIKE = {
    "a choice": ("m ? a + 512 : a", ""),
    "a stage": ("((a + (k % 3 * 128 + m * 64) * 8) & 0x3ffff) >> 4", ""),
    "a helper with two ways": ("at(a, m, 128)", ""),
    "a lambda": ("mine(m)", "auto mine = [&](int m) { return a + m * 512; };"),
    "a table": ("a + mine[m]", "const int mine[2] = {0, 512};"),
}


@pytest.mark.parametrize("how", TILES_ALIKE)
def test_tiles_are_apart_by_a_constant(tmp_path: Path, how: str) -> None:
    a, role = TILES_ALIKE[how]
    assert missing(stacked(tmp_path, HEAD=PICK, ROLE=role, MMA=f"wgmma_m64n16k16(acc[m], {a}, b);")) == []
