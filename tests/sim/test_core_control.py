# SPDX-License-Identifier: Apache-2.0
"""Branches, divergence, fairness, calls, and how a run ends."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import download, module_text, run, upload

from porter.diagnostics import Code
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate
from porter.sim.results import Schedule

REGS = ".reg .b32 %r<20>; .reg .b64 %d<10>; .reg .pred %p<10>;"
STORE = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r10;"""


def words(body: str, threads: int = 32, blocks: int = 1, **more: object) -> list[int]:
    memory = GlobalMemory()
    out = memory.alloc(4 * threads * blocks)
    outcome = run(module_text(["out"], REGS + body), [out], memory, blocks, threads, **more)  # type: ignore[arg-type]
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return download(memory, out, threads * blocks, np.uint32).tolist()


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
def test_divergent_loops_reconverge(schedule: Schedule) -> None:
    body = (
        """mov.u32 %r3, %tid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r3, %r4, 96, %r3; add.u32 %r3, %r3, 1;
    mov.u32 %r10, 0;
    LOOP: setp.eq.u32 %p0, %r3, 1; @%p0 bra END;
    and.b32 %r5, %r3, 1; setp.eq.u32 %p1, %r5, 0; @%p1 bra EVEN;
    mad.lo.u32 %r3, %r3, 3, 1; bra NEXT;
    EVEN: shr.u32 %r3, %r3, 1;
    NEXT: add.u32 %r10, %r10, 1; bra.uni LOOP;
    END: bar.sync 0;"""
        + STORE
        + "ret;"
    )
    got = words(body, 96, 3, options=Options(schedule=schedule, seed=5))
    assert got == [collatz(i + 1) for i in range(288)]


def test_lane_that_spins_does_not_starve_its_warp() -> None:
    """Lane 0 waits for a flag that lane 1 sets only after lane 0's branch was taken."""
    body = (
        """.shared .u32 flag; mov.u32 %r3, %tid.x; mov.u32 %r4, 0; st.shared.u32 [flag], %r4; bar.warp.sync -1;
    setp.ne.u32 %p0, %r3, 0; @%p0 bra OTHER;
    SPIN: ld.volatile.shared.u32 %r10, [flag]; setp.eq.u32 %p1, %r10, 0; @%p1 bra SPIN;
    bra JOIN;
    OTHER: mov.u32 %r10, 7; setp.eq.u32 %p2, %r3, 1; @%p2 st.volatile.shared.u32 [flag], 42;
    JOIN:"""
        + STORE
        + "ret;"
    )
    assert words(body) == [42] + [7] * 31


def test_warp_that_spins_does_not_starve_others() -> None:
    body = (
        """.shared .u32 flag; mov.u32 %r3, %tid.x; mov.u32 %r4, 0; st.shared.u32 [flag], %r4; bar.sync 0;
    setp.ge.u32 %p0, %r3, 32; @%p0 bra OTHER;
    SPIN: ld.acquire.cta.shared.u32 %r10, [flag]; setp.eq.u32 %p1, %r10, 0; @%p1 bra SPIN;
    bra JOIN;
    OTHER: mov.u32 %r10, 0;
    WORK: add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3000; @%p2 bra WORK;
    st.release.cta.shared.u32 [flag], %r10;
    JOIN:"""
        + STORE
        + "ret;"
    )
    assert words(body, 64) == [3000] * 64


def test_branch_table() -> None:
    body = (
        """mov.u32 %r3, %tid.x; and.b32 %r3, %r3, 3;
    TABLE: .branchtargets A, B, C, A;
    brx.idx %r3, TABLE;
    A: mov.u32 %r10, 100; bra END;
    B: mov.u32 %r10, 200; bra END;
    C: mov.u32 %r10, 300;
    END:"""
        + STORE
        + "ret;"
    )
    assert words(body) == [[100, 200, 300, 100][i % 4] for i in range(32)]


_TABLE = "T: .branchtargets A, B, C;\n"
_PLACES = "A: mov.u32 %r10, 100; bra END; B: mov.u32 %r10, 200; bra END; C: mov.u32 %r10, 300; END:"
# Ahead of the branch, the branch, threads; who is told to branch where, or what each thread comes to.
BRANCHES: dict[str, tuple[str, str, int, tuple[int, int, int] | list[int]]] = {
    "one behind the last": ("mov.u32 %r3, 3;", "brx.idx %r3, T;", 32, (0, 0, 3)),
    "far beyond": ("mov.u32 %r3, 99;", "brx.idx %r3, T;", 32, (0, 0, 99)),
    "an immediate": ("", "brx.idx 3, T;", 32, (0, 0, 3)),
    "negative": ("mov.s32 %r3, -1;", "brx.idx %r3, T;", 32, (0, 0, 0xFFFFFFFF)),
    "of all threads alike": ("mov.u32 %r3, 4;", "brx.idx.uni %r3, T;", 32, (0, 0, 4)),
    "of the last lane": ("shr.u32 %r3, %r0, 4; setp.eq.u32 %p0, %r0, 31; @%p0 mov.u32 %r3, 5;", "brx.idx %r3, T;", 32,
                         (0, 31, 5)),
    "of a second warp": ("shr.u32 %r3, %r0, 5; mul.lo.u32 %r3, %r3, 3;", "brx.idx %r3, T;", 64, (1, 0, 3)),
    "of an incomplete warp": ("sub.u32 %r3, %r0, 6;", "brx.idx %r3, T;", 40, (0, 0, 0xFFFFFFFA)),
    "of a thread that its guard lets branch": (
        "mov.u32 %r3, %r0; setp.lt.u32 %p0, %r0, 4;", "@%p0 brx.idx %r3, T;", 32, (0, 3, 3),
    ),
    "of a thread on a path of its own": (
        "mov.u32 %r10, 7; setp.ge.u32 %p0, %r0, 2; @%p0 bra END; add.u32 %r3, %r0, 2;",
        "brx.idx %r3, T;", 32, (0, 1, 3),
    ),
    "the last target": ("mov.u32 %r3, 2;", "brx.idx %r3, T;", 32, [300] * 32),
    "of threads whose guard keeps them from branching": (
        "mov.u32 %r3, %r0; mov.u32 %r10, 7; setp.lt.u32 %p0, %r0, 3;", "@%p0 brx.idx %r3, T; bra END;", 32,
        [100, 200, 300] + [7] * 29,
    ),
    "of threads that are elsewhere": (
        "mov.u32 %r3, %r0; mov.u32 %r10, 7; setp.ge.u32 %p0, %r0, 3; @%p0 bra END;", "brx.idx %r3, T;", 32,
        [100, 200, 300] + [7] * 29,
    ),
    "of threads that have ended": (
        "mov.u32 %r3, %r0; setp.ge.u32 %p0, %r0, 3; @%p0 exit;", "brx.idx %r3, T;", 40,
        [100, 200, 300] + [0xFFFFFFFF] * 37,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_index_beyond_a_branch_table(name: str) -> None:
    ahead, branch, threads, wanted = BRANCHES[name]
    body = f"mov.u32 %r0, %tid.x; {_TABLE} {ahead} {branch} {_PLACES}" + STORE + "ret;"
    if isinstance(wanted, list):
        assert words(body, threads) == wanted
        return
    warp, lane, index = wanted
    memory = GlobalMemory()
    outcome = run(module_text(["out"], REGS + body), [memory.alloc(256)], memory, block=threads)
    (found,) = outcome.findings
    assert (outcome.status, found.code.id, found.warp, found.lane) == ("error", "PT4019", warp, lane)
    assert f"index {index}" in found.message
    assert "table of 3 targets" in found.message


def test_early_exit_and_partial_warps() -> None:
    body = (
        """mov.u32 %r3, %tid.x; setp.lt.u32 %p0, %r3, 5; @!%p0 mov.u32 %r10, %r3; @%p0 exit;
    bar.sync 0;"""
        + STORE
        + "ret;"
    )
    assert words(body, 50) == [0xFFFFFFFF] * 5 + list(range(5, 50))


def test_called_functions_are_inlined() -> None:
    extra = """.func (.param .b32 result) twice(.param .b32 x)
    { .reg .b32 %r<4>; .reg .pred %p<2>; ld.param.b32 %r1, [x]; setp.gt.u32 %p1, %r1, 10; @%p1 bra BIG;
      shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret;
      BIG: st.param.b32 [result], %r1; ret; }"""
    body = (
        REGS
        + """mov.u32 %r3, %tid.x;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r3; call.uni (r), twice, (a); ld.param.b32 %r4, [r]; }
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r4; call.uni (r), twice, (a); ld.param.b32 %r10, [r]; }
    """
        + STORE
        + "ret;"
    )
    memory = GlobalMemory()
    out = memory.alloc(128)
    outcome = run(module_text(["out"], body, extra=extra), [out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]

    def twice(x: int) -> int:
        return x if x > 10 else 2 * x

    assert download(memory, out, 32, np.uint32).tolist() == [twice(twice(i)) for i in range(32)]


def test_printf_and_assert() -> None:
    extra = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
    .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
    .global .align 1 .b8 fmt[24] = {120, 61, 37, 100, 32, 121, 61, 37, 46, 50, 102, 32, 122, 61, 37, 108, 108, 117, 10};
    .global .align 1 .b8 msg[4] = {120, 62, 48}; .global .align 1 .b8 file[5] = {97, 46, 99, 117};"""
    body = (
        REGS
        + """.local .align 8 .b8 buf[24]; .reg .b64 %SP, %SPL; .reg .f64 %f<3>;
    mov.u32 %r3, %tid.x; setp.ne.u32 %p0, %r3, 3; @%p0 bra SKIP;
    mov.b64 %SPL, buf; cvta.local.u64 %SP, %SPL; mov.f64 %f1, 0d3FF4000000000000; mov.u64 %d3, 1099511627776;
    st.local.u32 [%SPL], -5; st.local.f64 [%SPL+8], %f1; st.local.u64 [%SPL+16], %d3;
    mov.u64 %d4, fmt; cvta.global.u64 %d5, %d4;
    { .param .b64 p0; .param .b64 p1; .param .b32 r; st.param.b64 [p0], %d5; st.param.b64 [p1], %SP;
      call.uni (r), vprintf, (p0, p1); ld.param.b32 %r5, [r]; }
    mov.u64 %d4, msg; cvta.global.u64 %d5, %d4; mov.u64 %d6, file; cvta.global.u64 %d7, %d6;
    { .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; st.param.b64 [p0], %d5;
      st.param.b64 [p1], %d7; st.param.b32 [p2], 77; st.param.b64 [p3], %d7; st.param.b64 [p4], 1;
      call.uni __assertfail, (p0, p1, p2, p3, p4); }
    SKIP: ret;"""
    )
    text: list[str] = []
    outcome = run(module_text([], body, extra=extra), [], GlobalMemory(), options=Options(print=text.append))
    assert text == ["x=-5 y=1.25 z=1099511627776\n"]
    assert outcome.status == "error"
    found = outcome.findings[0]
    assert found.code is Code.SIM_TRAP
    assert "a.cu:77: assertion `x>0` failed" in found.message
    assert found.lane == 3


def test_trap_names_the_thread() -> None:
    body = REGS + "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 37; @%p1 trap; ret;"
    found = run(module_text([], body), [], GlobalMemory(), 1, 64).findings[0]
    assert (found.code, found.warp, found.lane) == (Code.SIM_TRAP, 1, 5)


def test_unknown_instruction_is_incomplete_only_if_reached() -> None:
    body = REGS + "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, {limit}; @%p1 vadd.u32.u32.u32 %r1, %r1, %r1; ret;"
    good = run(module_text([], body.replace("{limit}", "100"), "sm_100a"), [], GlobalMemory())
    assert good.status == "ok"
    bad = run(module_text([], body.replace("{limit}", "10"), "sm_100a"), [], GlobalMemory())
    assert bad.status == "incomplete"
    assert bad.findings[0].code is Code.SIM_UNKNOWN_INSTRUCTION
    assert "vadd" in bad.findings[0].message
    assert bad.findings[0].ptx_line


def test_endless_loop_exhausts_the_budget() -> None:
    outcome = run(module_text([], "L: bra L; ret;"), [], GlobalMemory(), options=Options(max_warp_instructions=5000))
    assert outcome.status == "incomplete"
    assert outcome.findings[0].code is Code.SIM_BUDGET


@pytest.mark.parametrize(("launch", "why"), [
    (Launch((1, 1, 1), (1025, 1, 1)), "1024"), (Launch((3, 1, 1), (32, 1, 1), (2, 1, 1)), "multiple"),
    (Launch((0, 1, 1), (32, 1, 1)), "less than 1"), (Launch((1, 1, 1), (32, 1, 1), dynamic_smem=300000), "shared"),
    (Launch((1, 1, 1), (256, 1, 1)), "launch bounds"),
])  # fmt: skip
def test_refused_launches(launch: Launch, why: str) -> None:
    text = module_text([], "ret;").replace("\n{\n", "\n.maxntid 128, 1, 1\n{\n")
    outcome = simulate(parse_module(text), "k", launch, b"", GlobalMemory())
    assert outcome.status == "error"
    assert outcome.findings[0].code is Code.SIM_LAUNCH
    assert why in outcome.findings[0].message


def test_unknown_entry_lists_the_kernels() -> None:
    outcome = simulate(parse_module(module_text([], "ret;")), "x", Launch((1, 1, 1), (1, 1, 1)), b"", GlobalMemory())
    assert "it has: k" in outcome.findings[0].message


def test_params_are_aligned() -> None:
    text = """.version 9.0 .target sm_90a .address_size 64
    .visible .entry k(.param .u32 a, .param .u64 b, .param .align 64 .b8 c[128], .param .f32 d) { ret; }"""
    function = parse_module(text).entries()[0]
    image = pack_params(function, [1, 2, bytes(range(128)), 1.5])
    assert len(image) == 196
    assert image[8] == 2
    assert image[64:192] == bytes(range(128))
    assert image[192:] == np.float32(1.5).tobytes()
    with pytest.raises(ValueError, match="128 bytes"):
        pack_params(function, [1, 2, b"short", 1.5])
    with pytest.raises(ValueError, match="does not fit"):
        pack_params(function, [1 << 40, 2, bytes(128), 1.5])


def test_special_registers() -> None:
    body = (
        REGS
        + """mov.u32 %r1, %tid.y; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.y; mov.u32 %r4, %laneid;
    mov.u32 %r5, %warpid; shl.b32 %r1, %r1, 24; shl.b32 %r2, %r2, 20; shl.b32 %r3, %r3, 16; shl.b32 %r5, %r5, 8;
    or.b32 %r10, %r1, %r2; or.b32 %r10, %r10, %r3; or.b32 %r10, %r10, %r4; or.b32 %r10, %r10, %r5;
    mov.u32 %r6, %tid.x; mov.u32 %r7, %tid.y; mad.lo.u32 %r6, %r7, 8, %r6; mov.u32 %r7, %ctaid.x;
    mov.u32 %r8, %ctaid.y; mad.lo.u32 %r7, %r8, 2, %r7; mad.lo.u32 %r6, %r7, 64, %r6;
    ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r6, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r10; ret;"""
    )
    memory = GlobalMemory()
    out = memory.alloc(4 * 64 * 6)
    module = parse_module(module_text(["out"], body))
    launch = Launch((2, 3, 1), (8, 8, 1))
    outcome = simulate(module, "k", launch, pack_params(module.entries()[0], [out]), memory)
    assert outcome.status == "ok"
    got = download(memory, out, 384, np.uint32).reshape(3, 2, 8, 8)
    for y in range(3):
        for t in range(64):
            want = (t // 8) << 24 | y << 20 | 3 << 16 | (t // 32) << 8 | t % 32
            assert got[y, 0].reshape(-1)[t] == want


def test_module_variables_and_initializers() -> None:
    extra = """.const .align 4 .u32 table[4] = {10, 20, 30, 40};
    .global .align 8 .u64 where[1] = {generic(table)+8}; .global .align 4 .f32 half = 0f3F000000;"""
    body = (
        REGS
        + """mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 3; mul.wide.u32 %d2, %r1, 4; mov.u64 %d3, table;
    add.u64 %d3, %d3, %d2; ld.const.u32 %r10, [%d3]; ld.global.u64 %d4, [where]; ld.u32 %r3, [%d4];
    add.u32 %r10, %r10, %r3; ld.global.u32 %r4, [half]; shr.u32 %r4, %r4, 20; add.u32 %r10, %r10, %r4;
    """
        + STORE
        + "ret;"
    )
    memory = GlobalMemory()
    out = memory.alloc(128)
    outcome = run(module_text(["out"], body, extra=extra), [out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert download(memory, out, 32, np.uint32).tolist() == [10 * (i % 4 + 1) + 30 + 0x3F0 for i in range(32)]


def test_waves_cover_the_whole_grid() -> None:
    memory = GlobalMemory()
    out = upload(memory, np.zeros(1, np.uint32))
    body = REGS + "ld.param.u64 %d0, [out]; red.global.add.u32 [%d0], 1; ret;"
    outcome = run(module_text(["out"], body), [out], memory, 37, 64, options=Options(resident=5))
    assert outcome.status == "ok"
    assert download(memory, out, 1, np.uint32)[0] == 37 * 64
    assert outcome.stats.warp_instructions == 37 * 2 * 3
    assert outcome.stats.opcodes["red.global.add.u32"] == 74
