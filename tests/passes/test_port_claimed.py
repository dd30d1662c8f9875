# SPDX-License-Identifier: Apache-2.0
"""Names that sources have for themselves: the helpers of their port step aside. What such ports compute is in
`tests/variants/variants_claimed.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import GEMM, compiles, port_files, port_text
from test_port_shared_headers import INCLUDE, ONE, OPS, TWO
from test_port_tiled import ACC, BATCH, OPERANDS, STORE
from test_port_tiled import kernel as tiled

from porter.cli.porting import port_paths
from porter.diagnostics import Code, ExitCode
from porter.passes.helpers import Placement
from porter.passes.port import PortResult

HELPERS = "tcgen05.cuh"
INLINE = {"placement": Placement(inline=True)}


def text_of(result: PortResult, name: str) -> str:
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return next(t for p, t in result.files.items() if Path(p).name == name).decode()


@pytest.mark.parametrize(
    "before",
    [
        "namespace tcgen05 { struct Accumulator {}; }\n",
        "namespace own::tcgen05 {}\n",
        "struct own {};\nusing tcgen05 = own;\n",
        "#define tcgen05 1\n",
        "#define NAME tcgen05\n",
    ],
)
def test_helpers_have_a_namespace_that_the_sources_have_not(tmp_path: Path, before: str) -> None:
    result = port_text(tmp_path, before + GEMM)
    port = text_of(result, "kernel.cu").replace(before, "")
    assert "tcgen05::Tmem<16, 1>" in port
    assert "namespace sm100_tcgen05 {" in text_of(result, HELPERS)
    assert not re.search(r"(?<!sm100_)tcgen05::", port)
    (tmp_path / HELPERS).write_text(text_of(result, HELPERS))
    again = port_text(tmp_path, text_of(result, "kernel.cu"), "again.cu")
    assert again.groups == []
    assert {d.code for d in again.diagnostics} <= {Code.NO_KERNEL}, again.diagnostics


@pytest.mark.parametrize("words", ["// tcgen05::load is for later\n", '#include "tcgen05_own.h"\n'])
def test_a_word_that_is_no_code_is_no_name(tmp_path: Path, words: str) -> None:
    assert "namespace tcgen05 {" in text_of(port_text(tmp_path, words + GEMM), HELPERS)


def test_a_macro_is_hidden_where_the_helpers_have_its_name(tmp_path: Path) -> None:
    macros = "#define N 64\n#define quarter 3\n#define index(i) (i)\n#define unrelated 1\n"
    helpers = text_of(port_text(tmp_path, macros + GEMM), HELPERS)
    pushed = re.findall(r'#pragma push_macro\("(\w+)"\)\n#undef \1\n', helpers)
    assert "quarter" in pushed
    assert "unrelated" not in pushed
    # none of the helpers is called with it
    assert "index" not in pushed
    assert re.findall(r'pop_macro\("(\w+)"\)', helpers) == pushed
    assert helpers.index("#include <cstdint>") < helpers.index("#pragma push") < helpers.index("namespace tcgen05")
    assert helpers.rstrip().endswith(f'pop_macro("{pushed[-1]}")')


def test_what_a_port_names_has_another_name_than_a_macro(tmp_path: Path) -> None:
    result = port_text(
        tmp_path, "#define load 1\n#define load_ 2\n#define commit() 3\n" + GEMM.replace("commit()", "done()")
    )
    port, helpers = text_of(result, "kernel.cu"), text_of(result, HELPERS)
    new = re.search(r"tcgen05::(load\w+)\(acc, acc_tmem\);", port)
    assert new is not None
    assert new[1] not in ("load", "load_")
    assert f"void {new[1]}(Registers& registers" in helpers
    assert "tc.commit_();" in port
    assert "void commit_() {" in helpers


def test_helpers_in_the_sources_hide_macros_too(tmp_path: Path) -> None:
    result = port_text(tmp_path, "#pragma once\n#define quarter 3\n#define clear 4\n" + GEMM, **INLINE)
    port = text_of(result, "kernel.cu")
    assert port.count('push_macro("quarter")') == port.count('pop_macro("quarter")') == 1
    out = tmp_path / "out"
    result = port_files(
        tmp_path / "in", {"kernel.cu": '#include "own.h"\n' + GEMM, "own.h": "#define quarter 3\n"}, **INLINE
    )
    assert ".entry" in compiles(result, tmp_path / "in", out)


def test_macros_of_the_command_line_are_hidden(tmp_path: Path) -> None:
    placement = Placement(macros=frozenset({"quarter", "load", "tc"}))
    result = port_text(tmp_path, GEMM, placement=placement)
    assert 'push_macro("quarter")' in text_of(result, HELPERS)
    assert "tcgen05::load_(acc, acc_tmem);" in text_of(result, "kernel.cu")
    assert "Warpgroup tc2 = " in text_of(result, "kernel.cu")


def test_files_that_share_a_header_agree(tmp_path: Path) -> None:
    texts = {"ops.cuh": OPS, "one.cu": "#define quarter 1\nnamespace tcgen05 {}\n" + ONE, "two.cu": TWO}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    ported = port_paths([tmp_path])
    assert ported.exit_code is ExitCode.OK, [str(d) for d in ported.diagnostics]
    new = {Path(p).name: t.decode() for p, t in ported.new.items()}
    assert "sm100_tcgen05::sync_warpgroup();" in new["ops.cuh"]
    assert "sm100_tcgen05::Tmem<" in new["one.cu"]
    assert "sm100_tcgen05::Tmem<" in new["two.cu"]
    assert 'push_macro("quarter")' in new[HELPERS]
    assert INCLUDE in new["two.cu"]


def test_a_namespace_of_the_name_of_that_for_cute_is_refused(tmp_path: Path) -> None:
    text = tiled(OPERANDS + ACC + BATCH + STORE)
    assert int(port_text(tmp_path, text).exit_code) == 0
    result = port_text(tmp_path, text.replace("template <class A", "namespace porter { int x; }\ntemplate <class A", 1))
    assert [d.code for d in result.diagnostics if d.code is Code.NAMESPACE_TAKEN]
    assert int(result.exit_code) == 3


def test_a_macro_is_hidden_from_helpers_for_cute(tmp_path: Path) -> None:
    result = port_text(tmp_path, "#define columns 3\n" + tiled(OPERANDS + ACC + BATCH + STORE))
    assert 'push_macro("columns")' in text_of(result, "cute_sm100.hpp")


@pytest.mark.parametrize(("shift", "is_beside"), [("14", True), ("46", True), ("30", False), ("62", False)])
def test_bits_beside_fields_of_descriptors_are_cleared(tmp_path: Path, shift: str, is_beside: bool) -> None:
    """wgmma does not look at them, and SM100 reserves them."""
    own = f"__device__ uint64_t described(uint64_t start) {{ return start | 3ull << {shift}; }}\n"
    result = port_text(tmp_path, GEMM + own)
    header = next(text.decode() for path, text in result.files.items() if path.endswith("tcgen05.cuh"))
    assert ('"l"(sm100_descriptor(a_desc))' in header) is is_beside
    assert ('"l"(a_desc | kDescriptorVersion)' in header) is not is_beside
