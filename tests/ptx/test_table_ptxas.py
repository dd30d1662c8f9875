# SPDX-License-Identifier: Apache-2.0
"""The instruction table against ptxas.

For every form and every choice of every modifier, on every target, the table allows what ptxas assembles.
"""

from __future__ import annotations

import functools

import pytest
from table_samples import REGISTERS, Batch, find_ptxas, instructions, opcodes

from porter.ptx.ast import Instruction
from porter.ptx.inline import parse_template
from porter.ptx.table import FORMS, check, lookup

PTXAS = find_ptxas()
pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas (package nvidia-cuda-nvcc) is not installed")

# Each target with the first PTX version that has it and the later ones that brought forms.
RUNS = [
    ("sm_90", "8.0"), ("sm_90", "9.0"),
    *(("sm_90a", version) for version in ("8.0", "8.1", "8.2", "8.3", "8.4", "8.6", "8.7", "8.8", "9.0")),
    ("sm_100", "8.6"), ("sm_100", "8.8"), ("sm_100", "9.0"),
    ("sm_100a", "8.6"), ("sm_100a", "8.7"), ("sm_100a", "8.8"), ("sm_100a", "9.0"),
    ("sm_100f", "8.8"), ("sm_100f", "9.0"),
    ("sm_103a", "8.8"), ("sm_103a", "9.0"), ("sm_103f", "9.0"),
    ("sm_110a", "9.0"), ("sm_110f", "9.0"), ("sm_120", "9.0"), ("sm_120a", "9.0"), ("sm_120f", "9.0"),
]  # fmt: skip


@functools.cache
def samples() -> dict[str, Instruction]:
    """Text and syntax of the sample instructions."""
    texts = dict.fromkeys(text for row in FORMS for opcode in opcodes(row) for text in instructions(row, opcode))
    found = {}
    for text in texts:
        # The declarations tell the parser which names are registers.
        found[text] = parse_template((REGISTERS + text).replace("%", "%%")).instructions()[-1]
    return found


def test_every_sample_is_found_by_its_own_form() -> None:
    assert len(samples()) > 3500
    for row in FORMS:
        for opcode in opcodes(row):
            for text in instructions(row, opcode):
                found = lookup(samples()[text])
                assert found is not None, text
                # Two rows may allow one opcode (`ld` without hints); then they must say the same of it.
                assert found.name == row.name
                assert found.completion is row.completion


@functools.cache
def refused(target: str, version: str) -> dict[str, str]:
    assert PTXAS is not None
    batch = Batch(target, version)
    old = tuple(map(int, version.split("."))) < (8, 3)
    # A kernel may not mix the two CTA groups; registers of 128 bits came with PTX 8.3.
    texts = [text for text in samples() if not (old and "%q" in text)]
    for group in (False, True):
        batch.add([text for text in texts if ("cta_group::2" in text) == group])
    return batch.refused(PTXAS)


@pytest.mark.parametrize(("target", "version"), RUNS)
def test_table_and_ptxas_agree(target: str, version: str) -> None:
    numbers = (int(version[0]), int(version[2:]))
    messages = refused(target, version)
    wrong = []
    for text, found in samples().items():
        if numbers < (8, 3) and "%q" in text:
            continue
        if (check(found, target, numbers) is None) == (text in messages):
            wrong.append(f"{text}: table {check(found, target, numbers)!r}, ptxas {messages.get(text)!r}")
    assert not wrong, "\n".join(wrong[:20])


def test_each_sample_assembles_somewhere() -> None:
    everywhere = [refused(target, version) for target, version in RUNS if version == "9.0"]
    nowhere = [text for text in samples() if all(text in messages for messages in everywhere)]
    # Needs a later PTX than the assembler at hand knows.
    assert [
        text for text in nowhere if not text.startswith(("multimem.cp.async.bulk", "multimem.cp.reduce.async.bulk"))
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "add.f16.f32 %h1, %h2, %h3;",
        "add.s32 %w1, %w2;",
        "ld.shared.v3.b32 {%w1, %w2, %w3}, [%w4];",
        "ld.shared.v8.b32 {%w1, %w2, %w3, %w4, %w5, %w6, %w7, %w8}, [%w9];",
        "ld.global.v4.b32 {%w1, %w2}, [%l1];",
        "setp.lo.s32 %p1, %w1, %w2;",
        "cvt.f16.f32 %h1, %f1;",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%w1, %w2}, %l1, %l2, %p1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%w1, %w2}, %l1, %l2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %l1, %l2, %p1, 0, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2, %f3, %f4}, %l1, %l2, %p1, 1, 1, 0, 0;",
        "tcgen05.ld.sync.aligned.32x32b.x3.b32 {%w1, %w2, %w3}, [%w4];",
        "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%w1, %w2}, [%w4];",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%w1], 48;",
        "tcgen05.alloc.cta_group::1.sync.aligned.b32 %w1, 32;",
        "tcgen05.wait [%w1];",
        "tcgen05.fence;",
        "tcgen05.commit.cta_group::1.mbarrier::arrive.b64 [%w1];",
        "tcgen05.mma.cta_group::1.kind::f16 [%w1], %l1, %l2, %w2, %p1, 16;",
        "tcgen05.mma.cta_group::1.kind::f8f6f4 [%w1], %l1, %l2, %w2, %p1, 1;",
        "tcgen05.mma.cta_group::1.kind::f16 [%w1], %l1, %l2, %w2, {%w3, %w4}, %p1;",
        "tcgen05.mma.cta_group::1.kind::f16 [%w1], %l1, [%w3], %w2, %p1;",
        "tcgen05.mma.cta_group::1.kind::f16.ashift [%w1], %l1, %l2, %w2, %p1;",
        "tcgen05.mma.ws.cta_group::2.kind::f16 [%w1], %l1, %l2, %w2, %p1;",
        "tcgen05.cp.cta_group::1.64x128b [%w1], %l1;",
        "tcgen05.cp.cta_group::1.128x256b [%w1], [%l1];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%l1, {%w2}], [%w3];",
        "setmaxnreg.inc.sync.aligned.u32 100;",
        "mbarrier.try_wait.shared::cta.parity.b64 %p1, [%w1], %w2;",
        "frobnicate.b32 %w1, %w2;",
    ],
)
def test_what_ptxas_refuses_the_table_does_not_know(text: str) -> None:
    assert PTXAS is not None
    found = parse_template((REGISTERS + text).replace("%", "%%")).instructions()[-1]
    assert lookup(found) is None
    # ptxas may give up at the first error of some kinds, so these stand alone.
    for target in ("sm_90a", "sm_100a"):
        batch = Batch(target)
        batch.add([text])
        assert text in batch.refused(PTXAS)
