# SPDX-License-Identifier: Apache-2.0
"""The simulator held against a real GPU: the same kernel, the same inputs, every bit of the outputs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from porter.diagnostics import PorterError
from porter.verify.arithmetic import APPROXIMATE
from porter.verify.backends import Backend, RunResult
from porter.verify.builder import ORIGINAL_ARCH, Builder
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import Problem, bind
from porter.verify.results import Verdict


@dataclass(frozen=True)
class BitsRow:
    """One case, size and family. `different` counts elements whose bits differ between `left` and `right`,
    which say what ran where; with approximate instructions in the kernel that is for review, else an error.
    `problem` names the first of them, or why there is nothing to compare; `outputs` are the SHA-256 of the bytes of
    each output of `right`."""

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


def compare_bits(
    case: Case,
    sizes: Mapping[str, Number],
    families: Sequence[str] | None,
    builder: Builder,
    left: Backend,
    right: Backend,
    seed: int = 0,
) -> list[BitsRow]:
    """The original of a case on two backends. NaNs count as equal only with equal bits.

    Raises:
        PorterError: what binding and building the case raise.
    """
    problem = bind(case, sizes)
    kernel = builder.build(problem, case.kernel, ORIGINAL_ARCH)
    rows = []
    for family in choose(list(families) if families else None, problem):
        began = time.perf_counter()
        inputs = generate(problem, family, seed)
        results = []
        for backend in (left, right):
            images = {n: make_image(t, inputs.get(n), backend.guard) for n, t in problem.tensors.items()}
            try:
                results.append(backend.run(kernel, problem, kernel.launch(problem), images))
            except PorterError as error:
                raise PorterError(error.diagnostic.code, **error.diagnostic.values) from None
        row = replace(_row(problem, family.name, (left, right), results, time.perf_counter() - began), seed=seed)
        if row.different and APPROXIMATE.search(kernel.ptx):
            row = replace(row, verdict=Verdict.REVIEW)
        rows.append(row)
    return rows


def _row(
    problem: Problem, family: str, backends: tuple[Backend, Backend], results: list[RunResult], seconds: float
) -> BitsRow:
    names = [r.where or b.name for b, r in zip(backends, results, strict=True)]
    failed = [
        f"{n}: {'; '.join(f.message for f in r.findings) or r.status}"
        for n, r in zip(names, results, strict=True)
        if r.status != "ok"
    ]
    total = different = 0
    first = ""
    outputs = {}
    if not failed:
        for tensor in problem.outputs:
            a, b = (np.ascontiguousarray(r.after[tensor.name].elements()).view(tensor.dtype.bits) for r in results)
            total += a.size
            outputs[tensor.name] = hashlib.sha256(b.tobytes()).hexdigest()
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
    return BitsRow(
        problem.case.name, problem.sizes, family, names[0], names[1], total, different, verdict,
        "; ".join(failed) or first, seconds, outputs=outputs,
    )  # fmt: skip
