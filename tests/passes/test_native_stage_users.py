# SPDX-License-Identifier: Apache-2.0
"""A commit that gives a stage back knows of MMAs alone: what threads read or write of it has to be over by then."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import BATCH, left, ported, taken

WHAT = "that threads use no shared memory between MMAs and where a stage goes back"
RELEASE = "arrive(&empty[k % 2]);"
LATE = {"RELEASE": "if (k > 0) arrive(&empty[(k - 1) % 2]);", "LATE": "arrive(&empty[(steps - 1) % 2]);"}
PEEK = "__device__ float peek(const char* tile) { return tile[threadIdx.x]; }\n"
LOADED = (
    '__device__ float loaded(const void* p) { float f; asm volatile("ld.shared.f32 %0, [%1];" '
    ': "=f"(f) : "r"(shared(p))); return f; }\n'
)
STORED = (
    '__device__ void stored(const void* map, void* p) { asm volatile("cp.async.bulk.tensor.2d.global.shared::cta'
    '.bulk_group [%0, {0, 0}], [%1];" ::"l"(map), "r"(shared(p)) : "memory"); }\n'
)
STAGE = "struct Stage { char bytes[4096]; __device__ float first() { return bytes[threadIdx.x]; } };\n"
VIEW = "Stage* stages = reinterpret_cast<Stage*>(tiles);"

USED: dict[str, dict[str, str]] = {
    "an element": {"RELEASE": f"out[k] = tiles[k % 2][threadIdx.x]; {RELEASE}"},
    "an element, behind a condition": {"RELEASE": f"if (tiles[k % 2][0] == 1) out[k] = 1; {RELEASE}"},
    "an element that is written": {"RELEASE": f"tiles[k % 2][threadIdx.x] = 0; {RELEASE}"},
    "a pointer": {"RELEASE": f"const float* at = reinterpret_cast<float*>(tiles[k % 2]); out[k] = *at; {RELEASE}"},
    "a reference": {"RELEASE": f"auto& tile = tiles[k % 2]; out[k] = tile[threadIdx.x]; {RELEASE}"},
    "a function": {"HEAD": PEEK, "RELEASE": f"out[k] = peek(tiles[k % 2]); {RELEASE}"},
    "an instruction": {"HEAD": LOADED, "RELEASE": f"out[k] = loaded(tiles[k % 2]); {RELEASE}"},
    "a lambda": {"LAMBDA": "auto peek = [&](int s) { return tiles[s][0]; };",
                 "RELEASE": f"out[k] = peek(k % 2); {RELEASE}"},
    "an object": {"HEAD": STAGE, "AHEAD": VIEW, "RELEASE": f"out[k] = stages[k % 2].first(); {RELEASE}"},
    "a member": {"HEAD": STAGE, "AHEAD": VIEW, "RELEASE": f"out[k] = stages[k % 2].bytes[threadIdx.x]; {RELEASE}"},
    "a store by TMA": {"HEAD": STORED, "RELEASE": f"stored(map, tiles[k % 2]); {RELEASE}"},
    "the stage before, ahead of what gives it back": {
        "BATCH": f"if (k > 0) {{ out[k] = tiles[(k - 1) % 2][0]; arrive(&empty[(k - 1) % 2]); }} {BATCH}",
        "RELEASE": "", "AFTER": LATE["LATE"],
    },
    "the last stage, behind the loop": {
        "RELEASE": LATE["RELEASE"],
        "AFTER": f"out[0] = tiles[(steps - 1) % 2][threadIdx.x]; {LATE['LATE']}",
    },
}  # fmt: skip


@pytest.mark.parametrize("how", USED)
def test_a_stage_that_threads_use_by(tmp_path: Path, how: str) -> None:
    left(ported(tmp_path, ("release",), **USED[how]), WHAT)


UNUSED: dict[str, dict[str, str]] = {
    "an element ahead of the meeting": {"BATCH": f"out[k] = tiles[k % 2][threadIdx.x]; {BATCH}"},
    "an element behind all arrivals": {"AFTER": "out[0] = tiles[0][threadIdx.x];"},
    "an address": {"RELEASE": f"const char* at = tiles[k % 2]; out[k] = at == &tiles[0][0]; {RELEASE}"},
    "an address that a function is handed": {"RELEASE": f"out[k] = shared(tiles[k % 2]); {RELEASE}"},
    "memory of the launch": {"RELEASE": f"out[k] = out[k + 1]; {RELEASE}"},
    "registers": {"AHEAD": "float mine[2] = {};", "RELEASE": f"mine[k % 2] += 1; {RELEASE}"},
}


@pytest.mark.parametrize("how", UNUSED)
def test_a_stage_that_mmas_alone_use(tmp_path: Path, how: str) -> None:
    assert "tcgen05::release(&empty[k % 2]);" in taken(ported(tmp_path, ("release",), **UNUSED[how]), "release")
