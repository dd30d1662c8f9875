# SPDX-License-Identifier: Apache-2.0
"""The tile that a class is given stands behind its members, so values that are listed for these keep their places;
code that goes by the size of the class is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import kernel, ported, refused, wrapper

MMA = re.sub(r".*?\{\n(.*)\}\n", r"\1", wrapper(16), flags=re.DOTALL)
ADDS = "__device__ void add(uint64_t a, uint64_t b) {\n" + MMA + "    }"
STORE = "for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc.d[i];"


def text(head: str, declared: str = "Acc acc{};", store: str = STORE, foot: str = "", behind: str = "") -> str:
    types = f"{head}\n    {ADDS}\n{foot}}};\n{behind}"
    loop = "for (int k = 0; k < steps; ++k) { arrive(); acc.add(a, b); commit(); wait<0>(); }"
    return kernel(f"{declared} {loop} {store}", before=types)


HEADS = {
    "struct": ("struct Acc {\n    float d[8];", ""),
    "struct with more": ("struct Acc {\n    float d[8];\n    int n;", ""),
    "class": ("class Acc {\n  public:\n    float d[8];", ""),
    "private at the end": ("struct Acc {\n    float d[8];", "  private:\n    int n;\n"),
    "class, public at the end": ("class Acc {\n    int n;\n  public:\n    float d[8];", ""),
    "a comment at the end": ("struct Acc {\n    float d[8];", "    // that is all\n"),
    "declared at the end": ("struct Acc {\n    int n;", "    float d[8]; // registers\n"),
}


@pytest.mark.parametrize(("head", "foot"), HEADS.values(), ids=HEADS)
def test_the_tile_is_the_last_member_and_public(tmp_path: Path, head: str, foot: str) -> None:
    port = ported(tmp_path, text(head, foot=foot))
    body = port[port.index(" Acc {") :]
    body = body[: body.index("\n};")]
    at = body.index("tcgen05::Accumulator d_tmem;")
    assert at > max(body.index("float d[8];"), body.index("mma_f16("))
    specifiers = re.findall(r"\b(public|private):", body[:at])
    assert (specifiers or ["public"])[-1] == "public"
    assert not re.search(r"//.*Accumulator d_tmem", body)


def test_a_class_on_one_line(tmp_path: Path) -> None:
    port = ported(tmp_path, text("struct Acc { float d[8];").replace("    }\n};", "    } };"))
    assert port.index("mma_f16(") < port.index("tcgen05::Accumulator d_tmem;") < port.index("acc.d_tmem.address")


MEASURED = {
    "the class": {"store": "for (int i = 0; i < sizeof(Acc) / 4; ++i) out[i] = reinterpret_cast<float*>(&acc)[i];"},
    "the object": {"store": "for (int i = 0; i < sizeof(acc) / 4; ++i) out[i] = reinterpret_cast<float*>(&acc)[i];"},
    "without parentheses": {"store": STORE + " out[0] = sizeof acc;"},
    "the object's type": {"store": STORE + " out[0] = sizeof(decltype(acc));"},
    "itself": {"foot": "    __device__ int words() { return sizeof(*this) / 4; }\n"},
    "in an assertion": {"behind": "static_assert(sizeof(Acc) == 32);\n"},
    "in a constant": {"behind": "constexpr int kWords = sizeof(Acc) / 4;\n"},
    "an array": {"store": STORE + " out[0] = sizeof(Acc[4]);"},
    "a derived class": {"behind": "struct More : Acc {};\nconstexpr int kWords = sizeof(More);\n"},
    "a copy in bytes": {"store": "float w[9]; memcpy(w, &acc, sizeof(acc)); " + STORE},
}


@pytest.mark.parametrize("parts", MEASURED.values(), ids=MEASURED)
def test_code_that_goes_by_the_size_is_refused(tmp_path: Path, parts: dict[str, str]) -> None:
    found = refused(tmp_path, text("struct Acc {\n    float d[8];", **parts))
    assert any("goes by the size of `Acc`" in line for line in found), found


@pytest.mark.parametrize("expression", ["sizeof(acc.d)", "sizeof(float)", "sizeof(Acc::d)", "sizeof(Accounts)"])
def test_other_sizes_are_what_they_were(tmp_path: Path, expression: str) -> None:
    behind = "struct Accounts { int n; };\n"
    port = ported(
        tmp_path, text("struct Acc {\n    float d[8];", store=f"{STORE} out[0] = {expression};", behind=behind)
    )
    assert expression in port
