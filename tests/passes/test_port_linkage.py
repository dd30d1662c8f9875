# SPDX-License-Identifier: Apache-2.0
"""Device functions that another translation unit calls: where a port changes their parameters they are refused by name,
and what one translation unit has to itself is ported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM, STORE, SYNC, wrapper

from porter.build.run import run
from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.cli.main import main
from porter.diagnostics import Code, Diagnostic, ExitCode
from porter.lang.sources import load_sources
from porter.passes.embedded import port_cuda_file
from porter.passes.port import PortResult

HEAD = "#include <cstdint>\n"
PRIMITIVES = re.sub(r"(?m)^(template <int N> )?__device__ void", r"\1__device__ __forceinline__ void", SYNC) + wrapper(
    16
)
STEP = "__device__ void step(float (&d)[8], uint64_t a, uint64_t b) { arrive(); mma(d, a, b); commit(); wait<0>(); }\n"
DECLARED = "__device__ void step(float (&d)[8], uint64_t a, uint64_t b);\n"
INCLUDE = '#include "step.cuh"\n'


def kernel(call: str = "step(acc, a, b);", name: str = "kernel") -> str:
    signature = f"__global__ void __launch_bounds__(128) {name}(float* out, uint64_t a, uint64_t b, int steps)"
    return f"{signature} {{\n    float acc[8] = {{0}};\n    for (int k = 0; k < steps; ++k) {call}\n{STORE}}}\n"


def in_header(text: str) -> str:
    return f"#pragma once\n{HEAD}{text}"


DEFINED = HEAD + PRIMITIVES + STEP
METHOD = "struct S {{ {}__device__ void step(float (&d)[8], uint64_t a, uint64_t b); }};\n"
TEMPLATE = "template <int J> " + DECLARED
TYPE = "typedef void (*Fn)(float (&)[8], uint64_t, uint64_t);\n"
SHARED = {
    "declared": {"k.cu": f"{HEAD}{DECLARED}{kernel()}", "step.cu": DEFINED},
    "extern": {"k.cu": f"{HEAD}extern {DECLARED}{DECLARED}{kernel()}", "step.cu": DEFINED},
    "never inline": {"k.cu": f"{HEAD}{DECLARED}{kernel()}", "step.cu": f"{HEAD}{PRIMITIVES}__noinline__ {STEP}"},
    "in a header": {
        "step.cuh": in_header(DECLARED),
        "k.cu": HEAD + INCLUDE + kernel(),
        "step.cu": HEAD + PRIMITIVES + INCLUDE + STEP,
    },
    "in a namespace": {
        "k.cu": f"{HEAD}namespace n {{ {DECLARED} }}\n{kernel('n::step(acc, a, b);')}",
        "step.cu": f"{HEAD}{PRIMITIVES}namespace n {{\n{STEP}}}\n",
    },
    "a method": {
        "step.cuh": in_header(METHOD.format("")),
        "k.cu": HEAD + INCLUDE + kernel("S{}.step(acc, a, b);"),
        "step.cu": HEAD + PRIMITIVES + INCLUDE + STEP.replace("void step", "void S::step"),
    },
    "a static method": {
        "step.cuh": in_header(METHOD.format("static ")),
        "k.cu": HEAD + INCLUDE + kernel("S::step(acc, a, b);"),
        "step.cu": HEAD + PRIMITIVES + INCLUDE + STEP.replace("void step", "void S::step"),
    },
    "instantiated": {
        "step.cuh": in_header(TEMPLATE),
        "k.cu": HEAD + INCLUDE + kernel("step<4>(acc, a, b);"),
        "step.cu": f"{HEAD}{PRIMITIVES}{INCLUDE}template <int J> {STEP}template {DECLARED.replace('step', 'step<4>')}",
    },
    "specialized": {
        "step.cuh": in_header(f"{TEMPLATE}template <> {DECLARED.replace('step', 'step<4>')}"),
        "k.cu": HEAD + INCLUDE + kernel("step<4>(acc, a, b);"),
        "step.cu": f"{HEAD}{PRIMITIVES}{INCLUDE}template <> {STEP.replace('step', 'step<4>')}",
    },
    "a kernel beside it": {
        "step.cuh": in_header(DECLARED),
        "k.cu": HEAD + INCLUDE + kernel(),
        "step.cu": HEAD + PRIMITIVES + INCLUDE + STEP + kernel(name="other"),
    },
    "an object": {
        "step.cuh": in_header("struct Acc { float d[8]; };\n" + DECLARED.replace("float (&d)[8]", "Acc& o")),
        "k.cu": HEAD + INCLUDE + kernel("step(*reinterpret_cast<Acc*>(&acc), a, b);"),
        "step.cu": HEAD + PRIMITIVES + INCLUDE + STEP.replace("float (&d)[8]", "Acc& o").replace("mma(d", "mma(o.d"),
    },
    "waits": {
        "k.cu": f"{HEAD}__device__ void wait_all();\n{kernel('wait_all();')}",
        "step.cu": HEAD + PRIMITIVES + "__device__ void wait_all() { commit(); wait<0>(); }\n",
    },
    "alone": {"step.cu": DEFINED},
    "a pointer": {"step.cu": f"{HEAD}{PRIMITIVES}static {STEP}{TYPE}__device__ Fn table[1] = {{step}};\n"},
}  # fmt: skip


def ported(files: dict[str, str], root: str, tmp_path: Path) -> PortResult:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return port_cuda_file(load_sources(tmp_path / root))


def refusals(result: PortResult) -> list[Diagnostic]:
    return [d for d in result.diagnostics if d.code is Code.EXTERNAL_FUNCTION]


@pytest.mark.parametrize("name", SHARED)
def test_a_function_that_others_call_is_refused(name: str, tmp_path: Path) -> None:
    result = ported(SHARED[name], "step.cu", tmp_path)
    assert result.exit_code == ExitCode.UNPORTED
    assert not result.changed
    said = refusals(result)
    assert {d.values["name"] for d in said} == {"wait_all" if name == "waits" else "step"}
    assert all(d.where is not None and d.where.line for d in said)


OWN = {
    "one file": {"k.cu": DEFINED + kernel()},
    "static": {"k.cu": f"{HEAD}{PRIMITIVES}static {STEP}{kernel()}"},
    "an unnamed namespace": {"k.cu": f"{HEAD}{PRIMITIVES}namespace {{\n{STEP}}}\n{kernel()}"},
    "declared in front": {"k.cu": f"{HEAD}{PRIMITIVES}{DECLARED}{kernel()}{STEP}"},
    "a header": {"step.cuh": in_header(f"{PRIMITIVES}inline {STEP}"), "k.cu": HEAD + INCLUDE + kernel(),
                 "other.cu": HEAD + INCLUDE + kernel(name="other")},
    "two of a name": {"k.cu": DEFINED + kernel(), "other.cu": DEFINED + kernel(name="other")},
    "included": {"step.cu": DEFINED, "k.cu": '#include "step.cu"\n' + kernel()},
    "a spare function": {"k.cu": f"{DEFINED}__device__ void spare() {{ commit(); }}\n{kernel()}"},
    "a function of the host": {"k.cu": DEFINED + kernel(),
                               "main.cpp": "void step(float*, long, long);\nint main() { step(0, 1, 2); }\n"},
    "a variable of its name": {"k.cu": DEFINED + kernel() + "void host() { int step = 1; int x = step; (void)x; }\n"},
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_function_of_one_unit_is_ported(name: str, tmp_path: Path) -> None:
    result = ported(OWN[name], "k.cu", tmp_path)
    assert refusals(result) == []
    assert result.exit_code == ExitCode.OK
    assert result.kernels == ["kernel"]


@pytest.mark.parametrize("mark", [".git/HEAD", "CMakeLists.txt", "Makefile", "setup.py", None])
def test_a_unit_of_another_directory_counts_in_one_project(mark: str | None, tmp_path: Path) -> None:
    """A directory above with no sign of a project, as one of temporary files, is none."""
    around = {"src/k.cu" if name == "k.cu" else f"lib/{name}": text for name, text in SHARED["declared"].items()}
    (said,) = refusals(ported(around | ({mark: ""} if mark else {}), "lib/step.cu", tmp_path))
    assert ("src/k.cu:" in str(said.values["why"])) == (mark is not None)
    assert ("no kernel of this file" in str(said.values["why"])) == (mark is None)


def test_a_file_that_another_one_includes_is_ported_by_itself(tmp_path: Path) -> None:
    result = ported(OWN["included"], "step.cu", tmp_path)
    assert refusals(result) == []
    assert result.exit_code == ExitCode.OK
    assert result.changed


def test_the_command_names_it_and_ports_the_rest(tmp_path: Path) -> None:
    for name, text in (SHARED["in a header"] | {"whole.cu": GEMM}).items():
        (tmp_path / name).write_text(text)
    options = ["--no-compile", "-o", str(tmp_path / "out"), str(tmp_path)]
    made = CliRunner().invoke(main, ["port", *options], catch_exceptions=False)
    assert made.exit_code == ExitCode.UNPORTED
    assert made.output.count("PT2081") == 1
    assert "k.cu:" in made.output
    assert "tcgen05" in (tmp_path / "out" / "whole.cu").read_text()
    assert not (tmp_path / "out" / "step.cu").exists()


@pytest.mark.slow
def test_a_port_links_with_relocatable_device_code(tmp_path: Path) -> None:
    scale = "__device__ float scaled(float x);\n"
    files = OWN["a header"] | {"scale.cu": "__device__ float scaled(float x) { return x * 2; }\n"}
    files["k.cu"] = files["k.cu"].replace(INCLUDE, INCLUDE + scale).replace("= acc[i]", "= scaled(acc[i])")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "out"
    made = CliRunner().invoke(main, ["port", "-o", str(out), str(tmp_path)], catch_exceptions=False)
    assert made.exit_code == ExitCode.OK, made.output
    assert "k.cu: not compiled" not in made.output
    toolkit = find_toolkit()
    objects = []
    for name in ("k.cu", "other.cu", "scale.cu"):
        source = out / name if (out / name).exists() else tmp_path / name
        objects.append(tmp_path / f"{name}.cubin")
        command = [toolkit.nvcc, "-ccbin", find_host_compiler().path, "-rdc=true", "-cubin", "-arch=sm_100a"]
        done = run([*command, source, "-o", objects[-1]], cwd=tmp_path)
        assert done.status == 0, done.log
    link = [toolkit.nvcc.with_name("nvlink"), "-arch=sm_100a", "-o", tmp_path / "all.cubin"]
    linked = run([*link, *objects], cwd=tmp_path)
    assert linked.status == 0, linked.log
