# SPDX-License-Identifier: Apache-2.0
"""Ways in which two consumers part, or have a B of their own, that do not stand in the branch or operand itself."""

from __future__ import annotations

from full_rate_kernels import CONSUMER

CONTEXT = "struct Context { unsigned warp; };\n"


SIDE = "struct Side { uint64_t b; };\n"


WHO = "struct Who { int group = threadIdx.x / 128; };\n"


FLAG = f"{CONSUMER} __shared__ int flag[2];"


READY = """\
__device__ bool ready(unsigned bar) {
    int found;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(found) : "r"(bar));
    return found;
}
"""


PARTED_BY = {
    "a helper": {
        "HEAD": "__device__ bool is_first() { return threadIdx.x < 128; }\n",
        "BEFORE": "if (is_first()) break;",
    },
    "a helper of the consumer": {
        "HEAD": "__device__ bool is_first(int c) { return c == 0; }\n",
        "BEFORE": "if (is_first(consumer)) break;",
    },
    "a helper's default argument": {
        "HEAD": "__device__ int who(int t = threadIdx.x) { return t / 128; }\n",
        "BEFORE": "if (who()) break;",
    },
    "what a helper writes by a reference": {
        "HEAD": "__device__ void tell(bool& f) { f = threadIdx.x < 128; }\n",
        "ROLE": f"{CONSUMER} bool first; tell(first);",
        "BEFORE": "if (first) break;",
    },
    "what a helper writes by a pointer": {
        "HEAD": "__device__ void tell(bool* f) { *f = threadIdx.x < 128; }\n",
        "ROLE": f"{CONSUMER} bool first; tell(&first);",
        "BEFORE": "if (first) break;",
    },
    "what a helper writes to an array": {
        "HEAD": "__device__ void tell(bool* f) { *f = threadIdx.x < 128; }\n",
        "ROLE": f"{CONSUMER} bool first[1]; tell(first);",
        "BEFORE": "if (first[0]) break;",
    },
    "what a library writes to an array": {
        "ROLE": f"{CONSUMER} int g[1]; memcpy(g, &consumer, 4);",
        "BEFORE": "if (g[0]) break;",
    },
    "a flag in shared memory": {
        "ROLE": f"{FLAG} flag[consumer] = rows > consumer * 64;",
        "BEFORE": "if (flag[consumer]) break;",
    },
    "a pointer to a flag": {"ROLE": f"{FLAG} const int* p = flag; if (consumer) ++p;", "BEFORE": "if (*p) break;"},
    "a volatile flag": {"ROLE": f"{CONSUMER} __shared__ volatile int stop;", "BEFORE": "if (stop) break;"},
    "a volatile read": {"ROLE": f"{CONSUMER} __shared__ int stop;", "BEFORE": "if (*(volatile int*)&stop) break;"},
    **{
        f"what a helper writes to {to}": {
            "HEAD": "struct Pair { int a; };\n__device__ void tell(int* f) { *f = threadIdx.x / 128; }\n"
            "__device__ void say(int& f) { f = threadIdx.x / 128; }\n",
            "ROLE": f"{CONSUMER} int n[2]; Pair p; {call};",
            "BEFORE": "if (n[1] || p.a) break;",
        }
        for to, call in {
            "an element by a pointer": "tell(&n[1])",
            "an element behind the first": "tell(n + 1)",
            "an element by a reference": "say(n[1])",
            "a member by a pointer": "tell(&p.a)",
            "a member by a reference": "say(p.a)",
        }.items()
    },
    "a cast": {"ROLE": f"{CONSUMER} unsigned g; reinterpret_cast<int&>(g) = consumer;", "BEFORE": "if (g) break;"},
    "a cast of an address": {"ROLE": f"{CONSUMER} unsigned g; *(int*)&g = consumer;", "BEFORE": "if (g) break;"},
    "an object made of another": {
        "HEAD": "struct In { int w; }; struct Out { In i; __device__ Out(In x) : i(x) {} };\n",
        "ROLE": f"{CONSUMER} In in{{consumer}}; Out made(in);",
        "BEFORE": "if (made.i.w) break;",
    },
    "an ordered read": {
        "HEAD": "__device__ int look(uint64_t p) "
        '{ int r; asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(r) : "l"(p)); return r; }\n',
        "BEFORE": "if (look(a)) break;",
    },
    "when a phase is over": {"HEAD": READY, "BEFORE": "if (ready(rows)) break;"},
    "when a phase is over, in a variable": {"HEAD": READY, "BEFORE": "const bool over = ready(rows); if (over) break;"},
    "a template's argument": {
        "HEAD": "template <bool F> __device__ int trips(int s) { return F ? s : s - 1; }\n",
        "ROLE": f"{CONSUMER} steps = consumer ? trips<true>(steps) : trips<false>(steps);",
    },
    "a member": {
        "HEAD": CONTEXT,
        "ROLE": f"{CONSUMER} Context c{{threadIdx.x >> 5}};",
        "BEFORE": "if (c.warp >= 4) break;",
    },
    "a member by a pointer": {
        "HEAD": CONTEXT,
        "ROLE": f"{CONSUMER} Context c; Context* p = &c; p->warp = threadIdx.x >> 5;",
        "BEFORE": "if (c.warp >= 4) break;",
    },
    "a member that a helper fills": {
        "HEAD": f"{CONTEXT}__device__ void fill(Context& c) {{ c.warp = threadIdx.x >> 5; }}\n",
        "ROLE": f"{CONSUMER} Context c; fill(c);",
        "BEFORE": "if (c.warp >= 4) break;",
    },
    "a structured binding": {
        "HEAD": "struct Two { unsigned warp, lane; };\n"
        "__device__ Two both() { return {threadIdx.x >> 5, threadIdx.x & 31}; }\n",
        "ROLE": f"{CONSUMER} auto [lane, warp] = both();",
        "BEFORE": "if (warp >= 4) break;",
    },
    "an alias of a class": {
        "HEAD": f"{WHO}using Me = Who;\n",
        "ROLE": f"{CONSUMER} Me me;",
        "BEFORE": "if (me.group) break;",
    },
    "a typedef of a class": {
        "HEAD": f"{WHO}typedef Who Me;\n",
        "ROLE": f"{CONSUMER} auto me = Me{{}};",
        "BEFORE": "if (me.group) break;",
    },
    "an array of a class": {
        "HEAD": "struct Pair { int v[2]; __device__ int& operator[](int i) { return v[i]; } };\n",
        "ROLE": f"{CONSUMER} Pair info; info[0] = consumer;",
        "BEFORE": "if (info[0]) break;",
    },
    "a reference": {"ROLE": f"{CONSUMER} int g = 0; int& r = g; r = threadIdx.x / 128;", "BEFORE": "if (g) break;"},
    "a pointer": {"ROLE": f"{CONSUMER} int g = 0; int* p = &g; *p = threadIdx.x / 128;", "BEFORE": "if (g) break;"},
    "a pointer that is handed on": {
        "HEAD": "__device__ void tell(int* p, int c) { *p = c; }\n",
        "ROLE": f"{CONSUMER} int g = 0; int* p = &g; tell(p, consumer);",
        "BEFORE": "if (g) break;",
    },
    "a chosen variable": {"ROLE": f"{CONSUMER} int g = 0, h = 0; (consumer ? g : h) = 1;", "BEFORE": "if (g) break;"},
    "a lambda's capture": {
        "ROLE": f"{CONSUMER} int g = 0; auto set = [&] {{ g = consumer; }}; set();",
        "BEFORE": "if (g) break;",
    },
    "a shuffled index": {
        "ROLE": f"{CONSUMER} const int w = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);",
        "BEFORE": "if (w >= 4) break;",
    },
    "a vote": {
        "ROLE": f"{CONSUMER} const unsigned m = __ballot_sync(0xffffffffu, threadIdx.x < 128);",
        "BEFORE": "if (m) break;",
    },
    "a macro's text": {"HEAD": "#define ADVANCE(k) k += consumer\n", "BEFORE": "ADVANCE(k);"},
    "turns that some leave out": {
        "ROLE": f"{CONSUMER} int n = 0; for (int i = 0; i < 4; ++i) {{ if (consumer + i > rows) continue; ++n; }}",
        "BEFORE": "if (n == k) break;",
    },
    "a loop that some leave": {
        "ROLE": f"{CONSUMER} int n = 0; for (int i = 0; i < 4; ++i) {{ ++n; if (consumer + i > rows) break; }}",
        "BEFORE": "if (n == k) break;",
    },
    "a switch in a loop that some leave": {
        "ROLE": f"{CONSUMER} int n = 0; for (int i = 0; i < 4; ++i) "
        "{ switch (i) { case 2: if (consumer + i > rows) continue; } ++n; }",
        "BEFORE": "if (n == k) break;",
    },
    "a step that some leave out": {"BEFORE": "if (consumer * 64 >= rows) continue;"},
    "a role counted down at times": {
        "ROLE": f"{CONSUMER} int g = consumer; if (rows > 64) --g;",
        "BEFORE": "if (g == 0) break;",
    },
    "the left side of and": {"BEFORE": "(consumer > 0) && (fence(), true);"},
    "elements of a range": {
        "ROLE": f"{CONSUMER} int all[1] = {{consumer}};",
        "BEFORE": "for (int g : all) steps -= g;",
    },
}


LEFT_BY = {
    "a switch": "switch (consumer) { case 1: return; default: break; }",
    "a loop": "while (consumer) { return; }",
    "a range": "int all[1] = {consumer}; for (int g : all) { if (rows) return; }",
    "asm": 'if (consumer * 64 >= rows) asm volatile("exit;");',
    "a macro": "if (consumer * 64 >= rows) LEAVE;",
    "a macro with its condition": "GUARD(consumer * 64 >= rows);",
}


LEAVING = "#define LEAVE return\n#define GUARD(c) if (c) return\n"


OF_ITS_OWN = {
    "a member": ("o.b", f"{CONSUMER} Side o; o.b = b + consumer;"),
    "a list": ("o.b", f"{CONSUMER} Side o{{b + consumer}};"),
    "a pointer": ("o->b", f"{CONSUMER} __shared__ Side all[2]; Side* o = &all[consumer];"),
    "a lambda": ("side()", f"{CONSUMER} auto side = [&] {{ return b + consumer; }};"),
    "a constructor": ("o.b", f"{CONSUMER} Made o(b);"),
}


MADE = "struct Made { uint64_t b; __device__ Made(uint64_t x) { b = x + threadIdx.x / 128; } };\n"


OPAQUE = {
    "a builtin": ("", "const int consumer = __nvvm_read_ptx_sreg_tid_x() / 128;"),
    "a library": ("#include <cuda/ptx>\n", "const int consumer = cuda::ptx::get_sreg_tid_x() / 128;"),
    "a macro with asm": (
        '#define TID() ({ unsigned t; asm("mov.u32 %0, %%tid.x;" : "=r"(t)); t; })\n',
        "const int consumer = TID() / 128;",
    ),
    "a register that a macro names": (
        '#define READ(r, v) asm("mov.u32 %0, %%" #r ";" : "=r"(v))\n',
        "unsigned t; READ(tid.x, t); const int consumer = t / 128;",
    ),
    "a library by a macro": (
        "#include <cutlass/cutlass.h>\n#define WHO() cutlass::canonical_warp_group_idx()\n",
        "const int consumer = WHO();",
    ),
    "a library by a macro, for rows": (
        "#include <cutlass/cutlass.h>\n#define WHO() cutlass::canonical_warp_group_idx()\n",
        f"{CONSUMER} out += (WHO() - consumer) * 8;",
    ),
    "a register that a macro names, for rows": (
        '#define READ(r, v) asm("mov.u32 %0, %%" #r ";" : "=r"(v))\n',
        f"{CONSUMER} unsigned t; READ(tid.x, t); out += (t / 128 - consumer) * 8;",
    ),
    "a library that is handed on, for rows": (
        "#include <cutlass/cutlass.h>\ntemplate <typename Ask> __device__ int asked(Ask ask) { return ask(); }\n",
        f"{CONSUMER} if (asked(cutlass::canonical_warp_group_idx) > consumer) out += 8;",
    ),
    "the index's name by a macro, for rows": (
        "#define IDX(n) thread##n\n",
        f"{CONSUMER} out += (IDX(Idx).x / 128 - consumer) * 8;",
    ),
    "a library in a default": (
        "#include <cutlass/cutlass.h>\n"
        "__device__ int group(int g = cutlass::canonical_warp_group_idx()) { return g; }\n",
        "const int consumer = group();",
    ),
    "a library that is handed on": (
        "#include <cutlass/cutlass.h>\ntemplate <typename Ask> __device__ int asked(Ask ask) { return ask(); }\n",
        "const int consumer = asked(cutlass::canonical_warp_group_idx);",
    ),
    "a thread that a library asks for": (
        "#include <cute/tensor.hpp>\n",
        f"{CONSUMER} if (cute::thread(200)) out[4096] = 7;",
    ),
}


SAME = {
    "an inner name": {
        "ROLE": f"{CONSUMER} int g = 0; {{ int g = consumer; out[g] = 0; }}",
        "BEFORE": "if (g == k) break;",
    },
    "a loop that waits": {"HEAD": READY, "BEFORE": "while (!ready(rows)) { }"},
    "a pointer to what is shared": {
        "ROLE": f"{FLAG} int* p = flag; p[consumer] = rows;",
        "BEFORE": "if (k == rows) break;",
    },
    "a return behind the MMAs": {"AFTER": "switch (consumer) { case 1: if (rows <= 64) return; }"},
}
