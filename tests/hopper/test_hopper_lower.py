# SPDX-License-Identifier: Apache-2.0
"""What each SM100 instruction becomes, and that ptxas takes the result for Hopper."""

from __future__ import annotations

import re

import pytest

from porter.build.ptxas import assemble
from porter.build.toolchain import Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, PorterError
from porter.hopper import TRAPS, CannotLower, HostBlock, lower
from porter.hopper.library import CTA_BYTES, LIBRARY_SOURCE, QUEUE_BYTES, library_body, paste, read_states
from porter.hopper.tensor_memory import KINDS, SHAPES
from porter.ptx.ast import Block, Instruction, Label
from porter.ptx.parser import parse_module
from porter.ptx.tmem_access import Shape, TmemAccess, is_legal_count
from porter.verify.gpu.emulation import library_ptx

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"


def module_text(body: str) -> str:
    return f"""{HEAD}
.visible .entry kernel(.param .u64 p0)
{{
  .reg .pred %p<4>;
  .reg .b16 %rs<4>;
  .reg .b32 %r<300>;
  .reg .f32 %f<300>;
  .reg .b64 %rd<20>;
  {body}
  ret;
}}
"""


def lowered(body: str) -> str:
    return lower(parse_module(module_text(body))).ptx


def registers(count: int, prefix: str = "%f") -> str:
    return "{" + ", ".join(f"{prefix}{i}" for i in range(count)) + "}"


def accesses() -> list[str]:
    found = []
    for shape in Shape:
        for count in (1, 2, 4, 8, 16, 32, 64, 128):
            if not is_legal_count(shape, count):
                continue
            n = TmemAccess(False, shape, count).registers
            split = ", 16" if shape is Shape.S16X32BX2 else ""
            for pack in ("", ".pack::16b"):
                ld = f"tcgen05.ld.sync.aligned.{shape.value}.x{count}{pack}.b32 {registers(n)}, [%r290+32]{split};"
                st = (
                    f"tcgen05.st.sync.aligned.{shape.value}.x{count}{pack.replace('pack', 'unpack')}.b32 "
                    f"[%r290]{split}, {registers(n, '%r')};"
                )
                found += [ld, st]
    return found


OTHERS = [
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 128;",
    "tcgen05.alloc.cta_group::1.sync.aligned.b32 [%rd1], %r2;",
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 128;",
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
    "tcgen05.wait::ld.sync.aligned;",
    "tcgen05.wait::st.sync.aligned;",
    "tcgen05.fence::before_thread_sync;",
    "tcgen05.fence::after_thread_sync;",
    *(f"tcgen05.mma.cta_group::1.kind::{k} [%r1], %rd1, %rd2, %r2, %p1;" for k in ("f16", "tf32", "f8f6f4", "i8")),
    "tcgen05.mma.cta_group::1.kind::f16 [%r1+64], [%r5+8], %rd2, %r2, !%p1;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {%r3, %r4, %r5, %r6}, %p1;",
    "tcgen05.mma.cta_group::1.kind::tf32 [%r1], %rd1, %rd2, %r2, %p1, 3;",
    "@%p2 tcgen05.mma.cta_group::1.kind::f16.collector::a::fill [%r1], %rd1, %rd2, %r2, 1;",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd1];",
    "@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs1;",
    "tcgen05.cp.cta_group::1.128x256b [%r1], %rd1;",
    "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r1], %rd1;",
    "tcgen05.cp.cta_group::1.64x128b.warpx2::01_23 [%r1], %rd1;",
    "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 128;",
    "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 128;",
    "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;",
    *(f"tcgen05.mma.cta_group::2.kind::{k} [%r1], %rd1, %rd2, %r2, %p1;" for k in ("f16", "tf32", "f8f6f4", "i8")),
    "tcgen05.mma.cta_group::2.kind::f16 [%r1], %rd1, %rd2, %r2, {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10}, %p1;",
    "tcgen05.mma.cta_group::2.kind::f16 [%r1], [%r3], %rd2, %r2, %p1;",
    "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
    "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs1;",
    "tcgen05.cp.cta_group::2.128x128b [%r1], %rd1;",
    "tcgen05.cp.cta_group::1.128x128b.b8x16.b4x16_p64 [%r1], %rd1;",
    "tcgen05.cp.cta_group::1.128x128b.b8x16.b6x16_p32 [%r1], %rd1;",
    "tcgen05.shift.cta_group::1.down [%r1];",
    "tcgen05.shift.cta_group::2.down [%r1];",
    *(f"tcgen05.mma.ws.cta_group::1.kind::{k} [%r1], %rd1, %rd2, %r2, %p1;" for k in ("f16", "tf32", "f8f6f4", "i8")),
    *(f"tcgen05.mma.sp.cta_group::{g}.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p1;" for g in (1, 2)),
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;",
    "tcgen05.mma.cta_group::2.kind::mxf4.block_scale.scale_vec::2X [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;",
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r1], %rd1, %rd2, %r2, [%r3], [%r4], %p1;",
    "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%r1], [%rd1, {%r2, %r3}], [%r4];",
    "cp.async.bulk.tensor.1d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    ".L2::cache_hint [%r1], [%rd1, {%r2}], [%r4], %rs1, %rd2;",
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;",
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], %r2, %r3;",
    "mbarrier.try_wait.shared.b64 %p1, [%rd1], %rd2;",
    "setmaxnreg.inc.sync.aligned.u32 232;",
    "redux.sync.max.f32 %f1, %f2, 0xffffffff;",
    "redux.sync.min.abs.NaN.f32 %f1, %f2, %r1;",
    "ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%rd1+32];",
    "ld.global.nc.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd1];",
    "st.global.v8.b32 [%rd1], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};",
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];",
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "
    "[%r1], [%r2];",
    "{ .reg .b128 %q; mov.b128 %q, {%rd1, %rd2}; "
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q; "
    "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %q; "
    "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %q; }",
    "fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;",
    "add.rn.ftz.f32x2 %rd1, %rd2, %rd3;",
]


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    try:
        find_host_compiler()
        return find_toolkit()
    except PorterError as error:
        pytest.skip(error.diagnostic.message)


@pytest.fixture(scope="module")
def library(toolkit: Toolkit) -> str:
    return library_ptx(toolkit)


def test_every_form_assembles_for_hopper(toolkit: Toolkit, library: str) -> None:
    text = paste(lowered("\n  ".join([*accesses(), *OTHERS])), library)
    assert "tcgen05" not in text
    done = assemble(toolkit, text, "sm_90a")
    assert done.resources["kernel"].registers > 0


def test_the_library_has_the_layout_that_the_host_writes(library: str) -> None:
    size = len(HostBlock(1, 2, 3, 4, 5, 6, 7, "eager", "exact").encode())
    assert f".b8 porter_host[{size}];" in library_body(library)
    source = (LIBRARY_SOURCE.parent / "state.cuh").read_text()
    assert re.search(r"sizeof\(Cta\) == (.*?),", source)[1] == "128 + 16 * kForwards"  # type: ignore[index]
    forwards = int(re.search(r"kForwards = (\d+)", source)[1])  # type: ignore[index]
    assert 16 * forwards == CTA_BYTES - 128
    queue = int(re.search(r"kQueue = (\d+)", source)[1])  # type: ignore[index]
    assert f"sizeof(Item) == {QUEUE_BYTES // queue}" in source


def test_numbers_are_those_of_the_device_code() -> None:
    folder = LIBRARY_SOURCE.parent
    traps = re.search(r"enum Trap : u32 \{(.*?)\};", (folder / "state.cuh").read_text(), re.DOTALL)
    assert traps is not None
    assert len(re.findall(r"kTrap\w+", traps[1])) == len(TRAPS) == max(TRAPS)
    kinds = re.search(r"enum Kind : u32 \{(.*?)\}", (folder / "arithmetic.cuh").read_text())
    assert kinds is not None
    listed = {"F16": 0, "Tf32": 1, "F8": 2, "I8": 3, "Mx8": 4, "Mx4": 5, "Nv4": 6}
    assert {name: int(number) for name, number in re.findall(r"k(\w+) = (\d)", kinds[1])} == listed
    assert list(KINDS.values()) == list(listed.values())
    shapes = re.search(r"enum Shape : u32 \{(.*?)\}", (folder / "management.cuh").read_text())
    assert shapes is not None
    assert [s.value for s in SHAPES] == [name.strip().lstrip("k") for name in shapes[1].split(",")]
    assert list(SHAPES.values()) == list(range(5))


def test_states_are_read_as_the_device_writes_them() -> None:
    data = bytearray(2 * CTA_BYTES)
    data[CTA_BYTES : CTA_BYTES + 4] = (0b11).to_bytes(4, "little")
    data[CTA_BYTES + 40 : CTA_BYTES + 44] = (7).to_bytes(4, "little")
    data[CTA_BYTES + 44 : CTA_BYTES + 48] = (5).to_bytes(4, "little")
    first, second = read_states(bytes(data))
    assert (first.allocated, first.issued, first.executed) == (0, 0, 0)
    assert (second.allocated, second.issued, second.executed) == (0b11, 7, 5)


# --- single instructions


def kernel_instructions(text: str) -> list[Instruction]:
    def walk(body: object) -> list[Instruction]:
        found: list[Instruction] = []
        for s in body:  # type: ignore[attr-defined]
            if isinstance(s, Instruction):
                found.append(s)
            elif isinstance(s, Block):
                found += walk(s.body)
        return found

    return walk(parse_module(text).function("kernel").body)


def test_a_load_reads_each_register_at_its_cell() -> None:
    text = lowered("tcgen05.ld.sync.aligned.16x256b.x2.b32 " + registers(8) + ", [%r1];")
    offsets = re.findall(r"ld\.relaxed\.cta\.global\.b32 (%f\d), \[\w+(?:\+(\d+))?\]", text)
    row = 8 * 512 * 4
    assert offsets == [
        ("%f0", ""), ("%f1", "4"), ("%f2", str(row)), ("%f3", str(row + 4)),
        ("%f4", "32"), ("%f5", "36"), ("%f6", str(row + 32)), ("%f7", str(row + 36)),
    ]  # fmt: skip


def test_packed_access_takes_the_low_halves_of_two_columns() -> None:
    text = lowered("tcgen05.ld.sync.aligned.32x32b.x2.pack::16b.b32 {%r5, %r6}, [%r1];")
    assert re.findall(r"global\.b32 \w+, \[\w+(?:\+(\d+))?\]", text) == ["", "4", "8", "12"]
    assert len(re.findall(r"prmt\.b32 %r[56], \w+, \w+, 21520;", text)) == 2
    text = lowered("tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32 [%r1], {%r5};")
    assert re.findall(r"st\.relaxed\.cta\.global\.b32 \[\w+(?:\+(\d+))?\]", text) == ["", "4"]


def test_a_guard_jumps_over_all_of_it() -> None:
    found = kernel_instructions(lowered("@!%p2 tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, !%p1;"))
    assert found[0].parts[0] == "bra"
    assert found[0].guard is not None
    assert not found[0].guard.negated
    select = next(i for i in found if i.opcode == "selp.b32")
    assert [o.value for o in select.operands[1:3]] == [0, 1]  # type: ignore[union-attr]


def test_a_failed_poll_works_for_the_tensor_core() -> None:
    text = lowered("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2, 1000;")
    assert "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], %r2;" in text
    found = kernel_instructions(text)
    at = [i.parts[0] for i in found]
    assert at[:2] == ["mbarrier", "bra"]
    assert "porter_poll" in text
    assert found[1].guard is not None
    assert not found[1].guard.negated


def test_labels_of_two_lowered_instructions_differ() -> None:
    commit = "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];"
    module = lower(parse_module(module_text(f"{commit}\n{commit}"))).module
    body = module.function("kernel").body
    assert body is not None
    labels = [s.name for b in body if isinstance(b, Block) for s in b.body if isinstance(s, Label)]
    assert len(labels) == len(set(labels)) == 2


def test_sites_say_where_an_instruction_stood() -> None:
    result = lower(parse_module(module_text("add.u32 %r1, %r2, %r3;\n" + OTHERS[0])), first_site=7)
    (site,) = result.sites
    assert site.number == 7
    assert site.opcode.startswith("tcgen05.alloc")
    assert module_text("add.u32 %r1, %r2, %r3;\n" + OTHERS[0]).splitlines()[site.line - 1].strip() == OTHERS[0]
    assert result.module.target == "sm_90a"


def test_what_has_no_effect_is_left_out_and_counted() -> None:
    result = lower(parse_module(module_text(OTHERS[4] + OTHERS[6] + "setmaxnreg.dec.sync.aligned.u32 24;")))
    assert sum(result.removed.values()) == 3
    assert "setmaxnreg" not in result.ptx


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, %rd3;", "zero-column mask"),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r5], %rd2, %r2, %p1;", "ashift"),
        ("st.bulk.weak.shared::cta [%r1], %rd1, 0;", "sm_100"),
    ],
)
def test_what_is_not_emulated_stops_with_its_name(text: str, named: str) -> None:
    with pytest.raises(CannotLower) as raised:
        lowered(text)
    assert raised.value.diagnostic.code is Code.CANNOT_EMULATE
    assert named in raised.value.diagnostic.message
    assert text.split()[0] in raised.value.diagnostic.message
