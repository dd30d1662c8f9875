# SPDX-License-Identifier: Apache-2.0
"""Compiling the kernel of a case, original or port, to parsed PTX."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from porter.build.entry import demangle, function_name, named
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.ptxas import Assembled, assemble
from porter.build.toolchain import Toolkit, find_toolkit
from porter.build.tree import left_out, own_first
from porter.diagnostics import Code, Location, PorterError
from porter.project.include_dirs import outside_directories
from porter.ptx import ast
from porter.ptx.arch import SM100A
from porter.ptx.launch_bounds import extents
from porter.ptx.occupancy import Taken
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.ptx.places import keep_places
from porter.verify.case import LaunchSpec
from porter.verify.dsl import RecordedLaunch, compile_case
from porter.verify.problem import LaunchValues, Problem

ORIGINAL_ARCH = "sm_90a"
PORT_ARCH = SM100A.name
"""The chip of ports. One for another chip is compiled for that, and simulated as this: their tcgen05 is one
(`porter.ptx.arch.PORT_TARGETS`)."""


@dataclass(frozen=True)
class BuiltKernel:
    """A compiled kernel: its module, the mangled name of its entry, the PTX text and the compiler's
    figures. `recorded` is the launch that the kernel's own host code makes, where it has some. `cubin` is set for
    a kernel that is known as a binary only; its module is empty. `assembled` asks ptxas about the module, where there
    is one to ask."""

    arch: str
    entry: str
    module: ast.Module
    ptx: str
    resources: Any = None
    recorded: RecordedLaunch | None = None
    cubin: bytes | None = None
    assembled: Callable[[], Assembled] | None = None

    @property
    def function(self) -> ast.Function | None:
        """None for a kernel that is known as a binary only."""
        return self.module.function(self.entry) if self.cubin is None else None

    def taken(self) -> Taken | None:
        """What ptxas gives a block; None where there is nobody to ask, or no answer."""
        if self.assembled is None:
            return None
        try:
            used = self.assembled().resources.get(self.entry)
        except PorterError:
            return None
        return None if used is None else used.taken

    def bound(self, problem: Problem) -> Problem:
        """The problem with the arguments and the launch of the kernel's own host code, where it has some, else with
        what the kernel itself says of its launch."""
        if self.recorded is None:
            return replace(problem, launch=self.launch(problem))
        own = self.recorded
        return replace(problem, arguments=own.arguments, tensor_maps=own.tensor_maps, launch=own.launch)

    def launch(self, problem: Problem) -> LaunchValues:
        """The launch that the kernel's own host code makes, else the case's, in the clusters that the kernel itself
        states where the case states none."""
        if self.recorded is not None:
            return self.recorded.launch
        function = self.function if problem.case.launch.cluster == LaunchSpec.cluster else None
        stated = extents(function.directives, "reqnctapercluster") if function is not None else None
        return problem.launch if stated is None else replace(problem.launch, cluster=stated)


class Builder(Protocol):
    """Turns the kernel of a problem into PTX for an architecture."""

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        """`source` is the kernel file to compile: the case's own, or a port of it."""
        ...


Unit = Callable[[Path, str], Path]
"""From a source and the name of a kernel in it: the file that the compiler is given."""


def _as_it_is(source: Path, entry: str) -> Path:
    return source


def compile_request(problem: Problem, source: Path, arch: str, unit: Unit = _as_it_is) -> CompileRequest:
    """How the kernel of a problem is compiled from `source`. A port's own headers come first; those that it left
    alone are found beside the original. Raises what `unit` raises."""
    case = problem.case
    original = case.source or case.kernel
    include_dirs = (original.parent, *case.include_dirs, *outside_directories(original))
    unit_source = unit(source, case.entry)
    own = unit_source.resolve() == original.resolve() or original.suffix in (".ptx", ".cubin", ".py")
    return CompileRequest(
        source=unit_source,
        arch=arch,
        entry=case.entry,
        template_args=problem.template,
        include_dirs=own_first(original, source, include_dirs),
        defines=tuple(f"{name}={value}" for name, value in problem.defines.items()),
        quote_dirs=() if own else left_out(original, source, include_dirs),
    )


def _has_place(loc: ast.SourceLoc) -> bool:
    """CuTe DSL gives what has no place of its own that of the decorated host function, in column 0."""
    return loc.column > 0


class ToolkitBuilder:
    """Compiles with nvcc what `unit` makes of a source, ports for `target`; modules are parsed once per content."""

    def __init__(self, toolkit: Toolkit | None = None, unit: Unit = _as_it_is, target: str = PORT_ARCH) -> None:
        self._unit = unit
        self._target = target
        self._toolkit = toolkit
        self._parsed: dict[str, ast.Module] = {}
        self.stood_in: set[str] = set()
        """Headers of host libraries that are not installed, met so far."""

    @property
    def toolkit(self) -> Toolkit:
        """Found on first use, so that a machine without a compiler fails only when one is needed."""
        if self._toolkit is None:
            self._toolkit = find_toolkit()
        return self._toolkit

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        """Raises what `porter.build.nvcc.compile_ptx` and `porter.verify.dsl.compile_case` raise."""
        arch = self._target if arch == PORT_ARCH else arch
        if problem.case.recorded is not None:
            return self._recorded(problem, source, arch)
        if problem.case.dsl is not None:
            compiled_dsl, recorded = compile_case(problem, source, arch)
            module = self._module(compiled_dsl.ptx, source, arch, _has_place)
            ask = self._assembled(compiled_dsl.ptx, arch)
            return BuiltKernel(arch, recorded.kernel, module, compiled_dsl.ptx, None, recorded, None, ask)
        compiled = compile_ptx(compile_request(problem, source, arch, self._unit), self.toolkit)
        self.stood_in |= set(compiled.stood_in)
        if compiled.entry is None:
            raise PorterError(Code.ENTRY_NOT_FOUND, path=str(source), entry=problem.case.entry)
        module = self._module(compiled.ptx, source, arch)
        return BuiltKernel(arch, compiled.entry, module, compiled.ptx, assembled=self._assembled(compiled.ptx, arch))

    def make(self, problem: Problem, source: Path, arch: str) -> None:
        """Have the compiler make what `build` is going to ask for, of a case in CuTe DSL. Raises as `build` does."""
        compile_case(problem, source, self._target if arch == PORT_ARCH else arch)

    def _assembled(self, ptx: str, arch: str) -> Callable[[], Assembled]:
        def ask() -> Assembled:
            try:
                return assemble(self.toolkit, ptx, arch)
            except PorterError:
                # Functions that other files define: to be linked later.
                return assemble(self.toolkit, ptx, arch, flags=("-c",))

        return ask

    def _recorded(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        """The kernel of a recorded case: its PTX or cubin, or a source that instantiates it by itself. A binary
        only is passed over for the source it was compiled from."""
        case = problem.case
        if source.suffix == ".cubin" and case.source is not None:
            source = case.source
        if source.suffix == ".cubin":
            return BuiltKernel(arch, case.entry, ast.Module((9, 0), arch, 64, (), ()), "", cubin=source.read_bytes())
        if source.suffix == ".ptx":
            ptx = source.read_text("utf-8", "surrogateescape")
        else:
            request = replace(compile_request(problem, source, arch), entry=None)
            ptx = compile_ptx(request, self.toolkit).ptx
        module = self._module(ptx, source, arch)
        names = [f.name for f in module.entries()]
        found = [case.entry] if case.entry in names else named(names, function_name(case.entry))
        if len(found) != 1:
            code = Code.ENTRY_AMBIGUOUS if found else Code.ENTRY_NOT_FOUND
            listed = "\n".join(demangle(n) for n in found or names)
            raise PorterError(code, path=str(source), entry=demangle(case.entry), detail=listed)
        return BuiltKernel(arch, found[0], module, ptx, assembled=self._assembled(ptx, arch))

    def _module(
        self, ptx: str, source: Path, arch: str, keep: Callable[[ast.SourceLoc], bool] | None = None
    ) -> ast.Module:
        """`keep` says which source places are any."""
        key = hashlib.sha256(ptx.encode()).hexdigest()
        if key not in self._parsed:
            module = parse_ptx(ptx, f"{source} ({arch})")
            self._parsed[key] = module if keep is None else keep_places(module, keep)
        return self._parsed[key]


def parse_ptx(text: str, name: str) -> ast.Module:
    """A PTX module.

    Raises:
        PorterError: PTX_UNREADABLE with the place in the PTX.
    """
    try:
        return parse_module(text)
    except PtxSyntaxError as error:
        where = Location(name, error.line, error.column)
        raise PorterError(Code.PTX_UNREADABLE, where, path=name, problem=error.message) from None
