# SPDX-License-Identifier: Apache-2.0
"""What is kept of a review: decisions, texts of the reviewer's own, and what was written, which a later port is merged
with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import porter
from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.merge import Merged, merge
from porter.lang.text import as_bytes, as_text
from porter.passes.review.groups import Item, Review, State, split, texts
from porter.rules.rule import Rule

VERSION = 1
SESSION = Path(".porter") / "session.json"


@dataclass
class Decision:
    """`proposed` are the texts of the port when it was made, `own` the reviewer's in their place."""

    state: State
    proposed: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)


@dataclass
class Record:
    """A session file. `paths` are what is ported, `output` where to; `options` what else the port is made with. `split`
    are groups that were taken apart, `inputs` and `rules` digests of the sources and rules that decisions were made on,
    `written` the texts that were written last, by path."""

    paths: list[str] = field(default_factory=list)
    output: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    split: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        decisions = {
            key: {"state": d.state.value, "proposed": d.proposed, "own": d.own} for key, d in self.decisions.items()
        }
        return {
            "schema_version": VERSION, "kind": "review-session", "porter": porter.__version__, "paths": self.paths,
            "output": self.output, "options": self.options, "inputs": self.inputs, "rules": self.rules,
            "split": self.split, "decisions": decisions, "written": self.written,
        }  # fmt: skip

    def dump(self) -> bytes:
        return (json.dumps(self.body(), indent=1) + "\n").encode()


def load_record(path: Path) -> Record:
    """A session file.

    Raises:
        PorterError: FILE_NOT_FOUND; SESSION_UNREADABLE: it is none, or of another version.
    """
    try:
        body = json.loads(read_file(path))
        if body["kind"] != "review-session" or body["schema_version"] != VERSION:
            raise ValueError(f"it is {body['kind']}, version {body['schema_version']}")
        decisions = {
            str(key): Decision(State(d["state"]), list(d["proposed"]), list(d["own"]))
            for key, d in body["decisions"].items()
        }
        return Record(
            list(body["paths"]), body["output"], dict(body["options"]), decisions, list(body["split"]),
            dict(body["inputs"]), dict(body["rules"]), dict(body["written"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PorterError(Code.SESSION_UNREADABLE, Location(str(path)), path=path, reason=str(error)) from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def remember(record: Record, review: Review, rules: Iterable[Rule]) -> None:
    """Take in what is decided, on which sources and rules."""
    by_id = {r.id: r for r in rules}
    for item in review.items:
        if item.state is State.OPEN:
            record.decisions.pop(item.key, None)
            continue
        proposed = [as_text(t) for t in texts(item.group.edits)] if item.state is State.EDITED else []
        record.decisions[item.key] = Decision(item.state, proposed, [as_text(t) for t in item.own])
    record.inputs = {path: digest(text) for path, text in sorted(review.ported.old.items())}
    used = sorted({i.group.rule for i in review.items})
    record.rules = {rule: digest(repr(by_id[rule]).encode())[:16] for rule in used if rule in by_id}


@dataclass
class Recalled:
    """What became of earlier decisions: groups that they are for no more, and edits by hand that conflict with what the
    port says in their place."""

    gone: list[str] = field(default_factory=list)
    conflicts: list[Item] = field(default_factory=list)


def recall(record: Record, review: Review) -> Recalled:
    """Decide what was decided before. An edited group keeps its own texts, merged with what is new in the port; one
    whose texts conflict is open again."""
    found = Recalled()
    for key in record.split:
        item = next((i for i in review.items if i.key == key), None)
        if item is not None:
            split(review, item)
    by_key = {i.key: i for i in review.items}
    for key, decision in record.decisions.items():
        item = by_key.get(key)
        if item is None:
            found.gone.append(key)
            continue
        item.state = decision.state
        if decision.state is State.EDITED:
            _merge_own(item, decision, found)
    return found


def _merge_own(item: Item, decision: Decision, found: Recalled) -> None:
    now = texts(item.group.edits)
    if len(now) != len(decision.own):
        item.state = State.OPEN
        found.conflicts.append(item)
        return
    merged = [
        merge(as_bytes(base), as_bytes(own), text)
        for base, own, text in zip(decision.proposed, decision.own, now, strict=True)
    ]
    item.own = [m.text for m in merged]
    if any(m.conflicts for m in merged):
        item.state, item.own = State.OPEN, []
        found.conflicts.append(item)


def merged_files(record: Record, files: Mapping[Path, bytes], present: Mapping[Path, bytes]) -> dict[Path, Merged]:
    """What is to be written: each file with the changes that were made by hand since it was written last. `present`
    are the files that are there. One that is there and was never written is taken for a change of everything."""
    result = {}
    for path, text in files.items():
        base = record.written.get(str(path))
        here = present.get(path)
        if here is None:
            result[path] = Merged(text, 0)
        else:
            result[path] = merge(as_bytes(base) if base is not None else b"", here, text)
    return result
