# SPDX-License-Identifier: Apache-2.0
"""The port of every corpus kernel: SM100 code that the assembler takes, and right values on the simulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus_kernels import CUDA, compiled

from porter.build.nvcc import compile_ptx
from porter.build.port_plan import PortPlan, materialize
from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.ptx.ast import Block, Function, Instruction, Statement
from porter.ptx.parser import parse_module
from porter.verify.builder import PORT_ARCH, compile_request
from porter.verify.case import Case, load_case
from porter.verify.problem import bind


def instructions(function: Function) -> list[Instruction]:
    found: list[Instruction] = []

    def walk(body: tuple[Statement, ...]) -> None:
        for statement in body:
            if isinstance(statement, Instruction):
                found.append(statement)
            elif isinstance(statement, Block):
                walk(statement.body)

    walk(function.body or ())
    return found


@pytest.fixture(params=compiled(CUDA))
def case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


@pytest.mark.spread(8)
def test_port_is_sm_100a_code(case: Case, tmp_path: Path) -> None:
    result = port_sources(load_sources(case.kernel))
    source = materialize(PortPlan(files=result.files), case.kernel, tmp_path)
    request = compile_request(bind(case), source, PORT_ARCH)
    made = compile_ptx(dataclasses.replace(request, assemble=True))
    opcodes = [i.opcode for i in instructions(parse_module(made.ptx).function(made.entry))]
    assert any(o.startswith("tcgen05.mma.") for o in opcodes)
    assert not any(o.startswith("wgmma.") for o in opcodes)
    assert sum(o.startswith("tcgen05.alloc.") for o in opcodes) == 1
    assert any(o.startswith("tcgen05.dealloc.") for o in opcodes)


@pytest.mark.spread(8)
def test_port_verifies(case: Case) -> None:
    outcome = CliRunner().invoke(main, ["verify", "--style", "compat", str(case.kernel.parent)])
    assert outcome.exit_code == ExitCode.OK, outcome.output
