# SPDX-License-Identifier: Apache-2.0
"""Calls that code was inlined through, as reports tell them."""

from __future__ import annotations

import pytest

from porter.ptx.calls import inlined

GEMM, ATOM, TRAITS = (
    ("/opt/include/cute/gemm.hpp", 1),
    ("/opt/include/cute/atom.hpp", 2),
    ("/opt/include/cute/traits.hpp", 3),
)
ARCH = "/opt/include/cute/arch.hpp"
OWN, LOOP, HELPER = ("gemm.cu", 10), ("/home/me/include/loop.cuh", 20), ("/home/me/include/helper.cuh", 30)


@pytest.mark.parametrize(
    ("file", "calls", "told"),
    [
        ("gemm.cu", [], ""),
        ("helper.cuh", [("a.cuh", 1), ("b.cuh", 2), ("c.cuh", 3), OWN],
         ", inlined at a.cuh:1, inlined at b.cuh:2, inlined at c.cuh:3, inlined at gemm.cu:10"),
        (ARCH, [ATOM, GEMM, OWN],
         ", inlined at /opt/include/cute/atom.hpp:2, inlined at /opt/include/cute/gemm.hpp:1, inlined at gemm.cu:10"),
        (ARCH, [TRAITS, ATOM, GEMM, OWN], ", inlined through 3 calls of the same library, inlined at gemm.cu:10"),
        (ARCH, [TRAITS, ATOM, GEMM, LOOP, HELPER, OWN],
         ", inlined through 3 calls of the same library, inlined at /home/me/include/loop.cuh:20,"
         " inlined at /home/me/include/helper.cuh:30, inlined at gemm.cu:10"),
        (ARCH, [TRAITS, LOOP, ATOM, GEMM, OWN],
         ", inlined at /opt/include/cute/traits.hpp:3, inlined at /home/me/include/loop.cuh:20,"
         " inlined at /opt/include/cute/atom.hpp:2, inlined at /opt/include/cute/gemm.hpp:1, inlined at gemm.cu:10"),
        ("/opt/include2/arch.hpp", [TRAITS, ATOM, GEMM],
         ", inlined at /opt/include/cute/traits.hpp:3, inlined at /opt/include/cute/atom.hpp:2,"
         " inlined at /opt/include/cute/gemm.hpp:1"),
    ],
)  # fmt: skip
def test_calls_within_a_library_are_counted_and_those_of_ones_own_code_are_named(file, calls, told):
    assert inlined(file, calls) == told
