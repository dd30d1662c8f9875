# SPDX-License-Identifier: Apache-2.0
"""Loads and stores around pragmas, comments, labels and branches without braces. Each port compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import LOOP, STORE, SYNC, compiles, kernel, port_files, wrapper
from object_kernels import CASE, A, B, batch, mma, source, store

from porter.cli.main import main
from porter.diagnostics import ExitCode

ZERO = "    float acc[8] = {0};\n"
OUT = "for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];\n"
RESCALE = "for (int i = 0; i < 8; ++i) acc[i] *= 2.f;\n"
PRAGMAS = {
    "comment between": "#pragma unroll\n    // store\n    {}",
    "comment above": "    // store\n#pragma unroll\n    {}",
    "two pragmas": "#pragma nv_diag_suppress 177\n#pragma unroll\n    {}",
    "a pragma between": "#pragma unroll\n    // a\n#pragma nv_diag_suppress 177\n    // b\n    {}",
    "unroll 1, indented": "    #pragma unroll 1\n    {}",
    "a number in parentheses": "#pragma unroll(4)\n    /* a */ {}",
    "operator": '    _Pragma("unroll") {}',
    "operator on a line of its own": '    _Pragma("unroll")\n    // a\n    {}',
    "behind a statement": '    out[0] = 0; _Pragma("unroll") {}',
    "macro": "    PRAGMA_UNROLL\n    {}",
    "in a branch": "    if (steps) {{\n#pragma unroll\n        // x\n        {}    }}\n",
}
FIRST = ("comment between", "operator")
MACRO = '#define PRAGMA_UNROLL _Pragma("unroll")\n'


def port_of(tmp_path: Path, text: str, changed: str) -> str:
    if changed == "CRLF":
        text = text.replace("\n", "\r\n")
    elif changed == "tabs":
        text = text.replace("    ", "\t")
    result = port_files(tmp_path / "in", {"kernel.cu": text})
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    compiles(result, tmp_path / "in", tmp_path / "out")
    return result.files[result.sources.root].decode().replace("\r\n", "\n")


def glued(text: str) -> bool:
    """Whether every pragma that unrolls stands in front of a loop."""
    for match in re.finditer(
        r'(?:#pragma unroll[^\n]*|(?<!L )_Pragma\("unroll"\)|^\s*PRAGMA_UNROLL)', text, re.MULTILINE
    ):
        rest = re.sub(r"^(?:\s|//[^\n]*|/\*.*?\*/|#pragma[^\n]*)*", "", text[match.end() :])
        if not rest.startswith("for ("):
            return False
    return True


@pytest.mark.parametrize("changed", ["", *(pytest.param(c, marks=pytest.mark.slow) for c in ("CRLF", "tabs"))])
@pytest.mark.parametrize("name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in PRAGMAS])
def test_a_load_stands_in_front_of_the_pragmas_of_its_loop(tmp_path: Path, name: str, changed: str) -> None:
    text = kernel(ZERO + LOOP + PRAGMAS[name].format(OUT), head=MACRO)
    out = port_of(tmp_path, text, changed)
    assert glued(out)
    assert out.count("tcgen05::load(acc, acc_tmem);") == 1


@pytest.mark.parametrize("name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in PRAGMAS])
def test_the_same_in_the_main_loop(tmp_path: Path, name: str) -> None:
    rescale = PRAGMAS[name].format(RESCALE)
    text = kernel(ZERO + LOOP.replace("        arrive();", rescale + "        arrive();") + STORE, head=MACRO)
    out = port_of(tmp_path, text, "")
    assert glued(out)
    assert out.count("tcgen05::store(acc, acc_tmem);") == 1


STATEMENTS = {
    "attribute of a branch": "    if (steps > 0) [[unlikely]] { out[0] = acc[0]; }\n",
    "attribute of a statement": "    if (steps > 0) [[likely]] out[0] = acc[0];\n",
    "attribute of a declaration": "    [[maybe_unused]] float x = acc[0];\n    out[threadIdx.x] = x;\n",
    "case": "    switch (steps) {\n    case 1:\n        out[0] = acc[0];\n        break;\n    default: break;\n    }\n",
    "else": "    if (steps == 3) out[3] = 1; else out[threadIdx.x] = acc[0];\n",
    "else if": "    if (steps == 3) out[3] = 1;\n    else if (steps == 4) out[1] = acc[0];\n    else\n        ++out;\n",
    "if constexpr": "    constexpr bool kStore = true;\n    if constexpr (kStore) out[threadIdx.x] = acc[0];\n",
    "while": "    int n = 0;\n    while (n < 8) out[n] = acc[n], ++n;\n",
    "do": "    int n = 0;\n    do out[n] = acc[n]; while (++n < 8);\n",
}
LINE_ENDS = [(name, "") for name in STATEMENTS] + [("else", "CRLF"), ("else", "tabs")]


@pytest.mark.parametrize(("name", "changed"), LINE_ENDS)
def test_a_load_stands_in_front_of_the_whole_statement(tmp_path: Path, name: str, changed: str) -> None:
    out = port_of(tmp_path, kernel(ZERO + LOOP + STATEMENTS[name]), changed)
    lines = [line.strip() for line in out.splitlines()]
    load = lines.index("tcgen05::load(acc, acc_tmem);")
    assert lines[load - 1] in ("}", "constexpr bool kStore = true;", "int n = 0;")
    assert lines[load + 1].startswith(("if", "[[", "switch", "while", "do"))


@pytest.mark.parametrize("label", ["done:\n    {}", "done: {}", "done:\n#pragma unroll\n    // a\n    {}"])
def test_a_load_stands_behind_the_label_of_its_statement(tmp_path: Path, label: str) -> None:
    out = port_of(tmp_path, kernel(ZERO + LOOP + "    out[1] = 0;\n" + label.format(OUT)), "")
    assert glued(out)
    assert out.index("done:") < out.index("tcgen05::load(acc, acc_tmem);") < out.index(OUT[:-1])


JUMPS = {
    "back, with changed registers": (
        "int n = 0;\n    float d[16] = {};\nagain:",
        "if (n == 0) for (int i = 0; i < 16; ++i) d[i] *= 3.f;\n    if (++n < 2) goto again;\n    "
        + store("d[i] * .25f"),
    ),
    "over the epilogue's first half": (
        "float d[16] = {};",
        "if (k_total == 192) goto done;\n    for (int i = 0; i < 16; ++i) d[i] = 0.f;\ndone:\n    " + store("d[i]"),
    ),
}


SLOW = "back, with changed registers"


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == SLOW else []) for n in JUMPS])
def test_jumps_do_not_pass_by_moves(tmp_path: Path, name: str) -> None:
    declare, write = JUMPS[name]
    function = f"__device__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {{ {mma('d')} }}\n"
    (tmp_path / "kernel.cu").write_text(source(function, declare, batch(f"mma(d, {A}, {B}, 1)"), write))
    (tmp_path / "case.yaml").write_text(CASE)
    outcome = CliRunner().invoke(main, ["verify", str(tmp_path / "kernel.cu"), "--families", "integers"])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "same bits" in outcome.output


def test_functions_of_one_line(tmp_path: Path) -> None:
    loop = "for (int k = 0; k < steps; ++k) { " + RESCALE[:-1] + " arrive(); mma(acc, a, b); commit(); wait<0>(); }"
    signature = "__global__ void __launch_bounds__(128) kernel(float* out, uint64_t a, uint64_t b, int steps)"
    text = f"#include <cstdint>\n{SYNC}{wrapper(16)}{signature} {{ float acc[8] = {{0}}; {loop} {OUT[:-1]} }}\n"
    out = port_of(tmp_path, text, "")
    assert out.index("tcgen05::load(acc") < out.index("acc[i] *= 2.f") < out.index("tcgen05::store(acc")


def test_loops_over_objects_are_nested(tmp_path: Path) -> None:
    body = "    struct Acc { float d[8]; };\n    Acc acc[2][2];\n" + LOOP.replace("mma(acc,", "mma(acc[0][0].d,")
    out = port_of(tmp_path, kernel(body + "    for (int i = 0; i < 8; ++i) out[i] = acc[0][0].d[i];\n"), "")
    assert (
        "    }\n"
        "    #pragma unroll\n"
        "    for (uint32_t i = 0; i < 2; ++i) {\n"
        "        #pragma unroll\n"
        "        for (uint32_t j = 0; j < 2; ++j) tcgen05::load(acc[i][j].d, acc_tmem[i][j]);\n"
        "    }\n"
    ) in out
