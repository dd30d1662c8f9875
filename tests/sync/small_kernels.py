# SPDX-License-Identifier: Apache-2.0
"""Kernels of one warp or two in PTX, given as their bodies."""

from __future__ import annotations

from collections.abc import Mapping

from turning_kernels import flow_of

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Checked, Rulings, check

HEAD = """.version 8.8
.target sm_100a
.address_size 64
{functions}
.visible .entry k({parameters})
.reqntid {threads}
{{
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<40>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
.shared .align 1024 .b8 room[4096];
.shared .align 8 .b64 bar[4];
.shared .align 4 .b32 slot[4];
mov.u32 %r0, %tid.x;
mov.u32 %r1, bar;
mov.u32 %r2, room;
mov.u32 %r3, slot;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
"""


def checked(
    body: str, threads: int = 32, parameters: Mapping[str, tuple[str, bytes]] | None = None, functions: str = "",
    rulings: Rulings = "strict", maps: Mapping[int, bytes] | None = None,
) -> Checked:  # fmt: skip
    """`parameters`: the declaration and the bytes of each, by name."""
    given = parameters or {}
    head = HEAD.format(threads=threads, functions=functions, parameters=", ".join(d for d, _ in given.values()))
    values = {name: data for name, (_, data) in given.items()}
    return check(Launched(flow_of(f"{head}{body}ret;\n}}\n"), Geometry((threads, 1, 1)), values, maps or {}),
                 rulings=rulings)  # fmt: skip


def number(name: str, value: int, kind: str = "u32", size: int = 4) -> dict[str, tuple[str, bytes]]:
    return {name: (f".param .{kind} {name}", value.to_bytes(size, "little"))}


def wait(barrier: str, parity: str, label: str) -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p8, [{barrier}], {parity};\n@!%p8 bra {label};\n"


def errors(found: Checked) -> set[str]:
    return {f.kind for f in found.findings if f.level == "error"}
