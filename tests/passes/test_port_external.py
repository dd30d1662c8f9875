# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own examples through the port: nothing selected changes nothing, and nothing ends in a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.lang.sources import load_sources
from porter.passes.port import NO_RULE, PortOptions, port_sources

cutlass_library = pytest.importorskip("cutlass_library", reason="nvidia-cutlass is not installed")
EXAMPLES = Path(cutlass_library.__file__).parent / "source" / "examples"
FILES = sorted(p for p in EXAMPLES.rglob("*") if p.suffix in (".cu", ".cuh", ".h"))


@pytest.mark.external
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
def test_examples(part: int) -> None:
    assert len(FILES) > 200
    refused = 0
    for number, path in enumerate(FILES[part::4]):
        sources = load_sources(path)
        if number % 8 == 0:
            nothing = port_sources(sources, PortOptions(select=(NO_RULE,)))
            assert nothing.files == {key: file.source for key, file in sources.files.items()}, path
        result = port_sources(sources)
        if int(result.exit_code) == 3:
            refused += 1
            assert not result.changed
            assert all(d.where is not None for d in result.diagnostics)
        else:
            assert int(result.exit_code) == 0, path
    assert refused > 5, "the Hopper examples use CuTe and CUTLASS, which are named, not ported"
