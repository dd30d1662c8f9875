# SPDX-License-Identifier: Apache-2.0
"""What is compiled once serves later waves and launches, and only the kernel that it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_ptx import download, module_text

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate
from porter.sim.compiler import Compiler
from porter.sim.loader import load_program

BODY = """.reg .b32 %r<8>; .reg .b64 %d<4>; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0; ld.param.u64 %d0, [out]; ld.param.u32 %r4, [n]; mul.wide.u32 %d1, %r3, 4;
add.u64 %d0, %d0, %d1; bar.sync 0; mad.lo.u32 %r5, %r3, %r4, %r1; st.global.u32 [%d0], %r5; ret;"""


@pytest.mark.parametrize("mode", ["functional", "checking"])
def test_waves_share_what_is_compiled(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    inner = Compiler.compile

    def compile(self: Compiler, number: int, converged: bool) -> Any:
        compiled.append(number)
        return inner(self, number, converged)

    monkeypatch.setattr(Compiler, "compile", compile)
    module = parse_module(module_text(["out", "n"], BODY))
    counts = []
    for blocks, factor in ((1, 7), (5, 7), (5, 9)):
        memory = GlobalMemory()
        out = memory.alloc(4 * 64 * blocks)
        params = pack_params(module.function("k"), [out, factor])
        options = Options(mode=mode, resident=2)
        compiled.clear()
        outcome = simulate(module, "k", Launch((blocks, 1, 1), (64, 1, 1)), params, memory, options)
        assert outcome.status == "ok"
        counts.append(len(compiled))
        place = np.arange(64 * blocks)
        want = place * factor + place // 64
        np.testing.assert_array_equal(download(memory, out, 64 * blocks, np.uint32), want)
        assert outcome.stats.opcodes["bar.sync"] == 2 * blocks
    assert counts[0] == counts[1]


def test_programs_are_loaded_once() -> None:
    text = module_text(["out", "n"], BODY)
    two = text + text.split(".address_size 64")[1].replace(" k(", " other(")
    first, second = parse_module(two), parse_module(two)
    program = load_program(first, "k")
    assert load_program(first, "k") is program
    assert load_program(first, "other").entry.name == "other"
    assert load_program(second, "k").module is second
    with pytest.raises(KeyError):
        load_program(first, "absent")


def test_registers_of_a_block_are_those_of_its_bits() -> None:
    program = load_program(parse_module(module_text(["out", "n"], BODY)), "k")
    names = program.live_names
    assert len(names) > 1
    for live in (0, 1, 1 << len(names) - 1, (1 << len(names)) - 1, *(b.live_in for b in program.blocks)):
        wanted = tuple(name for i, name in enumerate(names) if live >> i & 1)
        assert program.registers(live) == program.registers(live) == wanted
    assert any(b.live_in for b in program.blocks)
