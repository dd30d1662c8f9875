# SPDX-License-Identifier: Apache-2.0
"""`porter scan`: an inventory of sources; never edits."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from porter.cli.context import Session, command
from porter.cli.inputs import processes, require_directories
from porter.cli.nearby import looked_in
from porter.cli.porting import look, port_options
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import json as report_json
from porter.report.tables import plain_table, quantity
from porter.scan.constructs import Construct, FileInventory
from porter.scan.inventory import Inventory, take_inventory
from porter.scan.kernels import KernelSummary

_ALL_SHOWN = 20
"""Inventories of so few files show every file, longer ones only those that hold something."""
_ROOM = 12
"""Columns that a table has to have beyond the longest words of its cells."""
_ENDLESS = 10_000
_HEADERS_SHOWN = 5
"""Headers not found that are named without -v."""
_LEVEL_STYLES = {"none": "dim", "low": "green", "medium": "yellow", "high": "red"}


@command
def scan(
    session: Session,
    paths: tuple[Path, ...],
    as_csv: bool,
    no_effort: bool,
    jobs: int | None,
    include_dirs: tuple[Path, ...],
) -> ExitCode:
    if as_csv and session.json:
        raise PorterError(Code.BAD_OPTION, option="--csv, --format json", problem="choose one")
    count = processes(jobs, paths)
    require_directories("-I", include_dirs)
    include_dirs, nearby = looked_in(paths, include_dirs)
    options = port_options(session)
    with session.counting() as tell:
        found = take_inventory(
            paths, jobs=count, effort=not no_effort, include_dirs=include_dirs, options=options, look=look, tell=tell
        )
    session.report(nearby)
    session.report(found.headers_not_found if session.verbosity > 0 else found.headers_not_found[:_HEADERS_SHOWN])
    session.report(found.diagnostics)
    if as_csv:
        session.write(_csv(found).encode("utf-8", "surrogateescape"))
        return ExitCode.OK
    session.show(*_files(found, session.verbosity > 0, session.out))
    if found.totals:
        session.show(Text(""), *_totals(found, session.out))
    session.show(*kernel_lines([s for f in found.files for s in f.summaries]))
    session.show(*_reasons(found))
    session.conclude(_summary(found, not no_effort))
    if session.verbosity > 0:
        for file in found.files:
            session.show(*(Text(f"{where}: not read") for where in file.unread))
            session.show(*(Text(note) for note in file.notes))
    session.write_json(_document(found))
    return ExitCode.OK


def _table(*headings: tuple[str, bool]) -> Table:
    table = plain_table()
    for heading, right in headings:
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    return table


def _files(found: Inventory, every: bool, console: Console) -> Iterator[Table | Text]:
    """The files: as a table, without shapes of instructions if it is too wide; else a block of lines for each."""
    shown = found.files
    if len(shown) > _ALL_SHOWN and not every:
        shown = tuple(f for f in shown if f.hopper_only or f.effort.level not in ("none", "unknown") or _guarded(f))
    for forms in (True, False):
        table = _file_table(shown, forms)
        if _needs(console, table).maximum <= console.width:
            yield table
            return
    yield from (line for file in shown for line in _block(file, console.width))


def _needs(console: Console, table: Table) -> Measurement:
    """The columns that a table takes where there is no end of them, and without breaking words."""
    return Measurement.get(console, console.options.update(max_width=_ENDLESS), table)


def _file_table(files: Iterable[FileInventory], forms: bool) -> Table:
    table = _table(("file", False), ("lines", True), ("parsed", True), ("kernels", False),
                   ("Hopper only", False), ("effort", False))  # fmt: skip
    for file in files:
        effort = Text(file.effort.level, style=_LEVEL_STYLES.get(file.effort.level, ""))
        names = "\n".join(_hopper(file, forms))
        table.add_row(file.path, str(file.lines), f"{file.coverage:.1%}", "\n".join(file.kernels), names, effort)
    return table


def _block(file: FileInventory, width: int) -> Iterator[Text]:
    style = _LEVEL_STYLES.get(file.effort.level, "")
    yield Text.assemble((file.path, "bold"), f"  {quantity(file.lines, 'line')}, {file.coverage:.1%} parsed, effort ",
                        (file.effort.level, style))  # fmt: skip
    for label, items in (("kernels", file.kernels), ("Hopper", _hopper(file, forms=False))):
        listed = textwrap.wrap(", ".join(items), width - 11, break_long_words=False, break_on_hyphens=False)
        yield from (Text.assemble("  ", ("" if i else label).ljust(9), line) for i, line in enumerate(listed))


def _hopper(file: FileInventory, forms: bool) -> list[str]:
    """`3 wgmma.mma_async`: what only Hopper has, and what is not known."""
    hopper = [_counted(c, forms) for c in file.constructs if c.status == "hopper"]
    return [*hopper, *(f"{_counted(c, forms)} (unknown)" for c in file.constructs if c.status == "unknown")]


def _guarded(file: FileInventory) -> bool:
    return file.kind == "build" or (bool(file.kernels) and any(c.status == "beside" for c in file.constructs))


def _counted(construct: Construct, forms: bool) -> str:
    name = construct.name
    if not forms and construct.kind == "dsl":
        name = ".".join(name.split(".")[-2:])
    names = [form for form, _ in construct.forms if form] if forms else []
    more = f" ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})" if names else ""
    return f"{construct.count} {name}{more}"


_KINDS = {"ptx": "instruction", "library": "library", "guard": "guard", "host": "host code", "build": "build flag",
          "dsl": "CuTe DSL"}  # fmt: skip


def _totals(found: Inventory, console: Console) -> Iterator[Table | Text]:
    """What has to change, and what of Hopper stays: as a table, or a line for each and what it becomes below."""
    kept = {c.name for f in found.files for c in f.constructs if c.status == "both" and c.since_hopper}
    shown = [t for t in found.totals if t.status != "both" or t.name in kept]
    table = _table(("construct", False), ("kind", False), ("count", True), ("files", True), ("becomes", False))
    lines: list[Text] = []
    for total in shown:
        becomes = total.becomes or ("not known" if total.status == "unknown" else "")
        table.add_row(total.name, _KINDS[total.kind], str(total.count), str(total.files), becomes)
        times = f"{total.count} in {quantity(total.files, 'file')}"
        lines.append(Text.assemble((total.name, "bold"), f"  {_KINDS[total.kind]}, {times}"))
        lines += [Text(f"  {line}") for line in textwrap.wrap(becomes, console.width - 2, break_long_words=False)]
    yield from [table] if _needs(console, table).minimum + _ROOM <= console.width else lines


def kernel_lines(summaries: Iterable[KernelSummary]) -> list[Text]:
    """One block for each kernel in CuTe C++."""
    lines = []
    for one in summaries:
        lines.append(Text.assemble((one.kernel, "bold"), f"  {one.path}:{one.line}"))
        lines += [
            Text.assemble("  ", (label.ljust(11), "cyan"), text)
            for label, texts in (("uses", one.uses), ("port", one.port), ("blocked by", one.blocks))
            for text in ([", ".join(texts)] if label != "blocked by" else texts)
            if text
        ]
    return lines


def _reasons(found: Inventory) -> list[Text]:
    """Why the effort of a file is more than low."""
    lines = []
    for file in found.files:
        if file.effort.level in ("medium", "high"):
            lines.append(Text.assemble((f"{file.effort.level}: ", _LEVEL_STYLES[file.effort.level]), file.path))
            # the reasons stand with the file that the header is judged with
            shown = file.effort.why[:1] if file.effort.why[0].startswith("with ") else file.effort.why
            lines += [Text(f"  {why}") for why in shown]
    return lines


def _summary(found: Inventory, judged: bool) -> Text:
    kernels = sum(len(f.kernels) for f in found.files)
    lines = sum(f.lines for f in found.files)
    efforts = ", ".join(f"{n} {level}" for level, n in found.efforts.items()) if judged else "not judged"
    missing = len(found.headers_not_found)
    headers = f"{quantity(missing, 'header')} not found; " if missing else ""
    return Text(
        f"{quantity(len(found.files), 'file')}, {quantity(lines, 'line')}, {found.coverage:.2%} of the bytes parsed, "
        f"{quantity(kernels, 'kernel')}, {quantity(found.hopper_only, 'Hopper-only construct')}; {headers}"
        f"effort: {efforts}"
    )


_COLUMNS = ("path", "lines", "bytes", "coverage", "kernels", "effort", "construct", "kind", "status", "count",
            "first_line", "becomes")  # fmt: skip


def _csv(found: Inventory) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for f in found.files:
        head = (f.path, f.lines, f.nbytes, f"{f.coverage:.6f}", " ".join(f.kernels), f.effort.level)
        for c in f.constructs:
            writer.writerow((*head, c.name, c.kind, c.status, c.count, c.first.line, c.becomes))
        if not f.constructs:
            writer.writerow((*head, "", "", "", "", "", ""))
    return out.getvalue()


def _document(found: Inventory) -> dict[str, object]:
    def construct(c: Construct) -> dict[str, object]:
        return {
            "name": c.name,
            "kind": c.kind,
            "status": c.status,
            "count": c.count,
            "first": report_json.location(c.first),
            "becomes": c.becomes,
            "since_hopper": c.since_hopper,
            "forms": dict(c.forms),
        }

    files = [
        {
            "path": f.path,
            "kind": f.kind,
            "lines": f.lines,
            "bytes": f.nbytes,
            "coverage": f.coverage,
            "kernels": list(f.kernels),
            "effort": {"level": f.effort.level, "why": list(f.effort.why)},
            "constructs": [construct(c) for c in f.constructs],
            "summaries": [vars(s) for s in f.summaries],
            "unread": [report_json.location(where) for where in f.unread],
        }
        for f in found.files
    ]
    body = {
        "target": found.target,
        "coverage": found.coverage,
        "hopper_only": found.hopper_only,
        "efforts": found.efforts,
        "totals": [vars(t) for t in found.totals],
        "files": files,
        "headers_not_found": len(found.headers_not_found),
        "diagnostics": report_json.diagnostics([*found.headers_not_found, *found.diagnostics]),
    }
    return report_json.document("scan", ExitCode.OK, body)
