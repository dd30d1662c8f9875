# SPDX-License-Identifier: Apache-2.0
"""Case files: loading, validation against the shipped JSON Schema, and finding the case of a kernel.

A case is symbolic: shapes and launch values are expressions over sizes. `porter.verify.problem.bind` gives
the
concrete problem for one size. The schema stands in `case.schema.json` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import is_file
from porter.project.include_dirs import stated_directories
from porter.verify.expr import Number
from porter.verify.yaml_file import load_yaml, place_of, read_yaml

Expr = Number | str

CASE_FILE = "case.yaml"
LAUNCH_FILE = "launch.yaml"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the case: dimensions outermost first, strides in elements (None: row-major). In a recorded
    case `before` and `after` are files of its bytes, `contains` the addresses and tensor maps among them. `init` names
    what a tensor of a launch holds before it."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    role: str
    strides: tuple[Expr, ...] | None = None
    fill: Expr | tuple[Expr, ...] | None = None
    align: Expr = 256
    before: Path | None = None
    after: Path | None = None
    contains: tuple[Mapping[str, Any], ...] = ()
    init: str | None = None


@dataclass(frozen=True)
class TensorMapSpec:
    """A tensor map (CUtensorMap) over a tensor: everything in the tensor's order, outermost first."""

    name: str
    tensor: str
    box: tuple[Expr, ...]
    swizzle: str = "none"
    dims: tuple[Expr, ...] | None = None
    strides: tuple[Expr, ...] | None = None
    element_strides: tuple[Expr, ...] | None = None
    offset: Expr = 0
    interleave: str = "none"
    l2_promotion: str = "none"
    oob: str = "zero"
    dtype: str | None = None
    im2col: Mapping[str, tuple[Expr, ...]] | None = None


@dataclass(frozen=True)
class LaunchSpec:
    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    cluster: tuple[Expr, ...] = (1, 1, 1)
    dynamic_smem: Expr = 0
    cooperative: bool = False
    resident: Expr | None = None


@dataclass(frozen=True)
class DslSpec:
    """How a CuTe DSL kernel is constructed and called. Its launch follows from its own host code."""

    init: Mapping[str, Any]
    call: tuple[Any, ...]
    dynamic: bool = False
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedFrom:
    """Where a recorded case comes from: the architecture of its kernel, and for people the program, the device
    and the date."""

    arch: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One case file. `path` is the file, `kernel` the source it names. A recorded case has `recorded` and no
    reference: its inputs and outputs are files. Its kernel is PTX or a cubin, `source` the CUDA C++ it was
    compiled from, where that is known, and `entry` a mangled name. `port` is what a port that is given changes of all
    that; `as_port`: these changes were made (`porter.verify.launching`)."""

    path: Path
    kernel: Path
    entry: str
    sizes: Mapping[str, Number]
    tensors: Mapping[str, TensorSpec]
    launch: LaunchSpec
    params: tuple[Any, ...]
    reference: str | None
    reference_function: tuple[Path, str] | None = None
    magnitude: str | None = None
    template: tuple[Expr, ...] = ()
    constants: Mapping[str, Expr] = field(default_factory=dict)
    other_sizes: tuple[Mapping[str, Number], ...] = ()
    mutate_sizes: Mapping[str, Number] = field(default_factory=dict)
    steps: Mapping[str, Expr] = field(default_factory=dict)
    multiples: Mapping[str, Expr] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMapSpec] = field(default_factory=dict)
    include_dirs: tuple[Path, ...] = ()
    defines: Mapping[str, Expr] = field(default_factory=dict)
    reduction: Expr = 1
    accumulate: str = "f32"
    operand: str | None = None
    exact: bool = True
    compare: str | None = None
    families: tuple[str, ...] | None = None
    tile: tuple[Expr, Expr] | None = None
    dsl: DslSpec | None = None
    recorded: RecordedFrom | None = None
    source: Path | None = None
    tolerance: float = 0.0
    port: Mapping[str, Any] = field(default_factory=dict)
    as_port: bool = False
    within: tuple[str | int, ...] = ()
    """Keys of the part of the file that says how it is launched, where several parts do."""

    @property
    def name(self) -> str:
        """The kernel's file stem, with the case file's own name where a kernel has several cases."""
        if self.recorded is not None and self.path.name in (CASE_FILE, LAUNCH_FILE):
            return self.path.parent.name
        if self.recorded is not None:
            return self.path.stem
        if self.path.name == CASE_FILE:
            return self.kernel.stem
        return f"{self.kernel.stem}:{self.path.name.removesuffix('.yaml').removesuffix('.case')}"

    @property
    def map_params(self) -> tuple[tuple[str, tuple[Expr, ...]] | None, ...]:
        """For each parameter of the kernel, the name and the box of the tensor map that it is handed; None of another
        one."""
        maps = [self.tensor_maps.get(p) if isinstance(p, str) else None for p in self.params]
        return tuple(None if m is None else (m.name, m.box) for m in maps)

    @property
    def to_port(self) -> Path:
        """The source that a port is made of.

        Raises:
            PorterError: CAPTURE_NO_SOURCE for a recorded case that names none.
        """
        if self.recorded is not None and self.source is None:
            raise PorterError(Code.CAPTURE_NO_SOURCE, Location(str(self.path)), path=self.path)
        return self.source or self.kernel

    def on(self, path: Path) -> Case:
        """The case with another kernel, if `path` is one and no case file. What was recorded stays: there `path` is the
        source of the kernel."""
        if path.suffix in (".yaml", ".yml"):
            return self
        if self.recorded is not None:
            return replace(self, source=path)
        dirs = () if self.dsl is not None else stated_directories(path)
        return replace(self, kernel=path, include_dirs=tuple(dict.fromkeys([*self.include_dirs, *dirs])))

    def all_sizes(self) -> tuple[Mapping[str, Number], ...]:
        """The default size and every other one, complete."""
        return (self.sizes, *({**self.sizes, **other} for other in self.other_sizes))

    def mutation_sizes(self) -> tuple[Mapping[str, Number], ...]:
        """The size at which mutants run, and all others."""
        first = {**self.sizes, **self.mutate_sizes}
        return (first, *(sizes for sizes in self.all_sizes() if dict(sizes) != first))


def load_case(path: Path) -> Case:
    """Read and validate a case file.

    Raises:
        PorterError: FILE_NOT_FOUND (also for the kernel it names), CASE_NOT_YAML, CASE_FIELD.
    """
    return _build(path, load_yaml(path, "case"))


def place(case: Case, dotted: str) -> Location:
    """The place of a field such as `tensors.A.shape[1]` in the case file, for messages."""
    keys: list[Any] = []
    for part in dotted.replace("[", ".[").split("."):
        keys.append(int(part[1:-1]) if part.startswith("[") else part)
    try:
        node, data = read_yaml(case.path)
    except PorterError:
        return Location(str(case.path))
    for outer in (["port"] if case.as_port else [], list(case.within)):
        if outer and _stands(data, [*outer, *keys[:2]]):
            keys = [*outer, *keys]
    return place_of(case.path, node, keys)


def _stands(data: Any, keys: list[Any]) -> bool:
    for key in keys:
        if not isinstance(data, dict | list) or (key not in data if isinstance(data, dict) else key >= len(data)):
            return False
        data = data[key]
    return True


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


def _file(case: Path, name: str | None) -> Path | None:
    """A file that a case names, which has to be there."""
    if name is None:
        return None
    found = case.parent / name
    if not is_file(found):
        raise PorterError(Code.FILE_NOT_FOUND, Location(str(case)), path=found)
    return found


def tensor_map_spec(name: str, fields: Mapping[str, Any]) -> TensorMapSpec:
    return TensorMapSpec(name=name, **tensor_map_values(fields))


def tensor_map_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a tensor map as a case file has them, in the form that `TensorMapSpec` has."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    if "im2col" in values:
        values["im2col"] = {k: tuple(v) for k, v in values["im2col"].items()}
    return values


def _tensor(path: Path, name: str, fields: dict[str, Any]) -> TensorSpec:
    fill = fields.get("fill")
    return TensorSpec(
        name=name,
        dtype=fields["dtype"],
        shape=tuple(fields["shape"]),
        role=fields["role"],
        strides=_tuple(fields.get("strides")),
        fill=tuple(fill) if isinstance(fill, list) else fill,
        align=fields.get("align", 256),
        before=_file(path, fields.get("before")),
        after=_file(path, fields.get("after")),
        contains=tuple(fields.get("contains", ())),
    )


def _reference(path: Path, given: Any) -> tuple[Any, tuple[Path, str] | None, RecordedFrom | None]:
    """The reference of a case as expression, as file and function, or as what was recorded; the others are None."""
    if isinstance(given, dict) and "recorded" in given:
        facts = given["recorded"]
        return None, None, RecordedFrom(facts["arch"], {k: v for k, v in facts.items() if k != "arch"})
    if isinstance(given, dict):
        file, _, name = given["python"].rpartition(":")
        if not is_file(path.parent / file):
            raise PorterError(Code.FILE_NOT_FOUND, Location(str(path)), path=path.parent / file)
        return None, (path.parent / file, name), None
    return given, None, None


def _include_directory(case: Path, given: str) -> Path:
    """A directory relative to a case, or one of an installed Python package: `package:NAME/…`."""
    if not given.startswith("package:"):
        return case.parent / given
    name, _, inner = given.removeprefix("package:").partition("/")
    spec = find_spec(name) if name.isidentifier() else None
    for root in (spec and spec.submodule_search_locations) or ():
        return Path(root) / inner
    raise PorterError(Code.FILE_NOT_FOUND, Location(str(case)), path=given)


_AS_WRITTEN = ("magnitude", "defines", "reduction", "accumulate", "operand", "exact", "compare", "tolerance", "port")


def _build(path: Path, data: dict[str, Any]) -> Case:
    base = path.parent
    kernel = base / data["kernel"]
    if not is_file(kernel):
        raise PorterError(Code.FILE_NOT_FOUND, Location(str(path)), path=kernel)
    reference, function, recorded = _reference(path, data["reference"])
    dsl = data.get("dsl")
    launch = data.get("launch", {"grid": [1], "block": [1]})
    stated = stated_directories(kernel) if recorded is None and dsl is None else ()
    case = Case(
        path=path,
        kernel=kernel,
        entry=data["entry"],
        sizes=data["sizes"],
        tensors={name: _tensor(path, name, fields) for name, fields in data["tensors"].items()},
        tensor_maps={name: tensor_map_spec(name, m) for name, m in data.get("tensor_maps", {}).items()},
        launch=LaunchSpec(
            tuple(launch["grid"]),
            tuple(launch["block"]),
            tuple(launch.get("cluster", (1, 1, 1))),
            launch.get("dynamic_smem", 0),
            launch.get("cooperative", False),
        ),
        params=tuple(data.get("params", ())),
        reference=reference,
        reference_function=function,
        template=tuple(data.get("template", ())),
        constants=data.get("constants", {}),
        other_sizes=tuple(data.get("other_sizes", ())),
        mutate_sizes=data.get("mutate_sizes", {}),
        steps=data.get("steps", {}),
        multiples=data.get("multiples", {}),
        include_dirs=(*(_include_directory(path, d) for d in data.get("include_dirs", ())), *stated),
        recorded=recorded,
        source=_file(path, data.get("source")),
        families=_tuple(data.get("families")),
        tile=_tuple(data.get("tile")),
        dsl=_dsl(dsl) if dsl is not None else None,
        **{key: data[key] for key in _AS_WRITTEN if key in data},
    )
    check_names(case)
    _check_roles(case)
    return case


def _dsl(data: dict[str, Any]) -> DslSpec:
    return DslSpec(data.get("init", {}), tuple(data["call"]), data.get("dynamic", False), data.get("keywords", {}))


def bad_field(case: Case, where: str, problem: str) -> PorterError:
    return PorterError(Code.CASE_FIELD, place(case, where), field=where, problem=problem)


def check_names(case: Case) -> None:
    """Names that refer to others must exist, and no name may mean two things.

    Raises:
        PorterError: CASE_FIELD.
    """
    for m in case.tensor_maps.values():
        if m.tensor not in case.tensors:
            known = ", ".join(case.tensors)
            raise bad_field(case, f"tensor_maps.{m.name}.tensor", f"no tensor {m.tensor} (there are: {known})")
    groups = {
        "sizes": case.sizes,
        "constants": case.constants,
        "tensors": case.tensors,
        "tensor_maps": case.tensor_maps,
    }
    seen: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if name in seen:
                raise bad_field(case, f"{group}.{name}", f"the name already stands in {seen[name]}")
            seen[name] = group
    more = [(f"other_sizes[{index}]", sizes) for index, sizes in enumerate(case.other_sizes)]
    named: list[tuple[str, Mapping[str, Any]]] = [
        *more,
        ("mutate_sizes", case.mutate_sizes),
        ("steps", case.steps),
        ("multiples", case.multiples),
    ]
    for where, sizes in named:
        for name in sizes:
            if name not in case.sizes:
                raise bad_field(case, f"{where}.{name}", f"no such size (sizes: {', '.join(case.sizes)})")


def _check_roles(case: Case) -> None:
    """Tensors have files where they were recorded, and some are compared."""
    for t in case.tensors.values():
        if (t.before is None) != (case.recorded is None) or (t.after is not None and case.recorded is None):
            raise bad_field(
                case, f"tensors.{t.name}", "files of bytes belong to recorded cases, each tensor of which has one"
            )
    if not any(t.role in ("output", "inout") for t in case.tensors.values()):
        raise bad_field(case, "tensors", "no tensor has the role output or inout, so there is nothing to compare")


def cases_of(path: Path) -> list[Path]:
    """The case files of a path: a case file itself, the cases beside a kernel that name it, or all below a
    directory (sorted).

    Raises:
        PorterError: FILE_NOT_FOUND; CASE_NOT_FOUND if there is none.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*.yaml") if _is_case_name(p))
    elif path.suffix in (".yaml", ".yml"):
        found = [path]
    else:
        found = sorted(p for p in path.parent.glob("*.yaml") if _is_case_name(p) and _names(p, path))
    if not found:
        others = [] if path.is_dir() else sorted(p for p in path.parent.glob("*.yaml") if _is_case_name(p))
        beside = ", ".join(f"{p.name} beside it has kernel: {_kernel_name(p)}" for p in others)
        raise PorterError(Code.CASE_NOT_FOUND, path=path, detail=beside)
    return found


def cases_if_any(path: Path) -> list[Path]:
    """As `cases_of`, but none where there is none."""
    try:
        return cases_of(path)
    except PorterError as error:
        if error.diagnostic.code is Code.CASE_NOT_FOUND:
            return []
        raise


def case_directories(path: Path) -> tuple[Path, ...]:
    """Where the cases beside a file look for what it imports; what cannot be read is left out."""
    found: list[Path] = []
    with suppress(PorterError):
        for case in cases_of(path):
            with suppress(PorterError):
                found += load_case(case).include_dirs
    return tuple(dict.fromkeys(found))


def has_dsl_case(path: Path) -> bool:
    """Whether a case beside a file calls it as a CuTe DSL kernel."""
    try:
        return any(load_case(case).dsl is not None for case in cases_of(path))
    except PorterError:
        return False


def _is_case_name(path: Path) -> bool:
    return path.name == CASE_FILE or path.name.endswith(".case.yaml")


def _names(case_path: Path, kernel: Path) -> bool:
    """Whether a case file beside a kernel names it; a file that cannot be read is kept, so that its error
    shows when it is loaded."""
    name = _kernel_name(case_path)
    if name is None:
        return True
    named = case_path.parent / name
    return is_file(named) and named.resolve() == kernel.resolve()


def _kernel_name(case_path: Path) -> str | None:
    """The kernel that a case file names, None if it cannot be read."""
    try:
        return str(read_yaml(case_path)[1]["kernel"])
    except (PorterError, TypeError, KeyError):
        return None
