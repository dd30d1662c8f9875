# SPDX-License-Identifier: Apache-2.0
"""Kernels around what has been reported as wrong in code for SM100: accumulators that other warps correct between
products, Tensor Memory handed on by named barriers, stages given back while loads are in flight, and data that comes
from another block.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from sm100_idioms import (
    AFTER,
    B_BYTES,
    BEFORE,
    COPY,
    IDESC,
    KT,
    MEET,
    ROLES,
    ROW,
    Kernel,
    M,
    N,
    alloc,
    by_columns,
    commit,
    descriptor,
    free,
    init,
    lanes,
    launch,
    load,
    mma,
    products,
    published,
    read,
    registers,
    wait,
    write,
)

from porter.sim import Options, Outcome


def corrected() -> Kernel:
    """Four warps multiply the accumulator by a factor between products, as attention does when a maximum grows."""
    tiles, stages, there, scaled = 3, 2, 4, 5
    body = init(1, 1, 1, 1, 1, 4) + alloc(5) + published() + ROLES + "LOADS:\n"
    for k in range(tiles):
        if k >= stages:
            body += wait(stages + k % stages, (k // stages + 1) & 1)
        body += load(k % stages, k, k % stages)
    body += "bra END;\nMULTIPLIES:\n"
    for k in range(tiles):
        if k:
            body += wait(scaled, (k - 1) & 1, f"scaled{k}") + f"tcgen05.fence::after_thread_sync; //@after{k}\n"
        body += wait(k % stages, k // stages & 1) + mma(k % stages, k == 0) + commit(stages + k % stages)
        body += commit(there, name=f"there{k}")
    body += "bra END;\nSTORES:\n"
    for k in range(tiles - 1):
        body += wait(there, k & 1, f"product{k}") + AFTER + read(name=f"wait_ld{k}")
        body += "".join(f"mul.rn.f32 %r{100 + i}, %r{100 + i}, 0fC0000000;\n" for i in range(N))
        body += f"tcgen05.st.sync.aligned.32x32b.x{N}.b32 [%r7], {registers(100, N)};\n"
        body += f"tcgen05.wait::st.sync.aligned; //@wait_st{k}\n{BEFORE}bar.warp.sync 0xffffffff;\n"
        body += f"@%one mbarrier.arrive.shared::cta.b64 _, [%bar+{8 * scaled}]; //@tell{k}\n"
    body += wait(there, (tiles - 1) & 1, "result") + AFTER + read() + ROW + write() + free(5)

    def wanted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = np.zeros((M, N))
        for part in (slice(k * KT, (k + 1) * KT) for k in range(tiles)):
            c = -2 * c + a[:, part] @ b[:, part].T
        return c

    four = f"@%p0 mbarrier.init.shared::cta.b64 [%bar+{8 * scaled}], 4;"
    told = f"@%one mbarrier.arrive.shared::cta.b64 _, [%bar+{8 * scaled}]; //@tell0"
    return Kernel(
        body,
        192,
        {
            "the correction not waited for": ("scaled1", "H2"),
            "the product not waited for": ("product1", "PT4003"),
            "the store not waited for": ("wait_st0", "H4"),
            "the first correction alone": ((four, four.replace("4;", "1;")), "PT4003"),
            "told by one warp": ((told, told.replace("@%one", "@%p0")), "PT4003"),
            "the result not waited for": ("result", "H14"),
            "never told": ("tell1", "PT4003"),
        },
        tiles,
        run=products(wanted),
    )


def named_barriers() -> Kernel:
    """A goes to Tensor Memory by four warps, which meet the one that multiplies at named barriers; who is early only
    arrives."""
    column, free_, ready = N, 3, 4
    tiles = 3
    body = init(1, 1, 1) + alloc(5, 128) + published()
    body += "setp.eq.u32 %p2, %warp, 5; @%p2 bra MULTIPLIES; setp.gt.u32 %p2, %warp, 3; @%p2 bra END;\n"
    body += f"mul.wide.u32 %d9, %r0, {tiles * KT * 2}; add.u64 %d9, %d9, %a;\n"
    for k in range(tiles):
        for i in range(4):
            body += f"ld.global.v4.u32 {registers(100 + 4 * i, 4)}, [%d9+{k * KT * 2 + 16 * i}];\n"
        if k:
            body += f"bar.sync {free_}, 160; //@free{k}\n{AFTER}"
        body += lanes(column) + f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r7], {registers(100, 16)};\n"
        body += f"tcgen05.wait::st.sync.aligned; //@wait_st{k}\n{BEFORE}bar.arrive {ready}, 160; //@ready{k}\n"
    body += f"bra STORES;\nMULTIPLIES: mov.u32 %id, {IDESC};\n"
    for k in range(tiles):
        body += (
            f"add.u64 %d2, %b, {k * B_BYTES};\n@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {B_BYTES};\n"
        )
        body += f"@%one {COPY} [%sm], [%d2], {B_BYTES}, [%bar];\n" + wait(0, k & 1, f"landed{k}")
        body += f"bar.sync {ready}, 160; //@stored{k}\n{AFTER}"
        for step in range(KT // 16):
            body += descriptor("%d4", step * 2 * N * 16, N * 16) + f"add.u32 %r9, %tmem, {column + 8 * step};\n"
            enable = "%no" if k + step == 0 else "%yes"
            body += f"@%one tcgen05.mma.cta_group::1.kind::f16 [%tmem], [%r9], %d4, %id, {enable};\n"
        body += commit(1, name=f"commit{k}") + wait(1, k & 1, f"multiplied{k}")
        if k + 1 < tiles:
            body += f"{AFTER}{BEFORE}bar.arrive {free_}, 160; //@freed{k}\n"
    body += commit(2, name="last") + "bra END;\nSTORES:\n" + wait(2, 0, "result") + AFTER
    body += read() + ROW + write() + free(5, 128)

    return Kernel(
        body,
        192,
        {
            "the store not waited for": ("wait_st1", "H4"),
            "only arrives where it has to wait": (
                (f"bar.sync {ready}, 160; //@stored1", f"bar.arrive {ready}, 160;"),
                "H4",
            ),
            "freed ahead of the product": ("multiplied1", "H18"),
            "overwritten at once": ((f"bar.sync {free_}, 160; //@free1", f"bar.arrive {free_}, 160;"), "PT4003"),
            "a barrier of its own for each side": (
                (f"bar.arrive {ready}, 160; //@ready1", "bar.arrive 5, 160;"),
                "PT4003",
            ),
            "a warp too few": ((f"bar.sync {ready}, 160; //@stored1", f"bar.sync {ready}, 128;"), "PT4016"),
            "B not waited for": ("landed1", "H17"),
        },
        tiles,
        run=products(a_in=np.ascontiguousarray),
    )


def handed_back() -> Kernel:
    """One buffer of sums that is filled again: it is loaded in halves, and given back when both have arrived."""
    tiles, half, full, empty = 3, N // 2, 2, 3
    body = init(1, 1, 1, 4) + alloc(5) + published() + ROLES + "LOADS:\n"
    for k in range(tiles):
        if k:
            body += wait(1, (k - 1) & 1)
        body += load(0, k, 0)
    body += "bra END;\nMULTIPLIES:\n"
    for k in range(tiles):
        if k:
            body += wait(empty, (k - 1) & 1, f"empty{k}") + AFTER
        body += wait(0, k & 1) + mma(0, True) + commit(1) + commit(full, name=f"full{k}")
    body += "bra END;\nSTORES:\n"
    for k in range(tiles):
        body += wait(full, k & 1, f"filled{k}") + AFTER + lanes()
        body += f"tcgen05.ld.sync.aligned.32x32b.x{half}.b32 {registers(100, half)}, [%r7];\n"
        body += f"tcgen05.ld.sync.aligned.32x32b.x{half}.b32 {registers(100 + half, half)}, [%r7+{half}];\n"
        body += f"tcgen05.wait::ld.sync.aligned; //@wait_ld{k}\n{BEFORE}bar.warp.sync 0xffffffff; //@lanes{k}\n"
        body += f"@%one mbarrier.arrive.shared::cta.b64 _, [%bar+{8 * empty}]; //@back{k}\n" + ROW
        body += f"mad.lo.u32 %r8, %r8, {tiles}, {k};\n" + write()
    body += free(5)

    def wanted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.stack([a[:, p] @ b[:, p].T for p in (slice(k * KT, (k + 1) * KT) for k in range(tiles))], 1)

    wait0 = "tcgen05.wait::ld.sync.aligned; //@wait_ld0\n"
    later = "bar.warp.sync 0xffffffff; //@lanes0\n"
    back = f"@%one mbarrier.arrive.shared::cta.b64 _, [%bar+{8 * empty}]; //@back0\n"
    return Kernel(
        body,
        192,
        {
            "loads in flight": ("wait_ld1", "H3"),
            "waits behind the arrival": (
                (f"{wait0}{BEFORE}{later}{back}", f"{BEFORE}{later}{back}{wait0}"),
                "H3",
            ),
            "filled again at once": ("empty1", "H3"),
            "another warp's lanes": (("and.b32 %r7, %warp, 3;", "xor.b32 %r7, %warp, 3;"), "PT4009"),
            "never given back": ("back1", "PT4003"),
            "not filled": ("full1", "PT4003"),
        },
        tiles,
        run=products(wanted),
    )


def freed_by_one() -> Kernel:
    """Behind the last loads only the warps that have made them meet; one of them frees."""
    body = init(1, 1) + alloc(0) + published()
    body += "setp.eq.u32 %p2, %warp, 4; @%p2 bra LOADS;\n" + wait(1, 0, "result") + AFTER + lanes()
    body += f"tcgen05.ld.sync.aligned.32x32b.x{N}.b32 {registers(100, N)}, [%r7];\n"
    body += f"tcgen05.wait::ld.sync.aligned; //@wait_ld\n{BEFORE}bar.sync 2, 128; //@met\n{AFTER}"
    body += "setp.ne.u32 %p1, %warp, 0; @%p1 bra KEPT;\n"
    body += "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64; //@dealloc\nKEPT:\n" + ROW + write() + "ret;\n"
    body += "LOADS:\n" + load(0, 0, 0) + wait(0, 0, "landed") + mma(0, True) + commit(1, name="last") + "ret;"
    return Kernel(
        body,
        160,
        {
            "freed while others load": ("met", "H14"),
            "freed while it loads": ("wait_ld", "H14"),
            "freed twice": (("KEPT:\n", "KEPT: tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64;\n"), "PT4006"),
            "half of the columns": (("%tmem, 64; //@dealloc", "%tmem, 32;"), "PT4006"),
            "never freed": ("dealloc", "PT4008"),
            "never committed": ("last", "PT4003"),
        },
        1,
    )


def sent() -> Kernel:
    """Block 1 sends words to block 0, one by one with st.async and as a whole by a bulk copy between shared memories;
    both count on an mbarrier of block 0."""
    body = "mov.u32 %r30, %cluster_ctarank; setp.eq.u32 %p5, %r30, 0;\n" + init(1) + f"{MEET} //@met\n"
    body += "@%p5 bra GETS;\nmapa.shared::cluster.u32 %r5, %bar, 0; mapa.shared::cluster.u32 %r4, %sm, 0;\n"
    body += "add.u32 %r6, %r0, 100; mad.lo.u32 %r3, %r0, 4, %sm; st.shared.u32 [%r3+1024], %r6;\n"
    body += "fence.proxy.async.shared::cta; //@proxy\nbar.sync 1, 128; //@filled\n"
    body += "add.u32 %r9, %r4, 512; add.u32 %r10, %sm, 1024;\n"
    body += "setp.eq.u32 %p0, %r0, 0;\n@%p0 cp.async.bulk.shared::cluster.shared::cta"
    body += ".mbarrier::complete_tx::bytes [%r9], [%r10], 512, [%r5]; //@copy\n"
    body += "mad.lo.u32 %r4, %r0, 4, %r4; add.u32 %r6, %r0, 7;\n"
    body += "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r6, [%r5]; //@send\nbra END;\n"
    body += "GETS: @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024; //@expect\n" + wait(
        0, 0, "arrived", ".acquire.cluster"
    )
    body += "mad.lo.u32 %r4, %r0, 4, %sm; ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r7, [%r4+512];\n"
    body += "mul.wide.u32 %d5, %r0, 8; add.u64 %d5, %d5, %c; st.global.v2.u32 [%d5], {%r6, %r7};\n"
    body += f"END: {MEET} //@stay\nret;"

    def run(text: str, kernel: Kernel, options: Options) -> tuple[Outcome, bool]:
        zeros = np.zeros(16, np.uint8)
        outcome, c = launch(text, kernel, [zeros, zeros], 1024, options)
        got, n = c.view(np.uint32).reshape(128, 2), np.arange(128)
        return outcome, bool((got[:, 0] == n + 7).all() and (got[:, 1] == n + 100).all())

    return Kernel(
        body,
        128,
        {
            "gone at once": ((f"END: {MEET} //@stay", "END:"), "X1"),
            "not waited for": ("arrived", "H17"),
            "too few bytes": (("[%bar], 1024; //@expect", "[%bar], 512;"), "H17"),
            "too many bytes": (("[%bar], 1024; //@expect", "[%bar], 2048;"), "PT4003"),
            "counted by each block for all": (
                (
                    "GETS: @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;",
                    "GETS: mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;",
                ),
                "PT4010",
            ),
            "the own mbarrier": (
                ("mapa.shared::cluster.u32 %r5, %bar, 0;", "mapa.shared::cluster.u32 %r5, %bar, 1;"),
                "PT4003",
            ),
            "nobody met": ("met", "H21"),
            "no proxy fence": ("proxy", "H27"),
            "copied before it is there": ("filled", "H27"),
        },
        1,
        2,
        2,
        run=run,
    )


def summed() -> Kernel:
    """Two blocks add their halves of K to the output by bulk reductions from shared memory, two buffers in turn."""
    chunks, width = 4, N // 4
    body = "mov.u32 %r30, %ctaid.x; mul.wide.u32 %d7, %r30, 8192; add.u64 %a, %a, %d7; mul.wide.u32 %d7, %r30, 4096;\n"
    body += "add.u64 %b, %b, %d7;\n" + init(1, 1) + alloc(5) + published() + ROLES
    body += "LOADS:\n" + load(0, 0, 0) + "bra END;\nMULTIPLIES:\n" + wait(0, 0) + mma(0, True) + commit(1)
    body += "bra END;\nSTORES:\n" + wait(1, 0) + AFTER + read() + "setp.eq.u32 %p6, %r0, 0;\n"
    for q in range(chunks):
        if q >= 2:
            body += f"@%p6 cp.async.bulk.wait_group.read 1; //@read{q}\nbar.sync 1, 128; //@refill{q}\n"
        body += f"mad.lo.u32 %r11, %r0, {4 * width}, %sm; add.u32 %r11, %r11, {16384 + q % 2 * M * width * 4};\n"
        for i in range(0, width, 4):
            body += f"st.shared.v4.u32 [%r11+{4 * i}], {registers(100 + q * width + i, 4)};\n"
        body += f"fence.proxy.async.shared::cta; //@proxy{q}\nbar.sync 1, 128; //@staged{q}\n"
        body += f"add.u64 %d5, %c, {q * M * width * 4}; add.u32 %r12, %sm, {16384 + q % 2 * M * width * 4};\n"
        body += "@%p6 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
        body += f"[%d5], [%r12], {M * width * 4}; //@add{q}\n"
        body += f"@%p6 cp.async.bulk.commit_group; //@group{q}\n"
    body += "@%p6 cp.async.bulk.wait_group 0;\n" + free(5)

    add = f".bulk_group.add.f32 [%d5], [%r12], {M * width * 4}; //@add1"
    return Kernel(
        body,
        192,
        {
            "no proxy fence": ("proxy1", "H27"),
            "added before all warps have written": ("staged0", "H27"),
            "buffer refilled before it is read": ("read2", "H27"),
            "only the issuer waits": ("refill2", "H27"),
            "stored instead of added": (
                (
                    f"cp.reduce.async.bulk.global.shared::cta{add}",
                    f"cp.async.bulk.global.shared::cta{add.replace('.add.f32', '')}",
                ),
                "G5",
            ),
        },
        1,
        2,
        run=products(partial(by_columns, width=width), tiles=2),
    )


KERNELS = {
    "corrected": corrected(),
    "named barriers": named_barriers(),
    "handed back": handed_back(),
    "freed by one": freed_by_one(),
    "sent": sent(),
    "summed": summed(),
}
