# SPDX-License-Identifier: Apache-2.0
"""Ports get a warpgroup's barrier ahead of a bulk store that one thread issues behind what other warps store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.main import main
from porter.grade.unready import unready

sys.path.insert(0, str(Path(__file__).parents[1] / "variants"))
from variant_template import HEAD, SYNC, TILE, fill_in, kernel, wrapper

HELPERS = """
__device__ __forceinline__ void save(uint32_t at, const float* d) {
    const uint32_t low = __float_as_uint(d[0]), high = __float_as_uint(d[1]);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};"
                 ::"r"(at), "r"(low), "r"(high) : "memory");
}
__device__ __forceinline__ void ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void send(void* to, uint32_t from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
PRODUCT = """<declare>
    <loop>
    __shared__ alignas(128) uint4 out[128];
    const uint32_t place = __cvta_generic_to_shared(out);
    """
SAVE = "save(place + threadIdx.x * 16, d);\n    ready();\n    "
SEND = "if (threadIdx.x == 0) send(c, place, 2048);"
LACKING = {
    "one thread": SAVE + SEND,
    "in a loop": "for (int i = 0; i < 2; ++i) {\n        " + SAVE + SEND + "\n    }",
    "a warp's thread": SAVE
    + "if (threadIdx.x / 32 == 0) {\n        if (threadIdx.x % 32 == 0) send(c, place, 2048);\n    }",
    "each warp's own thread": SAVE + "if (threadIdx.x % 32 == 1) send(c, place, 2048);",
    "several matrices": "for (int i = 0; i < 4; ++i) save(place + threadIdx.x * 16, d + 2 * i);\n    ready();\n    "
    + SEND,
    "without the fence": SAVE.replace("ready();\n    ", "") + SEND,
}  # fmt: skip
MET = {
    "all threads": SAVE + "__syncthreads();\n    " + SEND,
    "a named barrier": SAVE + 'asm volatile("bar.sync 7, 128;" ::: "memory");\n    ' + SEND,
    "nothing is stored by warps": "if (threadIdx.x == 0) send(c, place, 2048);",
    "no bulk store": SAVE,
}


def source(body: str) -> Path:
    text = HEAD + SYNC + TILE.replace("<N>", "32") + wrapper() + HELPERS + kernel(PRODUCT + body)
    return kept({"kernel.cu": fill_in(text, 32, "bf16")}) / "kernel.cu"


def ported(path: Path, out: Path, *more: str) -> dict:
    result = CliRunner().invoke(
        main, ["--no-config", "--format", "json", "port", "--style", "compat", *more, str(path), "-o", str(out)]
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", LACKING)
def test_a_barrier_that_is_missing_is_a_group_of_its_own(name: str, tmp_path: Path) -> None:
    path = source(LACKING[name])
    assert unready(compile_ptx(CompileRequest(path, "sm_90a")).ptx)
    port = ported(path, tmp_path / "out")
    (group,) = (g for g in port["groups"] if g["rule"] == "PT4113")
    assert group["safety"] == "review"
    assert not [d for d in port["diagnostics"] if d["id"] == "PT4113"]
    assert not unready(compile_ptx(CompileRequest(tmp_path / "out" / path.name, "sm_100a")).ptx)


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", MET)
def test_nothing_is_added_where_warps_meet(name: str, tmp_path: Path) -> None:
    port = ported(source(MET[name]), tmp_path / "out")
    assert not [g for g in port["groups"] if g["rule"] == "PT4113"]
    assert not [d for d in port["diagnostics"] if d["id"] == "PT4113"]


def test_without_mends_it_is_named(tmp_path: Path) -> None:
    port = ported(source(LACKING["one thread"]), tmp_path / "out", "--no-mend")
    assert not [g for g in port["groups"] if g["rule"] == "PT4113"]
    (said,) = (d for d in port["diagnostics"] if d["id"] == "PT4113")
    assert said["severity"] == "warning"


def test_a_place_that_only_some_threads_come_to_is_named(tmp_path: Path) -> None:
    body = "if (threadIdx.x < 96) {\n        " + SAVE + SEND + "\n    }"
    port = ported(source(body), tmp_path / "out")
    assert not [g for g in port["groups"] if g["rule"] == "PT4113"]
    assert [d for d in port["diagnostics"] if d["id"] == "PT4113"]
