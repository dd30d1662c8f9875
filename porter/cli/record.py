# SPDX-License-Identifier: Apache-2.0
"""`porter record`: what an original computes, kept for a machine that cannot run it."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.tables import quantity
from porter.verify.case import cases_of, load_case
from porter.verify.choose_backend import make_backend
from porter.verify.record import Entry, Record, environment, record_case, save


@command
def record(
    session: Session,
    path: Path,
    output: Path,
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    seed: int,
    backend: str,
    gpu_timeout: float,
) -> ExitCode:
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    settings = replace(
        sim_options(seed, "late", "exact", None), gpu=read_gpu_options("deferred", gpu_timeout, session.toolkit)
    )
    used = make_backend(backend, settings)
    entries: list[Entry] = []
    with session.progress() as tell:
        for item in cases_of(path):
            case = load_case(item)
            if tell is not None:
                tell(case.name)
            for chosen in read_sizes(sizes, case):
                entries += record_case(case, chosen, split_list(families) or None, builder, used, seed)
    facts = environment(" ".join(sys.argv), ran=sorted({e.where for e in entries}))
    save(Record(facts, tuple(entries)), output)
    kernels = len({e.case for e in entries})
    session.show(Text(f"{quantity(len(entries), 'run')} of {quantity(kernels, 'kernel')} in {output}"))
    body = {"path": str(output), "environment": facts, "runs": [_run(e) for e in entries]}
    session.write_json(report_json.document("record", ExitCode.OK, body))
    return ExitCode.OK


def _run(entry: Entry) -> dict[str, object]:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in entry.outputs.items()}
    return {**vars(entry), "sizes": dict(entry.sizes), "outputs": hashes}
