# SPDX-License-Identifier: Apache-2.0
"""Number formats of captured memory: from the kernel's C++ parameter types and from tensor maps."""

from __future__ import annotations

import re

from porter.build.entry import demangle

_POINTEES = (
    (r"double", "f64"), (r"float", "f32"), (r"__half2?|half_t|Half", "f16"),
    (r"__nv_bfloat16|__nv_bfloat162|bfloat16_t|BFloat16", "bf16"),
    (r"__nv_fp8_e4m3|float_e4m3_t|Float8_e4m3fn", "f8e4m3"), (r"__nv_fp8_e5m2|float_e5m2_t|Float8_e5m2", "f8e5m2"),
    (r"signed char|char", "s8"), (r"unsigned char", "u8"), (r"short", "s16"), (r"unsigned short", "u16"),
    (r"int", "s32"), (r"unsigned int", "u32"), (r"long|long long", "s64"), (r"unsigned long|unsigned long long", "u64"),
)  # fmt: skip


def parameter_types(kernel: str) -> list[str]:
    """The types of a kernel's parameters as C++ writes them, from its mangled name."""
    readable = demangle(kernel)
    if readable == kernel or not readable.endswith(")"):
        return []
    depth = 0
    pieces = [""]
    for char in reversed(readable):
        depth += (char in ")>]}") - (char in "(<[{")
        if depth == 0:
            break  # The bracket that opens the parameter list.
        if char == "," and depth == 1:
            pieces.append("")
        else:
            pieces[-1] += char
    found = [piece[::-1].strip() for piece in reversed(pieces)]
    found[-1] = found[-1].removesuffix(")").strip()
    return [] if found == [""] else found


def pointee(type_: str) -> str | None:
    """The number format that a pointer type leads to, or None: `float const*` is `f32`."""
    match = re.fullmatch(r"(.+?)\s*(?:const)?\s*\*\s*(?:const|__restrict__|__restrict|\s)*", type_)
    if match is None:
        return None
    name = re.sub(r"\bconst\b", "", match[1]).strip().rpartition("::")[2]
    return next((dtype for pattern, dtype in _POINTEES if re.fullmatch(pattern, name)), None)
