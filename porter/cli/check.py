# SPDX-License-Identifier: Apache-2.0
"""`porter check`: findings only, for people and for CI."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from porter.cli.context import Session, command
from porter.cli.inputs import require_directories
from porter.cli.porting import look, port_options
from porter.cli.prove import proofs_below
from porter.diagnostics import Code, ExitCode
from porter.report import json as report_json
from porter.report import proofs as report_proofs
from porter.report.exits import check_exit
from porter.report.tables import quantity
from porter.scan.check import Checked, faults_on_sm100, for_porter, hopper_left
from porter.verify.builder import ORIGINAL_ARCH
from porter.verify.proved import alone


@command
def check(
    session: Session, paths: tuple[Path, ...], sm100: bool, pass_over: bool, include_dirs: tuple[Path, ...],
    defines: tuple[str, ...], prove: bool,
) -> ExitCode:  # fmt: skip
    require_directories("-I", include_dirs)
    if pass_over:
        paths = for_porter(paths, include_dirs, tuple(map(str, session.rules)))
    with session.counting() as tell:
        if sm100:
            target = port_options(session).target
            checked = faults_on_sm100(paths, include_dirs, tuple(map(str, session.rules)), tell, target, defines)
        else:
            checked = hopper_left(paths, include_dirs, port_options(session), look, tell)
    proofs, left = proofs_below(session, paths, session.target if sm100 else ORIGINAL_ARCH) if prove else ([], [])
    hazards = [d for proof in proofs for d in report_proofs.introduced(alone(proof), Code.HAZARD_PROVED)]
    checked = replace(checked, findings=(*checked.findings, *hazards), problems=(*checked.problems, *left))
    session.report([*checked.findings, *checked.problems])
    session.show(*(Text(line) for proof in proofs for line in report_proofs.brief(alone(proof))))
    session.conclude(_summary(checked))
    code = check_exit(checked.findings, checked.problems)
    body = {
        "files": checked.files,
        "findings": report_json.diagnostics(checked.findings),
        "diagnostics": report_json.diagnostics(checked.problems),
    }
    body |= {"proofs": [report_proofs.proof_body(proof) for proof in proofs]} if prove else {}
    session.write_json(report_json.document("check", code, body))
    return code


def _summary(checked: Checked) -> Text:
    counts = Counter(d.code.id for d in checked.findings)
    listed = ", ".join(f"{n} {code}" for code, n in sorted(counts.items()))
    return Text(f"{quantity(checked.files, 'file')} checked: {listed or 'nothing found'}")
