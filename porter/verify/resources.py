# SPDX-License-Identifier: Apache-2.0
"""What kernels take, original and port side by side."""

from __future__ import annotations

from pathlib import Path

from porter.build.dsl import DslCompiled
from porter.build.nvcc import CompiledPtx, CompileRequest, compile_ptx
from porter.build.ptxas import assemble
from porter.build.table import ResourceRow, compare_modules, compile_assembled, require_shared_memory, row
from porter.build.toolchain import Toolkit
from porter.build.tree import left_out, own_first
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Unit, compile_request
from porter.verify.dsl import RecordedLaunch, compile_case
from porter.verify.line_map import placed_in_original
from porter.verify.problem import LaunchValues, Problem
from porter.verify.room import Side, with_rooms


def rows_of_case(
    problem: Problem,
    of_port: Problem,
    file: Path,
    ported: Path,
    toolkit: Toolkit,
    unit: Unit,
    target: str = PORT_ARCH,
    hint: str = "",
) -> tuple[list[ResourceRow], list[str]]:
    """The kernel of a case, and the headers that were stood in for. `of_port`: the problem as the port has it; `hint`:
    what host code calls of `porter.verify.room.HINTS`.

    Raises:
        PorterError: what the compilers raise.
    """
    if problem.case.dsl is not None:
        original, recorded = compile_case(problem, file, ORIGINAL_ARCH)
        port, of_the_port = _port_of(of_port, file, ported, target)
        sides = (
            _side(toolkit, original.ptx, ORIGINAL_ARCH, recorded.kernel, recorded.launch),
            _side(toolkit, port.ptx, target, of_the_port.kernel, of_the_port.launch),
        )
        for one, side, path in zip((original, port), sides, (file, ported), strict=True):
            require_shared_memory(side.resources, one.dynamic_smem, side.arch, path)
        modules = (original.ptx, ORIGINAL_ARCH), (port.ptx, target)
        rows = compare_modules(*modules, toolkit, dynamic=(original.dynamic_smem, port.dynamic_smem))
        return with_rooms(rows, *sides, hint), []
    before = compile_assembled(compile_request(problem, file, ORIGINAL_ARCH, unit), toolkit)
    after = compile_assembled(compile_request(of_port, ported, target, unit), toolkit)
    rows = [row(before.display_name or problem.case.entry, before, after)]
    old = _assembled_side(toolkit, before, ORIGINAL_ARCH, problem.launch)
    new = _assembled_side(toolkit, after, target, of_port.launch)
    return with_rooms(rows, old, new, hint), [*before.stood_in, *after.stood_in]


def _assembled_side(toolkit: Toolkit, compiled: CompiledPtx, arch: str, launch: LaunchValues) -> Side:
    """Of a kernel about which the assembler was asked when it was compiled."""
    if compiled.entry is None or compiled.resources is None:
        return _side(toolkit, compiled.ptx, arch, compiled.entry, launch)
    return Side(compiled.ptx, arch, {compiled.entry: compiled.resources}, {compiled.entry: launch})


def _side(toolkit: Toolkit, ptx: str, arch: str, entry: str | None = None, launch: LaunchValues | None = None) -> Side:
    launches = {} if entry is None or launch is None else {entry: launch}
    return Side(ptx, arch, assemble(toolkit, ptx, arch).resources, launches)


def _port_of(problem: Problem, file: Path, ported: Path, target: str) -> tuple[DslCompiled, RecordedLaunch]:
    try:
        return compile_case(problem, ported, target)
    except PorterError as error:
        raise placed_in_original(error, file, ported, problem.case.include_dirs) from None


def rows_of_files(
    file: Path,
    ported: Path,
    toolkit: Toolkit,
    include_dirs: tuple[Path, ...],
    target: str = PORT_ARCH,
    hint: str = "",
) -> tuple[list[ResourceRow], list[str]]:
    """All kernels of a CUDA file, and the headers that were stood in for; `hint` as in `rows_of_case`.

    Raises:
        PorterError: what the compiler raises.
    """
    here = (file.parent, *include_dirs)
    before = compile_ptx(CompileRequest(file, ORIGINAL_ARCH, include_dirs=here), toolkit)
    there, beside = own_first(file, ported, here), left_out(file, ported, include_dirs)
    after = compile_ptx(CompileRequest(ported, target, include_dirs=there, quote_dirs=beside), toolkit)
    rows = compare_modules((before.ptx, ORIGINAL_ARCH), (after.ptx, target), toolkit)
    rows = with_rooms(rows, _side(toolkit, before.ptx, ORIGINAL_ARCH), _side(toolkit, after.ptx, target), hint)
    return rows, [*before.stood_in, *after.stood_in]


def assembler_warnings(row: ResourceRow, file: Path) -> list[Diagnostic]:
    where = Location(str(file))
    texts = [(row.before_arch, w) for w in row.before_warnings]
    texts += [(row.after_arch, w) for w in row.after_warnings]
    return [Diagnostic(Code.PTXAS_WARNING, where, {"text": f"{arch}: {text}"}) for arch, text in texts]
