# SPDX-License-Identifier: Apache-2.0
"""What is no file, or too much, is one message."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes_cli import porter
from instructions.samples import HEAD, REGISTERS

from porter.model.registers import is_zero

PTX = """\
.version 8.0
.target sm_90a
.address_size 64
%s
.visible .entry k(.param .u64 p) { ret; }
"""
LAUNCH = ("--block", "32", "--arg", "f32[32]")


@pytest.mark.parametrize("name", ["k.cu", "k.py"])
@pytest.mark.parametrize("command", ["scan", "plan", "port"])
def test_a_pipe_is_not_waited_for(command: str, name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    began = time.monotonic()
    assert "PT0099" not in porter(command, tmp_path / name, code=2).output
    assert time.monotonic() - began < 10


def test_a_file_of_fifty_megabytes(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"int x;\n" * 7_500_000)
    assert "PT1001" in porter("port", tmp_path / "k.cu", code=2).output


def test_an_include_of_five_thousand_characters(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(f'#include "{"a" * 5000}"\n__global__ void k() {{}}\n')
    assert "PT0099" not in porter("scan", tmp_path / "k.cu", code=None).output


@pytest.mark.parametrize("command", ["scan", "plan", "port"])
@pytest.mark.parametrize("line", ['#include "m%d.h"', "# include <m%d.h>", "  #  include  NAME%d"])
def test_more_includes_than_headers_are_looked_for(line: str, command: str, tmp_path: Path) -> None:
    lines = "\n".join(line % i for i in range(200_000))
    (tmp_path / "k.cu").write_text(f"{lines}\n__global__ void k() {{}}\n")
    began = time.process_time()
    output = " ".join(porter(command, tmp_path / "k.cu", code=2).output.split())
    assert "PT0018" in output
    assert "200000 #include lines; at most 2000" in output
    assert time.process_time() - began < 5


def test_headers_that_are_not_there_take_no_time_each(tmp_path: Path) -> None:
    lines = "\n".join(f'#include "m{i}.h"' for i in range(1_500))
    (tmp_path / "k.cu").write_text(f"{lines}\n__global__ void k() {{}}\n")
    began = time.process_time()
    porter("scan", tmp_path / "k.cu", code=0)
    assert time.process_time() - began < 10


def test_two_billion_blocks(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX % "")
    assert "PT4002" in porter("sim", tmp_path / "k.ptx", "--grid", "2000000000", *LAUNCH, code=6).output


@pytest.mark.parametrize("command", ["sim", "hazards"])
@pytest.mark.parametrize(
    "variables",
    [
        ".global .align 16 .b8 huge[1099511627776];", ".global .b8 huge[20000000000];", ".const .b8 huge[20000000000];",
        ".global .b32 huge[1048576][1048576];", ".global .f64 huge[20000000000] = {1.0, 2.0};",
        "\n".join(f".global .b8 huge{i}[1000000000];" for i in range(20)),
    ],
    ids=["a terabyte", "20 GB", "constants", "two dimensions", "values", "several"],
)  # fmt: skip
def test_variables_larger_than_what_is_simulated(command: str, variables: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX % variables)
    began = time.process_time()
    output = " ".join(porter(command, tmp_path / "k.ptx", "--grid", "1", *LAUNCH, code=2).output.split())
    assert "PT0018" in output
    assert "8,589,934,592 are simulated in all" in output
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (".local .b8 huge[1099511627776]; ret;", 524288), (".local .b8 huge[20000000]; ret;", 524288),
        ("{ .param .b8 huge[1099511627776]; } ret;", 524288),
        (".shared .b8 huge[1099511627776]; .reg .b32 %r<2>; mov.u32 %r1, huge; ret;", 232448),
        (".shared .b8 huge[300000]; .reg .b32 %r<2>; mov.u32 %r1, huge; ret;", 232448),
    ],
)  # fmt: skip
def test_memory_of_threads_and_blocks_larger_than_a_gpu_has(body: str, limit: int, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text((PTX % "").replace("ret;", body))
    output = porter("sim", tmp_path / "k.ptx", "--grid", "1", *LAUNCH, code=5).output
    assert "PT4013" in output
    assert f"at most {limit}" in " ".join(output.split())


@pytest.mark.parametrize("count", ["1000000000000", "268435457", "9" * 5_000])
def test_a_buffer_larger_than_what_is_simulated(count: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX % "")
    output = porter("sim", tmp_path / "k.ptx", "--grid", "1", "--block", "32", "--arg", f"f32[{count}]", code=2).output
    assert "more than 268435456 elements" in " ".join(output.split())


def test_a_parameter_of_a_terabyte(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text((PTX % "").replace(".u64 p", ".b8 p[1099511627776]"))
    output = porter("sim", tmp_path / "k.ptx", "--grid", "1", "--block", "32", "--arg", "0", code=2).output
    assert "a parameter of 1099511627776 bytes is no number" in " ".join(output.split())


@pytest.mark.parametrize(
    "line",
    [
        "bra;", "bra %w1, 1;", "@%p1 bra %f1, 0f40000000;", "bra nowhere;", "brx.idx %w1;", "brx.idx %w1, nowhere;",
        "brx.idx %w1, targets;", "@%nowhere ret;", "@%nowhere bra END;", "@%nowhere bar.sync 0;", "bar.sync;",
        "call;", "call nowhere;", "call (%w1), k, (%w1);", "ret 1;", "@%w1 mov.u32 %w1, 0;", "barrier.sync %nowhere;",
        "mbarrier.try_wait.b64 %p1, [%nowhere], %l1;", "ld.global.v4.f32 {%f1, %f2}, [%l1];", "mov.u32 %w1;",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["sim", "hazards"])
def test_control_flow_that_cannot_be_followed(command: str, line: str, tmp_path: Path) -> None:
    lines = [HEAD.format(version="8.0", target="sm_90a"), ".visible .entry k(.param .u64 p) {", REGISTERS, line]
    (tmp_path / "k.ptx").write_text("\n".join([*lines, "END: ret;", "}"]))
    result = porter(command, tmp_path / "k.ptx", "--grid", "1", *LAUNCH, code=None)
    assert "PT0099" not in result.output
    assert result.exit_code in range(7)


@pytest.mark.parametrize("end", ["", "\n", "__global__ void k() {}", 'x")"'])
@pytest.mark.parametrize("command", ["scan", "port"])
def test_a_raw_string_that_is_not_closed(command: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(f'const char* s = R"(__global__ void f() {{ wgmma; }}\n)x{end}')
    assert "PT0099" not in porter(command, tmp_path / "k.cu", code=None).output


def test_blanks_behind_asm_take_no_time(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("int asm /*" + " " * 100_000 + "*/ ;\n__global__ void k() {}\n")
    began = time.monotonic()
    porter("scan", tmp_path / "k.cu", code=None)
    assert time.monotonic() - began < 10


def test_zeros_that_are_none_take_no_time() -> None:
    began = time.monotonic()
    assert not is_zero("make_float4(" + "0.00000000000f, " * 8 + "x)")
    assert is_zero("make_float4(0.f, 0., 0, .0F)")
    assert time.monotonic() - began < 1


DEEP = 5_000
NESTED = {
    "braces": "{" * DEEP + "}" * DEEP,
    "parentheses": "int x = " + "(" * DEEP + "1" + ")" * DEEP + ";",
    "open parentheses": "int x = " + "(" * DEEP,
    "brackets": "int x = p" + "[" * DEEP + "0" + "]" * DEEP + ";",
    "templates": "A<" * DEEP + "int" + ">" * DEEP + " x;",
    "conditions": "if (1) " * DEEP + ";",
    "operators": "int x = " + "1 + " * DEEP + "1;",
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("command", ["scan", "port"])
@pytest.mark.parametrize("body", NESTED.values(), ids=NESTED.keys())
def test_cuda_nested_deep(body: str, command: str, tmp_path: Path) -> None:
    wgmma = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
    (tmp_path / "k.cu").write_text(f"__global__ void k(int* p) {{\n{wgmma}\n{body}\n}}\n")
    result = porter(command, tmp_path / "k.cu", code=None)
    assert "PT0099" not in result.output
    assert result.exit_code in range(7)


def nested_python(deep: int) -> list[str]:
    return [
        "(" * deep + ")" * deep, "(" * deep, "[" * deep + "]" * deep, "x = " + "-" * deep + "1", "x" + ".y" * deep,
        "x" + "()" * deep, "x = " + "1 + " * deep + "1",
    ]  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("command", ["scan", "port"])
@pytest.mark.parametrize(
    "text",
    [*nested_python(DEEP // 3), "\n".join(" " * i + "if x:" for i in range(200)),
     *(pytest.param(text, marks=pytest.mark.slow) for text in nested_python(DEEP))],
    ids=lambda text: f"{text[:9]} {len(text)}",
)  # fmt: skip
def test_python_nested_deep(text: str, command: str, tmp_path: Path) -> None:
    head = "import cutlass.cute as cute\n@cute.kernel\ndef k(): pass\n"
    (tmp_path / "k.py").write_text(head + text + "\n")
    result = porter(command, tmp_path / "k.py", code=None)
    assert "PT0099" not in result.output
    assert result.exit_code in range(7)


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
YAML = {
    "aliases": ALIASES,
    "merged": "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)),
    "lists": "a: " + "[" * DEEP + "]" * DEEP,
    "mappings": "a: " + "{a: " * DEEP + "1" + "}" * DEEP,
    "open": "[" * DEEP,
    "deeper": "a: " + "[" * 200_000,
    "blocks": "\n".join(" " * i + "a:" for i in range(2_000)),
    "itself": "a: &a [*a]",
    "objects": "a: !!python/object/apply:os.system ['touch escaped']",
    "numbers": "a: " + "9" * DEEP,
    "sexagesimal": "a: " + ":".join(["59"] * DEEP),
}


@pytest.mark.parametrize("text", YAML.values(), ids=YAML.keys())
def test_yaml_bombs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    (tmp_path / "case.yaml").write_text("kernel: k.cu\n" + text + "\n")
    (tmp_path / "rules.yaml").write_text("schema: 2\n" + text + "\n")
    began = time.process_time()
    for arguments in (["verify", "case.yaml"], ["rules", "list", "--rules", "rules.yaml"]):
        result = porter(*arguments, code=2)
        assert "PT0099" not in result.output
        assert len(result.output) < 20_000
    assert time.process_time() - began < 10
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case.yaml", "k.cu", "rules.yaml"]


@pytest.mark.parametrize("command", ["scan", "port"])
@pytest.mark.parametrize(
    "body", ["auto l = " + "[]{ return " * DEEP + "1" + ";}" * DEEP + ";", "x" + ".f()" * 3_000 + ";"]
)
def test_what_nests_takes_no_time(body: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(f'__global__ void k() {{ asm volatile("wgmma.fence.sync.aligned;"); {body} }}\n')
    began = time.process_time()
    assert "PT0099" not in porter(command, tmp_path / "k.cu", code=None).output
    assert time.process_time() - began < 10


@pytest.mark.parametrize("command", ["scan", "plan", "port"])
def test_an_operand_that_an_asm_statement_does_not_have(command: str, tmp_path: Path) -> None:
    registers = ", ".join(f"%{i}" for i in range(96))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(96))
    mma = "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16"
    statement = f'asm volatile("{mma} {{{registers}}}, %96, %98, 1, 1, 1, 0, 0;" : {outputs} : "l"(a));'
    (tmp_path / "k.cu").write_text(f"__global__ void k(unsigned long a) {{ float d[96]; {statement} }}\n")
    output = porter(command, tmp_path / "k.cu", code=0 if command == "scan" else 3).output
    assert "PT0099" not in output
    assert "%98 of an asm statement with 97 operands" in " ".join(output.split())


@pytest.mark.spread(2)
@pytest.mark.parametrize("command", ["scan", "port"])
def test_processes_do_not_change_what_is_said_of_a_tree(command: str, tmp_path: Path) -> None:
    for i in range(200):
        body = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");' if i % 40 == 7 else f"p[threadIdx.x] = {i};"
        (tmp_path / f"f{i}.cu").write_text(f"__global__ void f{i}(int* p) {{ {body} }}\n")
        (tmp_path / f"m{i}.py").write_text(f"x = {i}\n")
    more = ["--no-compile"] if command == "port" else []
    one, two = (
        porter("--format", "json", command, *more, "--jobs", jobs, tmp_path, code=None).output for jobs in ("1", "2")
    )
    assert one == two
    assert one.count("wgmma") > 0


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", [b"k\xff.cu", b"k\xe9\n.cu", b"k\xff.py"])
@pytest.mark.parametrize("command", ["scan", "plan", "port"])
def test_a_name_that_is_not_utf_8(command: str, name: bytes, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(name)
    path.write_text("import cutlass.cute as cute\n" if name.endswith(b".py") else "__global__ void k() {}\n")
    result = subprocess.run(
        [sys.executable, "-m", "porter", command, path], capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert result.returncode in range(7)
    assert b"PT0099" not in result.stderr + result.stdout
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/dev/full", "itself", "/nowhere"])
@pytest.mark.parametrize("name", ["k.cu", "k.py", "k.ptx", "case.yaml"])
def test_devices_and_links(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(tmp_path / name if target == "itself" else target)
    for command in ("scan", "port", "verify", "sim"):
        result = porter(command, tmp_path / name, code=2)
        assert "PT0099" not in result.output
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)],
    ids=["pipe", "directory", "device", "loop"],
)
@pytest.mark.parametrize("name", ["part.cuh", "porter.toml", "CMakeLists.txt", "setup.py", "rules.yaml"])
def test_what_lies_beside_a_kernel_is_no_file(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "part.cuh"\n__global__ void k() {}\n')
    make(tmp_path / name)
    began = time.process_time()
    for arguments in (["scan", tmp_path], ["port", tmp_path], ["scan", tmp_path / "k.cu", "--rules", tmp_path / name]):
        result = porter(*arguments, code=None)
        assert "PT0099" not in result.output
        assert result.exit_code in range(7)
    assert time.process_time() - began < 10
