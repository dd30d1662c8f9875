# SPDX-License-Identifier: Apache-2.0
"""Forms that compilers write and people do not: addresses of parameters in 32 bits, tensor maps that begin as zeros,
vectors of one element, and one value stored to one word by many warps."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.ptx.parser import parse_module
from porter.ptx.table import decode
from porter.ptx.tensormap import TensorMap, replaced

LAUNCH = """version: 1
ptx: k.ptx
entry: k
launch: {{grid: [{grid}], block: [{threads}]{cluster}}}
tensors:
{tensors}
params: [{params}]
"""
HEADER = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k({params})
.reqntid {threads}
{{
.reg .b32 %r<12>; .reg .b64 %d<12>; .reg .pred %p<4>; .reg .b16 %h<4>;
.shared .align 128 .b8 map[128]; .shared .align 128 .b8 buf[1024]; .shared .align 8 .b8 bar[8];
.shared .align 8 .b8 word[256];
mov.b32 %r0, %tid.x; setp.ne.s32 %p1, %r0, 0;
"""


def said(
    folder: Path, body: str, tensors: str, params: str = "C", of: str = ".param .u64 c", threads: int = 32, *words: str
) -> tuple[int, str]:
    """What `porter hazards` says of a kernel, with its exit code."""
    (folder / "k.ptx").write_text(HEADER.format(params=of, threads=threads) + body + "ret;\n}\n")
    launch = LAUNCH.format(grid=1, threads=threads, cluster="", tensors=tensors, params=params)
    (folder / "launch.yaml").write_text(launch)
    done = CliRunner().invoke(main, ["hazards", *words, "--launch", str(folder / "launch.yaml")])
    return done.exit_code, done.output


# Addresses of parameters ----------------------------------------------------------------------------------

COPY = """@%p1 bra $E;
mov.b32 %r2, bar; mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
fence.proxy.async.shared::cta;
{address}
mov.b32 %r4, buf; mov.b32 %r5, 0;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%d2, {{%r5, %r5}}], [%r2];
$W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
@!%p2 bra $W;
ld.shared.b32 %r6, [%r4]; ld.param.b64 %d3, [c]; st.global.b32 [%d3], %r6;
$E:
"""
MAPPED = """  A: {dtype: f32, shape: [8, 32], init: 3}
  C: {dtype: f32, shape: [1], init: 0}
tensor_maps:
  ma: {tensor: A, box: [8, 32]}"""
OF_MAP = ".param .align 64 .b8 m[128], .param .u64 c"


@pytest.mark.parametrize("prove", [False, True])
@pytest.mark.parametrize(
    "address",
    [
        "mov.b32 %r3, m; cvt.u64.u32 %d1, %r3; cvta.param.u64 %d2, %d1;",
        "mov.b64 %d1, m; cvta.param.u64 %d2, %d1;",
        "mov.b64 %d1, m; cvt.u32.u64 %r3, %d1; cvt.u64.u32 %d1, %r3; cvta.param.u64 %d2, %d1;",
        "cvta.param.u64 %d2, m;",
        "mov.u64 %d2, m;",
        "mov.b32 %r3, m; mov.b32 %r7, 0; mov.b64 %d1, {%r3, %r7}; cvta.param.u64 %d2, %d1;",
    ],
)
def test_a_map_among_the_parameters(tmp_path: Path, address: str, prove: bool) -> None:
    words = ("--prove",) if prove else ()
    code, text = said(tmp_path, COPY.format(address=address), MAPPED, "ma, C", OF_MAP, 32, *words)
    assert code == 0, text
    assert ("proved" if prove else "clean") in text


# Tensor maps that begin as zeros --------------------------------------------------------------------------

FIELDS = (
    ("global_address", 4096, 0), ("rank", 1, 0), ("box_dim", 32, 0), ("box_dim", 8, 1), ("global_dim", 32, 0),
    ("global_dim", 8, 1), ("global_stride", 128, 0), ("element_stride", 1, 0), ("element_stride", 1, 1),
    ("elemtype", 7, 0), ("swizzle_mode", 3, 0),
)  # fmt: skip


def test_zeros_are_a_map_that_is_begun() -> None:
    data = bytes(128)
    for name, value, ordinal in FIELDS:
        data = replaced(data, name, value, ordinal)
    found = TensorMap.decode(data)
    assert (found.sizes, found.box, found.strides, found.address) == ((32, 8), (32, 8), (128,), 4096)


@pytest.mark.parametrize("data", [b"\1" + bytes(127), bytes(127) + b"\1", bytes(64)])
def test_other_bytes_are_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="hold no tensor map"):
        replaced(data, "rank", 1)


@pytest.mark.parametrize("left_out", ["rank"])
def test_a_map_that_is_not_complete_is_none(left_out: str) -> None:
    data = bytes(128)
    for name, value, ordinal in FIELDS:
        data = data if name == left_out else replaced(data, name, value, ordinal)
    with pytest.raises(ValueError, match="rank 0"):
        TensorMap.decode(data)


# Vectors of one element -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ld.global.b8 { %h1 }, [%d1];", "ld.global.b8 %h1, [%d1];"),
        ("st.global.b32 [%d1], {%r1};", "st.global.b32 [%d1], %r1;"),
        ("ld.shared.b32 {%r1}, [%r2];", "ld.shared.b32 %r1, [%r2];"),
        ("@%p1 st.shared.b16 [%r2], { %h1 };", "@%p1 st.shared.b16 [%r2], %h1;"),
    ],
)
def test_one_element_in_braces(written: str, meant: str) -> None:
    one, other = (
        decode(parse_module(HEADER.format(params="", threads=32) + text + "ret;\n}\n").functions[0].body[-2])
        for text in (written, meant)
    )
    assert (one.form, one.operands, one.writes, one.uses) == (other.form, other.operands, other.writes, other.uses)


def test_a_vector_of_one_that_is_asked_for_stays() -> None:
    text = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];"
    module = parse_module(HEADER.format(params="", threads=32) + text + "ret;\n}\n")
    assert decode(module.functions[0].body[-2]).writes == ("%r1",)


# One value, one word --------------------------------------------------------------------------------------

READ = """bar.sync 0;
ld.shared.b32 %r1, [word]; ld.param.b64 %d1, [c]; mad.wide.u32 %d2, %r0, 4, %d1; st.global.b32 [%d2], %r1;
"""
OUT = "  C: {dtype: u32, shape: [128], init: 0}"
EQUAL = {
    "a constant": "st.shared.b32 [word], 33554689;",
    "a pair": "mov.b32 %r5, 7; mov.b32 %r6, 9; st.shared.v2.b32 [word], {%r5, %r6};",
    "twice": "st.shared.b32 [word], 5; st.shared.b32 [word], 5;",
    "by one lane of each": "and.b32 %r5, %r0, 31; setp.eq.s32 %p2, %r5, 0; @%p2 st.shared.b32 [word], 5;",
    "by turns": "shr.u32 %r5, %r0, 5; setp.eq.s32 %p2, %r5, 2; @%p2 st.shared.b32 [word], 5; st.shared.b32 [word], 5;",
}
OTHER = {
    "the warp": "shr.u32 %r5, %r0, 5; st.shared.b32 [word], %r5;",
    "half of a pair": "mov.b32 %r5, 7; shr.u32 %r6, %r0, 5; st.shared.v2.b32 [word], {%r5, %r6};",
    "one and another": "shr.u32 %r5, %r0, 5; st.shared.b32 [word], 5; setp.eq.s32 %p2, %r5, 2; "
    "@%p2 st.shared.b32 [word], 6;",
    "the last": "setp.eq.s32 %p2, %r0, 127; selp.b32 %r5, 1, 2, %p2; st.shared.b32 [word], %r5;",
}  # fmt: skip


@pytest.mark.parametrize("store", EQUAL)
def test_one_value_by_all_warps_is_to_review(tmp_path: Path, store: str) -> None:
    code, text = said(tmp_path, EQUAL[store] + READ, OUT, threads=128)
    assert code == 0, text
    assert "shared-flag" in text
    assert "0 errors" in text
    assert said(tmp_path, EQUAL[store] + READ, OUT, "C", ".param .u64 c", 128, "--level", "strict")[0] == 5


@pytest.mark.parametrize("store", OTHER)
def test_values_that_differ_are_an_error(tmp_path: Path, store: str) -> None:
    code, text = said(tmp_path, OTHER[store] + READ, OUT, threads=128)
    assert code == 5, text
    assert "G1" in text
