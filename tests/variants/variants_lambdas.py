# SPDX-License-Identifier: Apache-2.0
"""Pipelines written with lambdas: steps by a `static_for`, batches and epilogues that take an accumulator."""

from __future__ import annotations

from functools import partial

from variant_template import asm, registers, variant, wrapper
from variant_types import plus, total

put = partial(variant, axis="lambda")

DONE = """<declare>
    <loop>
    <store>"""
STATIC_FOR = """
template <int N>
struct Int {
    static constexpr int value = N;
    __device__ constexpr operator int() const { return N; }
};
template <int N, int I = 0, class F>
__device__ __forceinline__ void static_for(F&& f) {
    if constexpr (I < N) {
        f(Int<I>{});
        static_for<N, I + 1>(f);
    }
}
"""
SEQUENCE_FOR = """
template <class F, int... I>
__device__ __forceinline__ void each_of(F&& f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F>
__device__ __forceinline__ void static_for(F&& f) {
    each_of(static_cast<F&&>(f), std::make_integer_sequence<int, N>{});
}
"""
STEP = "mma(d, a + (2 * t + S) * kA, b + (2 * t + S) * kB);"
BY_VALUE = f"""static_for<2>([&](auto s) {{
            constexpr int S = decltype(s)::value;
            {STEP}
        }});"""

put("static_for", DONE, types=STATIC_FOR, pieces={"two": BY_VALUE})
put("static_for_of_sequence", DONE, head="#include <utility>\n", types=SEQUENCE_FOR, pieces={"two": BY_VALUE})
put("static_for_by_conversion", DONE, types=STATIC_FOR, pieces={"two": BY_VALUE.replace("decltype(s)::value", "s")})
put(
    "static_for_nested",
    DONE,
    types=STATIC_FOR,
    pieces={
        "two": """static_for<1>([&](auto i) {
            static_for<2>([&](auto j) {
                constexpr int S = decltype(i)::value * 2 + decltype(j)::value;
                mma(d, a + (2 * t + S) * kA, b + (2 * t + S) * kB);
            });
        });"""
    },
)
put(
    "static_for_around_batches",
    f"""<declare>
    for (int t = 0; t < tiles; ++t) {{
        static_for<2>([&](auto s) {{
            constexpr int S = decltype(s)::value;
            if (S == 0 && t == 0) {{
                <zero>
            }}
            fence();
            {STEP}
            commit();
        }});
        wait<0>();
    }}
    <store>""",
    types=STATIC_FOR,
)
put(
    "static_for_flag",
    f"""<T> d[<R>];
    for (int t = 0; t < tiles; ++t) {{
        fence();
        static_for<2>([&](auto s) {{
            constexpr int S = decltype(s)::value;
            {STEP.replace("kB);", "kB, t > 0 || S > 0);")}
        }});
        commit();
        wait<0>();
    }}
    <store>""",
    types=STATIC_FOR,
    mma=wrapper(flag=True),
)
put(
    "static_for_store",
    """<declare>
    <loop>
    static_for<<R>>([&](auto s) { c[at(s)] = d[decltype(s)::value]; });""",
    types=STATIC_FOR,
)
put("static_for_zero", "<T> d[<R>];\n    static_for<<R>>([&](auto s) { d[s] = 0; });\n    <loop>\n    <store>",
    types=STATIC_FOR)  # fmt: skip

TWO = "float d[16], e[16];\n    "
ISSUE = """auto issue = [&](float (&x)[16], int s) {
        for (int i = 0; i < 16; ++i) x[i] = 0.f;
        fence();
        mma(x, a + s * kA, b + s * kB);
        commit();
    };
    float sum[16] = {};
    """
RETIRE = """auto retire = [&](float (&x)[16]) {
        for (int i = 0; i < 16; ++i) sum[i] += x[i];
    };
    """
OUT = "for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];"
OVERLAPPED = """issue(d, 0);
    for (int s = 0; s < 2 * tiles; s += 2) {
        issue(e, s + 1);
        wait<1>();
        retire(d);
        if (s + 2 < 2 * tiles) {
            issue(d, s + 2);
            wait<1>();
        } else {
            wait<0>();
        }
        retire(e);
    }
    """
put("issue_and_retire", TWO + ISSUE + RETIRE + OVERLAPPED + OUT)
put(
    "issue_and_retire_in_turn",
    TWO + ISSUE + RETIRE + "for (int s = 0; s < 2 * tiles; ++s) { issue(d, s); wait<0>(); retire(d); }\n    " + OUT,
)
put(
    "issue_by_parity",
    TWO
    + ISSUE
    + RETIRE
    + """for (int s = 0; s < 2 * tiles; ++s) {
        if (s & 1)
            issue(e, s);
        else
            issue(d, s);
        if (s > 0) {
            wait<1>();
            if (s & 1)
                retire(d);
            else
                retire(e);
        }
    }
    wait<0>();
    retire(e);
    """
    + OUT,
)
put(
    "issue_generic",
    TWO + ISSUE.replace("float (&x)[16]", "auto& x") + RETIRE.replace("float (&x)[16]", "auto& x") + OVERLAPPED + OUT,
)
put(
    "issue_by_pointer",
    TWO + ISSUE.replace("float (&x)[16]", "float* x") + RETIRE.replace("float (&x)[16]", "const float* x")
    + OVERLAPPED + OUT,
    mma=wrapper(parameter="float* d"),
)  # fmt: skip
put(
    "pipeline_of_callbacks",
    TWO + ISSUE + RETIRE + "pipeline(issue, retire, d, e, 2 * tiles);\n    " + OUT,
    types="""
template <class Issue, class Retire>
__device__ __forceinline__ void pipeline(Issue issue, Retire retire, float (&d)[16], float (&e)[16], int steps) {
    issue(d, 0);
    for (int s = 0; s < steps; s += 2) {
        issue(e, s + 1);
        wait<1>();
        retire(d);
        if (s + 2 < steps) {
            issue(d, s + 2);
            wait<1>();
        } else {
            wait<0>();
        }
        retire(e);
    }
}
""",
)
put(
    "lambda_in_lambda",
    """<declare>
    auto batch = [&](int t) {
        auto step = [&](int s) { mma(d, a + s * kA, b + s * kB); };
        fence();
        step(2 * t);
        step(2 * t + 1);
        commit();
    };
    for (int t = 0; t < tiles; ++t) {
        batch(t);
        wait<0>();
    }
    <store>""",
)
put(
    "lambda_returns_early",
    """<declare>
    auto batch = [&](int t) {
        if (t >= tiles) return;
        <batch>
    };
    for (int t = 0; t < 5; ++t) {
        batch(t);
        wait<0>();
    }
    <store>""",
)
put(
    "lambda_returns_whether",
    """<declare>
    auto batch = [&](int t) -> bool {
        <multiply>
        return t + 1 < tiles;
    };
    for (int t = 0; batch(t); ++t) {
    }
    <store>""",
)
put(
    "lambda_template",
    """<declare>
    auto batch = [&]<int S>(int t) {
        fence();
        mma(d, a + (2 * t + S) * kA, b + (2 * t + S) * kB);
        commit();
    };
    for (int t = 0; t < tiles; ++t) {
        batch.template operator()<0>(t);
        batch.template operator()<1>(t);
        wait<0>();
    }
    <store>""",
)
put(
    "lambda_of_asm",
    """<declare>
    auto one = [&](uint64_t x, uint64_t y) {
        """
    + asm(registers("d", 16), a="x", b="y")
    + """
    };
    for (int t = 0; t < tiles; ++t) {
        fence();
        one(a + 2 * t * kA, b + 2 * t * kB);
        one(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    <store>""",
)
put(
    "lambda_declares_and_returns_sum",
    """float s = 0.f;
    auto whole = [&]() {
        <declare>
        <loop>
        for (int i = 0; i < 16; ++i) c[at(i)] = d[i];
        return d[0];
    };
    s = whole();
    c[at(0)] = s + 1.f;""",
    want=plus({0: 1}),
)
put(
    "immediate_with_init",
    """<declare>
    [&, last = tiles - 1](int first) {
        for (int t = first; t <= last; ++t) {
            <multiply>
        }
    }(0);
    <store>""",
)
put(
    "release_between_wait_and_read",
    """<declare>
    __shared__ int released;
    if (threadIdx.x == 0) released = 0;
    __syncthreads();
    auto epilogue = [&](float (&x)[16], bool release) {
        __syncwarp();
        if (release && threadIdx.x % 32 == 0) atomicAdd(&released, 1);
        for (int i = 0; i < 16; ++i) c[at(i)] = x[i];
    };
    <loop>
    epilogue(d, true);
    __syncthreads();
    if (threadIdx.x == 0 && released != 4) c[0] = -1.f;""",
    want=total,
)

BATCHES = """auto batch = [&](int s) {
        fence();
        mma(d, a + s * kA, b + s * kB);
        commit();
    };
    """
OF_STEPS = """<declare>
    %s
    for (int t = 0; t < tiles; ++t) {
        %s
        wait<0>();
    }
    <store>"""


def called(name: str, calls: str, more: str = "", *, batches: str = BATCHES, **rest: object) -> None:
    """A lambda of one batch, called in another way twice a tile."""
    put(name, OF_STEPS % (batches + more, calls), **rest)


def twice(form: str) -> str:
    """Two calls, for each step of a tile."""
    return "\n        ".join(form.replace("$", f"2 * t + {s}" if s else "2 * t") for s in (0, 1))


called("lambda_called", twice("batch($);"))
called("lambda_by_operator", twice("batch.operator()($);"))
called("lambda_by_parentheses", twice("(batch)($);"))
called("lambda_by_reference_to_it", twice("g($);"), "auto& g = batch;")
called("lambda_by_const_reference_to_it", twice("g($);"), "const auto& g = batch;")
called("lambda_by_copy_of_it", twice("g($);"), "auto g = batch;")
called("lambda_by_pointer_to_it", twice("(*g)($);"), "auto* g = &batch;")
called("lambda_by_arrow", twice("g->operator()($);"), "auto* g = &batch;")
called("lambda_handed_on", twice("apply(batch, $);"), types="""
template <class F>
__device__ __forceinline__ void apply(F&& f, int s) {
    f(s);
}
""")  # fmt: skip
called("lambda_handed_on_by_value", twice("apply(batch, $);"), types="""
template <class F>
__device__ __forceinline__ void apply(F f, int s) {
    f(s);
}
""")  # fmt: skip
called("lambda_handed_on_twice", "both(batch, t);", types="""
template <class F>
__device__ __forceinline__ void both(F const& f, int t) {
    f(2 * t);
    f(2 * t + 1);
}
""")  # fmt: skip
called("lambda_in_object", twice("held.f($);"), "Held<decltype(batch)> held{batch};", types="""
template <class F>
struct Held {
    F f;
};
""")  # fmt: skip
called("lambda_in_object_called", twice("held($);"), "Held held{batch};", types="""
template <class F>
struct Held {
    F f;
    __device__ void operator()(int s) { f(s); }
};
template <class F>
Held(F) -> Held<F>;
""")  # fmt: skip
called("lambda_captured", twice("g($);"), "auto g = [&](int s) { batch(s); };")
called("lambda_captured_as", twice("g($);"), "auto g = [f = batch](int s) { f(s); };")
called("lambda_of_self", "batch(batch, 2 * t, 2);", batches="""auto batch = [&](auto& self, int s, int left) -> void {
        fence();
        mma(d, a + s * kA, b + s * kB);
        commit();
        if (left > 1) self(self, s + 1, left - 1);
    };
    """)  # fmt: skip
called("lambda_template_with_reference", twice("batch.template operator()<float>(d, $);"),
       batches="""auto batch = [&]<class T>(T (&x)[16], int s) {
        fence();
        mma(x, a + s * kA, b + s * kB);
        commit();
    };
    """)  # fmt: skip
called("lambda_of_function", twice("batch($);"), batches="auto batch = make(d, a, b);\n    ", types="""
__device__ __forceinline__ auto make(float (&d)[16], uint64_t a, uint64_t b) {
    return [&d, a, b](int s) {
        fence();
        mma(d, a + s * kA, b + s * kB);
        commit();
    };
}
""")  # fmt: skip
called("lambda_or_other", twice("if (s_even($)) even($); else odd($);"),
       "auto even = batch, odd = batch; auto s_even = [](int s) { return s % 2 == 0; };")  # fmt: skip
called("lambda_invoked", twice("invoke(batch, $);"), types="""
template <class F, class... Args>
__device__ __forceinline__ auto invoke(F&& f, Args... args) -> decltype(f(args...)) {
    return f(args...);
}
""")  # fmt: skip
called("lambda_unused_beside", twice("batch($);"), "auto unused = [&](int s) { fence(); mma(d, a, b); commit(); };")

IN_BATCH = """
template <class F>
__device__ __forceinline__ void in_batch(F&& f) {
    fence();
    f();
    commit();
}
"""
put("steps_handed_to_batch", DONE, types=IN_BATCH, pieces={"batch": "in_batch([&] {\n            <two>\n        });"})
put("steps_handed_to_batch_and_wait", DONE, types=IN_BATCH.replace("commit();", "commit();\n    wait<0>();"),
    pieces={"multiply": "in_batch([&] {\n            <two>\n        });"})  # fmt: skip
put("named_steps_handed_to_batch", DONE, types=IN_BATCH,
    pieces={"batch": "auto steps = [&] {\n            <two>\n        };\n        in_batch(steps);"})  # fmt: skip
put("batch_kept_by_maker", """<declare>
    auto later = in_batch([&](int t) {
        <two>
    });
    for (int t = 0; t < tiles; ++t) later(t);
    wait<0>();
    <store>""", types="""
template <class F>
__device__ __forceinline__ auto in_batch(F f) {
    return [f](int t) {
        fence();
        f(t);
        commit();
    };
}
""")  # fmt: skip
RETIRED = """auto retire = [&](int by) {
        for (int i = 0; i < 16; ++i) d[i] += by;
    };
    """
for name, call, more in (
    ("by_name", "retire(1);", ""),
    ("by_operator", "retire.operator()(1);", ""),
    ("by_reference", "r(1);", "auto& r = retire;\n    "),
    ("by_pointer", "(*r)(1);", "auto* r = &retire;\n    "),
    ("handed_on", "apply(retire, 1);", ""),
    ("captured_as", "r(1);", "auto r = [f = retire](int by) { f(by); };\n    "),
):
    put(
        f"change_{name}",
        f"""<declare>
    {RETIRED}{more}for (int t = 0; t < tiles; ++t) {{
        <multiply>
        {call}
    }}
    <store>""",
        want=plus(dict.fromkeys(range(16), 3)),
        types="""
template <class F>
__device__ __forceinline__ void apply(F&& f, int s) {
    f(s);
}
""",
    )
