# SPDX-License-Identifier: Apache-2.0
"""Variables that statements change without an assignment to their names, and consumers that wait for each other by what
a library has."""

from __future__ import annotations

from full_rate_kernels import CONSUMER

STATE = "struct State { int n = 0; __device__ void set(int v) { n = v; } };\n"


CALL = "template <class F> __device__ void call(F f, int v) { f(v); }\n"


SET_BY = {
    "a pointer to a pointer": ("", "int* p = &n; int** pp = &p; **pp = consumer;"),
    "a copy of a pointer": ("", "int* p = &n; int* q = p; *q = consumer;"),
    "a reference to a reference": ("", "int& q = n; int& r = q; r = consumer;"),
    "a reference in parentheses": ("", "int& q(n); q = consumer;"),
    "a chosen reference": ("", "int z; int& q = rows ? n : z; q = consumer;"),
    "a returned reference": ("__device__ int& id(int& s) { return s; }\n", "int& q = id(n); q = consumer;"),
    "a member that is a reference": ("struct Refers { int& to; };\n", "Refers s{n}; s.to = consumer;"),
    "a constructor": ("struct Made { __device__ Made(int& n, int c) { n = c; } };\n", "Made m(n, consumer);"),
    "a constructor with braces": ("struct Made { __device__ Made(int& n, int c) { n = c; } };\n", "Made{n, consumer};"),
    "a lambda that is handed it": ("", "auto set = [&n](int v) { n = v; }; set(consumer);"),
    "a lambda with a capture of its own": ("", "auto set = [&m = n](int v) { m = v; }; set(consumer);"),
    "a lambda called on the spot": ("", "[&](int v) { n = v; }(consumer);"),
    "a lambda that a helper calls": (CALL, "auto set = [&](int v) { n = v; }; call(set, consumer);"),
    "a lambda that some call": ("", "auto count = [&] { ++n; }; if (consumer) count();"),
    "a lambda that some leave": ("", "auto count = [&](int c) { if (c) return; ++n; }; count(consumer);"),
    "a lambda that some leave by their index": (
        "",
        "auto count = [&] { if (threadIdx.x < 128) return; ++n; }; count();",
    ),
    "an instruction, by a pointer": ("", 'int* p = &n; asm("mov.u32 %0, %1;" : "=r"(*p) : "r"(consumer));'),
    "an instruction, by an address": ("", 'asm("st.u32 [%0], %1;" :: "l"(&n), "r"(consumer) : "memory");'),
    "placement": ("", "new (&n) int(consumer);"),
    "a short circuit": ("", "consumer && ++n;"),
    "a choice": ("", "consumer ? ++n : 0;"),
    "the name in a macro": ("#define STOP(c) do { if (c) n = 1; } while (0)\n", "STOP(consumer);"),
    "a macro by itself": ("#define NEXT n += threadIdx.x / 128\n", "NEXT;"),
    "a macro that some come to": ("#define NEXT ++n\n", "if (consumer) { NEXT; }"),
}


OBJECT_BY = {
    "a call operator": ("struct State { int n = 0; __device__ void operator()(int v) { n += v; } };\n", "s(consumer);"),
    "an operator": (
        "struct State { int n = 0; __device__ State& operator<<(int v) { n += v; return *this; } };\n",
        "s << consumer;",
    ),
    "an operator beside the class": (
        "struct State { int n = 0; };\n__device__ State& operator<<(State& s, int v) { s.n += v; return s; }\n",
        "s << consumer;",
    ),
    "a method of a pointer": (STATE, "State* p = &s; p->set(consumer);"),
    "a method of a reference": (STATE, "State& r = s; r.set(consumer);"),
    "a method of an address": (STATE, "(&s)->set(consumer);"),
    "a method that returns a reference": (
        "struct State { int n = 0; __device__ int& at() { return n; } };\n",
        "s.at() = consumer;",
    ),
    "names for members": ("struct State { int m, n; };\n", "auto& [x, y] = s; y = consumer;"),
}


PARTS_BY = {
    **{how: {"HEAD": head, "ROLE": f"{CONSUMER} int n = 0; {change}", "BEFORE": "if (n) break;"}
       for how, (head, change) in SET_BY.items()},
    **{how: {"HEAD": head, "ROLE": f"{CONSUMER} State s; {change}", "BEFORE": "if (s.n) break;"}
       for how, (head, change) in OBJECT_BY.items()},
    "a method of a member": {
        "HEAD": f"{STATE}struct Outer {{ State s; }};\n",
        "ROLE": f"{CONSUMER} Outer o; o.s.set(consumer);",
        "BEFORE": "if (o.s.n) break;",
    },
    "a method of an element": {
        "HEAD": STATE,
        "ROLE": f"{CONSUMER} State all[2]; all[0].set(consumer);",
        "BEFORE": "if (all[0].n) break;",
    },
    "elements by references": {
        "ROLE": f"{CONSUMER} int n[4]; for (int& q : n) q = consumer;",
        "BEFORE": "if (n[1]) break;",
    },
}  # fmt: skip


THE_SAME = {
    "a lambda that all call alike": {
        "ROLE": f"{CONSUMER} int n = 0; auto count = [&](int v) {{ n += v; }};",
        "BEFORE": "count(1); if (n > rows) break;",
    },
    "a lambda that a helper calls": {
        "HEAD": CALL,
        "ROLE": f"{CONSUMER} int n = 0; auto set = [&](int v) {{ n = v; }}; call(set, rows);",
        "BEFORE": "if (n) break;",
    },
    "a lambda with rows of its own": {
        "ROLE": f"{CONSUMER} int n = 0; auto row = [&](int v) {{ return v * 64 + n; }}; out[row(consumer)] = 0;",
        "BEFORE": "if (n) break;",
    },
    "a reference": {"ROLE": f"{CONSUMER} int n = 0; int& q = n; q = rows;", "BEFORE": "if (n) break;"},
    "an operator": {
        "HEAD": "struct State { int n = 0; __device__ State& operator++() { ++n; return *this; } };\n",
        "ROLE": f"{CONSUMER} State s;",
        "BEFORE": "++s; if (s.n > rows) break;",
    },
    "an index of what a constructor is handed": {
        "HEAD": "struct Described { uint64_t at; __device__ Described(const uint64_t* p, int n) { at = p[n]; } };\n",
        "ROLE": f"{CONSUMER} __shared__ uint64_t tiles[4]; int n = 0;",
        "BEFORE": "Described d(&tiles[n], consumer); out[k] = d.at; if (n > rows) break;",
    },
}


BLOCK = "cuda::thread_scope_block"


ATOMIC, BARRIER = "#include <cuda/atomic>\n", "#include <cuda/barrier>\n"


FLAG = f"{CONSUMER} __shared__ volatile int flag;"


ASM = '"r"((unsigned)__cvta_generic_to_shared(&flag)), "r"(consumer) : "memory"'


WAITING = {
    "barriers of the library": (
        BARRIER,
        f"{CONSUMER} __shared__ cuda::barrier<{BLOCK}> bars[2];",
        "bars[consumer].wait(bars[1 - consumer].arrive());",
    ),
    "semaphores": (
        "#include <cuda/semaphore>\n",
        f"{CONSUMER} __shared__ cuda::binary_semaphore<{BLOCK}> turn[2];",
        "turn[consumer].acquire(); turn[1 - consumer].release();",
    ),
    "functions of cuda::ptx": (
        "#include <cuda/ptx>\n",
        f"{CONSUMER} __shared__ uint64_t bars[2];",
        "while (!cuda::ptx::mbarrier_try_wait_parity(&bars[consumer], k & 1)) ; "
        "cuda::ptx::mbarrier_arrive(&bars[1 - consumer]);",
    ),
    "one atomic": (
        ATOMIC,
        f"{CONSUMER} __shared__ cuda::atomic<int, {BLOCK}> flag;",
        "flag.wait(1 - consumer); flag.store(consumer); flag.notify_all();",
    ),
    "a loop over an atomic": (
        ATOMIC,
        f"{CONSUMER} __shared__ int flag;",
        f"{{ cuda::atomic_ref<int, {BLOCK}> r(flag); while (r.load() != consumer) ; }}",
    ),
    "a loop that is left": ("", FLAG, "for (;;) { if (flag == consumer) break; }"),
    "a helper that returns": (
        "__device__ void spin(volatile int& f, int v) { while (true) { if (f == v) return; } }\n",
        f"{CONSUMER} __shared__ int flag;",
        "spin(flag, consumer);",
    ),
    "a loop in asm": (
        "",
        f"{CONSUMER} __shared__ int flag;",
        'asm volatile("{.reg .pred p; .reg .u32 v; L: ld.volatile.shared.u32 v, [%0]; setp.ne.u32 p, v, %1; '
        f'@p bra L; }}" :: {ASM});',
    ),
}


APART = {
    "a factor": ("", "const int mine = threadIdx.x / 128 * rows;"),
    "a quotient": ("", "const int mine = int(threadIdx.x / 128) * 128 / rows;"),
    "turns": ("", "const int mine = (threadIdx.x / 128) ^ (rows & 1);"),
    "a remainder": ("", "const int mine = (threadIdx.x / 128 + rows) % 2;"),
    "a choice": ("", "const int mine = rows > 64 ? consumer : 1 - consumer;"),
    "a helper": ("__device__ int tile(int c, int n) { return c * n; }\n", "const int mine = tile(consumer, rows);"),
}


ALIKE = {
    "a constant": "constexpr int kHalf = 128 / 2; const int mine = consumer * kHalf / 64;",
    "a sum with a row of the launch": "const int mine = consumer + rows;",
    "a stage": "const int mine = consumer + rows % 4 * 2;",
}
