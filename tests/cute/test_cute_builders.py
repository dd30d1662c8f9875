# SPDX-License-Identifier: Apache-2.0
"""A GEMM of CUTLASS's builders is ported, and compiled for sm_100a."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cute_run import cutlass_directories
from kept_sources import kept

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.passes.builders import HEADER, header_text
from porter.passes.port import port_sources
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

FLAGS = ("--expt-relaxed-constexpr",)
CHOICES = Path(__file__).with_name("builder_choices.cu")
SOURCE = Path(__file__).with_name("builder_gemm.cu")


@pytest.mark.external
def test_choices_of_templates_are_mapped() -> None:
    header = header_text(vocabulary(load_rules()))

    def compile_choices(more: str = "") -> None:
        folder = kept({HEADER: header, CHOICES.name: CHOICES.read_text() + more})
        include = cutlass_directories()
        compile_ptx(CompileRequest(folder / CHOICES.name, "sm_100a", include_dirs=include, flags=FLAGS, lineinfo=False))

    compile_choices()
    with pytest.raises(PorterError, match="code beside the builders counts with this tile"):
        compile_choices("using Large = porter::same_tile<T256>; Large large;\n")


@pytest.mark.external
@pytest.mark.slow
def test_builders_compile_for_blackwell(tmp_path: Path) -> None:
    result = port_sources(load_sources(SOURCE))
    for path, text in result.files.items():
        Path(tmp_path, Path(path).name).write_bytes(text)
    request = CompileRequest(tmp_path / SOURCE.name, "sm_100a", include_dirs=cutlass_directories(), flags=FLAGS)
    ptx = compile_ptx(request).ptx
    kernels = re.findall(r"\.entry\s+(\w+)", ptx)
    assert len([k for k in kernels if "MainloopSm100TmaUmmaWarpSpecialized" in k]) == 2
    assert "MainloopSm90" not in ptx
    assert "wgmma" not in ptx
    # the tile of 256 rows is that of a CTA pair, the other that of one SM
    assert re.search(r"tcgen05\.mma\.cta_group::1\b", ptx)
    assert re.search(r"tcgen05\.mma\.cta_group::2\b", ptx)
