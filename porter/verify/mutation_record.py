# SPDX-License-Identifier: Apache-2.0
"""Mutation results that are kept: one JSON file a case, and what tells whether it is still of the same port."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from porter.build.cache import digest
from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.verify.case import Case
from porter.verify.mutant_runs import Setup
from porter.verify.mutants import Mutant
from porter.verify.mutation import MutantRow, MutationResult
from porter.verify.rows import as_rows
from porter.verify.settings import SimOptions

VERSION = 1


@dataclass(frozen=True)
class Row:
    """A mutant as it is kept; see `porter.verify.mutation.MutantRow`. `place` is the kernel's line, `source` the
    texts of that line and of those it was inlined from, outermost first. `by` are
    numbers of other rows."""

    how: str
    opcode: str
    nth: int
    level: str
    place: str
    source: tuple[str, ...]
    at: str
    value: bool
    ended: str
    errors: tuple[str, ...]
    reviews: tuple[str, ...]
    reason: str | None = None
    by: tuple[int, ...] = ()
    then: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        return bool(self.ended or self.errors or self.reviews)

    @property
    def caught_in_practice(self) -> bool:
        return bool(self.ended or self.errors)


@dataclass(frozen=True)
class Record:
    """What became of a case's mutants. `port` is a digest of the ported files and the case, `code` one of the
    compiled instructions, so that results of another compiler are known for what they are, `ptx` one of all that is
    compiled and of the case: results of a port stay where only its text changed. `hazards` are the kinds that the
    unmutated port has, with `!` where they are errors also at practice level."""

    case: str
    port: str
    code: str
    sizes: str
    seed: int
    schedule: str
    arithmetic: str
    status: str
    hazards: tuple[str, ...]
    rows: tuple[Row, ...]
    ptx: str = ""

    @property
    def survivors(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.caught)


_ADDED_SIZES = re.compile(rb"^(?:steps|multiples):[^\n]*\n(?:[ \t]+[^\n]*\n)*", re.MULTILINE)


def port_digest(case: Case, plan: PortPlan) -> str:
    """A digest of a port's files and its case; the same wherever the files lie. What only says which sizes `verify`
    adds is left out of the case."""
    files = dict(plan.files) if plan.source is None else {str(plan.source): plan.source.read_bytes()}
    here = case.kernel.resolve().parent
    parts: list[str | bytes] = [_ADDED_SIZES.sub(b"", case.path.read_bytes())]
    parts += [repr(plan.section)] if plan.section else []
    for path in sorted(files, key=lambda p: os.path.relpath(Path(p).resolve(), here)):
        parts += [os.path.relpath(Path(path).resolve(), here), files[path]]
    return digest(parts)


def code_digest(module: ast.Module) -> str:
    """A digest of the opcodes of a module in order; names and positions are left out."""
    total = hashlib.sha256()

    def body(statements: Sequence[ast.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Instruction):
                total.update(statement.opcode.encode() + b"\n")
            elif isinstance(statement, ast.Block):
                body(statement.body)

    for function in module.functions:
        body(function.body or ())
    return total.hexdigest()


_PLACED = re.compile(r'"/[^"]*/([^"/]*)"')
_DEBUG_BYTES = re.compile(r"^\s*\.section\s+\.debug_\w+\s*\{[^}]*\}\n?", re.MULTILINE)
"""Sections that compilers add for debuggers; their bytes name the directory that was compiled in."""


def ptx_digest(case: Case, setups: Sequence[Setup]) -> str:
    """A digest of a case, of its programs as they are compiled for all sizes, and of the lines that they come from; the
    same wherever the files lie."""
    programs = [_DEBUG_BYTES.sub("", setup.kernel.ptx) for setup in setups]
    names = {m.group().strip('"') for text in programs for m in _PLACED.finditer(text)}
    lines = sorted("\n".join([Path(name).name, *_lines(name)]) for name in names)
    given = [repr((s.launch, s.problem.tensor_maps)) for s in setups if s.problem.case.as_port]
    texts = [_PLACED.sub(r"\1", text) for text in programs]
    return digest([_ADDED_SIZES.sub(b"", case.path.read_bytes()), *texts, *lines, *given])


def make_record(case: Case, port: str, setups: Sequence[Setup], options: SimOptions, result: MutationResult) -> Record:
    hazards = sorted({h.kind.id + ("!" if h.severity == "error" else "") for h in result.baseline.hazards})
    rows = [record_row(row) for row in result.rows]
    return Record(
        case=case.name,
        port=port,
        code=code_digest(setups[0].kernel.module),
        sizes=setups[0].sizes,
        seed=options.seed,
        schedule=options.schedule,
        arithmetic=options.arithmetic,
        status=result.baseline.status,
        hazards=tuple(hazards),
        rows=tuple(rows),
        ptx=ptx_digest(case, setups),
    )


def record_row(row: MutantRow) -> Row:
    reason = row.reason
    return Row(
        how=row.mutant.how,
        opcode=row.mutant.instruction.opcode,
        nth=row.mutant.nth,
        level=row.mutant.level,
        place=place(row.mutant),
        source=source_texts(row.mutant),
        at=row.at,
        value=row.by_value,
        ended=row.by_run,
        errors=row.errors,
        reviews=row.reviews,
        reason=reason.kind if reason else None,
        by=reason.by if reason else (),
        then=reason.then if reason else (),
    )


def place(mutant: Mutant) -> str:
    """The line of the kernel that the instruction was inlined into; without line information, which of its kind
    it is."""
    chain = _chain(mutant)
    if not chain:
        return f"#{mutant.nth}"
    return f"{chain[0].file.rpartition('/')[2]}:{chain[0].line}"


def source_texts(mutant: Mutant) -> tuple[str, ...]:
    """The kernel's own source lines that an instruction stands for, outermost first, as far as they can be read."""
    texts = []
    chain = _chain(mutant)
    for loc in chain:
        if Path(loc.file).parent != Path(chain[0].file).parent:
            break
        lines = _lines(loc.file)
        if 0 < loc.line <= len(lines):
            texts.append(lines[loc.line - 1].strip())
    return tuple(texts)


def _chain(mutant: Mutant) -> list[ast.SourceLoc]:
    chain: list[ast.SourceLoc] = []
    loc = mutant.instruction.loc
    while loc is not None:
        chain.insert(0, loc)
        loc = loc.inlined_at
    return chain


@functools.lru_cache(maxsize=64)
def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


# Files --------------------------------------------------------------------------------------------------


def record_path(folder: Path, case: Case) -> Path:
    return folder / f"{case.name.replace(':', '.')}.json"


def write_record(path: Path, record: Record) -> None:
    """One row a line, so that a change shows as one.

    Raises:
        PorterError: WRITE_FAILED.
    """
    head = {"version": VERSION, **asdict(record)}
    rows = head.pop("rows")
    text = as_rows({**head, "rows": list(map(_short, rows))})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror) from None


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value not in (None, "", (), [], False)}


def read_record(path: Path) -> Record | None:
    """A record, None if there is none that this version can read."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data.pop("version") != VERSION:
            return None
        rows = tuple(_row(row) for row in data.pop("rows"))
        return Record(**{**data, "hazards": tuple(data["hazards"])}, rows=rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _row(data: dict[str, Any]) -> Row:
    tuples = {key: tuple(data.get(key, ())) for key in ("source", "errors", "reviews", "by", "then")}
    texts = {key: data.get(key, "") for key in ("at", "ended")}
    return Row(**{**data, **tuples, **texts, "value": data.get("value", False)})
