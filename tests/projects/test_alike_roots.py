# SPDX-License-Identifier: Apache-2.0
"""Files that differ in what they instantiate alone: one is ported, and all come out as if each had been."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.lang.sources import SourceSet, load_sources
from porter.passes import ported
from porter.passes.alike import Kinds
from porter.passes.port import PortOptions, PortResult
from porter.passes.ported import Beside, Ported, PortedFile, port_each, port_paths

HEADER = r"""#pragma once
#include <cstdint>
#include <cuda_runtime.h>
struct Tiny {};
template <int Stages, typename T>
__global__ void kernel(float* out, uint64_t a, uint64_t b) {
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = 0.f;
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
template <int Stages, typename T, bool Causal>
void run(float* out, cudaStream_t stream) {
    kernel<Stages, T><<<1, 128, 0, stream>>>(out, 0, 0);
}
template <int Stages, typename T, bool Causal>
void run_all(float* out, cudaStream_t stream);
"""
EXPLICIT = (
    '#include "kernel.cuh"\n\n#ifndef DISABLE_%s\ntemplate void run<%s, %s, %s>(float* out, cudaStream_t s);\n#endif\n'
)
BODY = (
    '#include "kernel.cuh"\n\ntemplate<>\nvoid run_all<%s, %s, %s>(float* out, cudaStream_t s) {\n'
    "    run<%s, %s, %s>(out, s);\n}\n"
)
ARGUMENTS = [
    (2, "lib::half_t", "false"),
    (4, "lib::bfloat16_t", "true"),
    (3, "tf32", "true"),
    (32, "lib::x::wide", "false"),
]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roots for which the engine is called, in order."""
    found: list[str] = []
    port = ported.port_cuda_file

    def counted(sources: SourceSet, options: PortOptions) -> PortResult:
        found.append(Path(sources.root).name)
        return port(sources, options)

    monkeypatch.setattr(ported, "port_cuda_file", counted)
    return found


def look(path: Path) -> Beside:
    return Beside()


def tree(folder: Path, files: dict[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cuh").write_text(HEADER)
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def explicit(folder: Path, count: int = len(ARGUMENTS)) -> list[Path]:
    return tree(folder, {f"run_{i}.cu": EXPLICIT % (f"N{i}", *ARGUMENTS[i]) for i in range(count)})


def told(one: PortedFile) -> object:
    assert isinstance(one.result, PortResult)
    r = one.result
    return r.files, r.groups, r.plain, r.diagnostics, r.plans, r.needs, r.left, r.left_over, r.common.words


FAMILIES = {
    "explicit instantiations": lambda folder: explicit(folder),
    "specializations that call": lambda folder: tree(
        folder, {f"s{i}.cu": BODY % (*a, *a) for i, a in enumerate(ARGUMENTS)}
    ),
    "files that include those": lambda folder: [
        *explicit(folder),
        *tree(folder, {f"all_{i}.cu": f'#include "run_{i}.cu"\n#include "run_{i + 1}.cu"\n' for i in (0, 2)}),
    ],
    "several in a file": lambda folder: tree(
        folder, {f"m{i}.cu": EXPLICIT % (i, *a) + f"template void run<{i}7, X{i}, true>(float*, cudaStream_t);\n"
                 for i, a in enumerate(ARGUMENTS)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("keep_hopper", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_ported_together_is_what_each_comes_to(
    tmp_path: Path, made: list[str], name: str, keep_hopper: bool
) -> None:
    files, options = FAMILIES[name](tmp_path), PortOptions(keep_hopper=keep_hopper)
    together = port_each(files, options, (), look)
    count = len(made)
    apart = port_each(files, options, (), look, together=False)
    assert count < len(made) - count
    assert [told(one) for one in together] == [told(one) for one in apart]
    assert all(b"tcgen05" in one.result.files[str(tmp_path / "kernel.cuh")] for one in together if one.result)


FIRST = EXPLICIT % ("A", 2, "lib::half_t", "false")
APART = {
    "a compute capability": EXPLICIT % ("B", 80, "lib::half_t", "false"),
    "one that a rule knows": EXPLICIT % ("B", 90, "lib::half_t", "false"),
    "a type of the header's": EXPLICIT % ("B", 2, "Tiny", "false"),
    "another template": FIRST.replace("void run<", "void run_all<"),
    "another number of arguments": FIRST.replace(", false>", ">"),
    "a comment": "// porter: keep\n" + FIRST,
    "another header": FIRST.replace('"kernel.cuh"', '"kernel.cuh"\n#include "other.cuh"'),
    "another condition": FIRST.replace("#ifndef", "#ifdef"),
    "a macro that the header knows": FIRST.replace("DISABLE_A", "cudaStream_t"),
    "more of them": FIRST + "template void run<3, lib::half_t, true>(float*, cudaStream_t);\n",
}
ALONE = {
    "a kernel that is instantiated": FIRST + "template __global__ void kernel<3, float>(float*, uint64_t, uint64_t);\n",
    "a launch": BODY.replace("run<%s, %s, %s>(out, s)", "kernel<%s, %s><<<%s, 128>>>(out, 0, 0)") % (*"234", *"567"),
    "a function of its own": FIRST + "void other() {}\n",
    "a variable": FIRST + "int count = 3;\n",
    "a macro": "#define N 3\n" + FIRST,
    "a condition that is computed": FIRST.replace("#ifndef DISABLE_A", "#if N > 3"),
    "an argument that is computed": EXPLICIT % ("A", "1 + 1", "float", "false"),
    "a type that it makes": FIRST + "template <> struct X<3> {};\n",
    "a branch": BODY.replace("    run<", "    if (s) run<") % (2, "float", "true", 2, "float", "true"),
    "a string": FIRST + 'static_assert(true, "run<2>");\n',
}


def kind(kinds: Kinds, folder: Path, text: str) -> object:
    folder.mkdir(exist_ok=True)
    (folder / "other.cuh").write_text("#pragma once\n")
    return kinds.of(load_sources(tree(folder, {"one.cu": text})[0]))


@pytest.mark.parametrize("name", APART)
def test_what_means_something_tells_them_apart(tmp_path: Path, name: str) -> None:
    kinds = Kinds()
    first, other = kind(kinds, tmp_path, FIRST), kind(kinds, tmp_path, APART[name])
    assert first is not None
    assert first == kind(kinds, tmp_path, EXPLICIT % ("C", 7, "lib::bfloat16_t", "true"))
    assert first != other


@pytest.mark.parametrize("name", ALONE)
def test_a_file_that_does_more_is_like_no_other(tmp_path: Path, name: str) -> None:
    assert kind(Kinds(), tmp_path, ALONE[name]) is None


def test_files_of_two_directories_are_not_alike(tmp_path: Path) -> None:
    kinds = Kinds()
    assert kind(kinds, tmp_path / "a", FIRST) != kind(kinds, tmp_path / "b", FIRST)


@dataclass
class Memory:
    """A store that counts."""

    held: dict[str, bytes] = field(default_factory=dict)

    def get(self, key: str) -> bytes | None:
        return self.held.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.held[key] = value


def in_tree(folder: Path, store: Memory | Cache) -> Ported:
    return port_paths([folder], PortOptions(store=store), (), look)


def test_a_second_run_redoes_what_changed(tmp_path: Path, made: list[str]) -> None:
    files = explicit(tmp_path)
    tree(tmp_path, {"own.cu": '#include "kernel.cuh"\nvoid other() { run<2, float, true>(nullptr, 0); }\n'})
    store = Memory()
    first = in_tree(tmp_path, store)
    assert set(made) == {"own.cu", "run_0.cu"}
    made.clear()
    second = in_tree(tmp_path, store)
    assert made == []
    assert (second.new, second.groups, second.diagnostics) == (first.new, first.groups, first.diagnostics)
    files[1].write_text(files[1].read_text() + "// more\n")
    in_tree(tmp_path, store)
    assert set(made) == {"run_1.cu"}
    made.clear()
    header = tmp_path / "kernel.cuh"
    header.write_text(header.read_text().replace("threadIdx.x * 4", "threadIdx.x * 8"))
    third = in_tree(tmp_path, store)
    assert {"own.cu", "run_0.cu", "run_1.cu"} <= set(made)
    assert b"threadIdx.x * 8" in third.new[str(header)]


@pytest.mark.parametrize(
    "changed",
    [PortOptions(keep_hopper=True), PortOptions(ignore=("PTR101",)), PortOptions(both_forms=frozenset({"x"}))],
)
def test_other_options_are_another_port(tmp_path: Path, made: list[str], changed: PortOptions) -> None:
    files, store = explicit(tmp_path, 2), Memory()
    for options in (PortOptions(), changed):
        made.clear()
        port_each(files, PortOptions(**(options.__dict__ | {"store": store})), (), look)
        assert made


def test_what_other_files_take_part_in_is_not_kept(tmp_path: Path, made: list[str]) -> None:
    """Whether another unit calls a device function is asked of files that are no part of the port."""
    top = HEADER.replace("#pragma once", "").split("template")[0]
    steps = HEADER.split("d[i] = 0.f;\n")[1].split("    for")[0]
    device = (
        f"{top}__device__ void step(float (&d)[4], uint64_t a, uint64_t b) {{\n{steps}}}\n"
        "__global__ void k(float* out) { float d[4] = {}; step(d, 0, 0); out[threadIdx.x] = d[0]; }\n"
    )
    tree(tmp_path, {"one.cu": device, "two.cu": "void other() {}\n"})
    store = Memory()
    in_tree(tmp_path, store)
    made.clear()
    in_tree(tmp_path, store)
    assert made == ["one.cu"]


def test_a_helper_that_lies_there_is_seen(tmp_path: Path, made: list[str]) -> None:
    explicit(tmp_path, 2)
    store = Memory()
    names = {Path(p).name for p in in_tree(tmp_path, store).new}
    helper = next(n for n in names if "tcgen05" in n)
    made.clear()
    (tmp_path / helper).write_text("// somebody's own\n")
    again = {Path(p).name: text for p, text in in_tree(tmp_path, store).new.items()}
    assert made
    assert again.get(helper, b"// somebody's own\n") == b"// somebody's own\n"
