# SPDX-License-Identifier: Apache-2.0
"""`definition: drop`: functions of a library that only calls come to that rules speak for are taken out."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import RULES, kernel, port_house, written
from test_leaves_and_texts import BODIES

GUARD = "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)"
DROPPING = RULES.replace("safety: review, ", "safety: review, definition: drop, ").replace(
    "    safety: review\n", "    definition: drop\n    safety: review\n"
)
FENCE = '__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'


def ported(tmp_path: Path, header: str, text: str = "", rules: str = DROPPING) -> tuple[str, str]:
    """The kernel and the header of the port."""
    result = port_house(tmp_path, text or kernel(), rules, header)
    return written(result), result.files[str(tmp_path / "house.cuh")].decode()


def test_all_that_nothing_calls_goes(tmp_path: Path) -> None:
    text, header = ported(tmp_path, BODIES)
    assert header == "#pragma once\n#include <cstdint>\nnamespace acme {\n}\n"
    assert "tcgen05::mma_f16(" in text
    assert "tcgen05::sync_warpgroup();" in text


GOES = {
    "with its comment": (f"// Waits for nothing.\n// And orders.\n{FENCE}", ""),
    "between blank lines": (f"int x;\n\n{FENCE}\nint y;\n", "int x;\n\nint y;\n"),
    "on one line with another": (f"int x; {FENCE.strip()} int y;\n", "int x;  int y;\n"),
    "over lines": (FENCE.replace("{ ", "{\n    ").replace("; }", ";\n}"), ""),
    "with directives in it": (FENCE.replace("{ ", "{\n#if 1\n").replace("; }", ";\n#endif\n}"), ""),
    "what only it calls": (
        FENCE.replace("fence()", "inner()", 1) + "__device__ void fence() { inner(); }\n",
        "",
    ),
}


@pytest.mark.parametrize("name", GOES)
def test_a_function_goes(tmp_path: Path, name: str) -> None:
    before, after = GOES[name]
    _, header = ported(tmp_path, BODIES.replace(FENCE, before))
    assert header == f"#pragma once\n#include <cstdint>\nnamespace acme {{\n{after}}}\n"


STAYS = {
    "declared besides": (f"__device__ void fence();\n{FENCE}", ""),
    "its address is taken": (f"{FENCE}__device__ void (*pointer)() = &fence;\n", ""),
    "in a using declaration": (FENCE, "using acme::fence;\n"),
    "a macro that is not called": (f"{FENCE}#define FENCE fence()\n", ""),
    "what another calls": (
        FENCE.replace("fence()", "inner()", 1)
        + "__device__ void fence() { inner(); }\n__device__ void (*p)() = &inner;\n",
        "",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_a_function_that_is_named_besides_stays_for_hopper(tmp_path: Path, name: str) -> None:
    defined, before = STAYS[name]
    _, header = ported(tmp_path, BODIES.replace(FENCE, defined), kernel(before=before))
    assert header.count(GUARD) == 1
    assert "wgmma.fence" in header
    assert "wgmma.commit_group" not in header


def test_a_function_that_the_text_of_a_rule_calls_stays(tmp_path: Path) -> None:
    rules = DROPPING.replace(
        "    definition: drop\n", "    definition: drop\n    emit: 'acme::mma<$N>($tile, $A, $B);'\n"
    )
    text, header = ported(tmp_path, BODIES, rules=rules)
    assert "acme::mma<64>(acc_tmem, a, b);" in text
    assert header.count(GUARD) == 1


def test_a_method_stays(tmp_path: Path) -> None:
    methods = BODIES.replace(FENCE, "").replace(
        "namespace acme {", f"namespace acme {{\nstruct Ops {{ static {FENCE.strip()} }};", 1
    )
    rules = DROPPING.replace("acme::fence()", "acme::Ops::fence()", 1)
    text = kernel().replace("acme::fence()", "acme::Ops::fence()")
    _, header = ported(tmp_path, methods, text, rules)
    assert "wgmma.fence" in header
    assert header.count(GUARD) == 1
