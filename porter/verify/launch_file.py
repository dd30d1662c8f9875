# SPDX-License-Identifier: Apache-2.0
"""Launch files: launches of kernels that are known as PTX, from anywhere.

A launch is a case without source and reference: `load_launch` makes one, and memory, tensor maps and arguments are
those of cases. The schema stands in `launch.schema.json` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.diagnostics.reading import is_file
from porter.verify import compare
from porter.verify.backends import RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.case import (
    Case,
    Expr,
    LaunchSpec,
    RecordedFrom,
    TensorSpec,
    bad_field,
    check_names,
    place,
    tensor_map_spec,
)
from porter.verify.fills import FILLS
from porter.verify.images import Image, make_image
from porter.verify.inputs import RECORDED, generate, recorded_elements
from porter.verify.launching import misfit
from porter.verify.params import check_arguments
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.program.kernel_facts import KernelFacts, kernel_facts
from porter.verify.ptx_files import PtxKernel, read_kernel
from porter.verify.yaml_file import load_yaml


@dataclass(frozen=True)
class PtxLaunch:
    """A launch with its kernel, ready to run."""

    problem: Problem
    kernel: BuiltKernel
    images: Mapping[str, Image]
    overlaps: bool = False
    """It need not wait for the end of the launch before it."""

    @property
    def launch(self) -> LaunchValues:
        return self.problem.launch


def load_launch(
    path: Path, ptx: Path | None = None, entry: str | None = None, chip: str | None = None, seed: int = 0
) -> PtxLaunch:
    """Read a launch file and the kernel that it launches: of several launches the one that `entry` names, with memory
    as it is ahead of the first. `ptx` and `entry` stand in for what the file says, `chip` chooses among modules for
    several; `seed` is for contents that are drawn.

    Raises:
        PorterError: FILE_NOT_FOUND, CASE_NOT_YAML, CASE_FIELD, CASE_EXPRESSION, CASE_DOES_NOT_FIT, CASE_PARAMETERS;
            what `read_kernel` raises; BAD_OPTION where it is not one launch.
    """
    data = load_yaml(path, "launch")
    parts = _parts(path, data)
    if len(parts) > 1:
        parts = [(keys, part) for keys, part in parts if entry is not None and entry in part.get("entry", "")]
        if len(parts) != 1:
            count = len(data["launches"])
            problem = f"{path.name} has {count} launches, and one is meant: name its kernel, or leave the others out"
            raise PorterError(Code.BAD_OPTION, Location(str(path)), option="--kernel", problem=problem)
    ((keys, part),) = parts
    return _launch(path, keys, part, ptx, None if "launches" in data else entry, chip, seed)


def load_launches(
    path: Path, ptx: Path | None = None, entry: str | None = None, chip: str | None = None, seed: int = 0
) -> list[PtxLaunch]:
    """Read a launch file with all of its launches, in order; `entry` is for a file with one.

    Raises:
        PorterError: what `load_launch` raises.
    """
    data = load_yaml(path, "launch")
    if "launches" not in data or entry is not None:
        return [load_launch(path, ptx, entry, chip, seed)]
    return [_launch(path, keys, part, ptx, None, chip, seed) for keys, part in _parts(path, data)]


def _parts(path: Path, data: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The launches of a file, each as a file with this one alone, and the keys where it stands."""
    if "launches" not in data:
        return [((), dict(data))]
    twice = next((field for field in ("launch", "params", "entry") if field in data), None)
    if twice is not None:
        problem = "stands in each of `launches`, or without them"
        raise PorterError(Code.CASE_FIELD, Location(str(path)), field=twice, problem=problem)
    if data["launches"][0].get("pdl"):
        problem = "nothing is launched before the first launch"
        raise PorterError(Code.CASE_FIELD, Location(str(path)), field="launches[0].pdl", problem=problem)
    shared = {name: value for name, value in data.items() if name != "launches"}
    return [(("launches", n), {**shared, **part}) for n, part in enumerate(data["launches"])]


def _launch(
    path: Path, keys: tuple[str | int, ...], data: Mapping[str, Any], ptx: Path | None, entry: str | None,
    chip: str | None, seed: int,
) -> PtxLaunch:  # fmt: skip
    case = _case(path, keys, data, ptx)
    kernel = read_kernel(case.kernel, entry or data.get("entry"), chip)
    facts = kernel_facts(kernel.module, kernel.function)
    case = _with_kernel(case, kernel, facts, "cluster" in data["launch"])
    problem = bind(case)
    _check_limits(problem, kernel)
    built = BuiltKernel(kernel.module.target, kernel.function.name, kernel.module, kernel.text)
    check_arguments(problem, kernel.function)
    elements = generate(problem, RECORDED, seed)
    images = {name: make_image(t, elements.get(name), 0) for name, t in problem.tensors.items()}
    return PtxLaunch(problem, built, images, data.get("pdl", False))


def against_expected(launch: PtxLaunch, result: RunResult) -> list[Diagnostic]:
    """What differs from the outputs that the file expects, bit for bit.

    Raises:
        PorterError: FILE_NOT_FOUND, CASE_DOES_NOT_FIT.
    """
    found: list[Diagnostic] = []
    case = launch.problem.case
    for tensor in launch.problem.tensors.values():
        if tensor.after is None:
            continue
        expected = recorded_elements(launch.problem, tensor, tensor.after)
        compared = compare.same_bits(tensor.name, tensor.dtype, expected, result.after[tensor.name].elements())
        if not compared.ok:
            values = {"tensor": tensor.name, "count": compared.mismatches, "total": compared.elements}
            found.append(Diagnostic(Code.LAUNCH_DIFFERS, place(case, f"tensors.{tensor.name}.expected"), values))
    return found


def _case(path: Path, keys: tuple[str | int, ...], data: Mapping[str, Any], ptx: Path | None) -> Case:
    """The file as a case; what only the kernel tells is still missing."""
    if ptx is None and "ptx" not in data:
        problem = "missing field 'ptx' (or name a file with --ptx)"
        raise PorterError(Code.CASE_FIELD, Location(str(path)), field="(top level)", problem=problem)
    at = data["launch"]
    case = Case(
        path=path,
        kernel=ptx or path.parent / data["ptx"],
        entry="",
        sizes=data.get("sizes", {}),
        constants=data.get("constants", {}),
        tensors={},
        tensor_maps={name: tensor_map_spec(name, m) for name, m in data.get("tensor_maps", {}).items()},
        launch=LaunchSpec(
            tuple(at["grid"]),
            tuple(at["block"]),
            tuple(at.get("cluster", (1, 1, 1))),
            at.get("dynamic_smem", 0),
            at.get("cooperative", False),
            at.get("resident"),
        ),
        params=tuple(data["params"]),
        reference=None,
        recorded=RecordedFrom("", data.get("recorded", {})),
        within=keys,
    )
    if ptx is None and not is_file(case.kernel):
        raise PorterError(Code.FILE_NOT_FOUND, place(case, "ptx"), path=case.kernel)
    case = replace(case, tensors={n: _tensor(case, n, t) for n, t in data.get("tensors", {}).items()})
    check_names(case)
    return case


def _tensor(case: Case, name: str, fields: Mapping[str, Any]) -> TensorSpec:
    def file(field: str, text: str) -> Path:
        found = case.path.parent / text
        if not is_file(found):
            raise PorterError(Code.FILE_NOT_FOUND, place(case, f"tensors.{name}.{field}"), path=found)
        return found

    init = fields.get("init")
    named = init if isinstance(init, str) and init in FILLS else None
    fill: Expr | tuple[Expr, ...] | None = None
    if isinstance(init, list):
        fill = tuple(init)
    elif named is None and not isinstance(init, dict):
        fill = init
    if isinstance(fill, str) and fill.isidentifier() and not {fill} & {*case.sizes, *case.constants}:
        known = ", ".join([*FILLS, *case.sizes, *case.constants])
        raise bad_field(case, f"tensors.{name}.init", f"no contents {fill} (there are: {known}, {{file: NAME}})")
    strides = fields.get("strides")
    expected = fields.get("expected")
    return TensorSpec(
        name=name,
        dtype=fields["dtype"],
        shape=tuple(fields["shape"]),
        role="inout" if expected else "scratch",
        strides=tuple(strides) if strides else None,
        fill=fill,
        align=fields.get("align", 256),
        before=file("init", init["file"]) if isinstance(init, dict) else None,
        after=file("expected", expected) if expected else None,
        contains=tuple(fields.get("contains", ())),
        init=named,
    )


def _with_kernel(case: Case, kernel: PtxKernel, facts: KernelFacts, stated: bool) -> Case:
    launch = case.launch if stated or facts.cluster is None else replace(case.launch, cluster=facts.cluster)
    target = kernel.module.target
    facts_of = case.recorded.facts if case.recorded else {}
    return replace(case, entry=kernel.function.name, launch=launch, recorded=RecordedFrom(target, facts_of))


def _check_limits(problem: Problem, kernel: PtxKernel) -> None:
    """What a GPU refuses to launch; of chips that are not known the simulator says so."""
    wrong = misfit(problem.launch, kernel.module, kernel.function)
    if wrong is not None:
        field, what = f"launch.{wrong[0]}", wrong[1]
        raise PorterError(Code.CASE_DOES_NOT_FIT, place(problem.case, field), field=field, problem=what)
