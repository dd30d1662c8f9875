# SPDX-License-Identifier: Apache-2.0
"""Examples of rules whose port is compiled, or run beside the original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from porter.build.entry import readable
from porter.build.gate import MACHINE
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import PorterError, Severity
from porter.passes.rule_examples import Prove
from porter.rules.rule import Example
from porter.verify.outcome import Verdict
from porter.verify.program.compare import verify_programs
from porter.verify.program.source import Request
from porter.verify.settings import SimOptions


def prover(chosen: Path | None) -> Prove:
    """Compiles and runs with the toolkit that is `chosen`, or the first that is found.

    Raises:
        PorterError: NO_TOOLKIT and what else a machine lacks, when an example asks for it.
    """

    def prove(example: Example, folder: Path, port: Mapping[str, bytes]) -> Iterator[str]:
        target = folder / "porter-port"
        originals = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        changed = {Path(name).relative_to(folder): text for name, text in port.items()}
        for name, text in {**originals, **changed}.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(text)
        toolkit = find_toolkit(chosen)
        try:
            if example.compile:
                compile_ptx(CompileRequest(target / example.file, example.compile, assemble=True), toolkit)
            if example.verify:
                yield from _other(folder / example.file, target / example.file, toolkit)
        except PorterError as error:
            if error.diagnostic.code in MACHINE:
                raise
            yield f"{error.diagnostic.code.id}: {readable(error.diagnostic.message)}"

    return prove


def _other(original: Path, port: Path, toolkit: Toolkit) -> Iterator[str]:
    """What a run of original and port finds."""
    both = [Request(path, (), is_source=True) for path in (original, port)]
    for row in verify_programs(both[0], both[1], toolkit, SimOptions()).rows:
        said = [d for d in row.diagnostics if d.severity is Severity.ERROR]
        yield from (f"{d.code.id}: {readable(d.message)}" for d in said)
        if not said and row.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
            yield f"what original and port do is not known to be the same: {row.verdict}"
        if not said and not any(c.elements for c in row.between):
            yield "the program's kernels write nothing"
