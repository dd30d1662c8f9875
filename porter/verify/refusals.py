# SPDX-License-Identifier: Apache-2.0
"""Why PTX refuses what a port proposes, whatever a run shows: the port leaves something else than its original, has
hazards of its own, does the same only at sizes that were looked at, or what is to be the same is not compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.build.entry import function_name, kernel_name
from porter.build.nvcc import compile_ptx
from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.facts.apart import Apart
from porter.facts.code import Code
from porter.facts.flow import Flow, called
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.verify.budget import Budget
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.case_program import Program
from porter.verify.equality import Comparison
from porter.verify.gate import GateOptions, requests
from porter.verify.hazards import usual_level
from porter.verify.line_map import LineMap
from porter.verify.proved import compared
from porter.verify.proving import Sizes, listed
from porter.verify.thresholds import UnreachedError, sizes_beyond


def told_by_launch(flow: Flow) -> str:
    """What only a launch tells of two consumers of an original, so that no size shows it of others."""
    found = next(Apart(flow).found(), None)
    if found is None:
        return ""
    at, what = found
    places = flow.places(at)
    where = f" at {places[-1].file.rpartition('/')[2]}:{places[-1].line}" if places else ""
    return f"{what}{where} goes by the thread and by what only a launch tells"


def told_by_launch_of(original: Program, sizes: Sizes) -> str:
    """The same of what is compiled for a size. Raises PorterError: what binding and compiling raise."""
    kernel, _ = original.at(sizes)
    assert kernel.function is not None
    return told_by_launch(Flow(Code(kernel.module, kernel.function)))


def told_by_launches(path: Path, options: GateOptions) -> str:
    """The same of any kernel that the compiler makes of a file. Raises PorterError: what compiling raises."""
    return next(filter(None, map(told_by_launch, flows_in(path, options))), "")


def printed(path: Path, options: GateOptions) -> str:
    """What kernels that the compiler makes of a file print beside what they leave, which nobody compares: how often
    that is, and of what, goes by who does it. Where only a trap follows, there is nothing left to compare.

    Raises:
        PorterError: what compiling raises.
    """
    for flow in flows_in(path, options):
        for at in range(len(flow.code.code)):
            if flow.decoded[at] is not None and at not in flow.lost and called(flow.code.code[at]) == "vprintf":
                return f"what {kernel_name(flow.code.entry.name)} prints, which is not compared"
    return ""


def flows_in(path: Path, options: GateOptions) -> Iterator[Flow]:
    """Raises PorterError: what compiling raises."""
    toolkit = find_toolkit(options.toolkit)
    modules = [parse_module(compile_ptx(request, toolkit).ptx) for request in requests(path, options)]
    return (Flow(Code(module, function)) for module in modules for function in module.entries())


def launchable(path: Path, options: GateOptions, texts: Sequence[bytes]) -> list[str]:
    """Kernels that the compiler makes of a file, but for those of a library that do nothing and that its sources,
    `texts`, do not name: what a header asks for attributes of code with is never launched.

    Raises:
        PorterError: what compiling raises.
    """
    toolkit = find_toolkit(options.toolkit)
    modules = [parse_module(compile_ptx(request, toolkit).ptx) for request in requests(path, options)]
    return list(dict.fromkeys(e.name for m in modules for e in m.entries() if not _is_idle(e) or _is_named(e, texts)))


def _is_idle(entry: ast.Function) -> bool:
    found = [s.opcode for s in entry.body or () if isinstance(s, ast.Instruction)]
    return set(found) <= {"ret"} and not any(isinstance(s, ast.Block) for s in entry.body or ())


def _is_named(entry: ast.Function, texts: Sequence[bytes]) -> bool:
    name = re.compile(rb"\b%b\b" % function_name(entry.name).rsplit("::", 1)[-1].encode())
    return any(name.search(text) for text in texts)


def refusal(case: Case, plan: PortPlan, builder: Builder, chosen: Sequence[Sizes], seconds: float, joined: bool) -> str:
    """The reason, empty where there is none or nothing is known. `joined`: the MMAs are those of two warpgroups;
    `seconds` are for the comparison, and for each proof, behind the first size.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    original, port = Program(case, builder), Program(case, builder, plan)
    comparison = Comparison(case.name, original, port, Budget.of_work(seconds))
    if joined and (what := told_by_launch(comparison.flow_of(original.at(chosen[0])[0]))):
        return what
    further = list[Sizes]()
    equality = comparison.run(chosen[:1])
    if equality.status != "differs" or plan.reorders:
        try:
            # what threads do with rows of their own may go by a size; of two consumers that is told by the launch above
            further = [] if joined else sizes_beyond({"original": original, "port": port}, chosen, seconds)
        except UnreachedError as error:
            return str(error)
        equality = comparison.run([*chosen, *further])
    if equality.status == "differs" and not plan.reorders:
        return f"on PTX at {equality.at}, {equality.why}"
    if further and len(equality.looked_at) >= len(chosen):
        if equality.status == "unknown":
            return f"on PTX it is not known to be equal at {equality.at}: {equality.why}"
        if comparison.budget.is_spent and len(equality.looked_at) < len(chosen) + len(further):
            return f"there was no time to compare it at {listed(further[-1])}"
    of_port = port.prove(chosen, seconds, usual_level("port"), False)
    if of_port.status == "unknown":
        return f"its synchronization is not known on PTX: {of_port.checked.unknown}"
    if not of_port.checked.findings:
        return ""
    of_original = original.prove(chosen, seconds, usual_level("original"), False)
    found = compared(of_original, of_port, LineMap(original.source, port.source)).introduced
    kinds = ", ".join(sorted({finding.kind for finding in found}))
    return f"its synchronization on PTX at {of_port.at}: {kinds}" if found else ""
