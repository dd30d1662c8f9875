# SPDX-License-Identifier: Apache-2.0
"""The pipelines of kernels in CUDA C++: what their text says, and what their host code launches them with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from porter.lang.sources import load_sources
from porter.model.functions import Function
from porter.model.pipeline.facts import HostLaunch, KernelPipeline, TensorMap
from porter.model.pipeline.read import pipeline_of
from porter.model.program import Program, build_program
from porter.ptx.tensormap import TensorMapType
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule
from porter.scan.draft.launches import best_launch, cluster_of
from porter.scan.draft.numbers import Num
from porter.scan.draft.values import LaunchFacts, MapValue, Word

__all__ = ["KernelPipeline", "launched", "pipelines"]


def pipelines(path: Path, rules: Sequence[Rule], include_dirs: Sequence[Path] = ()) -> list[KernelPipeline]:
    """Those of all kernels of a file and its headers that have one.

    Raises:
        PorterError: what reading the sources raises.
    """
    return [k for k in launched(path, rules, include_dirs) if k.pipeline.barriers or k.pipeline.roles]


def launched(path: Path, rules: Sequence[Rule], include_dirs: Sequence[Path] = ()) -> list[KernelPipeline]:
    """All kernels of a file and its headers, those without a pipeline of their own among them: a library may have it.

    Raises:
        PorterError: what reading the sources raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    return [_kernel(program, kernel) for kernel in program.kernels]


def _kernel(program: Program, kernel: Function) -> KernelPipeline:
    facts, _, has_host = best_launch(program, kernel)
    given: Mapping[str, str] = {}
    threads: int | None = None
    if has_host:
        given = dict(zip(kernel.template_params, facts.kernel.template, strict=False))
        block = [b.known for b in facts.block or ()]
        whole = [b for b in block if isinstance(b, int)]
        threads = math.prod(whole) if block and len(whole) == len(block) else None
    pipeline = pipeline_of(program, kernel, threads, given)
    return KernelPipeline(pipeline, host_launch(kernel, facts) if has_host else None)


def host_launch(kernel: Function, facts: LaunchFacts) -> HostLaunch:
    """A launch as pipelines have it."""
    maps = [
        _map(param.name, value)
        for param, value in zip(kernel.params, facts.arguments, strict=False)
        if isinstance(value, MapValue)
    ]
    smem = facts.dynamic_smem
    return HostLaunch(
        _texts(facts.grid),
        _texts(facts.block),
        _texts(facts.cluster or cluster_of(kernel)),
        None if smem is None else str(smem),
        tuple(facts.kernel.template),
        tuple(maps),
        tuple(
            (param.name, str(value))
            for param, value in zip(kernel.params, facts.arguments, strict=False)
            if isinstance(value, Num) and param.name
        ),
    )


def _texts(values: Sequence[Num] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(v) for v in values)


def _map(param: str, value: MapValue) -> TensorMap:
    fields = value.fields
    swizzle = fields["swizzle"].text if isinstance(fields.get("swizzle"), Word) else ""
    rank = _number(fields.get("rank"))
    element = fields["type"].text if isinstance(fields.get("type"), Word) else ""
    box = [_number(b) for b in (fields.get("box") or ())][: rank or None]
    known = [b for b in box if b is not None]
    kind = element.removeprefix("CU_TENSOR_MAP_DATA_TYPE_")
    bits = TensorMapType[kind].element_bits if kind in TensorMapType.__members__ else None
    nbytes = math.prod(known) * bits // 8 if box and bits and len(known) == len(box) else None
    return TensorMap(
        param,
        getattr(fields.get("base"), "name", ""),
        rank,
        _some(fields.get("dims"), rank),
        _some(fields.get("strides"), None if rank is None else rank - 1),
        _some(fields.get("box"), rank),
        swizzle.removeprefix("CU_TENSOR_MAP_SWIZZLE_"),
        kind,
        nbytes,
    )


def _some(values: Any, count: int | None) -> tuple[str, ...]:
    return tuple("?" if v is None else str(v) for v in (values or ())[: count if count is not None else None])


def _number(value: Any) -> int | None:
    known = value.known if isinstance(value, Num) else None
    return known if isinstance(known, int) else None
