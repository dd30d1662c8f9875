# SPDX-License-Identifier: Apache-2.0
"""Mutants of one case or many, and what is kept of earlier results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from porter.diagnostics import Diagnostic
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.expr import Number
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
    """What became of a case: its result is `kept` (of the same port), `compiled as before`, or from a `run`; without a
    record its kernel could not be ported, as the diagnostics say."""

    how: Literal["kept", "compiled as before", "run", "not ported"]
    record: Record | None = None
    result: MutationResult | None = None
    diagnostics: Sequence[Diagnostic] = ()


@dataclass(frozen=True)
class Sweep:
    """What is done with every case. `program` is `original` or `port`; with `folder` results are kept there, and those
    that are there already are taken unless `again`."""

    program: str
    options: SimOptions
    builder: Builder
    port_of: PortOf
    jobs: int = 1
    folder: Path | None = None
    again: bool = False

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

        def step(text: str) -> None:
            if tell is not None:
                tell(f"{case.name}: {text}")

        result = mutate(setups, self.options, step, self.jobs)
        port = "" if self.folder is None else self._port(case)
        record = make_record(case, port, setups, self.options, result)
        return Mutated("run", self._keep(case, record), result, left)

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
