# SPDX-License-Identifier: Apache-2.0
"""What asks which chip it runs on: rewritten so that Blackwell comes to what Hopper came to, or left over."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.embedded import port_cuda_file
from porter.passes.port import PortOptions, PortResult

MARK = "// host\n"
VALUE = "int v; cudaDeviceGetAttribute(&v, cudaDevAttrComputeCapabilityMajor, 0);"


def ported(text: str, keep: bool, tmp_path: Path) -> tuple[str, PortResult]:
    """What stands for a piece of code behind a kernel."""
    path = tmp_path / "k.cu"
    path.write_text(f"{GEMM}\n{MARK}{text}\n")
    result = port_cuda_file(load_sources(path), PortOptions(keep_hopper=keep))
    assert result.kernels == ["kernel"]
    return result.files[str(path)].decode().split(MARK)[1].removesuffix("\n"), result


REWRITTEN = [
    ("p.major == 9", "p.major == 10", "(p.major == 9 || p.major == 10)"),
    ("p->major != 9", "p->major != 10", "(p->major != 9 && p->major != 10)"),
    ("major == 9 && minor == 0", "major == 10 && minor == 0", "(major == 9 || major == 10) && minor == 0"),
    ("!(major == 9 && minor == 0)", "!(major == 10 && minor == 0)", "!((major == 9 || major == 10) && minor == 0)"),
    ("p.major >= 9", "p.major >= 10", "p.major >= 9"),
    ("p.major < 9", "p.major < 10", "p.major < 9"),
    ("p.major == 9 ? 1 : 0", "p.major == 10 ? 1 : 0", "(p.major == 9 || p.major == 10) ? 1 : 0"),
    ("sm == 90", "sm == 100", "(sm == 90 || sm == 100)"),
    ("sm < 100", "sm < 110", "sm < 110"),
    ("sm >= 90 && sm < 100", "sm >= 90 && sm < 110", "sm >= 90 && sm < 110"),
    ("get_sm() < 100", "get_sm() < 110", "get_sm() < 110"),
    ("cc == 90 || cc == 100", "cc == 100 || cc == 100", "(cc == 90 || cc == 100) || cc == 100"),
]  # fmt: skip


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("before", "alone", "both"), REWRITTEN, ids=[r[0] for r in REWRITTEN])
def test_conditions_that_are_rewritten(before: str, alone: str, both: str, keep: bool, tmp_path: Path) -> None:
    made, result = ported(f"bool fits() {{ return {before}; }}", keep, tmp_path)
    assert made == f"bool fits() {{ return {both if keep else alone}; }}"
    assert result.left_over == []


LEFT = [
    "bool f(P p) { return 9 == p.major; }",
    "bool f(P p) { switch (p.major) { case 9: return true; default: return false; } }",
    "bool f(P p) { switch (p.major) { case 8: return 0; case 9: return 1; case 10: return 0; } }",
    "bool f(int sm) { switch (sm) { case 80: case 90: return true; } return false; }",
    "bool f(int sm) { return sm <= 90; }",
    "bool f(int sm) { return sm > 90; }",
    "bool f(int sm) { return sm >= 100; }",
    "bool f(int sm) { return 100 > sm; }",
    "bool f(int sm) { return sm < 90 || sm >= 100; }",
    "bool f(int sm) { if (sm < 90 || sm >= 100) return false; return true; }",
    "bool f(int sm) { return !(sm < 90 || sm > 99); }",
    "bool f(int sm) { return sm / 10 == 9; }",
    "bool f(P p) { return p.major > 8 && p.major <= 9; }",
    f"bool f() {{ {VALUE} return v == 9; }}",
    f"bool f() {{ {VALUE} int w = v * 10; return w == 90; }}",
    f"bool f() {{ {VALUE} return v < 10; }}",
    "bool f(P p) { const int m = p.major; return m == 9; }",
    "bool f(P p) { auto [a, b] = get_device_capability(p); return a == 9; }",
    "bool f(P p) { int n = p.major * 100 + p.minor * 10; return n == 900; }",
    "bool f(P p) { float n = p.major + p.minor / 10.0f; return n == 9.0f; }",
    "bool f(P p) { return (p.major << 4 | p.minor) == 0x90; }",
    "int gen(P p) { return p.major * 10 + p.minor; }\nbool f(P p) { return gen(p) == 90; }",
    "int gen(P p) { return p.major; }\nbool f(P p) { auto g = gen(p); return g != 9; }",
    "bool f(int m) { return m == 9; }\nbool g(P p) { return f(p.major); }",
    "#define HOPPER 9\nbool f(P p) { return p.major == HOPPER; }",
    "constexpr int kHopper = 90;\nbool f(int sm) { return sm == kHopper; }",
    "enum Arch { Ampere = 80, Hopper = 90 };\nbool f(int sm) { return sm == Arch::Hopper; }",
    "#define IS_HOPPER(p) ((p).major == 9)\nbool f(P p) { return IS_HOPPER(p); }",
    "#define CHECK(p) do { if ((p).major != 9) abort(); } while (0)",
    "#define SWITCH(sm, ...) if (sm == 86) { f<86>(); } else if (sm <= 90) { f<90>(); } else { f<0>(); }",
    "bool f(int sm) { return sm == 90; }\nbool g() { return f(90); }",
    "bool f(int sm = 90) { return sm == 90; }",
    "int sm = 90;\nbool f() { return sm == 90; }",
    "bool f() { return cap() == std::make_pair(9, 0); }",
    "bool f(int sm) { std::set<int> known = {80, 86, 90}; return known.count(sm); }",
    'bool f(std::string arch) { return arch == "sm_90"; }',
    'bool f(P p) { return strstr(p.name, "H100") != nullptr; }',
    "#if __CUDA_ARCH__ / 100 == 9\nint x;\n#endif",
    "#if (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ <= 999)\nint x;\n#endif",
    "#if __CUDA_ARCH__ <= 900\nint x;\n#endif",
    "#if __CUDA_ARCH__ != 900\nint x;\n#endif",
    "#if 900 == __CUDA_ARCH__\nint x;\n#endif",
    "#if __CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1000\n#error no\n#endif",
]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("text", LEFT)
def test_what_is_not_understood_is_left_over(text: str, keep: bool, tmp_path: Path) -> None:
    made, result = ported(text, keep, tmp_path)
    assert [d.code.id for d in result.left_over] == ["PT2059"]
    where = result.left_over[0].where
    assert where is not None
    assert where.line is not None
    assert where.line > GEMM.count("\n")
    assert made == text or "__CUDA_ARCH__ >= 900" in text


QUIET = [
    "template <int SM> bool f() { return SM == 90; }\nbool g() { return f<90>(); }",
    "constexpr int arch = 90;\nbool f() { return arch == 90; }",
    "bool f(P p) { switch (p.major) { case 9: case 10: return true; default: return false; } }",
    "bool f(P p) { switch (p.kind) { case 9: return true; default: return false; } }",
    "bool f(int n) { return n == 9 || n < 100; }",
    "bool f(int num_sms) { return num_sms <= 90; }",
    "bool f(P p) { return p.major >= 8; }",
    "bool f(P p) { return p.minor == 0; }",
    'void f() { printf("for H100, sm_90"); }',
    "int sizes[] = {8, 16, 90};",
    "#if __CUDACC_VER_MAJOR__ >= 12\nint x;\n#endif",
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\nint x;\n#endif",
    "#if SIZE == 90 && defined(FAST)\nint x;\n#endif",
    "#define SWITCH(sm, ...) if (sm == 86) { f<86>(); } else if (sm < 90) { f<80>(); } else { f<90>(); }",
]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("text", QUIET)
def test_what_asks_for_no_chip_stays(text: str, keep: bool, tmp_path: Path) -> None:
    made, result = ported(text, keep, tmp_path)
    assert made == text
    assert result.left_over == []


BOUNDS = [
    ("#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000", "#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1100"),
    ("#if !(__CUDA_ARCH__ < 1000)", "#if !(__CUDA_ARCH__ < 1100)"),
    (
        "#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (__CUDA_ARCH__ >= 900)",
        "#if defined(__CUDA_ARCH_FEAT_SM100_ALL) && (__CUDA_ARCH__ >= 1000)",
    ),
    ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900", "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 1000"),
    ("#if defined(CUTE_ARCH_MMA_SM90A_ENABLED)", "#if defined(CUTE_ARCH_TCGEN05_F16F32_MMA_ENABLED)"),
]


@pytest.mark.parametrize(("before", "after"), BOUNDS)
def test_guards_of_the_port_hold_for_its_chip(before: str, after: str, tmp_path: Path) -> None:
    made, result = ported(f"{before}\nint x;\n#endif", False, tmp_path)
    assert made == f"{after}\nint x;\n#endif"
    assert result.left_over == []
    assert ported(f"{before}\nint x;\n#endif", True, tmp_path)[1].left_over == []


@pytest.mark.parametrize(("keep", "count"), [(False, 0), (True, 1)])
def test_a_string_for_one_chip(keep: bool, count: int, tmp_path: Path) -> None:
    _, result = ported('bool f(const char* arch) { return strcmp(arch, "sm_90a") == 0; }', keep, tmp_path)
    assert len(result.left_over) == count


@pytest.mark.parametrize("option", [[], ["--keep-hopper"]])
def test_the_command_ends_with_what_is_left(option: list[str], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(GEMM)
    host = "bool f(P p) { switch (p.major) { case 9: return true; } return false; }\n"
    (tmp_path / "host.cpp").write_text(host)
    result = CliRunner().invoke(
        main, ["port", *option, "--no-compile", "-o", str(tmp_path / "out"), str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == ExitCode.UNPORTED
    assert "PT2059" in result.output
    assert "host.cpp:1" in result.output
    assert "tcgen05" in (tmp_path / "out" / "k.cu").read_text()
