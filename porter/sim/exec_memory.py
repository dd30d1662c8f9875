# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and atomics on all state spaces (PTX ISA 9.7.9, 9.7.13.13)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.alignment import BULK_STORE
from porter.ptx.arch import WARP
from porter.ptx.shared_window import OFFSET_MASK
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.global_access import ld_global, scatter, st_global
from porter.sim.kinds import WIDTH_OF, Unsupported, kind_of
from porter.sim.machine import Machine
from porter.sim.memories import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from porter.sim.results import Stop
from porter.sim.shared_address import shared_address
from porter.sim.threads import lane_mask

Array = npt.NDArray[Any]
SHARED, LOCAL, PARAM = (window >> 48 for window in (SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW))


def _stop(M: Machine, code: Code, message: str, at: int, idx: Any, n: int, mask: Any, bad: Array) -> None:
    raise Stop(code, message, at, *M.first_lane(idx, n, mask, np.broadcast_to(bad, (n, 32))))


# Shared -----------------------------------------------------------------------------------------------


@runtime
def shared_index(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: int, cluster: bool) -> Array:
    """Byte index into all shared memory, checked. Inactive lanes get an index that is in range."""
    a = np.asarray(addr)
    if mask is not None:
        a = np.where(mask, a, np.uint32(0) if not M.clustered else M.shared_base(idx))
    base = M.smem_base[idx]
    if M.clustered:
        rank = (a >> np.uint32(24)).astype(np.int64)
        own = M.cta_rank[M.warp_cta[idx]][:, None]
        foreign = rank != own
        if foreign.any():
            bad = (rank >= M.cluster_size) if cluster else foreign
            if bad.any():
                value = int(np.broadcast_to(a, (n, 32))[np.broadcast_to(bad, (n, 32))][0])
                _stop(
                    M,
                    Code.SIM_OUT_OF_BOUNDS,
                    f"shared address {value:#x} is not in this block's shared memory"
                    if not cluster
                    else f"shared address {value:#x}: no such block in the cluster",
                    at,
                    idx,
                    n,
                    mask,
                    bad,
                )
            base = base + (rank - own) * M.smem_stride
        a = a & np.uint32(OFFSET_MASK)
    limit = M.smem_size - size
    if int(a.max()) > limit:
        bad = a > limit if limit >= 0 else np.ones(a.shape, bool)
        value = int(np.broadcast_to(a, (n, 32))[np.broadcast_to(bad, (n, 32))][0])
        _stop(
            M,
            Code.SIM_OUT_OF_BOUNDS,
            f"shared address {value:#x} ({size} bytes) is beyond the block's {M.smem_size:#x} bytes",
            at,
            idx,
            n,
            mask,
            bad,
        )
    if size > 1 and int(np.bitwise_or.reduce(a, axis=None)) & (size - 1):
        bad = (a & np.uint32(size - 1)) != 0
        value = int(np.broadcast_to(a, (n, 32))[np.broadcast_to(bad, (n, 32))][0])
        _stop(
            M,
            Code.SIM_MISALIGNED,
            f"shared address {value:#x} is not a multiple of {size}",
            at,
            idx,
            n,
            mask,
            bad,
        )
    return base + a


def shared_access(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: int, cluster: bool, kind: str, value: Any = None
) -> Array:
    """`shared_index` of an access that is about to happen; `kind` is load, write or atomic, `value` what a store
    writes, [n, 32] or [n, 32, count]."""
    where = shared_index(M, at, idx, n, mask, addr, size, cluster)
    if M.observer is not None:
        M.observer.touches_shared(at, idx, n, lane_mask(n, mask), where, size, kind, value=value)
    return where


@runtime
def ld_shared(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, cluster: bool
) -> Array:
    size = item * count
    where = shared_access(M, at, idx, n, mask, addr, size, cluster, "load")
    return M.smem_view(item, count)[where >> (size.bit_length() - 1)]


@runtime
def st_shared(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    addr: Any,
    item: int,
    count: int,
    cluster: bool,
    value: Any,
) -> None:
    size = item * count
    value = np.broadcast_to(value, (n, 32, count) if count > 1 else (n, 32))
    where = shared_access(M, at, idx, n, mask, addr, size, cluster, "write", value) >> (size.bit_length() - 1)
    M.stores += 1
    scatter(M.smem_view(item, count), where, n, mask, value, count)


# Local ------------------------------------------------------------------------------------------------


@runtime
def local_index(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: int) -> Array:
    a = np.asarray(addr).astype(np.int64)
    if mask is not None:
        a = np.where(mask, a, 0)
    bad = (a < 0) | (a + size > M.local_stride)
    if bad.any():
        _stop(
            M,
            Code.SIM_OUT_OF_BOUNDS,
            f"local address is beyond the thread's {M.program.local_size} bytes",
            at,
            idx,
            n,
            mask,
            bad,
        )
    if size > 1 and (a & (size - 1)).any():
        _stop(
            M,
            Code.SIM_MISALIGNED,
            f"local address is not a multiple of {size}",
            at,
            idx,
            n,
            mask,
            (a & (size - 1)) != 0,
        )
    thread = M.warps(idx)[:, None] * WARP + np.arange(WARP)
    return thread * M.local_stride + a


@runtime
def ld_local(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int) -> Array:
    size = item * count
    return M.local_view(item, count)[local_index(M, at, idx, n, mask, addr, size) >> (size.bit_length() - 1)]


@runtime
def st_local(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, value: Any) -> None:
    size = item * count
    where = local_index(M, at, idx, n, mask, addr, size) >> (size.bit_length() - 1)
    M.stores += 1
    scatter(M.local_view(item, count), where, n, mask, value, count)


# Generic ----------------------------------------------------------------------------------------------


@runtime
def isspace(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, space: str) -> Array:
    window = np.asarray(addr) >> np.uint64(48)
    if space.startswith("shared"):
        inside = window == np.uint64(SHARED)
        if space == "shared::cta" and M.clustered:
            inside = inside & (
                ((np.asarray(addr) >> np.uint64(24)) & np.uint64(0xFF))
                == M.cta_rank[M.warp_cta[idx]][:, None].astype(np.uint64)
            )
        return inside
    if space == "local":
        return window == np.uint64(LOCAL)
    if space == "param":
        return window == np.uint64(PARAM)
    if space == "const":
        return np.zeros(window.shape, bool)
    return (window != np.uint64(SHARED)) & (window != np.uint64(LOCAL)) & (window != np.uint64(PARAM))


def by_space(M: Machine, n: int, mask: Any, addr: Array) -> list[tuple[int, Any]]:
    """(window, lanes) of generic addresses; lanes None if all active lanes agree."""
    window = np.asarray(addr) >> np.uint64(48)
    if mask is None:
        first = int(window.reshape(-1)[0])
        if (window == np.uint64(first)).all():
            return [(first, None)]
    active = np.broadcast_to(True if mask is None else mask, (n, 32))
    window = np.broadcast_to(window, (n, 32))
    values = np.unique(window[active]).tolist()
    if len(values) == 1:
        return [(int(values[0]), None)]
    return [(int(v), active & (window == np.uint64(v))) for v in values]


@runtime
def ld_generic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int) -> Array:
    shape = (n, 32, count) if count > 1 else (n, 32)
    parts = []
    for window, lanes in by_space(M, n, mask, addr):
        use = mask if lanes is None else lanes
        if window == SHARED:
            value = ld_shared(M, at, idx, n, use, np.asarray(addr).astype(np.uint32), item, count, True)
        elif window == LOCAL:
            value = ld_local(M, at, idx, n, use, np.asarray(addr) & np.uint64(0xFFFFFFFF), item, count)
        else:
            value = ld_global(M, at, idx, n, use, addr, item, count)
        if lanes is None:
            return value
        parts.append((lanes, value))
    result = np.zeros(shape, f"u{item}")
    for lanes, value in parts:
        result[lanes] = np.broadcast_to(value, shape)[lanes]
    return result


@runtime
def st_generic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, value: Any) -> None:
    for window, lanes in by_space(M, n, mask, addr):
        use = mask if lanes is None else lanes
        if window == SHARED:
            st_shared(M, at, idx, n, use, np.asarray(addr).astype(np.uint32), item, count, True, value)
        elif window == LOCAL:
            st_local(M, at, idx, n, use, np.asarray(addr) & np.uint64(0xFFFFFFFF), item, count, value)
        else:
            st_global(M, at, idx, n, use, addr, item, count, value)


@runtime
def stack_values(n: int, *values: Any) -> Array:
    """Vector elements as [n, 32, count]."""
    stacked = np.empty((n, 32, len(values)), np.result_type(*values))
    for i, value in enumerate(values):
        stacked[..., i] = value
    return stacked


@runtime
def clear_shared(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: Any) -> None:
    """st.bulk: zeros from a shared address on."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    where = np.broadcast_to(shared_index(M, at, idx, n, mask, addr, 1, False), (n, 32))
    sizes = np.broadcast_to(size, (n, 32)).astype(np.int64)
    if M.observer is not None:
        for nbytes in np.unique(sizes[lanes & (sizes > 0)]).tolist():
            M.observer.touches_shared(at, idx, n, lanes & (sizes == nbytes), where, nbytes, "write", 8)
    for row, lane in np.argwhere(lanes & (sizes > 0)).tolist():
        start, count = int(where[row, lane]), int(sizes[row, lane])
        offset = start % M.smem_stride
        if count % BULK_STORE or start % BULK_STORE:
            what = f"st.bulk of {count} bytes at {offset:#x}: multiples of {BULK_STORE} are needed"
            raise Stop(Code.SIM_MISALIGNED, what, at, int(M.warps(idx)[row]), lane)
        if offset + count > M.smem_size:
            what = f"st.bulk of {count} bytes at {offset:#x} passes the end of shared memory"
            raise Stop(Code.SIM_OUT_OF_BOUNDS, what, at, int(M.warps(idx)[row]), lane)
        M.smem_flat[start : start + count] = 0
    M.stores += 1


# Code generation --------------------------------------------------------------------------------------


def space_of(cg: Context, ins: Decoded) -> str:
    """Of the address `a`: shared, cluster, local, global, param (of the kernel) or generic."""
    mem, named = ins["a"], ins.space("a")
    base = mem.base if isinstance(mem, ast.Mem) else mem
    variable = cg.program.variables.get(base.name) if isinstance(base, ast.Sym) else None
    if named == "shared::cluster":
        return "cluster"
    if named.startswith("param"):
        return "local" if variable is not None and variable.space == "local" else "param"
    if named:
        return "global" if named == "const" else named.partition("::")[0]
    if variable is not None:
        return {"shared": "shared", "local": "local", "kernelparam": "param"}.get(variable.space, "global")
    return "generic"


def place_of(cg: Context, ins: Decoded) -> tuple[str, str]:
    """The space of the address `a`, and an expression of it."""
    space = space_of(cg, ins)
    return space, cg.addr(ins["a"], "u32" if space in ("shared", "cluster") else "u64")


def _access(cg: Context, ins: Decoded, item: int, count: int) -> tuple[str, list[str]]:
    """(function suffix, arguments) of an access."""
    space, address = place_of(cg, ins)
    arguments = [address, str(item), str(count)]
    if space in ("shared", "cluster"):
        return "shared", [*arguments, str(space == "cluster")]
    return space if space in ("local", "generic") else "global", arguments


def shape_of(ins: Decoded, name: str) -> tuple[str, int, int]:
    """(kind, bytes per element, elements) of what is loaded or stored."""
    t = ins.type(name)
    if t == "b128":
        # A register of 128 bits is the vector of its halves.
        return "u64", 8, 2
    kind = kind_of(t)
    return kind, WIDTH_OF[kind] // 8, int(ins.modifiers.get("vec", "v1")[1:])


@emits("ld", "ldu")
def _ld(cg: Context, ins: Decoded) -> None:
    kind, item, count = shape_of(ins, "d")
    mem, to = ins["a"], items(ins["d"])
    if space_of(cg, ins) == "param" and isinstance(mem, ast.Mem) and isinstance(mem.base, ast.Sym):
        if mem.base.name not in cg.program.variables:
            raise Unsupported(f"{mem.base.name} is not declared")
        start = cg.program.variables[mem.base.name].offset + mem.offset
        for i, one in enumerate(to):
            raw = cg.machine.params[start + i * item : start + (i + 1) * item]
            if len(raw) < item:
                raise Unsupported("a load beyond the parameters")
            cg.set(one, kind, cg.const_bits(kind, int.from_bytes(raw, "little")))
        return
    suffix, arguments = _access(cg, ins, item, count)
    value = cg.let(cg.call(f"ld_{suffix}", *arguments))
    view = "" if kind[0] == "u" else f".view(t_{kind})"
    if count == 1:
        cg.set(to[0], kind, value + view)
        return
    for i, one in enumerate(to):
        if one != ast.Sym("_"):
            cg.set(one, kind, f"{value}[..., {i}]{view}")


@emits("st")
def _st(cg: Context, ins: Decoded) -> None:
    kind, item, count = shape_of(ins, "b")
    value = ", ".join(cg.bits(source, kind.replace("s", "u")) for source in items(ins["b"]))
    if count > 1:
        value = f"stack_values(n, {value})"
    suffix, arguments = _access(cg, ins, item, count)
    cg.line(cg.call(f"st_{suffix}", *arguments, value))


@emits("st.bulk")
def _st_bulk(cg: Context, ins: Decoded) -> None:
    cg.line(cg.call("clear_shared", shared_address(cg, "a"), cg.get("size", "u32")))
