# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels without a case, as host code says them in its text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from porter.build.files import write_all
from porter.cli.context import Session
from porter.scan.draft.new import launches_in_text
from porter.verify.case import CASE_FILE, Case, load_case
from porter.verify.gate import GateOptions

LONGEST_RUN = 20_000_000
"""Warp instructions of a launch that nobody asked for."""


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
