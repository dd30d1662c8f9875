# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels without a case: what host code says in its text, and what its main() does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

from porter.build.files import write_all
from porter.build.toolchain import find_toolkit
from porter.cli.context import Session
from porter.cli.programs import program_request
from porter.scan.draft.new import has_main, launches_in_text
from porter.verify.capture.program import CaptureOptions
from porter.verify.capture.simulated import capture_simulated
from porter.verify.capture.write import Source, write_cases
from porter.verify.case import CASE_FILE, Case, load_case
from porter.verify.gate import GateOptions
from porter.verify.program import build_runtime
from porter.verify.program.source import executable_of

_MOST_LAUNCHES = 16
LONGEST_RUN = 20_000_000
"""Warp instructions of a launch that nobody asked for."""
_MOST_BYTES = 256 << 20
_INSTRUCTIONS = 250_000
"""Warp instructions that the simulator executes in a second, about."""


def launches_in_host_code(session: Session, path: Path, options: GateOptions, spare: Path) -> Iterator[Case]:
    """A case of each launch that host code makes of a kernel with other template arguments. Nobody says what results
    are right.

    Raises:
        PorterError: what reading the sources raises.
    """
    drafts = launches_in_text(path, options.include_dirs, tuple(map(str, session.rules)), options.instantiate)
    for number, draft in enumerate(drafts):
        draft.fields |= {"kernel": str(path.resolve()), "reference": "0"}
        if options.include_dirs:
            draft.fields["include_dirs"] = [str(d.resolve()) for d in options.include_dirs]
        if options.defines:
            draft.fields["defines"] = dict(_defined(text) for text in options.defines)
        file = spare / f"{path.stem}.{number}" / CASE_FILE
        write_all({file: draft.text().encode()})
        yield load_case(file)


def _defined(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value or "1"


def launches_of_main(session: Session, path: Path, options: GateOptions, spare: Path, seconds: float) -> list[Case]:
    """A recorded case of each of the first launches that the program of a file makes, which runs on the simulator and
    begins none after `seconds`; none if it is no program.

    Raises:
        PorterError: what compiling and running raise.
    """
    if not has_main(path, options.defines):
        return []
    toolkit = find_toolkit(session.toolkit)
    folder = spare / f"{path.stem}.main"
    folder.mkdir()
    request = program_request(path, (), None, options.include_dirs, options.defines, options.flags, ())
    executable = executable_of(request, toolkit, folder)
    longest = min(LONGEST_RUN, int(seconds * _INSTRUCTIONS))
    wanted = CaptureOptions("", _MOST_LAUNCHES, _MOST_BYTES, stops=True, budget=longest, seconds=seconds)
    with redirect_stderr(io.StringIO()):
        captured, _ = capture_simulated([str(executable)], folder, wanted, None, 4, build_runtime(toolkit))
    written = write_cases(captured, folder / "cases", {}, Source(path, options.include_dirs), None)
    return [load_case(_named(case, f"{path.name} launch {n}")) for n, case in enumerate(written.cases, 1)]


def _named(case: Path, name: str) -> Path:
    """A recorded case, which is called as its folder is."""
    return case.parent.rename(case.parent.with_name(name)) / case.name
