# SPDX-License-Identifier: Apache-2.0
"""Macros that decide what of a source for SM100 is checked: those of the command line, and those of the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.passes.sm100.check import sm100_findings
from porter.passes.sm100.conditions import given_macros

GIVE = 'asm volatile("setmaxnreg.dec.sync.aligned.u32 {};");'
NARROW = 'asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v[0]) : "r"(base));'
WAIT = 'asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");'


def wide() -> str:
    names = ", ".join(f"%{i}" for i in range(64))
    outputs = ", ".join(f'"=r"(v[{i}])' for i in range(64))
    return f'asm volatile("tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{names}}}, [%64];" : {outputs} : "r"(base));'


def kernel(body: str) -> str:
    return f"__global__ void k(unsigned base, unsigned* out) {{\nunsigned v[64];\n{body}\n{WAIT}\nout[0] = v[0];\n}}\n"


def codes(tmp_path: Path, text: str, *defines: str) -> list[str]:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return [d.code.name for d in sm100_findings(path, macros=given_macros(defines))]


WHERE_X = f"#ifdef X\n{GIVE.format(40)}\n#endif\n{wide()}"
MORE_WHERE_X = f"{GIVE.format(40)}\n{WHERE_X.replace('40', '200')}"


@pytest.mark.parametrize(
    ("body", "defines", "found"),
    [
        pytest.param(WHERE_X, ["X"], True, id="given"),
        pytest.param(WHERE_X, ["X=1"], True, id="given with a number"),
        pytest.param(WHERE_X, ["X=yes"], True, id="given with what is no number"),
        pytest.param(WHERE_X, [], False, id="not known"),
        pytest.param(WHERE_X, ["Y"], False, id="another one"),
        pytest.param(f"#define X\n{WHERE_X}", [], True, id="defined in the source"),
        pytest.param(f"#define X\n#undef X\n{WHERE_X}", [], False, id="undefined again"),
        pytest.param(f"#undef X\n{WHERE_X}", ["X"], False, id="given and undefined"),
        pytest.param(f"#ifdef Y\n#define X\n#endif\n{WHERE_X}", ["Y"], True, id="defined by another one"),
        pytest.param(f"#ifdef Y\n#define X\n#endif\n{WHERE_X}", [], False, id="may be defined"),
        pytest.param(f"#ifdef Y\n#undef X\n#endif\n{WHERE_X}", ["X"], False, id="may be undefined"),
        pytest.param(f"#if X > 1\n{GIVE.format(40)}\n#endif\n{wide()}", ["X=2"], True, id="compared"),
        pytest.param(f"#if X > 1\n{GIVE.format(40)}\n#endif\n{wide()}", ["X=1"], False, id="compared, not so"),
        pytest.param(f"#if X > 0x1F\n{GIVE.format(40)}\n#endif\n{wide()}", ["X=0x20"], True, id="hexadecimal"),
        pytest.param(f"#ifdef X\n#else\n{GIVE.format(40)}\n#endif\n{wide()}", ["X"], False, id="the other branch"),
        pytest.param(f"#ifndef X\n#else\n{GIVE.format(40)}\n#endif\n{wide()}", ["X"], True, id="the else branch"),
        pytest.param(f"#ifdef X\n{GIVE.format(40)}\n{wide()}\n#endif", ["X"], True, id="the same branch"),
        pytest.param(f"#ifdef X\n{GIVE.format(40)}\n{wide()}\n#endif", [], True, id="the same branch, not known"),
        pytest.param(f"#ifdef X\n{GIVE.format(40)}\n#else\n{wide()}\n#endif", [], False, id="a branch beside it"),
        pytest.param(f"#if defined(X) && Y == 2\n{GIVE.format(40)}\n#endif\n{wide()}", ["X", "Y=2"], True, id="two"),
        pytest.param(f"#ifdef X\n#if Y\n{GIVE.format(40)}\n#endif\n#endif\n{wide()}", ["X", "Y"], True, id="nested"),
        pytest.param(MORE_WHERE_X, [], False, id="may get more"),
        pytest.param(MORE_WHERE_X, ["X"], False, id="gets more"),
        pytest.param(f"{GIVE.format(40)}\n#if 0\n{GIVE.format(200)}\n#endif\n{wide()}", [], True, id="gets none"),
    ],
)
def test_registers_that_are_given_away_under_conditions(
    tmp_path: Path, body: str, defines: list[str], found: bool
) -> None:
    assert ("T2R_REGISTERS" in codes(tmp_path, kernel(body), *defines)) == found


GIVES = 'template <int N> __device__ void give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }\n'


@pytest.mark.parametrize(("defines", "found"), [([], True), (["REGS=24"], True), (["REGS=200"], False)])
def test_numbers_of_the_command_line(tmp_path: Path, defines: list[str], found: bool) -> None:
    text = f"#ifndef REGS\n#define REGS 40\n#endif\n{GIVES}{kernel(f'give<REGS>();{wide()}')}"
    assert ("T2R_REGISTERS" in codes(tmp_path, text, *defines)) == found
    bounds = kernel(wide()).replace("void k", "void __launch_bounds__(REGS) k")
    assert ("T2R_REGISTERS" in codes(tmp_path, bounds, "REGS=1024")) is True
    assert ("T2R_REGISTERS" in codes(tmp_path, bounds, "REGS=128")) is False


@pytest.mark.parametrize(
    ("condition", "defines", "found"),
    [
        ("0", [], False),
        ("1", [], True),
        ("defined(X)", [], True),
        ("!defined(X)", ["X"], False),
        ("X == 2", ["X=3"], False),
        ("X == 2", ["X=2"], True),
        ("X == 2", ["X=two"], True),
    ],
)
def test_what_is_not_compiled_is_not_found(tmp_path: Path, condition: str, defines: list[str], found: bool) -> None:
    text = kernel(f"#if {condition}\n{NARROW}\n#endif")
    assert ("T2R_NARROW" in codes(tmp_path, text, *defines)) == found


def test_what_keeps_a_header_from_being_read_twice_hides_nothing(tmp_path: Path) -> None:
    guarded = "#ifndef K_CUH\n#define K_CUH\n#define WIDE\n" + kernel(WHERE_X.replace("X", "WIDE")) + "#endif\n"
    assert "T2R_REGISTERS" in codes(tmp_path, guarded)


def test_the_command_takes_macros(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(kernel(WHERE_X))

    def said(*options: str) -> str:
        return CliRunner().invoke(main, ["check", "--sm100", *options, str(tmp_path / "kernel.cu")]).output

    assert "PT7004" in said("-D", "X")
    assert "PT7004" in said("-DX=1")
    assert "PT7004" not in said()
    (tmp_path / "pyproject.toml").write_text('[tool.porter]\ndefines = ["X"]\n')
    assert "PT7004" in said("--config", str(tmp_path / "pyproject.toml"))


FENCE = 'asm volatile("tcgen05.fence::after_thread_sync;");'


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("__device__ void g() { f(); }\n", True),
        ("__device__ void h() { f(); }\n__device__ void g() { h(); }\n", True),
        ("template <int N> __device__ void h() { f(); }\n__device__ void g() { h<2>(); }\n", True),
        ("__device__ void g() {\n#if defined(__CUDA_ARCH_FEAT_SM100_ALL)\n f();\n#endif\n}\n", False),
        ("__device__ void h() { f(); }\n__device__ void g() {}\n", False),
    ],
)
def test_functions_that_call_functions_made_of_tcgen05(tmp_path: Path, between: str, found: bool) -> None:
    helper = f"__device__ void f() {{ {FENCE} }}\n"
    caller = "__global__ void k() {\n#if __CUDA_ARCH__ >= 1000\n g();\n#endif\n}\n"
    assert ("SM100_ADMITS_HOPPER" in codes(tmp_path, helper + between + caller)) == found
