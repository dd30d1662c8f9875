# SPDX-License-Identifier: Apache-2.0
"""The kernels: what each is like, and what may be wrong with it."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
from sm100_idioms import (
    A_BYTES,
    B_BYTES,
    COPY,
    HEADER,
    IDESC,
    KT,
    MEET,
    ROLES,
    ROW,
    STAGE,
    Kernel,
    M,
    N,
    alloc,
    by_columns,
    commit,
    descriptor,
    free,
    in_halves,
    init,
    launch,
    load,
    mma,
    packed,
    products,
    published,
    read,
    registers,
    stages_back,
    wait,
    write,
)

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate


def specialized() -> Kernel:
    """One warp loads, one multiplies, four store: two stages, full and empty, and a last commit for the result."""
    tiles, stages = 4, 2
    done = 2 * stages
    body = init(*[1] * (2 * stages + 1)) + alloc(5) + published()
    body += ROLES
    body += "LOADS:\n"
    for k in range(tiles):
        if k >= stages:
            body += wait(stages + k % stages, (k // stages + 1) & 1, f"empty{k}")
        body += load(k % stages, k, k % stages)
    body += "bra END;\nMULTIPLIES:\n"
    for k in range(tiles):
        body += wait(k % stages, k // stages & 1, f"full{k}") + "tcgen05.fence::after_thread_sync;\n"
        body += mma(k % stages, k == 0) + commit(stages + k % stages, name=f"commit{k}")
    body += commit(done, name="last") + "bra END;\nSTORES:\n"
    body += wait(done, 0, "result") + "tcgen05.fence::after_thread_sync; //@after\n"
    body += read() + ROW + write() + free(5)
    return Kernel(
        body,
        192,
        {
            "stage refilled at once": ("empty2", "PT4010"),
            "data not waited for": ("full1", "H17"),
            "no commit for a stage": ("commit0", "PT4003"),
            "result not waited for": ("result", "H14"),
            "no last commit": ("last", "PT4003"),
            "freed at once": ("end_barrier", "H14"),
            "used before it is there": ("start_barrier", "H21"),
            "the wrong phase": (("[%bar+16], 0; @!%p9", "[%bar+16], 1; @!%p9"), "PT4010"),
            "half of the bytes": ((f"[%r5], {STAGE}; //@expect0", f"[%r5], {A_BYTES}; //@expect0"), "H17"),
            "commit of the next stage's": (("add.u32 %r5, %bar, 32;", "add.u32 %r5, %bar, 24;"), "PT4003"),
        },
    )


def elected_each_time() -> Kernel:
    """One warp loads and multiplies, and elects a thread anew for each instruction; loads run ahead by a stage."""
    tiles, stages = 3, 2
    chosen = "elect.sync _|%p4, 0xffffffff;\n"
    body = init(*[1] * (2 * stages + 1)) + alloc(0) + published() + "setp.ne.u32 %p2, %warp, 0; @%p2 bra STORES;\n"
    for k in range(tiles + 1):
        if k < tiles:
            if k >= stages:
                body += wait(stages + k % stages, (k // stages + 1) & 1, f"empty{k}")
            body += chosen + load(k % stages, k, k % stages, "%p4")
        if k:
            j = k - 1
            body += wait(j % stages, j // stages & 1, f"full{j}") + chosen + mma(j % stages, j == 0, "%p4")
            body += chosen + commit(stages + j % stages, "%p4", f"commit{j}")
    body += chosen + commit(2 * stages, "%p4", "last")
    body += "STORES: setp.gt.u32 %p2, %warp, 3; @%p2 bra END;\n"
    body += wait(2 * stages, 0, "result") + "tcgen05.fence::after_thread_sync;\n" + read() + ROW + write() + free(0)
    return Kernel(
        body,
        128,
        {
            "another thread commits": (
                (f"{chosen}add.u32 %r5, %bar, 32;", "setp.eq.u32 %p4, %lane, 7;\nadd.u32 %r5, %bar, 32;"),
                "H14",
            ),
            "every thread multiplies": (
                (
                    "@%p4 tcgen05.mma.cta_group::1.kind::f16 [%tmem], %d3, %d4, %id, %no",
                    "tcgen05.mma.cta_group::1.kind::f16 [%tmem], %d3, %d4, %id, %no",
                ),
                "H23",
            ),
            "every thread commits a stage": (("@%p4 tcgen05.commit", "tcgen05.commit"), "PT4003"),
            "data not waited for": ("full2", "H17"),
            "result not waited for": ("result", "H1"),
        },
        tiles,
    )


def two_multipliers() -> Kernel:
    """Two warps multiply the same A by halves of B, each with an accumulator of its own; both free a stage."""
    tiles, stages, half = 4, 2, N // 2
    done = 2 * stages
    body = init(*[1] * stages, *[2] * stages, 2) + alloc(5) + published()
    body += "setp.eq.u32 %p2, %warp, 4; @%p2 bra LOADS; setp.eq.u32 %p2, %warp, 5; @%p2 bra FIRST;\n"
    body += "setp.eq.u32 %p2, %warp, 6; @%p2 bra SECOND; bra STORES;\nLOADS:\n"
    for k in range(tiles):
        if k >= stages:
            body += wait(stages + k % stages, (k // stages + 1) & 1, f"empty{k}")
        body += load(k % stages, k, k % stages)
    body += "bra END;\n"
    for name, part in (("FIRST", 0), ("SECOND", 1)):
        body += f"{name}: add.u32 %r20, %tmem, {half * part}; //@column{part}\n"
        for k in range(tiles):
            body += wait(k % stages, k // stages & 1, f"full{part}{k}") + "tcgen05.fence::after_thread_sync;\n"
            body += mma(k % stages, k == 0, accumulator="%r20", base=part * half // 8, n=half)
            body += commit(stages + k % stages, name=f"commit{part}{k}")
        body += commit(done, name=f"last{part}") + "bra END;\n"
    body += "STORES:\n" + wait(done, 0) + "tcgen05.fence::after_thread_sync;\n" + read() + ROW + write() + free(5)
    stage_counts = "\n".join(f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], 2;" for i in (2, 3))
    result = "@%p0 mbarrier.init.shared::cta.b64 [%bar+32], 2;"
    return Kernel(
        body,
        224,
        {
            "a stage is free after one": ((stage_counts, stage_counts.replace(", 2;", ", 1;")), "PT4003"),
            "the result is there after one": ((result, result.replace(", 2;", ", 1;")), "PT4003"),
            "one accumulator for both": ((f"add.u32 %r20, %tmem, {half};", "mov.u32 %r20, %tmem;"), "H8"),
            "accumulators overlap": ((f"add.u32 %r20, %tmem, {half};", f"add.u32 %r20, %tmem, {half - 8};"), "H7"),
            "one does not wait": ("full12", "H17"),
        },
    )


def double_buffered() -> Kernel:
    """Several tiles of B for one of A that stays; accumulators in two buffers; eight warps store, each half of the
    columns. Loops with a stage and a phase."""
    tiles, half = 4, N // 2
    full, empty, there = 2, 4, 0  # mbarriers: B has landed (0), A (1), accumulators full (2, 3) and empty (4, 5)
    body = init(1, 1, 1, 1, 8, 8, 1) + alloc(8, 128) + published()
    body += "setp.eq.u32 %p2, %warp, 8; @%p2 bra MULTIPLIES; setp.eq.u32 %p2, %warp, 9; @%p2 bra LOADS; bra STORES;\n"
    body += f"""LOADS: add.u32 %r5, %bar, 8; add.u32 %r3, %sm, 0;
@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {A_BYTES};
@%one {COPY} [%r3], [%a], {A_BYTES}, [%r5];
mov.u32 %r10, 0; add.u32 %r4, %sm, {A_BYTES}; add.u32 %r5, %bar, {8 * there}; mov.u64 %d2, %b;
LOAD: @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {B_BYTES};
@%one {COPY} [%r4], [%d2], {B_BYTES}, [%r5];
add.u64 %d2, %d2, {B_BYTES}; and.b32 %r11, %r10, 1;
"""
    body += wait(6, "%r11", "operand_free")
    body += f"add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, {tiles}; @%p3 bra LOAD; bra END;\n"
    body += "MULTIPLIES:\n" + wait(1, 0, "a_landed") + "mov.u32 %r10, 0;\nMULTIPLY: and.b32 %r11, %r10, 1; "
    body += "shr.u32 %r12, %r10, 1; xor.b32 %r13, %r12, 1; and.b32 %r13, %r13, 1;\n"
    body += f"mad.lo.u32 %r14, %r11, 8, %bar; mad.lo.u32 %r20, %r11, {N}, %tmem;\n"
    body += wait(f"%r14+{8 * empty}", "%r13", "buffer_free") + "tcgen05.fence::after_thread_sync; //@after_free\n"
    body += wait(there, "%r11", "landed") + "tcgen05.fence::after_thread_sync;\n" + mma(0, True, accumulator="%r20")
    body += commit(6, name="operand_commit")
    body += f"add.u32 %r5, %r14, {8 * full};\n"
    body += "@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5]; //@commit\n"
    body += f"add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, {tiles}; @%p3 bra MULTIPLY; bra END;\n"
    body += "STORES: mov.u32 %r10, 0;\nSTORE: and.b32 %r11, %r10, 1; shr.u32 %r12, %r10, 1; and.b32 %r12, %r12, 1;\n"
    body += "mad.lo.u32 %r14, %r11, 8, %bar;\n" + wait(f"%r14+{8 * full}", "%r12", "filled")
    body += f"tcgen05.fence::after_thread_sync;\nshr.u32 %r15, %warp, 2; mad.lo.u32 %r16, %r11, {N}, %tmem; "
    body += (
        f"mad.lo.u32 %r16, %r15, {half}, %r16; and.b32 %r7, %warp, 3; shl.b32 %r7, %r7, 21; add.u32 %r7, %r7, %r16;\n"
    )
    body += f"tcgen05.ld.sync.aligned.32x32b.x{half}.b32 {registers(100, half)}, [%r7];\n"
    body += "tcgen05.wait::ld.sync.aligned; //@wait_ld\ntcgen05.fence::before_thread_sync; //@before_free\n"
    body += "bar.warp.sync 0xffffffff;\n"
    body += f"@%one mbarrier.arrive.shared::cta.b64 _, [%r14+{8 * empty}]; //@release\n" + ROW
    body += f"mul.wide.u32 %d5, %r8, {N * 4 * tiles}; add.u64 %d5, %d5, %c; mad.lo.u32 %r17, %r10, {N * 4}, 0; "
    body += f"mad.lo.u32 %r17, %r15, {half * 4}, %r17; cvt.u64.u32 %d6, %r17; add.u64 %d5, %d5, %d6;\n"
    for i in range(0, half, 4):
        body += f"st.global.v4.u32 [%d5+{4 * i}], {registers(100 + i, 4)};\n"
    body += f"add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, {tiles}; @%p3 bra STORE;\n" + free(8, 128)
    count = "\n".join(f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], 8;" for i in (4, 5))

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        rng = np.random.default_rng(3)
        a = rng.integers(-3, 4, (M, KT)).astype(np.float16)
        b = rng.integers(-3, 4, (N * tiles, KT)).astype(np.float16)
        parts = [packed(part) for part in np.split(b, tiles)]
        outcome, c = launch(text, kernel, [packed(a), np.concatenate(parts)], M * N * tiles * 4, options)
        return outcome, bool((c.view(np.float32).reshape(M, -1) == a.astype(float) @ b.astype(float).T).all())

    return Kernel(
        body,
        320,
        {
            "buffer not waited for": ("buffer_free", "H3"),
            "buffer free after half of the warps": ((count, count.replace(", 8;", ", 4;")), "PT4003"),
            "given back before the loads are done": ("wait_ld", "H3"),
            "given back ahead of the loads": (
                ("tcgen05.ld.sync", "@%one mbarrier.arrive.shared::cta.b64 _, [%r14+32]; tcgen05.ld.sync"),
                "PT4003",
            ),
            "operand not waited for": ("operand_free", "PT4010"),
            "A not waited for": ("a_landed", "H17"),
            "filled not waited for": ("filled", "PT4003"),
            "never given back": ("release", "PT4003"),
            "parity of the buffers alike": (("xor.b32 %r13, %r12, 1;", "xor.b32 %r13, %r10, 1;"), "PT4003"),
        },
        tiles,
        run=run,
    )


def pair() -> Kernel:
    """Two blocks share an MMA. Each loads its half of A and B and waits for it; the peer tells the leader by a remote
    arrival; commits go to both blocks."""
    tiles, stages = 4, 2
    b_half = B_BYTES // 2
    stage = A_BYTES + b_half
    done = 2 * stages
    body = "mov.u32 %r30, %cluster_ctarank; setp.eq.u32 %p5, %r30, 0; mul.wide.u32 %d7, %r30, "
    body += f"{A_BYTES * tiles}; add.u64 %a, %a, %d7; mul.wide.u32 %d7, %r30, {b_half * tiles}; add.u64 %b, %b, %d7;\n"
    body += "selp.u32 %r31, 2, 1, %p5; setp.eq.u32 %p0, %r0, 0; //@count\n"
    for i in range(stages):
        body += f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], %r31;\n"
    body += "".join(f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], 1;\n" for i in range(stages, done + 1))
    body += f"@%p0 fence.mbarrier_init.release.cluster;\n{MEET} //@met\n" + alloc(5, group=2) + published()
    body += ROLES
    body += "LOADS:\n"
    for k in range(tiles):
        if k >= stages:
            body += wait(stages + k % stages, (k // stages + 1) & 1, f"empty{k}")
        body += load(k % stages, k, k % stages, b=b_half)
        body += f"@%p5 bra TOLD{k};\n" + wait(k % stages, k // stages & 1, f"own{k}")
        body += "mapa.shared::cluster.u32 %r5, %r5, 0;\n"
        body += f"@%one mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5]; //@tell{k}\nTOLD{k}:\n"
    body += stages_back(stages, tiles) + "bra END;\nMULTIPLIES: @!%p5 bra END;\n"
    for k in range(tiles):
        body += (
            wait(k % stages, k // stages & 1, f"full{k}", ".acquire.cluster") + "tcgen05.fence::after_thread_sync;\n"
        )
        body += f"mov.u32 %id, {1 << 4 | N >> 3 << 17 | 2 * M >> 4 << 24};\n"
        for step in range(KT // 16):
            body += descriptor("%d3", k % stages * stage + step * 2 * M * 16, M * 16)
            body += descriptor("%d4", k % stages * stage + A_BYTES + step * 2 * (N // 2) * 16, N // 2 * 16)
            enable = "%no" if k + step == 0 else "%yes"
            body += f"@%one tcgen05.mma.cta_group::2.kind::f16 [%tmem], %d3, %d4, %id, {enable};\n"
        body += both(stages + k % stages, f"commit{k}")
    body += both(done, "last") + "bra END;\nSTORES:\n" + wait(done, 0, "result", ".acquire.cluster")
    body += "tcgen05.fence::after_thread_sync;\n" + read() + ROW + f"mad.lo.u32 %r8, %r30, {M}, %r8;\n" + write()
    body += free(5, group=2, barrier=MEET)

    return Kernel(
        body,
        192,
        {
            "the peer's data not waited for": (("selp.u32 %r31, 2, 1, %p5;", "mov.u32 %r31, 1;"), "PT4010"),
            "told before it is there": ("own1", "H25"),
            "told without release": (("mbarrier.arrive.release.cluster", "mbarrier.arrive.relaxed.cluster"), "H25"),
            "never told": ("tell2", "PT4003"),
            "the own empty only": ((f"{BOTH} [%r5], %h1; //@commit0", f"{ONE} [%r5]; //@commit0"), "PT4003"),
            "the own result only": ((f"{BOTH} [%r5], %h1; //@last", f"{ONE} [%r5]; //@last"), "PT4003"),
            "no meeting at the start": ("met", "H21"),
            "stage refilled at once": ("empty2", "H18"),
            "MMAs of both": (("MULTIPLIES: @!%p5 bra END;", "MULTIPLIES:"), "PT4003"),
            "a commit for one block": (
                (f"{BOTH} [%r5], %h1; //@commit1", f"{ONE.replace('::2', '::1')} [%r5]; //@commit1"),
                "PT4006",
            ),
        },
        tiles,
        blocks=2,
        cluster=2,
        run=products(a_in=in_halves, b_in=in_halves, rows=2 * M),
    )


ONE = "@%one tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64"
BOTH = "@%one tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"


def both(slot: int, name: str) -> str:
    return f"add.u32 %r5, %bar, {8 * slot}; mov.u16 %h1, 3;\n{BOTH} [%r5], %h1; //@{name}\n"


def scheduled() -> Kernel:
    """A warp asks for work of blocks that have not started; others do it, with a ring of two responses. Work is the
    number of a block, which is stored."""
    body = init(1, 1, 2, 2) + "bar.sync 0; //@start_barrier\nmov.u32 %r10, 0; mov.u32 %r12, %ctaid.x;\n"
    body += "setp.ne.u32 %p2, %warp, 0; @%p2 bra WORKS;\nASKS: and.b32 %r11, %r10, 1; shr.u32 %r13, %r10, 1; "
    body += "and.b32 %r13, %r13, 1; xor.b32 %r14, %r13, 1;\n"
    body += "mad.lo.u32 %r15, %r11, 8, %bar; mad.lo.u32 %r16, %r11, 16, %sm;\n"
    body += wait("%r15+16", "%r14", "free")
    body += (
        "@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r15], 16;\n@%one clusterlaunchcontrol.try_cancel.async"
    )
    body += ".shared::cta.mbarrier::complete_tx::bytes.b128 [%r16], [%r15];\n" + wait("%r15", "%r13", "asked")
    answer = "ld.shared.b128 %q0, [%r16]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q0;\n"
    body += answer + "fence.proxy.async.shared::cta; //@own_fence\nadd.u32 %r10, %r10, 1; @%p3 bra ASKS; bra END;\n"
    body += "WORKS: and.b32 %r11, %r10, 1; shr.u32 %r13, %r10, 1; and.b32 %r13, %r13, 1; "
    body += "mad.lo.u32 %r15, %r11, 8, %bar; mad.lo.u32 %r16, %r11, 16, %sm;\n"
    body += "mad.lo.u32 %r17, %r12, 64, %r0; mul.wide.u32 %d5, %r17, 4; add.u64 %d5, %d5, %c; add.u32 %r18, %r12, 1;\n"
    body += "st.global.u32 [%d5+-128], %r18;\n" + wait("%r15", "%r13", "answered") + answer
    body += "@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r12, %q0;\n"
    body += "fence.proxy.async.shared::cta; //@fence\nbar.warp.sync 0xffffffff;\n"
    body += "@%one mbarrier.arrive.shared::cta.b64 _, [%r15+16]; //@release\nadd.u32 %r10, %r10, 1; @%p3 bra WORKS;\n"
    body += "END: ret;"
    counts = "\n".join(f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * i}], 2;" for i in (2, 3))

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        zeros = np.zeros(16, np.uint8)
        outcome, c = launch(text, kernel, [zeros, zeros], kernel.blocks * 64 * 4, options)
        wanted = np.repeat(np.arange(kernel.blocks) + 1, 64)
        return outcome, bool((c.view(np.uint32) == wanted).all())

    return Kernel(
        body,
        96,
        {
            "answer not waited for": ("answered", "H17"),
            "slot not waited for": ("free", "H20"),
            "slot free after one of two": ((counts, counts.replace(", 2;", ", 1;")), "PT4003"),
            "slot never given back": ("release", "PT4003"),
            "the scheduler does not look": (
                ("add.u32 %r10, %r10, 1; @%p3 bra ASKS;", "add.u32 %r10, %r10, 1; bra ASKS;"),
                "PT4018",
            ),
            "given back before it is read": (
                (f"{answer}@%p3 cluster", f"@%one mbarrier.arrive.shared::cta.b64 _, [%r15+16];\n{answer}@%p3 cluster"),
                "PT4003",
            ),
            "no start": ("start_barrier", "H21"),
        },
        blocks=15,
        run=run,
    )


def dependent() -> Kernel:
    """Begins while the grid before it, which makes A, still runs: B is loaded ahead of griddepcontrol.wait."""
    body = init(1, 1, 1) + alloc(5) + published() + "griddepcontrol.launch_dependents;\n"
    body += ROLES
    body += f"""LOADS: add.u32 %r4, %sm, {A_BYTES}; add.u32 %r5, %bar, 8;
@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {B_BYTES};
@%one {COPY} [%r4], [%b], {B_BYTES}, [%r5];
griddepcontrol.wait; //@grid
@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {A_BYTES};
@%one {COPY} [%sm], [%a], {A_BYTES}, [%bar];
bra END;
MULTIPLIES:
"""
    body += wait(0, 0) + wait(1, 0, "weights") + "tcgen05.fence::after_thread_sync;\n" + mma(0, True) + commit(2)
    body += "bra END;\nSTORES:\n" + wait(2, 0) + "tcgen05.fence::after_thread_sync;\n" + read() + ROW
    body += write() + free(5)

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        rng = np.random.default_rng(3)
        a, b = (rng.integers(-3, 4, (rows, KT)).astype(np.float16) for rows in (M, N))
        memory = GlobalMemory()
        source = packed(a).reshape(-1).view(np.uint8)
        sizes = {"x": source.size, "a": A_BYTES, "b": B_BYTES, "c": M * N * 4}
        where = {name: memory.alloc(size, fill=0, name=name) for name, size in sizes.items()}
        memory.write(where["x"], source)
        memory.write(where["b"], packed(b).reshape(-1).view(np.uint8))
        maker = (
            "mul.wide.u32 %d1, %r0, 64; add.u64 %d2, %a, %d1; add.u64 %d3, %b, %d1; griddepcontrol.launch_dependents;\n"
        )
        for i in range(0, 64, 16):
            maker += (
                f"ld.global.v4.u32 {registers(100, 4)}, [%d2+{i}]; st.global.v4.u32 [%d3+{i}], {registers(100, 4)};\n"
            )
        maker += "st.global.u32 [%c], %r100; ret;"  # scratch that the next grid overwrites
        last = None
        for body, names, threads in ((maker, "xac", M), (text, "abc", kernel.threads)):
            module = parse_module(HEADER + body + "\n}\n")
            params = pack_params(module.function("kernel"), [where[n] for n in names])
            at = Launch((1, 1, 1), (threads, 1, 1), (1, 1, 1), 65536)
            last = simulate(module, "kernel", at, params, memory, options, prerequisite=last)
        assert last is not None
        c = memory.read(where["c"], M * N * 4).view(np.float32).reshape(M, N)
        return last, bool((c == a.astype(float) @ b.astype(float).T).all())

    return Kernel(
        body,
        192,
        {
            "no wait for the grid": ("grid", "G9"),
            "the wait comes too late": (
                (
                    "griddepcontrol.wait; //@grid\n" + body.partition("//@grid\n")[2].partition("bra END")[0],
                    body.partition("//@grid\n")[2].partition("bra END")[0] + "griddepcontrol.wait;\n",
                ),
                "G9",
            ),
            "another warp waits": (
                ("griddepcontrol.wait; //@grid\n", "bra LOAD_A;\nUNUSED: griddepcontrol.wait;\nLOAD_A:\n"),
                "G9",
            ),
            "a store ahead of the wait": (("STORES:\n", "STORES: st.global.u32 [%c], %r0;\n"), "G9"),
            "weights not waited for": ("weights", "H17"),
        },
        1,
        run=run,
    )


def staged_store() -> Kernel:
    """The result leaves as f16 through two buffers in shared memory: stmatrix, then bulk stores by one thread."""
    chunks, at = N // 16, 32768
    body = init(1, 1) + alloc(5) + published()
    body += ROLES
    body += "LOADS:\n" + load(0, 0, 0) + "bra END;\nMULTIPLIES:\n" + wait(0, 0) + mma(0, True) + commit(1)
    body += "bra END;\nSTORES:\n" + wait(1, 0) + "tcgen05.fence::after_thread_sync;\n"
    body += "setp.eq.u32 %p6, %r0, 0;\n"
    for q in range(chunks):
        if q >= 2:
            body += f"@%p6 cp.async.bulk.wait_group.read 1; //@read{q}\nbar.sync 1, 128; //@refill{q}\n"
        for part in range(2):
            body += (
                f"shl.b32 %r7, %warp, 21; add.u32 %r7, %r7, %tmem; add.u32 %r7, %r7, {16 * q + (16 * part << 16)};\n"
            )
            body += f"tcgen05.ld.sync.aligned.16x256b.x2.b32 {registers(100, 8)}, [%r7];\n"
            body += f"tcgen05.wait::ld.sync.aligned; //@wait_ld{q}{part}\n"
            for i in range(4):
                body += f"cvt.rn.f16x2.f32 %r{120 + i}, %r{100 + 2 * i + 1}, %r{100 + 2 * i};\n"
            # Matrices: rows 0 to 7 and 8 to 15 of columns 0 to 7, then of columns 8 to 15.
            body += "and.b32 %r8, %lane, 15; shr.u32 %r9, %lane, 4; shl.b32 %r10, %warp, 5; add.u32 %r8, %r8, %r10;\n"
            body += "mad.lo.u32 %r11, %r8, 32, %sm; mad.lo.u32 %r11, %r9, 16, %r11;\n"
            body += f"add.u32 %r11, %r11, {at + q % 2 * 4096 + part * 512};\n"
            body += f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r11], {registers(120, 4)};\n"
        body += f"fence.proxy.async.shared::cta; //@proxy{q}\nbar.sync 1, 128; //@staged{q}\n"
        body += f"add.u64 %d5, %c, {4096 * q}; add.u32 %r12, %sm, {at + q % 2 * 4096};\n"
        body += "@%p6 cp.async.bulk.global.shared::cta.bulk_group [%d5], [%r12], 4096;\n"
        body += f"@%p6 cp.async.bulk.commit_group; //@group{q}\n"
    body += "@%p6 cp.async.bulk.wait_group 0;\n" + free(5)

    return Kernel(
        body,
        192,
        {
            "no proxy fence": ("proxy1", "H27"),
            "stored before all warps have written": ("staged0", "H27"),
            "buffer refilled before it is read": ("read2", "H27"),
            "one group too many pending": (("wait_group.read 1; //@read2", "wait_group.read 2; //@read2"), "H27"),
            "only the issuer waits": ("refill2", "H27"),
            "another thread waits": (
                ("@%p6 cp.async.bulk.wait_group.read 1; //@read3", "@%one cp.async.bulk.wait_group.read 2; //@read3"),
                "H27",
            ),
            "no group": ("group0", "H27"),
            "the wrong barrier": (("bar.sync 1, 128; //@staged1", "bar.warp.sync 0xffffffff;"), "H27"),
        },
        1,
        run=products(partial(by_columns, width=16), tiles=1, result=np.float16),
    )


def weights_in_tensor_memory() -> Kernel:
    """Four warps bring A into Tensor Memory through registers, as dequantization does; B comes by bulk copies."""
    tiles, column = 4, N
    # mbarriers: B full (0, 1), stage empty (2, 3), A ready (4, 5), result (6)
    body = init(1, 1, 1, 1, 128, 128, 1) + alloc(5, 128) + published()
    body += "setp.eq.u32 %p2, %warp, 4; @%p2 bra LOADS; setp.eq.u32 %p2, %warp, 5; @%p2 bra MULTIPLIES;\n"
    body += f"mul.wide.u32 %d9, %r0, {tiles * KT * 2}; add.u64 %d9, %d9, %a;\n"
    body += "shl.b32 %r7, %warp, 21; add.u32 %r7, %r7, %tmem;\n"
    for k in range(tiles):
        for i in range(4):
            body += f"ld.global.v4.u32 {registers(100 + 4 * i, 4)}, [%d9+{k * KT * 2 + 16 * i}];\n"
        if k >= 2:
            body += wait(2 + k % 2, (k // 2 + 1) & 1, f"a_free{k}") + f"tcgen05.fence::after_thread_sync; //@after{k}\n"
        body += f"add.u32 %r9, %r7, {column + 16 * (k % 2)};\n"
        body += f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r9], {registers(100, 16)};\n"
        body += f"tcgen05.wait::st.sync.aligned; //@wait_st{k}\ntcgen05.fence::before_thread_sync; //@before{k}\n"
        body += f"mbarrier.arrive.shared::cta.b64 _, [%bar+{8 * (4 + k % 2)}]; //@ready{k}\n"
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%bar+32]; //@ready0"
    first = "tcgen05.st.sync" + body.partition("tcgen05.st.sync")[2].partition(arrive)[0] + arrive
    body += "bra STORES;\nLOADS:\n"
    for k in range(tiles):
        if k >= 2:
            body += wait(2 + k % 2, (k // 2 + 1) & 1, f"b_free{k}")
        body += (
            f"add.u64 %d2, %b, {k * B_BYTES}; add.u32 %r4, %sm, {k % 2 * B_BYTES}; add.u32 %r5, %bar, {8 * (k % 2)};\n"
        )
        body += f"@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {B_BYTES};\n"
        body += f"@%one {COPY} [%r4], [%d2], {B_BYTES}, [%r5];\n"
    body += f"bra END;\nMULTIPLIES: mov.u32 %id, {IDESC};\n"
    for k in range(tiles):
        body += wait(k % 2, k // 2 & 1, f"b_full{k}") + wait(4 + k % 2, k // 2 & 1, f"a_ready{k}")
        body += "tcgen05.fence::after_thread_sync;\n"
        for step in range(KT // 16):
            body += descriptor("%d4", k % 2 * B_BYTES + step * 2 * N * 16, N * 16)
            body += f"add.u32 %r9, %tmem, {column + 16 * (k % 2) + 8 * step};\n"
            enable = "%no" if k + step == 0 else "%yes"
            body += f"@%one tcgen05.mma.cta_group::1.kind::f16 [%tmem], [%r9], %d4, %id, {enable};\n"
        body += commit(2 + k % 2, name=f"commit{k}")
    body += (
        commit(6, name="last") + "bra END;\nSTORES:\n" + wait(6, 0, "result") + "tcgen05.fence::after_thread_sync;\n"
    )
    body += read() + ROW + write() + free(5, 128)

    return Kernel(
        body,
        192,
        {
            "store not waited for": ("wait_st1", "H4"),
            "ready before it is stored": ((first, f"{arrive}\n{first.removesuffix(arrive)}"), "H4"),
            "A overwritten at once": ("a_free2", "PT4003"),
            "A not waited for": ("a_ready1", "H4"),
            "B overwritten at once": ("b_free2", "PT4010"),
            "B not waited for": ("b_full3", "H17"),
            "A of half of the warps": (
                (
                    "@%p0 mbarrier.init.shared::cta.b64 [%bar+32], 128;",
                    "@%p0 mbarrier.init.shared::cta.b64 [%bar+32], 64;",
                ),
                "PT4003",
            ),
            "A where the sums are": ((f"add.u32 %r9, %r7, {column + 16};", f"add.u32 %r9, %r7, {column - 8};"), "H4"),
            "result not waited for": ("result", "H1"),
            "no commit for a stage": ("commit1", "PT4003"),
        },
        tiles,
        run=products(a_in=np.ascontiguousarray),
    )


def block_scaled() -> Kernel:
    """MXFP8: the warp that multiplies copies scale factors to Tensor Memory first, each stage to its own columns."""
    tiles, stages, k_bytes = 3, 2, 128
    a_bytes, b_bytes, factors = M * k_bytes, N * k_bytes, 512
    stage, done = a_bytes + b_bytes, 4
    places = 2 * stage  # of the factors, behind the operands
    body = init(1, 1, 1, 1, 1) + alloc(5, 128) + published()
    body += ROLES
    body += "LOADS:\n"
    for k in range(tiles):
        s = k % stages
        if k >= stages:
            body += wait(stages + s, (k // stages + 1) & 1, f"empty{k}")
        body += f"add.u32 %r5, %bar, {8 * s};\n"
        body += f"@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {stage + 2 * factors}; //@expect{k}\n"
        for start, size, to, base in (
            (k * a_bytes, a_bytes, s * stage, "%a"),
            (k * b_bytes, b_bytes, s * stage + a_bytes, "%b"),
            (tiles * a_bytes + k * factors, factors, places + 2 * factors * s, "%a"),
            (tiles * b_bytes + k * factors, factors, places + 2 * factors * s + factors, "%b"),
        ):
            body += f"add.u64 %d1, {base}, {start}; add.u32 %r3, %sm, {to};\n"
            body += f"@%one {COPY} [%r3], [%d1], {size}, [%r5];\n"
    body += "bra END;\nMULTIPLIES:\n"
    for k in range(tiles):
        s = k % stages
        body += wait(s, k // stages & 1, f"full{k}") + "tcgen05.fence::after_thread_sync;\n"
        body += f"add.u32 %r20, %tmem, {N + 8 * s}; add.u32 %r21, %tmem, {N + 8 * s + 4};\n"
        for part, to in enumerate(("%r20", "%r21")):
            body += descriptor("%d3", places + 2 * factors * s + part * factors, 16)
            body += f"@%one tcgen05.cp.cta_group::1.32x128b.warpx4 [{to}], %d3; //@factors{k}{part}\n"
        for i in range(4):
            body += f"mov.u32 %id, {N >> 3 << 17 | 1 << 23 | M >> 4 << 24 | i << 29 | i << 4};\n"
            body += descriptor("%d3", s * stage + i * 2 * M * 16, M * 16)
            body += descriptor("%d4", s * stage + a_bytes + i * 2 * N * 16, N * 16)
            enable = "%no" if k + i == 0 else "%yes"
            body += "@%one tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale "
            body += f"[%tmem], %d3, %d4, %id, [%r20], [%r21], {enable};\n"
        body += commit(stages + s, name=f"commit{k}")
    body += commit(done, name="last") + "bra END;\nSTORES:\n" + wait(done, 0, "result")
    body += "tcgen05.fence::after_thread_sync;\n" + read() + ROW + write() + free(5, 128)

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        rng = np.random.default_rng(3)
        data, values = [], []
        for rows in (M, N):
            x = rng.integers(-3, 4, (rows, tiles * k_bytes)).astype(ml_dtypes.float8_e4m3fn)
            scale = np.full((M, tiles * 4), 127, np.uint8)
            scale[:rows] = rng.integers(125, 130, (rows, tiles * 4))
            cores = x.reshape(rows // 8, 8, tiles, 8, 16).transpose(2, 3, 0, 1, 4)
            blocks = scale.reshape(4, 32, tiles, 4).transpose(2, 1, 0, 3)
            data.append(np.concatenate([np.ascontiguousarray(y).reshape(-1).view(np.uint8) for y in (cores, blocks)]))
            values.append(x.astype(float) * np.repeat(2.0 ** (scale[:rows].astype(float) - 127), 32, axis=1))
        outcome, c = launch(text, kernel, data, M * N * 4, options)
        return outcome, bool((c.view(np.float32).reshape(M, N) == values[0] @ values[1].T).all())

    return Kernel(
        body,
        192,
        {
            "factors ahead of the wait": ("full1", "H17"),
            "bytes of the operands only": ((f"{stage + 2 * factors}; //@expect2", f"{stage}; //@expect2"), "H17"),
            "factors where the sums are": ((f"add.u32 %r20, %tmem, {N + 8};", f"add.u32 %r20, %tmem, {N - 4};"), "H7"),
            "a thread copies that does not multiply": (("@%one tcgen05.cp", "@%p10 tcgen05.cp"), "H18"),
            "stage refilled at once": ("empty2", "PT4010"),
            "result not waited for": ("result", "H14"),
        },
        tiles,
        run=run,
    )


KERNELS = {
    "specialized": specialized(),
    "elected each time": elected_each_time(),
    "two multipliers": two_multipliers(),
    "double buffered": double_buffered(),
    "pair": pair(),
    "scheduled": scheduled(),
    "dependent": dependent(),
    "staged store": staged_store(),
    "weights in Tensor Memory": weights_in_tensor_memory(),
    "block-scaled": block_scaled(),
}
