# SPDX-License-Identifier: Apache-2.0
"""Places of CuTe DSL kernels: what the DSL makes up counts for none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fakes_verify import write_case

from porter.build.dsl import DslCompiled
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.ptx.places import keep_places
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import DslSpec, load_case
from porter.verify.dsl import RecordedLaunch
from porter.verify.problem import LaunchValues, bind

PTX = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry k() {
    .reg .b32 %r<4>;
    .loc 1 31 0
    mov.b32 %r1, 1;
    .loc 1 40 8
    mov.b32 %r2, 2;
    {
    .loc 1 0 0
    mov.b32 %r3, 3;
    .loc 1 41 8
    bar.sync 0;
    }
    ret;
}
.file 1 "/k.py"
"""


def places(module: ast.Module) -> list[int | None]:
    def of(body: tuple[ast.Statement, ...]) -> list[int | None]:
        found: list[int | None] = []
        for statement in body:
            if isinstance(statement, ast.Instruction):
                found.append(statement.loc.line if statement.loc else None)
            elif isinstance(statement, ast.Block):
                found += of(statement.body)
        return found

    (entry,) = module.entries()
    return of(entry.body or ())


def test_places_are_kept_that_are_wanted() -> None:
    module = parse_module(PTX)
    assert places(keep_places(module, lambda loc: True)) == places(module) == [31, 40, 0, 41, 41]
    assert places(keep_places(module, lambda loc: loc.line > 40)) == [None, None, None, 41, 41]


def test_the_line_of_the_host_function_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(problem, source, arch):
        return DslCompiled(PTX, ()), RecordedLaunch("k", LaunchValues((1, 1, 1), (32, 1, 1), (1, 1, 1), 0), (), {})

    monkeypatch.setattr("porter.verify.builder.compile_case", compiled)
    case = dataclasses.replace(load_case(write_case(tmp_path)), dsl=DslSpec({}, ()))
    built = ToolkitBuilder().build(bind(case, {}), case.kernel, "sm_100a")
    assert places(built.module) == [None, 40, None, 41, 41]
