# SPDX-License-Identifier: Apache-2.0
"""Port a variant as a user would, compile original and port, run both on the simulator, and name what came of it."""

from __future__ import annotations

import enum
import hashlib
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
import numpy.typing as npt
from variant_types import KINDS, STEPS, TILES, Values, Variant, Want, expected

from porter.build.cache import default_directory
from porter.build.entry import demangle
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.port_plan import PortPlan, materialize
from porter.cli.porting import port_paths
from porter.diagnostics import Diagnostic, ExitCode, PorterError, Severity
from porter.passes.ported import Ported
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate
from porter.sim.check.hazard import Hazard

LONGEST = 60
"""Seconds that Porter may take for one of these files."""


class Outcome(enum.Enum):
    RIGHT = "ported-right"
    REFUSED = "refused"
    WRONG = "WRONG"
    NOT_COMPILING = "NOT COMPILING"
    INTERNAL = "INTERNAL"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Result:
    """`why` is one line, `detail` all of it; `times` are seconds by stage."""

    name: str
    outcome: Outcome
    why: str = ""
    detail: str = ""
    ported: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Found(Exception):
    """Ends the run of a variant with an outcome."""

    def __init__(self, outcome: Outcome, why: str, detail: str = "") -> None:
        super().__init__(why)
        self.outcome, self.why, self.detail = outcome, why, detail


class _TooLong(BaseException):
    pass


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise in the main thread if the block takes longer; elsewhere there is no limit."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write_original(variant: Variant) -> Path:
    """The kernel file, in a directory named by its contents, so that compilers' results are found again."""
    digest = hashlib.sha256()
    for name in sorted(variant.files):
        digest.update(name.encode() + b"\0" + variant.files[name].encode() + b"\0")
    directory = default_directory() / "variants" / digest.hexdigest()[:24]
    for name, text in variant.files.items():
        path = directory / name
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return directory / "kernel.cu"


def operands(variant: Variant) -> tuple[Values, Values]:
    """A and B: small whole numbers, so that every sum is exact in every order and format."""
    generator = np.random.default_rng(11)
    k = KINDS[variant.kind].depth * STEPS * TILES
    low, high = (-2, 3) if variant.kind == "f16acc" else (-3, 4)
    return tuple(generator.integers(low, high, (rows, k)).astype(np.float64) for rows in (variant.rows, variant.n))


def encoded(values: Values, kind: str) -> bytes:
    match kind:
        case "bf16":
            return bytes((values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes())
        case "f16" | "f16acc":
            return values.astype(np.float16).tobytes()
        case "tf32":
            return values.astype(np.float32).tobytes()
    return values.astype(np.int8).tobytes()


def decoded(data: bytes, variant: Variant) -> Values:
    dtype: npt.DTypeLike = {"f16acc": np.float16, "s8": np.int32}.get(variant.kind, np.float32)
    return np.frombuffer(data, dtype).astype(np.float64).reshape(variant.rows, variant.n)


@dataclass(frozen=True)
class Program:
    """A compiled file: all kernels that it instantiates are launched, one after the other."""

    name: str
    module: ast.Module
    entries: tuple[str, ...]
    warnings: tuple[str, ...]
    variant: Variant

    def want(self, entry: str) -> Want:
        shown = demangle(entry)
        found = [w for key, w in self.variant.wants.items() if key in shown]
        return found[0] if found else self.variant.want

    def launch(self, entry: str, options: Options) -> tuple[Values | None, str]:
        """C, or None and what ended the run; the text also holds what a checking run found."""
        variant = self.variant
        memory = GlobalMemory()
        addresses = []
        for i, values in enumerate(operands(variant)):
            data = encoded(values, variant.kind)
            addresses.append(memory.alloc(len(data), name="AB"[i]))
            memory.write(addresses[-1], data)
        size = variant.rows * variant.n * (2 if variant.kind == "f16acc" else 4)
        addresses.append(memory.alloc(size, name="C"))
        function = self.module.function(entry)
        params = pack_params(function, [*addresses, variant.tiles])
        launch = Launch((1, 1, 1), variant.block, (1, 1, 1), variant.dynamic_smem)
        outcome = simulate(self.module, entry, launch, params, memory, options)
        hazards = [_hazard(h) for h in outcome.hazards if h.severity == "error"]
        if outcome.status != "ok":
            return None, f"{outcome.status}: " + "; ".join(map(str, outcome.findings))
        return decoded(bytes(memory.read(addresses[2], size)), variant), "\n".join(hazards)


def _hazard(hazard: Hazard) -> str:
    first = f"{hazard.first.what} at {hazard.first.place}, then " if hazard.first else ""
    return f"{hazard.kind.id} {hazard.message}: {first}{hazard.second.what} at {hazard.second.place}"


def compiled(variant: Variant, path: Path, arch: str, name: str) -> Program:
    made = compile_ptx(CompileRequest(path, arch, assemble=True))
    return Program(name, parse_module(made.ptx), made.entries, made.ptxas_warnings, variant)


def check(program: Program, options: Options, how: str) -> str:
    """What is wrong with a program in one run of each of its kernels; empty if nothing."""
    variant = program.variant
    a, b = operands(variant)
    if not program.entries:
        return "no kernel"
    for entry in program.entries:
        where = f"{how}, {demangle(entry).split('(')[0]}" if len(program.entries) > 1 else how
        c, text = program.launch(entry, options)
        if c is None:
            return f"{where}: {text}"
        if text:
            return f"{where}: hazard: {text}"
        right = expected(variant, a, b, program.want(entry))
        wrong = np.argwhere(c != right)
        if len(wrong):
            row, column = wrong[0]
            return (
                f"{where}: {len(wrong)} of {c.size} values differ, first C[{row}, {column}]: "
                f"{c[row, column]:g}, not {right[row, column]:g}"
            )
    return ""


FUNCTIONAL = Options(max_warp_instructions=2_000_000)
RANDOM = Options(schedule="random", seed=1, max_warp_instructions=2_000_000)
ORIGINAL_CHECKING = Options(mode="checking", level="practice", max_warp_instructions=2_000_000)
PORT_CHECKING = Options(mode="checking", level="strict", max_warp_instructions=2_000_000)


def run(variant: Variant, *, checking: bool = True) -> Result:
    """What comes of one variant; `checking` looks for hazards as well."""
    times: dict[str, float] = {}
    ported: dict[str, str] = {}
    warnings: list[str] = []
    try:
        _run(variant, checking, times, ported, warnings)
    except Found as found:
        return Result(variant.name, found.outcome, found.why, found.detail, ported, times, tuple(warnings))
    return Result(variant.name, Outcome.RIGHT, "", "", ported, times, tuple(warnings))


@contextmanager
def _timed(times: dict[str, float], stage: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        times[stage] = time.perf_counter() - began


def _run(
    variant: Variant, checking: bool, times: dict[str, float], ported: dict[str, str], warnings: list[str]
) -> None:
    path = write_original(variant)
    with _timed(times, "original"):
        try:
            original = compiled(variant, path, "sm_90a", "original")
        except PorterError as error:
            raise Found(Outcome.INVALID, _line(error), f"{error}\n{error.diagnostic.detail}") from None
        warnings += original.warnings
    with _timed(times, "run original"):
        wrong = "" if variant.serialized else check(original, FUNCTIONAL, "original")
        if checking and not wrong and not variant.serialized:
            wrong = check(original, ORIGINAL_CHECKING, "original, checking")
        if wrong:
            raise Found(Outcome.INVALID, wrong.splitlines()[0], wrong)
    with _timed(times, "port"):
        result = _ported(path)
        ported.update({Path(p).name: text.decode() for p, text in result.new.items()})
    with _timed(times, "compile"):
        try:
            port = compiled(variant, materialize(PortPlan(files=result.new), path), "sm_100a", "port")
        except PorterError as error:
            raise Found(Outcome.NOT_COMPILING, _line(error), f"{error}\n{error.diagnostic.detail}") from None
    with _timed(times, "run port"):
        wrong = check(port, FUNCTIONAL, "late") or check(port, RANDOM, "random")
        if checking and not wrong:
            wrong = check(port, PORT_CHECKING, "checking")
        if wrong:
            raise Found(Outcome.WRONG, wrong.splitlines()[0], wrong)


def _ported(path: Path) -> Ported:
    """Porter's port.

    Raises:
        Found: REFUSED with what it names, or INTERNAL if it fails in another way than by an error of its own.
    """
    try:
        with _at_most(LONGEST):
            result = port_paths([path])
    except PorterError as error:
        if error.exit_code is not ExitCode.UNPORTED:
            raise Found(Outcome.INTERNAL, f"exit {int(error.exit_code)}: {_line(error)}", str(error)) from None
        raise Found(Outcome.REFUSED, _line(error), str(error)) from None
    except _TooLong:
        raise Found(Outcome.INTERNAL, f"no answer in {LONGEST} s") from None
    except Exception as error:
        lines = traceback.format_exc()
        raise Found(Outcome.INTERNAL, f"{type(error).__name__}: {error}".splitlines()[0], lines) from error
    if result.exit_code is not ExitCode.OK:
        errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
        named = "\n".join(map(_named, errors))
        if result.exit_code is not ExitCode.UNPORTED:
            raise Found(Outcome.INTERNAL, f"exit {int(result.exit_code)}: {named.splitlines()[0]}", named)
        if not errors:
            raise Found(Outcome.INTERNAL, "refused without a word")
        raise Found(Outcome.REFUSED, named.splitlines()[0], named)
    return result


def _named(diagnostic: Diagnostic) -> str:
    line = f"line {diagnostic.where.line} " if diagnostic.where else ""
    return f"{line}{diagnostic.code.id}: {diagnostic.message}"


def _line(error: PorterError) -> str:
    return _named(error.diagnostic).splitlines()[0]
