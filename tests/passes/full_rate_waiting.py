# SPDX-License-Identifier: Apache-2.0
"""Consumers that wait for each other, which would wait for good once they meet for each batch; values that asm
makes of a thread's own, and names of the index that are not plain to see."""

from __future__ import annotations

from full_rate_kernels import CONSUMER

MBARRIERS = """\
__device__ void await(unsigned bar, unsigned parity) {
    asm volatile("{.reg .pred P; L%=: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1; @!P bra L%=;}"
                 :: "r"(bar), "r"(parity));
}
__device__ void give(unsigned bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar)); }
__device__ unsigned at(const void* p) { return __cvta_generic_to_shared(p); }
struct Bar {
    uint64_t value;
    __device__ void wait(unsigned parity) { await(at(&value), parity); }
    __device__ void arrive() { give(at(&value)); }
};
struct All { uint64_t full[2]; uint64_t order[2]; };
"""


ORDER = f"{CONSUMER} __shared__ uint64_t order[2];"


TURN = f"{CONSUMER} __shared__ int turn; const unsigned place = __cvta_generic_to_shared(&turn);"


VOLATILE = f"{CONSUMER} __shared__ volatile int turn;"


ACQUIRE = (
    'int t; do { asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(t) : "r"(place)); } while (t != consumer);'
)


WAITING = {
    "mbarriers": (ORDER, "await(at(&order[consumer]), k & 1);", "give(at(&order[1 - consumer]));"),
    "an address": (
        f"{ORDER} const unsigned o = at(order);", "await(o + consumer * 8, k & 1);", "give(o + (1 - consumer) * 8);"),
    "pointers": (
        f"{ORDER} uint64_t* mine = &order[consumer]; uint64_t* other = order + 1 - consumer;",
        "await(at(mine), k & 1);", "give(at(other));"),
    "a member": (
        f"{CONSUMER} __shared__ All all;", "await(at(&all.order[consumer]), k & 1);",
        "give(at(&all.order[consumer ^ 1]));"),
    "objects": (
        f"{CONSUMER} __shared__ Bar order[2];", "order[consumer].wait(k & 1);", "order[1 - consumer].arrive();"),
    "only one arrives on another's": (ORDER, "await(at(&order[0]), k & 1);", "give(at(&order[consumer]));"),
    "asm": (
        f"{ORDER} const unsigned o = at(order);",
        'asm volatile("{.reg .pred P; L%=: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; @!P bra L%=;}" '
        ':: "r"(o + consumer * 8));',
        'asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: "r"(o + (1 - consumer) * 8));'),
    "a volatile flag": (VOLATILE, "while (turn != consumer) { }", "turn = 1 - consumer;"),
    "a flag by its address": (
        f"{CONSUMER} __shared__ int turn;", "while (*(volatile int*)&turn != consumer) { }", "turn = 1 - consumer;"),
    "atomics": (TURN, "while (atomicAdd(&turn, 0) != consumer) { }", "atomicExch(&turn, 1 - consumer);"),
    "an ordered read": (TURN, ACQUIRE, "turn = 1 - consumer;"),
    "a helper that asks": (TURN, "while (asked(place) != consumer) { }", "turn = 1 - consumer;"),
    "a helper that waits": (VOLATILE, "wait_for(&turn, consumer);", "turn = 1 - consumer;"),
}  # fmt: skip


ASKING = """\
__device__ int asked(unsigned p) {
    int t;
    asm volatile("ld.relaxed.cta.shared.s32 %0, [%1];" : "=r"(t) : "r"(p));
    return t;
}
__device__ void wait_for(volatile int* t, int who) { while (*t != who) { } }
"""


NOT_WAITING = {
    "each has a barrier that others fill": (
        f"{CONSUMER} __shared__ All all;", "await(at(&all.full[consumer]), k & 1);", "give(at(&all.order[consumer]));"),
    "objects of each": (
        f"{CONSUMER} __shared__ Bar full[2], empty[2];", "full[consumer].wait(k & 1);", "empty[consumer].arrive();"),
    "one for both": (ORDER, "give(at(&order[0])); await(at(&order[0]), k & 1);", ""),
    "a loop over elements": (CONSUMER, "for (int i = threadIdx.x; i < rows; i += 256) out[i] = 0;", ""),
    "an atomic in a loop over elements of the block": (
        CONSUMER, "for (int i = 0; i < rows; ++i) atomicAdd(&out[i], float(consumer));", ""),
}  # fmt: skip


HIDDEN = {
    "asm that adds the consumer to B": (
        {"BEFORE": 'asm volatile("add.u64 %0, %0, %1;" : "+l"(b) : "l"((uint64_t)consumer));'}, "B descriptor"),
    "asm that asks for the consumer": (
        {"BEFORE": 'int c; asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; selp.s32 %0, 1, 0, p;}" '
                   ': "=r"(c) : "r"(consumer)); if (c) break;'}, "may part"),
    "asm behind a branch": (
        {"BEFORE": 'int c = 0; if (consumer) { asm volatile("mov.s32 %0, 1;" : "=r"(c)); } if (c) break;'}, "may part"),
    "an index that a macro pastes": (
        {"HEAD": "#define IDX(n) thread##n\n", "ROLE": "const int consumer = IDX(Idx).x / 128;"}, "puts the name"),
    "an index that macros paste": (
        {"HEAD": "#define GLUE(a, b) a##b\n#define TID(v) GLUE(thread, v)\n",
         "ROLE": "const int consumer = TID(Idx).x / 128;"}, "puts the name"),
    "the index's address": (
        {"ROLE": "const unsigned* t = &threadIdx.x; const int consumer = *t / 128;"}, "address of"),
}  # fmt: skip
