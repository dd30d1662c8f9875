# SPDX-License-Identifier: Apache-2.0
"""`porter review`: the edit groups of a port, accepted or refused one by one."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from porter.build.files import placed_below, write_all, write_below
from porter.cli.comparing import compared_ports, lines_of, unproved, wrong_in
from porter.cli.context import Session, command, current, install, is_given
from porter.cli.endings import named
from porter.cli.gate import compile_ports, not_compiled
from porter.cli.inputs import require_directories
from porter.cli.making import UNCOMPILED, port_in_style
from porter.cli.placing import how_to_compile, placed
from porter.cli.porting import port_paths
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of, worst_exit
from porter.diagnostics.reading import read_file
from porter.lang.diff import file_diff
from porter.lang.merge import Merged
from porter.lang.text import LineIndex, apply_groups, as_bytes, as_text
from porter.passes.review import record as kept
from porter.passes.review.groups import Item, Review, State, review_of, split, texts
from porter.report import gate as report_gate
from porter.report import json as report_json
from porter.report.exits import gate_exit
from porter.report.groups import group_bodies
from porter.report.tables import quantity
from porter.rules.load import load_rules
from porter.tune.styles import COMPAT
from porter.verify.gate import GateOptions

_KEYS = "y,n,a,d,e,s,q,?"
_HELP = """\
y  accept this group
n  refuse it, and what falls with it
a  accept this group and all that follow
d  refuse this group and all that follow
e  edit its texts by hand
s  take it apart, if its edits do not need each other
q  stop; what is decided is kept
?  this"""
_MARK = re.compile(r"^@@@@ edit (\d+) of \d+: [^\n]*$\n?", re.MULTILINE)
_QUOTED = 60


@command
def review(
    session: Session,
    paths: tuple[Path, ...],
    output: Path | None,
    record: Path,
    again: tuple[str, ...],
    accept_safe: bool,
    include_dirs: tuple[Path, ...],
    compiles: bool,
    prove_seconds: float,
) -> ExitCode:
    require_directories("-I", include_dirs)
    memory = _memory(session, record, paths, output, include_dirs)
    rules = load_rules(tuple(map(str, current().rules)))
    searched = [Path(d) for d in memory.options["include_dirs"]]
    options = GateOptions(tuple(searched), toolkit=session.toolkit, named=named)
    make = partial(port_paths, [Path(p) for p in memory.paths], searched, gate=options, compiles=compiles)
    held, proves = ("", prove_seconds) if compiles else (UNCOMPILED, 0)
    ported = port_in_style(current(), make, held, None, options, proves)
    seen = review_of(ported, rules)
    recalled = kept.recall(memory, seen)
    for item in seen.items:
        asked_again = any(item.group.rule.startswith(rule) for rule in again)
        if asked_again:
            item.state = State.OPEN
        if accept_safe and item.state is State.OPEN and item.group.safety.value == "safe" and not asked_again:
            item.state = State.ACCEPTED
    _tell_changes(session, memory, seen, recalled)
    _decide(session, seen, memory)
    kept.remember(memory, seen, rules)
    diagnostics = [*ported.diagnostics, *ported.left_over]
    written: list[str] = []
    if seen.open():
        diagnostics.append(
            Diagnostic(
                Code.REVIEW_OPEN, Location(str(record)), {"count": str(len(seen.open())), "session": str(record)}
            )
        )
    else:
        diagnostics += _said(seen)
        written = _finish(session, seen, memory, searched, compiles, proves, diagnostics)
    write_all({record: memory.dump()})
    session.report(diagnostics)
    session.show(*(Text(f"wrote {path}") for path in written))
    session.show(Text(_summary(seen)))
    code = worst_exit([ported.exit_code, exit_code_of(diagnostics)])
    session.write_json(report_json.document("review", code, _body(seen, memory, record, written, diagnostics)))
    return code


def _memory(
    session: Session, record: Path, paths: Sequence[Path], output: Path | None, include_dirs: Sequence[Path]
) -> kept.Record:
    """The session that is gone on with, or a new one; what is given wins."""
    memory = kept.load_record(record) if record.exists() else kept.Record()
    if paths and memory.paths and [str(p) for p in paths] != memory.paths:
        problem = f"{record} is a review of {', '.join(memory.paths)}; name another file"
        raise PorterError(Code.BAD_OPTION, option="--session", problem=problem)
    memory.paths = [str(p) for p in paths] or memory.paths
    if not memory.paths:
        raise PorterError(Code.BAD_OPTION, option="PATH", problem=f"there is no session {record} to go on with")
    memory.output = str(output) if output is not None else memory.output
    if memory.output is None:
        raise PorterError(Code.BAD_OPTION, option="-o", problem="say where the accepted port is to be written")
    earlier = memory.options
    dirs = [str(d) for d in include_dirs] or earlier.get("include_dirs", [])
    directories = [str(d) for d in session.rules] or earlier.get("rules", [])
    style = session.style if is_given("style") or not earlier else earlier.get("style") or COMPAT
    keep = session.keep_hopper if session.keep_hopper is not None else earlier.get("keep_hopper")
    mend = session.mend if session.mend is not None else earlier.get("mend")
    memory.options = {"include_dirs": dirs, "rules": directories, "keep_hopper": keep, "mend": mend, "style": style}
    install(replace(session, rules=tuple(map(Path, directories)), keep_hopper=keep, mend=mend, style=style))
    return memory


def _tell_changes(session: Session, memory: kept.Record, seen: Review, recalled: kept.Recalled) -> None:
    """What is other than at the last time."""
    changed = [p for p, text in seen.ported.old.items() if memory.inputs.get(p, kept.digest(text)) != kept.digest(text)]
    if changed:
        session.remark(Text(f"changed since the last review: {', '.join(changed)}"))
    for key in recalled.gone:
        session.remark(Text(f"no longer in the port: {key.split('@')[0]}"))
    for item in recalled.conflicts:
        session.remark(Text(f"{item.group.rule}: your text conflicts with what the port says now; decide again"))


# --- Questions


def _decide(session: Session, seen: Review, memory: kept.Record) -> None:
    """Ask until everything is decided, or whoever answers stops."""
    at = 0
    while at < len(seen.items):
        item = seen.items[at]
        if item not in seen.open():
            at += 1
            continue
        if session.json:
            return
        _show(session, seen, item)
        answer = _ask(f"({at + 1}/{len(seen.items)}) Accept {item.group.rule} [{_KEYS}]? ")
        if answer in ("q", ""):
            return
        if answer == "y":
            item.state = State.ACCEPTED
        elif answer == "n":
            _refuse(seen, item)
        elif answer in ("a", "d"):
            for later in seen.items[at:]:
                if later.state is State.OPEN:
                    later.state = State.ACCEPTED if answer == "a" else State.REFUSED
        elif answer == "e":
            _edit(item)
        elif answer == "s":
            if split(seen, item) is not None:
                memory.split.append(item.key)
            else:
                click.echo("Its edits mean something only together: it cannot be taken apart.")
        else:
            click.echo(_HELP)


def _ask(question: str) -> str:
    """The first letter of an answer; empty at the end of the input."""
    click.echo(question, nl=False)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo()
        return ""
    if not line:
        click.echo()
        return ""
    return line.strip()[:1].lower() or "?"


def _refuse(seen: Review, item: Item) -> None:
    falls = seen.falls_with(item)
    if falls:
        click.echo(f"Without {item.group.rule} these fall too, as if they had been refused:")
        for other in falls:
            mark = " (accepted before)" if other.wanted else ""
            click.echo(f"    {other.group.rule}  {other.group.title}{mark}")
        files = sorted({e.path for i in (item, *falls) for e in i.group.edits})
        click.echo(f"What is left for sm_90a then: {', '.join(files)}")
        if _ask(f"Refuse {quantity(len(falls) + 1, 'group')} [y,n]? ") != "y":
            return
    item.state = State.REFUSED


def _show(session: Session, seen: Review, item: Item) -> None:
    group = item.group
    click.echo()
    click.echo(f"{group.rule}  {group.safety.value}: {group.title}")
    for line in textwrap.wrap(group.reason, 96):
        click.echo(f"    {line}")
    if group.references:
        click.echo(f"    see {'; '.join(group.references)}")
    if item.core:
        others = sum(1 for i in seen.items if i.unit == item.unit and i.core) - 1
        if others:
            click.echo(f"    one of the {others + 1} groups of this port, which stand or fall together")
    before = {p: seen.ported.old.get(p, b"") for p in {e.path for e in group.edits} - set(seen.added)}
    shown = replace(group, edits=tuple(e for e in group.edits if e.path in before))
    after = apply_groups(dict(before), [shown])
    for path in sorted(before):
        _echo_diff(session, file_diff(path, before[path], after[path]))
    for path in sorted({e.path for e in group.edits} & set(seen.added)):
        click.echo(f"    adds {path}, {quantity(seen.ported.new[path].count(bytes([10])), 'line')}")


def _echo_diff(session: Session, diff: bytes) -> None:
    coloured = not session.out.no_color
    for line in diff.decode("utf-8", "replace").splitlines():
        if line.startswith("diff --git"):
            continue
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1]) if coloured else None
        click.echo(click.style(line, fg=colour) if colour else line)


def _edit(item: Item) -> None:
    """Let the reviewer write the texts of a group."""
    edits = item.applied.edits
    parts = []
    for n, edit in enumerate(edits, 1):
        text = as_text(edit.replacement)
        parts.append(f"@@@@ edit {n} of {len(edits)}: {edit.path}\n{text}\n")
    written = click.edit("".join(parts), extension=Path(edits[0].path).suffix or ".txt")
    if written is None:
        click.echo("Nothing was changed.")
        return
    marks = list(_MARK.finditer(written))
    if [int(m.group(1)) for m in marks] != list(range(1, len(edits) + 1)):
        click.echo("The lines that begin with @@@@ have to stay, one in front of each text: nothing was changed.")
        return
    ends = [m.start() for m in marks[1:]] + [len(written)]
    own = [written[m.end() : end].removesuffix("\n") for m, end in zip(marks, ends, strict=True)]
    item.own = [as_bytes(text) for text in own]
    item.state = State.EDITED if item.own != texts(item.group.edits) else State.ACCEPTED


# --- Results


def _said(seen: Review) -> list[Diagnostic]:
    """What has to be said about what was decided."""
    found = []
    fallen = seen.fallen()
    out = [i for i in seen.items if i.state is State.REFUSED or i.number in fallen]
    if out:
        listed = ", ".join(dict.fromkeys(i.group.rule for i in out))
        places = "\n".join(dict.fromkeys(place for i in out for place in _places(seen, i)))
        found.append(
            Diagnostic(Code.GROUPS_REFUSED, _place(seen, out[0]), {"count": str(len(out)), "groups": listed}, places)
        )
    found += [
        Diagnostic(Code.EDITED_BY_HAND, _place(seen, i), {"rule": i.group.rule})
        for i in seen.standing()
        if i.state is State.EDITED
    ]
    return found


def _place(seen: Review, item: Item) -> Location | None:
    """That of the first edit of a group."""
    edit = next(iter(item.group.edits), None)
    source = seen.ported.old.get(edit.path) if edit is not None else None
    return LineIndex(source).location(edit.path, edit.span) if edit is not None and source is not None else None


def _places(seen: Review, item: Item) -> list[str]:
    """The lines that stay as they were."""
    found = []
    for edit in item.group.edits:
        source = seen.ported.old.get(edit.path)
        text = source[edit.span.start : edit.span.end].decode("utf-8", "replace").strip() if source else ""
        if text:
            line = LineIndex(source or b"").line_column(edit.span.start)[0]
            found.append(f"{edit.path}:{line}: {text.splitlines()[0][:_QUOTED]}")
    return found


def _finish(
    session: Session,
    seen: Review,
    memory: kept.Record,
    include_dirs: Sequence[Path],
    compiles: bool,
    seconds: float,
    diagnostics: list[Diagnostic],
) -> list[str]:
    """Compile, compare and write what stands, merged with what was edited by hand; the files written."""
    result = seen.result()
    port, output = placed(result, False, include_dirs, map(Path, memory.paths)), Path(str(memory.output))
    diagnostics += port.astray
    if port.astray:
        return []
    options = GateOptions(
        tuple(include_dirs),
        (),
        (),
        session.toolkit,
        None,
        named=named,
        written=frozenset(port.files),
        layout=port.layout,
    )
    gated = compile_ports(result, options, None) if compiles else not_compiled(result, "--no-compile")
    session.show(*report_gate.summary(gated))
    compared = compared_ports(session, result, gated, options, seconds)
    diagnostics += [*unproved(gated, compared), *wrong_in(compared)]
    session.show(*map(Text, lines_of(compared)))
    if gate_exit(gated) is not ExitCode.OK or wrong_in(compared):
        return []
    targets = placed_below(port.files, output, seen.ported.new, port.layout)
    wanted = {path: data for path, data in targets.items() if any(data == result.new[p] for p in result.changed)}
    gone = [Path(p) for p in memory.written if Path(p) not in targets]
    present = {path: read_file(path) for path in targets if path.is_file()}
    merged = kept.merged_files(memory, targets if wanted else {}, present)
    for path, one in merged.items():
        if one.conflicts:
            values = {"path": str(path), "count": str(one.conflicts)}
            diagnostics.append(Diagnostic(Code.MERGE_CONFLICT, Location(str(path)), values))
    write_below({path: one.text for path, one in merged.items()}, output, port.layout)
    for path in gone:
        _remove(path, as_bytes(memory.written[str(path)]))
    memory.written = {str(p): as_text(data) for p, data in targets.items() if p in merged}
    diagnostics += how_to_compile(result, port, output if merged else None)
    return _listed(merged)


def _remove(path: Path, base: bytes) -> None:
    """A file that the port has no more goes, unless somebody has edited it."""
    if path.is_file() and path.read_bytes() == base:
        path.unlink()


def _listed(merged: dict[Path, Merged]) -> list[str]:
    return [str(path) for path in sorted(merged)]


def _summary(seen: Review) -> str:
    fallen = seen.fallen()
    counts = {
        "accepted": len(seen.standing()),
        "refused": len(seen.refused()),
        "fallen with them": sum(1 for i in seen.items if i.number in fallen and i.state is not State.REFUSED),
        "not decided": len(seen.open()),
    }
    return f"{quantity(len(seen.items), 'group')}: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n)


def _body(
    seen: Review, memory: kept.Record, record: Path, written: Sequence[str], diagnostics: Sequence[Diagnostic]
) -> dict[str, Any]:
    fallen = seen.fallen()
    bodies = group_bodies([i.applied for i in seen.items], seen.ported.old)
    groups = [
        body
        | {"state": "fallen" if i.number in fallen and i.state is not State.REFUSED else i.state.value, "key": i.key,
           "falls_with": fallen[i.number].group.rule if i.number in fallen else None}
        for i, body in zip(seen.items, bodies, strict=True)
    ]  # fmt: skip
    return {
        "session": str(record), "paths": memory.paths, "output": memory.output, "groups": groups,
        "written": list(written), "diagnostics": report_json.diagnostics(list(diagnostics)),
    }  # fmt: skip
