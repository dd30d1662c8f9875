# SPDX-License-Identifier: Apache-2.0
"""The step that makes room for a second block on an SM: ways of writing launch bounds, setmaxnreg and loops over sums
that are understood, and what is refused with which missing fact. That ports are right is shown by the slow tests of
`tests/cli/test_cli_native_sharing.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import HEAD, left, missing, taken, text_of

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

KERNEL = """\
@HELP@
__global__ void @BOUNDS@ kernel(float* out, const float* scale, uint64_t a, uint64_t b, int steps) {
    @AHEAD@
    if (threadIdx.x / 128 == 0) {
        @LOWER@
    } else {
        @RAISE@
        float acc[8] = {};
        for (int k = 0; k < steps; ++k) {
            fence(); wgmma_m64n16k16(acc, a, b); commit(); drain<0>();
            @CHANGE@
        }
        for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];
    }
}
@AFTER@
"""
DEFAULTS = {
    "HELP": "",
    "BOUNDS": "__launch_bounds__(384, 1)",
    "AHEAD": "",
    "LOWER": 'asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");',
    "RAISE": 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");',
    "CHANGE": "for (int i = 0; i < 8; ++i) acc[i] *= scale[k];",
    "AFTER": "",
}


def ported(folder: Path, asked: bool = True, also: bool = False, **parts: str) -> PortResult:
    text = HEAD + KERNEL
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    path = folder / "kernel.cu"
    path.write_text(text)
    sources = load_sources(path)
    blocks = frozenset({(sources.root, "blocks")} if asked else ())
    registers = frozenset({(sources.root, 56)} if also else ())
    steps = ("blocks", "registers")
    return port_sources(sources, PortOptions(full_rate=False, native=steps, chosen=blocks, registers=registers))


TEMPLATES = """\
template <uint32_t N> __device__ void more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <uint32_t N> __device__ void less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
"""
FUNCTION = '__device__ void more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }'
UNDERSTOOD = {
    "numbers in asm": (
        {}, ["__launch_bounds__(384, 2)", "setmaxnreg.inc.sync.aligned.u32 104;", "dec.sync.aligned.u32 24;"],
    ),
    "bounds without blocks": ({"BOUNDS": "__launch_bounds__(384)"}, ["__launch_bounds__(384, 2)"]),
    "bounds by a constant": (
        {"HELP": "constexpr int kThreads = 3 * 128, kOne = 1;", "BOUNDS": "__launch_bounds__(kThreads, kOne)"},
        ["__launch_bounds__(kThreads, 2)"],
    ),
    "numbers of a template": (
        {"HELP": TEMPLATES, "LOWER": "less<40>();", "RAISE": "more<232>();"}, ["less<40>();", "more<96>();"],
    ),
    "constants of a template": (
        {"HELP": TEMPLATES + "constexpr uint32_t kFew = 24, kMany = 240;", "LOWER": "less<kFew>();",
         "RAISE": "more<kMany>();"},
        ["more<104>();"],
    ),
    "a function with the number": (
        {"HELP": FUNCTION, "RAISE": "more();"},
        ["setmaxnreg.inc.sync.aligned.u32 104;"],
    ),
    "no setmaxnreg": ({"LOWER": "", "RAISE": ""}, ["__launch_bounds__(384, 2)"]),
    "fewer than there are": (
        {"RAISE": 'asm volatile("setmaxnreg.inc.sync.aligned.u32 96;");'}, ["setmaxnreg.inc.sync.aligned.u32 96;"],
    ),
    "the largest block": (
        {"BOUNDS": "__launch_bounds__(1024, 1)"}, ["__launch_bounds__(1024, 2)", "setmaxnreg.inc.sync.aligned.u32 32;"],
    ),
    "another block": (
        {"BOUNDS": "__launch_bounds__(256, 1)"}, ["__launch_bounds__(256, 2)", "setmaxnreg.inc.sync.aligned.u32 232;"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    text = taken(ported(tmp_path, **parts), "blocks")
    assert [part for part in expected if part not in text] == []


def test_registers_of_both_blocks_are_no_more_than_there_are(tmp_path: Path) -> None:
    """The numbers that the default kernel comes to: 24 for 128 threads and 104 for 256, of twice 384."""
    assert "u32 104;" in taken(ported(tmp_path), "blocks")
    assert 2 * (24 * 128 + 104 * 256) <= 65536 < 2 * (24 * 128 + 112 * 256) + 2 * 384 * 8


REFUSED = {
    "no launch bounds": ({"BOUNDS": "", "AFTER": "void run() { kernel<<<1, 384>>>(0, 0, 0, 0, 0); }"}, "launch bounds"),
    "two blocks already": ({"BOUNDS": "__launch_bounds__(384, 2)"}, "ask for one block"),
    "part of a warpgroup": ({"BOUNDS": "__launch_bounds__(400, 1)"}, "in whole warpgroups"),
    "registers that are not given back": (
        {"LOWER": 'asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");'}, "fewer registers than the 80",
    ),
    "a number that nobody knows": (
        {"HELP": TEMPLATES + "#ifndef MANY\n#define MANY 240\n#endif", "RAISE": "more<sizeof(float[MANY])>();"},
        "the count of a setmaxnreg",
    ),
    "different numbers": (
        {"RAISE": 'if (threadIdx.x < 256) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");'
                  ' else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");'},
        "the same number of registers",
    ),
    "who takes them depends on a value": (
        {"RAISE": 'if (scale[threadIdx.x] > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");'},
        "which warpgroups come to this setmaxnreg",
    ),
    "two for a warpgroup": (
        {"RAISE": DEFAULTS["RAISE"] + ' asm volatile("setmaxnreg.inc.sync.aligned.u32 248;");'}, "one setmaxnreg",
    ),
    "a function of other kernels": (
        {"HELP": FUNCTION, "RAISE": "more();",
         "AFTER": "__global__ void __launch_bounds__(384, 1) other() { more(); }"},
        "is called by kernels with MMAs alone",
    ),
    "a macro with the number": (
        {"HELP": '#define MORE() asm volatile("setmaxnreg.inc.sync.aligned.u32 240;")', "RAISE": "MORE();"},
        "the count of a setmaxnreg",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_refuses_the_step(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, **parts)
    text = left(result, expected)
    assert "update(" not in text
    assert "384, 2)" not in text or "384, 2)" in parts.get("BOUNDS", "")


def test_nobody_asked_for_it(tmp_path: Path) -> None:
    result = ported(tmp_path, asked=False)
    assert missing(result) == []
    assert result.plans[0].native == ()
    assert "__launch_bounds__(384, 1)" in text_of(result)


def test_registers_of_two_blocks_are_not_shared_out_again(tmp_path: Path) -> None:
    """The step `registers` is for a block with an SM for itself."""
    result = ported(tmp_path, also=True)
    left_out = missing(result)
    assert len(left_out) == 1
    assert "shares out those of 2" in left_out[0]
    assert (result.plans[0].native, result.plans[0].registers) == (("blocks",), 0)
    text = text_of(result)
    assert "setmaxnreg.inc.sync.aligned.u32 104;" in text
    assert "dec.sync.aligned.u32 24;" in text
    alone = ported(tmp_path, asked=False, also=True)
    assert (alone.plans[0].native, alone.plans[0].registers) == (("registers",), 56)


def test_columns_are_those_of_one_of_two_blocks(tmp_path: Path) -> None:
    result = ported(tmp_path)
    header = next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode()
    assert "kNeeded <= 256" in header


# --- Pieces

CALL = "tcgen05::update(acc, acc_tmem, [&]"
IN_PIECES = {
    "a statement": ("for (int i = 0; i < 8; ++i) acc[i] *= scale[k];", "(int i) { acc[i] *= scale[k]; });"),
    "a block": ("for (int i = 0; i < 8; ++i) { acc[i] *= scale[i]; }", "(int i) { acc[i] *= scale[i]; });"),
    "several statements": (
        "for (unsigned i = 0; i != 8; i++) { float x = acc[i] + 1.f; acc[ i ] = x * scale[i / 2]; }",
        "(unsigned i) { float x = acc[i] + 1.f; acc[ i ] = x * scale[i / 2]; });",
    ),
    "a pragma": (
        "\n#pragma unroll\n            for (int i = 0; i < 8; i += 1) acc[i] = acc[i] * 2.f;\n",
        "(int i) { acc[i] = acc[i] * 2.f; });",
    ),
    "a conditional": (
        "for (int i = 0; i < 8; ++i) { if (i % 2) acc[i] = 0; else acc[i] += k; }",
        "(int i) { if (i % 2) acc[i] = 0; else acc[i] += k; });",
    ),
    "an inner loop": (
        "for (int i = 0; i < 8; ++i) { for (int j = 0; j < 2; ++j) acc[i] *= scale[j]; }",
        "(int i) { for (int j = 0; j < 2; ++j) acc[i] *= scale[j]; });",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PIECES)
def test_sums_that_change_one_by_one_move_in_pieces(tmp_path: Path, name: str) -> None:
    change, expected = IN_PIECES[name]
    text = taken(ported(tmp_path, CHANGE=change), "blocks")
    assert CALL + expected in text
    assert "store(acc" not in text
    assert text.count("load(acc") == 1
    assert "#pragma" not in text.split(CALL)[0].rsplit("wait(0)", 1)[-1]


WHOLE = {
    "a neighbour": "for (int i = 0; i < 8; ++i) acc[i] += acc[i ^ 1];",
    "half of them": "for (int i = 0; i < 4; ++i) acc[i] *= scale[k];",
    "every other one": "for (int i = 0; i < 8; i += 2) acc[i] *= scale[k];",
    "the last one first": "for (int i = 7; i >= 0; --i) acc[i] *= scale[k];",
    "one that starts later": "for (int i = 1; i < 8; ++i) acc[i] *= scale[k];",
    "a way out": "for (int i = 0; i < 8; ++i) { if (i == steps) break; acc[i] *= scale[k]; }",
    "a turn that is skipped": "for (int i = 0; i < 8; ++i) { if (i == steps) continue; acc[i] *= scale[k]; }",
    "an index that changes": "for (int i = 0; i < 8; ++i) { acc[i] *= scale[k]; i += steps > 8; }",
    "an index beside it": "for (int i = 0; i < 8; ++i) { int j = i; acc[j] *= scale[k]; }",
    "two loops": "{ for (int i = 0; i < 8; ++i) acc[i] *= scale[k]; for (int i = 0; i < 8; ++i) acc[i] += 1; }",
    "one by one": " ".join(f"acc[{i}] *= 2;" for i in range(8)),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_others_move_whole(tmp_path: Path, name: str) -> None:
    """The step is taken; what is not known to be in pieces is loaded and stored as it was."""
    result = ported(tmp_path, CHANGE=WHOLE[name])
    text = text_of(result)
    assert "update(acc" not in text
    assert "load(acc" in text
    assert WHOLE[name].split("; ")[0].rstrip(";") in text


def test_two_sums_that_one_loop_changes_move_whole(tmp_path: Path) -> None:
    result = ported(
        tmp_path,
        RAISE=DEFAULTS["RAISE"] + " float two[8] = {};",
        CHANGE="fence(); wgmma_m64n16k16(two, a, b); commit(); drain<0>();"
        " for (int i = 0; i < 8; ++i) { acc[i] *= scale[k]; two[i] *= scale[k]; }"
        " if (k == steps) for (int i = 0; i < 8; ++i) out[i] = two[i];",
    )
    assert "update(" not in text_of(result)
