# SPDX-License-Identifier: Apache-2.0
"""Matrix descriptors that are written as one number: those of Hopper lack SM100's version in bits 46-48 (PTX ISA 9.0
9.7.16.4.1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

KERNEL = """__device__ void f(unsigned d, unsigned long s) {{
    unsigned long a = {number} | (s >> 4);
    if (threadIdx.x == 0)
        asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %0, 1;" :: "r"(d), "l"(a));
}}
"""
HOPPER = (
    "0x4000004000010000",
    "0x4000004000010000ull",
    "0X4000004000010000UL",
    "0x8000002000010000ull",
    "0xC000001000010000ull",
    "0xc000001000000000ull",
    "0x4000010000800000ULL",
)
OTHERS = (
    "0x4000404000010000ull",
    "0xC000401000010000ull",
    "0x8000402000010000",
    "0x8000000000000000ull",
    "0x12F0000000000000ull",
    "0x7FFFFFFFFFFFFFFFull",
    "0x9E3779B97F4A7C15ull",
    "0xFFFFFFFFFFFFFFFFull",
    "0x40000040",
    "4611686293305360384ull",
)


def told(folder: Path, number: str) -> bool:
    (folder / "k.cu").write_text(KERNEL.format(number=number))
    return "PT7017" in CliRunner().invoke(main, ["check", "--sm100", str(folder / "k.cu")]).output


@pytest.mark.parametrize("number", HOPPER)
def test_a_descriptor_of_hopper_is_found(number: str, tmp_path: Path) -> None:
    assert told(tmp_path, number)


@pytest.mark.parametrize("number", OTHERS)
def test_other_numbers_are_none(number: str, tmp_path: Path) -> None:
    assert not told(tmp_path, number)
