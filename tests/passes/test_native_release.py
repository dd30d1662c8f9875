# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back: ways of writing that are understood, and what is refused with
which missing fact. Values and order are shown by the slow tests of `tests/cli/test_cli_native_port.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import BATCH, left, missing, ported, taken, text_of

STEP = ("release",)

WRAPPED = """\
struct Barrier {
    uint64_t bits;
    __device__ void begin(int n) { init(&bits, n); }
    __device__ void signal() { arrive(&bits); }
    __device__ void until(int parity) { wait(&bits, parity); }
};
"""
HIDDEN = """\
class Barrier {
    uint64_t bits;
  public:
    __device__ void begin(int n) { init(&bits, n); }
    __device__ void signal() { arrive(&bits); }
    __device__ void until(int parity) { wait(&bits, parity); }
};
"""
PARTS = """\
__device__ void begin(uint64_t* bar, int threads, int bytes) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(bar)), "r"(threads + bytes));
}
"""
UNDERSTOOD = {
    "as it is": ({}, "tcgen05::release(&empty[k % 2]);"),
    "a count in two parts": (
        {"HEAD": PARTS, "INIT_FULL": "begin(&full[i], 0, 1);", "INIT": "begin(&empty[i], 0, 256);"},
        "begin(&empty[i], 0, 1);",
    ),
    "a count in two parts, the first": (
        {"HEAD": PARTS.replace("threads + bytes", "(bytes + (threads))"), "INIT": "begin(&empty[i], 2 * 128, 0);"},
        "begin(&empty[i], 1, 0);",
    ),
    "a count in two parts, one a constant": (
        {"HEAD": "constexpr int kNone = 0;\n" + PARTS, "INIT": "begin(&empty[i], kNone, 256);"},
        "begin(&empty[i], kNone, 1);",
    ),
    "one thread of a consumer": (
        {"RELEASE": "if (threadIdx.x % 128 == 0) arrive(&empty[k % 2]);", "INIT": "init(&empty[i], 2);"},
        "tcgen05::release(&empty[k % 2]);",
    ),
    "one lane of a warp, in a block of its own": (
        {"RELEASE": "if (threadIdx.x % 32 == 0) { arrive(&empty[k % 2]); }", "INIT": "init(&empty[i], 8);"},
        "tcgen05::release(&empty[k % 2]);",
    ),
    "the stage before, one batch in flight": (
        {"BATCH": BATCH.replace("<0>", "<1>"), "AFTER": "drain<0>();", "INIT": "init(&empty[i], 8);",
         "RELEASE": "if (k > 0 && threadIdx.x % 32 == 0) arrive(&empty[(k - 1) % 2]);"},
        "if (k > 0) { tcgen05::release(&empty[(k - 1) % 2]); }",
    ),
    "a class around the mbarrier": (
        {"HEAD": WRAPPED, "BARRIERS": "Barrier full[2], empty[2]", "INIT": "empty[i].begin(256);",
         "INIT_FULL": "init(&full[i].bits, 1);", "ACQUIRE": "empty[k % 2].until(k / 2 % 2 ^ 1);",
         "FULL": "&full[k % 2].bits", "RELEASE": "empty[k % 2].signal();"},
        "tcgen05::release(&empty[k % 2].bits);",
    ),
    "a class that hides the mbarrier": (
        {"HEAD": HIDDEN, "BARRIERS": "uint64_t full[2]; __shared__ Barrier empty[2]", "INIT": "empty[i].begin(256);",
         "ACQUIRE": "empty[k % 2].until(k / 2 % 2 ^ 1);", "RELEASE": "empty[k % 2].signal();"},
        "tcgen05::release(&empty[k % 2]);",
    ),
    "members of a struct": (
        {"HEAD": "struct Ring { uint64_t full[2]; uint64_t empty[2]; };", "BARRIERS": "Ring ring",
         "INIT_FULL": "init(&ring.full[i], 1);", "INIT": "init(&ring.empty[i], 256);", "FULL": "&ring.full[k % 2]",
         "ACQUIRE": "wait(&ring.empty[k % 2], k / 2 % 2 ^ 1);", "RELEASE": "arrive(&ring.empty[k % 2]);"},
        "tcgen05::release(&ring.empty[k % 2]);",
    ),
    "a pointer to the mbarriers": (
        {"AHEAD": "uint64_t* done = empty;", "RELEASE": "arrive(done + k % 2);"},
        "tcgen05::release(empty + k % 2);",
    ),
    "sums of a pointer and a stage": (
        {"INIT_FULL": "init(full + i, 1);", "FULL": "full + k % 2",
         "INIT": "init(empty + i, 256);", "ACQUIRE": "wait(empty + k % 2, k / 2 % 2 ^ 1);",
         "RELEASE": "arrive(empty + k % 2);"},
        "tcgen05::release(empty + k % 2);",
    ),
    "a function that gives the mbarrier": (
        {"HEAD": "__device__ uint64_t* at(uint64_t* all, int k) { return all + k % 2; }", "FULL": "at(full, k)",
         "ACQUIRE": "wait(at(empty, k), k / 2 % 2 ^ 1);", "RELEASE": "arrive(at(empty, k));"},
        "tcgen05::release(at(empty, k));",
    ),
    "a thread by an index that starts with the consumers": (
        {"AHEAD": "const int mine = threadIdx.x - 128;", "RELEASE": "if (mine % 128 == 0) arrive(&empty[k % 2]);",
         "INIT": "init(&empty[i], 2);"},
        "tcgen05::release(&empty[k % 2]);",
    ),
    "the last stages behind the loop": (
        {"BATCH": BATCH.replace("<0>", "<1>"), "INIT": "init(&empty[i], 2);",
         "RELEASE": "if (k > 0 && threadIdx.x % 128 == 0) arrive(&empty[(k - 1) % 2]);",
         "AFTER": "drain<0>(); if (threadIdx.x % 128 == 0) arrive(&empty[(steps - 1) % 2]);"},
        "tcgen05::release(&empty[(steps - 1) % 2]); tc.commit(); tc.wait(0);",
    ),
    "asm in the kernel": (
        {"RELEASE": 'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&empty[k % 2])));'},
        "tcgen05::release(&empty[k % 2]);",
    ),
    "a helper around the batch": (
        {"HEAD": "__device__ void batch(float (&acc)[8], uint64_t a, uint64_t b) {"
                 " fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>(); }",
         "BATCH": "batch(acc, a + consumer * 512, b);"},
        "umma_m64n16k16(acc, a, b); }",
    ),
    "stages that consumers call empty at first": (
        {"AHEAD": "for (int i = 0; i < 2; ++i) arrive(&empty[i]);", "ACQUIRE": "wait(&empty[k % 2], k / 2 % 2);"},
        "for (int i = 0; i < 2; ++i) if (tcgen05::elect_issuer()) { arrive(&empty[i]); }",
    ),
    "the producer arrives, too": (
        {"ACQUIRE": "arrive(&empty[k % 2]); wait(&empty[k % 2], k / 2 % 2);", "INIT": "init(&empty[i], 257);",
         "AHEAD": "for (int i = 0; i < 2; ++i) arrive(&empty[i]);"},
        "init(&empty[i], 2);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    text = taken(ported(tmp_path, STEP, **parts), *STEP)
    assert expected in text
    assert "drain<0>(tc); tcgen05::release" not in text
    assert "drain<1>(tc);" not in text
    assert "commit(tc); drain" not in text.split("__global__")[1]
    assert text.count("tc.commit(); tc.wait(0);") == 1
    count = "2" if "arrives, too" in name else "1"
    assert f", {count});" in text or f", {count}, 0);" in text or f".begin({count});" in text


REFUSED = {
    "a macro": (
        {"HEAD": "#define DONE(s) arrive(&empty[s])", "RELEASE": "DONE(k % 2);"},
        "what is done with mbarriers",
    ),
    "sums that are read in the loop": ({"RELEASE": "out[0] = acc[0]; arrive(&empty[k % 2]);"}, "reads none of their"),
    "no wait in the loop": ({"BATCH": BATCH.replace(" drain<0>();", ""), "AFTER": "drain<0>();"}, "a loop that waits"),
    "an mbarrier of another CTA": (
        {"RELEASE": 'asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, 0; mbarrier.arrive.release.cluster.'
                    'shared::cluster.b64 _, [r];}" ::"r"(shared(&empty[k % 2])) : "memory");'},
        "the rank of the CTA",
    ),
    "a count of which both parts count": (
        {"HEAD": PARTS, "INIT": "begin(&empty[i], 128, 128);"}, "where the count of the mbarrier is written",
    ),
    "a count of the template": (
        {"HEAD": "template <int N> __device__ void begin(uint64_t* b) {"
                 ' asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(b)), "n"(N)); }',
         "INIT": "begin<256>(&empty[i]);"},
        "where the count of the mbarrier is written",
    ),
    "a pointer to mbarriers of either kind": (
        {"AHEAD": "uint64_t* done = empty; if (steps < 0) done = full;", "RELEASE": "arrive(done + k % 2);"},
        "an mbarrier by which stages go back",
    ),
    "an unknown condition": (
        {"RELEASE": "if (__shfl_sync(~0u, k, threadIdx.x) == 0) arrive(&empty[k % 2]);", "INIT": "init(&empty[i], 1);"},
        "lets through",
    ),
    "a helper that others call, too": (
        {"HEAD": "__device__ void batch(float (&acc)[8], uint64_t a, uint64_t b) {"
                 " fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>(); }",
         "BATCH": "batch(acc, a + consumer * 512, b);",
         "AFTER": "out[0] = acc[0]; batch(acc, a + consumer * 512, b);"},
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    assert "tcgen05::release(" not in left(ported(tmp_path, STEP, **parts), what)


def test_consumers_of_their_own_mmas_are_left(tmp_path: Path) -> None:
    """Without M=128, each consumer has an issuer of its own."""
    result = ported(tmp_path, STEP, full_rate=False)
    assert "one MMA for all consumers" in missing(result)[-1]


def test_nothing_is_taken_that_is_not_wanted(tmp_path: Path) -> None:
    result = ported(tmp_path, ())
    assert "tcgen05::release" not in text_of(result)
    assert missing(result) == []
