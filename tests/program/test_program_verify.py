# SPDX-License-Identifier: Apache-2.0
"""`porter verify` of whole programs: original and port with their own main(), launch by launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from porter.build.toolchain import Toolkit
from porter.cli.main import main
from porter.report.json import schema

# The port's variants are macros; the original is the same text without any.
PROGRAM = """
#include <cstdio>
#include <cstdlib>
#if defined(PORT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
#error "the port is for Blackwell"
#endif
__global__ void sum(const float *x, float *y, float *scratch, int n) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    part[t] = x[t] + x[t + 64];
#ifndef RACE
    __syncthreads();
#endif
#ifdef BACKWARD
    float s = 0;
    for (int i = 63; i >= 0; --i) s += part[i];
#elif defined(OTHER_BODY)
    float s = 0;
    for (int i = 0; i < 64; i += 2) { s += part[i]; s += part[i + 1]; }
#else
    float s = 0;
    for (int i = 0; i < 64; ++i) s += part[i];
#endif
    if (t == 0 && n) y[0] = s;
#ifdef SCRATCH
    if (t == 3) scratch[5] = 1;
#endif
#ifdef FAULT
    y[t + 100000] = s;
#endif
}
__global__ void scale(float *y) { y[threadIdx.x + 1] = 2 * y[0]; }
int main(int argc, char **argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 1;
    float x[128], y[33] = {}, *dx, *dy, *ds;
    for (int i = 0; i < 128; ++i) x[i] = 1.0f / (i + 3);
    cudaMalloc(&dx, sizeof x);
    cudaMalloc(&dy, sizeof y);
#ifdef MORE_MEMORY
    cudaMalloc(&ds, 512);
#endif
    cudaMalloc(&ds, 256);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    cudaMemset(dy, 0, sizeof y);
    sum<<<1, 64>>>(dx, dy, ds, n);
#ifndef ONE_LAUNCH
    if (n) scale<<<1, 32>>>(dy);
#endif
#ifdef UNANSWERED
    cudaGraph_t graph;
    cudaGraphCreate(&graph, 0);
#endif
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    // A check that lets much pass, as programs' own checks do.
    const bool fine = n == 0 || y[0] > 1;
#ifdef STATUS
    return 3;
#endif
    return !fine;
}
"""


def verify(folder: Path, macros: str, *words: object) -> dict[str, Any]:
    """The JSON document for a port with these macros."""
    (folder / "whole.cu").write_text(PROGRAM)
    (folder / "port.cu").write_text("".join(f"#define {m}\n" for m in ["PORT", *macros.split()]) + PROGRAM)
    command = ["--format", "json", "verify", "--full", "--port", folder / "port.cu", folder / "whole.cu", *words]
    done = CliRunner().invoke(main, [str(word) for word in command])
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == document["exit_code"]
    jsonschema.validate(document, schema("verify"))
    return document


LEFT = {
    "": ["equal", "equal"], "OTHER_BODY": ["equal", "equal"], "BACKWARD": ["differs", "equal"],
    "SCRATCH": ["differs", "equal"], "RACE": ["unknown", "equal"],
}  # fmt: skip
"""What is said of the kernels on PTX."""


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("macros", "verdict", "code", "says"),
    [
        ("", "clean", 0, {}),
        ("OTHER_BODY", "clean", 0, {}),
        ("BACKWARD", "error", 5, {"PT5909": "launch 1 (sum), allocation 1"}),
        ("SCRATCH", "error", 5, {"PT5909": "launch 1 (sum), allocation 2: 4 of 256 bytes"}),
        ("ONE_LAUNCH", "error", 5, {"PT5907": "the original makes 2 launches, the port 1"}),
        ("MORE_MEMORY", "error", 5, {"PT5907": "launch 1 finds 3 allocations of 900 bytes in the original, 4 "}),
        ("STATUS", "error", 5, {"PT5907": "exit status 0, the port with 3"}),
        ("RACE", "error", 5, {"PT4104": "several lanes"}),
        ("FAULT", "error", 5, {"PT5026": "PT4004"}),
        ("UNANSWERED", "error", 5, {"PT5904": "cudaGraphCreate", "PT5907": "exit status"}),
    ],
)
def test_port_against_original(
    macros: str, verdict: str, code: int, says: dict[str, str], toolkit: Toolkit, tmp_path: Path
) -> None:
    document = verify(tmp_path, macros, "--prove-seconds", 10 if macros in LEFT else 0)
    (row,) = document["rows"]
    said = row["diagnostics"]
    assert (row["verdict"], document["exit_code"]) == (verdict, code), said
    if macros in LEFT:
        assert [p["equality"]["status"] for p in document["proofs"]] == LEFT[macros], document["proofs"]
    for number, text in says.items():
        assert any(d["id"].startswith(number) and text in d["message"] for d in said), said
    if not says:
        assert not said
        assert [r["arch"] for r in row["runs"]] == ["sm_90a", "sm_100a"]
        assert [c["tensor"] for c in row["between"]] == [
            "launch 1 (sum), allocation 1",
            "launch 2 (scale), allocation 1",
        ]
        assert [r["program"] for r in row["hazards"]] == ["original", "port"]


@pytest.mark.slow
def test_both_are_compared_on_ptx(toolkit: Toolkit, tmp_path: Path) -> None:
    (tmp_path / "whole.cu").write_text(PROGRAM)

    def equal(macros: str, *words: str) -> tuple[int, str]:
        (tmp_path / "port.cu").write_text(f"#define PORT\n{macros}\n{PROGRAM}")
        done = CliRunner().invoke(main, ["equal", str(tmp_path / "whole.cu"), *words])
        return done.exit_code, " ".join(done.output.split())

    port = str(tmp_path / "port.cu")
    code, said = equal("", port, "--", "1")
    assert (code, said.count("equal on PTX, with proved synchronization")) == (0, 2), said
    assert "whole.cu, scale: equal" in said
    code, said = equal("#define BACKWARD", "--port", port, "--", "1")
    assert (code, "whole.cu, sum: differs: allocation 1, byte 0: made of something else" in said) == (5, True), said
    code, said = equal("#define BACKWARD", "--port", port, "--", "0")
    assert (code, "neither writes anything" in said) == (6, True), said


def test_options_of_comparisons_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.cu").write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    kernel = str(Path(__file__).parents[2] / "corpus" / "gemm_ws" / "gemm_ws.cu")
    for words, says in (
        (["--sizes", "all", str(tmp_path / "p.cu")], "`--sizes`: is for a kernel with a case"),
        (["--params", "1,2", str(tmp_path / "p.cu")], "`--params`: is for a kernel with a case"),
        (["-l", "cuda", kernel], "`-l`: is for a program with its own main()"),
        ([kernel, "port.cu", "--", "128"], "`128`: is an argument of a program"),
        (["--port", "a.cu", kernel, "b.cu"], "choose one"),
    ):
        done = CliRunner().invoke(main, ["equal", *words])
        assert (done.exit_code, says.replace("`", "") in done.output.replace("`", "")) == (2, True), done.output


@pytest.mark.slow
def test_nothing_written_is_no_verdict(toolkit: Toolkit, tmp_path: Path) -> None:
    document = verify(tmp_path, "", "--no-hazards", "--", 0)
    (row,) = document["rows"]
    assert (row["verdict"], document["exit_code"], row["family"]) == ("incomplete", 6, "0")
    assert [d["id"] for d in row["diagnostics"]] == ["PT5908"]


@pytest.mark.slow
def test_without_a_port_one_is_made(toolkit: Toolkit, tmp_path: Path) -> None:
    """Of a corpus kernel in one file with its host code."""
    folder = Path(__file__).parents[2] / "corpus" / "gemm_ws"
    whole = tmp_path / "gemm.cu"
    whole.write_text("".join((folder / name).read_text() for name in ("gemm_ws.cu", "main.cu")))
    done = CliRunner().invoke(main, ["verify", str(whole), "--", "128", "128", "64"])
    assert done.exit_code == 0, done.output
    assert "same bits" in done.output


# 1 + 2^-14, of which Hopper keeps 1.
FP8_PROGRAM = """
#include <cstdint>
#include <cstdio>
__device__ uint64_t tile(const void* p) {
    const uint64_t address = static_cast<uint32_t>(__cvta_generic_to_shared(p));
    return (address & 0x3FFFF) >> 4 | uint64_t(8) << 16 | uint64_t(16) << 32;
}
__global__ void __launch_bounds__(128) product(float* y) {
    __shared__ alignas(128) uint8_t a[64 * 32];
    __shared__ alignas(128) uint8_t b[8 * 32];
    for (int i = threadIdx.x; i < 64 * 32; i += 128) a[i] = 0x3C;
    for (int i = threadIdx.x; i < 8 * 32; i += 128) b[i] = i % 16 ? 0 : i / 128 ? 0x04 : 0x3C;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %6, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2 {%0, %1, %2, %3}, %4, %5, p, 1, 1;}\\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(tile(a)), "l"(tile(b)), "r"(1));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = d[i];
}
int main() {
    float y[512], *p;
    cudaMalloc(&p, sizeof y);
    product<<<1, 128>>>(p);
    cudaMemcpy(y, p, sizeof y, cudaMemcpyDeviceToHost);
    printf("%a\\n", y[0]);
}
"""


@pytest.mark.slow
def test_sums_of_8_bit_floats_are_held_against_each_other_bit_for_bit(toolkit: Toolkit, tmp_path: Path) -> None:
    """Hopper keeps fewer bits of them than Blackwell does: the original runs with as many."""
    source = tmp_path / "fp8.cu"
    source.write_text(FP8_PROGRAM)
    done = CliRunner().invoke(main, ["verify", "--no-hazards", str(source)])
    assert (done.exit_code, "same bits" in done.output) == (0, True), done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--families", "integers"], "--families"), (["--sizes", "all"], "--sizes"),
        (["--backend", "hopper"], "--backend"), (["--original-only"], "--original-only"),
    ],
)  # fmt: skip
def test_options_of_cases_are_refused(words: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "p.cu").write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    done = CliRunner().invoke(main, ["verify", *words, str(tmp_path / "p.cu")])
    assert (done.exit_code, f"{says}: is for kernels with a case" in done.output) == (2, True), done.output


def test_options_of_programs_are_refused_for_cases() -> None:
    kernel = Path(__file__).parents[2] / "corpus" / "gemm_ws" / "gemm_ws.cu"
    done = CliRunner().invoke(main, ["verify", str(kernel), "--", "128"])
    assert (done.exit_code, "is for programs with their own main()" in done.output) == (2, True), done.output
