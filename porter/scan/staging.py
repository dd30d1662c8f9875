# SPDX-License-Identifier: Apache-2.0
"""What host code launches a kernel with, in numbers: what a step that changes a constant of it has to agree with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.lang.sources import load_sources
from porter.model.pipeline.facts import HostLaunch, KernelPipeline
from porter.model.program import build_program
from porter.passes.obstacles import SHARED_BYTES
from porter.ptx.arch import SM100A, limits
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule
from porter.scan.draft.host import HOPPER
from porter.scan.draft.launches import best_launch
from porter.scan.pipeline import host_launch

__all__ = ["Asked", "HostLaunch", "asked_of", "launch_of", "most_stages_of"]


@dataclass(frozen=True)
class Asked:
    """Bytes of dynamic shared memory, None where they are no number, and the arguments of the kernel's template."""

    dynamic_smem: int | None
    template: tuple[str, ...]


def asked_of(
    path: Path, kernel: str, rules: Sequence[Rule], include_dirs: Sequence[Path] = (), major: int = HOPPER
) -> Asked | None:
    """What the launch of a kernel on a device of compute capability `major` asks for; None where no host code of these
    files launches it there.

    Raises:
        PorterError: what reading the sources raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    for function in (k for k in program.kernels if k.name == kernel):
        facts, _, has_host = best_launch(program, function, major)
        known = facts.dynamic_smem.known if facts.dynamic_smem is not None else None
        return Asked(known if isinstance(known, int) else None, tuple(facts.kernel.template)) if has_host else None
    return None


def launch_of(
    path: Path, kernel: str, rules: Sequence[Rule], include_dirs: Sequence[Path] = (), major: int = HOPPER
) -> HostLaunch | None:
    """The launch of a kernel on a device of compute capability `major`; None where no host code of these files
    launches it there.

    Raises:
        PorterError: what reading the sources raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    for function in (k for k in program.kernels if k.name == kernel):
        facts, _, has_host = best_launch(program, function, major)
        return host_launch(function, facts) if has_host else None
    return None


def most_stages_of(kernel: KernelPipeline) -> int | str:
    """As many stages as shared memory holds of the ring that TMA fills; or what is not known, or keeps it from more."""
    filled = {name: copied or expected for name, (expected, copied) in kernel.filled.items()}
    firsts = {r.barrier: r for r in reversed(kernel.pipeline.rings)}
    mine = (b.name for b in kernel.pipeline.barriers if b.name in filled and b.name in firsts and firsts[b.name].index)
    if (name := next(mine, None)) is None:
        return "no ring of stages that TMA fills"
    nbytes, held = filled[name], firsts[name].stages
    if nbytes is None:
        return f"the bytes of a stage of {name}"
    if held is None or held.value is None:
        return f"the stages of {name}"
    smem = kernel.launch.dynamic_smem if kernel.launch is not None else None
    if smem is None or not smem.isdigit():
        return "the dynamic shared memory of the launch"
    if int(smem) < held.value * nbytes:
        return "what else lies in the static shared memory that the stages are in"
    room = (limits(SM100A.name).shared_per_block - int(smem) - SHARED_BYTES) // nbytes
    return held.value + room if room > 0 else f"{held.value} stages of {nbytes} bytes fill shared memory"
