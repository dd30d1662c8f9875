# SPDX-License-Identifier: Apache-2.0
"""Texts that rules write, bodies that rules are held to, refusals, and which of several rules is the one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from house import BATCH, HEAD, MULTIPLY, RULES, SYNC, codes, kernel, port_house, written

EMIT = """\
    emit: 'acme::umma<$N>($tile, $A, $B);'
    needs: [tile]
    request: {include: acme/umma.cuh}
"""
WITH_TEXT = HEAD + MULTIPLY.replace("    safety:", EMIT + "    safety:") + SYNC
REGISTERS = ", ".join(f'"+f"(d[{i}])' for i in range(32))
BODIES = f"""\
#pragma once
#include <cstdint>
namespace acme {{
template <int N> __device__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b) {{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{", ".join(f"%{i}" for i in range(32))}}}, "
                 "%32, %33, 1, 1, 1, 0, 0;" : {REGISTERS} : "l"(a), "l"(b));
}}
__device__ void fence() {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }}
__device__ void commit() {{ asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }}
template <int N> __device__ void wait() {{ asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }}
}}
"""


AS_TF32 = RULES.replace("m64n${N}k16", "m64n${N}k8").replace("f32.f16.f16", "f32.tf32.tf32")


def _rule(rule: str, recognize: str, body: str) -> str:
    return f"""\
  - id: {rule}
    title: Another of the house
    recognize: '{recognize}'
    {body}
    safety: review
    reason: It is.
    examples: [{{before: 'acme::fence()', expect: [x]}}, {{absent: 'other::f()'}}]
"""


def test_a_call_becomes_the_text_of_its_rule(tmp_path: Path) -> None:
    result = port_house(tmp_path, kernel(), WITH_TEXT)
    text = written(result)
    assert "    acme::umma<64>(acc_tmem, a, b);\n" in text
    assert "tcgen05::mma_f16" not in text
    assert text.index('#include "acme/umma.cuh"') < text.index("__global__ void __launch")
    group = next(g for g in result.groups if g.rule == "ACME100")
    assert group.safety.value == "review"


def test_texts_for_all_facts_of_a_library(tmp_path: Path) -> None:
    more = """\
  - id: ACME200
    title: Waits of the house
    on: wait
    via: acme
    emit: 'acme::umma_wait<$pending>($state);'
    needs: [state]
    safety: review
    reason: It counts its batches itself.
    examples: [{before: 'acme::wait<0>()', expect: [x]}]
"""
    text = written(port_house(tmp_path, kernel(), RULES + more))
    assert "acme::umma_wait<0>(tc);" in text
    assert "tc.commit();" in text


def test_a_text_without_its_binding_is_refused(tmp_path: Path) -> None:
    more = MULTIPLY.replace("    safety:", "    emit: 'acme::umma($state, $tile);'\n    safety:")
    text = kernel(BATCH.replace("acme::mma<64>(acc, a, b)", "step(acc, a, b)"), before="""\
__device__ void step(float (&acc)[32], uint64_t a, uint64_t b) { acme::mma<64>(acc, a, b); }
""")  # fmt: skip
    result = port_house(tmp_path, text, HEAD + more + SYNC)
    assert codes(result) == ["RULE_BINDING"]
    assert "ACME100" in str(result.diagnostics[-1]) or any("$state" in str(d) for d in result.diagnostics)


def test_a_call_that_a_rule_speaks_for_is_a_leaf(tmp_path: Path) -> None:
    result = port_house(tmp_path, kernel(), WITH_TEXT, BODIES)
    assert "acme::umma<64>(acc_tmem, a, b);" in written(result)
    header = result.files[str(tmp_path / "house.cuh")].decode()
    assert header.count("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)") == 4
    assert header.count("wgmma.") == BODIES.count("wgmma.")


@pytest.mark.parametrize(
    ("rules", "bodies", "said"),
    [
        (AS_TF32, BODIES, "the rule says m64n64k8"),
        (RULES, BODIES.replace("f32.f16.f16", "f32.bf16.bf16"), "the body issues"),
        (RULES.replace("a: $A, b: $B", "a: $B, b: $A"), BODIES, "`a` of the body is `a`, the rule says `b`"),
        (RULES.replace("a: $A, b: $B", "a: $A, b: $B, scale_d: '0'"), BODIES, "`scale_d` of the body"),
        (RULES, BODIES.replace("1, 1, 1, 0, 0", "1, 1, -1, 0, 0"), "`negate_b` of the body"),
        (RULES, BODIES.replace("1, 1, 1, 0, 0", "1, 1, 1, 0, 1"), "`transpose_b` of the body"),
        (RULES.replace("{pending: $N}", "{pending: $N + 1}"), BODIES, "the body waits for"),
        (RULES.replace("{fence: {}}", "{commit: {}}"), BODIES, "the body has a fence"),
        (RULES, BODIES.replace("void fence() {", "void fence() { commit();"), "a fence and a commit"),
        (RULES, BODIES.replace('asm volatile("wgmma.fence', 'for (;;) asm volatile("wgmma.fence'), "in a loop"),
        (RULES, BODIES.replace('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', ""), "no instruction"),
    ],
)  # fmt: skip
def test_a_rule_that_the_body_gives_the_lie_is_an_error(tmp_path: Path, rules: str, bodies: str, said: str) -> None:
    result = port_house(tmp_path, kernel(), rules, bodies)
    assert int(result.exit_code) == 2, [str(d) for d in result.diagnostics]
    found = next(d for d in result.diagnostics if d.code.name == "RULE_DISAGREES")
    assert said in found.message
    assert str(found.where).startswith(f"{tmp_path}/rules/acme.yaml:")
    assert "kernel.cu:" in found.message
    assert not result.changed


@pytest.mark.parametrize("definition", ["keep", "guard", "read"])
def test_what_becomes_of_a_body(tmp_path: Path, definition: str) -> None:
    wrong = AS_TF32
    rules = wrong.replace(
        "    where: {N: const, D: name}", f"    where: {{N: const, D: name}}\n    definition: {definition}"
    )
    result = port_house(tmp_path, kernel(), rules, BODIES)
    text = written(result)
    header = result.files[str(tmp_path / "house.cuh")].decode()
    assert ("mma_tf32(" in text) == (definition != "read")
    assert ("mma_f16(" in header) == (definition == "read")
    assert header.count("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)") == {"keep": 3, "guard": 4, "read": 3}[definition]


REFUSAL = """\
  - id: ACME900
    title: Split accumulators
    recognize: 'acme::mma_split<$N, $P>($$$ARGS)'
    refuse:
      code: RULE_REFUSED
      what: 'a multiply that spreads one accumulator over $P warpgroups'
      advice: 'Call acme::mma<${N}> once a warpgroup, or keep this kernel for sm_90a.'
    safety: sketch
    reason: Tensor Memory tiles belong to one warpgroup.
    examples:
      - before: "__device__ void f() { acme::mma_split<64, 2>(c, a, b); }\\n"
        diagnostics: [RULE_REFUSED]
"""


@pytest.mark.parametrize("beside", ["", BATCH])
def test_a_refusal_says_what_to_do(tmp_path: Path, beside: str) -> None:
    result = port_house(tmp_path, kernel("    acme::mma_split<64, 2>(acc, a, b);\n" + beside), RULES + REFUSAL)
    assert codes(result) == ["RULE_REFUSED"]
    said = next(str(d) for d in result.diagnostics if d.code.name == "RULE_REFUSED")
    assert "over 2 warpgroups: Call acme::mma<64> once a warpgroup" in said


ANY = _rule("ACME300", "acme::$", "").replace("acme::$", "acme::mma<$N>($$$ARGS)")
GENERAL = ANY.replace("    \n", "    refuse: {what: 'a multiply', advice: 'Leave it.'}\n")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_rules_decides_nothing(tmp_path: Path, order: tuple[int, ...]) -> None:
    parts = [MULTIPLY, SYNC, GENERAL]
    text = written(port_house(tmp_path, kernel(), HEAD + "".join(parts[i] for i in order)))
    assert "tcgen05::mma_f16(" in text


def test_priority_decides_before_the_length_of_a_pattern(tmp_path: Path) -> None:
    rules = RULES + GENERAL.replace("    safety:", "    priority: 1\n    safety:")
    assert codes(port_house(tmp_path, kernel(), rules)) == ["RULE_REFUSED"]


def test_a_rule_of_a_user_comes_before_porters_own(tmp_path: Path) -> None:
    mine = HEAD + _rule("ACME400", "cute::warpgroup_arrive()", "refuse: {what: 'a fence of CuTe', advice: 'Leave it.'}")
    text = kernel(BATCH.replace("acme::fence()", "cute::warpgroup_arrive()"))
    assert "sync_warpgroup" in written(port_house(tmp_path, text))
    assert "RULE_REFUSED" in codes(port_house(tmp_path, text, cute=mine))


def test_a_tie_is_an_error_that_names_both(tmp_path: Path) -> None:
    other = HEAD + _rule("ACME500", "acme::mma<$N>($D, $A, $B)", "as: {fence: {}}")
    result = port_house(tmp_path, kernel(), RULES, other=other)
    assert int(result.exit_code) == 2
    found = next(d for d in result.diagnostics if d.code.name == "RULE_CONFLICT")
    assert "ACME100" in found.message
    assert "ACME500" in found.message
    assert found.where is not None
    assert found.where.path.endswith(".yaml")
    assert found.where.line > 0


@pytest.mark.parametrize(
    "batch",
    [
        BATCH.replace("acme::commit();", "int done = acme::commit();"),
        BATCH.replace("acme::commit();", "int done; done = acme::commit();"),
        BATCH.replace("acme::commit();", "if (acme::commit() != 0) return;"),
        BATCH.replace("(acc, a, b)", "(acc, next(acc, a, b), b)"),
    ],
)
def test_a_call_that_is_more_than_a_statement_is_refused(tmp_path: Path, batch: str) -> None:
    before = """\
__device__ uint64_t next(float (&d)[32], uint64_t a, uint64_t b) { acme::mma<64>(d, a, b); return a + 1; }
"""
    result = port_house(tmp_path, kernel(batch, before))
    assert codes(result) == ["RULE_NEAR_MISS"]
    said = "holds something that" if "next" in batch else "is used, and"
    assert said in "".join(str(d) for d in result.diagnostics)


@pytest.mark.parametrize("definition", ["check", "keep", "guard", "drop"])
def test_a_body_whose_asm_is_not_read_is_what_its_rule_says_unless_it_is_to_be_checked(
    tmp_path: Path, definition: str
) -> None:
    hidden = BODIES.replace('"wgmma.fence.sync.aligned;"', "HOUSE_FENCE")
    rules = RULES.replace("safety: review", f"definition: {definition}\n    safety: review", 1).replace(
        "safety: review, ", f"definition: {definition}, safety: review, "
    )
    result = port_house(tmp_path, kernel(), rules, hidden)
    if definition == "check":
        assert codes(result) == ["RULE_DISAGREES"]
    else:
        assert "tcgen05::sync_warpgroup();\n    tcgen05::mma_f16(" in written(result)
