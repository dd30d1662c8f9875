# SPDX-License-Identifier: Apache-2.0
"""Records that kits write: read, checked against their checksum, and held against runs on the simulator."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file

HEAD = b"porter-kit-record 1\n"


class Run(Protocol):
    """A run that a kit has: of a case, or of a kernel that needs none."""

    @property
    def case(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def capability(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def inputs(self) -> str: ...
    @property
    def origin(self) -> Path: ...
    @property
    def question(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    def expected(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Done:
    """One run on the device: how it ended, the digest of each output with whether memory around it was left alone
    (`whole` or `stray`), and the times of further launches in microseconds."""

    label: str
    source: str
    inputs: str
    status: str
    outputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    microseconds: tuple[float, ...] = ()
    shown: Mapping[str, bytes] = field(default_factory=dict)
    """Of a probe, the beginning of each output; of other answers, all of it."""


@dataclass(frozen=True)
class KitRecord:
    """`device` has what the launcher says of the GPU: name, compute capability, driver, multiprocessors, clock."""

    path: Path
    kit: str
    device: Mapping[str, str]
    runs: tuple[Done, ...]

    @property
    def name(self) -> str:
        return self.device.get("device", "").replace("_", " ")

    def find(self, run: Run) -> Done | None:
        """What the device did of a run."""
        return next((d for d in self.runs if d.label == run.label), None)


def is_kit_record(path: Path) -> bool:
    """Whether a file begins as a kit's record does."""
    try:
        with path.open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def load_kit_record(path: Path) -> KitRecord:
    """A record.

    Raises:
        PorterError: FILE_NOT_FOUND; RECORD_UNREADABLE: it is damaged, or none.
    """
    data = read_file(path)
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    words = last.split()
    if not data.startswith(HEAD) or len(words) != 2 or words[0] != b"sha256":
        raise _unreadable(path, "it is no record of a kit")
    if hashlib.sha256(body + b"\n").hexdigest() != words[1].decode("ascii", "replace"):
        raise _unreadable(path, "its checksum is not that of its contents")
    try:
        return _read(path, body.decode("ascii"))
    except (ValueError, IndexError, KeyError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from None


def _read(path: Path, text: str) -> KitRecord:
    facts: dict[str, str] = {}
    runs: list[dict[str, Any]] = []
    for line in text.splitlines()[1:]:
        key, _, rest = line.partition(" ")
        if key == "run":
            label, source, inputs = rest.rsplit(" ", 2)
            runs.append({"label": label, "source": source, "inputs": inputs, "status": "", "outputs": {}})
        elif not runs:
            facts[key] = rest
        elif key == "status":
            runs[-1]["status"] = rest
        elif key == "out":
            name, checksum, state = rest.split()[:3]
            runs[-1]["outputs"][name] = (checksum, state)
        elif key == "bytes":
            name, data = rest.split()
            runs[-1].setdefault("shown", {})[name] = bytes.fromhex(data)
        elif key == "microseconds":
            runs[-1]["microseconds"] = tuple(map(float, rest.split()))
        else:
            raise ValueError(f"a line with `{key}`")
    return KitRecord(path, facts.pop("kit"), facts, tuple(Done(**run) for run in runs))


def _unreadable(path: Path, problem: str) -> PorterError:
    return PorterError(Code.RECORD_UNREADABLE, Location(str(path)), path=path, problem=problem)


@dataclass(frozen=True)
class Held:
    """A run held against the device: `verdict` is `same`, `different`, `failed` (it did not end well there) or
    `missing` (the device did not run it), or `answered` where no answer is expected."""

    run: Run
    done: Done | None
    verdict: str
    what: str = ""


def hold(record: KitRecord, runs: Sequence[Run]) -> list[Held]:
    """What the device computed against what the simulator does, bit for bit.

    Raises:
        PorterError: RECORD_MISMATCH: the record is of another version of the kernel, or of other inputs; KIT_RUN.
    """
    found = []
    for run in runs:
        if run.capability != record.device.get("capability"):
            continue
        done = record.find(run)
        if done is None:
            found.append(Held(run, None, "missing"))
            continue
        if (done.source, done.inputs) != (run.source, run.inputs):
            raise PorterError(Code.RECORD_MISMATCH, Location(str(run.origin)), path=record.path, kernel=run.origin)
        found.append(_held(run, done))
    return found


def _held(run: Run, done: Done) -> Held:
    if run.is_open:
        # that the device refuses it is an answer too
        return Held(run, done, "answered", "" if done.status == "ok" else done.status)
    if done.status != "ok":
        return Held(run, done, "failed", done.status)
    wanted = run.expected()
    missing = sorted(set(wanted) - set(done.outputs))
    stray = sorted(n for n, (_, state) in done.outputs.items() if state != "whole")
    other = sorted(n for n, checksum in wanted.items() if done.outputs.get(n, ("",))[0] != checksum)
    if missing or stray or other:
        said = [f"{n}: no digest" for n in missing] + [f"{n}: memory around it was written" for n in stray]
        said += [f"{n}: other bits than on the simulator" for n in other if n not in missing]
        return Held(run, done, "different", "; ".join(said))
    return Held(run, done, "same")
