# SPDX-License-Identifier: Apache-2.0
"""The step in which a thread of its own issues the MMAs: ways of writing that are understood, and what is refused with
which missing fact. Values and order are shown by the slow tests of `tests/cli`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import native_kernels
import persistent_kernels
import pytest
from native_kernels import BATCH, missing, text_of

from porter.lang.sources import load_sources
from porter.passes.needs import Common
from porter.passes.port import PortOptions, port_sources

STEPS = ("release", "mma-thread")
TOKENS = """\
__device__ uint64_t token(uint64_t* bar) {
    uint64_t t;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(shared(bar)) : "memory");
    return t;
}
__device__ void until(uint64_t* bar, uint64_t t) {
    asm volatile("{ .reg .pred p; W: mbarrier.test_wait.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(shared(bar)), "l"(t) : "memory");
}
"""

UNDERSTOOD: dict[str, tuple[dict[str, str], list[str]]] = {
    "as it is": ({}, [
        "if (tcgen05::elect_mma_thread()) {",
        "const int consumer = 0;",
        "tc.begin(acc_tmem); for (int k = 0; k < steps; ++k) { wait(&full[k % 2], k / 2 % 2);",
        "tcgen05::release(&empty[k % 2]); } tc.end(acc_tmem);",
        "tc.take(acc_tmem);",
    ]),
    "a helper around the batch": (
        {"HEAD": "__device__ void batch(float (&acc)[8], uint64_t a, uint64_t b) {"
                 " fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>(); }",
         "BATCH": "batch(acc, a + consumer * 512, b);"},
        ["{ umma_m64n16k16(acc, a, b); }", "batch(tc, acc_tmem, a + consumer * 512, b);"],
    ),
    "a variable in the loop": (
        {"BATCH": "const uint64_t mine = a + consumer * 512; " + BATCH.replace("a + consumer * 512", "mine")},
        ["const uint64_t mine = a + consumer * 512; umma_m64n16k16(acc_tmem, mine, b);"],
    ),
    "a variable in front of the loop": (
        {"AHEAD": "const uint64_t mine = a + consumer * 512;", "BATCH": BATCH.replace("a + consumer * 512", "mine")},
        ["const int consumer = 0; const uint64_t mine = a + consumer * 512; tcgen05::Accumulator acc_tmem{tc.tmem};"],
    ),
    "a role that is counted down": (
        {"AHEAD": "int mine = threadIdx.x / 128; --mine;", "BATCH": BATCH.replace("consumer", "mine")},
        ["const int mine = 0;", "umma_m64n16k16(acc_tmem, a + mine * 512, b);"],
    ),
    "waits by token": (
        {"HEAD": TOKENS,
         "INIT_FULL": "init(&full[i], 257);",
         "BATCH": "until(&full[k % 2], token(&full[k % 2])); " + BATCH},
        ["init(&full[i], 2);"],
    ),
    "a way that all threads answer alike": (
        {"RELEASE": "if (steps > 0) arrive(&empty[k % 2]);"}, ["if (steps > 0) tcgen05::release(&empty[k % 2]);"],
    ),
    "one thread of a consumer, chosen where it arrives": (
        {"RELEASE": "if (threadIdx.x % 128 == 0) arrive(&empty[k % 2]);", "INIT": "init(&empty[i], 2);"},
        ["tcgen05::release(&empty[k % 2]); } tc.end(acc_tmem);"],
    ),
    "lanes that meet ahead of an arrival": (
        {"RELEASE": "__syncwarp();\nif (threadIdx.x % 32 == 0) arrive(&empty[k % 2]);", "INIT": "init(&empty[i], 8);"},
        ["umma_m64n16k16(acc_tmem, a + consumer * 512, b); tcgen05::release(&empty[k % 2]); } tc.end(acc_tmem);"],
    ),
    "lanes that meet in a lambda": (
        {"LAMBDA": "auto step = [&](int s) {\n" + BATCH + "\n__syncwarp(0xffffffff);\n"
                   "if (threadIdx.x % 32 == 0) arrive(&empty[s]);\n};",
         "INIT": "init(&empty[i], 8);", "BATCH": "step(k % 2);", "RELEASE": ""},
        ["umma_m64n16k16(acc_tmem, a + consumer * 512, b); tcgen05::release(&empty[s]); };"],
    ),
    "a lambda that multiplies": (
        {"LAMBDA": "auto step = [&](int s) { " + BATCH + " if (threadIdx.x % 128 == 0) arrive(&empty[s]); };",
         "INIT": "init(&empty[i], 2);", "BATCH": "step(k % 2);", "RELEASE": ""},
        ["const int consumer = 0; tcgen05::Accumulator acc_tmem{tc.tmem}; auto step = [&](int s) {"
         " umma_m64n16k16(acc_tmem, a + consumer * 512, b); tcgen05::release(&empty[s]); };"
         " tc.begin(acc_tmem); for (int k = 0; k < steps; ++k) { wait(&full[k % 2], k / 2 % 2); step(k % 2); }"
         " tc.end(acc_tmem);"],
    ),
    "the last stages behind the loop": (
        {"BATCH": BATCH.replace("<0>", "<1>"), "INIT": "init(&empty[i], 2);",
         "RELEASE": "if (k > 0 && threadIdx.x % 128 == 0) arrive(&empty[(k - 1) % 2]);",
         "AFTER": "drain<0>(); if (threadIdx.x % 128 == 0) arrive(&empty[(steps - 1) % 2]);"},
        ["if (k > 0) { tcgen05::release(&empty[(k - 1) % 2]); } }",
         "tcgen05::release(&empty[(steps - 1) % 2]); tc.end(acc_tmem);"],
    ),
    "stages that consumers call empty at first": (
        {"AHEAD": "for (int i = 0; i < 2; ++i) arrive(&empty[i]);", "ACQUIRE": "wait(&empty[k % 2], k / 2 % 2);"},
        ["for (int i = 0; i < 2; ++i) if (tcgen05::elect_issuer()) {", "tc.take(acc_tmem);"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, wanted = UNDERSTOOD[name]
    result = native_kernels.ported(tmp_path, STEPS, **parts)
    assert missing(result) == []
    text = text_of(result)
    assert [w for w in wanted if w not in text] == [], text
    assert "sync_warpgroup" not in text
    assert "tc.commit()" not in text


BUILDS = {
    "one build alone": ("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n", "#endif\n"),
    "one build and others": ("#ifdef MULTIPLIES\n", "#else\n    if (steps > 3) return;\n    out[0] = 0;\n#endif\n"),
    "one of three": ("#if X > 1\n", "#elif X > 0\n    out[0] = 1;\n#else\n    return;\n#endif\n"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_a_kernel_that_stands_in(tmp_path: Path, name: str) -> None:
    opening, closing = BUILDS[name]
    text = native_kernels.source()
    at = text.index("    __shared__ char tiles")
    text = text[:at] + opening + text[at:].rstrip().removesuffix("}") + closing + "}\n"
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path), PortOptions(full_rate=True, native=STEPS))
    assert missing(result) == []
    ported = text_of(result)
    assert (
        "if (tcgen05::elect_mma_thread()) { tcgen05::Warpgroup tc = tmem.mma_thread(); const int consumer = 0;"
        in ported
    )
    assert ported.index("elect_mma_thread()) {") > ported.index(opening.split()[0])


def test_tiles_that_follow_each_other_take_turns(tmp_path: Path) -> None:
    result = persistent_kernels.ported(tmp_path, (*STEPS, "double-buffer"))
    assert missing(result) == []
    header = next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode()
    assert "kBuffers = 2;" in header
    assert "tc.give_back();" in text_of(result)


def test_one_tile_has_one_accumulator(tmp_path: Path) -> None:
    result = native_kernels.ported(tmp_path, (*STEPS, "double-buffer"))
    assert result.plans[0].native == STEPS
    assert missing(result) == ["a next tile: a block has one"]
    header = next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode()
    assert "kBuffers = 1;" in header
    assert "give_back();" not in text_of(result)


def test_steps_build_on_each_other(tmp_path: Path) -> None:
    result = persistent_kernels.ported(tmp_path, ("mma-thread", "double-buffer", "pair"))
    assert result.plans[0].native == ()
    assert "commits that give stages back" in missing(result)
    assert "a thread of its own that issues the MMAs" in missing(result)


def test_helpers_that_others_share_stay(tmp_path: Path) -> None:
    options = dataclasses.replace(persistent_kernels.options(STEPS), common=Common(frozenset({"other"})))
    result = port_sources(load_sources(persistent_kernels.write(tmp_path)), options)
    assert "mma-thread" not in result.plans[0].native
    assert "elect_mma_thread" not in text_of(result)


def test_kernels_with_other_idle_warps_are_left(tmp_path: Path) -> None:
    text = persistent_kernels.write(tmp_path).read_text()
    begin, end = text.index("__global__"), text.index("void encode(")
    loads = "if (threadIdx.x == 0) {\n            for (int tile"
    assert loads in text
    twice = loads.replace("== 0)", "% 32 == 0 && threadIdx.x < 64)")
    other = text[begin:end].replace("\nkernel(", "\nother(").replace(loads, twice)
    (tmp_path / "kernel.cu").write_text(text[:end] + other + text[end:])
    result = port_sources(load_sources(tmp_path / "kernel.cu"), persistent_kernels.options(STEPS))
    assert "the same warp with nothing to do in all kernels of the file" in missing(result)
    assert "elect_mma_thread" not in text_of(result)


def test_a_name_that_is_taken_stays(tmp_path: Path) -> None:
    """Variables that only the thread needs leave the consumers, others stay."""
    text = text_of(persistent_kernels.ported(tmp_path, STEPS))
    consumers = text[text.index("} else {") :]
    assert "const int lane = threadIdx.x % 32" not in text
    assert "tcgen05::thread_index() % 32, warp" in consumers


AT = "int at = 0; "
OF_AT = BATCH.replace(", b)", ", b + at)")
POINTER = "const char* p = tiles[k % 2];"
OF_TILES = BATCH.replace(", b)", ", b + shared(p))")
KEPT = {
    "a state that is advanced": ("struct State { int at = 0; __device__ void next() { at += 8; } };\n", "State s;",
                            BATCH.replace(", b)", ", b + s.at)") + " s.next();"),
    "a helper": ("__device__ void next(int& n) { n += 8; }\n", AT, OF_AT + " next(at);"),
    "a helper with a pointer": ("__device__ void next(int* n) { *n += 8; }\n", AT, OF_AT + " next(&at);"),
    "a helper with an array": ("__device__ void next(int* n) { n[0] += 8; }\n", "int all[1] = {0};",
                               BATCH.replace(", b)", ", b + all[0])") + " next(all);"),
    "a lambda": ("", AT + "auto next = [&] { at += 8; };", OF_AT + " next();"),
    "a pointer that moves": ("", "", f"{POINTER} {OF_TILES} p += 8;"),
    "a pointer that moves in a loop": ("", "", f"{POINTER} for (int i = 0; i < 2; ++i) ++p; {OF_TILES}"),
    "a helper that moves its own": ("__device__ const char* past(const char* p) { p += 8; return p; }\n", "",
                                    BATCH.replace(", b)", ", b + shared(past(tiles[k % 2])))")),
}  # fmt: skip


@pytest.mark.parametrize("how", KEPT)
def test_the_thread_changes_variables_of_its_own_by(tmp_path: Path, how: str) -> None:
    head, ahead, batch = KEPT[how]
    result = native_kernels.ported(tmp_path, STEPS, HEAD=head, AHEAD=ahead, BATCH=batch)
    assert missing(result) == []
    assert "mma-thread" in result.plans[0].native
