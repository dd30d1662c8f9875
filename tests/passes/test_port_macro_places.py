# SPDX-License-Identifier: Apache-2.0
"""Macros with instructions of wgmma that are defined at odd places: read once, as macros, wherever they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import kernel, port_text, ported, refused

from porter.diagnostics import Code
from porter.lang.text import Edit, EditGroup, Safety, Span
from porter.passes.clashes import clashes
from porter.rules.engine import Selection, pass_groups
from porter.rules.load import load_rules

DEFINED = """
#define GO() asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory")
#define SEND() asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory")
#define WAIT(N) asm volatile("wgmma.wait_group.sync.aligned %0;\\n" ::"n"(N) : "memory")
"""
OBJECTS = """
#define GO asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory")
#define DONE asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;" ::: "memory")
"""
BODY = "    float acc[8] = {0};\n    GO();\n    mma(acc, a, b);\n    SEND();\n    WAIT(0);\n    out[0] = acc[0];\n"
CALLS = (
    "    float acc[8] = {0};\n    arrive();\n    mma(acc, a, b);\n    commit();\n    wait<0>();\n    out[0] = acc[0];\n"
)
SECOND = f"}}\n__global__ void __launch_bounds__(128) second(float* out, uint64_t a, uint64_t b) {{\n{BODY}"
HELPER = "}\n__device__ void settle() { SEND(); WAIT(0); }\n"
CALL = "__host__ __device__ int several(int, int);\n"
TABLE = f"static const int table[] = {{\n    1,{DEFINED}    2,\n}};\n"

PLACES = {
    "in the kernel": kernel(DEFINED + BODY),
    "in one kernel, for two": kernel(DEFINED + BODY + SECOND),
    "in one kernel, for a helper and another kernel": kernel(
        DEFINED + BODY + HELPER + SECOND[2:].replace("SEND();\n    WAIT(0);", "settle();")
    ),
    "in each of two kernels": kernel(DEFINED + BODY + SECOND.replace("{\n", "{\n" + DEFINED, 1)),
    "among arguments": kernel(f"    several(1,{DEFINED}        2);\n" + BODY, before=CALL),
    "among arguments of host code": kernel(BODY, before=f"{CALL}void host() {{\n    several(1,{DEFINED}    2);\n}}\n"),
    "in a list of initializers": kernel(f"    const int odd[] = {{1,{DEFINED}        2}};\n" + BODY),
    "in a table": kernel(BODY, before=TABLE),
    "among parameters": kernel(BODY, before=f"__device__ int sum(int x,{DEFINED}    int y) {{ return x + y; }}\n"),
    "in an expression": kernel(f"    const int x = 1 +{DEFINED}        2;\n" + BODY),
    "in nested brackets": kernel(f"    several((1 + (2,{DEFINED}        3)), 4);\n" + BODY, before=CALL),
}


@pytest.mark.parametrize("text", PLACES.values(), ids=PLACES.keys())
def test_a_macro_is_read_once_wherever_it_is_defined(text: str, tmp_path: Path) -> None:
    port = ported(tmp_path, text).split("#define GO", 1)[1]
    assert "wgmma" not in port
    times = text.count("#define GO")
    assert port.count("tcgen05::sync_warpgroup()") == times
    assert port.count("#define SEND(tc) tc.commit()") == port.count("#define WAIT(tc, N) tc.wait(N)") == times


def test_the_definition_of_a_macro_is_no_use_of_it(tmp_path: Path) -> None:
    body = BODY.replace("GO();", "GO;").replace("SEND();\n    WAIT(0);", "DONE;")
    port = ported(tmp_path, kernel(OBJECTS + body))
    setup = port.index("const tcgen05::Tmem<")
    assert port.index("#define DONE") < setup < port.index("Warpgroup tc = tmem", setup) < port.index("DONE;")


@pytest.mark.parametrize("used", [True, False])
def test_a_macro_that_calls_what_gets_a_parameter(used: bool, tmp_path: Path) -> None:
    macro = "#define FINISH() do { commit(); wait<0>(); } while (0)\n"
    text = kernel(CALLS + ("    FINISH();\n" if used else ""), before=macro)
    if used:
        assert any("macro `FINISH` calls it" in said for said in refused(tmp_path, text))
    else:
        assert macro in ported(tmp_path, text)


def test_kernels_that_a_macro_writes_are_refused(tmp_path: Path) -> None:
    whole = "float acc[8] = {0}; arrive(); mma(acc, a, b); commit(); wait<0>(); out[0] = acc[0];"
    macro = f"#define KERNEL(name) __global__ void name(float* out, uint64_t a, uint64_t b) {{ {whole} }}\n"
    said = port_text(tmp_path, kernel(CALLS, before=macro) + "KERNEL(one)\nKERNEL(two)\n").diagnostics
    assert any("macro `KERNEL` calls it" in str(one) for one in said)


@pytest.mark.parametrize(
    "call", ["#define STOP(x) (x).wait(0)\n", "#define STOP(x) x->commit()\n", "#define WAIT_OF wait\n"]
)
def test_a_macro_with_a_name_alike_stays(call: str, tmp_path: Path) -> None:
    other = "struct Bar { __device__ void wait(int); __device__ void commit(); };\n"
    use = "__device__ void other(Bar* bar, Bar& b) {}\n"
    result = port_text(tmp_path, kernel(CALLS, before=other + call + use + "// STOP\nstatic int WAIT_OF_NOTHING;\n"))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]


def test_two_edits_of_one_text_are_refused_by_name() -> None:
    def group(rule: str, start: int, end: int) -> EditGroup:
        return EditGroup(rule, "", Safety.SAFE, (Edit("k.cu", Span(start, end), b"x"),))

    text = {"k.cu": b"first line\nGO(); and more\n"}
    assert not clashes(text, [group("A", 11, 13), group("B", 13, 16)])
    (said,) = clashes(text, [group("A", 11, 16), group("B", 13, 15)])
    assert said.code is Code.EDITS_CLASH
    assert (said.where.path, said.where.line, said.where.column) == ("k.cu", 2, 3)
    assert "A and B both change it" in str(said)


def test_the_same_edit_of_one_text_is_made_once() -> None:
    replaced, inserted = Edit("k.cu", Span(3, 5), b"x"), Edit("k.cu", Span(7, 7), b")")
    (group,) = pass_groups(load_rules(), {"PTR120": [replaced, inserted, replaced, inserted]}, Selection()).groups
    assert group.edits == (replaced, inserted, inserted)
