# SPDX-License-Identifier: Apache-2.0
"""Files that nobody asked to port, and that include a text which a port in place changes: their kernels become others
as well, and are compared as those of the port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from porter.build.gate import Gated
from porter.cli.comparing import Told, compared_ports, untold
from porter.cli.context import Session
from porter.cli.gate import compile_ports
from porter.diagnostics import PorterError
from porter.lang.closures import with_headers
from porter.lang.sources import is_python, load_sources
from porter.lang.trees import source_files
from porter.passes.ported import Ported, PortedRoot
from porter.project.root import built_together
from porter.verify.gate import GateOptions

_MOST = 8
"""Files that are compiled."""
_MOST_READ = 2_000
"""Sources of a project that are read for what they include."""
_COMPILED = ".cu"


def compared_includers(session: Session, ported: Ported, options: GateOptions, seconds: float) -> list[Told]:
    """What is known of the kernels of files that include what a port in place changes, and are none of it: one that
    does not compile with the new text is told."""
    found = [] if not seconds else _includers(ported, options.include_dirs)
    chosen, others = found[:_MOST], found[_MOST:]
    said = [untold(path.name, f"it includes {name}, which changes, and {_MOST} such files were compared")
            for path, name in others]  # fmt: skip
    roots: dict[str, tuple[PortedRoot, str]] = {}
    old = dict(ported.old)
    for path, name in chosen:
        try:
            sources = load_sources(path, options.include_dirs)
        except PorterError as error:
            said.append(untold(path.name, f"it includes {name}, which changes: {error.diagnostic.message}"))
            continue
        old |= {p: text for p, text in sources.sources().items() if p not in old}
        roots[str(path)] = PortedRoot(str(path), tuple(sources.sources()), include_dirs=sources.include_dirs), name
    if not roots:
        return said
    others_of = replace(ported, old=old, new={**old, **ported.new}, roots=[root for root, _ in roots.values()])
    gated = compile_ports(others_of, options)
    for one in gated:
        if one.status != "compiled":
            said.append(untold(Path(one.path).name, _uncompiled(one, roots[one.path][1])))
    compiled = [one for one in gated if one.status == "compiled"]
    others_of.roots = [roots[one.path][0] for one in compiled]
    return [*said, *compared_ports(session, others_of, compiled, options, seconds)]


def _uncompiled(gated: Gated, header: str) -> str:
    why = gated.reason or next((d.message for d in gated.diagnostics), "")
    return f"it includes {header}, which changes: {why}; next: port it as well"


def _includers(ported: Ported, include_dirs: tuple[Path, ...]) -> list[tuple[Path, str]]:
    """Sources beside what changes that are compiled by themselves, each with the first text that it includes of it."""
    changed = {Path(path).resolve() for path in ported.changed if path in ported.old and not is_python(Path(path))}
    own = {Path(path).resolve() for root in ported.roots for path in (root.path, *root.files)}
    places = dict.fromkeys(built_together(path) for path in sorted(changed))
    near = [p for place in places for p in _sources(place) if p.resolve() not in own]
    if not changed or not near:
        return []
    _, closures = with_headers(near, include_dirs)
    met = ((path, {Path(p).resolve() for p in closures.get(path.as_posix(), ())} & changed) for path in near)
    return [(path, min(p.name for p in texts)) for path, texts in met if texts]


def _sources(place: Path) -> Iterator[Path]:
    try:
        found = source_files(place, python=False)
    except PorterError:
        return
    yield from [path for path in found if path.suffix == _COMPILED][:_MOST_READ]
