# SPDX-License-Identifier: Apache-2.0
"""Kernels in which operands come in other ways: through registers, by cp.async, by copies for two blocks."""

from __future__ import annotations

from sm100_idioms import (
    A_BYTES,
    B_BYTES,
    COPY,
    MEET,
    ROLES,
    ROW,
    STAGE,
    Kernel,
    M,
    alloc,
    commit,
    free,
    in_halves,
    init,
    mma,
    products,
    published,
    read,
    registers,
    stages_back,
    wait,
    write,
)

PROXY = "fence.proxy.async.shared::cta;"


def _by_threads(piece: str, ready: str, consumer: str = "") -> str:
    """Four warps bring both operands in pieces of 16 bytes. `ready` ends a stage {k} on the mbarrier at {bar}."""
    tiles, stages, done = 3, 2, 4
    body = init(128, 128, 1, 1, 1) + alloc(5) + published()
    body += "setp.eq.u32 %p2, %warp, 5; @%p2 bra MULTIPLIES; setp.gt.u32 %p2, %warp, 3; @%p2 bra END;\n"
    body += "mul.wide.u32 %d9, %r0, 16; mad.lo.u32 %r9, %r0, 16, %sm;\n"
    for k in range(tiles):
        s = k % stages
        if k >= stages:
            body += wait(stages + s, (k // stages + 1) & 1, f"empty{k}")
        for base, size, at in (("%a", A_BYTES, 0), ("%b", B_BYTES, A_BYTES)):
            body += f"add.u64 %d1, {base}, {k * size}; add.u64 %d1, %d1, %d9;\n"
            for i in range(0, size, 2048):
                body += piece.format(source=f"%d1+{i}", target=f"%r9+{s * STAGE + at + i}") + "\n"
        body += ready.format(k=k, bar=f"%bar+{8 * s}") + "\n"
    body += "bra STORES;\nMULTIPLIES:\n"
    for k in range(tiles):
        body += wait(k % stages, k // stages & 1, f"full{k}") + consumer + "tcgen05.fence::after_thread_sync;\n"
        body += mma(k % stages, k == 0) + commit(stages + k % stages, name=f"commit{k}")
    body += commit(done, name="last") + "bra END;\nSTORES:\n" + wait(done, 0, "result")
    return body + "tcgen05.fence::after_thread_sync;\n" + read() + ROW + write() + free(5)


_THROUGH = f"{{{registers(100, 4)}}}"
_STORED = f"ld.global.v4.u32 {_THROUGH}, [{{source}}]; st.shared.v4.u32 [{{target}}], {_THROUGH};"
_COPIED = "cp.async.cg.shared.global [{target}], [{source}], 16;"
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [{bar}]; //@arrive{k}"


def gathered() -> Kernel:
    """By stores of threads, as what computes addresses or converts does."""
    body = _by_threads(_STORED, f"{PROXY} //@fence{{k}}\n{_ARRIVE}")
    return Kernel(
        body,
        192,
        {
            "data not waited for": ("full1", "H16"),
            "never told": ("arrive1", "PT4003"),
            "a stage that is never free": ("commit0", "PT4003"),
        },
        3,
    )


def copied() -> Kernel:
    """By cp.async, whose end an mbarrier tells; the thread that multiplies has the proxy fence."""
    body = _by_threads(
        _COPIED, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{bar}]; //@arrive{k}", f"{PROXY} //@fence\n"
    )
    arrive = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%bar+8]; //@arrive1"
    return Kernel(
        body,
        192,
        {
            "data not waited for": ("full1", "H17"),
            "an arrival that waits for no copy": ((arrive, "mbarrier.arrive.shared::cta.b64 _, [%bar+8];"), "H17"),
            "one arrival more than counted": ((arrive, arrive.replace(".noinc", "")), "PT4003"),
        },
        3,
    )


def waited_for() -> Kernel:
    """By cp.async, whose end each thread waits for."""
    body = _by_threads(
        _COPIED, f"cp.async.commit_group; cp.async.wait_group 0; //@group{{k}}\n{PROXY} //@fence{{k}}\n{_ARRIVE}"
    )
    return Kernel(
        body,
        192,
        {
            "copies not waited for": ("group1", "H17"),
            "a group too many pending": (("cp.async.wait_group 0; //@group1", "cp.async.wait_group 1;"), "H17"),
        },
        3,
    )


def multicast() -> Kernel:
    """Two blocks with an A each and one B, of which each block loads half for both; commits tell both that a stage is
    free."""
    tiles, stages, done, half = 4, 2, 4, B_BYTES // 2
    both = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5], %h1;"
    own = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5];"
    body = f"mov.u32 %r30, %cluster_ctarank; mul.wide.u32 %d7, %r30, {A_BYTES * tiles}; add.u64 %a, %a, %d7;\n"
    body += f"mov.u16 %h1, 3; mul.lo.u32 %r31, %r30, {half}; cvt.u64.u32 %d8, %r31; add.u64 %b, %b, %d8;\n"
    body += init(1, 1, 2, 2, 1) + f"{MEET} //@met\n" + alloc(5) + published()
    body += ROLES
    body += "LOADS:\n"
    for k in range(tiles):
        s = k % stages
        if k >= stages:
            body += wait(stages + s, (k // stages + 1) & 1, f"empty{k}", ".acquire.cluster")
        body += f"add.u64 %d1, %a, {k * A_BYTES}; add.u64 %d2, %b, {k * B_BYTES}; add.u32 %r3, %sm, {s * STAGE};\n"
        body += f"add.u32 %r4, %r3, {A_BYTES}; add.u32 %r4, %r4, %r31; add.u32 %r5, %bar, {8 * s};\n"
        body += f"@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {STAGE}; //@expect{k}\n"
        body += f"@%one {COPY} [%r3], [%d1], {A_BYTES}, [%r5];\n"
        body += f"@%one {COPY}.multicast::cluster [%r4], [%d2], {half}, [%r5], %h1; //@half{k}\n"
    body += stages_back(stages, tiles) + "bra END;\nMULTIPLIES:\n"
    for k in range(tiles):
        body += wait(k % stages, k // stages & 1, f"full{k}", ".acquire.cluster")
        body += "tcgen05.fence::after_thread_sync;\n" + mma(k % stages, k == 0)
        body += f"add.u32 %r5, %bar, {8 * (stages + k % stages)};\n@%one {both} //@commit{k}\n"
    body += commit(done, name="last") + "bra END;\nSTORES:\n" + wait(done, 0, "result")
    body += "tcgen05.fence::after_thread_sync;\n" + read() + ROW + f"mad.lo.u32 %r8, %r30, {M}, %r8;\n" + write()
    body += free(5, barrier=MEET)

    return Kernel(
        body,
        192,
        {
            "the other block's stage overwritten": ((f"{both} //@commit0", f"{own} //@commit0"), "PT4003"),
            "stage refilled at once": ("empty2", "PT4010"),
            "data not waited for": ("full1", "H17"),
            "half of B": ("half1", "PT4003"),
            "no meeting at the start": ("met", "H21"),
        },
        tiles,
        blocks=2,
        cluster=2,
        run=products(a_in=in_halves, rows=2 * M),
    )


KERNELS = {
    "gathered": gathered(),
    "copied": copied(),
    "waited for": waited_for(),
    "multicast": multicast(),
}
