# SPDX-License-Identifier: Apache-2.0
"""Port a variant, compile original and port, run both on the simulator, and name what came of it."""

from __future__ import annotations

import enum
import hashlib
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from dsl_variant_template import source
from dsl_variant_types import KINDS, TILES, Variant

from porter.build.cache import default_directory
from porter.build.dsl import DslRequest, compile_dsl
from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Code, ExitCode, PorterError
from porter.passes.dsl.port import port_python
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate
from porter.sim.check.hazard import Hazard
from porter.verify.inherited import split
from porter.verify.line_map import LineMap

Values = npt.NDArray[np.float64]
BUDGET = 4_000_000


Edit = Callable[[bytes], bytes]


def _as_it_is(module: bytes) -> bytes:
    return module


class Outcome(enum.Enum):
    RIGHT = "ported-right"
    REFUSED = "refused"
    WRONG = "WRONG"
    NOT_COMPILING = "NOT COMPILING"
    INTERNAL = "INTERNAL"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Result:
    """`why` is one line, `detail` all of it; `files` are texts by name: the original, the port, their PTX."""

    name: str
    outcome: Outcome
    why: str = ""
    detail: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


class Found(Exception):
    """Ends the run of a variant with an outcome."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail
        self.why = next((line for line in detail.splitlines() if line.strip()), "")[:300]


def operands(variant: Variant) -> tuple[Values, Values]:
    """A and B: small whole numbers, so that every sum is exact in every order and format."""
    generator = np.random.default_rng(11)
    k = KINDS[variant.kind].depth * TILES
    low, high = (-1, 2) if variant.kind == "f16acc" else (-2, 3)
    return tuple(generator.integers(low, high, (rows, k)).astype(np.float64) for rows in (variant.m, variant.n))


def encoded(values: Values, kind: str) -> bytes:
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if kind in ("f16", "f16acc"):
        return values.astype(np.float16).tobytes()
    if kind == "s8":
        return values.astype(np.int8).tobytes()
    codes = np.array([0, 0x38, 0x40, 0x44], np.uint8)
    return (codes[np.abs(values).astype(int)] | (values < 0).astype(np.uint8) << 7).tobytes()


def expected(variant: Variant) -> Values:
    a, b = operands(variant)
    depth = KINDS[variant.kind].depth
    p = np.stack([a[:, k : k + depth] @ b[:, k : k + depth].T for k in range(0, TILES * depth, depth)])
    row, col = np.indices((variant.m, variant.n))
    thread = row // 16 * 32 + row % 8 * 4 + col % 8 // 2
    i = col // 8 * 4 + row // 8 % 2 * 2 + col % 2
    names = {"np": np, "p": p, "a": a, "b": b, "row": row, "col": col, "thread": thread, "i": i, "depth": depth}
    exec(variant.want, names)
    return np.asarray(names["c"], dtype=np.float64)


class Program:
    """A compiled file with its launch."""

    def __init__(self, variant: Variant, path: Path, arch: str) -> None:
        kind = KINDS[variant.kind]
        self.variant, self.memory = variant, GlobalMemory()
        k = kind.depth * TILES
        result = "Int32" if variant.kind == "s8" else "Float32"
        shapes = [(kind.operand, (variant.m, k)), (kind.operand, (variant.n, k)), (result, (variant.m, variant.n))]
        widths = (kind.width, kind.width, 4)
        self.addresses = [
            self.memory.alloc(r * c * w, name=n) for n, (_, (r, c)), w in zip("ABC", shapes, widths, strict=True)
        ]
        tensors = [
            {"kind": "tensor", "dtype": d, "shape": list(s), "strides": [s[1], 1], "align": 16, "address": at}
            for (d, s), at in zip(shapes, self.addresses, strict=True)
        ]
        tiles = {"kind": "runtime", "dtype": "Int32", "value": variant.tiles}
        made = compile_dsl(DslRequest(path, "gemm", arch, [*tensors, tiles, {"kind": "stream"}]))
        self.ptx, self.launch = made.ptx, made.launches[0]
        self.module: ast.Module = parse_module(made.ptx)

    def run(self, options: Options) -> tuple[Values, Sequence[Hazard]]:
        """C, and the hazards of a checking run.

        Raises:
            RuntimeError: the run ended otherwise.
        """
        variant, launch = self.variant, self.launch
        for address, values in zip(self.addresses, operands(variant), strict=False):
            self.memory.write(address, encoded(values, variant.kind))
        size = variant.m * variant.n
        self.memory.write(self.addresses[2], b"\xff" * size * 4)
        shape = Launch(launch.grid, launch.block, launch.cluster, launch.dynamic_smem)
        params = pack_params(self.module.function(launch.kernel), launch.params)
        outcome = simulate(self.module, launch.kernel, shape, params, self.memory, options)
        if outcome.status != "ok":
            raise RuntimeError(f"{outcome.status}: " + "; ".join(map(str, outcome.findings)))
        dtype: npt.DTypeLike = np.int32 if variant.kind == "s8" else np.float32
        c = np.frombuffer(bytes(self.memory.read(self.addresses[2], size * 4)), dtype)
        return c.astype(np.float64).reshape(variant.m, variant.n), outcome.hazards


def difference(c: Values, right: Values) -> str:
    wrong = np.argwhere(~(c == right))
    if not len(wrong):
        return ""
    row, column = wrong[0]
    first = f"C[{row}, {column}]: {c[row, column]:g}, not {right[row, column]:g}"
    return f"{len(wrong)} of {c.size} values differ, first {first}"


def hazard_text(hazard: Hazard) -> str:
    first = f"{hazard.first.what} at {hazard.first.place}, then " if hazard.first else ""
    return f"{hazard.kind.id} {hazard.message}: {first}{hazard.second.what} at {hazard.second.place}"


STRICT = Options(mode="checking", level="strict", max_warp_instructions=BUDGET)
PRACTICE = Options(mode="checking", level="practice", max_warp_instructions=BUDGET)
SCHEDULES = {
    "late": Options(max_warp_instructions=BUDGET),
    "eager": Options(schedule="eager", max_warp_instructions=BUDGET),
    "random 1": Options(schedule="random", seed=1, max_warp_instructions=BUDGET),
    "random 2": Options(schedule="random", seed=2, max_warp_instructions=BUDGET),
}


def write_original(variant: Variant) -> Path:
    """The kernel file, in a directory named by its contents, so that compilers' results are found again."""
    text = source(variant)
    directory = default_directory() / "variants" / hashlib.sha256(text.encode()).hexdigest()[:24]
    path = directory / "kernel.py"
    if not path.is_file() or path.read_text() != text:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def run(variant: Variant, edit: Edit = _as_it_is) -> Result:
    """What comes of one variant. `edit`: what is made of the support module."""
    files: dict[str, str] = {"kernel.py": source(variant)}
    try:
        _run(variant, files, edit)
    except Found as found:
        return Result(variant.name, found.outcome, found.why, found.detail, files)
    return Result(variant.name, Outcome.RIGHT, files=files)


def _error(error: PorterError) -> str:
    text = "\n".join(f"{d.where or ''} {d.code.id}: {d.message}" for d in error.diagnostics)
    return re.sub(r"/\S*/", "", text) + f"\n{error.diagnostic.detail}"


def _run(variant: Variant, files: dict[str, str], edit: Edit) -> None:
    path, right = write_original(variant), expected(variant)
    try:
        original = Program(variant, path, "sm_90a")
        files["kernel.ptx"] = original.ptx
        c, hazards = original.run(STRICT)
        free = variant.lax or variant.moved
        _, in_practice = original.run(PRACTICE) if hazards and not free else (c, ())
    except PorterError as error:
        raise Found(Outcome.INVALID, f"original: {_error(error)}") from None
    except RuntimeError as error:
        raise Found(Outcome.INVALID, f"original: {error}") from None
    wrong = "" if variant.moved else difference(c, right)
    errors = [h for h in in_practice if h.severity == "error"]
    if wrong or errors:
        raise Found(Outcome.INVALID, f"original: {wrong}" + "\n".join(map(hazard_text, errors)))
    target = _ported(path, files, edit)
    try:
        port = Program(variant, target, "sm_100a")
    except PorterError as error:
        refused = error.diagnostic.code is Code.DSL_OBSTACLE
        raise Found(Outcome.REFUSED if refused else Outcome.NOT_COMPILING, _error(error)) from None
    files["port.ptx"] = port.ptx
    for name, options in SCHEDULES.items():
        try:
            c, _ = port.run(options)
        except RuntimeError as error:
            raise Found(Outcome.WRONG, f"{name}: {error}") from None
        if wrong := difference(c, right):
            raise Found(Outcome.WRONG, f"{name}: {wrong}")
    try:
        c, found = port.run(STRICT)
    except RuntimeError as error:
        raise Found(Outcome.WRONG, f"checking: {error}") from None
    if wrong := difference(c, right):
        raise Found(Outcome.WRONG, f"checking: {wrong}")
    introduced = split(found, hazards, LineMap(path, target)).introduced
    if introduced:
        raise Found(Outcome.WRONG, "checking: hazard " + "\n".join(map(hazard_text, introduced)))


def _ported(path: Path, files: dict[str, str], edit: Edit) -> Path:
    try:
        result = port_python(path)
    except PorterError as error:
        unported = error.exit_code is ExitCode.UNPORTED
        raise Found(Outcome.REFUSED if unported else Outcome.INTERNAL, _error(error)) from None
    except Exception:
        raise Found(Outcome.INTERNAL, traceback.format_exc()) from None
    files["port.py"] = result.files[str(path)].decode()
    if result.exit_code is not ExitCode.OK:
        text = "\n".join(f"{d.code.id}: {d.message}" for d in result.diagnostics)
        raise Found(Outcome.REFUSED if result.exit_code is ExitCode.UNPORTED else Outcome.INTERNAL, text)
    support = str(path.with_name("porter_dsl.py"))
    return materialize(PortPlan(files={**result.files, support: edit(result.files[support])}), path)
