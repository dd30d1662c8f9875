# SPDX-License-Identifier: Apache-2.0
"""What `--style full-rate` makes another in the port of a corpus kernel, as a diff of the two ports that was read by
eye; of a kernel that it leaves, the facts that are missing. `make golden` writes them anew."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from test_golden_idiomatic import TYPES
from test_golden_ports import GOLDEN, ROOT, port_of

from porter.cli.porting import boxes_of
from porter.diagnostics import Code
from porter.lang.diff import unified_diff
from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, PortResult, port_sources

KERNELS = sorted(p.stem for p in (GOLDEN / "full_rate").glob("*.diff"))


def full_rate_port(name: str, steps: tuple[str, ...] = (), stages: int = 0) -> PortResult:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        sources = load_sources(Path(f"corpus/{name}/{name}.cu"))
        wanted = frozenset({(sources.root, stages)} if stages else ())
        types = answering(*TYPES[name]) if name in TYPES else None
        boxes = partial(boxes_of, ()) if types is not None else None
        options = PortOptions(full_rate=True, native=steps, stages=wanted, types=types, boxes=boxes)
        return port_sources(sources, options)
    finally:
        os.chdir(before)


def test_there_are_goldens() -> None:
    assert {"gemm_ws", "gemm_rs", "gemm_f16acc"} <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_full_rate_changes_what_the_golden_one_says(name: str) -> None:
    compat, result = port_of(ROOT / f"corpus/{name}/case.yaml"), full_rate_port(name)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    left = [f"# {d.values['what']}\n" for d in result.diagnostics if d.code is Code.FULL_RATE_LEFT]
    text = "".join(left) + unified_diff(compat.files, result.files, ()).decode()
    golden = GOLDEN / "full_rate" / f"{name}.diff"
    if os.environ.get("PORTER_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
