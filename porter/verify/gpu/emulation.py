# SPDX-License-Identifier: Apache-2.0
"""A lowered module made ready for a Hopper GPU, and what its launch needs and leaves."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.build.cache import Cache, digest
from porter.build.nvcc import DEFAULT_FLAGS
from porter.build.ptxas import assemble
from porter.build.run import failure, run
from porter.build.toolchain import Toolkit, find_host_compiler
from porter.diagnostics import Code
from porter.hopper import Layout, Lowered, Site, TrapReport, describe, lower
from porter.hopper.library import HOST_VARIABLE, LIBRARY_SOURCE, HostBlock, paste, read_states
from porter.hopper.lower import TARGET
from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.tmem import MIN_ALLOCATION
from porter.verify.gpu.process import GpuFailure, GpuProcess
from porter.verify.outcome import RunFinding
from porter.verify.settings import GpuOptions

PATIENCE_SECONDS = 10.0
"""Without a tensor-core operation for this long, a waiting thread stops the kernel; at most half the time limit
of the launch."""


def library_ptx(toolkit: Toolkit, cache: Cache | None = None) -> str:
    """The emulation library as PTX for Hopper, compiled once per compiler and source.

    Raises:
        PorterError: NVCC_ERROR, NO_HOST_COMPILER.
    """
    cache = cache or Cache.default()
    files = sorted(LIBRARY_SOURCE.parent.iterdir())
    flags = [f"-arch={TARGET}", "-std=c++17", *DEFAULT_FLAGS, "-rdc=true", "-ptx"]
    key = digest(["hopper 1", toolkit.build, str(toolkit.nvcc), *flags, "", *(p.read_bytes() for p in files)])
    stored = cache.get(key)
    if stored is not None:
        return str(json.loads(stored)["ptx"])
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        target = Path(name) / "library.ptx"
        done = run(
            [toolkit.nvcc, *flags, "-ccbin", find_host_compiler().path, "-o", target, LIBRARY_SOURCE.name],
            cwd=LIBRARY_SOURCE.parent,
        )
        if done.status != 0:
            raise failure(Code.NVCC_ERROR, done.log, path=str(LIBRARY_SOURCE), arch=TARGET)
        text = target.read_text(encoding="utf-8")
    cache.put(key, json.dumps({"ptx": text}).encode())
    return text


@dataclass(frozen=True)
class Emulated:
    """A module that runs on Hopper: its cubin, and the sites that traps name."""

    cubin: bytes
    sites: tuple[Site, ...]


class Lowerer:
    """Lowers and assembles modules; each once."""

    def __init__(self, toolkit: Toolkit, cache: Cache | None = None) -> None:
        self._toolkit, self._cache = toolkit, cache
        self._library = functools.cache(lambda: library_ptx(toolkit, cache))

    def emulated(self, module: ast.Module, name: str) -> Emulated:
        """Raises CannotLower; PorterError PTXAS_ERROR, NVCC_ERROR."""
        lowered: Lowered = lower(module)
        done = assemble(self._toolkit, paste(lowered.ptx, self._library()), TARGET, name=name, cache=self._cache)
        return Emulated(done.cubin, lowered.sites)


class Emulation:
    """Memory of one launch of a lowered kernel."""

    def __init__(self, gpu: GpuProcess, ctas: int, options: GpuOptions) -> None:
        self.gpu, self.ctas = gpu, ctas
        self.layout = Layout(ctas)
        self.options = options
        self.states = 0

    def prepare(self, module: int) -> None:
        """Allocate, clear, and tell the module.

        Raises:
            GpuFailure: GPU_OUT_OF_MEMORY and the others of `GpuProcess.call`.
        """
        layout = self.layout
        tmem = self._allocate(layout.tmem, "Tensor Memory")
        self.states = self._allocate(layout.states, "Tensor Memory")
        queue = self._allocate(layout.queue, "Tensor Memory")
        sms = self._allocate(layout.sms, "Tensor Memory")
        self.gpu.call("fill", address=self.states, value=0, size=layout.states)
        self.gpu.call("fill", address=queue, value=0, size=layout.queue)
        self.gpu.call("fill", address=sms, value=0, size=layout.sms)
        # Cells that nothing wrote read as NaN.
        self.gpu.call("fill", address=tmem, value=0xFF, size=layout.tmem)
        patience = min(PATIENCE_SECONDS, self.options.seconds / 2)
        block = HostBlock(
            tmem, self.states, queue, sms, self.gpu.info().report, int(patience * 1e9), self.ctas, self.options.mode,
            self.options.arithmetic,
        )  # fmt: skip
        variable, _ = self.gpu.call("variable", module=module, name=HOST_VARIABLE)
        self.gpu.call("write", block.encode(), address=variable["address"])

    def _allocate(self, size: int, name: str) -> int:
        return int(self.gpu.call("allocate", size=size, name=name)[0]["address"])

    def left_behind(self, kernel: str) -> list[RunFinding]:
        """What a kernel that ended should have cleaned up."""
        _, data = self.gpu.call("read", address=self.states, size=self.layout.states)
        states = read_states(data)
        leaks = [i for i, s in enumerate(states) if s.allocated]
        pending = [i for i, s in enumerate(states) if s.issued != s.executed]
        found = []
        if leaks:
            columns = MIN_ALLOCATION * bin(states[leaks[0]].allocated).count("1")
            what = f"{len(leaks)} CTAs ended without tcgen05.dealloc of {columns} columns, first CTA {leaks[0]}"
            found.append(RunFinding(Code.SIM_TMEM_LEAK, what, kernel=kernel))
        if pending:
            s = states[pending[0]]
            what = (
                f"{len(pending)} CTAs ended with tensor-core operations that nothing waited for, first CTA "
                f"{pending[0]} ({s.issued} issued, {s.executed} done)"
            )
            found.append(RunFinding(Code.SIM_TMEM_LEAK, what, kernel=kernel))
        return found


def trap_finding(failure: GpuFailure, sites: tuple[Site, ...]) -> RunFinding | None:
    """The finding that a stopped kernel reported, or None if it did not stop by itself."""
    if len(failure.report) < TrapReport.size():
        return None
    report = TrapReport.decode(failure.report)
    if report is None:
        return None
    code, message = describe(report.code, report.values)
    place: dict[str, Any] = {}
    where = []
    if report.site < len(sites):
        site = sites[report.site]
        place = {"kernel": site.kernel, "ptx_line": site.line}
        message = f"{site.opcode}: {message}"
        if site.loc is not None:
            place |= {"source": site.loc.file, "line": site.loc.line}
            where.append(f"{site.loc.file}:{site.loc.line}")
        where.append(f"PTX line {site.line}")
    where.append(f"block {','.join(map(str, report.block))}")
    where.append(f"warp {report.thread // WARP} lane {report.thread % WARP}")
    return RunFinding(
        code, code.value.title.format(what=message), ", ".join(where), block=report.block,
        warp=report.thread // WARP, lane=report.thread % WARP, **place,
    )  # fmt: skip
