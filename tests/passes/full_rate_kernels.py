# SPDX-License-Identifier: Apache-2.0
"""A kernel of two consumers in many ways of writing: what M=128 MMAs are for, and what they are refused for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from native_kernels import BATCHES

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

WGMMA = BATCHES + '__device__ void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }\n'


KERNEL = """\
@HEAD@__global__ void __launch_bounds__(@THREADS@) kernel(float* out, uint64_t a, uint64_t b, int steps, int rows) {
    @ROLE@
    float acc[8] = {};
    for (int k = 0; k < steps; ++k) {
        @BEFORE@
        fence();
        wgmma_m64n16k16(acc, a + consumer * 512, @B@);
        commit();
        wait();
    }
    @AFTER@
    for (int i = 0; i < 8; ++i) out[@INDEX@ * 8 + i] = acc[i];
}
"""


CONSUMER = "const int consumer = threadIdx.x / 128;"


DEFAULTS = {
    "HEAD": "",
    "THREADS": "256",
    "ROLE": CONSUMER,
    "BEFORE": "",
    "B": "b + k",
    "AFTER": "",
    "INDEX": "threadIdx.x",
}


def ported(folder: Path, **parts: str) -> PortResult:
    return port_of(folder, KERNEL, {**DEFAULTS, **parts})


def port_of(folder: Path, kernel: str, parts: Mapping[str, str]) -> PortResult:
    """The port of a kernel with its parts filled in."""
    text = WGMMA + kernel
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    path = folder / "kernel.cu"
    path.write_text(text)
    return port_sources(load_sources(path), PortOptions(full_rate=True))


def missing(result: PortResult) -> list[str]:
    return [str(d.values["what"]) for d in result.diagnostics if d.code is Code.FULL_RATE_LEFT]


def texts(result: PortResult) -> tuple[str, str]:
    """The kernel's file, and the helpers."""
    kernel = next(t for p, t in result.files.items() if p.endswith("kernel.cu"))
    return kernel.decode(), next((t for p, t in result.files.items() if p.endswith("tcgen05.cuh")), b"").decode()


PRODUCER = "const int wg = threadIdx.x / 128; if (wg == 0) { if (threadIdx.x == 0) out[0] = 1; return; }"


MEET = """\
__device__ void meet(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ void wake(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
"""


TURNS = {"HEAD": MEET, "BEFORE": "meet(1 + consumer, 256);", "AFTER": "wake(2 - consumer, 256);"}


TAKEN = {
    "index": {},
    "shifted": {"ROLE": "const int consumer = threadIdx.x >> 7;"},
    "stages by a pointer to arrays": {
        "ROLE": CONSUMER + " extern __shared__ char raw[];"
        " uint64_t (*stages)[16] = reinterpret_cast<uint64_t (*)[16]>(raw);",
        "B": "b + (uint64_t)&stages[k & 1][2]",
    },
    "broadcast": {"ROLE": "const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);"},
    "other name": {"ROLE": "const unsigned tid = threadIdx.x; const unsigned consumer = tid / 128u;"},
    "helper": {
        "HEAD": "__device__ __forceinline__ int group() { return threadIdx.x / 128; }\n",
        "ROLE": "const int consumer = group();",
    },
    "a macro that only computes": {
        "HEAD": "#define STAGE(base, s) ((base) + (s) * 64 + ((s) == 1))\n",
        "B": "STAGE(b, k & 1)",
        "BEFORE": "const int s = k & 1; const uint64_t mine = STAGE(a, s);",
    },
    "macro": {"HEAD": "#define TID (threadIdx.x)\n", "ROLE": "const int consumer = TID / 128;", "INDEX": "TID"},
    "member": {
        "HEAD": "struct Who { int group; __device__ Who() { group = threadIdx.x / 128; } };\n",
        "ROLE": "Who who; const int consumer = who.group;",
    },
    "lambda": {"ROLE": "auto group = [&] { return threadIdx.x / 128; }; const int consumer = group();"},
    "spaced": {"ROLE": "const int consumer = threadIdx . x / 128;"},
    "producer first": {"THREADS": "384", "ROLE": f"{PRODUCER} const int consumer = wg - 1;"},
    **{
        f"a role counted down, {how}": {
            "THREADS": "384",
            "ROLE": f"int consumer = threadIdx.x / 128; if (consumer == 0) {{ out[0] = 1; return; }} {change};",
        }
        for how, change in {
            "by one": "--consumer",
            "behind it": "consumer--",
            "as a sum": "consumer -= 1",
            "set anew": "consumer = consumer - 1",
            "in two steps": "consumer += 3; consumer %= 4",
        }.items()
    },
    "rows that are left out": {
        "AFTER": "for (int r = 0; r < 2; ++r) { if (consumer * 64 + r >= rows) continue; out[r] = 0; }"
    },
    "rows behind the last": {
        "AFTER": "for (int r = 0; r < 2; ++r) { if (consumer * 64 + r >= rows) break; out[r] = 0; }"
    },
    "rows that are left out in each step": {
        "BEFORE": "for (int r = 0; r < 2; ++r) { if (consumer * 64 + r >= rows) continue; out[r] = 0; }"
    },
    "mask on stores": {"AFTER": "if (consumer * 64 + threadIdx.x % 128 / 32 * 16 >= rows) return;"},
    "a condition that both answer alike": {"BEFORE": "if (k == rows) break;"},
    "a branch of the first warp": {"BEFORE": "if (threadIdx.x < 32) { out[k] = 0; }"},
    "the same in both": {"BEFORE": "if (threadIdx.x < 256) { out[threadIdx.x] = 0; }"},
    "a barrier for each": {
        "AFTER": 'asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");',
    },
}


TAKEN |= {
    "turns": TURNS,
    "turns, the first one woken": TURNS | {"ROLE": f"{CONSUMER} if (consumer == 1) wake(1, 256);"},
    "turns in asm": {
        "BEFORE": 'asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory");',
        "AFTER": 'asm volatile("bar.arrive %0, 256;" ::"r"(2 - consumer) : "memory");',
    },
    "turns by a template": {
        "HEAD": "template <int T> __device__ void meet(int id) "
        '{ asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(T) : "memory"); }\n',
        "BEFORE": "meet<256>(1 + consumer);",
    },
    "a barrier of both": {"HEAD": MEET, "AFTER": "meet(3, 256);"},
}


REFUSED = {
    "one warpgroup": ({"THREADS": "128", "ROLE": "const int consumer = 0;"}, "one warpgroup"),
    "four": ({"THREADS": "512"}, "4 warpgroups"),
    "two dimensions": ({"ROLE": "const int consumer = threadIdx.y;"}, "more than one dimension"),
    "rows that are cut": ({"BEFORE": "if (consumer * 64 >= rows) break;"}, "may part at"),
    "a return in front": (
        {"ROLE": "const int consumer = threadIdx.x / 128; if (consumer * 64 >= rows) return;"},
        "part",
    ),
    "steps of its own": ({"BEFORE": "if (k >= steps - consumer) continue;"}, "may part at"),
    "a loop of its own": (
        {"ROLE": f"{CONSUMER} steps = steps - consumer;"},
        "may part at `k < steps`",
    ),
    "set behind a branch": (
        {"ROLE": f"{CONSUMER} if (consumer) {{ steps = 1; }}"},
        "may part at `k < steps`",
    ),
    "registers of its own": (
        {"ROLE": f'{CONSUMER} if (consumer) {{ asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }}'},
        "may part at `(consumer)`",
    ),
    "registers of its own, by a helper": (
        {
            "HEAD": '__device__ void more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }\n',
            "ROLE": f"{CONSUMER} if (consumer) more();",
        },
        "may part at `(consumer)`",
    ),
    "registers of its own, inside a helper": (
        {
            "HEAD": "__device__ void more(int who) "
            '{ if (who == 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }\n',
            "ROLE": f"{CONSUMER} more(consumer);",
        },
        "may part at `(who == 1)`",
    ),
    "B of its own": ({"B": "b + consumer * 8"}, "B descriptor"),
    "B by a helper": (
        {"HEAD": "__device__ uint64_t side(uint64_t b) { return b + threadIdx.x / 128; }\n", "B": "side(b)"},
        "B descriptor",
    ),
    "B out of a member": (
        {
            "HEAD": "struct Who { int g; __device__ Who() { g = threadIdx.x / 128; } };\n",
            "ROLE": "Who who; const int consumer = threadIdx.x / 128; const int side = who.g;",
            "B": "b + who.g",
        },
        "B descriptor",
    ),
    **{
        f"a macro with {macro}": (
            {
                "HEAD": f"__device__ void put(uint64_t& x, int y) {{ x = y; }}\n#define SET(x, y) {macro}\n",
                "ROLE": f"{CONSUMER} uint64_t mine = b; SET(mine, consumer);",
                "B": "mine + k",
            },
            "B descriptor",
        )
        for macro in (
            "x = (y)",
            "(x) += y",
            "(x)++, (x) *= 1 + y",
            "put(x, y)",
            "put((x), (y))",
            "x <<= y",
            "*(&x) = y",
            'asm("mov.u64 %0, %1;" : "=l"(x) : "l"(uint64_t(y)))',
        )
    },
    "turns for more threads": (TURNS | {"AFTER": "wake(2 - consumer, 384);"}, "take turns"),
    "turns in a value": (TURNS | {"AFTER": "const int woken = (wake(2 - consumer, 256), 1);"}, "take turns"),
    "turns with a way else": (
        TURNS | {"AFTER": "if (steps) wake(2 - consumer, 256); else out[0] = 1;"},
        "take turns",
    ),
    "turns by a helper": (
        TURNS
        | {"HEAD": f"{MEET}__device__ void turn(int who) {{ meet(1 + who, 256); }}\n", "AFTER": "turn(consumer);"},
        "on which named barrier",
    ),
    "a barrier by a pointer": ({"HEAD": MEET, "AFTER": "meet(int(out[0]), 256);"}, "on which named barrier"),
    "the index as a whole": ({"ROLE": "auto t = threadIdx; const int consumer = t.x / 128;"}, "as a whole"),
    "asm": (
        {"ROLE": 'unsigned t; asm("mov.u32 %0, %%tid.x;" : "=r"(t)); const int consumer = threadIdx.x / 128;'},
        "asm reads",
    ),
    "cooperative groups": ({"HEAD": "#include <cooperative_groups.h>\n"}, "numbers threads itself"),
    "a helper that another kernel has": (
        {
            "HEAD": "__device__ int group() { return threadIdx.x / 128; }\n"
            "__global__ void other(int* o) { o[0] = group(); }\n",
            "ROLE": "const int consumer = group();",
        },
        "also a kernel comes",
    ),
}
