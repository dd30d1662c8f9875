# SPDX-License-Identifier: Apache-2.0
"""Short names of instructions for a trace, and which engine works on an asynchronous one."""

from __future__ import annotations

from typing import Any

from porter.ptx import ast
from porter.sim.trace.recorder import Kind

_FENCES = ("fence", "membar")
_BARRIERS = ("bar", "barrier", "griddepcontrol", "clusterlaunchcontrol", "setmaxnreg")


def is_event(ins: ast.Instruction) -> bool:
    """Whether an instruction that issues no asynchronous operation is worth a slice: it synchronizes, or
    touches Tensor Memory. Waits are recorded where they are waited in."""
    p = ins.parts
    if p[0] in _FENCES or p[0] in _BARRIERS:
        return p[:2] != ("bar", "warp")
    if p[0] == "mbarrier":
        return p[1] not in ("try_wait", "test_wait", "pending_count")
    if p[0] == "tcgen05":
        return p[1] not in ("mma", "cp", "st", "commit", "wait::st")
    if p[0] == "wgmma":
        return p[1] in ("fence", "commit_group")
    return p[:2] == ("cp", "async") and "commit_group" in p


def label(ins: ast.Instruction) -> str:
    """`tcgen05.mma f16 cta_group::2`, `TMA load 2d multicast`, `mbarrier.arrive.expect_tx`."""
    p = ins.parts
    if p[0] == "wgmma" and p[1] == "mma_async":
        return f"wgmma {next((x for x in p if x[:1] == 'm' and x[1:2].isdigit()), '')}".strip()
    if p[0] == "tcgen05":
        shape = [x for x in p[2:] if x.startswith(("kind::", "cta_group::2", "32x", "16x", "x", "64x", "128x"))]
        return " ".join([f"tcgen05.{p[1]}", *(x.removeprefix("kind::") for x in shape if x != "cta_group::1")])
    if "bulk" in p and p[0] == "cp":
        return _bulk(p)
    if p[0] in ("mbarrier", "fence", "cp", "barrier"):
        dropped = {"b64", "shared::cta", "shared::cluster", "shared", "aligned", "sync", "release", "acquire", "cta"}
        return ".".join(x for i, x in enumerate(p) if i < 2 or x not in dropped)
    return ".".join(p[:3]) if p[0] != "st" else "st.async"


def _bulk(p: tuple[str, ...]) -> str:
    if "commit_group" in p or "wait_group" in p:
        return ".".join(p)
    target = next(x.partition("::")[0] for x in p if x.partition("::")[0] in ("global", "shared"))
    what = "load" if target == "shared" else "store"
    if p[1] == "reduce":
        what = "reduce"
    elif "prefetch" in p:
        what = "prefetch"
    dims = next((x for x in p if x in ("1d", "2d", "3d", "4d", "5d")), "bulk")
    more = [x for x in p if x in ("im2col", "tile::gather4", "tile::scatter4")]
    if "multicast::cluster" in p:
        more.append("multicast")
    return " ".join(["TMA", what, dims, *more])


_TCGEN05: dict[str, Kind] = {"commit": "commit", "st": "store"}


def engine(ins: ast.Instruction) -> Kind:
    p = ins.parts
    if p[0] == "tcgen05":
        return _TCGEN05.get(p[1], "tensor core")
    if p[0] == "wgmma":
        return "tensor core"
    if "bulk" in p:
        return "TMA"
    return "copy" if p[0] == "cp" else "store"


ENGINES: dict[Kind, str] = {
    "TMA": "TMA",
    "tensor core": "tensor core",
    "commit": "tcgen05.commit",
    "copy": "cp.async",
    "store": "asynchronous stores",
}


def place(ins: ast.Instruction) -> dict[str, Any]:
    """Where an instruction comes from, for a slice's arguments: its own line, and the line of the kernel that it
    was inlined into."""
    found: dict[str, Any] = {"instruction": ins.opcode, "PTX line": ins.line}
    for loc in ins.loc.outwards() if ins.loc is not None else ():
        found["inlined at" if "source" in found else "source"] = f"{loc.file}:{loc.line}"
    return found
