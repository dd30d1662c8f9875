# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.closure import left_beside
from porter.build.entry import demangle, entries, kernel_names, kernel_place, named, take_probe
from porter.build.nvcc import CompileRequest, compile_ptx, dependencies
from porter.build.run import messages
from porter.build.toolchain import Toolkit
from porter.build.tree import write_tree
from porter.diagnostics import Code, ExitCode, PorterError

SOURCE = """#include "part.cuh"
template <typename A, typename B> struct Pair {};
namespace ns {
template <int BM, typename T, bool F>
__global__ void __launch_bounds__(128) gemm(const T *a, T *b, int n) {
  __shared__ T s[BM];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  if (F) b[threadIdx.x] = s[n] + T(BM) + T(PART);
}
namespace inner { __global__ void deep(int *p) { *p = 4; } }
}
static __global__ void local(int *p) { *p = 1; }
namespace { template <int N> __global__ void hidden(int *p) { *p = N; } }
extern "C" __global__ void c_kernel(int *p) { *p = 2; }
template <typename A, typename B> __global__ void pairs(Pair<A, B> p, Pair<A, B> *q, B b, Pair<B, A>) {}
template <int N = 8> __global__ void defaulted(float *p) { *p = N; }
__global__ void overloaded(int *p) { *p = 1; }
__global__ void overloaded(float *p) { *p = 1; }
void launch(float *p) {
  ns::gemm<32, float, false><<<1, 32>>>(p, p, 1);
  ns::gemm<16, float, true><<<1, 32>>>(p, p, 1);
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "part.cuh").write_text("#pragma once\n#define PART 1\n")
    return tmp_path / "k.cu"


@pytest.mark.parametrize(
    ("entry", "args", "name"),
    [
        ("ns::gemm", ("64", "float", "true"), "void ns::gemm<64, float, true>(float const*, float*, int)"),
        (
            "ns::gemm",
            ("4 * 8", "float", "false"),
            "void ns::gemm<32, float, false>(float const*, float*, int)",
        ),
        ("gemm", ("64", "float", "true"), "void ns::gemm<64, float, true>(float const*, float*, int)"),
        ("deep", (), "ns::inner::deep(int*)"),
        ("local", (), "local(int*)"),
        ("hidden", ("3",), "void (anonymous namespace)::hidden<3>(int*)"),
        ("c_kernel", (), "c_kernel"),
        ("defaulted", (), "void defaulted<8>(float*)"),
        (
            "pairs",
            ("Pair<int, float>", "char"),
            "void pairs<Pair<int, float>, char>(Pair<Pair<int, float>, char>, "
            "Pair<Pair<int, float>, char>*, char, Pair<char, Pair<int, float> >)",
        ),
    ],
)
def test_kernel_is_found_by_its_cpp_name(
    source: Path, toolkit: Toolkit, cache: Cache, entry: str, args: tuple[str, ...], name: str
) -> None:
    done = compile_ptx(CompileRequest(source, "sm_90a", entry, args), toolkit, cache)
    assert done.display_name == name
    assert done.entry in done.entries
    assert f".entry {done.entry}(" in done.ptx
    assert ".target sm_90a" in done.ptx
    assert "probe" not in done.ptx
    assert ".loc" in done.ptx


def test_without_an_entry_the_file_stands_as_it_is(source: Path, toolkit: Toolkit, cache: Cache) -> None:
    done = compile_ptx(CompileRequest(source, "sm_100a", lineinfo=False), toolkit, cache)
    assert done.entry is None
    names = [demangle(e) for e in done.entries]
    assert "void ns::gemm<16, float, true>(float const*, float*, int)" in names
    assert not any("hidden" in n for n in names)
    assert ".loc" not in done.ptx


@pytest.mark.parametrize(
    ("entry", "args", "code"),
    [
        ("nothing", (), Code.ENTRY_NOT_FOUND),
        ("ns::gemm", ("1", "2"), Code.ENTRY_NOT_FOUND),
        ("overloaded", (), Code.ENTRY_AMBIGUOUS),
        ("ns::gemm", (), Code.ENTRY_AMBIGUOUS),
    ],
)
def test_names_that_do_not_name_one_kernel(
    source: Path, toolkit: Toolkit, cache: Cache, entry: str, args: tuple[str, ...], code: Code
) -> None:
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(source, "sm_90a", entry, args), toolkit, cache)
    assert error.value.diagnostic.code is code
    assert error.value.exit_code is ExitCode.USAGE
    assert entry.rpartition("::")[2] in str(error.value)
    wanted = "gemm" if "gemm" in entry or entry == "nothing" else "overloaded(float*)"
    assert wanted in error.value.diagnostic.detail


def test_compiler_errors_have_a_place(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    path = tmp_path / "bad.cu"
    path.write_text("__global__ void k(int *p) {\n  *p = missing;\n}\n")
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(path, "sm_90a", "k"), toolkit, cache)
    found = error.value.diagnostic
    assert found.code is Code.NVCC_ERROR
    assert error.value.exit_code is ExitCode.BUILD_FAILED
    assert found.where is not None
    assert (found.where.path, found.where.line) == (str(path), 2)
    assert "missing" in found.message
    assert "missing" in found.detail


def test_missing_header_and_file(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    path = tmp_path / "k.cu"
    path.write_text('#include "gone.cuh"\n__global__ void k() {}\n')
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(path, "sm_90a", "k"), toolkit, cache)
    assert error.value.diagnostic.code is Code.NVCC_ERROR
    assert "gone.cuh" in str(error.value)
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(tmp_path / "none.cu", "sm_90a"), toolkit, cache)
    assert error.value.diagnostic.code is Code.FILE_NOT_FOUND


def test_defines_include_dirs_and_flags_reach_the_compiler(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "v.cuh").write_text("#define V 7\n")
    path = tmp_path / "k.cu"
    path.write_text("#include <v.cuh>\n__global__ void k(int *p) { *p = V * 100 + W * 10 + X; }\n")
    request = CompileRequest(path, "sm_90a", "k", (), (tmp_path / "inc",), ("W=3",), ("-DX=5",))
    assert "735" in compile_ptx(request, toolkit, cache).ptx


def test_resources_and_ptxas_errors(source: Path, tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    request = CompileRequest(source, "sm_90a", "ns::gemm", ("64", "float", "true"), assemble=True)
    resources = compile_ptx(request, toolkit, cache).resources
    assert resources is not None
    assert resources.static_smem == 256
    assert resources.registers > 0
    path = tmp_path / "w.cu"
    path.write_text('// first\n__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n')
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(path, "sm_100a", "k", assemble=True), toolkit, cache)
    assert error.value.diagnostic.code is Code.PTXAS_ERROR
    assert error.value.exit_code is ExitCode.BUILD_FAILED
    assert "wgmma.fence" in str(error.value)
    where = error.value.diagnostic.where
    assert where is not None
    assert (where.path, where.line) == (str(path), 2)


def test_second_compilation_comes_from_the_cache(
    source: Path, toolkit: Toolkit, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    from porter.build import nvcc

    request = CompileRequest(source, "sm_90a", "ns::gemm", ("64", "float", "true"))
    first = compile_ptx(request, toolkit, cache)
    runs: list[float] = []
    real = nvcc.run

    def counted(*args: object, **kwargs: object) -> object:
        runs.append(time.monotonic())
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(nvcc, "run", counted)
    assert compile_ptx(request, toolkit, cache) == first
    assert runs == []
    # A header that the file includes counts as much as the file.
    (source.parent / "part.cuh").write_text("#pragma once\n#define PART 2\n")
    assert compile_ptx(request, toolkit, cache).ptx != first.ptx
    assert len(runs) == 1
    (source.parent / "part.cuh").write_text("#pragma once\n#define PART 1\n")
    assert compile_ptx(request, toolkit, cache).ptx == first.ptx
    assert len(runs) == 1
    compile_ptx(CompileRequest(source, "sm_100a", "ns::gemm", ("64", "float", "true")), toolkit, cache)
    assert len(runs) == 2


def test_message_forms() -> None:
    log = """/a b/k.cu(12): error: identifier "x" is undefined
k.cu(3): warning #177-D: variable "y" was declared but never referenced
k.cu:1:10: fatal error: nope.h: No such file or directory
ptxas k.ptx, line 35; error   : Instruction 'wgmma.fence' not supported on .target 'sm_100a'
At end of source: error: expected a "}"
nvcc fatal   : Unsupported gpu architecture 'compute_12'
2 errors detected in the compilation of "k.cu".
/usr/bin/ld: cannot find -lcudart: No such file or directory
"""
    found = messages(log)
    assert [(m.kind, m.where.path if m.where else "", m.where.line if m.where else 0) for m in found] == [
        ("error", "/a b/k.cu", 12),
        ("warning", "k.cu", 3),
        ("error", "k.cu", 1),
        ("error", "k.ptx", 35),
        ("error", "", 0),
        ("error", "", 0),
        ("error", "", 0),
    ]
    assert found[5].text == "Unsupported gpu architecture 'compute_12'"


def test_unknown_architecture(source: Path, toolkit: Toolkit, cache: Cache) -> None:
    with pytest.raises(PorterError) as error:
        compile_ptx(CompileRequest(source, "sm_12", "local"), toolkit, cache)
    assert error.value.diagnostic.code is Code.NVCC_ERROR


def test_dependencies() -> None:
    rule = "unit.o : unit.cu \\\n    /usr/include/a.h \\\n    /a\\ b/c.h\n"
    assert [str(p) for p in dependencies(rule)] == ["unit.cu", "/usr/include/a.h", "/a b/c.h"]


def test_names() -> None:
    assert demangle("_Z4statPi") == "stat(int*)"
    assert demangle("plain") == "plain"
    ptx = ".visible .entry _ZN2ns1kEPi(\n)\n.entry k2(\n.func f(\n.weak .entry _Z1kILi3EEvv()\n"
    assert entries(ptx) == ("_ZN2ns1kEPi", "k2", "_Z1kILi3EEvv")
    assert named(entries(ptx), "k") == ["_ZN2ns1kEPi", "_Z1kILi3EEvv"]
    assert take_probe("a\n.global .u32 b;\n") == ("a\n.global .u32 b;\n", None)
    text = (
        "__global__ void __launch_bounds__(N * (2), 1) a(int x);\n"
        "template<int I> static __global__ __cluster_dims__(2,1,1) void b()"
    )
    assert kernel_names(text) == ["a", "b"]


HEADS = {
    "__global__ void __launch_bounds__(64 * (A + (B))) k(int a) {}": ["k"],
    "template <int N> __global__ __launch_bounds__(N) void __cluster_dims__(C(1), 1, 1) k(int) {}": ["k"],
    "__global__ void BOUNDS(128) k(const float* p, int (*f)(int)) noexcept(true) {}": ["k"],
    "__global__ static inline void k /* (x) */ (\n  int a);": ["k"],
    "__global__ void\n  // comment (x)\n  __launch_bounds__(128, (2))\nk() {}": ["k"],
    "template <> __global__ void k<(3 > 2), A<int>>(float*) {}": ["k"],
    "__global__ [[maybe_unused]] void k(int a [[maybe_unused]]) {}": ["k"],
    "template <int N> __global__ std::enable_if_t<(N > 0), void> k(int) {}": ["k"],
    "__global__ auto k(int a) -> void {}": ["k"],
    "__attribute__((x)) __global__ __attribute__((used)) void k(int) requires (N > 1) {}": ["k"],
    'extern "C" __global__ void __maxnreg__(128) k(__grid_constant__ const CUtensorMap a) {}': ["k"],
    "#define KERNEL __global__ void\nint f(int);\nKERNEL k() {}": [],
    "#define MAKE(n) \\\n  __global__ void n(int a) {}\n": [],
    "__global__ void NAME(k)(int a) {}": [],
    "__global__ void __launch_bounds__(128)": [],
}  # fmt: skip


def test_a_kernel_is_found_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("int x;\n__global__ void\n  __launch_bounds__(128) k(int a) {}\n")
    assert [kernel_place(str(path), name).line for name in ("k", "_ZN2ns1kILi3EEEvi", "other")] == [3, 3, 0]
    assert kernel_place(str(tmp_path / "none.cu"), "k").line == 0


@pytest.mark.parametrize(("text", "names"), HEADS.items())
def test_a_kernels_name_is_in_front_of_its_parameters(text: str, names: list[str]) -> None:
    assert kernel_names(text) == names


@pytest.mark.parametrize("name", ["assert.h", "math.h", "stdint.h", "string.h", "time.h", "stddef.h"])
def test_headers_beside_the_original_do_not_stand_in_for_the_systems(
    name: str, tmp_path: Path, toolkit: Toolkit, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    common = tmp_path / "p" / "common"
    common.mkdir(parents=True)
    (common / "unread.h").write_text("#define UNREAD 1\n")
    (common / name).write_text("#error not the header of the system\n")
    texts = {
        "k.cu": f'#include <{name}>\n#include <cuda_fp16.h>\n#include "common/read.h"\n'
        "__global__ void k(int* out) { *out = UNREAD; }\n",
        "common/read.h": '#include "unread.h"\n',
    }
    for place, text in texts.items():
        (tmp_path / "p" / place).write_text(text)
    tree = write_tree({str(tmp_path / "p" / place): text.encode() for place, text in texts.items()}, [tmp_path / "p"])
    request = CompileRequest(
        tree.place(tmp_path / "p" / "k.cu"), "sm_100a",
        include_dirs=tree.include_dirs([tmp_path / "p"]),
        quote_dirs=left_beside(tmp_path / "p" / "k.cu", [tmp_path / "p"], tree.has),
    )  # fmt: skip
    assert compile_ptx(request, toolkit, cache).entries == ("_Z1kPi",)


@pytest.mark.parametrize(
    "name",
    [
        """a 'b', "c" é""",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("a b", "it's", 'd"d', "c,d", "-dash", "ünï", "p(1)", "s;t", "b\\n", "x&y", "h#h", "x%y", "l=m")
        ),
    ],
)
def test_directories_may_have_any_name(
    name: str, tmp_path: Path, toolkit: Toolkit, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, headers, quoted = (tmp_path / name / part for part in ("src", "in, c", "q'"))
    for directory in (folder, headers, quoted):
        directory.mkdir(parents=True)
    (folder / "k.cu").write_text(
        '#include "a b.h"\n#include <g.h>\n#include "q.h"\n__global__ void k(int* p) { *p = A + G + Q; }\n'
    )
    (folder / "a b.h").write_text("#define A 1\n")
    (headers / "g.h").write_text("#define G 1\n")
    (quoted / "q.h").write_text("#define Q 1\n")
    monkeypatch.chdir(tmp_path)
    request = CompileRequest(Path(name) / "src" / "k.cu", "sm_90a", "k", include_dirs=(headers,), quote_dirs=(quoted,))
    found = compile_ptx(request, toolkit, cache)
    assert found.display_name == "k(int*)"
    assert "porter_link" not in found.ptx + found.log
    (headers / "g.h").write_text("#error changed\n")
    with pytest.raises(PorterError) as caught:
        compile_ptx(request, toolkit, cache)
    assert caught.value.diagnostic.where is not None
    assert caught.value.diagnostic.where.path.endswith("in, c/g.h")
