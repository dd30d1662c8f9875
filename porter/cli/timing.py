# SPDX-License-Identifier: Apache-2.0
"""The grade's kernels in kits, and what records say of them."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

from rich.text import Text

from porter.build.files import write_all
from porter.cli.context import Session
from porter.diagnostics import Code, ExitCode, Location, PorterError
from porter.grade import calibration_file
from porter.grade.chips import Chip, calibrated, chip_of
from porter.grade.fitting import Measured, enough, fit, points, rates
from porter.grade.kernels import DEPTH, ENTRY, FITTED, HELD_OUT, STAMPED, STAMPS, Timed
from porter.report import calibration as report_calibration
from porter.report import json as report_json
from porter.report.grade import TRUST
from porter.verify.builder import PORT_ARCH
from porter.verify.kit.bare import BareRun, Filled, rows_of
from porter.verify.kit.plan import CAPABILITY
from porter.verify.kit.record import Held, KitRecord, hold, load_kit_record

PROGRAM = "timing"
_ONES = 0x3F803F80
"""Two bf16 of value 1."""
_STAMPS = struct.Struct(f"<{len(STAMPS)}Q")


def timing_runs() -> list[BareRun]:
    """The kernels that the model is fitted to, and those that it is held against."""
    return [timing_run(timed) for timed in (*FITTED, *HELD_OUT)]


@functools.cache
def timing_run(timed: Timed) -> BareRun:
    """All elements of A and B are 1, so that every one of D is K."""
    p = timed.problem
    (total,) = struct.unpack("<I", struct.pack("<f", p.k))
    tensors = {
        "A": Filled(2 * p.m * p.k, _ONES), "B": Filled(2 * p.n * p.k, _ONES),
        "D": Filled(4 * p.m * p.n, role="out", after=total),
        "clocks": Filled(STAMPED * _STAMPS.size, role="answer"),
    }  # fmt: skip
    maps = {"a": ("A", rows_of(p.m, p.k, 128, DEPTH)), "b": ("B", rows_of(p.n, p.k, timed.n // timed.ctas, DEPTH))}
    return BareRun(f"timing:{timed.name}", f"M={p.m},N={p.n},K={p.k}", PROGRAM, timed.ptx(), ENTRY, PORT_ARCH,
                   (*timed.grid, 1), timed.threads, tensors, ("a", "b", "D", "clocks", p.k // DEPTH, p.n), maps,
                   timed.ctas, timed.smem)  # fmt: skip


def measured(record: KitRecord) -> tuple[list[Measured], list[Held]]:
    """The kernels with their clocks, and those that did not end well, or not with the right bits.

    Raises:
        PorterError: RECORD_MISMATCH; GRADE_RECORD.
    """
    timed = {timing_run(t).label: t for t in (*FITTED, *HELD_OUT)}
    held = [h for h in hold(record, timing_runs()) if h.done is not None]
    good = [h for h in held if h.verdict == "same"]
    found = [_measured(record, h, timed[h.run.label]) for h in good]
    return found, [h for h in held if h.verdict != "same"]


def _measured(record: KitRecord, held: Held, timed: Timed) -> Measured:
    assert held.done is not None
    data, times = held.done.shown.get("clocks", b""), held.done.microseconds
    stamps = [s for s in (_STAMPS.unpack_from(data, at) for at in range(0, len(data) - _STAMPS.size + 1, _STAMPS.size))
              if any(s)]  # fmt: skip
    if not stamps or not times or any(list(s) != sorted(set(s)) for s in stamps) or min(times) <= 0:
        raise _refused(record.path, f"{held.run.case} has clocks that do not rise")
    return Measured(timed, tuple(stamps), min(times))


def _refused(path: Path, problem: str) -> PorterError:
    return PorterError(Code.GRADE_RECORD, Location(str(path)), path=path, problem=problem)


def calibrate(session: Session, path: Path, output: Path) -> ExitCode:
    """Fit what may be fitted, show predicted beside measured, and write a calibration.

    Raises:
        PorterError: what `load_kit_record` and `measured` raise; GRADE_RECORD; WRITE_FAILED.
    """
    record = load_kit_record(path)
    chip = _chip(record)
    found, left_out = measured(record)
    if not enough(found):
        raise _refused(path, f"{len(found)} of {len(timing_runs())} timing kernels ran well")
    before = points(found, chip)
    constants = fit(found, chip)
    with calibrated(constants):
        after, whole = points(found, chip), rates(found, chip)
    device = {"name": record.name, **{k: v for k, v in record.device.items() if k != "device"}, "kit": record.kit}
    made = calibration_file.Calibration(device, constants)
    write_all({output: calibration_file.text(made, after).encode()})
    session.show(*report_calibration.text(record, constants, before, after, whole, left_out))
    session.show(Text(f"wrote {output}: `porter grade --calibration {output}` uses it"))
    body = {
        "trust": TRUST, "kernels": [], "diagnostics": [],
        "calibrated": {
            "device": device, "constants": constants, "path": str(output),
            **report_calibration.body(before, after, whole, left_out),
        },
    }  # fmt: skip
    session.write_json(report_json.document("grade", ExitCode.OK, body))
    return ExitCode.OK


def _chip(record: KitRecord) -> Chip:
    capability = record.device.get("capability")
    arch = next((a for a, c in CAPABILITY.items() if c == capability), "")
    chip = chip_of(arch) if arch == PORT_ARCH else None
    if chip is None:
        raise _refused(record.path, f"kernels are timed on GPUs of compute capability {CAPABILITY[PORT_ARCH]}, "
                                    f"and this one has {capability}")  # fmt: skip
    return chip
