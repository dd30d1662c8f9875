# SPDX-License-Identifier: Apache-2.0
"""The chips that ports can be for: how they are spelled, and why others are refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from porter.build.toolchain import find_toolkit
from porter.passes.targets import absent, port_target
from porter.ptx.arch import PORT_TARGETS, SM100A, limits, target
from porter.ptx.inline import parse_template

SPELLED = {
    "sm_100a": 100, "SM100a": 100, "100a": 100, "sm100a": 100, "compute_100a": 100, "10.0a": 100, " sm_103a ": 103,
    "103a": 103, "10.3a": 103, "compute_103a": 103, "SM_110A": 110, "110a": 110, "11.0a": 110, "sm110a": 110,
}  # fmt: skip
REFUSED = {
    "sm_100": "sm_100a has", "100": "sm_100a has", "sm_103": "sm_103a has", "sm_100f": "family", "103f": "family",
    "sm_101a": "is sm_110a since CUDA 13.0", "101f": "is sm_110f since", "sm_120": "neither tcgen05 nor Tensor Memory",
    "sm_120a": "neither tcgen05 nor Tensor Memory", "sm_121f": "neither tcgen05", "12.0a": "neither tcgen05",
    "sm_90a": "neither tcgen05", "b200": "is no target", "": "is no target", "sm_100b": "is no target",
}  # fmt: skip
FORMS = {
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;": (),
    "tcgen05.mma.cta_group::1.kind::tf32 [%r1], [%r3], %rd2, %r2, %p1;": (),
    "tcgen05.mma.cta_group::2.kind::f8f6f4 [%r1], %rd1, %rd2, %r2, %p1;": (),
    "tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1;": ("sm_103a",),
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, 4;": ("sm_110a",),
    "tcgen05.shift.cta_group::1.down [%r1];": (),
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;": (),
    "setmaxnreg.inc.sync.aligned.u32 232;": (),
}
"""Instructions that sm_100a has, and the other chips that have them not."""


@pytest.mark.parametrize(("text", "number"), list(SPELLED.items()))
def test_spellings(text: str, number: int) -> None:
    assert port_target(text).sm == number


@pytest.mark.parametrize(("text", "why"), list(REFUSED.items()))
def test_refusals_give_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        port_target(text)


@pytest.mark.parametrize("chip", PORT_TARGETS)
def test_what_a_target_is_called(chip: object) -> None:
    assert isinstance(chip, type(SM100A))
    known = target(chip.name)
    assert known.macros[chip.macro] == 1
    assert known.compute == f"compute_{chip.chip}"
    assert known.macros["__CUDA_ARCH__"] == 10 * chip.sm
    assert limits(chip.name).shared_per_block == limits("sm_100a").shared_per_block


@pytest.mark.parametrize(("text", "without"), list(FORMS.items()))
def test_what_targets_lack(text: str, without: tuple[str, ...]) -> None:
    (instruction,) = parse_template(text).instructions()
    assert tuple(t.name for t in PORT_TARGETS if absent(instruction, t) is not None) == without


@pytest.mark.slow
@pytest.mark.parametrize("chip", PORT_TARGETS, ids=lambda t: t.name)
def test_ptxas_agrees(chip: object, tmp_path: Path) -> None:
    assert isinstance(chip, type(SM100A))
    ptxas = find_toolkit().ptxas
    head = f".version 9.0\n.target {chip.name}\n.address_size 64\n.entry k() {{ .reg .b32 %r<4>; .reg .b64 %rd<3>; "
    for text, without in FORMS.items():
        path = tmp_path / "k.ptx"
        path.write_text(f"{head}.reg .pred %p<2>; setp.eq.u32 %p1, %r1, 0;\n{text}\nret; }}\n")
        done = subprocess.run([ptxas, "-arch", chip.name, "-o", "/dev/null", path], capture_output=True, text=True)
        assert (done.returncode != 0) == (chip.name in without), (text, done.stderr)
