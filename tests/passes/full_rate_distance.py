# SPDX-License-Identifier: Apache-2.0
"""A tiles that are apart by what only a launch tells, and others that are not."""

from __future__ import annotations

PICK = "__device__ uint64_t at(uint64_t a, int m, int n) { if (n > 64) return a + m * 512; return a; }\n"


SHARED = "extern __shared__ char raw[]; "


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


TILES_ALIKE = {
    "a choice": ("m ? a + 512 : a", ""),
    "a stage": ("((a + (k % 3 * 128 + m * 64) * 8) & 0x3ffff) >> 4", ""),
    "a helper with two ways": ("at(a, m, 128)", ""),
    "a lambda": ("mine(m)", "auto mine = [&](int m) { return a + m * 512; };"),
    "a table": ("a + mine[m]", "const int mine[2] = {0, 512};"),
}
