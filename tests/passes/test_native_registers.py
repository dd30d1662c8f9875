# SPDX-License-Identifier: Apache-2.0
"""The step that shares registers out anew: ways of writing that are understood, and what is refused with which missing
fact. That ptxas then spills nothing is shown by the slow tests of `tests/cli/test_cli_registers.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import BATCHES

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

HEAD = (
    BATCHES
    + """\
template <int N> __device__ void less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <uint32_t N> __device__ void more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
@HEAD@
__global__ void __launch_bounds__(@THREADS@) kernel(float* out, uint64_t a, uint64_t b, int steps) {
    if (threadIdx.x / 128 == 0) {
        @LESS@
        out[0] = 0;
    } else {
        @MORE@
        float acc[8] = {};
        fence();
        wgmma_m64n16k16(acc, a, b);
        commit();
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];
    }
}
"""
)
DEFAULTS = {"HEAD": "", "THREADS": "384", "LESS": "less<24>();", "MORE": "more<240>();"}


def ported(folder: Path, least: int, **parts: str) -> PortResult:
    text = HEAD
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    path = folder / "kernel.cu"
    path.write_text(text)
    numbers = frozenset({(str(path), least)})
    return port_sources(load_sources(path), PortOptions(native=("registers",), registers=numbers))


UNDERSTOOD = {
    "arguments of templates": ({}, 40, ("less<40>();", "more<232>();")),
    "what does not divide": ({}, 32, ("less<32>();", "more<232>();")),
    "much more": ({}, 104, ("less<104>();", "more<200>();")),
    "as many for all": ({}, 168, ("less<168>();", "more<168>();")),
    "numbers in asm": (
        {"LESS": 'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\\n");',
         "MORE": 'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\\n");'}, 56,
        ("setmaxnreg.dec.sync.aligned.u32 56;", "setmaxnreg.inc.sync.aligned.u32 224;"),
    ),
    "constants of each branch": (
        {"LESS": "constexpr int regs = 24; less<regs>();", "MORE": "constexpr int regs = 240; more<regs>();"},
        40, ("constexpr int regs = 40; less<regs>();", "constexpr int regs = 232; more<regs>();"),
    ),
    "three consumers": (
        {"THREADS": "512", "LESS": "less<32>();", "MORE": "more<160>();"}, 56, ("less<56>();", "more<152>();"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, least, expected = UNDERSTOOD[name]
    result = ported(tmp_path, least, **parts)
    assert not [d for d in result.diagnostics if d.code is Code.NATIVE_LEFT]
    assert (result.plans[0].native, result.plans[0].registers) == (("registers",), least)
    text = next(t for p, t in result.files.items() if p.endswith("kernel.cu")).decode()
    assert all(one in text for one in expected)


REFUSED = {
    "fewer than there are": ({"LESS": "less<40>();", "MORE": "more<232>();"}, 40, "room for 40 registers"),
    "no multiple of eight": ({}, 36, "room for 36 registers"),
    "more than the launch gives": ({}, 176, "room for 176 registers"),
    "consumers below what they have": (
        {"LESS": "less<24>();", "MORE": "more<168>();"}, 40, "room for 40 registers",
    ),
    "no setmaxnreg of the others": ({"MORE": ""}, 40, "one setmaxnreg that gives back and one that takes"),
    "two that take": ({"MORE": "if (threadIdx.x < 256) { more<240>(); } else { more<232>(); }"}, 40, "one setmaxnreg"),
    "some warps": ({"LESS": "if (threadIdx.x < 64) less<24>();"}, 40, "whole warpgroups"),
    "an unknown condition": ({"LESS": "if (out[threadIdx.x] > 3) less<24>();"}, 40, "whole warpgroups at a setmaxnreg"),
    "a warpgroup of neither": (
        {"THREADS": "512", "MORE": "if (threadIdx.x < 384) more<240>();"}, 40, "each warpgroup comes to one setmaxnreg",
    ),
    "a helper of its own": (
        {"HEAD": "__device__ void give() { less<24>(); }", "LESS": "give();"}, 40, "the kernel itself says",
    ),
    "an unknown block": ({"THREADS": "300"}, 40, "how many warpgroups"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, least, what = REFUSED[name]
    result = ported(tmp_path, least, **parts)
    said = [str(d.values["what"]) for d in result.diagnostics if d.code is Code.NATIVE_LEFT]
    assert len(said) == 1
    assert what in said[0]
    assert result.plans[0].native == ()
    assert result.plans[0].registers == 0


def test_they_stay_as_they_are_where_no_number_is_chosen(tmp_path: Path) -> None:
    result = ported(tmp_path, 0)
    assert not [d for d in result.diagnostics if d.code is Code.NATIVE_LEFT]
    assert result.plans[0].native == ()
