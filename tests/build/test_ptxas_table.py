# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.build.cache import Cache
from porter.build.nvcc import CompileRequest
from porter.build.ptxas import Resources, assemble, parse_log
from porter.build.table import COLUMNS, compare, compare_modules
from porter.build.toolchain import Toolkit

LOG = """ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : 28 bytes gmem, 16 bytes cmem[4]
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for helper
    99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem, 400 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 6.000 ms
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers
ptxas x.ptx, line 3; warning : setmaxnreg ignored
"""


def test_log() -> None:
    resources, warnings = parse_log(LOG)
    assert resources == {
        "one": Resources(168, 8, 12, 16, 1024, 3, {0: 400, 2: 8}),
        "two": Resources(24),
    }
    assert len(warnings) == 2
    assert "C7510" in warnings[0]
    assert "setmaxnreg ignored" in warnings[1]


SPILLING = """extern "C" __global__ void __launch_bounds__(1024, 2) k(const float *a, float *b) {
  float v[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) b[i * 1024 + threadIdx.x] = v[63 - i] * v[i];
}
"""


def test_table_of_a_kernel_and_its_changed_form(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    before, after = tmp_path / "a.cu", tmp_path / "b.cu"
    before.write_text(
        'extern "C" __global__ void k(const float *a, float *b) {\n'
        "  __shared__ float s[32];\n  s[threadIdx.x] = *a;\n  __syncthreads();\n  *b = s[3];\n}\n"
    )
    after.write_text(SPILLING)
    row = compare(CompileRequest(before, "sm_90a", "k"), CompileRequest(after, "sm_100a", "k"), toolkit, cache)
    assert (row.kernel, row.before_arch, row.after_arch) == ("k", "sm_90a", "sm_100a")
    assert [m.name for m in row.metrics] == [name for name, _ in COLUMNS]
    assert row.metric("static_smem").before == 128
    assert row.metric("static_smem").after == 0
    assert row.metric("static_smem").delta == -128
    registers = row.metric("registers")
    assert registers.before is not None
    assert registers.after is not None
    assert registers.before < registers.after <= 32
    stores = row.metric("spill_stores")
    assert stores.before == 0
    assert stores.after is not None
    assert stores.after > 0
    assert row.as_json()["metrics"]["registers"]["delta"] == registers.after - registers.before  # type: ignore[index]


PTX = """.version 8.8
.target {arch}
.address_size 64
.visible .entry {name}() {{ ret; }}
"""


def test_modules_are_matched_by_name_and_gaps_stay_gaps(toolkit: Toolkit, cache: Cache) -> None:
    rows = compare_modules(
        (PTX.format(arch="sm_90a", name="same"), "sm_90a"),
        (PTX.format(arch="sm_100a", name="same") + ".visible .entry added() { ret; }\n", "sm_100a"),
        toolkit,
        cache,
    )
    found = {row.kernel: row.metric("registers") for row in rows}
    assert set(found) == {"same", "added"}
    assert found["added"].before is None
    assert found["added"].delta is None
    assert found["same"].delta is not None


def test_cubin_and_cache(toolkit: Toolkit, cache: Cache) -> None:
    ptx = PTX.format(arch="sm_90a", name="k")
    first = assemble(toolkit, ptx, "sm_90a", cache=cache)
    assert first.cubin.startswith(b"\x7fELF")
    assert assemble(toolkit, ptx, "sm_90a", cache=cache) == first


LOADS = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 base) {
 .reg .b32 %r<4>; .reg .b64 %rd<3>;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [base];
 tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r1];
 tcgen05.wait::ld.sync.aligned;
 st.global.b32 [%rd1], %r2;
 ret;
}
"""


def test_checks_of_tensor_memory_are_code_of_modules_that_use_it(toolkit: Toolkit, cache: Cache) -> None:
    checking = replace(toolkit, tmem_check=True)
    plain = assemble(toolkit, LOADS, "sm_100a", cache=cache)
    checked = assemble(checking, LOADS, "sm_100a", cache=cache)
    assert len(checked.cubin) > len(plain.cubin)
    hopper = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
    before = assemble(toolkit, hopper, "sm_90a", cache=cache)
    assert assemble(checking, hopper, "sm_90a", cache=cache).cubin == before.cubin
