# SPDX-License-Identifier: Apache-2.0
"""Kernels that a step of the native style is wrong for, or that are written in a way which hides whether it is right:
for the compiler, PTX and runs to refuse what is proposed (`scripts/shadow_native.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import test_native_mma_thread
import test_native_release
from native_kernels import BATCH
from test_native_mma_thread_written import ALL_WRITE, BEHIND, NOT_THERE, OF_AT
from test_native_stage_users import USED

RELEASE = ("release",)
THREAD = ("release", "mma-thread")
GIVEN = "arrive(&empty[k % 2]);"
LATE_AT = "if (steps > 100) "
HIDDEN: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "a pointer ahead of MMAs": ({"AHEAD": f"int at = 0; int* p = &at; {LATE_AT}*p += 8;", "BATCH": OF_AT}, THREAD),
    "a macro ahead of MMAs": (
        {"HEAD": "#define NEXT at += 8\n", "AHEAD": f"int at = 0; {LATE_AT}NEXT;", "BATCH": OF_AT}, THREAD,
    ),
    "an index that consumers read": (
        {"AHEAD": "int n = 0; int& m = n;", "BATCH": f"{BATCH} if (k > 100) m = k;", "AFTER": "if (n > 0) out[0] = n;"},
        THREAD,
    ),
    "a store of all consumers": ({"BATCH": f"{BATCH} if (k > 100) out[k] = 1;"}, THREAD),
    "a stage that threads read": (
        {"RELEASE": f"if (k > 100) out[threadIdx.x] = tiles[k % 2][threadIdx.x]; {GIVEN}"}, RELEASE,
    ),
    "a second arrival": ({"RELEASE": f"if (k > 100) {GIVEN} {GIVEN}"}, RELEASE),
    "a collective": ({"BATCH": f"if (k > 100) __syncwarp(0xff); {BATCH}"}, THREAD),
}  # fmt: skip
"""What comes at sizes alone that no case has."""

Kernel = tuple[str, str, dict[str, str], tuple[str, ...]]


def cases() -> Iterator[Kernel]:
    """Groups, names, parts of `native_kernels`, and steps. What parts write besides sums goes to `seen`; `MINUS` makes
    up for what they add to the descriptor of B."""
    yield "right", "as it is, stages that go back", {}, RELEASE
    yield "right", "as it is, a thread of its own", {}, THREAD
    for name, (parts, _) in test_native_release.REFUSED.items():
        yield "release", name, _seen(parts), RELEASE
    for name, (parts, _) in test_native_mma_thread.REFUSED.items():
        yield "thread", name, _seen(parts), THREAD
    for name, parts in USED.items():
        yield "used", name, _seen({n: t.replace("out[k]", "out[threadIdx.x]") for n, t in parts.items()}), RELEASE
    for name, parts in NOT_THERE.items():
        yield "ahead", f"changed by {name}", {**_seen(parts), "MINUS": " - 8"}, THREAD
    for name, (head, ahead, change, after) in BEHIND.items():
        minus = (
            ""
            if "at" not in change and "NEXT" not in change and "p +" not in change and "s()" not in change
            else " - 8 * k"
        )
        parts = {"HEAD": head, "AHEAD": ahead, "BATCH": f"{OF_AT} {change}", "AFTER": after}
        yield "behind", f"missed by {name}", {**_seen(parts), "MINUS": minus}, THREAD
    for name, (parts, steps) in HIDDEN.items():
        yield "sizes", f"late, {name}", _seen(parts), steps
    for name, (head, ahead, write) in ALL_WRITE.items():
        yield "writes", name, _seen({"HEAD": head, "AHEAD": ahead, "BATCH": f"{BATCH} {write}"}), THREAD


def _seen(parts: dict[str, str]) -> dict[str, str]:
    return {name: re.sub(r"\bout\b", "seen", text) for name, text in parts.items()}
