# SPDX-License-Identifier: Apache-2.0
"""Runs of an original stored in a file, so that a port can be compared on a machine that cannot run it.

The file is a ZIP archive: `record.json` and one member with the raw elements of each output. Inputs are not
stored but named by seed and by their digest, which a replay has to meet.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import porter
from porter.diagnostics import Code, Location, PorterError
from porter.verify.backends import Backend, RunResult
from porter.verify.builder import ORIGINAL_ARCH, Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.dtypes import Array
from porter.verify.expr import Number
from porter.verify.images import Image, make_image
from porter.verify.inputs import choose, generate
from porter.verify.judge import expectation
from porter.verify.outcome import RunFinding
from porter.verify.problem import LaunchValues, Problem, bind

VERSION = 2
_HEAD = "record.json"


@dataclass(frozen=True)
class Entry:
    """One run: what went in (`inputs`, a digest) and the raw bytes of each output."""

    case: str
    sizes: Mapping[str, Number]
    family: str
    seed: int
    kernel: str
    inputs: str
    where: str
    outputs: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True)
class Record:
    """All runs of a file, and where they were made."""

    environment: Mapping[str, Any]
    entries: tuple[Entry, ...]

    def find(self, problem: Problem, inputs: str) -> Entry | None:
        """The run of this case with these inputs."""
        return next((e for e in self.entries if e.case == problem.case.name and e.inputs == inputs), None)


def kernel_digest(case: Case) -> str:
    return hashlib.sha256(case.kernel.read_bytes()).hexdigest()


def inputs_digest(problem: Problem, images: Mapping[str, Image]) -> str:
    """Of everything that decides what the original computes: launch, arguments, and the elements it reads."""
    total = hashlib.sha256()
    launch = problem.launch
    facts = [
        problem.case.entry, list(problem.template), sorted(problem.defines.items()),
        [launch.grid, launch.block, launch.cluster, launch.dynamic_smem],
        [_plain(a) for a in problem.arguments],
        sorted((n, m.tensor, _plain(m.map)) for n, m in problem.tensor_maps.items()),
    ]  # fmt: skip
    if problem.case.dsl is not None:
        facts.append(_plain(problem.case.dsl))
    total.update(json.dumps(facts).encode())
    for name in sorted(images):
        tensor = images[name].tensor
        total.update(f"{name} {tensor.dtype.name} {tensor.shape} {tensor.strides} {tensor.role}".encode())
        if tensor.is_input or tensor.fill is not None:
            total.update(np.ascontiguousarray(images[name].elements()).tobytes())
    return total.hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON holds it, the same with every version of Python and NumPy, and with later versions of Porter
    that know further fields."""
    if dataclasses.is_dataclass(value):
        stated = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        defaults = {f.name: f.default for f in dataclasses.fields(value)}
        return [type(value).__name__, _plain({k: v for k, v in stated.items() if v != defaults[k]})]
    if isinstance(value, Mapping):
        return sorted((str(k), _plain(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool | str) or value is None:
        return value
    return int(value) if isinstance(value, int | np.integer) else repr(float(value))


def original_of(case: Case, sizes: Mapping[str, Number], builder: Builder) -> tuple[Problem, BuiltKernel]:
    """The original of a case with its sizes bound, for the architecture it was written or recorded for.

    Raises:
        PorterError: what binding and building the case raise.
    """
    problem = bind(case, sizes)
    arch = ORIGINAL_ARCH if case.recorded is None else case.recorded.arch
    return problem, builder.build(problem, case.kernel, arch)


def record_case(
    case: Case,
    sizes: Mapping[str, Number],
    families: Sequence[str] | None,
    builder: Builder,
    backend: Backend,
    seed: int = 0,
) -> list[Entry]:
    """Run the original and keep its outputs.

    Raises:
        PorterError: RUN_FAILED, or ORIGINAL_DIFFERS where an output is not the reference: a wrong original is
            not recorded; and what binding and building raise.
    """
    problem, kernel = original_of(case, sizes, builder)
    entries = []
    for family in choose(list(families) if families else None, problem):
        inputs = generate(problem, family, seed)
        wanted = expectation(problem, family, inputs, backend.arithmetic)
        images = {n: make_image(t, inputs.get(n), backend.guard) for n, t in problem.tensors.items()}
        result = backend.run(kernel, problem, kernel.launch(problem), images)
        place = Location(str(case.kernel))
        if result.status != "ok":
            reason = "; ".join(f.message for f in result.findings) or result.status
            raise PorterError(Code.RUN_FAILED, place, program="original", reason=reason)
        outputs = {}
        for tensor in problem.outputs:
            elements = result.after[tensor.name].elements()
            found = wanted.against_reference(tensor, elements, ORIGINAL_ARCH)
            if not found.ok:
                raise PorterError(
                    Code.ORIGINAL_DIFFERS, place, tensor=tensor.name, count=found.mismatches, total=found.elements
                )
            outputs[tensor.name] = np.ascontiguousarray(elements).tobytes()
        entries.append(
            Entry(
                case.name, dict(problem.sizes), family.name, seed, kernel_digest(case),
                inputs_digest(problem, images), result.where or backend.name, outputs,
            )
        )  # fmt: skip
    return entries


def environment(command: str, **facts: Any) -> dict[str, Any]:
    """Where and when a record is made."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "porter": porter.__version__,
        "python": platform.python_version(),
        "command": command,
        **facts,
    }


def save(record: Record, path: Path) -> None:
    """Write the file. Raises PorterError: WRITE_FAILED."""
    body: dict[str, Any] = {"version": VERSION, "environment": dict(record.environment), "entries": []}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, entry in enumerate(record.entries):
            outputs = {}
            for name, data in entry.outputs.items():
                member = f"{number}/{name}"
                archive.writestr(member, data)
                outputs[name] = {"member": member, "sha256": hashlib.sha256(data).hexdigest()}
            fields = {k: v for k, v in vars(entry).items() if k != "outputs"}
            body["entries"].append({**fields, "sizes": dict(entry.sizes), "outputs": outputs})
        body["sha256"] = _checksum(body)
        archive.writestr(_HEAD, json.dumps(body, indent=1))
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror) from None


def load(path: Path) -> Record:
    """Read a file and check every byte of it.

    Raises:
        PorterError: FILE_NOT_FOUND, RECORD_UNREADABLE.
    """
    if not path.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    try:
        with zipfile.ZipFile(path) as archive:
            body = json.loads(archive.read(_HEAD))
            if body["version"] != VERSION:
                raise _unreadable(path, f"it has version {body['version']}, this Porter reads {VERSION}")
            if body["sha256"] != _checksum(body):
                raise _unreadable(path, "its checksum is not that of its contents")
            return Record(body["environment"], tuple(_entry(path, archive, e) for e in body["entries"]))
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError, EOFError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from None


def _entry(path: Path, archive: zipfile.ZipFile, fields: dict[str, Any]) -> Entry:
    outputs = {}
    for name, place in fields.pop("outputs").items():
        outputs[name] = archive.read(place["member"])
        if hashlib.sha256(outputs[name]).hexdigest() != place["sha256"]:
            raise _unreadable(path, f"the checksum of {place['member']} is not that of its contents")
    return Entry(**fields, outputs=outputs)


def _checksum(body: Mapping[str, Any]) -> str:
    rest = {k: v for k, v in body.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _unreadable(path: Path, problem: str) -> PorterError:
    return PorterError(Code.RECORD_UNREADABLE, Location(str(path)), path=path, problem=problem)


class ReplayBackend:
    """Originals from a record, everything else on another backend."""

    def __init__(self, record: Record, path: Path, port: Backend) -> None:
        self.record, self.path, self.port = record, path, port
        self.name, self.guard = port.name, port.guard
        self.arithmetic = port.arithmetic

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        """Raises PorterError: RECORD_MISMATCH if the record is of another version of the kernel."""
        if kernel.arch != ORIGINAL_ARCH:
            return self.port.run(kernel, problem, launch, images)
        entry = self.record.find(problem, inputs_digest(problem, images))
        where = f"record {self.path.name}"
        if entry is None:
            message = Code.RECORD_MISSING.value.title.format(path=self.path, case=problem.case.name)
            return RunResult("incomplete", (RunFinding(Code.RECORD_MISSING, message),), dict(images), where=where)
        if entry.kernel != kernel_digest(problem.case):
            raise PorterError(
                Code.RECORD_MISMATCH, Location(str(problem.case.kernel)), path=self.path, kernel=problem.case.kernel
            )
        after = {n: _with(image, entry.outputs.get(n)) for n, image in images.items()}
        return RunResult("ok", (), after, where=f"{where} ({entry.where})")


def _with(image: Image, data: bytes | None) -> Image:
    if data is None:
        return image
    tensor = image.tensor
    elements: Array = np.frombuffer(data, tensor.dtype.container).reshape(tensor.shape)
    return make_image(tensor, elements, image.guard)
