# SPDX-License-Identifier: Apache-2.0
"""Unified diffs over bytes that `git apply` accepts, with the rules behind each hunk named before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.lang.matching import LineMatcher
from porter.lang.text import EditGroup, LineIndex, as_bytes

CONTEXT = 3


@dataclass(frozen=True)
class Hunk:
    """Changed lines with their context: 0-based half-open line ranges of the old and the new file."""

    old: tuple[int, int]
    new: tuple[int, int]
    lines: tuple[bytes, ...]
    changed_old: tuple[tuple[int, int], ...]


def split_lines(source: bytes) -> list[bytes]:
    """Lines with their ends, split at newlines only (a lone carriage return ends no line for git)."""
    lines = source.split(b"\n")
    result = [line + b"\n" for line in lines[:-1]]
    if lines[-1]:
        result.append(lines[-1])
    return result


def hunks(old: bytes, new: bytes, context: int = CONTEXT) -> Iterator[Hunk]:
    """The differences of two texts, in order."""
    a, b = split_lines(old), split_lines(new)
    for group in LineMatcher(a, b).get_grouped_opcodes(context):
        lines: list[bytes] = []
        changed: list[tuple[int, int]] = []
        for tag, a0, a1, b0, b1 in group:
            if tag == "equal":
                lines += [b" " + line for line in a[a0:a1]]
                continue
            changed.append((a0, a1))
            lines += [b"-" + line for line in a[a0:a1]]
            lines += [b"+" + line for line in b[b0:b1]]
        yield Hunk((group[0][1], group[-1][2]), (group[0][3], group[-1][4]), tuple(lines), tuple(changed))


def shown_path(path: str) -> str:
    """A path as `git apply` needs it: relative to the working directory where that is in the file's repository and
    above the file, else to the root of the repository; without a leading `/` if the file is in none."""
    absolute = Path(path).resolve()
    here = Path.cwd()
    for directory in absolute.parents:
        if (directory / ".git").exists():
            inside = here.is_relative_to(directory) and absolute.is_relative_to(here)
            return absolute.relative_to(here if inside else directory).as_posix()
    return absolute.relative_to(here).as_posix() if absolute.is_relative_to(here) else path.lstrip("/")


def file_diff(path: str, old: bytes | None, new: bytes, groups: Sequence[EditGroup] = ()) -> bytes:
    """The diff of one file; empty if nothing changes. `old` is None for a file that does not exist yet.

    The path stands after `a/` and `b/` as `shown_path` gives it. Lines starting with `# rule` name the groups
    whose edits fall into each hunk. They stand before the `diff --git` line, where git expects free text,
    and end in the `@@` header of their hunk. The header itself has the rules' IDs and safety, where git puts the name
    of a function.
    """
    if old == new:
        return b""
    shown = as_bytes(shown_path(path))
    body: list[bytes] = []
    notes: list[bytes] = []
    index = LineIndex(old or b"")
    for hunk in hunks(old or b"", new):
        header = b"@@ -%s +%s @@" % (_range(hunk.old), _range(hunk.new))
        there = _groups(path, hunk, index, groups)
        notes += dict.fromkeys(b"# rule %s  %s\n" % (_title(group), header) for group in there)
        body.append(b" ".join([header, *([_labels(there)] if there else [])]) + b"\n")
        for line in hunk.lines:
            body.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    name_a, name_b = _quoted(b"a/" + shown), _quoted(b"b/" + shown)
    head = [b"diff --git %s %s\n" % (name_a, name_b)]
    if old is None:
        head.append(b"new file mode 100644\n")
        name_a = b"/dev/null"
    if body:
        head += [b"--- %s%s\n" % (name_a, _tab(name_a)), b"+++ %s%s\n" % (name_b, _tab(name_b))]
    return b"".join(notes + head + body)


def unified_diff(old: Mapping[str, bytes], new: Mapping[str, bytes], groups: Sequence[EditGroup] = ()) -> bytes:
    """The diff of a set of files, in order of their paths. Files only in `new` are created."""
    return b"".join(file_diff(path, old.get(path), new[path], groups) for path in sorted(new))


def _range(lines: tuple[int, int]) -> bytes:
    start, end = lines
    count = end - start
    # An empty range names the line before it.
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _groups(path: str, hunk: Hunk, index: LineIndex, groups: Sequence[EditGroup]) -> list[EditGroup]:
    """Each group with an edit in the hunk, in the order of `groups`."""
    found: list[EditGroup] = []
    for group in groups:
        for edit in group.edits:
            if edit.path != path:
                continue
            first = index.line_column(edit.span.start)[0] - 1
            last = index.line_column(max(edit.span.end - 1, edit.span.start))[0]
            if first <= hunk.old[1] and last >= hunk.old[0] and _touches(hunk, first, last):
                found.append(group)
                break
    return found


def _title(group: EditGroup) -> bytes:
    title = group.title.splitlines()[0] if group.title else ""
    return f"{group.rule} {group.safety.value}: {title}".encode()


def _labels(groups: Sequence[EditGroup]) -> bytes:
    return ", ".join(dict.fromkeys(f"{g.rule} {g.safety.value}" for g in groups)).encode()


def _touches(hunk: Hunk, first: int, last: int) -> bool:
    """True if the edit of lines [first, last) meets a changed range; insertions count at either border, as
    the diff may have slid them."""
    return any(first <= end and start <= last for start, end in hunk.changed_old)


def _quoted(name: bytes) -> bytes:
    """Names with control characters, quotes or bytes outside ASCII in git's C style."""
    if all(0x20 <= c < 0x7F and c not in b'"\\' for c in name):
        return name
    out = bytearray(b'"')
    for c in name:
        if c in b'"\\':
            out += b"\\" + bytes([c])
        elif c == 0x09:
            out += b"\\t"
        elif c == 0x0A:
            out += b"\\n"
        elif 0x20 <= c < 0x7F:
            out.append(c)
        else:
            out += b"\\%03o" % c
    return bytes(out + b'"')


def _tab(name: bytes) -> bytes:
    # A name with a blank needs a tab after it, or patch tools take the rest for a time stamp.
    return b"\t" if b" " in name and not name.startswith(b'"') else b""
