# SPDX-License-Identifier: Apache-2.0
"""What is in source files: kernels, inline PTX, which of it the target does not have, how much could be
read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.lang.asm import AsmStatement, asm_in_macro, asm_statements, macro_definitions, unread_asm
from porter.lang.cuda import CudaFile, find
from porter.lang.cute_dsl import DslFile, read_dsl
from porter.lang.sources import CUDA_ENDINGS, PYTHON_ENDINGS, is_python, load_sources, read_source
from porter.model.dsl.gemm import find_gemm
from porter.model.dsl.names import hopper_only
from porter.model.dsl.scope import Unrecognized
from porter.ptx.ast import Instruction
from porter.ptx.table import check, known_opcode

SOURCE_TARGET = "sm_90a"


@dataclass(frozen=True)
class Construct:
    """One kind of instruction in a file. `status` is `both` (assembles for source and target), `hopper` (for
    the
    source only: has to be ported) or `unknown` (the instruction table does not have it)."""

    name: str
    status: str
    count: int
    first: Location


@dataclass(frozen=True)
class FileInventory:
    """One file. `coverage` is the share of its non-blank bytes that was parsed, `unread` what was not."""

    path: str
    lines: int
    nbytes: int
    coverage: float
    kernels: tuple[str, ...]
    constructs: tuple[Construct, ...]
    unread: tuple[Location, ...]
    notes: tuple[str, ...] = ()

    @property
    def hopper_only(self) -> int:
        return sum(c.count for c in self.constructs if c.status == "hopper")


@dataclass(frozen=True)
class Inventory:
    """All files, and what could not be read at all."""

    target: str
    files: tuple[FileInventory, ...]
    diagnostics: tuple[Diagnostic, ...] = field(default=())

    @property
    def hopper_only(self) -> int:
        return sum(f.hopper_only for f in self.files)

    @property
    def coverage(self) -> float:
        """Share of all bytes, weighted by file length."""
        total = sum(f.nbytes for f in self.files)
        return sum(f.coverage * f.nbytes for f in self.files) / total if total else 1.0


def source_files(path: Path, python: bool = True) -> list[Path]:
    """The path itself, or every source below a directory, sorted; hidden directories are left out.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if not path.is_dir():
        return [path]
    endings = CUDA_ENDINGS | PYTHON_ENDINGS if python else CUDA_ENDINGS
    found = sorted(
        p
        for p in path.rglob("*")
        if p.suffix.lower() in endings
        and p.is_file()
        and not any(part.startswith(".") for part in p.relative_to(path).parts)
    )
    if not found:
        raise PorterError(Code.NO_SOURCES, path=path)
    return found


def take_inventory(paths: Sequence[Path], target: str = "sm_100a") -> Inventory:
    """The inventory of files and directories, local headers of named files included, each file once.

    A named file that cannot be read is raised; one met in a directory becomes a diagnostic.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES, NOT_TEXT, UNKNOWN_SOURCE_KIND.
    """
    files: dict[str, FileInventory] = {}
    problems: list[Diagnostic] = []
    for path in paths:
        for source in _to_scan(path):
            try:
                if is_python(source):
                    if not python_kernels(source):
                        raise refuse_python(source)
                    files[str(source)] = dsl_inventory(source)
                    continue
                found = load_sources(source)
            except PorterError as error:
                if not path.is_dir():
                    raise
                problems.append(error.diagnostic)
                continue
            for key, file in found.files.items():
                if key not in files:
                    files[key] = inventory_of(file, target)
    return Inventory(target, tuple(files[k] for k in sorted(files)), tuple(problems))


def _to_scan(path: Path) -> list[Path]:
    """The sources of a path; of the Python files in a directory those that hold kernels."""
    if not path.is_dir():
        return source_files(path)
    found = []
    for source in source_files(path):
        try:
            if not is_python(source) or python_kernels(source):
                found.append(source)
        except PorterError:
            continue
    return found


def inventory_of(file: CudaFile, target: str) -> FileInventory:
    statements = list(asm_statements(file))
    for macro in macro_definitions(file):
        statements += asm_in_macro(file, macro)
    unread = [file.location(where) for where in (*file.unparsed, *unread_asm(file))]
    notes = []
    for statement in statements:
        if statement.ptx is None:
            unread.append(statement.where)
            notes.append(f"{statement.where}: inline PTX not read: {statement.ptx_error}")
    return FileInventory(
        path=file.path,
        lines=file.source.count(b"\n") + (not file.source.endswith(b"\n")),
        nbytes=len(file.source),
        coverage=file.coverage,
        kernels=tuple(_kernels(file)),
        constructs=tuple(_constructs(statements, target)),
        unread=tuple(unread),
        notes=tuple(notes),
    )


def dsl_inventory(path: Path) -> FileInventory:
    """A CuTe DSL file: the names that it takes from the cutlass package, and whether its GEMM has a form that
    the port knows.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE.
    """
    file = read_dsl(path)
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Location] = {}
    for node, name in file.references():
        key = (name, "hopper" if hopper_only(name) else "both")
        counts[key] += 1
        first.setdefault(key, file.location(file.span(node)))
    order = {"hopper": 0, "both": 1}
    return FileInventory(
        path=str(path),
        lines=file.source.count(b"\n") + (not file.source.endswith(b"\n")),
        nbytes=len(file.source),
        coverage=1.0,
        kernels=tuple(k.name.value for k in file.kernels),
        constructs=tuple(
            Construct(name, status, counts[name, status], first[name, status])
            for name, status in sorted(counts, key=lambda k: (order[k[1]], k[0]))
        ),
        unread=(),
        notes=tuple(_gemm_notes(file)),
    )


def _gemm_notes(file: DslFile) -> Iterable[str]:
    for kernel in file.kernels:
        name = kernel.name.value
        where = file.location(file.span(kernel.name))
        try:
            find_gemm(file, kernel)
        except Unrecognized as refused:
            yield f"{where}: {name} has no GEMM that is ported: {refused.what}"
        else:
            yield f"{where}: {name} is a GEMM of the form that is ported"


def python_kernels(path: Path) -> tuple[str, ...]:
    """Names of the CuTe DSL kernels (functions marked `@cute.kernel`) of a Python file.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT.
    """
    source = read_source(path)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        raise PorterError(Code.NOT_TEXT, Location(str(path)), path=path) from None
    return tuple(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(mark).split("(")[0].endswith("cute.kernel") for mark in node.decorator_list)
    )


def refuse_python(path: Path) -> PorterError:
    """Why a Python file is not ported: no kernel in it, or a CuTe DSL kernel."""
    kernels = python_kernels(path)
    if kernels:
        return PorterError(Code.CUTE_DSL_KERNEL, Location(str(path)), path=path, kernels=", ".join(kernels))
    return PorterError(Code.NO_KERNEL, Location(str(path)), path=path)


def _kernels(file: CudaFile) -> Iterable[str]:
    for node in find(file.root, "function_definition"):
        body = node.child_by_field_name("body")
        head = file.source[node.start_byte : body.start_byte if body else node.end_byte]
        if b"__global__" not in head:
            continue
        for declarator in find(node, "function_declarator"):
            name = declarator.child_by_field_name("declarator")
            if name is not None:
                yield file.text(name)
                break


def _family(instruction: Instruction) -> str:
    """The name that people know an instruction by: without types and shapes."""
    parts = instruction.parts
    if parts[0] == "wgmma":
        return ".".join(parts[:2])
    kept = [parts[0]]
    for part in parts[1:]:
        if part[:1].isdigit() or "::" in part or part in _TYPE_LIKE:
            break
        kept.append(part)
    return ".".join(kept)


_TYPE_LIKE = frozenset(
    {"b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f32",
     "f64", "bf16", "pred", "x1", "x2", "x4", "m8n8", "v2", "v4", "rn", "aligned"}
)  # fmt: skip


def _constructs(statements: Iterable[AsmStatement], target: str) -> list[Construct]:
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Location] = {}
    for statement in statements:
        for instruction in statement.ptx.instructions() if statement.ptx else ():
            key = (_family(instruction), _status(instruction, target))
            counts[key] += 1
            first.setdefault(key, statement.where)
    order = {"hopper": 0, "unknown": 1, "both": 2}
    return [
        Construct(name, status, counts[name, status], first[name, status])
        for name, status in sorted(counts, key=lambda k: (order[k[1]], k[0]))
    ]


def _status(instruction: Instruction, target: str) -> str:
    if not known_opcode(instruction.opcode):
        return "unknown"
    if check(instruction, target) is None:
        return "both"
    return "hopper" if check(instruction, SOURCE_TARGET) is None else "unknown"
