# SPDX-License-Identifier: Apache-2.0
"""Trees as `scan` and `port` see them: the same headers, the same refusals, and nothing left in what was ported."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_kernels import CUDA, sampled

from porter.build.files import write_all
from porter.cli.porting import look, port_paths
from porter.diagnostics import ExitCode
from porter.passes import ported as engine
from porter.passes.port import PortOptions
from porter.scan.inventory import Inventory, take_inventory

HEAD = "#pragma once\n#include <cstdint>\n"
SYNC = """
__device__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void warpgroup_commit_batch() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
"""
MMA = """
__device__ void mma(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
"""
OPS = HEAD + SYNC + MMA
KERNEL = """
__global__ void __launch_bounds__(128) NAME(float* out, uint64_t a, uint64_t b) {
    float acc[4] = {0};
    warpgroup_arrive();
    mma(acc, a, b);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = acc[i];
}
"""
BAD = KERNEL.replace("    warpgroup_wait<0>();\n", "")
CMAKE = "include_directories(include)\n"


def root_of(kernel: str, name: str = "k", header: str = '"ops.cuh"') -> str:
    return f"#include {header}\n" + kernel.replace("NAME", name)


TREES: dict[str, dict[str, str]] = {
    "a header beside it": {"ops.cuh": OPS, "k.cu": root_of(KERNEL)},
    "a header of CMake's": {
        "CMakeLists.txt": CMAKE,
        "include/ops.cuh": OPS,
        "src/k.cu": root_of(KERNEL, "k", "<ops.cuh>"),
    },
    "a directory of headers named like one of the system's": {
        "CMakeLists.txt": CMAKE,
        "include/ext/ops.cuh": OPS,
        "src/k.cu": root_of(KERNEL, "k", '"ext/ops.cuh"'),
    },
    "headers named like a library's, in brackets": {
        "CMakeLists.txt": CMAKE,
        "include/torch/all.cuh": HEAD + '#include "./ops.cuh"\n',
        "include/torch/ops.cuh": OPS,
        "src/k.cu": root_of(KERNEL, "k", "<torch/all.cuh>"),
    },
    "a header named like one of the language's": {"memory.h": OPS, "k.cu": root_of(KERNEL, "k", '"memory.h"')},
    "a header of another ending": {"ops.impl": OPS, "k.cu": root_of(KERNEL, "k", '"ops.impl"')},
    "a header behind a header": {
        "CMakeLists.txt": CMAKE,
        "include/a/ops.tpp": OPS,
        "include/a/all.inl": '#pragma once\n#include "ops.tpp"\n',
        "src/k.cu": root_of(KERNEL, "k", "<a/all.inl>"),
    },
    "a root of includes": {"ops.cuh": OPS, "k.cuh": root_of(KERNEL), "all.cu": '#include "k.cuh"\n'},
    "two kernels and a utility": {
        "ops.cuh": OPS,
        "k.cu": root_of(KERNEL),
        "l.cu": root_of(KERNEL, "l"),
        "util.cu": '#include "ops.cuh"\n__global__ void zero(float* p) { *p = 0; }\n',
    },
    "a kernel that is refused": {"ops.cuh": OPS, "k.cu": root_of(BAD)},
    "a kernel that is refused beside another": {"ops.cuh": OPS, "k.cu": root_of(BAD), "l.cu": root_of(KERNEL, "l")},
    "a guard in a header of another ending": {
        "ops.tpp": OPS.replace("#pragma once", "#pragma once\n#if defined(__CUDA_ARCH_FEAT_SM90_ALL)") + "#endif\n",
        "k.cu": root_of(KERNEL, "k", '"ops.tpp"'),
    },
    "one header in two texts": {
        "ops.cuh": OPS + KERNEL.replace("NAME", "k").replace("__launch_bounds__(128) ", ""),
        "one.cu": '#include "ops.cuh"\nvoid f(float* p) { k<<<1, 128>>>(p, 0, 0); }\n',
        "two.cu": '#include "ops.cuh"\nvoid g(float* p) { k<<<1, 256>>>(p, 0, 0); }\n',
    },
    "a header in a directory of its own": {
        "examples/ops.cuh": OPS,
        "examples/k.cuh": root_of(KERNEL),
        "main.cu": '#include "examples/k.cuh"\nvoid f(float* p) { k<<<1, 128>>>(p, 0, 0); }\n',
    },
    "two kernels in headers of one file": {
        "ops.cuh": OPS,
        "k.cuh": root_of(KERNEL),
        "l.cuh": root_of(KERNEL, "l"),
        "main.cu": '#include "k.cuh"\n#include "l.cuh"\n',
    },
    "a header that no file includes": {"ops.cuh": OPS, "k.cuh": root_of(KERNEL), "main.cu": "int main() {}\n"},
    "headers that no file includes, one from the other": {
        "ops.cuh": OPS,
        "k.cuh": root_of(KERNEL),
        "l.cuh": '#include "k.cuh"\n' + root_of(KERNEL, "l"),
        "main.cu": "int main() {}\n",
    },
    "a header that no file includes beside one that is included": {
        "ops.cuh": OPS,
        "k.cuh": root_of(KERNEL),
        "l.cuh": root_of(KERNEL, "l"),
        "main.cu": '#include "k.cuh"\n',
    },
    "headers that include each other": {
        "ops.cuh": OPS,
        "k.cuh": '#pragma once\n#include "l.cuh"\n' + root_of(KERNEL),
        "l.cuh": '#pragma once\n#include "k.cuh"\n' + root_of(KERNEL, "l"),
        "main.cu": "int main() {}\n",
    },
    "a header that no file includes is refused": {"ops.cuh": OPS, "k.cuh": root_of(BAD), "main.cu": "int main() {}\n"},
    "a header for two files": {
        "ops.cuh": OPS,
        "k.cuh": root_of(KERNEL),
        "one.cu": '#include "k.cuh"\nvoid f(float* p) { k<<<1, 128>>>(p, 0, 0); }\n',
        "two.cu": '#include "k.cuh"\nvoid g(float* p) { k<<<1, 128>>>(p, 0, 0); }\n',
    },
    "wrappers that no file includes": {"ops.cuh": OPS, "main.cu": "int main() {}\n"},
    "a kernel for any chip that no file includes": {
        "k.cu": root_of(KERNEL), "ops.cuh": OPS, "zero.cuh": "__global__ void zero(float* p) { *p = 0; }\n",
    },
    "a collective of CUTLASS": {"k.cu": "using Arch = cutlass::arch::Sm90;\n__global__ void k() {}\n"},
    "nothing of Hopper": {"k.cu": "__global__ void k(float* p) { *p = 0; }\n"},
}  # fmt: skip


def lay_out(root: Path, files: dict[str, str]) -> Path:
    (root / ".git").mkdir(parents=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def hopper(found: Inventory) -> dict[str, list[str]]:
    return {f.path: [c.name for c in f.constructs if c.status == "hopper"] for f in found.files if f.hopper_only}


@pytest.mark.parametrize("name", TREES)
def test_scan_and_port_agree(tmp_path: Path, name: str) -> None:
    root = lay_out(tmp_path, TREES[name])
    found = {f.path: f for f in take_inventory([root]).files}
    every = engine.port_each(engine.roots([root]), PortOptions(), (), look)
    assert every
    for one in every:
        assert one.result is not None
        assert one.sources is not None
        effort = found[one.root.as_posix()].effort
        refused = ExitCode(one.result.exit_code) is not ExitCode.OK
        assert (effort.level == "high") == refused, (one.root.name, effort, one.result.diagnostics)
        if refused:
            codes = {d.code.id for d in one.result.diagnostics}
            assert effort.why[0].split()[0] in codes
        # each file that the port reads is in the inventory
        assert set(one.sources.sources()) <= set(found)
        for path in one.sources.sources():
            if one.result.files[path] != one.sources.sources()[path]:
                assert found[path].effort.level != "none"


def test_headers_that_no_file_includes_are_ported_by_themselves(tmp_path: Path) -> None:
    names = {name: {p.name for p in engine.roots([lay_out(tmp_path / name, TREES[name])])} for name in TREES}
    assert names["a root of includes"] == {"all.cu"}
    assert names["a header in a directory of its own"] == names["two kernels in headers of one file"] == {"main.cu"}
    assert names["a header that no file includes"] == {"main.cu", "k.cuh"}
    assert names["headers that no file includes, one from the other"] == {"main.cu", "l.cuh"}
    assert names["a header that no file includes beside one that is included"] == {"main.cu", "l.cuh"}
    assert names["headers that include each other"] == {"main.cu", "k.cuh"}


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", [n for n in TREES if not any(w in n for w in ("refused", "two texts", "CUTLASS"))])
def test_a_port_of_a_tree_scans_as_ported(tmp_path: Path, name: str) -> None:
    root = lay_out(tmp_path, TREES[name])
    ported = port_paths([root])
    assert ported.exit_code is ExitCode.OK
    write_all({Path(path): text for path, text in ported.new.items()})
    after = take_inventory([root])
    assert hopper(after) == {}
    assert set(after.efforts) <= {"none"}
    assert not any(b"FEAT_SM90" in text for text in ported.new.values())


@pytest.mark.spread(7)
@pytest.mark.parametrize("case", sampled(CUDA))
def test_ports_of_the_corpus_scan_as_ported(tmp_path: Path, case: Path) -> None:
    source = next(case.parent.glob("*.cu"))
    ported = port_paths([source])
    placed = {tmp_path / Path(path).relative_to(source.parent): text for path, text in ported.new.items()
              if Path(path).suffix in (".cu", ".cuh")}  # fmt: skip
    write_all(placed)
    after = take_inventory([tmp_path])
    assert hopper(after) == {}
    assert set(after.efforts) <= {"none"}


@pytest.mark.slow
def test_processes_and_their_number_change_nothing(tmp_path: Path) -> None:
    files = {
        f"{at}/{name}": text
        for at, tree in enumerate(TREES.values())
        for name, text in tree.items()
        if name != "CMakeLists.txt"
    }
    root = lay_out(tmp_path, files | {"CMakeLists.txt": "include_directories(1/include 3/include)\n"})
    counted: list[tuple[str, int, int]] = []
    one = take_inventory([root], tell=lambda *values: counted.append(values))
    assert take_inventory([root], jobs=3) == one
    assert [c for c in counted if c[0] == "reading"][-1][1:] == (len(one.files), len(one.files))
    assert [c[1] for c in counted if c[0] == "porting"] == list(range(1, counted[-1][2] + 1))
    told: list[tuple[int, int]] = []
    serial = engine.port_paths([root], PortOptions(), (), look, 1, lambda *values: told.append(values))
    several = engine.port_paths([root], PortOptions(), (), look, 3)
    assert [told[0][0], *told[-1]] == [1, len(serial.roots), len(serial.roots)]
    assert list(serial.new) == list(several.new)
    assert serial.new == several.new
    assert serial.groups == several.groups
    assert serial.diagnostics == several.diagnostics
