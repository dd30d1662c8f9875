# SPDX-License-Identifier: Apache-2.0
"""Compiles CuTe C++ with the header that ports bring along, and runs it on the simulator."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kept_sources import kept

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.passes.tiled.port import HEADER, header_text
from porter.ptx.ast import Module
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate

Array = npt.NDArray[Any]


def cutlass_directories() -> tuple[Path, ...]:
    """Where CUTLASS' headers are, of the package that tests marked `external` read."""
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    return root / "include", root / "tools/util/include"


@dataclass
class Unit:
    """A translation unit: its PTX, and that of each kernel."""

    ptx: str
    module: Module

    def body(self, entry: str) -> str:
        found = re.search(rf"\.entry {entry}\(.*?(?=\.entry|\Z)", self.ptx, re.DOTALL)
        assert found is not None, entry
        return found[0]

    def count(self, entry: str, opcode: str) -> int:
        return len(re.findall(rf"\b{re.escape(opcode)}\.", self.body(entry)))


def compiled(text: str, arch: str, defines: Sequence[str] = ()) -> Unit:
    """The PTX of a source text, which may include `cute_sm100.hpp`."""
    source = kept({"unit.cu": text, HEADER: header_text()}) / "unit.cu"
    request = CompileRequest(source, arch, include_dirs=cutlass_directories(), defines=tuple(defines), lineinfo=False)
    ptx = compile_ptx(request).ptx
    return Unit(ptx, parse_module(ptx))


def launched(
    unit: Unit,
    entry: str,
    inputs: Sequence[Array],
    output: Array,
    *,
    threads: int,
    shared: int,
    blocks: int = 1,
    **options: Any,
) -> tuple[Array, Outcome]:
    """The output of a kernel whose parameters are its inputs and its output, checked at strict level."""
    memory = GlobalMemory()
    addresses = []
    for data in inputs:
        addresses.append(memory.alloc(data.nbytes))
        memory.write(addresses[-1], np.ascontiguousarray(data).tobytes())
    result = memory.alloc(output.nbytes)
    function = unit.module.function(entry)
    values = [*addresses, result]
    params = struct.pack(f"<{len(values)}Q", *values) if len(function.params) == 1 else pack_params(function, values)
    launch = Launch((blocks, 1, 1), (threads, 1, 1), dynamic_smem=shared)
    outcome = simulate(unit.module, entry, launch, params, memory, Options(mode="checking", **options))
    got = np.frombuffer(bytes(memory.read(result, output.nbytes)), output.dtype).reshape(output.shape)
    return got, outcome


def assert_clean(outcome: Outcome, what: str = "") -> None:
    assert outcome.status == "ok", (what, [str(f) for f in outcome.findings])
    hazards = [(h.kind.id, h.severity, h.second.opcode, h.missing) for h in outcome.hazards]
    assert not hazards, (what, hazards)
