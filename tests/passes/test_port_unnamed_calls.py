# SPDX-License-Identifier: Apache-2.0
"""What has to do with MMAs and is called without its name, or outside of bodies, is refused: no call of it is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LOOP, STORE, kernel, ported, refused

MMA = """asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, "
        "1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]) : "l"(a), "l"(b));"""
RUN = f"for (int i = 0; i < 8; ++i) d[i] = 0; arrive(); {MMA} commit(); wait<0>();"
SHOW = "for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc.d[i];"
BATCHES = "for (int k = 0; k < steps; ++k) { arrive(); <issue> commit(); wait<0>(); }"
PLAIN = "float acc[8] = {0};" + LOOP
PAIR = "struct Pair { uint64_t a, b; };\n"
ADDS = "float d[8]; __device__ void add(uint64_t a, uint64_t b) { " + MMA + " }"

UNNAMED = {
    "compound assignment": (
        f"{PAIR}struct Acc {{ float d[8];\n"
        f"__device__ void operator+=(Pair p) {{ uint64_t a = p.a, b = p.b; {MMA} }} }};",
        f"Acc acc{{}}; {BATCHES.replace('<issue>', 'acc += Pair{a, b};')} {SHOW}",
    ),
    "that calls a method": (
        f"{PAIR}struct Acc {{ {ADDS} __device__ void operator-=(Pair p) {{ add(p.a, p.b); }} }};",
        f"Acc acc{{}}; {BATCHES.replace('<issue>', 'acc -= Pair{a, b};')} {SHOW}",
    ),
    "of both objects": (
        f"{PAIR}struct Acc {{ {ADDS} }};\n"
        "__device__ Acc& operator<<(Acc& acc, Pair p) { acc.add(p.a, p.b); return acc; }",
        f"Acc acc{{}}; {BATCHES.replace('<issue>', 'acc << Pair{a, b} << Pair{b, a};')} {SHOW}",
    ),
    "increment that waits": (
        "struct Turn { int k; __device__ void operator++() { ++k; wait<0>(); } };",
        PLAIN + "Turn turn{0}; ++turn;",
    ),
    "constructor": (
        f"struct Acc {{ float d[8]; __device__ Acc(uint64_t a, uint64_t b) {{ {RUN} }} }};",
        f"Acc acc(a, b); {SHOW}",
    ),
    "constructor of an object of deduced type": (
        f"struct Acc {{ float d[8]; __device__ Acc(uint64_t a, uint64_t b) {{ {RUN} }} }};",
        f"auto acc = Acc(a, b); {SHOW}",
    ),
    "constructor that calls": (
        f"struct Acc {{ float d[8]; __device__ void run(uint64_t a, uint64_t b) {{ {RUN} }}\n"
        "__device__ Acc(uint64_t a, uint64_t b) { run(a, b); } };",
        f"auto acc = Acc{{a, b}}; {SHOW}",
    ),
    "destructor that waits": ("struct Guard { __device__ ~Guard() { wait<0>(); } };", "Guard guard;" + PLAIN),
    "destructor that commits": (
        "struct Guard { __device__ ~Guard() { commit(); } };",
        "float acc[8] = {0}; for (int k = 0; k < steps; ++k) { { Guard g; arrive(); mma(acc, a, b); } wait<0>(); }",
    ),
    "destructor that multiplies": (
        f"struct Late {{ uint64_t a, b; float* out; __device__ ~Late() {{ float d[8]; {RUN} out[0] = d[0]; }} }};",
        "Late late{a, b, out};",
    ),
    "conversion": (
        "struct Done { __device__ operator bool() const { wait<0>(); return true; } };",
        PLAIN + "Done done;",
    ),
}

OUTSIDE = {
    "value in a list of members": (
        f"struct Acc {{ float d[8]; int n; __device__ int run(uint64_t a, uint64_t b) {{ {RUN} return 1; }}\n"
        "__device__ Acc(uint64_t a, uint64_t b) : n(run(a, b)) {} };",
        f"auto acc = Acc(a, b); {SHOW}",
    ),
    "value of a member": (
        f"struct Acc {{ uint64_t a, b; float d[8]; int n = run(); __device__ int run() {{ {RUN} return 1; }} }};",
        f"auto acc = Acc{{a, b}}; {SHOW}",
    ),
    "value of a parameter": (
        "__device__ int drain() { wait<0>(); return 0; }\n__device__ int last(int n = drain()) { return n; }",
        PLAIN + "last();",
    ),
}


@pytest.mark.parametrize(("types", "body"), UNNAMED.values(), ids=UNNAMED)
def test_what_is_called_without_its_name_is_refused(tmp_path: Path, types: str, body: str) -> None:
    found = refused(tmp_path, kernel(body, before=types))
    assert any("PT2026" in text and "is called without its name" in text for text in found), found


@pytest.mark.parametrize(("types", "body"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_called_outside_of_bodies_is_refused(tmp_path: Path, types: str, body: str) -> None:
    found = refused(tmp_path, kernel(body, before=types))
    assert any("PT2026" in text and "outside of a function's body" in text for text in found), found


@pytest.mark.parametrize(
    ("types", "body"),
    [
        (
            "struct Acc { float d[8]; __device__ void operator*=(float f) { d[0] *= f; } };",
            "Acc other{}; other *= 2.f;",
        ),
        ("struct Step { int k; __device__ Step(int n) : k(n) {} __device__ ~Step() {} };", "Step step(2);"),
        ("struct wait_t { __device__ operator int() const { return 1; } };", "int n = wait_t{};"),
    ],
    ids=["operator", "constructor and destructor", "conversion"],
)
def test_what_has_nothing_to_do_with_mmas_goes_on(tmp_path: Path, types: str, body: str) -> None:
    assert "tcgen05" in ported(tmp_path, kernel(PLAIN + body + STORE, before=types))


def test_a_chain_of_calls_of_an_object_is_seen(tmp_path: Path) -> None:
    types = (
        f"struct Acc {{ float d[8]; __device__ Acc& operator()(uint64_t a, uint64_t b) {{ {MMA} return *this; }} }};"
    )
    found = refused(
        tmp_path, kernel(f"Acc acc{{}}; {BATCHES.replace('<issue>', 'acc(a, b)(b, a);')} {SHOW}", before=types)
    )
    assert any("PT2024" in text for text in found), found
