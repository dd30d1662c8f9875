# SPDX-License-Identifier: Apache-2.0
"""What the table says about single instructions: registers written and read, modifiers, targets."""

from __future__ import annotations

import pytest

from porter.ptx import global_memory
from porter.ptx.ast import Instruction, Placeholder, Reg
from porter.ptx.inline import parse_template
from porter.ptx.requirement import Requirement, TargetName
from porter.ptx.table import (
    FORMS,
    UnknownInstruction,
    _row,
    check,
    decode,
    destinations,
    lookup,
    opcode_modifiers,
    sources,
)
from porter.ptx.table import Completion as C


def one(text: str) -> Instruction:
    return parse_template(text).instructions()[-1]


def names(found: tuple[Reg | Placeholder, ...]) -> str:
    return " ".join(item.name if isinstance(item, Reg) else f"%{item.index}" for item in found)


@pytest.mark.parametrize(
    ("text", "written", "read"),
    [
        ("add.s32 %a, %b, 1;", "%a", "%b"),
        ("@!%p fma.rn.f32 %d, %a, %b, %c;", "%d", "%p %a %b %c"),
        ("mov.b64 {%lo, _}, %x;", "%lo", "%x"),
        ("mov.b64 %x, {%lo, %hi};", "%x", "%lo %hi"),
        ("mov.u32 %x, %tid.x;", "%x", ""),
        ("setp.lt.and.s32 %p|%q, %a, %b, !%r;", "%p %q", "%a %b %r"),
        ("ld.global.v2.b32 {%a, %b}, [%x+8];", "%a %b", "%x"),
        ("st.shared.v2.b32 [%x], {%a, %b};", "", "%x %a %b"),
        ("atom.global.add.u32 %d, [%x], %a;", "%d", "%x %a"),
        ("red.global.add.u32 [%x], %a;", "", "%x %a"),
        ("shfl.sync.idx.b32 %d|%p, %a, %b, %c, %m;", "%d %p", "%a %b %c %m"),
        ("elect.sync _|%p, %m;", "%p", "%m"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], %n;", "", "%m %n"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], %x;", "%p", "%m %x"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            ".L2::cache_hint [%d], [%m, {%x, %y}], [%b], %k, %h;",
            "",
            "%d %m %x %y %b %k %h",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a, %b, %c, %d}, %x, %y, %p, 1, 1, 0, 0;",
            "%a %b %c %d",
            "%a %b %c %d %x %y %p",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
            " {%a, %b, %c, %d}, {%e, %f, %g, %h}, %y, 0, 1, 1, 1;",
            "%a %b %c %d",
            "%a %b %c %d %e %f %g %h %y",
        ),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%a, %b}, [%t+4];", "%a %b", "%t"),
        ("tcgen05.st.sync.aligned.16x32bx2.x2.b32 [%t], 2, {%a, %b};", "", "%t %a %b"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%d], [%a], %b, %i, {%w, %x, %y, %z}, !%p, 3;", "",
         "%d %a %b %i %w %x %y %z %p"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 512;", "", "%s"),
        ("bra.uni NEXT;", "", ""),
        ("brx.idx %i, TABLE;", "", "%i"),
        ("call.uni (%r), function, (%a, %b);", "%r", "%a %b"),
        ("call (%r), %f, (%a), prototype;", "%r", "%f %a"),
        ("call function, (%a);", "", "%a"),
        ("ret;", "", ""),
        ("@%0 ld.shared.b32 %1, [%2+%3];", "%1", "%0 %2 %3"),
    ],
)  # fmt: skip
def test_registers(text: str, written: str, read: str) -> None:
    found = one(text)
    assert names(destinations(found)) == written
    assert names(sources(found)) == read


def test_unknown_instructions() -> None:
    found = one("frobnicate.b32 %a, %b;")
    assert lookup(found) is None
    assert opcode_modifiers("frobnicate.b32") is None
    for question in (destinations, sources, decode):
        with pytest.raises(UnknownInstruction, match=r"frobnicate\.b32 %a, %b"):
            question(found)
    # The opcode is known, with these operands it is not.
    assert opcode_modifiers("add.s32") is not None
    assert lookup(one("add.s32 %a, [%b], %c;")) is None


def test_modifiers_in_any_order() -> None:
    expected = {"ld": "ld", "sem": "acquire", "scope": "gpu", "space": "global", "mem_type": "u32"}
    for text in ("ld.acquire.gpu.global.u32", "ld.global.gpu.acquire.u32", "ld.u32.global.acquire.gpu"):
        assert decode(one(f"{text} %a, [%b];")).modifiers == expected
    # Types keep their order, and the name its place.
    assert decode(one("cvt.rn.f16.f32 %a, %b;")).modifiers["dtype"] == "f16"
    assert lookup(one("cvt.rn.f32.f16 %a, %b;")) is None
    assert opcode_modifiers("mbarrier.try_wait.shared::cta.parity.b64") is None


def test_operands_say_what_they_are() -> None:
    found = decode(one("tcgen05.mma.cta_group::1.kind::f16 [%d], %a, %b, %i, %p, 2;")).bound
    assert [row.name for row, _ in found] == ["d", "a", "b", "idesc", "enable_input_d", "scale_input_d"]
    assert found[0][0].space == "tmem"
    short = decode(one("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%a, %b, %c, %d}, %x, %y, %p, 1, -1;"))
    assert list(short.rows) == ["d", "a", "b", "scale_d", "scale_a", "scale_b"]
    assert short.registers("d") == ("%a", "%b", "%c", "%d")
    assert short.get("trans_a") is None


def test_operands_by_name_take_pairs_and_brackets_apart() -> None:
    compared = decode(one("setp.lt.and.f32 %p|%q, %a, %b, !%c;"))
    assert [compared.registers(name) for name in compared.rows] == [("%p",), ("%q",), ("%a",), ("%b",), ("%c",)]
    assert (compared.type("p"), compared.type("a")) == ("pred", "f32")
    copy = decode(one("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {%x, %y}], [%s];"))
    assert copy.registers("coords") == ("%x", "%y")
    assert copy.registers("map") == ("%m", "%x", "%y")


def test_a_load_that_reduces_writes_the_reduced_value_too() -> None:
    found = decode(one("tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {%a, %b}, %c, [%t];"))
    assert (found.writes, found.uses) == (("%a", "%b", "%c"), ("%t",))


@pytest.mark.parametrize(
    ("text", "completion", "commits", "awaits"),
    [
        ("cp.async.cg.shared.global [%a], [%b], 16;", C.CP_ASYNC_GROUP, C.NONE, C.NONE),
        ("cp.async.wait_group 1;", C.NONE, C.NONE, C.CP_ASYNC_GROUP),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%m, {%x}], [%s];", C.BULK_GROUP,
         C.NONE, C.NONE),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%b], %n, [%m];",
         C.MBARRIER_TX, C.NONE, C.NONE),
        ("cp.async.bulk.wait_group.read 0;", C.NONE, C.NONE, C.BULK_GROUP),
        ("wgmma.commit_group.sync.aligned;", C.NONE, C.WGMMA_GROUP, C.NONE),
        ("wgmma.wait_group.sync.aligned 0;", C.NONE, C.NONE, C.WGMMA_GROUP),
        ("tcgen05.mma.cta_group::1.kind::tf32 [%d], %a, %b, %i, 1;", C.TCGEN05_COMMIT, C.NONE,
         C.NONE),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%m];", C.MBARRIER_ARRIVE,
         C.TCGEN05_COMMIT, C.NONE),
        ("tcgen05.wait::st.sync.aligned;", C.NONE, C.NONE, C.TCGEN05_ST),
        ("add.s32 %a, %b, %c;", C.NONE, C.NONE, C.NONE),
    ],
)  # fmt: skip
def test_asynchronous_class(text: str, completion: C, commits: C, awaits: C) -> None:
    row = lookup(one(text))
    assert row is not None
    assert (row.completion, row.commits, row.awaits) == (completion, commits, awaits)


@pytest.mark.parametrize(
    ("text", "target", "version", "message"),
    [
        ("wgmma.fence.sync.aligned;", "sm_90a", (9, 0), None),
        ("wgmma.fence.sync.aligned;", "sm_100a", (9, 0), "wgmma.fence needs sm_90a, not sm_100a"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_103f", (9, 0), None),
        ("tcgen05.wait::ld.sync.aligned;", "sm_100f", (8, 6), "needs PTX 8.8 on sm_100f, not 8.6"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_100", (9, 0), "not sm_100"),
        ("tcgen05.mma.cta_group::1.kind::i8 [%d], %a, %b, %i, %p;", "sm_103a", (9, 0), "not sm_103a"),
        (
            "ld.global.v8.b32 {%a, %b, %c, %d, %e, %f, %g, %h}, [%x];",
            "sm_90a",
            (9, 0),
            "ld with .v8 needs sm_100",
        ),
        ("ld.global.v4.b64 {%a, %b, %c, %d}, [%x];", "sm_90a", (9, 0), "ld with .v4 and .b64 needs sm_100"),
    ],
)
def test_targets(text: str, target: str, version: tuple[int, int], message: str | None) -> None:
    found = check(one(text), target, version)
    assert found == message if message is None else message in str(found)


def test_bad_target_names() -> None:
    for name in ("sm100a", "compute_90", "sm_90b", ""):
        with pytest.raises(ValueError, match="not a PTX target"):
            check(one("ret;"), name)


def test_requirements() -> None:
    chip = TargetName.parse
    assert chip("sm_100").offers(chip("sm_90"))
    assert not chip("sm_100a").offers(chip("sm_90a"))
    assert chip("sm_103f").offers(chip("sm_100f"))
    assert chip("sm_103a").offers(chip("sm_100f"))
    assert not chip("sm_103").offers(chip("sm_100f"))
    assert not chip("sm_110f").offers(chip("sm_100f"))
    assert not chip("sm_100f").offers(chip("sm_103f"))
    either = Requirement.parse("sm_100a@8.6 sm_100f@8.8")
    assert either.unmet(chip("sm_100a"), (8, 6)) is None
    assert either.unmet(chip("sm_103a"), (8, 6)) == "needs PTX 8.8 on sm_103a, not 8.6"
    assert either.unmet(chip("sm_90a"), (9, 0)) == "needs sm_100a or sm_100f, not sm_90a"


def test_rows_are_complete() -> None:
    for row in FORMS:
        assert row.section.startswith("9.7."), row.pattern
        assert row.name, row.pattern
        names = [part.name for part in row.parts if part.group or part.optional]
        assert len(names) == len(set(names)), row.pattern
        known = {part.name for part in row.parts}
        for operand in row.operands:
            if operand.when:
                assert operand.when.partition("=")[0] in known, (row.pattern, operand)


def test_rows_are_looked_for_once_for_all_constants() -> None:
    """But for constants that some row asks for."""
    for opcode in ("add.s32 %a, %b, {};", "mov.u32 %a, {};", "ld.global.b32 %a, [%x+{}];", "mov.b64 {{%a, %b}}, {};"):
        decode(one(opcode.format(99_999)))
        before = _row.cache_info().misses
        for value in (100_001, 123_456, 99_991, -77_777):
            assert decode(one(opcode.format(value))).operands[-1] != decode(one(opcode.format(5))).operands[-1]
        assert _row.cache_info().misses <= before + 1


@pytest.mark.parametrize(
    ("text", "legal", "refused"),
    [
        ("setmaxnreg.inc.sync.aligned.u32 {};", (24, 232), (16, 25, 264, 99_999)),
        ("cp.async.ca.shared.global [%x], [%y], {};", (4, 8, 16), (5, 32, -4)),
        ("lop3.b32 %d, %a, %b, %c, {};", (0, 255, 0xE8), (256, -1, 99_999)),
        ("pmevent {};", (0, 15), (16, 1 << 40)),
    ],
)
def test_constants_that_rows_ask_for_are_told_apart(
    text: str, legal: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    assert all(lookup(one(text.format(value))) is not None for value in legal)
    assert all(lookup(one(text.format(value))) is None for value in refused)


def test_sections_of_what_leaves_global_memory_alone() -> None:
    for section, opcodes in global_memory._ELSEWHERE.items():
        for opcode in opcodes:
            sections = [row.section for row in FORMS if row.name.split(".")[0] == opcode]
            assert sections, opcode
            assert all(found.startswith(f"{section}.") for found in sections), opcode
