# SPDX-License-Identifier: Apache-2.0
"""Kinds of homes of accumulators: each is one class in one file, and nothing else asks which one it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from kernels import kernel, ported

from porter.model import homes

PORTER = Path(homes.__file__).parents[1]
KINDS = {k.__name__ for k in (homes.Home, homes.Scalars, homes.Member)}
OF_ONE_KIND = {"scalars", "variables", "member", "path_extents", "hidden"}


def asked(source: str) -> list[str]:
    """Where a source asks for the kind of a home: by its class, or by what only one kind has."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "type"):
            found += [ast.unparse(node)] * bool({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & KINDS)
        if isinstance(node, ast.Attribute) and node.attr in OF_ONE_KIND:
            found += [ast.unparse(node)] * (ast.unparse(node.value).split(".")[-1] in ("home", "accumulator"))
    return found


def test_nothing_outside_asks_for_the_kind() -> None:
    paths = {*PORTER.glob("model/**/*.py"), *PORTER.glob("passes/**/*.py")} - {Path(homes.__file__)}
    assert not [f"{p.name}: {found}" for p in paths for found in asked(p.read_text("utf-8"))]


@pytest.mark.parametrize("source", ["isinstance(a.home, Scalars)", "accumulator.home.member", "accumulator.scalars"])
def test_a_question_is_seen(source: str) -> None:
    assert asked(source)


def test_scalars_of_two_blocks_are_two_accumulators(tmp_path: Path) -> None:
    names = ", ".join(f"d{i}" for i in range(8))
    statement = f"""
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{{", ".join(f"%{i}" for i in range(8))}}}, "
                 "%8, %9, 1, 1, 1, 0, 0;" : {", ".join(f'"+f"(d{i})' for i in range(8))} : "l"(a), "l"(b));"""
    blocks = [
        f"    {{\n    float {names};\n    arrive();{statement}\n    commit(); wait<0>();\n    out[{i}] = d5;\n    }}\n"
        for i in range(2)
    ]
    port = ported(tmp_path, kernel("".join(blocks)))
    assert port.count(f"tcgen05::load_each(d_tmem, {names});\n    out[") == 2
