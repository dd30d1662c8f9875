# SPDX-License-Identifier: Apache-2.0
"""Kernels that a step of the native style is wrong for, or that are written in a way which hides whether it is right:
for the compiler, PTX and runs to refuse what is proposed (`scripts/shadow_native.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attention_kernels
import combined_kernels
import persistent_kernels
import stage_kernels
import store_kernels
import tile_kernels
import wide_kernels
from attention_kernels import Pairs
from native_kernels import BATCH, BATCHES, LANE, OF_WARPS

RELEASE = ("release",)
THREAD = ("release", "mma-thread")
AHEAD_OF = ("ahead",)
GIVEN = "arrive(&empty[k % 2]);"
AT = "int at = 0; "
OF_AT, OF_STATE = (BATCH.replace(", b)", f", b + {what})") for what in ("at", "s.at"))
STATE = "struct State {{ int at = 0; __device__ {} }};\n"
OF_TILES = BATCH.replace(", b)", ", b + shared(p))")
POINTER = "const char* p = tiles[k % 2];"
METHOD = STATE.format("void next() { at += 8; }")
AHEAD = {
    "a pointer": ("", AT + "int* p = &at; *p += 8;"),
    "a pointer to a pointer": ("", AT + "int* p = &at; int** pp = &p; **pp += 8;"),
    "a reference": ("", AT + "int& p = at; p += 8;"),
    "a reference in parentheses": ("", AT + "int& p(at); p += 8;"),
    "a lambda with a capture of its own": ("", AT + "auto next = [&m = at] { m += 8; }; next();"),
    "a macro": ("#define NEXT at += 8\n", AT + "NEXT;"),
    "a macro with an argument": ("#define NEXT(n) at += n\n", AT + "NEXT(8);"),
    "a cast": ("", AT + "reinterpret_cast<unsigned&>(at) += 8;"),
    "a constructor": ("struct Next { __device__ Next(int& at) { at += 8; } };\n", AT + "Next n(at);"),
    "an object without a name": ("struct Next { __device__ Next(int& at) { at += 8; } };\n", AT + "Next{at};"),
    "a member that is a reference": (
        "struct Next { int& at; __device__ void go() { at += 8; } };\n",
        AT + "Next n{at}; n.go();",
    ),
}
OF_OBJECTS = {
    "a call operator": (STATE.format("void operator()() { at += 8; }"), "State s; s();"),
    "an operator": (STATE.format("State& operator<<(int n) { at += n; return *this; }"), "State s; s << 8;"),
    "a method of a pointer": (METHOD, "State s; State* q = &s; q->next();"),
    "a method of a reference": (METHOD, "State s; State& q = s; q.next();"),
    "names for members": ("struct State { int at, n; };\n", "State s{0, 0}; auto& [x, y] = s; x += 8;"),
}
NOT_THERE = {
    **{how: {"HEAD": head, "AHEAD": ahead, "BATCH": OF_AT} for how, (head, ahead) in AHEAD.items()},
    **{how: {"HEAD": head, "AHEAD": ahead, "BATCH": OF_STATE} for how, (head, ahead) in OF_OBJECTS.items()},
}

BEHIND = {
    "a reference": ("", AT + "int& p = at;", "p += 8;", "out[at] = 1;"),
    "a call operator": (STATE.format("void operator()() { at += 8; }"), AT + "State s;", "s();", "out[s.at] = 1;"),
    "a macro": ("#define NEXT at += 8\n", AT, "NEXT;", "out[at] = 1;"),
    "a macro, of what MMAs do not read": ("#define COUNT ++n\n", AT + "int n = 0;", "COUNT;", "out[n] = 1;"),
    "its name in a macro": ("#define PLACE at\n", AT, "at += 8;", "out[PLACE] = 1;"),
    "a reference to it": ("", AT + "const int& p = at;", "at += 8;", "out[p] = 1;"),
}
ALL_WRITE = {
    "a pointer of each": ("", "float* mine = out + threadIdx.x;", "*mine = 1;"),
    "a pointer that moves": ("", "float* mine = out;", "*mine++ = 1;"),
    "a pointer of all threads that moves": ("", "__shared__ float* mine;", "mine += 1;"),
    "a reference to a pointer of all threads": ("", "__shared__ float* mine; float*& p = mine;", "p += 1;"),
    "a pointer that stays": ("", "static float* mine;", "mine += 1;"),
    "a pointer to a pointer of all threads": ("", "__shared__ float* mine; float** p = &mine;", "*p += 1;"),
    "a helper with a pointer that moves": (
        "__device__ void note(float* to) { to += 8; *to = 1; }\n",
        "",
        "note(out);",
    ),
    "an atomic": ("__device__ int turns;\n", "", "atomicAdd(&turns, 1);"),
    "an element": ("__device__ int last[4];\n", "", "last[k % 4] = k;"),
    "a helper": ("__device__ int last; __device__ void note(int k) { last = k; }\n", "", "note(k);"),
    "a method": (
        "struct Notes { float* to; __device__ void note(int k) { to[k] = 1; } };\n",
        "Notes n{out};",
        "n.note(k);",
    ),
    "a lambda": ("", "auto note = [&](int k) { out[k] = 1; };", "note(k);"),
    "a macro": ("#define NOTE(k) out[k] = 1\n", "", "NOTE(k);"),
    "a line of text": ("#include <cstdio>\n", "", 'if (k == 0) printf("x");'),
    "an instruction": ("", "", 'asm volatile("red.global.add.u32 [%0], 1;" ::"l"(out) : "memory");'),
}
LATE = {"RELEASE": "if (k > 0) arrive(&empty[(k - 1) % 2]);", "LATE": "arrive(&empty[(steps - 1) % 2]);"}
PEEK = "__device__ float peek(const char* tile) { return tile[threadIdx.x]; }\n"
LOADED = (
    '__device__ float loaded(const void* p) { float f; asm volatile("ld.shared.f32 %0, [%1];" '
    ': "=f"(f) : "r"(shared(p))); return f; }\n'
)
STORED = (
    '__device__ void stored(const void* map, void* p) { asm volatile("cp.async.bulk.tensor.2d.global.shared::cta'
    '.bulk_group [%0, {0, 0}], [%1];" ::"l"(map), "r"(shared(p)) : "memory"); }\n'
)
STAGE = "struct Stage { char bytes[4096]; __device__ float first() { return bytes[threadIdx.x]; } };\n"
VIEW = "Stage* stages = reinterpret_cast<Stage*>(tiles);"

USED: dict[str, dict[str, str]] = {
    "an element": {"RELEASE": f"out[k] = tiles[k % 2][threadIdx.x]; {GIVEN}"},
    "an element, behind a condition": {"RELEASE": f"if (tiles[k % 2][0] == 1) out[k] = 1; {GIVEN}"},
    "an element that is written": {"RELEASE": f"tiles[k % 2][threadIdx.x] = 0; {GIVEN}"},
    "a pointer": {"RELEASE": f"const float* at = reinterpret_cast<float*>(tiles[k % 2]); out[k] = *at; {GIVEN}"},
    "a reference": {"RELEASE": f"auto& tile = tiles[k % 2]; out[k] = tile[threadIdx.x]; {GIVEN}"},
    "a function": {"HEAD": PEEK, "RELEASE": f"out[k] = peek(tiles[k % 2]); {GIVEN}"},
    "an instruction": {"HEAD": LOADED, "RELEASE": f"out[k] = loaded(tiles[k % 2]); {GIVEN}"},
    "a lambda": {"LAMBDA": "auto peek = [&](int s) { return tiles[s][0]; };",
                 "RELEASE": f"out[k] = peek(k % 2); {GIVEN}"},
    "an object": {"HEAD": STAGE, "AHEAD": VIEW, "RELEASE": f"out[k] = stages[k % 2].first(); {GIVEN}"},
    "a member": {"HEAD": STAGE, "AHEAD": VIEW, "RELEASE": f"out[k] = stages[k % 2].bytes[threadIdx.x]; {GIVEN}"},
    "a store by TMA": {"HEAD": STORED, "RELEASE": f"stored(map, tiles[k % 2]); {GIVEN}"},
    "the stage before, ahead of what gives it back": {
        "BATCH": f"if (k > 0) {{ out[k] = tiles[(k - 1) % 2][0]; arrive(&empty[(k - 1) % 2]); }} {BATCH}",
        "RELEASE": "", "AFTER": LATE["LATE"],
    },
    "the last stage, behind the loop": {
        "RELEASE": LATE["RELEASE"],
        "AFTER": f"out[0] = tiles[(steps - 1) % 2][threadIdx.x]; {LATE['LATE']}",
    },
}  # fmt: skip
ONE = BATCHES[BATCHES.index("__device__ void wgmma") : BATCHES.index("__device__ void fence")].replace(
    "wgmma_m64n16k16(", "ONE("
)
"""An MMA in a function of another name."""
NEVER = "if (k < 0) wgmma_m64n16k16(acc, a + consumer * 512, b);"
GIVEN_BACK: dict[str, dict[str, str]] = {
    "a count that differs": {"INIT": "init(&empty[i], 300);"},
    "a phase that is kept": {
        "HEAD": "__device__ uint64_t leave(uint64_t* bar) { uint64_t t; asm volatile("
                '"mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(shared(bar)) : "memory"); return t; }',
        "RELEASE": "uint64_t token = leave(&empty[k % 2]); if (k < 0) out[0] = token;",
    },
    "one arrival for two stages": {
        "RELEASE": "arrive(&empty[k % 2]); arrive(&empty[k % 2]);", "INIT": "init(&empty[i], 512);",
    },
    "consumers that come to MMAs of their own": {
        "BATCH": "if (consumer == 0) { fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>(); }"
                 " else { fence(); wgmma_m64n16k16(acc, a + consumer * 512, b); commit(); drain<0>(); }",
    },
    "a commit that the instructions of an MMA end with": {
        "HEAD": ONE.replace("ONE(", "committed(").replace('0, 0;"', '0, 0; "\n"wgmma.commit_group.sync.aligned;"', 1),
        "BATCH": f"fence(); {NEVER} committed(acc, a + consumer * 512, b); drain<0>();",
    },
    "a count that full has, too": {
        "HEAD": "__device__ void both(uint64_t* a, uint64_t* b, int n) { init(a, n); init(b, n); }",
        "INIT_FULL": "", "INIT": "both(&full[i], &empty[i], 256);", "ACQUIRE": "wait(&empty[k % 2], k / 2 % 2 ^ 1);"
        " for (int i = 0; i < 255; ++i) arrive(&full[k % 2]);",
    },
    "consumers that wait for each other": {"RELEASE": "arrive(&empty[k % 2]); wait(&empty[k % 2], k / 2 % 2);"},
    "a predicate of the instruction": {
        "RELEASE": 'asm volatile("{.reg .pred p; setp.eq.u32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0];}" '
                   '::"r"(shared(&empty[k % 2])), "r"(threadIdx.x % 128) : "memory");', "INIT": "init(&empty[i], 2);",
    },
}  # fmt: skip
CLUSTERS: dict[str, dict[str, str]] = {
    "as it is, stages of a cluster": {},
    "stages given back by halves": {
        "INIT": "init(&empty[i], 16);",
        "RELEASE": f"if ({LANE} == 0) arrive_at(&empty[k % 2], 0); if ({LANE} == 1) arrive_at(&empty[k % 2], 1);",
    },
}  # fmt: skip
"""Stages that both CTAs of a cluster give back."""
ISSUED: dict[str, dict[str, str]] = {
    "a collective between MMAs": {"BATCH": "const bool more = __any_sync(0xffffffff, k < steps); " + BATCH},
    "lanes that meet in a helper": {
        "HEAD": "__device__ void give(uint64_t* b) { __syncwarp(); if (threadIdx.x % 32 == 0) arrive(b); }",
        "INIT": "init(&empty[i], 8);", "RELEASE": "give(&empty[k % 2]);",
    },
    "a shuffle in a helper": {
        "HEAD": "__device__ uint64_t same(uint64_t v) { return __shfl_sync(0xffffffff, v, 0); }",
        "BATCH": BATCH.replace("a + consumer * 512", "same(a + consumer * 512)"),
    },
    "an index that consumers read behind their MMAs": {
        "AHEAD": "int last = 0;", "BATCH": BATCH + " last = k;", "AFTER": "out[0] = last;",
    },
    "a fence that the instructions of an MMA begin with": {
        "HEAD": ONE.replace("ONE(", "fenced(").replace('"wgmma', '"wgmma.fence.sync.aligned; "\n"wgmma', 1),
        "BATCH": f"fenced(acc, a + consumer * 512, b); {NEVER} commit(); drain<0>();",
    },
}  # fmt: skip
LATE_AT = "if (steps > 100) "
HIDDEN: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "a pointer ahead of MMAs": ({"AHEAD": f"int at = 0; int* p = &at; {LATE_AT}*p += 8;", "BATCH": OF_AT}, THREAD),
    "a macro ahead of MMAs": (
        {"HEAD": "#define NEXT at += 8\n", "AHEAD": f"int at = 0; {LATE_AT}NEXT;", "BATCH": OF_AT}, THREAD,
    ),
    "an index that consumers read": (
        {"AHEAD": "int n = 0; int& m = n;", "BATCH": f"{BATCH} if (k > 100) m = k;", "AFTER": "if (n > 0) out[0] = n;"},
        THREAD,
    ),
    "a store of all consumers": ({"BATCH": f"{BATCH} if (k > 100) out[k] = 1;"}, THREAD),
    "a stage that threads read": (
        {"RELEASE": f"if (k > 100) out[threadIdx.x] = tiles[k % 2][threadIdx.x]; {GIVEN}"}, RELEASE,
    ),
    "a second arrival": ({"RELEASE": f"if (k > 100) {GIVEN} {GIVEN}"}, RELEASE),
    "a collective": (
        {"BATCH": "uint64_t same = 0; if (k > 100) same = __shfl_sync(0xffffffff, same, 0); "
                  + BATCH.replace(", b)", ", b + same)")}, THREAD,
    ),
}  # fmt: skip
"""What comes at sizes alone that no case has."""

V_WAIT = "        mbarrier_wait(&smem.v_full[ring.stage], ring.phase);\n        warpgroup_arrive();"
STORED = "        const int key0 = block * kBlockN + lane % 4 * 2;\n"
FIRST = "        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n"
LOOP = "    Ring ring;\n    for (int block = 0; block < blocks; ++block) {\n        float scores"
TURN = "        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n"
QUAD = "__device__ __forceinline__ float quad_max"
OBJECT = "struct Turning {\n    Ring& ring;\n    __device__ void next() { ring.next(); }\n};\n\n"


def _turned(ahead: str, by: str) -> Pairs:
    """A stage that goes on by another name, which `ahead` declares."""
    return (LOOP, LOOP.replace("    for", f"    {ahead}\n    for", 1)), (TURN, TURN.replace("ring.next()", by))


TURNS: dict[str, Pairs] = {
    "threads meet between products": ((V_WAIT, "        named_barrier_sync(5, kConsumers * 128);\n" + V_WAIT),),
    "threads write to shared memory": ((STORED, STORED + "        smem.q[0][threadIdx.x] = bf16(0.f);\n"),),
    "a stage that a lambda turns": _turned("const auto next = [&] { ring.next(); };", "next()"),
    "a stage by a reference": _turned("Ring& same = ring;", "same.next()"),
    "a stage that a macro turns": (
        ("constexpr int kStages = 2;", "constexpr int kStages = 2;\n#define NEXT_STAGE ring.next()"),
        (TURN, TURN.replace("ring.next()", "NEXT_STAGE")),
    ),
    "a stage by a pointer": _turned("Ring* same;\n    same = &ring;", "same->next()"),
    "a stage that an object turns": ((QUAD, OBJECT + QUAD), *_turned("Turning turning{ring};", "turning.next()")),
}
"""Of `attention_kernels`: what the next turn begins with, changed in ways that its text hides."""
COMMIT = "        warpgroup_commit();\n        // the last turn"
SCORES = "        float scores[kBlockN / 2];\n"
K_WAIT = "        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);\n"
V_DONE = "        warpgroup_commit();\n        warpgroup_wait<0>();\n        mbarrier_arrive(&smem.v_empty"
GOES_ON = "        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        ring.next();\n"
EARLY: dict[str, Pairs] = {
    "a turn that ends early": (
        ("        float keep[2];\n", "        if (seqlen < block) break;\n        float keep[2];\n"),
    ),
    "a turn that is left out": (
        (COMMIT, COMMIT.replace("        //", "        if (seqlen < 0) continue;\n        //")),
    ),
    "a wait for some MMAs": (
        (V_DONE, V_DONE.replace("        warpgroup_wait<0>", "        warpgroup_commit();\n        warpgroup_wait<1>")),
    ),
    "no commit of its own": ((V_DONE, V_DONE.partition("\n")[2]),),
    "a count that begins outside": (
        (LOOP, LOOP.replace("for (int block = 0;", "int block;\n    for (block = 0;")),
    ),
    "a bound of the count": ((LOOP, LOOP.replace("= 0; block < blocks", "= 0, last = block + blocks; block < last")),),
    "a place of the count": ((LOOP, LOOP.replace("= 0; block <", "= 0, *at = &block; *at <")),),
    "a condition that declares": (
        (LOOP, LOOP.replace("for (int block = 0; block < blocks; ++block)",
                            "int block = -1;\n    while (const int more = ++block < blocks)")),
    ),
    "registers that are declared behind a wait": (
        (SCORES + K_WAIT, K_WAIT + SCORES),
    ),
    "a ring that counts its copies": (
        ("    int stage = 0;\n    uint32_t phase = 0;\n\n    __device__ void next",
         "    int stage = 0;\n    uint32_t phase = 0;\n    __device__ ~Ring() { stage = 0; }\n"
         "    __device__ void next"),
    ),
    "a ring that a copy turns": (
        ("    int stage = 0;\n    uint32_t phase = 0;\n\n    __device__ void next",
         "    int stage = 0;\n    uint32_t phase = 0;\n    __device__ Ring() {}\n"
         "    __device__ Ring(const Ring& r) : stage(r.stage ^ 1), phase(r.phase) {}\n    __device__ void next"),
    ),
    "a phase that depends on sums": (
        (GOES_ON, GOES_ON.replace(
            "        ring", "        if (__any_sync(0xffffffff, row_max[0] > 1e30f)) ring.phase ^= 1;\n        ring")),
    ),
    "a stage that turns under MMAs": (
        (GOES_ON, ""), (V_WAIT, V_WAIT.replace("ring.", "old.")),
        ("smem.v[ring.stage][0] + k * 16", "smem.v[old.stage][0] + k * 16"),
        ("        float keep[2];\n", "        const Ring old = ring;\n        float keep[2];\n"),
        ("        warpgroup_commit();\n        warpgroup_wait<0>();\n    }",
         "        if (block >= 0) {\n            warpgroup_commit();\n            ring.next();\n"
         "            mbarrier_arrive(&smem.v_empty[old.stage]);\n        }\n        warpgroup_wait<0>();\n    }"),
    ),
    "consumers that load": (
        (STORED, "        if (threadIdx.x == 128 && seqlen > 4000) {\n"
                 "            tma_load_3d(smem.k[0][0], &map_k, &smem.k_full[ring.stage], 0, 0, head);\n"
                 "        }\n" + STORED),
    ),
    "a turn that counts how often it was begun": (
        ("        float keep[2];\n", "        float keep[2];\n        row_sum[0] += 0.f * begun;\n"),
        (FIRST, FIRST + "        ++begun;\n"), (LOOP, "    int begun = 0;\n" + LOOP),
    ),
}  # fmt: skip
"""What begins a turn early is not only what the next one begins with."""
ONE_RING = tuple((old, new.replace("kStages = 4", "kStages = 2 ")) for old, new in attention_kernels.ONE_RING)


Writes = Callable[[Path], Path]
"""Writes a kernel with its case into a folder."""
Kernel = tuple[str, str, "dict[str, str] | Pairs | Writes", tuple[str, ...]]


def cases() -> Iterator[Kernel]:
    """Groups, names, parts of `native_kernels` or `attention_kernels` or what writes a kernel, and steps. What parts
    write besides sums goes to `seen`; `MINUS` makes up for what they add to the descriptor of B."""
    yield "right", "as it is, stages that go back", {}, RELEASE
    yield "right", "as it is, a thread of its own", {}, THREAD
    for name, parts in GIVEN_BACK.items():
        yield "release", name, _seen(parts), RELEASE
    for name, parts in ISSUED.items():
        yield "thread", name, _seen(parts), THREAD
    for name, parts in USED.items():
        yield "used", name, _seen({n: t.replace("out[k]", "out[threadIdx.x]") for n, t in parts.items()}), RELEASE
    for name, parts in NOT_THERE.items():
        yield "ahead", f"changed by {name}", {**_seen(parts), "MINUS": " - 8"}, THREAD
    for name, (head, ahead, change, after) in BEHIND.items():
        minus = (
            ""
            if "at" not in change and "NEXT" not in change and "p +" not in change and "s()" not in change
            else " - 8 * k"
        )
        parts = {"HEAD": head, "AHEAD": ahead, "BATCH": f"{OF_AT} {change}", "AFTER": after}
        yield "behind", f"missed by {name}", {**_seen(parts), "MINUS": minus}, THREAD
    for name, (parts, steps) in HIDDEN.items():
        yield "sizes", f"late, {name}", _seen(parts), steps
    for name, (head, ahead, write) in ALL_WRITE.items():
        yield "writes", name, _seen({"HEAD": head, "AHEAD": ahead, "BATCH": f"{BATCH} {write}"}), THREAD
    yield "right", "as it is, a product that is issued ahead", (), AHEAD_OF
    for name, pairs in (*TURNS.items(), *EARLY.items()):
        yield "turns", name, pairs, AHEAD_OF
    few = (("constexpr int kStages = 2;", "constexpr int kStages = 1;"),)
    yield "turns", "one stage", partial(attention_kernels.written, pairs=few, heads=(64,), stages=1), AHEAD_OF
    one = partial(attention_kernels.written, pairs=ONE_RING, heads=(64,), one_ring=True)
    yield "turns", "two stages of one ring", one, AHEAD_OF
    for name in (*stage_kernels.RAW, *stage_kernels.CUTE):
        yield "stages", name, partial(stage_kernels.write, name=name), ("stages",)
    for name, (_, steps) in stage_kernels.STEPS.items():
        yield "library", name, partial(stage_kernels.write, name=name), steps
    for name, (_, _, steps) in combined_kernels.KERNELS.items():
        yield "together", name, partial(combined_kernels.write, name=name), steps
    for name, parts in store_kernels.JUDGED.items():
        yield "stores", name, partial(store_kernels.write, **parts), ("bulk-store",)
    for name, parts in wide_kernels.JUDGED.items():
        yield "wide", name, partial(wide_kernels.write, **parts), ("wide",)
    for name, parts in tile_kernels.JUDGED.items():
        yield "tiles", name, partial(tile_kernels.write, **parts), (*THREAD, "tiles")
    for name, parts in tile_kernels.NUMBERED.items():
        yield "raster", name, partial(tile_kernels.write, linear=True, **parts), ("release", "raster")
    for name, parts in CLUSTERS.items():
        yield "clusters", name, {"CTAS": "2", **_seen({**OF_WARPS, **parts})}, RELEASE
    for name, parts in persistent_kernels.JUDGED.items():
        yield "pairs", name, partial(persistent_kernels.write, **parts), (*THREAD, "pair")


def _seen(parts: dict[str, str]) -> dict[str, str]:
    return {name: re.sub(r"\bout\b", "seen", text) for name, text in parts.items()}
