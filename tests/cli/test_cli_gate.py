# SPDX-License-Identifier: Apache-2.0
"""`porter port` compiles what it emits: what it then says, and what it does not write."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes_cli import porter, porter_json

from porter.build.toolchain import find_toolkit
from porter.diagnostics import PorterError
from porter.passes.mirror import Mirror

HEADER = """\
#pragma once
#include <cstdint>
__device__ __forceinline__ void mma(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
"""
BODY = """ {
    float d[4] = {0};
    for (int k = 0; k < steps; ++k) mma(d, a + k, b + k);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
"""
SIGNATURE = "__global__ void __launch_bounds__(128) gemm(float* out, uint64_t a, uint64_t b, int steps)"
PLAIN = '#include "mma.cuh"\n' + SIGNATURE + BODY
TEMPLATE = '#include "mma.cuh"\ntemplate <int N> ' + SIGNATURE + BODY
TORCH = (
    "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n"
    + TEMPLATE
    + """\
void run(torch::Tensor out, int64_t a, int64_t b) {
    TORCH_CHECK(out.is_cuda() && out.size(0) % 4 == 0, "out");
    gemm<2><<<dim3(out.size(0) / 4, 1), 128, 0, at::cuda::getCurrentCUDAStream()>>>(out.data_ptr<float>(), a, b, 1);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, py::arg("out")); }
"""
)


def _compiler_missing() -> str | None:
    try:
        find_toolkit()
    except PorterError as error:
        return error.diagnostic.message
    return None


needs_compiler = pytest.mark.skipif(_compiler_missing() is not None, reason=str(_compiler_missing()))


def project(folder: Path, text: str = PLAIN, header: str = HEADER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mma.cuh").write_text(header)
    path = folder / "gemm.cu"
    path.write_text(text)
    return path


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The architectures that nvcc compiles for, with a cache of the test's own."""
    import porter.build.nvcc as nvcc

    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    seen: list[str] = []
    real = nvcc.run

    def counted(command: list[object], **options: object) -> object:
        if "-E" not in command:
            seen.append(next(str(w) for w in command if str(w).startswith("-arch=")).removeprefix("-arch="))
        return real(command, **options)

    monkeypatch.setattr(nvcc, "run", counted)
    return seen


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Changes what the port emits for loads and stores of accumulators."""
    real = Mirror.text

    def plant(pattern: str, replacement: str) -> None:
        def text(self: object, *args: object, **options: object) -> str:
            made = real(self, *args, **options)
            changed, count = re.subn(pattern, replacement, made, flags=re.DOTALL)
            assert count, f"the port holds nothing like {pattern}"
            return changed

        monkeypatch.setattr(Mirror, "text", text)

    return plant


BROKEN = {
    "the front end refuses it": (r"$", "\n__device__ int broken = undeclared;\n"),
    "ptxas refuses it": (r"tcgen05\.wait::ld\.sync\.aligned", "tcgen05.wait::nothing.sync.aligned"),
}


@needs_compiler
@pytest.mark.parametrize("planted", BROKEN.values(), ids=BROKEN)
def test_a_port_that_does_not_compile_is_exit_code_4(
    tmp_path: Path, emitted: Callable[[str, str], None], planted: tuple[str, str]
) -> None:
    kernel = project(tmp_path / "k")
    emitted(*planted)
    result = porter("port", kernel, code=4)
    assert "PT3012" in result.stderr
    assert str(kernel) in result.stderr
    assert "trees" not in result.stderr, "people know the file by the path that they gave"
    assert result.stdout_bytes == b""


@pytest.mark.spread(3)
@needs_compiler
@pytest.mark.parametrize("options", [["-o", "OUT"], ["--apply", "--allow-dirty"], ["--check"]], ids=lambda o: o[0])
def test_a_refused_port_is_not_written(tmp_path: Path, emitted: Callable[[str, str], None], options: list[str]) -> None:
    kernel = project(tmp_path / "k")
    emitted(*BROKEN["the front end refuses it"])
    result = porter("port", kernel, *[str(tmp_path / "out") if o == "OUT" else o for o in options], code=4)
    assert "undeclared" in result.stderr
    assert "does not compile" in result.stdout
    assert not (tmp_path / "out").exists()
    assert kernel.read_text() == PLAIN
    assert (kernel.parent / "mma.cuh").read_text() == HEADER


@needs_compiler
def test_no_compile_writes_it_and_says_so(
    tmp_path: Path, emitted: Callable[[str, str], None], compilations: list[str]
) -> None:
    kernel = project(tmp_path / "k")
    emitted(*BROKEN["the front end refuses it"])
    result = porter("port", kernel, "--no-compile", "-o", tmp_path / "out")
    assert "not compiled: --no-compile" in result.stdout
    assert "undeclared" in (tmp_path / "out" / "tcgen05.cuh").read_text()
    assert compilations == []


def test_without_a_compiler_the_port_is_written_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.build.toolchain.search_toolkits", lambda explicit=None: iter(()))
    kernel = project(tmp_path / "k")
    result = porter("port", kernel, "-o", tmp_path / "out")
    assert "not compiled: no CUDA compiler found" in result.stdout
    assert "PT3015" in result.stderr
    assert (tmp_path / "out" / "gemm.cu").is_file()


@needs_compiler
def test_an_original_that_does_not_compile_says_nothing_about_the_port(tmp_path: Path) -> None:
    kernel = project(tmp_path / "k", PLAIN + "int host = missing_elsewhere;\n")
    document = porter_json("port", kernel, "-o", tmp_path / "out")
    (said,) = document["compiled"]
    assert said["status"] == "not compiled"
    assert 'the original does not compile here: identifier "missing_elsewhere" is undefined' in said["reason"]
    assert "PT3013" in [d["id"] for d in document["diagnostics"]]
    assert "tcgen05" in (tmp_path / "out" / "mma.cuh").read_text()


@needs_compiler
def test_the_summary_names_kernels_with_registers_and_spills(tmp_path: Path, compilations: list[str]) -> None:
    kernel = project(tmp_path / "k")
    result = porter("port", kernel)
    assert re.search(r"compiled for sm_90a → sm_100a +registers +spilled.* CTAs an SM", result.stderr)
    assert re.search(r"^gemm +\d+ → \d+ +0 → 0 +\d+ → \d+", result.stderr, re.MULTILINE)
    assert result.stdout_bytes.startswith(b"# rule"), "standard output is the diff's"
    assert b"compiled for" not in result.stdout_bytes
    assert sorted(compilations) == ["sm_100a", "sm_90a"]
    again = porter("port", kernel, "-o", tmp_path / "out")
    assert len(compilations) == 2, "the second time both come from the cache"
    assert re.search(r"^gemm +\d+ → \d+ +0 → 0 +\d+ → \d+", again.stdout, re.MULTILINE)
    (tmp_path / "k" / "mma.cuh").write_text(HEADER + "// more\n")
    porter("port", kernel)
    assert len(compilations) == 4, "a header is part of the content"


@pytest.mark.slow
@needs_compiler
def test_what_nothing_instantiates_is_named(tmp_path: Path) -> None:
    kernel = project(tmp_path / "k", TEMPLATE)
    document = porter_json("port", kernel)
    (said,) = document["compiled"]
    assert (said["kernels"], said["not_instantiated"]) == ([], ["gemm"])
    assert "no kernel is instantiated" in porter("port", kernel).stderr
    kernel.write_text(TEMPLATE + "void launch(float* out) { gemm<7><<<1, 128>>>(out, 0, 0, 1); }\n")
    (said,) = porter_json("port", kernel)["compiled"]
    assert [k["kernel"].split("(")[0] for k in said["kernels"]] == ["void gemm<7>"]
    assert said["not_instantiated"] == []


@needs_compiler
def test_a_case_beside_it_names_what_is_compiled(tmp_path: Path) -> None:
    kernel = project(tmp_path / "k", TEMPLATE)
    (tmp_path / "k" / "case.yaml").write_text(
        "version: 1\nkernel: gemm.cu\nentry: gemm\ntemplate: [5]\nsizes: {M: 64}\n"
        "tensors: {C: {dtype: f32, shape: [M, 8], role: output}}\n"
        "launch: {grid: [1], block: [128]}\nparams: [C]\nreduction: 16\nreference: C\n"
    )
    (said,) = porter_json("port", kernel)["compiled"]
    assert [k["kernel"].split("(")[0] for k in said["kernels"]] == ["void gemm<5>"]


@needs_compiler
def test_headers_of_host_libraries_are_stood_in_for_and_launches_are_read(tmp_path: Path) -> None:
    document = porter_json("port", project(tmp_path / "k", TORCH))
    (said,) = document["compiled"]
    assert said["status"] == "compiled", said["reason"]
    assert said["host_headers"] == ["ATen/cuda/CUDAContext.h", "torch/extension.h"]
    assert [k["kernel"].split("(")[0] for k in said["kernels"]] == ["void gemm<2>"]
    assert "PT3016" in [d["id"] for d in document["diagnostics"]]


@pytest.mark.slow
@needs_compiler
def test_build_and_run_stand_in_for_them_too(tmp_path: Path) -> None:
    result = porter("build", "--style", "compat", project(tmp_path / "k", TORCH))
    assert "ATen/cuda/CUDAContext.h, torch/extension.h" in result.stderr
    assert "void gemm<2>" in result.stdout
    program = tmp_path / "main.cu"
    program.write_text("#include <nccl.h>\n__global__ void k() {}\nint main() { k<<<1, 32>>>(); return 7; }\n")
    for _ in range(2):
        assert "were stood in for: nccl.h" in porter("run", program, code=7).stderr


@needs_compiler
def test_verify_stands_in_for_them_too(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(
        "version: 1\nkernel: k.cu\nentry: k\nsizes: {M: 32}\n"
        "tensors: {A: {dtype: f32, shape: [M], role: input}, C: {dtype: f32, shape: [M], role: output}}\n"
        "launch: {grid: [1], block: [32]}\nparams: [A, C]\nreduction: 1\nreference: A\n"
    )
    kernel = tmp_path / "k.cu"
    kernel.write_text("#include <nccl.h>\n__global__ void k(float* a, float* c) { c[threadIdx.x] = a[threadIdx.x]; }\n")
    result = porter("verify", kernel, "--original-only", "--families", "normal")
    assert "were stood in for: nccl.h" in result.stderr
    assert "verdict: clean" in result.stdout


@needs_compiler
def test_headers_of_the_project_are_not(tmp_path: Path) -> None:
    kernel = project(tmp_path / "k", '#include <ours/tiles.h>\n#include "mma.cuh"\n' + SIGNATURE + BODY)
    (said,) = porter_json("port", kernel)["compiled"]
    assert said["status"] == "not compiled"
    assert "ours/tiles.h" in said["reason"]
    (tmp_path / "include" / "ours").mkdir(parents=True)
    (tmp_path / "include" / "ours" / "tiles.h").write_text("#pragma once\n")
    (said,) = porter_json("port", kernel, "-I", tmp_path / "include")["compiled"]
    assert said["status"] == "compiled"


@needs_compiler
def test_a_header_of_an_include_directory_is_the_ports_own(tmp_path: Path) -> None:
    kernel = project(tmp_path / "k", PLAIN.replace('"mma.cuh"', "<parts/mma.cuh>"))
    (tmp_path / "include" / "parts").mkdir(parents=True)
    (tmp_path / "k" / "mma.cuh").rename(tmp_path / "include" / "parts" / "mma.cuh")
    (said,) = porter_json("port", kernel, "-I", tmp_path / "include")["compiled"]
    assert said["status"] == "compiled", said["reason"]
    assert len(said["kernels"]) == 1


@needs_compiler
def test_a_header_alone_and_several_files(tmp_path: Path, compilations: list[str]) -> None:
    first = project(tmp_path / "a")
    header = tmp_path / "b" / "gemm.cuh"
    project(tmp_path / "b")
    (tmp_path / "b" / "gemm.cu").rename(header)
    document = porter_json("port", first, header, "-j", "2")
    assert [(g["path"], g["status"], len(g["kernels"])) for g in document["compiled"]] == [
        (str(first), "compiled", 1),
        (str(header), "compiled", 1),
    ]
    assert len(compilations) == 4


@needs_compiler
def test_one_refused_port_keeps_all_from_being_written(tmp_path: Path, emitted: Callable[[str, str], None]) -> None:
    good, bad = project(tmp_path / "good"), project(tmp_path / "bad")
    good.write_text("struct Wanted { char c[1]; };\n" + PLAIN)
    bad.write_text("struct Wanted { char c[2]; };\n" + PLAIN)
    emitted(r"$", '\nstatic_assert(sizeof(Wanted) == 1, "refused");\n')
    document = porter_json("port", good, bad, "-o", tmp_path / "out", code=4)
    assert [g["status"] for g in document["compiled"]] == ["compiled", "refused"]
    assert document["written"] == []
    assert not (tmp_path / "out").exists()


@needs_compiler
def test_code_behind_a_condition_on_the_architecture_is_no_port(tmp_path: Path) -> None:
    guarded = BODY.replace("{\n", "{\n#if ON_HOPPER\n", 1).replace("];\n}", "];\n#endif\n}")
    assert guarded.count("#") == 2
    condition = "#define ON_HOPPER (__CUDA_ARCH__ / 10 == 90)\n"
    kernel = project(tmp_path / "k", '#include "mma.cuh"\n' + condition + SIGNATURE + guarded)
    document = porter_json("port", kernel, "-o", tmp_path / "out", code=4)
    assert "PT3018" in [d["id"] for d in document["diagnostics"]]
    assert not (tmp_path / "out").exists()


@needs_compiler
def test_a_port_that_spills_where_its_original_does_not_is_a_warning(
    tmp_path: Path, emitted: Callable[[str, str], None]
) -> None:
    kernel = project(tmp_path / "k")
    # 96 values that are live at once, in a kernel that may have 32 registers
    kernel.write_text(PLAIN.replace("__launch_bounds__(128)", "__launch_bounds__(128, 16)"))
    load = r"(\n    if \(tile\.accumulate\) \{)"
    held = """
    float all[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) asm volatile("mov.u32 %0, %%clock;" : "=f"(all[i]));
#pragma unroll
    for (int i = 0; i < 96; ++i) asm volatile("st.global.f32 [%0], %1;" :: "l"(0ull), "f"(all[95 - i]));"""
    emitted(load, held + r"\1")
    document = porter_json("port", kernel)
    (said,) = document["compiled"]
    spilled = said["kernels"][0]["metrics"]["spill_stores"]
    assert spilled["before"] == 0
    assert spilled["after"] > 0
    (warning,) = [d for d in document["diagnostics"] if d["id"] == "PT3014"]
    assert f"{spilled['after']} bytes of stores" in warning["message"]


@pytest.mark.slow
@needs_compiler
def test_sources_in_strings(tmp_path: Path, emitted: Callable[[str, str], None]) -> None:
    text = HEADER.replace("#pragma once\n", "") + SIGNATURE + BODY
    path = tmp_path / "extension.py"
    path.write_text(f'SOURCE = r"""{text}"""\nmodule = load_inline("g", "", SOURCE)\n')
    (said,) = porter_json("port", path)["compiled"]
    assert (said["status"], len(said["kernels"])) == ("compiled", 1), said["reason"]
    beside = tmp_path / "beside.py"
    beside.write_text(path.read_text() + 'OTHER = f"""__global__ void {path}() {{}}"""\n')
    (said,) = porter_json("port", beside)["compiled"]
    assert (said["status"], said["kernels"]) == ("not compiled", [])
    assert "format string" in said["reason"]
    host = tmp_path / "host.cpp"
    host.write_text(f'const char* kSource = R"src({text})src";\n')
    (said,) = porter_json("port", host)["compiled"]
    assert (said["status"], len(said["kernels"])) == ("compiled", 1), said["reason"]
    emitted(*BROKEN["the front end refuses it"])
    for source in (path, host):
        assert "PT3012" in porter("port", source, code=4).stderr


def test_a_dsl_kernel_without_a_case_is_not_compiled(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "corpus" / "dsl_gemm" / "dsl_gemm.py"
    copy = tmp_path / "dsl_gemm.py"
    copy.write_text(source.read_text())
    (said,) = porter_json("port", copy)["compiled"]
    assert said["status"] == "not compiled"
    assert "case" in said["reason"] or "compiler" in said["reason"]


@pytest.mark.slow
@needs_compiler
def test_progress_is_for_terminals(tmp_path: Path, compilations: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "porter", "port", str(project(tmp_path / "k"))], capture_output=True, check=False
    )
    assert done.returncode == 0
    assert b"\x1b[" not in done.stdout + done.stderr
    assert b"compiling:" not in done.stderr
