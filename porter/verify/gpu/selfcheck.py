# SPDX-License-Identifier: Apache-2.0
"""The simulator held against a real GPU: the same kernel, the same inputs, every bit of the outputs.

No reference takes part, so every input family is run, also those that a case leaves out because its bounds say
nothing for them. The simulator may have run earlier, elsewhere: `simulated` keeps what came out as hashes, and only
where the GPU's differ is it run again, for the first element that does.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from porter.diagnostics import PorterError
from porter.verify.arithmetic import APPROXIMATE
from porter.verify.backends import Backend, RunResult
from porter.verify.builder import Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.images import Image, make_image
from porter.verify.inputs import Family, choose, generate
from porter.verify.outcome import Verdict
from porter.verify.problem import Problem
from porter.verify.record import inputs_digest, kernel_digest, original_of

# Floating-point sums by atomics come in any order.
_ATOMIC_SUM = re.compile(r"^\s*(?:@!?%\w+\s+)?(?:red|atom)\.\S*add\S*\.(?:f16|bf16|f32|f64)", re.MULTILINE)


@dataclass(frozen=True)
class BitsRow:
    """One case, size and family. `different` counts elements whose bits differ between `left` and `right`,
    which say what ran where; with approximate instructions or atomic sums in the kernel that is for review, else an
    error. `problem` names the first of them, or why there is nothing to compare; `outputs` are the SHA-256 of the
    bytes of each output of `right`."""

    case: str
    sizes: Mapping[str, Number]
    family: str
    left: str
    right: str
    elements: int
    different: int
    verdict: Verdict
    problem: str = ""
    seconds: float = 0.0
    seed: int = 0
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Simulated:
    """What the simulator computed: `inputs` is a digest of all that decides it, `outputs` hash each output."""

    case: str
    sizes: Mapping[str, Number]
    family: str
    seed: int
    kernel: str
    inputs: str
    status: str
    outputs: Mapping[str, str]
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.case, self.kernel, self.inputs


def read_simulated(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Simulated]:
    """Rows of a document of `selfcheck --simulate`, by what they are runs of."""
    found = [Simulated(**row) for row in rows]
    return {one.key: one for one in found}


@dataclass(frozen=True)
class _Run:
    """A kernel on inputs, for any backend."""

    problem: Problem
    kernel: BuiltKernel
    family: Family
    inputs: Mapping[str, Any]

    def images(self, guard: int) -> dict[str, Image]:
        return {n: make_image(t, self.inputs.get(n), guard) for n, t in self.problem.tensors.items()}

    def on(self, backend: Backend) -> RunResult:
        try:
            return backend.run(self.kernel, self.problem, self.kernel.launch(self.problem), self.images(backend.guard))
        except PorterError as error:
            raise PorterError(error.diagnostic.code, **error.diagnostic.values) from None

    @property
    def key(self) -> tuple[str, str, str]:
        case = self.problem.case
        return case.name, kernel_digest(case), inputs_digest(self.problem, self.images(0))


def _runs(
    case: Case, sizes: Mapping[str, Number], families: Sequence[str] | None, builder: Builder, seed: int
) -> list[_Run]:
    problem, kernel = original_of(case, sizes, builder)
    chosen = choose(list(families) if families else None, problem, restricted=False)
    return [_Run(problem, kernel, family, generate(problem, family, seed)) for family in chosen]


def simulated(
    case: Case,
    sizes: Mapping[str, Number],
    families: Sequence[str] | None,
    builder: Builder,
    simulator: Backend,
    seed: int = 0,
) -> list[Simulated]:
    """The original of a case in the simulator.

    Raises:
        PorterError: what binding and building the case raise.
    """
    found = []
    for run in _runs(case, sizes, families, builder, seed):
        began = time.perf_counter()
        result = run.on(simulator)
        _, kernel, inputs = run.key
        outputs = _hashes(run.problem, result) if result.status == "ok" else {}
        found.append(
            Simulated(
                case.name, dict(run.problem.sizes), run.family.name, seed, kernel, inputs, result.status, outputs,
                time.perf_counter() - began,
            )
        )  # fmt: skip
    return found


def compare_bits(
    case: Case,
    sizes: Mapping[str, Number],
    families: Sequence[str] | None,
    builder: Builder,
    left: Backend,
    right: Backend,
    seed: int = 0,
    known: Mapping[tuple[str, str, str], Simulated] | None = None,
) -> list[BitsRow]:
    """The original of a case on two backends. NaNs count as equal only with equal bits. `known` is what `left` is
    known to compute.

    Raises:
        PorterError: what binding and building the case raise.
    """
    rows = []
    for run in _runs(case, sizes, families, builder, seed):
        began = time.perf_counter()
        second = run.on(right)
        earlier = (known or {}).get(run.key)
        if earlier is not None and second.status == "ok" and earlier.outputs == _hashes(run.problem, second):
            row = _same(run, (left, right), second)
        else:
            row = _row(run, (left, right), [run.on(left), second])
        row = replace(row, seed=seed, seconds=time.perf_counter() - began)
        ptx = run.kernel.ptx
        if row.different and (APPROXIMATE.search(ptx) or _ATOMIC_SUM.search(ptx)):
            row = replace(row, verdict=Verdict.REVIEW)
        rows.append(row)
    return rows


def _hashes(problem: Problem, result: RunResult) -> dict[str, str]:
    return {
        t.name: hashlib.sha256(np.ascontiguousarray(result.after[t.name].elements()).tobytes()).hexdigest()
        for t in problem.outputs
    }


def _same(run: _Run, backends: tuple[Backend, Backend], result: RunResult) -> BitsRow:
    problem = run.problem
    total = sum(result.after[t.name].elements().size for t in problem.outputs)
    verdict = Verdict.CLEAN if total else Verdict.ERROR
    return BitsRow(
        problem.case.name, dict(problem.sizes), run.family.name, f"{backends[0].name} (earlier)",
        result.where or backends[1].name, total, 0, verdict, outputs=_hashes(problem, result),
    )  # fmt: skip


def _row(run: _Run, backends: tuple[Backend, Backend], results: list[RunResult]) -> BitsRow:
    problem = run.problem
    names = [r.where or b.name for b, r in zip(backends, results, strict=True)]
    failed = [
        f"{n}: {'; '.join(f.message for f in r.findings) or r.status}"
        for n, r in zip(names, results, strict=True)
        if r.status != "ok"
    ]
    total = different = 0
    first = ""
    if not failed:
        for tensor in problem.outputs:
            a, b = (np.ascontiguousarray(r.after[tensor.name].elements()).view(tensor.dtype.bits) for r in results)
            total += a.size
            bad = np.argwhere(a != b)
            different += len(bad)
            if len(bad) and not first:
                at = tuple(int(i) for i in bad[0])
                first = f"{tensor.name}{list(at)}: {int(a[at]):#x} and {int(b[at]):#x}"
    verdict = Verdict.CLEAN
    if failed:
        worst = any(r.status == "error" for r in results)
        verdict = Verdict.ERROR if worst else Verdict.INCOMPLETE
    elif different or not total:
        verdict = Verdict.ERROR
    outputs = _hashes(problem, results[1]) if results[1].status == "ok" else {}
    return BitsRow(
        problem.case.name, dict(problem.sizes), run.family.name, names[0], names[1], total, different, verdict,
        "; ".join(failed) or first, outputs=outputs,
    )  # fmt: skip
