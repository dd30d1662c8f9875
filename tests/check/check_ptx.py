# SPDX-License-Identifier: Apache-2.0
"""Small kernels with every synchronizing instruction named, so that a test can leave one out.

A line `text; //@name` is named; `kernel(text, "name")` leaves it out.
"""

from __future__ import annotations

import re

import numpy as np

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate

_TAG = re.compile(r"^.*//@(\w+)$", re.MULTILINE)

HEADER = """.version 8.7
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry kernel(.param .u64 in, .param .u64 out)
{{
.reg .b32 %r<99>; .reg .b64 %d<20>; .reg .pred %p<10>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0;
"""


def names(body: str) -> list[str]:
    return _TAG.findall(body)


def without(body: str, *left_out: str) -> str:
    missing = set(left_out) - set(names(body))
    assert not missing, missing
    return _TAG.sub(lambda m: "" if m.group(1) in left_out else m.group(0), body)


def check(
    body: str,
    target: str = "sm_100a",
    threads: int = 128,
    level: str = "strict",
    schedule: str = "late",
    seed: int = 0,
    grid: int = 1,
    cluster: int = 1,
    resident: int | None = None,
) -> Outcome:
    """Run a kernel in checking mode on 4 KiB of small f16 numbers; the output is 64 KiB of zeros."""
    memory = GlobalMemory()
    source, out = memory.alloc(4096, name="in"), memory.alloc(65536, fill=0, name="out")
    memory.write(source, np.arange(2048).astype(np.float16).view(np.uint8) % 8)
    module = parse_module(HEADER.format(target=target) + body + "\n}\n")
    options = Options(mode="checking", level=level, schedule=schedule, seed=seed, resident=resident)
    launch = Launch((grid, 1, 1), (threads, 1, 1), (cluster, 1, 1), dynamic_smem=8192)
    return simulate(module, "kernel", launch, pack_params(module.function("kernel"), [source, out]), memory, options)


def found(outcome: Outcome, severity: str = "error") -> set[str]:
    return {h.kind.id for h in outcome.hazards if h.severity == severity}


# Kernels ------------------------------------------------------------------------------------------------

VERSION = 1 << 46
A_DESC = 1024 >> 4 << 16 | 128 >> 4 << 32 | VERSION
B_DESC = 128 >> 4 << 16 | 128 >> 4 << 32 | VERSION
IDESC = 1 << 4 | 8 >> 3 << 17 | 64 >> 4 << 24

COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];"
MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r10], %d7, %d8, %r12, {enable};"

FILL = """mul.wide.u32 %d2, %r0, 16; add.u64 %d6, %d0, %d2; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d6];
mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};
st.shared.v4.u32 [%r3+2048], {%r4, %r5, %r6, %r7};
"""
DESCRIPTORS = f"""shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {A_DESC};
add.u32 %r3, %r2, 2048; shr.u32 %r3, %r3, 4; cvt.u64.u32 %d8, %r3; or.b64 %d8, %d8, {B_DESC};
setp.ne.u32 %p3, 0, 0; setp.ne.u32 %p4, 1, 0; mov.u32 %r12, {IDESC};
shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
"""


def try_wait(label: str, parity: int, name: str) -> str:
    """One line, so that it can be left out."""
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], {parity}; @!%p6 bra {label}; //@{name}\n"


TENSOR = (
    """@%p0 mbarrier.init.shared.b64 [%r8], 1;
fence.mbarrier_init.release.cluster;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;
NOALLOC:
bar.sync 0; //@alloc_barrier
ld.shared.u32 %r10, [%r9];
"""
    + FILL
    + DESCRIPTORS
    + """fence.proxy.async.shared::cta; //@proxy_fence
bar.sync 0; //@operand_barrier
@!%p0 bra FIRST;
"""
    + MMA.format(enable="%p3")
    + "\n"
    + MMA.format(enable="%p4")
    + f"\n{COMMIT} //@commit\nFIRST:\n"
    + try_wait("W1", 0, "wait")
    + """tcgen05.fence::after_thread_sync; //@after_mma
tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13];
tcgen05.wait::ld.sync.aligned; //@wait_ld
add.u32 %r50, %r40, %r41; add.u32 %r50, %r50, %r42; add.u32 %r50, %r50, %r43;
tcgen05.fence::before_thread_sync; //@before_overwrite
bar.sync 0; //@overwrite_barrier
tcgen05.fence::after_thread_sync; //@after_overwrite
@!%p0 bra SECOND;
"""
    + MMA.format(enable="%p3")
    + f"\n{COMMIT}\nSECOND:\n"
    + try_wait("W2", 1, "wait_again")
    + """tcgen05.fence::after_thread_sync; //@after_second
tcgen05.st.sync.aligned.16x256b.x1.b32 [%r13], {%r50, %r50, %r50, %r50};
tcgen05.wait::st.sync.aligned; //@wait_st
tcgen05.fence::before_thread_sync; //@before_use
bar.sync 0; //@use_barrier
tcgen05.fence::after_thread_sync; //@after_use
@!%p0 bra THIRD;
"""
    + MMA.format(enable="%p4")
    + f"\n{COMMIT}\nTHIRD:\n"
    + try_wait("W3", 0, "wait_third")
    + """tcgen05.fence::after_thread_sync; //@after_third
tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13];
tcgen05.wait::ld.sync.aligned; //@wait_last_ld
mul.wide.u32 %d2, %r0, 16; add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {%r40, %r41, %r42, %r43};
tcgen05.fence::before_thread_sync; //@before_dealloc
bar.sync 0; //@dealloc_barrier
tcgen05.fence::after_thread_sync; //@after_dealloc
@!%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
END: ret;
"""
)

BULK = """@%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 fence.mbarrier_init.release.cluster; //@init_fence
bar.sync 0; //@init_barrier
@!%p0 bra LOADED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8];
LOADED:
W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W1; //@wait
mad.lo.u32 %r3, %r0, 16, %r2; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];
fence.proxy.async.shared::cta; //@refill_fence
bar.sync 0; //@refill_barrier
@!%p0 bra REFILLED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8];
REFILLED:
W2: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 1; @!%p6 bra W2;
st.shared.v4.u32 [%r3+4096], {%r4, %r5, %r6, %r7};
fence.proxy.async.shared::cta; //@store_fence
bar.sync 0; //@store_barrier
@!%p0 bra STORED;
add.u32 %r20, %r2, 4096;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r20], 2048;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; //@store_wait
STORED:
bar.sync 0; //@reuse_barrier
st.shared.v4.u32 [%r3+4096], {%r4, %r5, %r6, %r7};
ret;
"""

WGMMA = (
    FILL
    + f"""shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {A_DESC ^ VERSION};
add.u32 %r3, %r2, 2048; shr.u32 %r3, %r3, 4; cvt.u64.u32 %d8, %r3; or.b64 %d8, %d8, {B_DESC ^ VERSION};
fence.proxy.async.shared::cta; //@proxy_fence
bar.sync 0; //@operand_barrier
setp.ne.u32 %p3, 0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r40, %r41, %r42, %r43}}, %d7, %d8, %p3, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; //@commit
wgmma.wait_group.sync.aligned 0; //@wait
add.u32 %r50, %r40, %r41;
bar.sync 0; //@reuse_barrier
mad.lo.u32 %r3, %r0, 16, %r2;
st.shared.v4.u32 [%r3], {{%r50, %r50, %r50, %r50}}; st.shared.v4.u32 [%r3+2048], {{%r50, %r50, %r50, %r50}};
ret;
"""
)
