# SPDX-License-Identifier: Apache-2.0
"""Names of PTX that are predefined: special registers and fundamental types.

Source: PTX ISA 9.0, section 10 (special registers) and 5.2 (types).
"""

from __future__ import annotations

import re

PER_THREAD = re.compile(r"%(?:tid|laneid|warpid|lanemask_\w+|clock\w*|globaltimer\w*|pm\d\w*)\b|\b(?:elect|atom)\.")
"""What in a text of PTX may be another value in another thread of a CTA whatever it is handed: special registers, and
instructions that choose a thread or count them (section 10; 9.7.13.9, 9.7.13.4)."""

_VECTORS = (
    "tid",
    "ntid",
    "ctaid",
    "nctaid",
    "clusterid",
    "nclusterid",
    "cluster_ctaid",
    "cluster_nctaid",
)
_WORDS = (
    "laneid",
    "warpid",
    "nwarpid",
    "smid",
    "nsmid",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "globaltimer_lo",
    "globaltimer_hi",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_end",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_0",
    "reserved_smem_offset_1",
    "total_smem_size",
    "aggr_smem_size",
    "dynamic_smem_size",
)
_LONGS = ("gridid", "clock64", "globaltimer", "current_graph_exec")


def _special_registers() -> dict[str, str]:
    table = dict.fromkeys(_WORDS, "u32") | dict.fromkeys(_LONGS, "u64")
    table["is_explicit_cluster"] = "pred"
    for name in _VECTORS:
        table[name] = "v4.u32"
        for component in "xyzw":
            table[f"{name}.{component}"] = "u32"
    for i in range(8):
        table[f"pm{i}"] = "u32"
        table[f"pm{i}_64"] = "u64"
    for i in range(32):
        table[f"envreg{i}"] = "b32"
    return table


SPECIAL_REGISTERS: dict[str, str] = _special_registers()
"""Name without the percent sign, component included, to its PTX type (`v4.u32` for a whole vector)."""

TYPE_BYTES: dict[str, int] = {
    **{f"{kind}{bits}": bits // 8 for kind in "sub" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "f32": 4,
    "f64": 8,
    "texref": 8,
    "samplerref": 8,
    "surfref": 8,
}
"""Bytes of one element of a type that variables can have. Opaque references are handles of 8 bytes."""

FORMAT_BYTES: dict[str, int] = TYPE_BYTES | {
    "tf32": 4,
    "f32x2": 8,
    "u16x2": 4,
    "s16x2": 4,
    **{f"{kind}x2": 2 for kind in ("e4m3", "e5m2", "e2m3", "e3m2", "ue8m0")},
    **{f"{kind}x4": 4 for kind in ("e4m3", "e5m2", "e2m3", "e3m2")},
    "e2m1x2": 1,
    "e2m1x4": 2,
}
"""Bytes of the register that an instruction's type stands for; 6-bit floats take a byte each."""
