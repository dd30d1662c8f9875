# SPDX-License-Identifier: Apache-2.0
"""`porter kit`: runs of kernels for somebody else's GPU, and the records that come back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from porter.build.toolchain import Toolkit, find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.making import Ports
from porter.cli.options import read_sizes, split_list
from porter.cli.timing import timing_runs
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, exit_code_of, worst_exit
from porter.report import json as report_json
from porter.report.exits import kit_exit
from porter.report.tables import plain_table
from porter.verify.builder import PORT_ARCH
from porter.verify.case import Case, cases_of, load_case
from porter.verify.gpu.emulation import Lowerer
from porter.verify.inputs import choose
from porter.verify.kit.archive import build_launcher, write_kit
from porter.verify.kit.bare import assembled
from porter.verify.kit.plan import CAPABILITY, FOR_CHIP, NEXT, PROBE, KitRun, PortFor, kit_runs, probe_runs, with_image
from porter.verify.kit.questions import question_runs
from porter.verify.kit.record import Held, KitRecord, Run, hold, load_kit_record
from porter.verify.problem import bind

_SHOWN = 16
"""Words of an answer that are shown; the document has all of them."""


@command
def kit(
    session: Session,
    paths: tuple[Path, ...],
    port_path: Path | None,
    output: Path,
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    seed: int,
    probes: bool,
    timing: bool,
    rehearsal: bool,
) -> ExitCode:
    toolkit = find_toolkit(session.toolkit)
    launcher = build_launcher(toolkit).read_bytes()
    lowerer = Lowerer(toolkit) if rehearsal else None
    with session.progress() as tell:
        cases = [load_case(item) for path in paths for item in cases_of(path)]
        if port_path is not None and len(cases) > 1:
            raise PorterError(Code.BAD_OPTION, option="--port", problem="is of one kernel, with one case")
        runs, notes = _runs(session, cases, port_path, sizes, split_list(families), seed, toolkit, lowerer, tell)
        if probes:
            runs += probe_runs(make_builder(toolkit, PORT_ARCH))
        asked = [*(question_runs() if probes else []), *(timing_runs() if timing else [])]
        bare = [assembled(run, toolkit) for run in asked]
        packed = write_kit([with_image(run, toolkit, lowerer) for run in runs], launcher, output, tell, bare)
    session.report(notes)
    counts = ", ".join(f"{n} for compute capability {c}" for c, n in sorted(packed.runs.items()))
    session.show(Text(f"wrote {output}: {counts}; {packed.nbytes / 2**20:.1f} MiB, kit {packed.id}"))
    session.show(Text("there:  tar xf kit.tar && kit/run.sh     here:  porter verify KERNEL --against record.txt"))
    code = exit_code_of(notes)
    body = {"path": str(output), "kit": packed.id, "runs": [*map(_facts, runs), *map(_facts, bare)],
            "diagnostics": report_json.diagnostics(notes)}  # fmt: skip
    session.write_json(report_json.document("kit", code, body))
    return code


def _runs(
    session: Session,
    cases: Sequence[Case],
    port: Path | None,
    sizes: Sequence[str],
    families: Sequence[str],
    seed: int,
    toolkit: Toolkit,
    lowerer: Lowerer | None,
    tell: Callable[[str], None] | None,
) -> tuple[list[KitRun], list[Diagnostic]]:
    builder, target = make_builder(toolkit, PORT_ARCH), session.target
    # a file that is given is for the chips that somebody asked for
    others = NEXT if port is None else ()
    further = tuple(dict.fromkeys((*others, target) if target != PORT_ARCH else others))
    port_of = _port_of(session, port)
    runs: list[KitRun] = []
    notes: list[Diagnostic] = []
    for case in cases:
        if tell is not None:
            tell(case.name)
        for chosen in read_sizes(sizes, case):
            names = list(families) or _usual(case)
            found, said = kit_runs(case, chosen, names, seed, builder, port_of, lowerer, further, target)
            runs += found
            notes += [d for d in said if d not in notes]
    return runs, notes


def _port_of(session: Session, port: Path | None) -> PortFor:
    """Gives the port of a case for a chip: the one that `porter port` writes, or the one that is given."""
    ports = Ports(session)
    return lambda case, target: ports.of_case(case, port, target)


def _usual(case: Case) -> list[str]:
    """The first and the last of the input families of a case."""
    names = [f.name for f in choose(None, bind(case))]
    return list(dict.fromkeys([names[0], names[-1]]))


def _facts(run: Run) -> dict[str, Any]:
    return {"label": run.label, "capability": run.capability, "source": run.source, "inputs": run.inputs}


# --- Records


def verify_record(session: Session, items: Sequence[Path | Case], path: Path, port: Path | None) -> ExitCode:
    """Hold a kit's record against the kernels here."""
    record = load_kit_record(path)
    toolkit = find_toolkit(session.toolkit)
    held: list[Held] = []
    notes: list[Diagnostic] = []
    port_of = _port_of(session, port)
    with session.progress() as tell:
        for item in items:
            case = item if isinstance(item, Case) else load_case(item)
            found, said = _held_case(record, case, toolkit, port_of, tell)
            held += found
            notes += said
    probes = _probes(record, toolkit)
    held += probes
    session.report(notes)
    if held:
        session.show(_table(held))
    session.show(*(Text(f"{h.run.case}: {h.run.question} {h.verdict}: {_shown(h)}") for h in probes))
    verdicts = [h.verdict for h in held]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("same", "different", "failed", "missing", "answered"))
    session.show(Text(f"{record.name}, driver {record.device.get('driver')}: {counts}"))
    code = worst_exit([kit_exit(held), exit_code_of(notes)])
    body = {
        "record": str(path), "kit": record.kit, "device": dict(record.device),
        "runs": [_facts(h.run) | {"verdict": h.verdict, "what": h.what, "microseconds": _times(h),
                  "answers": _answers(h)} for h in held],
        "diagnostics": report_json.diagnostics(notes),
    }  # fmt: skip
    session.write_json(report_json.document("kit-record", code, body))
    return code


def _held_case(
    record: KitRecord,
    case: Case,
    toolkit: Toolkit,
    port_of: PortFor,
    tell: Callable[[str], None] | None,
) -> tuple[list[Held], list[Diagnostic]]:
    """The runs of a case that the record has."""
    wanted = [_read_label(d.label) for d in record.runs if d.label.split(" ")[0] == case.name]
    emulated = any(program == "port-emulated" for *_, program in wanted)
    lowerer = Lowerer(toolkit) if emulated else None
    if not wanted:
        return [], [Diagnostic(Code.RECORD_MISSING, None, {"path": record.path, "case": case.name})]
    if tell is not None:
        tell(case.name)
    runs: list[KitRun] = []
    builder = make_builder(toolkit, PORT_ARCH)
    named = (program.removeprefix(FOR_CHIP) for *_, program in wanted)
    further = list(dict.fromkeys(name for name in named if name in CAPABILITY))
    for sizes, seed in dict.fromkeys((tuple(s.items()), seed) for s, _, seed, _ in wanted):
        names = list(dict.fromkeys(family for s, family, n, _ in wanted if (tuple(s.items()), n) == (sizes, seed)))
        found, _ = kit_runs(case, dict(sizes), names, seed, builder, port_of, lowerer, further)
        runs += found
    labels = {d.label for d in record.runs}
    return hold(record, [r for r in runs if r.label in labels or r.program != "port-emulated"]), []


def _probes(record: KitRecord, toolkit: Toolkit) -> list[Held]:
    """The probes that the record has."""
    labels = {d.label for d in record.runs}
    if not any(label.endswith(f" {PROBE}") for label in labels):
        return []
    asked: list[Run] = [*probe_runs(make_builder(toolkit, PORT_ARCH)), *question_runs()]
    return hold(record, [r for r in asked if r.label in labels])


def _shown(held: Held) -> str:
    """What a probe gave: its words, equal ones behind each other with their number."""
    if held.done is None or held.done.status != "ok":
        return held.what or "not run"
    words = [data[i : i + 4][::-1].hex() for data in held.done.shown.values() for i in range(0, len(data) - 3, 4)]
    counted = [(word, len(list(same))) for word, same in groupby(words)]
    said = [f"{number} x {word}" if number > 1 else word for word, number in counted[:_SHOWN]]
    return " ".join([*said, *(["..."] if counted[_SHOWN:] else [])])


def _answers(held: Held) -> dict[str, str]:
    """Bytes of a probe's outputs, in hexadecimal."""
    return {} if held.done is None else {name: data.hex() for name, data in held.done.shown.items()}


def _read_label(label: str) -> tuple[Mapping[str, Any], str, int, str]:
    """Sizes, family, seed and program of a run's name."""
    _, sizes, family, seed, program = label.split(" ")
    values: dict[str, Any] = {}
    for pair in sizes.split(","):
        name, _, value = pair.partition("=")
        plain = value in ("True", "False")
        values[name] = value == "True" if plain else float(value) if re.search(r"[.e]", value) else int(value)
    return values, family, int(seed), program


def _times(held: Held) -> list[float]:
    return list(held.done.microseconds) if held.done is not None else []


def _table(held: Sequence[Held]) -> Table:
    table = plain_table("run", "on the device", "microseconds")
    for one in held:
        times = _times(one)
        what = one.verdict + (f": {one.what}" if one.what else "")
        table.add_row(one.run.label, what, f"{min(times):.1f}" if times else "")
    return table
