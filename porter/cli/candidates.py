# SPDX-License-Identifier: Apache-2.0
"""`porter plan --steps`: the ports with steps of the native style that were judged, with what became of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from porter.cli.context import Session
from porter.cli.judging import judge
from porter.cli.porting import port_paths
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.grade.model import percent
from porter.report.tables import bare_table
from porter.tune.styles import NATIVE
from porter.tune.verifying import Attempt, verified
from porter.verify.budget import Budget
from porter.verify.gate import GateOptions
from porter.verify.preprocessed import preprocessed
from porter.verify.proved import SECONDS

_OF_STEPS = (Code.NATIVE_LEFT, Code.NATIVE_UNPROVED, Code.NATIVE_PROVED)


def candidates(
    session: Session, paths: Sequence[Path], include_dirs: Sequence[Path]
) -> tuple[list[Attempt], list[Diagnostic]]:
    """Ports as `porter port` tries them, and what is said of steps.

    Raises:
        PorterError: BAD_OPTION: it asks for steps of another style; what porting raises.
    """
    if session.style != NATIVE:
        raise PorterError(Code.BAD_OPTION, option="--steps", problem="goes with --style native")
    options = GateOptions(tuple(include_dirs), toolkit=session.toolkit, target=session.target)
    make = partial(port_paths, paths, include_dirs, gate=options, ask=partial(preprocessed, options))
    attempts: list[Attempt] = []
    found = verified(session, make(), make, Budget(None), judge=judge(session, options, SECONDS), attempts=attempts)
    return attempts, [d for d in found.diagnostics if d.code in _OF_STEPS]


def text(attempts: Sequence[Attempt]) -> Iterator[RenderableType]:
    """A table of them, in the order in which they were judged."""
    table = bare_table("file", "steps", "% of nominal", "", "because", "seconds")
    for one in attempts:
        rate = "-" if one.rate is None else percent(one.rate)
        said = f"refused by {one.by}" if one.by else "taken"
        table.add_row(Path(one.path).name, ", ".join(one.steps), rate, said, one.what, f"{one.seconds:.1f}")
    yield table if attempts else Text("  no port with steps was judged")


def body(one: Attempt) -> dict[str, Any]:
    """What the JSON document holds."""
    rate = None if one.rate is None else round(100 * one.rate, 2)
    return {**asdict(one), "taken": not one.by, "rate": rate, "seconds": round(one.seconds, 1)}
