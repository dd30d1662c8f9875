# SPDX-License-Identifier: Apache-2.0
"""Ports with M=128 MMAs of two consumers: which kernels they are proposed for, how the index of a thread is renamed,
and what is left with which missing fact. Values and order are judged: `test_full_rate_judged.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from full_rate_distance import ALIKE, PICK
from full_rate_kernels import (
    CONSUMER,
    DEFAULTS,
    KERNEL,
    REFUSED,
    TAKEN,
    TURNS,
    WGMMA,
    missing,
    port_of,
    ported,
    texts,
)  # fmt: skip
from full_rate_parting import SAME
from full_rate_waiting import MBARRIERS, NOT_WAITING
from full_rate_written import ALIKE as ALIKE_AHEAD
from full_rate_written import THE_SAME

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.helpers import Placement
from porter.passes.port import PortOptions, port_sources


@pytest.mark.parametrize("name", [n for n in TAKEN if n.startswith("turns")])
def test_turns_are_dropped(tmp_path: Path, name: str) -> None:
    kernel, _ = texts(ported(tmp_path, **TAKEN[name]))
    body = kernel[kernel.index("kernel(float") :]
    assert not re.search(r"meet|wake|bar\.", body)


def test_a_barrier_of_both_stays(tmp_path: Path) -> None:
    assert "meet(3, 256);" in texts(ported(tmp_path, **TAKEN["a barrier of both"]))[0]


@pytest.mark.parametrize("name", TAKEN)
def test_the_step_is_taken_and_every_index_renamed(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, **TAKEN[name])
    assert not missing(result), missing(result)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    kernel, helpers = texts(result)
    emitted = kernel.replace("tmem.warpgroup(threadIdx.x / 128", "")
    assert "threadIdx" not in emitted
    assert "tcgen05::thread_index()" in kernel
    assert "bar.sync 15, 256;" in helpers
    assert "128u >> 4 << 24" in helpers
    assert "shared_.done[0][0]" in helpers
    assert not [d for d in result.diagnostics if d.code is Code.HALF_RATE]
    assert [p.mma_rows for p in result.plans] == [128]


def test_n_of_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    narrow = {
        "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9": "{%0, %1, %2, %3}, %4, %5",
        ', "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])': "",
        "m64n16k16": "m64n8k16",
        "float (&d)[8]": "float (&d)[4]",
        "acc[8]": "acc[4]",
        "i < 8": "i < 4",
    }
    text = WGMMA + KERNEL
    for before, after in narrow.items():
        assert before in text
        text = text.replace(before, after)
    for name, value in DEFAULTS.items():
        text = text.replace(f"@{name}@", value)
    path.write_text(text)
    result = port_sources(load_sources(path), PortOptions(full_rate=True))
    assert missing(result) == ["N is 8, and an M=128 MMA takes multiples of 16"]


@pytest.mark.parametrize("inline", [False, True])
def test_one_source_for_both_chips_keeps_hoppers_index(tmp_path: Path, inline: bool) -> None:
    path = tmp_path / "kernel.cu"
    ported(tmp_path, **TURNS)
    options = PortOptions(full_rate=True, keep_hopper=True, placement=Placement(inline=inline))
    result = port_sources(load_sources(path), options)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    kernel, _ = texts(result)
    assert "const int consumer = threadIdx.x / 128;" in kernel
    assert "const int consumer = tcgen05::thread_index() / 128;" in kernel
    assert kernel.count("meet(1 + consumer, 256);") == 1
    assert not inline or kernel.index("thread_index() {") < kernel.index("= tcgen05::thread_index()")


def test_compat_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    ported(tmp_path)
    result = port_sources(load_sources(path))
    kernel, helpers = texts(result)
    assert "thread_index" not in kernel + helpers
    assert "bar.sync %0, 128;" in helpers


@pytest.mark.parametrize("a", ["a", "a + 2 * k", "describe(k)"])
def test_consumers_of_the_same_rows_stay_two(tmp_path: Path, a: str) -> None:
    """Two tiles have 128 rows of A: consumers that multiply the same 64 have other columns, or the same sums twice."""
    kernel = KERNEL.replace("a + consumer * 512", a)
    head = "__device__ uint64_t describe(int k) { return uint64_t(k) << 16; }\n"
    result = port_of(tmp_path, kernel, {**DEFAULTS, "HEAD": head})
    assert missing(result) == ["the A descriptor `a` is that of the other consumer, too"]


PROPOSED = {
    **SAME,
    **THE_SAME,
    **{name: {"HEAD": MBARRIERS, "ROLE": role, "BEFORE": before, "AFTER": after}
       for name, (role, before, after) in NOT_WAITING.items()},
}  # fmt: skip
APART = {
    **ALIKE,
    **{name: ("a + mine * 512", role) for name, role in ALIKE_AHEAD.items()},
}


@pytest.mark.parametrize("name", PROPOSED)
def test_what_is_the_same_in_both_is_proposed(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, **PROPOSED[name])
    assert not missing(result), missing(result)
    assert [p.mma_rows for p in result.plans] == [128]


@pytest.mark.parametrize("name", APART)
def test_a_tiles_of_their_own_are_proposed(tmp_path: Path, name: str) -> None:
    a, role = APART[name]
    kernel = KERNEL.replace("a + consumer * 512", a)
    assert not missing(port_of(tmp_path, kernel, {**DEFAULTS, "HEAD": PICK, "ROLE": f"{CONSUMER} {role}"}))


LEFT = ("one warpgroup", "four", "two dimensions", "the index as a whole", "asm", "cooperative groups",
        "a helper that another kernel has")  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_is_missing_is_named_and_the_port_is_compat(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert any(what in text for text in missing(result)), missing(result)
    kernel, helpers = texts(result)
    assert "thread_index" not in kernel + helpers
    assert "64u >> 4 << 24" in helpers
    assert all(p.mma_rows == 64 for p in result.plans)


@pytest.mark.parametrize(
    "role",
    ["const int consumer = (threadIdx.x & 128) / 128;", "const int consumer = (128 & threadIdx.x) != 0;",
     "const auto& t = threadIdx.x; const int consumer = t / 128;"],
)  # fmt: skip
def test_an_index_behind_a_sign_is_renamed(tmp_path: Path, role: str) -> None:
    assert not missing(ported(tmp_path, ROLE=role))


LAUNCHES = {
    "two sizes": "if (rows <= 64) kernel<<<1, 128>>>(o, 0, 0, 3, rows); else kernel<<<1, 256>>>(o, 0, 0, 3, rows);",
    "a choice": "kernel<<<1, rows > 64 ? 256 : 128>>>(o, 0, 0, 3, rows);",
    "a variable": "const dim3 block(128); kernel<<<1, block>>>(o, 0, 0, 3, rows);",
    "a configuration": "cudaLaunchConfig_t c{}; c.blockDim = dim3(128); "
    "cudaLaunchKernelEx(&c, kernel, o, 0ull, 0ull, 3, rows);",
}


@pytest.mark.parametrize("how", LAUNCHES)
def test_a_launch_without_the_second_consumer(tmp_path: Path, how: str) -> None:
    launch = f"{LAUNCHES[how]} }}\n"
    result = port_of(tmp_path, f"{KERNEL}void launch(float* o, int rows) {{ {launch}", DEFAULTS)
    assert missing(result) == ["a launch gives its blocks 128 threads, and both consumers take 256"]


def test_a_launch_of_both(tmp_path: Path) -> None:
    launch = "void launch(float* o) { kernel<<<1, 2 * 128>>>(o, 0, 0, 3, 4); }\n"
    assert missing(port_of(tmp_path, KERNEL + launch, DEFAULTS)) == []
