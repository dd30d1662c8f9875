# SPDX-License-Identifier: Apache-2.0
"""Two programs run whole, an original and its port: launch by launch, memory has to hold the same bits.

The n-th launch of one is held against the n-th of the other, and its memory allocation by allocation, in the order in
which the programs made them. Both run with Blackwell's arithmetic, which is Hopper's but for sums of 8-bit floats:
there wgmma keeps fewer bits than tcgen05, so that no port could have the bits of its original as it runs on Hopper.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from porter.build.cache import digest
from porter.build.entry import kernel_name
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Diagnostic, Location, Severity
from porter.sim import GlobalMemory
from porter.verify import compare
from porter.verify.budget import Budget
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH
from porter.verify.checked import hazard_diagnostics, judged
from porter.verify.compare import Comparison
from porter.verify.dtypes import DTYPES, Array
from porter.verify.hazards import HazardRun, OneRun, check_runs, usual_level
from porter.verify.outcome import RunSummary, Verdict
from porter.verify.program.device import LaunchRecord
from porter.verify.program.results import as_run
from porter.verify.program.runner import Enough, ProgramOutcome
from porter.verify.program.source import Request, executable_of, run_source_or_executable
from porter.verify.proved import CaseProofs
from porter.verify.proved_program import Launches, prove_programs, what_is_launched
from porter.verify.proving import MOST_INTEGERS
from porter.verify.results import Row, VerifyResult
from porter.verify.settings import SimOptions

_U8 = DTYPES["u8"]
_LARGE = 1 << 24
"""Indices are smaller."""
_PAGE = 4096


@dataclass(frozen=True)
class _Written:
    """What a launch left: the size of every allocation, the bytes of those that it changed, and of the others."""

    kernel: str
    sizes: tuple[int, ...]
    changed: dict[int, Array]
    unchanged: dict[int, bytes] = field(repr=False)


@dataclass(frozen=True)
class Few:
    """The first launches of a program: it ends ahead of one when it made `launches` that differ from those before them,
    or `most` in all, when it makes the same one again and again, and after `seconds` of processor time."""

    launches: int
    seconds: float | None = None
    most: int | None = None


_AGAIN = 3
"""Launches in a row that are those before them: a loop that takes the time."""


@dataclass
class _Recorder:
    """Called before and after each launch."""

    few: Few | None = None
    launches: list[_Written] = field(default_factory=list)
    _before: list[bytes] = field(default_factory=list)
    _seen: set[object] = field(default_factory=set)
    _again: int = 0
    is_cut: bool = False
    """Whether the program would have gone on."""

    def __post_init__(self) -> None:
        self._budget = Budget.of_work(self.few.seconds if self.few is not None else None)

    def _require_more(self, launch: LaunchRecord, few: Few) -> None:
        """Raises Enough."""
        key = what_is_launched(launch)
        self._again = self._again + 1 if key in self._seen else 0
        self.is_cut = (
            (few.most is not None and len(self.launches) >= few.most)
            or (key not in self._seen and len(self._seen) >= few.launches)
            or self._again >= _AGAIN
            or self._budget.is_spent
        )
        if self.is_cut:
            raise Enough
        self._seen.add(key)

    def __call__(self, when: Literal["before", "after"], launch: LaunchRecord, memory: GlobalMemory) -> None:
        if when == "before" and self.few is not None:
            self._require_more(launch, self.few)
        held = [memory.read(address, size) for address, size in launch.allocations]
        if when == "before":
            self._before = [data.tobytes() for data in held]
            return
        changed: dict[int, Array] = {
            i: np.array(data) for i, data in enumerate(held) if data.tobytes() != self._before[i]
        }
        unchanged = {i: self._before[i] for i in range(len(held)) if i not in changed}
        sizes = tuple(size for _, size in launch.allocations)
        self.launches.append(_Written(kernel_name(launch.kernel), sizes, changed, unchanged))


@dataclass(frozen=True)
class Ran:
    """What came of a run of a program."""

    outcome: ProgramOutcome
    launches: Sequence[_Written]
    summary: RunSummary
    hazards: HazardRun | None
    is_cut: bool = False


def verify_programs(
    original: Request,
    port: Request,
    toolkit: Toolkit,
    options: SimOptions,
    hazards: bool = True,
    target: str = PORT_ARCH,
    prove_seconds: float = 0,
) -> VerifyResult:
    """Build and run both, the original for Hopper and the port for Blackwell, and compare. `hazards`: in the checking
    simulator; `prove_seconds`: how long the synchronization of each kernel is proved.

    Raises:
        PorterError: what the compiler and the runner raise.
    """
    began = time.perf_counter()
    options = replace(options, arithmetic="exact", rules="sm_100")
    ours = _run("original", replace(original, arch=ORIGINAL_ARCH), toolkit, options, hazards)
    theirs = _run("port", replace(port, arch=target), toolkit, options, hazards)
    numbered = list(_comparisons(ours.launches, theirs.launches))
    between = tuple(c for _, c in numbered)
    differing = {number - 1 for number, c in numbered if not c.ok}
    checked = judged([r.hazards for r in (ours, theirs) if r.hazards is not None], [original.path, port.path])
    diagnostics = [*_unfinished(original.path, port.path, ours, theirs), *_unlike(port.path, ours, theirs)]
    diagnostics += [_differs(port.path, c) for c in between if not c.ok]
    diagnostics += hazard_diagnostics(port.path, checked)
    row = Row(
        case=original.path.name,
        sizes={},
        family=" ".join(original.arguments) or "no arguments",
        seed=options.seed,
        verdict=_verdict(diagnostics, checked),
        between=between,
        runs=(ours.summary, theirs.summary),
        diagnostics=tuple(d for i, d in enumerate(diagnostics) if d not in diagnostics[:i]),
        hazards=checked,
    )
    seconds = time.perf_counter() - began
    proofs: tuple[CaseProofs, ...] = ()
    if prove_seconds:
        proofs = tuple(prove_programs(_of_run(original, ours), _of_run(port, theirs), differing, prove_seconds))
    return VerifyResult((row,), "sim", options.schedule, options.arithmetic, options.seed, seconds, proofs=proofs)


@dataclass
class FirstLaunches:
    """The first launches of a program and of its port, each with as many warp instructions as `options` say, whose
    kernels are proved and compared for `seconds` each."""

    original: Request
    port: Request
    toolkit: Toolkit
    options: SimOptions
    few: Few
    target: str
    seconds: float

    @property
    def made_of(self) -> str:
        """What tells both programs from others. Raises PorterError: what the compiler raises."""
        with tempfile.TemporaryDirectory(prefix="porter-") as folder:
            requests = (replace(self.original, arch=ORIGINAL_ARCH), replace(self.port, arch=self.target))
            executables = [executable_of(r, self.toolkit, Path(folder) / str(n)) for n, r in enumerate(requests)]
            return digest([executable.read_bytes() for executable in executables])

    def of_original(self, arguments: Sequence[str]) -> Ran:
        """Raises PorterError: what compiler and runner raise."""
        return self._ran("original", replace(self.original, arguments=arguments, arch=ORIGINAL_ARCH), self.few)

    def compared(self, arguments: Sequence[str], ours: Ran) -> list[CaseProofs]:
        """What is known of each kernel that both launch. Raises PorterError: what compiler and runner raise."""
        few = Few(self.few.launches, most=len(ours.launches) + (not ours.is_cut))
        theirs = self._ran("port", replace(self.port, arguments=arguments, arch=self.target), few)
        if not theirs.launches:
            return [CaseProofs(None, None, untried="the main() of the port launches nothing")]
        differing = {number - 1 for number, c in _comparisons(ours.launches, theirs.launches) if not c.ok}
        # of one that did not come to its end nothing is to be expected
        differing -= {n for n, launch in enumerate(ours.outcome.launches) if not _is_done(launch)}
        differing |= {len(theirs.launches) - 1} if theirs.outcome.status == "error" else set()
        both = _of_run(self.original, ours), _of_run(self.port, theirs)
        return list(prove_programs(*both, differing, self.seconds))

    def _ran(self, program: str, request: Request, few: Few) -> Ran:
        options = replace(self.options, arithmetic="exact", rules="sm_100")
        return _run(program, request, self.toolkit, options, hazards=False, few=few)


def _is_done(launch: LaunchRecord) -> bool:
    return launch.outcome is not None and launch.outcome.status == "ok"


def _run(
    program: str, request: Request, toolkit: Toolkit, options: SimOptions, hazards: bool, few: Few | None = None
) -> Ran:
    recorder = _Recorder(few)
    outcomes: list[ProgramOutcome] = []

    def once(settings: SimOptions) -> OneRun:
        outcomes.append(run_source_or_executable(request, settings, toolkit, watch=recorder))
        return as_run(outcomes[-1])

    arch = request.arch or ""
    checked: HazardRun | None = None
    if hazards:
        level = usual_level(program)
        checked = check_runs(once, request.path.name, program, "", arch, level, options, [options.seed])
        one: HazardRun | OneRun = checked
    else:
        one = once(options)
    status = outcomes[0].status
    summary = RunSummary(program, arch, "sim", status, tuple(one.findings), one.warp_instructions, one.seconds)
    return Ran(outcomes[0], recorder.launches, summary, checked, recorder.is_cut)


def _of_run(request: Request, ran: Ran) -> Launches:
    held = [
        {start: part for i, data in written.unchanged.items()
         for start, part in counts_in(record.allocations[i][0], data)}
        for record, written in zip(ran.outcome.launches, ran.launches, strict=False)
    ]  # fmt: skip
    return Launches(request.path, ran.outcome.launches, held)


def counts_in(address: int, data: bytes) -> list[tuple[int, bytes]]:
    """What of an allocation may hold counts and indices, as floating-point numbers and pairs of narrow ones hardly do:
    all of it, or pages, half of them or more, where the program has not filled the others."""
    if len(data) > MOST_INTEGERS or len(data) % 4:
        return []
    parts = [(address + at, data[at : at + _PAGE]) for at in range(0, len(data), _PAGE)]
    found = [one for one in parts if bool((np.abs(np.frombuffer(one[1], np.int32).astype(np.int64)) < _LARGE).all())]
    if len(found) == len(parts):
        return [(address, data)]
    return found if 2 * len(found) >= len(parts) else []


def _comparisons(ours: Sequence[_Written], theirs: Sequence[_Written]) -> Iterator[tuple[int, Comparison]]:
    """With the number of the launch, each allocation that a launch of either program changed, byte by byte, as far as
    launches pair up."""
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a.sizes != b.sizes:
            continue
        for i in sorted({*a.changed, *b.changed}):
            name = f"launch {number} ({a.kernel}), allocation {i}"
            yield number, compare.same_bits(name, _U8, _bytes(a, i), _bytes(b, i))


def _bytes(written: _Written, i: int) -> Array:
    return written.changed[i] if i in written.changed else np.frombuffer(written.unchanged[i], np.uint8)


def _unfinished(original: Path, port: Path, ours: Ran, theirs: Ran) -> Iterator[Diagnostic]:
    """Programs whose kernels did not come to their end, and calls that were not answered."""
    for path, ran in ((original, ours), (port, theirs)):
        yield from ran.outcome.diagnostics
        for finding in ran.summary.findings:
            code = Code.RUN_INCOMPLETE if ran.summary.status == "incomplete" else Code.RUN_FAILED
            reason = f"{finding.code.id}: {finding.message}"
            where = Location(finding.source, finding.line) if finding.source else Location(str(path))
            yield Diagnostic(code, where, {"program": ran.summary.program, "reason": reason}, finding.where)


def _unlike(port: Path, ours: Ran, theirs: Ran) -> Iterator[Diagnostic]:
    """What keeps launches from being paired, and other differences than of memory."""

    def said(what: str) -> Diagnostic:
        return Diagnostic(Code.PROGRAMS_UNLIKE, Location(str(port)), {"what": what})

    counts = len(ours.launches), len(theirs.launches)
    if counts[0] != counts[1]:
        yield said(f"the original makes {counts[0]} launches, the port {counts[1]}")
    for number, (a, b) in enumerate(zip(ours.launches, theirs.launches, strict=False), 1):
        if a.sizes != b.sizes:
            yield said(f"launch {number} finds {_sizes(a)} in the original, {_sizes(b)} in the port")
    exits = ours.outcome.exit_status, theirs.outcome.exit_status
    if exits[0] != exits[1]:
        yield said(f"the original ends with exit status {exits[0]}, the port with {exits[1]}")
    if not any(launch.changed for launch in ours.launches) and not ours.outcome.diagnostics:
        yield Diagnostic(Code.NOTHING_WRITTEN, Location(str(port)), {"count": len(ours.launches)})


def _sizes(written: _Written) -> str:
    return f"{len(written.sizes)} allocations of {sum(written.sizes)} bytes"


def _differs(port: Path, c: Comparison) -> Diagnostic:
    at = c.first.index[0] if c.first is not None else 0
    values = {"what": c.tensor, "count": c.mismatches, "total": c.elements}
    return Diagnostic(Code.PROGRAM_BYTES_DIFFER, Location(str(port)), values, f"the first is byte {at}")


_NO_VERDICT = (Code.RUN_INCOMPLETE, Code.NOTHING_WRITTEN, Code.PROGRAM_UNANSWERED, Code.PROGRAM_NO_PTX)


def _verdict(diagnostics: Sequence[Diagnostic], checked: Sequence[HazardRun]) -> Verdict:
    codes = [d.code for d in diagnostics if d.severity is Severity.ERROR]
    if any(code not in _NO_VERDICT for code in codes):
        return Verdict.ERROR
    if codes or any(run.counted is Verdict.INCOMPLETE for run in checked):
        return Verdict.INCOMPLETE
    return Verdict.REVIEW if any(run.counted is Verdict.REVIEW for run in checked) else Verdict.CLEAN
