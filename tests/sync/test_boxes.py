# SPDX-License-Identifier: Apache-2.0
"""Bytes that copies of tensor maps move: by gather4 and im2col, with element strides and padding, from a parameter."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, number, wait

from porter.facts.launched import GLOBAL
from porter.facts.tensor_maps import box_of
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sync.checked import Verdict

TILED = TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, 64), (128,), (32, 8))
ROW = TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, 64), (128,), (32, 1))
PIXELS = TensorMap(
    TensorMapType.FLOAT16, GLOBAL, (64, 8, 8, 2), (128, 1024, 8192), (32, 16), lower=(-1, -1), upper=(-1, -1)
)  # fmt: skip
STRIDED = TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, 64), (128,), (32, 8), (1, 2))
PADDED = TensorMap(TensorMapType.U4_ALIGN16B, GLOBAL, (128, 64), (128,), (128, 8))
COPY = (
    "cp.async.bulk.tensor.{dim}.shared::cta.global.{mode}.mbarrier::complete_tx::bytes [%r2], [%d0, {at}], [%r1]{more};"
)


def loaded(tensor_map: TensorMap, dim: str, mode: str, at: str, nbytes: int, more: str = "") -> Verdict:
    copy = COPY.format(dim=dim, mode=mode, at=at, more=more)
    body = (
        f"ld.param.u64 %d0, [map];\nmov.u32 %r4, 0;\nmov.b16 %h0, 0;\n@!%p0 bra W;\n"
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};\n{copy}\n" + wait("%r1", "0", "W")
    )
    found = checked(body, parameters=number("map", GLOBAL, "u64", 8), maps={GLOBAL: tensor_map.encode()})
    assert not found.unknown, found.unknown
    return found.verdict


CASES = {
    "tiled": (TILED, "2d", "tile", "{%r4, %r4}", 32 * 8 * 2, ""),
    "four rows": (ROW, "2d", "tile::gather4", "{%r4, %r4, %r4, %r4, %r4}", 4 * 32 * 2, ""),
    "pixels": (PIXELS, "4d", "im2col", "{%r4, %r4, %r4, %r4}", 32 * 16 * 2, ", {%h0, %h0}"),
    "every second row": (STRIDED, "2d", "tile", "{%r4, %r4}", 32 * 4 * 2, ""),
    "padded": (PADDED, "2d", "tile", "{%r4, %r4}", 128 * 8 // 2, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_that_are_counted(name: str) -> None:
    tensor_map, dim, mode, at, nbytes, more = CASES[name]
    assert loaded(tensor_map, dim, mode, at, nbytes, more) is Verdict.CLEAN
    assert loaded(tensor_map, dim, mode, at, nbytes + 16, more) is Verdict.ERROR
    assert loaded(tensor_map, dim, mode, at, nbytes - 16, more) is Verdict.ERROR


def test_padding_takes_shared_memory() -> None:
    assert box_of(PADDED.encode(), "tile") == (512, 1024)


@pytest.mark.parametrize(("tensor_map", "mode"), [(TILED, "tile::gather4"), (TILED, "im2col"), (PIXELS, "tile")])
def test_a_map_of_another_mode(tensor_map: TensorMap, mode: str) -> None:
    with pytest.raises(ValueError, match="a tensor map"):
        box_of(tensor_map.encode(), mode)


# A map that stands in a parameter is copied to global memory by 64 of its bytes, and used there.
OWN = """mov.b64 %d0, map;
ld.param.v2.b64 {%d1, %d2}, [map];
ld.param.u64 %d3, [place];
@%p0 st.global.v2.b64 [%d3], {%d1, %d2};
ld.param.v2.b64 {%d1, %d2}, [map+16];
@%p0 st.global.v2.b64 [%d3+16], {%d1, %d2};
ld.param.v2.b64 {%d1, %d2}, [map+32];
@%p0 st.global.v2.b64 [%d3+32], {%d1, %d2};
ld.param.v2.b64 {%d1, %d2}, [map+48];
@%p0 st.global.v2.b64 [%d3+48], {%d1, %d2};
CHANGE
@%p0 fence.proxy.tensormap::generic.release.gpu;
@%p0 fence.proxy.tensormap::generic.acquire.gpu [%d3], 128;
mov.u32 %r4, 0;
@!%p0 bra W;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], [%d3, {%r4, %r4}], [%r1];
"""


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ("", Verdict.CLEAN),
        ("@%p0 tensormap.replace.tile.box_dim.global.b1024.b32 [%d3], 0, 16;", Verdict.ERROR),
        ("ld.global.u64 %d1, [%d3+512];\n@%p0 st.global.u64 [%d3+56], %d1;", Verdict.UNKNOWN),
    ],
)
def test_a_map_of_a_parameter_that_is_copied(change: str, verdict: Verdict) -> None:
    parameters = {"map": (".param .align 64 .b8 map[128]", TILED.encode())} | number("place", GLOBAL + 4096, "u64", 8)
    found = checked(OWN.replace("CHANGE", change) + wait("%r1", "0", "W"), parameters=parameters)
    assert found.verdict is verdict
    assert errors(found) == ({"deadlock"} if verdict is Verdict.ERROR else set())
