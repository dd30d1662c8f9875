# SPDX-License-Identifier: Apache-2.0
"""A port that takes for granted where dynamic shared memory begins, which its original does not."""

from __future__ import annotations

import pytest
from written import HEAD

from porter.equal.outcome import difference
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.ptx.parser import parse_module
from porter.verify.equality import Equality
from porter.verify.moved import Party, at_any_place

VALUES = {"input": GLOBAL.to_bytes(8, "little"), "output": (GLOBAL + (1 << 34)).to_bytes(8, "little"), "n": bytes(4)}
STORED = "st.shared.f32 [%r2], %f0;\n"
LOADED = "ld.shared.f32 %f4, [%r2];\nst.global.f32 [%d1], %f4;\n"
LANE = "shl.b32 %r3, %r0, 2;\n"


def kernel(place: str, read: str = "", align: int = 16) -> Launched:
    """Each lane stores a value at `place`, an address that it puts into %r2, and stores what it reads there, or at
    `read`, to the output."""
    head = HEAD.replace("{variables}", f".extern .shared .align {align} .b8 more[];")
    module = parse_module(f"{head}mov.u32 %r9, more;\n{LANE}{place}{STORED}{read or place}{LOADED}ret;\n}}\n")
    return Launched(Flow(Code(module, module.entries()[0])), Geometry((32, 1, 1), dynamic_smem=8192), VALUES)


def problem(original: Launched, port: Launched) -> str:
    """What is said of a port that leaves the same where shared memory lies as it does."""
    one, other = (
        Party(name, of.flow, lambda first, of=of: of) for name, of in (("original", original), ("port", port))
    )
    assert difference(one.left(0), other.left(0)) is None
    found = at_any_place(Equality("kernel", "equal", ("all",), 128, 0.0), one, other)
    assert (found.status == "unknown") is bool(found.why)
    return found.why


RIGHT = "add.u32 %r2, %r9, %r3;\n"
UP = "add.u32 %r4, %r9, 1023;\nand.b32 %r4, %r4, -1024;\n"
SAME = {
    "a step": RIGHT,
    "a step and a number": "add.u32 %r2, %r9, %r3;\nadd.u32 %r2, %r2, 64;\n",
    "aligned": f"{UP}add.u32 %r2, %r4, %r3;\n",
    "a bit of what is aligned": f"{UP}or.b32 %r2, %r4, %r3;\n",
    "a swizzle of what is aligned": f"{UP}add.u32 %r2, %r4, %r3;\nxor.b32 %r2, %r2, 32;\n",
}
TAKEN = {
    "a bit": "or.b32 %r2, %r9, %r3;\n",
    "bits that change": "xor.b32 %r2, %r9, %r3;\n",
    "a mask": "add.u32 %r2, %r9, %r3;\nand.b32 %r2, %r2, -513;\n",
    "aligned downwards": "and.b32 %r4, %r9, -1024;\nadd.u32 %r2, %r4, %r3;\n",
    "a number in its place": "add.u32 %r2, %r3, 1024;\n",
}


@pytest.mark.parametrize("name", [*SAME, *TAKEN])
def test_where_dynamic_shared_memory_lies(name: str) -> None:
    """One instruction reads by an address that is made in another way than that of the store."""
    port = kernel(RIGHT, (SAME | TAKEN)[name]) if name in TAKEN else kernel(SAME[name])
    assert bool(problem(kernel(RIGHT), port)) is (name in TAKEN)


@pytest.mark.parametrize("name", TAKEN)
def test_an_original_that_takes_it_for_granted(name: str) -> None:
    assert not problem(kernel(RIGHT, TAKEN[name]), kernel(RIGHT, TAKEN[name]))


@pytest.mark.parametrize("name", ["a bit", "bits that change", "a mask", "aligned downwards"])
def test_what_a_declaration_says_may_be_taken(name: str) -> None:
    assert not problem(kernel(RIGHT, align=1024), kernel(RIGHT, TAKEN[name], align=1024))
