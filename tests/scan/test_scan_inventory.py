# SPDX-License-Identifier: Apache-2.0
"""The inventory behind `porter scan`: constructs, what they become, coverage, effort."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.report.json import schema
from porter.scan.constructs import _MARKS, cuda_inventory, library_rules
from porter.scan.inventory import take_inventory

CORPUS = Path(__file__).resolve().parents[2] / "corpus"

KERNEL = r"""
#include "ops.cuh"
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(128) gemm(float *c, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  fence();
  mma(d, a, b);
  commit();
  wait();
  for (int i = 0; i < 4; i++) c[i * 128 + threadIdx.x] = d[i];
}
#endif
"""
OPS = r"""
#pragma once
__device__ inline void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ inline void give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
__device__ inline void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "gemm.cu").write_text(KERNEL)
    (tmp_path / "src" / "ops.cuh").write_text(OPS)
    (tmp_path / "src" / "util.h").write_text("inline int f() { return 1; }\n")
    (tmp_path / "src" / "cute.cu").write_text("__global__ void k() { cute::warpgroup_arrive(); }\n")
    (tmp_path / "Makefile").write_text("FLAGS = -gencode arch=compute_90a,code=sm_90a\n")
    return tmp_path


def by_name(tree: Path, **options):
    found = take_inventory([tree], **options)
    return found, {Path(f.path).name: f for f in found.files}


def test_constructs_and_what_they_become(tree: Path) -> None:
    found, files = by_name(tree)
    ops = {c.name: c for c in files["ops.cuh"].constructs}
    assert ops["wgmma.mma_async"].forms == (("m64n8k16.f32.f16.f16", 1),)
    assert "tcgen05.mma" in ops["wgmma.mma_async"].becomes
    assert "tcgen05.commit" in ops["wgmma.commit_group"].becomes
    assert {n for n, c in ops.items() if c.status == "hopper"} == {
        "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"}  # fmt: skip
    kept = ops["setmaxnreg.dec.sync"] if "setmaxnreg.dec.sync" in ops else ops["setmaxnreg.dec"]
    assert (kept.status, kept.since_hopper, kept.becomes) == ("both", True, "unchanged")
    assert [(c.kind, c.status) for c in files["cute.cu"].constructs] == [("library", "hopper")]
    assert {c.kind for c in files["Makefile"].constructs} == {"build"}
    totals = {t.name: t for t in found.totals}
    assert (totals["wgmma.fence"].count, totals["wgmma.fence"].files) == (1, 1)


def test_effort_is_what_the_engine_makes_of_a_file(tree: Path) -> None:
    _, files = by_name(tree)
    levels = {name: f.effort.level for name, f in files.items()}
    assert levels["util.h"] == "none"
    assert levels["cute.cu"] == "high"
    assert files["cute.cu"].effort.why[0].startswith("PT2003")
    # The guard is a `review` edit; the header is judged with the kernel that includes it.
    assert levels["gemm.cu"] == levels["ops.cuh"] == "medium", files["gemm.cu"].effort
    assert files["ops.cuh"].effort.why[0].endswith("gemm.cu")
    (tree / "src" / "gemm.cu").write_text(KERNEL.replace("#if __CUDA_ARCH__ >= 900", "").replace("#endif", ""))
    (tree / "Makefile").unlink()
    assert by_name(tree)[1]["gemm.cu"].effort.level == "low"


def test_without_effort_the_engine_is_not_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the engine ran")

    monkeypatch.setattr("porter.passes.embedded.port_sources", never)
    _, files = by_name(tree, effort=False)
    assert {f.effort.level for f in files.values()} == {"unknown"}


def test_several_processes_find_the_same(tree: Path) -> None:
    assert take_inventory([tree], jobs=2) == take_inventory([tree], jobs=1)


def test_an_engine_that_fails_ends_one_file_only(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("porter.passes.embedded.port_sources", fails)
    _, files = by_name(tree)
    assert files["gemm.cu"].effort.level == "high"
    assert "boom" in files["gemm.cu"].effort.why[0]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('__global__ void k(){ asm volatile("wgmma.fence.sync.aligned;"\n', {"PT1002", "PT1003"}),
        ("template <class { __global__ void k( {{{\n", {"PT1002"}),
    ],
)
def test_what_does_not_parse_is_said(tmp_path: Path, text: str, ids: set[str]) -> None:
    (tmp_path / "k.cu").write_text(text)
    found = take_inventory([tmp_path])
    assert {d.code.id for d in found.diagnostics} == ids
    assert found.coverage < 0.9
    if "wgmma" in text:
        assert found.hopper_only == 1, "wgmma that was not read counts"
        assert found.files[0].effort.level == "high"


def test_an_instruction_with_wrong_operands_does_not_end_the_scan(tmp_path: Path) -> None:
    (tmp_path / "sp.cu").write_text(
        '__global__ void k(){ asm volatile("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 {%0}, %1;" '
        ': "+f"(x) : "l"(y)); }'
    )
    (file,) = take_inventory([tmp_path]).files
    assert [(c.name, c.status) for c in file.constructs] == [("wgmma.mma_async.sp", "hopper")]


def test_wgmma_in_comments_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("// wgmma.mma_async is not used\n/* wgmma.fence */\n__global__ void k() {}\n")
    (file,) = take_inventory([tmp_path]).files
    assert file.constructs == ()
    assert file.kernels == ("k",)


def test_every_library_rule_is_looked_for() -> None:
    """Files are searched for library names only if they hold one of the marks."""
    for rule in library_rules():
        for example in rule.examples:
            assert any(mark in example.before.encode() for mark in _MARKS), rule.id


def test_text_json_and_csv_agree(tree: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, str(tree)])
        assert result.exit_code == 0, result.output
        return result.stdout

    document = json.loads(run("--format", "json", "scan"))
    jsonschema.validate(document, schema("scan"))
    rows = list(csv.DictReader(io.StringIO(run("scan", "--csv"))))
    assert {r["path"] for r in rows} == {f["path"] for f in document["files"]}
    constructs = [c for f in document["files"] for c in f["constructs"]]
    assert sum(int(r["count"] or 0) for r in rows) == sum(c["count"] for c in constructs)
    text = run("scan")
    assert f"{document['hopper_only']} Hopper-only constructs" in text
    assert "medium" in text
    assert "tcgen05.commit" in text


def test_the_corpus_ports_with_little_effort() -> None:
    found = take_inventory([CORPUS / "gemm_coop", CORPUS / "gemm_macro"])
    kernels = [f for f in found.files if f.kernels]
    assert len(kernels) == 2
    assert {f.effort.level for f in kernels} <= {"low", "medium"}
    assert found.coverage > 0.999


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("__device__ void f() { warpgroup_arrive(); }\n", 1),
        ("__device__ void f() { cute::warpgroup_arrive(); cutlass::arch::warpgroup_arrive(); }\n", 2),
        ("namespace cute { __device__ void warpgroup_arrive() { g(); } }\n", 1),
        ("namespace sm90 { __device__ void warpgroup_arrive() { g(); } }\n", 0),
        ("__device__ void f() { sm90::warpgroup_arrive(); }\n", 0),
    ],
)
def test_a_function_of_the_sources_own_is_none_of_a_library(text: str, count: int) -> None:
    found, _ = cuda_inventory("k.cu", text.encode())
    assert sum(c.count for c in found.constructs if c.kind == "library") == count


_KERNELS_BY_MACROS = {
    "defined": b"#define RUN __global__\nint a;\nRUN void k() {}\n",
    "defined over two lines": b"#define RUN static \\\n  __global__\nRUN void k() {}\n",
    "in terms of another": b"#define G __global__\n#define RUN G __launch_bounds__(8)\nRUN void k() {}\n",
    "named so": b"LIB_KERNEL void k() {}\n",
    "named so too": b"int a;\nLIB_GLOBAL\nvoid k() {}\n",
    "first in a namespace": b"namespace n {\n__global__ void k() {}\n}\n",
    "of a template": b"template <int N>\n__global__ void __launch_bounds__(N) k() {}\n",
    "behind a mark": b"\xef\xbb\xbf__global__ void k() {}\n",
    "with other line ends": b"int a;\r\n__global__\r\nvoid\r\nk() {}\r\n",
    "in C": b'extern "C" {\n__global__ void k() {}\n}\n',
    "behind an error": b"int a = = ;\n) }\n__global__ void k() {}\n",
}


@pytest.mark.parametrize("how", _KERNELS_BY_MACROS)
def test_kernels_are_found_by_what_names_them(how: str) -> None:
    text = _KERNELS_BY_MACROS[how]
    # some `__global__` has to be in the text
    found, _ = cuda_inventory("k.cu", b"// __global__ of old\n" + text if not how.startswith("behind a m") else text)
    assert found.kernels == ("k",)
    plain, _ = cuda_inventory("k.cu", text.replace(b"__global__", b"__device__").replace(b"LIB_", b"OF_"))
    assert how.startswith("named so") or plain.kernels == ()


@pytest.mark.parametrize("word", ["asm", "__asm__", "asm volatile", "A"])
def test_asm_is_found_whatever_it_is_called(word: str) -> None:
    text = (
        f'#define A asm volatile\nint b;\nvoid f() {{ auto g = [] {{ {word}("bar.sync 0;"); }}; {word}("exit;"); }}\n'
    )
    found, _ = cuda_inventory("k.cu", text.encode())
    names = {c.name for c in found.constructs}
    assert names == (set() if word == "A" else {"bar.sync", "exit"})
