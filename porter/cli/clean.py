# SPDX-License-Identifier: Apache-2.0
"""`porter clean`: removes the comments that `porter port --mark` wrote."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from porter.build.files import write_all
from porter.cli.context import Session, command
from porter.diagnostics import Code, ExitCode, PorterError
from porter.lang.sources import read_source
from porter.lang.trees import files_below
from porter.passes.marks import unmarked
from porter.report import json as report_json
from porter.report.exits import clean_exit


@command
def clean(session: Session, paths: tuple[Path, ...], check: bool) -> ExitCode:
    changed: dict[Path, bytes] = {}
    for path in paths:
        if not path.exists():
            raise PorterError(Code.FILE_NOT_FOUND, path=path)
        for file in files_below(path) if path.is_dir() else [path]:
            text = _text(file, named=file == path)
            if text is not None and (without := unmarked(text)) != text:
                changed[file] = without
    if not check:
        write_all({file.resolve(): text for file, text in changed.items()})
    session.show(*(Text(f"{'would change' if check else 'wrote'} {file}") for file in changed))
    code = clean_exit(check and bool(changed))
    written = [] if check else [str(file) for file in changed]
    body = {"files": [str(file) for file in changed], "written": written, "diagnostics": []}
    session.write_json(report_json.document("clean", code, body))
    return code


def _text(file: Path, named: bool) -> bytes | None:
    """None for what is met in a directory and is no text."""
    try:
        text = read_source(file)
    except PorterError:
        if named:
            raise
        return None
    return text if b"porter[" in text else None
