# SPDX-License-Identifier: Apache-2.0
"""Calls that are not inlined: printf and failed assertions, which the system provides to device code."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.shared_window import OFFSET_MASK
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.memory import MemoryAccessError
from porter.sim.results import Stop
from porter.sim.threads import active_lanes

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsaAeEfFgGp%])")


def read_bytes(M: Machine, warp: int, lane: int, address: int, nbytes: int) -> bytes:
    """Bytes at a generic address as one thread sees it."""
    window = address >> 48
    low = address & 0xFFFFFFFF
    if window == 2:
        start = (warp * WARP + lane) * M.local_stride + low
        return bytes(M.local_view(1, 1)[start : start + nbytes])
    if window == 1:
        cta = int(M.warp_cta[warp])
        return bytes(M.smem[cta, low & OFFSET_MASK : (low & OFFSET_MASK) + nbytes])
    return bytes(M.everything.view(address, nbytes))


def read_string(M: Machine, warp: int, lane: int, address: int) -> str:
    """The zero-terminated string at a generic address."""
    out = bytearray()
    try:
        while len(out) < 65536:
            byte = read_bytes(M, warp, lane, address + len(out), 1)
            if byte in (b"\0", b""):
                break
            out += byte
    except MemoryAccessError:
        return f"<bad string at {address:#x}>"
    return out.decode("utf-8", "replace")


def format_printf(M: Machine, warp: int, lane: int, fmt: str, buffer: int) -> tuple[str, int]:
    """The text, and the number of arguments used. Arguments lie in the buffer at their natural alignment."""
    at = 0
    count = 0

    def take(size: int) -> bytes:
        nonlocal at, count
        at = -(-at // size) * size
        raw = read_bytes(M, warp, lane, buffer + at, size)
        at += size
        count += 1
        return raw

    def convert(m: re.Match[str]) -> str:
        flags, width, precision, length, letter = m.groups()
        if letter == "%":
            return "%"
        if width == "*":
            width = str(struct.unpack("<i", take(4))[0])
        if precision == "*":
            precision = str(struct.unpack("<i", take(4))[0])
        spec = f"%{flags or ''}{width or ''}{'.' + precision if precision else ''}"
        wide = length in ("l", "ll", "j", "z", "t")
        if letter in "di":
            return str((spec + "d") % struct.unpack("<q" if wide else "<i", take(8 if wide else 4))[0])
        if letter in "ouxX":
            value = struct.unpack("<Q" if wide else "<I", take(8 if wide else 4))[0]
            return str((spec + letter.replace("u", "d")) % value)
        if letter == "c":
            return chr(take(4)[0])
        if letter in "aA":
            return float(struct.unpack("<d", take(8))[0]).hex()
        if letter in "eEfFgG":
            return str((spec + letter) % struct.unpack("<d", take(8))[0])
        pointer = struct.unpack("<Q", take(8))[0]
        return str((spec + "s") % (read_string(M, warp, lane, pointer) if letter == "s" else hex(pointer)))

    return _CONVERSION.sub(convert, fmt), count


@runtime
def device_printf(M: Machine, at: int, idx: Any, n: int, mask: Any, fmt_slot: int, args_slot: int) -> Any:
    """vprintf(format, arguments) with its parameters in local memory; returns the counts [n, 32]."""
    counts = np.zeros((n, 32), np.uint32)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        base = (2 << 48) + fmt_slot
        fmt = struct.unpack("<Q", read_bytes(M, warp, lane, base, 8))[0]
        args = struct.unpack("<Q", read_bytes(M, warp, lane, (2 << 48) + args_slot, 8))[0]
        text, counts[row, lane] = format_printf(M, warp, lane, read_string(M, warp, lane, fmt), args)
        if M.options.print is not None:
            M.options.print(text)
    return counts


@runtime
def device_assert(M: Machine, at: int, idx: Any, n: int, mask: Any, slots: tuple[int, ...]) -> None:
    for _, lane, warp in active_lanes(M, idx, n, mask):
        base = 2 << 48
        message, file = (
            read_string(M, warp, lane, struct.unpack("<Q", read_bytes(M, warp, lane, base + s, 8))[0])
            for s in slots[:2]
        )
        line = struct.unpack("<I", read_bytes(M, warp, lane, base + slots[2], 4))[0]
        raise Stop(Code.SIM_TRAP, f"{file}:{line}: assertion `{message}` failed", at, warp, lane)


@emits("call")
def _call(cg: Context, ins: Decoded) -> None:
    target = ins["target"]
    name = target.name if isinstance(target, ast.Sym) else ""
    if any(f.name == name and f.body is not None for f in cg.program.module.functions):
        raise Unsupported("recursion")
    if name not in ("vprintf", "__assertfail"):
        raise Unsupported(f"call of {name or 'a function pointer'}")
    variables = cg.program.variables
    slots = []
    for a in items(ins["arguments"]):
        if not isinstance(a, ast.Sym) or a.name not in variables:
            raise Unsupported("a call with arguments in registers")
        slots.append(variables[a.name].offset)
    if name == "__assertfail":
        cg.line(cg.call("device_assert", f"{tuple(slots)}"))
        return
    result = cg.let(cg.call("device_printf", str(slots[0]), str(slots[1])))
    for r in items(ins["results"]):
        if not isinstance(r, ast.Sym) or r.name not in variables:
            raise Unsupported("a call with results in registers")
        cg.line(cg.call("st_local", cg.const("u64", variables[r.name].offset), "4", "1", result))
