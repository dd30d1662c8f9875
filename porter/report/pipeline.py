# SPDX-License-Identifier: Apache-2.0
"""Pipelines of kernels as text and JSON: mbarriers, rings, copies, roles, launch, and what the text does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from porter.model.pipeline.facts import Arrival, Barrier, KernelPipeline, Number, Role
from porter.report.tables import Fitted, bare_table

_NOT = "unknown"


def text(one: KernelPipeline) -> Iterator[RenderableType]:
    """The facts of one kernel."""
    known = one.pipeline
    yield Text.assemble((known.kernel, "bold"), f"  {known.where}")
    yield _line("threads", str(known.threads or _NOT))
    for label, line in _launch(one):
        yield _line(label, line)
    for role in known.roles:
        yield _line(role.name, _role(role))
    if known.identity:
        yield _line("threads are", ", ".join(f"{d.name} = {d.text}" for d in known.identity))
    if known.offsets:
        yield _line("coordinates of", ", ".join(f"{d.name} = {d.text}" for d in known.offsets))
    if known.barriers:
        yield _barriers(one)
    if known.copies:
        yield _copies(one)
    for ring in known.rings:
        turn = _NOT if ring.index else "one stage"
        if ring.stages is not None:
            turn = f"{number(ring.stages)} stages, `{ring.advance}`"
        yield _line("ring", f"{ring.barrier} at {ring.index or '-'}: {turn}; phase {ring.phase or _NOT}")
    for missing in known.unknown:
        yield _line(_NOT, f"{missing.what} ({_short(missing.where)})", "yellow")


def _line(label: str, said: str, style: str = "cyan") -> Text:
    return Text.assemble("  ", (label.ljust(15), style), said)


def number(value: Number | None) -> str:
    """`STAGES = 3`; `unknown` for none."""
    if value is None:
        return _NOT
    plain = value.text == str(value.value)
    return value.text if plain else f"{value.text} = {_NOT if value.value is None else value.value}"


def _short(where: str) -> str:
    return Path(where).name


def _launch(one: KernelPipeline) -> Iterator[tuple[str, str]]:
    launch = one.launch
    if launch is None:
        yield "launch", "no host code in these files launches it"
        return
    extents = [("grid", launch.grid), ("block", launch.block), ("cluster", launch.cluster)]
    said = [
        f"{name} {' x '.join(values) if values else _NOT}" for name, values in extents if name != "cluster" or values
    ]
    yield "launch", ", ".join([*said, f"dynamic shared memory {launch.dynamic_smem or _NOT}"])
    for m in launch.maps:
        sizes = f"{' x '.join(m.dims) or _NOT}, box {' x '.join(m.box) or _NOT}"
        yield "tensor map", f"{m.param} of {m.base or _NOT}: {m.element}, {sizes}, swizzle {m.swizzle or _NOT}"


def _role(role: Role) -> str:
    warps = _NOT if role.warps is None else _ranges(role.warps)
    threads = "" if role.threads is None else f", {role.threads} threads"
    registers = "" if role.registers is None else f", {number(role.registers)} registers"
    return f"warps {warps}{threads}{registers}: {', '.join(map(_short, role.places))}"


def _ranges(values: Sequence[int]) -> str:
    found: list[list[int]] = []
    for value in values:
        if found and found[-1][-1] == value - 1:
            found[-1] = [found[-1][0], value]
        else:
            found.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _barriers(one: KernelPipeline) -> Fitted:
    table = bare_table("mbarrier", "how many", "in", "count", "arrive", "waited for", "agrees", beside=("agrees",))
    for b in one.pipeline.barriers:
        counts = ", ".join(map(number, b.counts)) or _NOT
        waits = [
            f"{'parity' if w.by_parity else 'token'} {w.phase or _NOT} by {_NOT if w.threads is None else w.threads}"
            f" ({_short(w.where)})"
            for w in b.waits
        ]
        agrees = {True: "yes", False: "no", None: _NOT}[b.agrees]
        table.add_row(b.name, number(b.extent), b.storage, counts, "; ".join(map(_arrival, b.arrivals)) or _NOT,
                      "; ".join(waits) or "-", agrees)  # fmt: skip
    return table


def _arrival(arrival: Arrival) -> str:
    threads = _NOT if arrival.threads is None else arrival.threads
    count = "" if arrival.count.text == "1" else f" x {number(arrival.count)}"
    expects = f" with {number(arrival.bytes)} bytes" if arrival.bytes is not None else ""
    return f"{threads}{count}{' to other CTAs' if arrival.remote else ''}{expects} ({_short(arrival.where)})"


def _copies(one: KernelPipeline) -> Fitted:
    table = bare_table("copy", "to", "from", "completes", "bytes", "at")
    boxes = {m.param: m.nbytes for m in one.launch.maps} if one.launch is not None else {}
    for c in one.pipeline.copies:
        name = f"{c.map}{', multicast' if c.multicast else ''}"
        nbytes = boxes.get(c.map)
        table.add_row(name, c.to, ", ".join(c.coords), c.barrier, str(nbytes or _NOT), _short(c.where))
    return table


def body(one: KernelPipeline) -> dict[str, Any]:
    """What the JSON document holds."""
    found = asdict(one.pipeline)
    for stated, barrier in zip(found["barriers"], one.pipeline.barriers, strict=True):
        stated |= _judged(barrier, one)
    return found | {"launch": None if one.launch is None else asdict(one.launch)}


def _judged(barrier: Barrier, one: KernelPipeline) -> dict[str, Any]:
    expected, copied = one.filled.get(barrier.name, (None, None))
    return {"agrees": barrier.agrees, "bytes_expected": expected, "bytes_copied": copied}
