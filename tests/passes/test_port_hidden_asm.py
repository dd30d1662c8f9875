# SPDX-License-Identifier: Apache-2.0
"""asm whose text nobody can read may hold wgmma: beside wgmma that is read, it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import port_files

from porter.diagnostics import ExitCode

KERNEL = """#include <stdint.h>
{head}
__global__ void __launch_bounds__(128) kernel(float* out, uint64_t da, uint64_t db) {{
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = 0.f;
    asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");
    {body}
    asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];
}}
"""
OPERANDS = ': "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db)'
MMA = '"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\\n"'
READ = f"asm volatile({MMA} {OPERANDS});"

HIDDEN = {
    "name": ("", f"asm volatile(TEXT {OPERANDS});"),
    "name and literal": ("", f'asm volatile(TEXT "\\n" {OPERANDS});'),
    "in braces": ("", f'asm volatile("{{\\n" TEXT "}}\\n" {OPERANDS});'),
    "behind an instruction": ("", f'asm volatile("{{.reg .pred p; setp.ne.b32 p, 1, 0;\\n" TEXT "}}" {OPERANDS});'),
    "behind a guard": ("", f'asm volatile("{{.reg .pred p;\\n@p " TEXT "}}" {OPERANDS});'),
    "called": ("", f"asm volatile(TEXT(64, 8, 16) {OPERANDS});"),
    "by another name": ("#define ALSO TEXT", f"asm volatile(ALSO {OPERANDS});"),
    "argument": (f"#define RUN(text) asm volatile(text {OPERANDS})", "RUN(TEXT);"),
    "argument with a literal": (f'#define RUN(text) asm volatile(text "\\n" {OPERANDS})', "RUN(TEXT);"),
    "all arguments": ("#define RUN(...) asm volatile(__VA_ARGS__)", f"RUN(TEXT {OPERANDS});"),
    "in a macro": (f"#define RUN() __asm__ __volatile__(TEXT {OPERANDS})", "RUN();"),
    "in a function": (
        "__device__ void also(float (&d)[4], uint64_t da, uint64_t db) { asm volatile(TEXT " + OPERANDS + "); }",
        "also(d, da, db);",
    ),
    "another statement": ("", f"{READ} asm volatile(TEXT {OPERANDS});"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_refused(name: str, tmp_path: Path) -> None:
    head, body = HIDDEN[name]
    result = port_files(tmp_path, {"kernel.cu": KERNEL.format(head=head, body=body)})
    assert result.exit_code == ExitCode.UNPORTED
    assert {d.code.id for d in result.diagnostics} & {"PT1003", "PT1004"}
    assert not result.changed


@pytest.mark.parametrize("body", [
    "mma_all(d, da, db);",
    "MMA_ALL(d, da, db);",
    "lib::mma<64, 8>(d, da, db);",
    "Mma::issue(da, db, d[0], d[1], d[2], d[3]);",
    "mma.issue(da, db, &d[0]);",
    "mma_all(reinterpret_cast<float(&)[2][2]>(d), da, db);",
    "__shared__ float tile[64]; mma_all(tile, d);",
])  # fmt: skip
def test_commits_of_what_was_not_read(body: str, tmp_path: Path) -> None:
    result = port_files(tmp_path, {"kernel.cu": KERNEL.format(head="", body=body)})
    assert result.exit_code == ExitCode.UNPORTED
    assert [d.code.id for d in result.diagnostics if d.code.id == "PT2060"] == ["PT2060"]
    assert not result.changed


@pytest.mark.parametrize("body", [
    "",
    "__syncthreads();",
    "noted(da);",
    "float* p = reinterpret_cast<float*>(d); p[0] = 1.0f;",
    "auto& pair = reinterpret_cast<float(&)[2]>(d); pair[1] = 1.0f;",
    "const float* p = static_cast<const float*>(d); d[1] = p[0];",
    "__shared__ float tile[64]; noted(tile);",
    "__shared__ alignas(128) float tile[2][64]; noted(tile[1], &tile[0][0]);",
    "extern __shared__ char raw[]; auto* tile = reinterpret_cast<float*>(raw); noted(raw);",
    "__shared__ uint64_t bars[4]; uint32_t at = __cvta_generic_to_shared(&bars[1]);",
])  # fmt: skip
def test_commits_of_nothing_are_ported(body: str, tmp_path: Path) -> None:
    result = port_files(tmp_path, {"kernel.cu": KERNEL.format(head="", body=body)})
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]


OPERAND = '#define MOVE(r) asm volatile("{.reg .b32 a;\\n mov.b32 " r ", 0;}" ::: "memory")'


@pytest.mark.parametrize(("head", "body"), [
    ("", READ),
    (OPERAND, READ + ' MOVE("a");'),
    (OPERAND, READ + " MOVE(REGISTER_OF_ANOTHER_HEADER);"),
    ('#define S_(x) #x\n#define S(x) S_(x)', READ + ' asm volatile(S(bar) ".sync 0, 128;");'),
    ('#define SYNC "bar.sync 0, 128;"', READ + ' asm volatile("" SYNC);'),
    ("", READ + ' asm volatile("" : "+f"(d[0]) :: "memory");'),
])  # fmt: skip
def test_what_is_known_or_holds_no_instruction_is_ported(head: str, body: str, tmp_path: Path) -> None:
    result = port_files(tmp_path, {"kernel.cu": KERNEL.format(head=head, body=body)})
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]
    assert result.changed
