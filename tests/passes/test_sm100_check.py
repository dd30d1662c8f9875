# SPDX-License-Identifier: Apache-2.0
"""Checks of code that is for SM100 already: what is found, what is not, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.lang.cuda import parse_cuda
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.passes.sm100.check import sm100_findings
from porter.passes.sm100.conditions import Conditions

ROOT = Path(__file__).resolve().parents[2]

LOAD = 'asm volatile("tcgen05.ld.sync.aligned.32x32b.x{0}.b32 {{{1}}}, [%{0}];" : {2} : "r"(base));'
WAIT = 'asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");'


def load(count: int, variable: str = "v") -> str:
    """An asm statement that loads `count` registers into an array."""
    names = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"({variable}[{i}])' for i in range(count))
    return LOAD.format(count, names, outputs)


def kernel(body: str, head: str = "__global__ void k(unsigned base, unsigned* out)") -> str:
    return f"{head} {{ unsigned v[128], w[128]; {body} }}\n"


def codes(tmp_path: Path, text: str, name: str = "kernel.cu", builds: tuple[Path, ...] = ()) -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [d.code.name for d in sm100_findings(path, builds=builds)]


BOUNDED = "__global__ void __launch_bounds__({}) k(unsigned base, unsigned* out)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(kernel(load(32) + WAIT + "out[0] = v[0];"), [], id="x32, waited"),
        pytest.param(kernel(load(1) + WAIT + "out[0] = v[0];"), ["T2R_NARROW"], id="x1"),
        pytest.param(kernel(load(2) + WAIT + "out[0] = v[0];"), [], id="x2"),
        pytest.param(kernel(load(128) + WAIT + "out[0] = v[0];"), ["T2R_WIDE"], id="x128"),
        pytest.param(kernel(load(64) + WAIT + "out[0] = v[0];", BOUNDED.format("1024")), ["T2R_REGISTERS"],
                     id="64 registers of 64"),
        pytest.param(kernel(load(64) + WAIT + "out[0] = v[0];", BOUNDED.format("512, 2")), ["T2R_REGISTERS"],
                     id="two blocks an SM"),
        pytest.param(kernel(load(64) + WAIT + "out[0] = v[0];", BOUNDED.format("512")), [], id="64 registers of 128"),
        pytest.param("constexpr int threads = 1024;\n" + kernel(load(64) + WAIT, BOUNDED.format("threads")),
                     ["T2R_REGISTERS"], id="bounds by a constant"),
        pytest.param("#define THREADS 1024\n" + kernel(load(64) + WAIT, BOUNDED.format("THREADS, 1")),
                     ["T2R_REGISTERS"], id="bounds by a macro"),
        pytest.param(kernel(load(64) + WAIT, BOUNDED.format("Traits::threads")), [], id="bounds that are not known"),
        pytest.param(kernel(load(16) + "out[0] = v[0];" + WAIT), ["T2R_UNWAITED"], id="used before the wait"),
        pytest.param(kernel(load(16) + "out[0] = v[0];"), ["T2R_UNWAITED"], id="no wait at all"),
        pytest.param(kernel(load(16) + "out[0] = w[0];" + WAIT), [], id="something else is used"),
        pytest.param(kernel(load(16) + load(16, "w") + WAIT + "out[0] = v[0] + w[0];"), [], id="a batch, one wait"),
        pytest.param(kernel(load(16) + WAIT + load(16, "w") + "out[0] = v[0];" + WAIT), [], id="the batch before"),
        pytest.param(kernel(load(16) + WAIT + load(16, "w") + "out[0] = w[0];" + WAIT), ["T2R_UNWAITED"],
                     id="the second batch"),
        pytest.param("__device__ void get(unsigned (&v)[16], unsigned base) { " + load(16) + " }\n"
                     + kernel("get(v, base); out[0] = v[0];"), ["T2R_UNWAITED"], id="through a function"),
        pytest.param("__device__ void get(unsigned (&v)[16], unsigned base) { " + load(16) + " }\n"
                     "__device__ void wait() { " + WAIT + " }\n"
                     + kernel("get(v, base); base += 16; get(w, base); wait(); out[0] = v[0];"), [],
                     id="functions that load and wait"),
        pytest.param("__device__ void get(unsigned (&v)[16], unsigned base) { " + load(16) + WAIT + " }\n"
                     + kernel("get(v, base); out[0] = v[0];"), [], id="a function that does both"),
    ],
)  # fmt: skip
def test_loads_in_inline_ptx(tmp_path: Path, text: str, found: list[str]) -> None:
    assert codes(tmp_path, text) == found


CUTE = """
__device__ void drain(float* out) {{
  auto t2r = make_tmem_copy(SM100_TMEM_LOAD_{}{{}}, tCtAcc);
  copy(t2r, tDtAcc, tDrAcc);
  {}
  out[0] = tDrAcc(0);
}}
"""
FENCE = "cutlass::arch::fence_view_async_tmem_load();"


@pytest.mark.parametrize(
    ("atom", "found"),
    [
        ("32dp32b1x", ["T2R_NARROW"]),
        ("32dp32b2x", []),
        ("32dp32b32x", []),
        ("32dp32b64x", []),
        ("32dp32b128x", ["T2R_WIDE"]),
        ("16dp64b1x", ["T2R_NARROW"]),
        ("16dp64b128x", ["T2R_WIDE"]),
        ("16dp128b64x", ["T2R_WIDE"]),
        ("16dp256b16x", []),
        ("16dp256b32x", ["T2R_WIDE"]),
        ("16dp32b1x", ["T2R_NARROW"]),
        ("16dp32b128x_16b", ["T2R_WIDE"]),
    ],
)
def test_loads_of_cute(tmp_path: Path, atom: str, found: list[str]) -> None:
    assert codes(tmp_path, CUTE.format(atom, FENCE)) == found
    assert codes(tmp_path, CUTE.format(atom, "")) == [*found, "T2R_UNWAITED"]


def test_asserts_are_a_matter_of_the_build(tmp_path: Path) -> None:
    text, make = CUTE.format("32dp32b32x", FENCE), tmp_path / "Makefile"
    assert codes(tmp_path, text) == []
    make.write_text("NVCCFLAGS = -O3 -arch=sm_100a\n")
    assert codes(tmp_path, text, builds=(make,)) == ["T2R_ASSERTS"]
    assert codes(tmp_path, kernel(load(32) + WAIT), builds=(make,)) == []
    make.write_text("NVCCFLAGS = -O3 -DNDEBUG -arch=sm_100a\n")
    assert codes(tmp_path, text, builds=(make,)) == []
    cmake = tmp_path / "CMakeLists.txt"
    cmake.write_text("set(CMAKE_BUILD_TYPE Release)\n")
    assert codes(tmp_path, text, builds=(cmake,)) == []
    cmake.write_text("set(CMAKE_BUILD_TYPE Debug)\n")
    assert codes(tmp_path, text, builds=(cmake,)) == ["T2R_ASSERTS"]


MMA = 'asm volatile("tcgen05.fence::after_thread_sync;");'
WGMMA = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'


def under(condition: str, body: str, rest: str = "") -> str:
    return f"__device__ void f() {{\n#if {condition}\n{body}\n{rest}#endif\n}}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (under("__CUDA_ARCH__ == 900", MMA), ["SM100_LEFT_OUT"]),
        (under("__CUDA_ARCH__ == 900", "f();"), ["SM100_LEFT_OUT"]),
        (under("__CUDA_ARCH__ == 900", "f();", "#else\ng();\n"), []),
        (under("__CUDA_ARCH__ == 900", ""), []),
        (under("__CUDA_ARCH__ == 900", WGMMA), []),
        (under("__CUDA_ARCH__ >= 900", "f();"), []),
        (under("__CUDA_ARCH__ >= 900", MMA), ["SM100_ADMITS_HOPPER"]),
        (under("__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000", MMA), ["SM100_LEFT_OUT"]),
        (under("__CUDA_ARCH__ >= 1000", MMA), ["SM100_ADMITS_HOPPER"]),
        (under("__CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200", MMA), []),
        (under("defined(__CUDA_ARCH_FEAT_SM100_ALL)", MMA), []),
        (under("defined(__CUDA_ARCH_FEAT_SM90_ALL)", MMA), ["SM100_LEFT_OUT"]),
        (under("defined __CUDA_ARCH_FEAT_SM90_ALL", WGMMA), []),
        (under("defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)", MMA),
         ["SM100_ADMITS_HOPPER"]),
        (under("defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == 900", MMA), ["SM100_LEFT_OUT"]),
        (under("__CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000 && __CUDA_ARCH_FAMILY_SPECIFIC__ < 1100", MMA), []),
        (under("defined(CUTLASS_ARCH_MMA_SM90A_ENABLED)", MMA), ["SM100_LEFT_OUT"]),
        (under("defined(CUTLASS_ARCH_MMA_SM100A_ENABLED)", MMA), []),
        (under("MINE && __CUDA_ARCH__ == 900", MMA), ["SM100_LEFT_OUT"]),
        (under("MINE || __CUDA_ARCH__ == 900", MMA), ["SM100_ADMITS_HOPPER"]),
        (under("!(__CUDA_ARCH__ >= 1000)", WGMMA), []),
        (under("__CUDA_ARCH__ >= 900", WGMMA), ["HOPPER_LEFT"]),
        (under("__CUDA_ARCH__ == 900", WGMMA, "#elif __CUDA_ARCH__ == 1000\n" + MMA + "\n"), []),
        ("#if __CUDA_ARCH__ == 900\n// nothing\n#error not here\n#endif\n", []),
        (under("defined(__CUDA_ARCH_FEAT_SM100_ALL)", MMA, "#else\n" + WGMMA + "\n"), []),
        (under("__CUDA_ARCH__ == 1000", "#if MINE\n" + MMA + "\n#endif"), []),
        ("#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#define HAS_TMA 1\n#endif\n", ["SM100_LEFT_OUT"]),
        ("#ifndef __CUDA_ARCH_FEAT_SM100_ALL\n#error only for sm_100a\n#endif\n", []),
    ],
)  # fmt: skip
def test_conditions(tmp_path: Path, text: str, found: list[str]) -> None:
    assert codes(tmp_path, text) == found


@pytest.mark.parametrize(
    ("condition", "hopper", "blackwell"),
    [
        ("__CUDA_ARCH__ >= 900", True, True),
        ("__CUDA_ARCH__ == 900u", True, False),
        ("(__CUDA_ARCH__) > 900", False, True),
        ("900 <= __CUDA_ARCH__", True, True),
        ("defined(__CUDA_ARCH__)", True, True),
        ("!defined(__CUDA_ARCH__)", False, False),
        ("defined(X)", None, None),
        ("defined(X) && __CUDA_ARCH__ == 900", None, False),
        ("defined(X) || __CUDA_ARCH__ == 900", True, None),
        ("X(1, 2", None, None),
        ("0x384 == __CUDA_ARCH__", True, False),
    ],
)
def test_values_of_conditions(condition: str, hopper: bool | None, blackwell: bool | None) -> None:
    conditions = Conditions(parse_cuda("a.cu", f"#if {condition}\nint x;\n#endif\n".encode()), ())
    (branch,) = conditions.branches
    assert (conditions.taken(branch, "sm_90a"), conditions.taken(branch, "sm_100a")) == (hopper, blackwell)


ALLOC = 'asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" :: "r"(base));'
DEALLOC = 'asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" :: "r"(base));'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (kernel(ALLOC), ["TMEM_KEPT"]),
        (kernel(ALLOC + DEALLOC), []),
        (kernel(ALLOC + "tmem_dealloc(base);"), []),
        (kernel("cute::warpgroup_arrive(); cute::warpgroup_arrive();"), ["HOPPER_LEFT"]),
        ("__device__ void warpgroup_arrive() {}\n" + kernel("warpgroup_arrive();"), []),
        ("using Major = GMMA::Major;\n", []),
        ("using Arch = cutlass::arch::Sm90;\n", ["HOPPER_LEFT"]),
        ("#define CUTLASS_ENABLE_GDC_FOR_SM90\n", ["SWITCH_LOST"]),
        ("#define CUTLASS_ENABLE_GDC_FOR_SM90\n#define CUTLASS_ENABLE_GDC_FOR_SM100\n", []),
        ("#ifdef CUTLASS_ARCH_MMA_SM90_SUPPORTED\nint x;\n#endif\n", ["SWITCH_LOST"]),
        ("#if defined(CUTLASS_ARCH_MMA_SM90_SUPPORTED) || defined(CUTLASS_ARCH_MMA_SM100_SUPPORTED)\n#endif\n", []),
    ],
)
def test_what_is_left(tmp_path: Path, text: str, found: list[str]) -> None:
    assert codes(tmp_path, text) == found


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Makefile", "FLAGS = -arch=sm_100\n", ["PLAIN_TARGET"]),
        ("Makefile", "FLAGS = -arch=sm_100a\n", []),
        ("Makefile", "FLAGS = -gencode arch=compute_100f,code=sm_100f\n", []),
        ("Makefile", "FLAGS = -arch=sm_90a\n", ["PLAIN_TARGET"]),
        ("Makefile", "FLAGS = -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100a,code=sm_100a\n", []),
        ("CMakeLists.txt", "set_target_properties(k PROPERTIES CUDA_ARCHITECTURES 100)\n", ["PLAIN_TARGET"]),
        ("CMakeLists.txt", 'set_target_properties(k PROPERTIES CUDA_ARCHITECTURES "90a;100a")\n', []),
        ("CMakeLists.txt", "set_target_properties(k PROPERTIES CUDA_ARCHITECTURES 90a)\n", ["PLAIN_TARGET"]),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 100)\n", ["PLAIN_TARGET"]),
        ("CMakeLists.txt", 'set(CMAKE_CUDA_ARCHITECTURES "80;90a;100;120a")\n', ["PLAIN_TARGET"]),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES\n  90a\n  103)\n", ["PLAIN_TARGET"]),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 90a)\n", ["PLAIN_TARGET"]),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 90a 100a)\n", []),
        ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES native)\n", []),
        ("CMakePresets.json", '{"CMAKE_CUDA_ARCHITECTURES": "100f"}\n', []),
        (
            "CMakePresets.json",
            '{"CMAKE_CUDA_ARCHITECTURES": {"type": "STRING", "value": "90a;100"}}\n',
            ["PLAIN_TARGET"],
        ),
        ("build.sh", "cmake -DCMAKE_CUDA_ARCHITECTURES=90a -B build\nmake -j 100\n", []),
        ("build.sh", "cmake -DCMAKE_CUDA_ARCHITECTURES='90a;100' -B build\n", ["PLAIN_TARGET"]),
        ("build.sh", "export TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST:-10.0}\n", ["PLAIN_TARGET"]),
        ("build.sh", "TORCH_CUDA_ARCH_LIST='9.0a 10.0a' python setup.py\n", []),
        ("build.sh", "nvcc -arch=sm_100 -c k.cu\n", ["PLAIN_TARGET"]),
        ("Dockerfile", 'ENV TORCH_CUDA_ARCH_LIST="8.0;10.0"\n', ["PLAIN_TARGET"]),
        ("Dockerfile", 'ENV FLASHINFER_CUDA_ARCH_LIST="9.0a 10.3"\n', ["PLAIN_TARGET"]),
        ("setup.py", 'os.environ["TORCH_CUDA_ARCH_LIST"] = "10.0"\n', ["PLAIN_TARGET"]),
        ("jit.py", 'os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a;10.0")\n', ["PLAIN_TARGET"]),
        ("jit.py", 'os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a;10.0a")\n', []),
        ("setup.py", 'flags = ["-DCUTLASS_ENABLE_GDC_FOR_SM90"]\n', ["SWITCH_LOST"]),
        ("setup.py", 'flags = ["-DCUTLASS_ENABLE_GDC_FOR_SM90", "-DCUTLASS_ENABLE_GDC_FOR_SM100"]\n', []),
    ],
)
def test_build_files(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    assert codes(tmp_path, text, name) == found


PTX = """.version 9.0
.target {target}
.address_size 64
.extern .func __assertfail(.param .b64 a);
.visible .entry k(.param .u64 p) {bounds} {{
 .reg .pred %p<2>; .reg .b32 %r<200>; .reg .b64 %rd<2>;
{body}
 ret;
}}
"""
ONE = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];\n"
MANY = "tcgen05.ld.sync.aligned.16x256b.x32.b32 {" + ", ".join(f"%r{i + 10}" for i in range(128)) + "}, [%r2];\n"
PTX_WAIT = "tcgen05.wait::ld.sync.aligned;\n"
USE = "add.s32 %r3, %r1, 1;\n"


@pytest.mark.parametrize(
    ("body", "bounds", "target", "found"),
    [
        (ONE + PTX_WAIT + USE, "", "sm_100a", ["T2R_NARROW"]),
        (ONE + USE, "", "sm_100a", ["T2R_NARROW", "T2R_UNWAITED"]),
        (ONE + "bra L;\nL:\n" + USE, "", "sm_100a", ["T2R_NARROW"]),
        (ONE + "mov.u32 %r1, 0;\n" + USE, "", "sm_100a", ["T2R_NARROW"]),
        (MANY + PTX_WAIT, "", "sm_100a", ["T2R_WIDE"]),
        (MANY + PTX_WAIT, ".maxntid 512, 1, 1", "sm_100a", ["T2R_WIDE", "T2R_REGISTERS"]),
        (MANY + PTX_WAIT, ".maxntid 128, 1, 1 .minnctapersm 4", "sm_100a", ["T2R_WIDE", "T2R_REGISTERS"]),
        (MANY + PTX_WAIT, ".maxntid 256, 1, 1", "sm_100a", ["T2R_WIDE"]),
        ("setmaxnreg.inc.sync.aligned.u32 232;\n" + MANY + PTX_WAIT, ".maxntid 512, 1, 1", "sm_100a", ["T2R_WIDE"]),
        (MANY + PTX_WAIT, ".maxnreg 96", "sm_100a", ["T2R_WIDE", "T2R_REGISTERS"]),
        (ONE + PTX_WAIT + "call.uni __assertfail, (%rd1);\n", "", "sm_100a", ["T2R_NARROW", "T2R_ASSERTS"]),
        ("call.uni __assertfail, (%rd1);\n", "", "sm_100a", []),
        ("wgmma.fence.sync.aligned;\n", "", "sm_90a", ["HOPPER_PTX"]),
        ("tcgen05.fence::after_thread_sync;\n", "", "sm_100", ["PLAIN_TARGET"]),
        ("tcgen05.fence::after_thread_sync;\n", "", "sm_100f", []),
    ],
)
def test_ptx(tmp_path: Path, body: str, bounds: str, target: str, found: list[str]) -> None:
    text = PTX.format(target=target, bounds=bounds, body=body)
    assert sorted(codes(tmp_path, text, "k.ptx")) == sorted(found)


DSL = """import cutlass.cute as cute
from cutlass.cute.nvgpu import tcgen05

@cute.jit
def drain(tAcc, regs, out):
    atom = cute.make_copy_atom({}, cute.Float32)
    load = tcgen05.make_tmem_copy(atom, tAcc)
    cute.copy(load, tAcc, regs)
    {}
    out.store(regs.load())
"""
DSL_WAIT = "cute.arch.fence_view_async_tmem_load()"


@pytest.mark.parametrize(
    ("operation", "wait", "found"),
    [
        ("tcgen05.Ld32x32bOp(tcgen05.Repetition.x32)", DSL_WAIT, []),
        ("tcgen05.Ld32x32bOp(tcgen05.Repetition.x1)", DSL_WAIT, ["T2R_NARROW"]),
        ("tcgen05.Ld32x32bOp(tcgen05.Repetition(1))", DSL_WAIT, ["T2R_NARROW"]),
        ("tcgen05.Ld32x32bOp(repeat=tcgen05.Repetition(128))", DSL_WAIT, ["T2R_WIDE"]),
        ("tcgen05.copy.Ld16x256bOp(tcgen05.copy.Repetition.x32)", DSL_WAIT, ["T2R_WIDE"]),
        ("tcgen05.copy.Ld16x32bx2Op(tcgen05.copy.Repetition.x1)", DSL_WAIT, ["T2R_NARROW"]),
        ("tcgen05.St32x32bOp(tcgen05.Repetition.x1)", DSL_WAIT, []),
        ("tcgen05.Ld32x32bOp(tcgen05.Repetition(count))", DSL_WAIT, []),
        ("other(tcgen05.Repetition.x32)", "pass", ["T2R_UNWAITED"]),
        ("mine.Ld32x32bOp(mine.Repetition.x1)", DSL_WAIT, []),
    ],
)
def test_cute_dsl(tmp_path: Path, operation: str, wait: str, found: list[str]) -> None:
    assert codes(tmp_path, DSL.format(operation, wait), "kernel.py") == found


@pytest.mark.parametrize("name", ["gemm_ws", "gemm_rs", "gemm_cooperative_128", "attention_fwd", "gemm_fp8_scaled"])
def test_ports_have_no_findings(tmp_path: Path, name: str) -> None:
    source = ROOT / "corpus" / name / f"{name}.cu"
    result = port_sources(load_sources(source))
    for path, text in result.files.items():
        (tmp_path / Path(path).name).write_bytes(text)
    for path in tmp_path.iterdir():
        assert [str(d) for d in sm100_findings(path)] == []


MMA = 'asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, 1;" :: "r"(d), "l"(a), "r"(i));'
ELECTED = (
    'asm volatile("{ .reg .pred p; elect.sync _|p, -1; @p tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }"'
    ' :: "r"(d), "l"(a), "r"(i));'
)
HEAD = "__global__ void k(unsigned d, unsigned long a, unsigned i)"


@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("tcgen05.alloc.sync.aligned.shared::cta.b32 [%0], 32;", "there is `tcgen05.alloc.<cta_group>.sync"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 48;", "its operands are those of"),
        ("tcgen05.wait.ld.sync.aligned;", "there is `tcgen05.wait::ld.sync.aligned`"),
        ("tcgen05.fence::after_thread_sync.sync;", "there is `tcgen05.fence::after_thread_sync`"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive.b64 [%0];", "mbarrier::arrive::one"),
        ("tcgen05.ld.sync.aligned.32x32b.x3.b32 {%0}, [%0];", "x1|x2|x4"),
        ("tcgen05.mma.kind::f16 [%0], %1, %1, %0, 1;", "tcgen05.mma.<cta_group>"),
        ("tcgen05.mma.cta_group::1.kind::fp16 [%0], %1, %1, %0, 1;", "kind::f16"),
        ("tcgen05.shuffle.cta_group::1 [%0];", "nothing is called so"),
    ],
)
def test_forms_that_ptxas_refuses(tmp_path: Path, instruction: str, said: str) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(f'{HEAD} {{ if (i) asm volatile("{instruction}" :: "r"(d), "l"(a)); }}\n')
    refused = [d for d in sm100_findings(path) if d.code.name == "SM100_REFUSED"]
    assert len(refused) == 1
    assert said in str(refused[0].values["why"])


def test_constants_inside_an_opcode_are_read(tmp_path: Path) -> None:
    alloc = 'asm volatile("tcgen05.{0}.cta_group::%2.sync.aligned{1}.b32 {2}, %1;" :: "r"(d), "r"(i), "n"({3}));'
    allocated = alloc.format("alloc", ".shared::cta", "[%0]", "1")
    freed = alloc.format("dealloc", "", "%0", "Group")
    assert codes(tmp_path, f"{HEAD} {{ {allocated} }}\n") == ["TMEM_KEPT"]
    assert codes(tmp_path, f"template <int Group> {HEAD} {{ {allocated} {freed} }}\n") == []
    wrong = alloc.format("alloc", ".shared::cta", "[%0]", "3")
    assert "SM100_REFUSED" in codes(tmp_path, f"{HEAD} {{ {wrong} {freed} }}\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{HEAD} {{ {MMA} }}", 1),
        (f"{HEAD} {{ for (int j = 0; j < 4; ++j) {{ {MMA} }} }}", 1),
        (f"__device__ void f(unsigned d, unsigned long a, unsigned i) {{ {MMA} }}\n{HEAD} {{ f(d, a, i); }}", 1),
        (f"template <int N> __device__ void f(unsigned d, unsigned long a, unsigned i) {{ {MMA} }}\n"
         "__device__ void g(unsigned d, unsigned long a, unsigned i) { f<2>(d, a, i); }\n"
         f"{HEAD} {{ g(d, a, i); }}", 1),
        (f"{HEAD} {{ if (threadIdx.x == 0) {{ {MMA} }} }}", 0),
        (f"{HEAD} {{ if (threadIdx.x) return; {MMA} }}", 0),
        (f"{HEAD} {{ switch (threadIdx.x) {{ case 0: {MMA} }} }}", 0),
        (f"{HEAD} {{ {ELECTED} }}", 0),
        (f"__device__ void f(unsigned d, unsigned long a, unsigned i) {{ {MMA} }}\n{HEAD} {{ if (i) f(d, a, i); }}", 0),
        (f"__device__ bool f(unsigned d, unsigned long a, unsigned i) {{ {MMA} return true; }}\n"
         f"{HEAD} {{ bool b = threadIdx.x == 0 && f(d, a, i); }}", 0),
        (f"{HEAD} {{ auto f = [&] {{ {MMA} }}; if (threadIdx.x == 0) f(); }}", 0),
        (f"__device__ void f(unsigned d, unsigned long a, unsigned i) {{ {MMA} }}", 0),
    ],
)  # fmt: skip
def test_mmas_that_every_thread_issues(tmp_path: Path, text: str, found: int) -> None:
    assert codes(tmp_path, text + "\n").count("MMA_BY_ALL") == found


COPY = ('asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%0];"'
        ' :: "r"(d), "l"(a), "r"(i));')  # fmt: skip
EXPECT = 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(d), "r"(i));'


def test_copies_whose_bytes_nothing_expects(tmp_path: Path) -> None:
    assert codes(tmp_path, f"{HEAD} {{ {COPY} {COPY} }}\n") == ["TMA_UNCOUNTED"]
    assert codes(tmp_path, f"{HEAD} {{ {COPY} {EXPECT} }}\n") == []
    assert codes(tmp_path, f"{HEAD} {{ {COPY} barrier.arrive_and_expect_tx(i); }}\n") == []
    assert codes(tmp_path, f"{HEAD} {{ {COPY} set_barrier_transaction_bytes(b, i); }}\n") == []
    (tmp_path / "expect.cuh").write_text(f"__device__ void expect(unsigned d, unsigned i) {{ {EXPECT} }}\n")
    assert codes(tmp_path, f'#include "expect.cuh"\n{HEAD} {{ {COPY} expect(d, i); }}\n') == []


SHIFTS = "__device__ unsigned long desc(unsigned long s) {{ return (s >> 4) | (64ul << 32) | {0}; }}\n"


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        ("(1ul << 62)", 1),
        ("(uint64_t(2) << 61)", 1),
        ("(1ul << 46) | (2ul << 61)", 0),
        ("((version ? 1ull : 0ull) << 46) | (2ul << 61)", 0),
        ("(1ul << 60)", 0),
    ],
)
def test_descriptors_without_a_version(tmp_path: Path, bits: str, found: int) -> None:
    text = SHIFTS.format(bits) + f"{HEAD} {{ if (i) {{ {MMA} }} }}\n"
    assert codes(tmp_path, text).count("DESCRIPTOR_VERSION") == found
    assert "DESCRIPTOR_VERSION" not in codes(tmp_path, SHIFTS.format(bits)), "nothing of SM100 uses it"


ASM_FENCE = 'asm volatile("tcgen05.fence::after_thread_sync;");'


def test_tcgen05_in_functions_that_a_condition_is_around(tmp_path: Path) -> None:
    helper = f"__device__ void f() {{ {ASM_FENCE} }}\n"
    called = "__global__ void k() {{\n#if {0}\n f();\n#endif\n}}\n"
    assert codes(tmp_path, helper + called.format("__CUDA_ARCH__ >= 1000")) == ["SM100_ADMITS_HOPPER"]
    assert codes(tmp_path, helper + called.format("__CUDA_ARCH__ == 900")) == ["SM100_LEFT_OUT"]
    assert codes(tmp_path, helper + called.format("defined(__CUDA_ARCH_FEAT_SM100_ALL)")) == []
    guarded = f"__device__ void f() {{\n#if defined(__CUDA_ARCH_FEAT_SM100_ALL)\n {ASM_FENCE}\n#endif\n}}\n"
    assert codes(tmp_path, guarded + called.format("__CUDA_ARCH__ >= 1000")) == []


def test_atoms_that_macros_stand_for(tmp_path: Path) -> None:
    assert codes(tmp_path, "#define T2R_ATOM SM100_TMEM_LOAD_32dp32b1x\nusing A = T2R_ATOM;\n") == ["T2R_NARROW"]
    assert codes(tmp_path, "#define T2R_ATOM SM100_TMEM_LOAD_32dp32b32x\n") == []


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ('asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");', 1),
        ('asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");', 0),
        ("give<40>();", 1),
        ("give<LEFT>();", 1),
        ("give<N>();", 0),
        ("if (i) { give<40>(); }", 0),
    ],
)
def test_registers_that_a_warp_has_given_away(tmp_path: Path, before: str, found: int) -> None:
    give = (
        'template <int N> __device__ void give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }\n'
    )
    text = "#define LEFT 24\n" + give + kernel(f"if (base) {{ {before} {load(64)} {WAIT} out[0] = v[0]; }}")
    assert codes(tmp_path, text.replace("unsigned* out", "unsigned* out, int i")).count("T2R_REGISTERS") == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("setmaxnreg.dec.sync.aligned.u32 40; LOAD", 1),
        ("@%p1 bra WORK; setmaxnreg.dec.sync.aligned.u32 40; ret; WORK: setmaxnreg.inc.sync.aligned.u32 200; LOAD", 0),
        ("@%p1 bra WORK; setmaxnreg.dec.sync.aligned.u32 24; ret; WORK: setmaxnreg.dec.sync.aligned.u32 56; LOAD", 1),
        ("@%p1 bra WORK; setmaxnreg.dec.sync.aligned.u32 24; ret; WORK: LOAD", 0),
        ("setmaxnreg.dec.sync.aligned.u32 40; @%p1 bra WORK; setmaxnreg.inc.sync.aligned.u32 200; WORK: LOAD", 0),
        ("LOOP: LOAD setmaxnreg.dec.sync.aligned.u32 40; @%p1 bra LOOP;", 0),
    ],
)
def test_registers_by_the_way_to_a_load(tmp_path: Path, body: str, found: int) -> None:
    registers = ", ".join(f"%r{i}" for i in range(64))
    text = body.replace("LOAD", f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{registers}}}, [%r70];").replace("; ", ";\n")
    module = PTX.format(target="sm_100a", bounds=".maxntid 384", body=text)
    assert codes(tmp_path, module, "k.ptx").count("T2R_REGISTERS") == found


def test_a_wait_may_stand_in_a_header_that_is_missing(tmp_path: Path) -> None:
    used = kernel(load(16) + "wait_ld(); out[0] = v[0];")
    assert codes(tmp_path, '#include "own/helpers.cuh"\n' + used) == ["UNRESOLVED_INCLUDE"]
    assert codes(tmp_path, '#include "own/helpers.cuh"\n' + kernel(load(16) + WAIT + "out[0] = v[0];")) == []
    assert codes(tmp_path, used) == ["T2R_UNWAITED"]
