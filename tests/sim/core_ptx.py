# SPDX-License-Identifier: Apache-2.0
"""Runs pieces of PTX on the simulator: one instruction on arrays, or a whole kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate

Array = npt.NDArray[Any]

_BITS = {"b16": 16, "b32": 32, "b64": 64, "pred": 1}
_DTYPES = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def module_text(params: Sequence[str], body: str, target: str = "sm_90a", extra: str = "") -> str:
    """A module with one kernel `k` whose parameters are pointers or `.u32` words."""
    decls = ", ".join(f".param .{'u32' if p.startswith('n') else 'u64'} {p}" for p in params)
    return f""".version 9.0
.target {target}
.address_size 64
{extra}
.visible .entry k({decls})
{{
{body}
}}
"""


def run(
    text: str,
    values: Sequence[int | float | bytes],
    memory: GlobalMemory,
    grid: int = 1,
    block: int = 32,
    cluster: int = 1,
    smem: int = 0,
    options: Options | None = None,
) -> Outcome:
    module = parse_module(text)
    function = module.entries()[0]
    launch = Launch((grid, 1, 1), (block, 1, 1), (cluster, 1, 1), smem)
    return simulate(module, function.name, launch, pack_params(function, values), memory, options)


def upload(memory: GlobalMemory, array: Array) -> int:
    address = memory.alloc(array.nbytes)
    memory.write(address, np.ascontiguousarray(array).view(np.uint8).reshape(-1))
    return address


def download(memory: GlobalMemory, address: int, count: int, dtype: Any) -> Array:
    return memory.read(address, count * np.dtype(dtype).itemsize).view(dtype)


def apply(code: str, result: str, *operands: tuple[str, Any], target: str = "sm_90a") -> Array:
    """Run `code` for every element of the operand arrays.

    Operands are (register type, values) and appear in `code` as %a, %b, %c, %e; the result as %d of register
    type `result`. A predicate result comes back as 0 or 1. The values come back as unsigned words.
    """
    arrays = [np.asarray(v) for _, v in operands]
    count = max(a.size for a in arrays)
    names = "abce"
    memory = GlobalMemory()
    lines = [".reg .b64 %p<12>; .reg .b32 %t<8>; .reg .pred %q<6>;"]
    values: list[int] = []
    params = []
    for name, (kind, _), array in zip(names, operands, arrays, strict=False):
        width = _BITS[kind]
        raw = np.broadcast_to(array, (count,))
        if raw.dtype.kind in "f":
            raw = raw.view(f"u{raw.dtype.itemsize}")
        if width == 1:
            raw = raw.astype(np.uint32)
        else:
            raw = raw.astype(np.int64).astype(_DTYPES[width]) if raw.dtype.kind == "i" else raw.astype(_DTYPES[width])
        params.append(f"in{name}")
        values.append(upload(memory, raw))
        lines.append(f".reg .{kind} %{name};")
    out_width = max(_BITS[result], 32 if result == "pred" else 0)
    out = memory.alloc(count * out_width // 8)
    params += ["outd", "ncount"]
    values += [out, count]
    lines += [
        f".reg .{result} %d;",
        "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t0, %t1, 128, %t0;",
        "ld.param.u32 %t2, [ncount]; setp.ge.u32 %q0, %t0, %t2; @%q0 bra DONE;",
    ]
    for name, (kind, _) in zip(names, operands, strict=False):
        width = _BITS[kind]
        size = 4 if width == 1 else width // 8
        lines.append(f"ld.param.u64 %p0, [in{name}]; mul.wide.u32 %p1, %t0, {size}; add.u64 %p0, %p0, %p1;")
        if width == 1:
            lines.append(f"ld.global.u32 %t3, [%p0]; setp.ne.u32 %{name}, %t3, 0;")
        else:
            lines.append(f"ld.global.b{width} %{name}, [%p0];")
    lines.append(code)
    lines.append(f"ld.param.u64 %p0, [outd]; mul.wide.u32 %p1, %t0, {out_width // 8}; add.u64 %p0, %p0, %p1;")
    if result == "pred":
        lines.append("selp.u32 %t3, 1, 0, %d; st.global.b32 [%p0], %t3;")
    else:
        lines.append(f"st.global.b{out_width} [%p0], %d;")
    lines.append("DONE: ret;")
    outcome = run(module_text(params, "\n".join(lines), target), values, memory, -(-count // 128), 128)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return download(memory, out, count, _DTYPES[out_width])
