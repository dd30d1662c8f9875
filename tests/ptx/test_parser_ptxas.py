# SPDX-License-Identifier: Apache-2.0
"""The parser and the printer on what nvcc emits; ptxas reads what the printer writes."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from table_samples import find_ptxas

from porter.ptx.ast import Block, BranchTargets, Instruction, Label, Module, Statement, VarDecl
from porter.ptx.parser import parse_module
from porter.ptx.printer import to_text
from porter.ptx.table import check, lookup

PTXAS = find_ptxas()
needs_compiler = pytest.mark.skipif(PTXAS is None, reason="the CUDA compiler package (nvidia) is not installed")

# Calls, tables of targets, initialised data, nested scopes, vectors, local memory, constants of every kind.
SOURCE = r"""
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Big { int words[40]; };
__device__ int lookup_table[4] = {1, -2, 3, 4};
__device__ int* pointer = &lookup_table[2];
__constant__ double constants[2] = {1.5, -0.0};
__device__ __noinline__ float helper(float x, int n) { return n > 3 ? x * 0.1f : helper(x + 1.0f, n + 1); }
typedef float (*Function)(float, int);
__device__ Function table[2] = {helper, helper};
__device__ __forceinline__ void wait(unsigned address, unsigned phase) {
  asm volatile("{\n.reg .pred p;\nWAIT:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}"
               :: "r"(address), "r"(phase) : "memory");
}
template <int N> __global__ __launch_bounds__(N, 2) void __cluster_dims__(2, 1, 1)
kernel(const __grid_constant__ Big big, float4* out, const __half* in, int n, double d) {
  extern __shared__ __align__(1024) char dynamic[];
  __shared__ unsigned long long barrier[4];
  __shared__ float tile[32][33];
  tile[threadIdx.x % 32][threadIdx.y] = __half2float(in[threadIdx.x]);
  wait((unsigned)__cvta_generic_to_shared(&barrier[n & 3]), n & 1);
  wait((unsigned)__cvta_generic_to_shared(&barrier[0]), 1);
  float x = 0;
  switch (n) {
    case 0: x = 1.25f; break;
    case 1: x = helper(2, n); break;
    case 2: x = table[n & 1](3, n); break;
    case 3: x = (float)constants[n & 1]; break;
    case 4: x = big.words[n]; break;
    case 5: x = dynamic[n]; break;
    case 6: x = *pointer + lookup_table[n & 3]; break;
    case 7: x = __shfl_xor_sync(~0u, x, 3) + __ballot_sync(~0u, n > 2); break;
    default: x = (float)(d / 3.0) + sqrtf(x) + __expf(x) + __popc(n) + __ffs(n);
  }
  __nv_bfloat162 b = __floats2bfloat162_rn(x, x);
  out[threadIdx.x] = make_float4(x, tile[threadIdx.y][n & 31], __low2float(b), atomicAdd(&tile[0][0], x));
  if (n == 1234567) { printf("value %f %d\n", x, n); __trap(); }
}
template __global__ void kernel<128>(const __grid_constant__ Big, float4*, const __half*, int, double);
"""


# What nvcc seldom emits: jump tables, vector variables, rare directives, `d|p`, parameter attributes.
WRITTEN = """
.version 8.8
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 8 .v2 .f32 pair = {0f3F800000, 0f40000000};
.global .align 4 .u32 grid[2][3] = {{1, 2}, {3, 4, 5}};
.visible .const .f64 pi = 0d400921FB54442D18;
.weak .func helper() .noreturn { trap; }
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 64 .b8 map[128])
.reqntid 128, 1, 1
.maxnreg 64
.reqnctapercluster 2, 1, 1
{
  .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
  .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  setp.lt.s32 %p1|%p2, %r1, -5;
  elect.sync _|%p1, 0xFFFFFFFF;
  mov.b64 {%r2, _}, %rd1;
  mov.u64 %rd2, grid+8;
  add.f32 %f1, %f2, 0fC0000000;
  @!%p1 bra END;
  TABLE: .branchtargets A, B;
  brx.idx %r1, TABLE;
A: mbarrier.init.shared::cta.b64 [bar], 1;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, -1}], [bar];
B: { .reg .pred p; setp.eq.u32 p, %r1, WARP_SZ; @p bra END; }
END: ret;
}
"""


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Block):
            yield from walk(statement.body)


def all_instructions(module: Module) -> Iterator[Instruction]:
    for function in module.functions:
        for statement in walk(function.body or ()):
            if isinstance(statement, Instruction):
                yield statement


def without_positions(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for statement in body:
        if isinstance(statement, Block):
            statement = Block(without_positions(statement.body))
        elif isinstance(statement, Instruction):
            statement = dataclasses.replace(statement, line=0, loc=None, text="")
        elif isinstance(statement, Label):
            statement = Label(statement.name)
        found.append(statement)
    return tuple(found)


def plain(module: Module) -> Module:
    functions = tuple(
        dataclasses.replace(f, line=0, body=None if f.body is None else without_positions(f.body))
        for f in module.functions
    )
    return dataclasses.replace(module, functions=functions)


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    assert PTXAS is not None
    folder: Path = tmp_path_factory.mktemp("ptx")
    source = folder / "k.cu"
    source.write_text(SOURCE)
    command = [PTXAS.with_name("nvcc"), f"-arch={request.param}", "-ptx", "-lineinfo", "-std=c++17", source]
    subprocess.run([*command, "-o", folder / "k.ptx"], check=True, capture_output=True)
    return (folder / "k.ptx").read_text()


@needs_compiler
def test_everything_is_there(text: str) -> None:
    module = parse_module(text)
    (kernel,) = module.entries()
    assert kernel.params[0].size == 160
    assert kernel.directives["maxntid"][0] == 128
    statements = list(walk(kernel.body or ()))
    assert any(isinstance(s, BranchTargets) and s.kind == "callprototype" for s in statements)
    assert any(isinstance(s, Label) and s.name == "WAIT" for s in statements)
    assert any(isinstance(s, VarDecl) and s.space == "local" for s in statements)
    shared = {v.name.lstrip("_"): v for v in module.variables if v.space == "shared"}
    assert any(v.extern and v.align == 1024 for v in shared.values())
    data = [v for v in module.variables if v.initial]
    assert any("lookup_table" in str(v.initial) for v in data)
    lines = [i.loc.line for i in all_instructions(module) if i.loc and i.loc.file.endswith("k.cu")]
    assert {23, 24, 25} & set(lines)
    waits = [i for i in all_instructions(module) if i.parts[1:2] == ("try_wait",)]
    assert len(waits) == 2
    assert all(w.loc and w.loc.inlined_at for w in waits)
    # The statements of an instruction's text are where it says.
    source = text.split("\n")
    for found in all_instructions(module):
        assert found.text.split("\n")[0].rstrip() in source[found.line - 1]


@needs_compiler
def test_printed_text_gives_the_tree_back(text: str) -> None:
    module = parse_module(text)
    assert plain(parse_module(to_text(module))) == plain(module)


@needs_compiler
def test_ptxas_takes_the_printed_text(text: str, tmp_path: Path) -> None:
    assert PTXAS is not None
    module = parse_module(text)
    printed = tmp_path / "printed.ptx"
    printed.write_text(to_text(module))
    original = tmp_path / "original.ptx"
    original.write_text(text)
    code = []
    for path in (original, printed):
        out = path.with_suffix(".cubin")
        run = subprocess.run([PTXAS, f"-arch={module.target}", "-v", path, "-o", out], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        code.append([line for line in run.stderr.split("\n") if "registers" in line or "stack frame" in line])
    # The same program uses the same resources.
    assert code[0] == code[1]
    assert code[0]


@needs_compiler
def test_the_table_knows_all_of_it(text: str) -> None:
    module = parse_module(text)
    for found in all_instructions(module):
        assert lookup(found) is not None, found.text
        assert check(found, module.target, module.version) is None


@needs_compiler
def test_ptxas_takes_what_nvcc_seldom_emits(tmp_path: Path) -> None:
    assert PTXAS is not None
    module = parse_module(WRITTEN)
    assert plain(parse_module(to_text(module))) == plain(module)
    for text in (WRITTEN, to_text(module)):
        path = tmp_path / "written.ptx"
        path.write_text(text)
        run = subprocess.run([PTXAS, "-arch=sm_90a", path, "-o", "/dev/null"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr + text
