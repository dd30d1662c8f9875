# SPDX-License-Identifier: Apache-2.0
"""What a variable that statements change is at a place, in each thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.lang.cuda import find
from porter.lang.sources import load_sources
from porter.model.instantiations import only_instantiation
from porter.model.program import Program, build_program
from porter.model.thread_values import ThreadValues
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

TEXT = """\
__device__ void changes(int& x) { x += 1; }
__device__ int twice(int x) { return 2 * x; }
#define MORE(x) ((x) += 1)
__global__ void kernel(int* out, int m) {
    int wg = threadIdx.x / 128;
@BODY@
}
"""
WG = (0, 1, 2)

KNOWN = {
    "decremented in an arm": ("if (wg == 0) { out[0] = 1; } else { --wg; out[1] = @wg@; }", (None, 0, 1)),
    "the condition is of before": ("if (@wg@ == 0) { return; } else { --wg; }", WG),
    "the other arm": ("if (wg == 0) { out[0] = @wg@; } else { --wg; }", WG),
    "behind an arm that leaves": ("if (wg == 0) return; wg -= 1; out[1] = @wg@;", (None, 0, 1)),
    "in a loop behind it": ("wg = wg * 2 + 1; for (int i = 0; i < m; ++i) { out[i] = @wg@; }", (1, 3, 5)),
    "ahead of a loop that changes it": ("out[0] = @wg@; for (int i = 0; i < m; ++i) { wg += i; }", WG),
    "set anew": ("wg = 7; wg <<= 1; out[0] = @wg@;", (14, 14, 14)),
    "several": ("wg++; ++wg; wg *= 3; wg %= 4; out[0] = @wg@;", (2, 1, 0)),
    "its own new value is of before": ("wg = @wg@ + 1;", WG),
    "another of its name": ("{ int wg = 5; --wg; out[1] = wg; } out[0] = @wg@;", WG),
    "a name inside": ("{ int wg = 5; --wg; out[0] = @wg@; } --wg;", (4, 4, 4)),
    "through a function": ("--wg; ++wg; out[0] = twice(@wg@);", (None, 1, 2)),
    "later": ("out[0] = @wg@; --wg;", WG),
    "declared without a value": ("int next; next = wg + 1; out[0] = @next@;", (1, 2, 3)),
    "narrow": ("unsigned char few = 100; few += 100; out[0] = @few@;", None),
}
UNKNOWN = {
    "some have passed it": "if (m > 3) --wg; out[0] = @wg@;",
    "in its loop": "for (int i = 0; i < m; ++i) { out[i] = @wg@; --wg; }",
    "behind its loop": "for (int i = 0; i < m; ++i) { --wg; } out[0] = @wg@;",
    "by reference": "changes(wg); out[0] = @wg@;",
    "by address": "int* p = &wg; *p = 3; out[0] = @wg@;",
    "by a macro": "MORE(wg); out[0] = @wg@;",
    "inside of an expression": "out[1] = --wg; out[0] = @wg@;",
    "in a lambda": "auto f = [&] { --wg; }; f(); out[0] = @wg@;",
    "seen by a lambda": "--wg; auto f = [&] { out[0] = @wg@; }; f();",
    "by asm": 'asm volatile("mov.b32 %0, 3;" : "=r"(wg)); out[0] = @wg@;',
    "by a jump": "again: --wg; if (m > 3) goto again; out[0] = @wg@;",
    "in a switch": "switch (m) { case 0: --wg; default: out[0] = @wg@; }",
    "in some builds": "#if defined(X)\n--wg;\n#endif\nout[0] = @wg@;",
    "by what is not known": "wg = m; out[0] = @wg@;",
    "a reference to it": "int& other = wg; other = 4; out[0] = @wg@;",
}


def program_of(folder: Path, text: str) -> Program:
    path = folder / "kernel.cu"
    path.write_text(text)
    return build_program(load_sources(path), vocabulary(load_rules(())))


def values(folder: Path, body: str) -> tuple[int | None, ...] | None:
    """Those of the expression between `@`, in the first thread of each warpgroup."""
    before, name, after = body.split("@")
    text = TEXT.replace("@BODY@", f"{before}{name}{after}")
    program = program_of(folder, text)
    kernel = next(f for f in program.functions if f.name == "kernel")
    offset = TEXT.index("@BODY@") + len(before.encode())
    (node,) = [n for n in find(kernel.body, "identifier") if n.start_byte == offset]
    owner = next((f for f in program.functions if f.parent is kernel and f.node.start_byte < offset < f.node.end_byte),
                 kernel)  # fmt: skip
    found = ThreadValues(program, 384).of(owner, node)
    return None if found is None or set(found) == {None} else found[::128]


@pytest.mark.parametrize("name", KNOWN)
def test_a_value_that_is_known(tmp_path: Path, name: str) -> None:
    body, expected = KNOWN[name]
    assert values(tmp_path, body) == expected


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_value_that_the_text_does_not_tell(tmp_path: Path, name: str) -> None:
    assert values(tmp_path, UNKNOWN[name]) is None


HOST = """\
template <int BM, int BN, int STAGES>
__global__ void kernel(int* out) {{ out[0] = BM + BN + STAGES; }}
{0}
"""
INSTANTIATED = {
    "one": ("void run() { constexpr int BN = 256; auto* k = kernel<128, BN, 3>; k<<<1, 1>>>(nullptr); }",
            {"BM": 128, "BN": 256, "STAGES": 3}),
    "twice alike": ("void a() { kernel<64, 64, 2><<<1, 1>>>(nullptr); } void b() { auto k = &kernel<64, 64, 2>; }",
                    {"BM": 64, "BN": 64, "STAGES": 2}),
    "two stages": ("void a() { auto k = &kernel<64, 64, 2>; } void b() { auto k = &kernel<64, 64, 3>; }",
                   {"BM": 64, "BN": 64}),
    "a number of the caller": ("template <int S> void run() { auto k = &kernel<64, 64, S>; }", {"BM": 64, "BN": 64}),
    "nowhere": ("", {}),
    "outside of functions": (
        "void a() { auto k = &kernel<64, 64, 2>; }\ntemplate __global__ void kernel<64, 128, 2>(int*);", {}
    ),
    "in a macro": ("#define RUN(s) kernel<64, 64, s>\nvoid a() { auto k = &kernel<64, 64, 2>; auto j = &RUN(4); }", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", INSTANTIATED)
def test_what_a_template_stands_for(tmp_path: Path, name: str) -> None:
    text, expected = INSTANTIATED[name]
    program = program_of(tmp_path, HOST.format(text))
    kernel = next(f for f in program.functions if f.name == "kernel")
    assert only_instantiation(program, kernel) == expected
