# SPDX-License-Identifier: Apache-2.0
"""What `--style idiomatic` makes of corpus kernels, as diffs that were read by eye; of a kernel that it leaves, what is
missing. `make golden` writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from test_golden_ports import GOLDEN, ROOT

from porter.diagnostics import Code
from porter.lang.diff import unified_diff
from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, port_sources

_BACKWARD = [(1, 1, 64, 128, 1, 1, 1, 2, 2, 6, *sources) for sources in ((1, 1), (1, 1), (0, 2), (0, 2), (2, 2))]
_DESCRIPTORS, _REGISTERS = (4, 3, 1, 0, 1), (32, 3, 1, 1, 1)
TYPES: dict[str, tuple[int | tuple[int, ...], ...]] = {
    "cute_attention": (
        (1, 1, 64, 256, 2, 1, 1, 1, 1, 6, 1, 1),
        (1, 1, 64, 256, 2, 1, 1, 1, 1, 6, 0, 2),
        _DESCRIPTORS,
        _REGISTERS,
        (2,),
    ),
    "cute_attention_bwd": (*_BACKWARD, _DESCRIPTORS, _DESCRIPTORS, _REGISTERS, _REGISTERS, (4, 3, 1, 0, 1), (1,)),
    "cute_gemm_f16acc": (256, 128, 256, 2, 16),
    "cute_gemm_fp8_scaled": (128, 128, 256, 4, 8),
    "cute_gemm_multicast": (128, 128, 128, 4, 16),
    "cute_gemm_multistage": (128, 128, 256, 4, 16),
    "cute_gemm_persistent": (128, 128, 256, 4, 16),
    "cute_gemm_rs": (128, 128, 256, 4, 16, 64),
    "cute_gemm_stsm": (256, 192, 256, 4, 16),
    "cute_gemm_tma": (128, 128, 128, 4, 16),
    "cute_gemm_ws": (128, 128, 256, 4, 16),
}
"""What the compiler says of their types; the slow tests ask it."""
KEPT = ("cute_attention", "cute_attention_bwd")
"""Kernels whose registers keep Hopper's layout, which the type of its MMAs names."""


@pytest.mark.parametrize("name", TYPES)
def test_the_idiomatic_port_is_the_golden_one(name: str) -> None:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        sources = load_sources(Path(f"corpus/{name}/{name}.cu"))
        result = port_sources(sources, PortOptions(types=answering(*TYPES[name])))
    finally:
        os.chdir(before)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    left = [f"# {d.values['what']}\n" for d in result.diagnostics if d.code is Code.IDIOM_LEFT]
    text = "".join(left) if left else unified_diff(sources.sources(), result.files, ()).decode()
    if not left:
        assert set(result.files) == set(sources.sources()), "nothing stands beside the kernel"
        (ported,) = (result.files[path].decode() for path in result.changed)
        assert not re.search(r"porter|\bwarpgroup_(?:arrive|wait|commit_batch|fence_operand)\b", ported)
        assert ("SM90_64x" in ported) is (name in KEPT)
    golden = GOLDEN / "idiomatic" / f"{name}.diff"
    if os.environ.get("PORTER_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
