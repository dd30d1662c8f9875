# SPDX-License-Identifier: Apache-2.0
"""Mutants of one case or many, and what is kept of earlier results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from porter.diagnostics import Diagnostic
from porter.verify.budget import Budget, digest_of
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.mutant_runs import Setup
from porter.verify.mutation import MutationResult, mutate
from porter.verify.mutation_record import (
    Record,
    make_record,
    port_digest,
    ptx_digest,
    read_record,
    record_path,
    write_record,
)
from porter.verify.prepare import PortOf, mutation_setups
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class Mutated:
    """What became of a case: its result is `kept` (of the same port), `compiled as before`, `earlier` in the document
    of another run, or from a `run`; `not ported` as the diagnostics say. `digest` is of all that a result depends
    on."""

    how: Literal["kept", "compiled as before", "earlier", "run", "not ported"]
    record: Record | None = None
    result: MutationResult | None = None
    diagnostics: Sequence[Diagnostic] = ()
    digest: str = ""


def settled(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The kernels of a document of `porter mutate` that need not be mutated again, by their digest: nothing is wrong
    with them, and no mutant with wrong values went unnoticed."""
    return {k["digest"]: k for k in document["kernels"] if k.get("digest") and _is_settled(k)}


def _is_settled(kernel: Mapping[str, Any]) -> bool:
    clean = kernel["status"] == "ok" and all(h["severity"] != "error" for h in kernel["hazards"])
    return clean and not any(m["by_value"] and not m["caught"] for m in kernel["mutants"])


@dataclass(frozen=True)
class Sweep:
    """What is done with every case. `program` is `original` or `port`; with `folder` results are kept there, and those
    that are there already are taken unless `again`. `done`: as of `settled`. `time`: of all cases together; of one that
    it ends in nothing is kept."""

    program: str
    options: SimOptions
    builder: Builder
    port_of: PortOf
    jobs: int = 1
    folder: Path | None = None
    again: bool = False
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    time: Budget | None = None

    def case(
        self, case: Case, sizes: Sequence[Mapping[str, Number]], tell: Callable[[str], None] | None = None
    ) -> Mutated:
        """The mutants of one case.

        Raises:
            PorterError: what porting, compiling and running raise.
        """
        earlier = self._earlier(case)
        if earlier is not None and earlier.port == self._port(case):
            return Mutated("kept", earlier)
        setups, left = mutation_setups(case, self.program, self.builder, sizes, self.options.seed, self.port_of)
        if not setups:
            return Mutated("not ported", diagnostics=left)
        if earlier is not None and earlier.ptx == ptx_digest(case, setups):
            return Mutated("compiled as before", self._keep(case, replace(earlier, port=self._port(case))), None, left)

        digest = self._digest(case, setups)
        if digest in self.done:
            return Mutated("earlier", diagnostics=left, digest=digest)

        def step(text: str) -> None:
            if tell is not None:
                tell(f"{case.name}: {text}")

        result = mutate(setups, self.options, step, self.jobs, None, self.time)
        if result.stopped:
            return Mutated("run", None, result, left)
        port = "" if self.folder is None else self._port(case)
        record = make_record(case, port, setups, self.options, result)
        return Mutated("run", self._keep(case, record), result, left, digest)

    def _digest(self, case: Case, setups: Sequence[Setup]) -> str:
        o = self.options
        settings = [case.name, o.schedule, o.seed, o.arithmetic, o.budget, [setup.sizes for setup in setups]]
        return digest_of(case, [], [ptx_digest(case, setups), *map(repr, settings)])

    def _port(self, case: Case) -> str:
        plan, _ = self.port_of(case)
        return "" if plan is None else port_digest(case, plan)

    def _earlier(self, case: Case) -> Record | None:
        """The result that is there already, with the same settings."""
        if self.folder is None or self.again:
            return None
        found, o = read_record(record_path(self.folder, case)), self.options
        if found is None or (found.seed, found.schedule, found.arithmetic) != (o.seed, o.schedule, o.arithmetic):
            return None
        return found

    def _keep(self, case: Case, record: Record) -> Record:
        if self.folder is not None:
            write_record(record_path(self.folder, case), record)
        return record
