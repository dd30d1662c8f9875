# SPDX-License-Identifier: Apache-2.0
"""How a program of a case is launched: what a port changes of it, and what its compiled kernel has to say to that.

A port's changes have the form of the section `port` of a case (docs/cases.md). They make a case of their own, with the
tensors of the first: inputs, reference and results are the same for both programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Code, PorterError
from porter.ptx import arch, ast
from porter.verify.builder import PORT_ARCH, Builder, BuiltKernel
from porter.verify.case import (
    Case,
    TensorMapSpec,
    bad_field,
    check_names,
    place,
    tensor_map_spec,
    tensor_map_values,
)
from porter.verify.expr import Number
from porter.verify.params import check_arguments
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.program.kernel_facts import kernel_facts
from porter.verify.scope import Scope

_PLAIN = ("entry",)
_MERGED = ("constants", "defines", "multiples", "mutate_sizes")
_LISTS = ("template", "params", "tile")
_NOT_OF_DSL = ("template", "launch", "params", "defines", "entry", "tensor_maps")


@dataclass(frozen=True)
class BuiltPort:
    """A port of a case at one size: the problem with what the port changes of it, and its launch."""

    source: Path
    problem: Problem
    kernel: BuiltKernel
    launch: LaunchValues


def build_port(problem: Problem, plan: PortPlan, builder: Builder, target: str = PORT_ARCH) -> BuiltPort:
    """Compile the port of a problem for `target`.

    Raises:
        PorterError: what `port_problem` and building raise; PORT_LAUNCH if the kernel cannot be launched so.
    """
    own = port_problem(problem, plan.section)
    source = materialize(plan, problem.case.to_port)
    kernel = builder.build(own, source, target)
    launch = launch_of(own, kernel)
    if kernel.recorded is None and kernel.function is not None:
        launch = _fitting(own, kernel.module, kernel.function, launch)
    return BuiltPort(source, own, kernel, launch)


def launch_of(problem: Problem, kernel: BuiltKernel) -> LaunchValues:
    """The launch that the kernel's own host code makes, else the case's, whose arguments have to fit."""
    if kernel.recorded is None:
        check_arguments(problem, kernel.function)
    return kernel.launch(problem)


def port_problem(problem: Problem, section: Mapping[str, Any] | None) -> Problem:
    """The problem as a port has it.

    Raises:
        PorterError: what `ported_case` and `bind` raise; CASE_DOES_NOT_FIT for a size that the port does not take, and
            for a change that reaches a tensor.
    """
    if not section:
        return problem
    case = ported_case(problem.case, section)
    reason = _not_taken(case, section, problem.sizes)
    if reason is not None:
        name, what = reason
        raise _unfit(case, f"multiples.{name}", what)
    own = bind(case, problem.sizes)
    for name, tensor in problem.tensors.items():
        changed = own.tensors[name]
        if (changed.shape, changed.strides) != (tensor.shape, tensor.strides):
            what = f"tensor {name} would be {list(changed.shape)} in place of {list(tensor.shape)}"
            raise _unfit(case, "constants", f"{what}; original and port have the same tensors")
    return replace(own, tensors=problem.tensors)


def ported_case(case: Case, section: Mapping[str, Any] | None) -> Case:
    """The case as a port has it, with those of the other sizes that the port takes.

    Raises:
        PorterError: CASE_FIELD.
    """
    if not section:
        return case
    if case.dsl is not None:
        for name in _NOT_OF_DSL:
            if name in section:
                raise bad_field(replace(case, as_port=True), name, "the kernel's own host code says so")
    changes: dict[str, Any] = {name: section[name] for name in _PLAIN if name in section}
    changes |= {name: {**getattr(case, name), **section[name]} for name in _MERGED if name in section}
    changes |= {name: tuple(section[name]) for name in _LISTS if name in section}
    if "launch" in section:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in section["launch"].items()}
        changes["launch"] = replace(case.launch, **given)
    own = replace(case, as_port=True, **changes)
    maps = {name: _tensor_map(own, name, given) for name, given in section.get("tensor_maps", {}).items()}
    own = replace(own, tensor_maps={**case.tensor_maps, **maps})
    check_names(own)
    taken = tuple(s for s in case.other_sizes if _not_taken(own, section, {**case.sizes, **s}) is None)
    return replace(own, other_sizes=taken)


def _tensor_map(case: Case, name: str, given: Mapping[str, Any]) -> TensorMapSpec:
    """A map with what is said of it changed, or another one."""
    before = case.tensor_maps.get(name)
    if before is None:
        for needed in ("tensor", "box"):
            if needed not in given:
                raise bad_field(case, f"tensor_maps.{name}", f"missing field {needed}, as the case has no map {name}")
        return tensor_map_spec(name, given)
    return replace(before, **tensor_map_values(given))


def _not_taken(case: Case, section: Mapping[str, Any], sizes: Mapping[str, Number]) -> tuple[str, str] | None:
    """The first size that is not what the section says it has to be a multiple of, and what is wrong with it."""
    scope = Scope(case, dict(sizes))
    if not section.get("multiples"):
        return None
    for name, expression in case.constants.items():
        scope.names[name] = scope.number(f"constants.{name}", expression)
    for name, expression in section["multiples"].items():
        unit = scope.integer(f"multiples.{name}", expression, 1)
        if int(sizes[name]) % unit:
            return name, f"{name}={sizes[name]} is no multiple of {unit}, which the port needs"
    return None


def _unfit(case: Case, field: str, problem: str) -> PorterError:
    return PorterError(Code.CASE_DOES_NOT_FIT, place(case, field), field=f"port.{field}", problem=problem)


def _fitting(problem: Problem, module: ast.Module, function: ast.Function, launch: LaunchValues) -> LaunchValues:
    """The launch.

    Raises:
        PorterError: PORT_LAUNCH for one that a GPU refuses.
    """
    wrong = misfit(launch, module, function)
    if wrong is not None:
        field, what = wrong
        where = place(problem.case, f"launch.{field}")
        raise PorterError(Code.PORT_LAUNCH, where, field=f"launch.{field}", problem=what)
    return launch


def misfit(launch: LaunchValues, module: ast.Module, function: ast.Function) -> tuple[str, str] | None:
    """Which value of a launch a GPU refuses for a kernel, and why; None also for a chip that nobody knows."""
    if module.target not in arch.TARGETS:
        return None
    facts, limits = kernel_facts(module, function), arch.limits(module.target)
    threads, blocks = math.prod(launch.block), math.prod(launch.cluster)
    if facts.block is not None and launch.block != facts.block:
        return "block", f"blocks of {_extents(launch.block)}; the kernel requires {_extents(facts.block)}"
    if facts.max_threads is not None and threads > facts.max_threads:
        return "block", f"{threads} threads; the kernel takes {facts.max_threads}"
    if facts.cluster is not None and launch.cluster != facts.cluster:
        return "cluster", f"the kernel requires clusters of {_extents(facts.cluster)}"
    if blocks > limits.cluster_max:
        return "cluster", f"{blocks} blocks; a cluster has at most {limits.cluster_max}"
    if any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True)):
        return "grid", f"{_extents(launch.grid)} blocks are no whole clusters of {_extents(launch.cluster)}"
    shared = facts.static_shared + launch.dynamic_smem
    if shared > limits.shared_per_block:
        return "dynamic_smem", f"{shared} bytes of shared memory; a block has at most {limits.shared_per_block}"
    return None


def _extents(values: tuple[int, int, int]) -> str:
    return ", ".join(map(str, values))
