# SPDX-License-Identifier: Apache-2.0
"""Which tile of an accumulator a register is of: kernels whose one warpgroup has two tiles, which M=128 MMAs make
together, may take elements of all tiles alike, by rows that a tiled MMA is asked for. What else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_full_rate_tiled import missing, ported
from test_full_rate_tiled_stacked import alone

TILES = "using Tiles = Layout<Shape<_1, _1, _1>>; "
ROWS = "Tensor cC = thr.partition_C(make_identity_tensor(Shape<_128, _64>{})); "
EACH = "for (int i = 0; i < size(acc); ++i) "
TILE = "for (int m = 0; m < size<1>(acc); ++m) "
OF_TILE = TILE + "for (int i = 0; i < size<0>(acc); ++i) for (int n = 0; n < size<2>(acc); ++n) "
STAGED = (
    "Tensor half = make_fragment_like<half_t>(acc); for (int i = 0; i < size(half); ++i) half(i) = half_t(acc(i)); "
)
STORED = "auto threads = copy_c.get_slice(threadIdx.x); copy(copy_c, threads.retile_S(half), threads.partition_D(sA));"

TAKEN = {
    "rows by coordinates": {"AFTER": ROWS + EACH + "acc(i) *= out[get<0>(cC(i))];"},
    "rows of each tile": {"AFTER": ROWS + OF_TILE + "acc(i, m, n) *= out[get<0>(cC(i, m, n))];"},
    "tile by tile": {"AFTER": "Tensor tC = thr.partition_C(mC); " + TILE + "copy(acc(_, m, _), tC(_, m, _));"},
    "converted": {"AFTER": STAGED + "copy(half, thr.partition_C(mC));"},
    "through shared memory": {"AFTER": STAGED + "auto copy_c = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}"
                                                ", mma); " + STORED},
    "pairs": {"AFTER": "for (int i = 0; i < size(acc); i += 2) { float x = acc(i); acc(i) = x + acc(i + 1); }"},
    "halves of pairs": {"AFTER": "for (int i = 0; i < size(acc) / 2; ++i) acc(2 * i) += acc(2 * i + 1);"},
    "named bound": {"AFTER": "for (int i = 0, e = size(acc); i < e; ++i) acc[i] *= 2;"},
    "predicates": {"AFTER": ROWS + "Tensor in = make_tensor<bool>(shape(acc)); for (int i = 0; i < size(in); ++i) "
                                   "in(i) = elem_less(cC(i), make_coord(rows, n)); "
                                   "copy_if(in, acc, thr.partition_C(mC));"},
    "sum": {"AFTER": "float sum = 0; " + EACH + "{ float x = acc(i); sum += x * x; } atomicAdd(out, sum);"},
    "slots": {"AFTER": "float most[4]; for (int m = 0; m < 4; ++m) most[m] = 0; "
                       + OF_TILE + "most[m] = max(most[m], acc(i, m, n)); " + OF_TILE + "acc(i, m, n) -= most[m];"},
    "another shape": {"AFTER": "Tensor flat = make_tensor(acc.data(), flatten(acc.layout())); "
                               "for (int i = 0; i < size(flat); ++i) flat(i) *= 2;"},
    "helper": {"HEAD": TILES + "template <class T> __device__ void relu(T& t) "
                               "{ for (int i = 0; i < size(t); ++i) t(i) = max(t(i), 0.f); }", "AFTER": "relu(acc);"},
    "bias": {"AFTER": "Tensor tC = thr.partition_C(mC); Tensor bias = make_fragment_like(tC); copy(tC, bias); "
                      + EACH + "acc(i) += bias(i);"},
    "scaled": {"AFTER": "float alpha = 2; axpby(alpha, acc, 1.f, thr.partition_C(mC));"},
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_elements_of_all_tiles_alike_are_taken(tmp_path: Path, name: str) -> None:
    result = alone(tmp_path, **TAKEN[name])
    assert missing(result) == []
    assert [p.mma_rows for p in result.plans] == [128]


DEPENDS = "depends on a tile of an accumulator"
PICKS = "picks elements"
BESIDE = "beside those of an accumulator is not known"
PARTLY = "may be a part of an accumulator"
LEFT = {
    "scale of a tile": ({"AFTER": OF_TILE + "acc(i, m, n) *= out[m];"}, DEPENDS),
    "rows by hand": ({"AFTER": ROWS + OF_TILE + "acc(i, m, n) *= out[get<0>(cC(i, 0, n)) + 64 * m];"}, DEPENDS),
    "rows of the other tile": ({"AFTER": ROWS + OF_TILE + "acc(i, m, n) *= out[get<0>(cC(i, 1, n))];"},
                               "is of the same rows for all tiles"),
    "second tile if there are rows": (
        {"AFTER": "Tensor tC = thr.partition_C(mC); if (rows > 64) copy(acc(_, _1{}, _), tC(_, _1{}, _));"}, PICKS),
    "one element": ({"AFTER": "acc(0, 1, 0) = 2;"}, PICKS),
    "half of them": ({"AFTER": "for (int i = 0; i < size(acc) / 2; ++i) acc(i) *= 2;"}, PICKS),
    "half, by number": ({"AFTER": "for (int i = 0; i < 32; ++i) acc(i) *= 2;"}, PICKS),
    "from the middle": ({"AFTER": "for (int i = 32; i < size(acc); ++i) acc(i) *= 2;"}, PICKS),
    "half, by a branch": ({"AFTER": EACH + "if (i < 32) acc(i) *= 2;"}, DEPENDS),
    "tiles with each other": ({"AFTER": "for (int i = 0; i < size(acc) / 2; ++i) acc(i) += acc(i + 32);"}, PICKS),
    "sum of a tile": ({"AFTER": TILE + "{ float sum = 0; for (int i = 0; i < size<0>(acc); ++i) sum += acc(i, m, 0); "
                                       "atomicAdd(&out[m], sum); }"}, DEPENDS),
    "helper": ({"HEAD": TILES + "template <class T> __device__ void by(T& t, float s, int m) { t(0, m, 0) *= s; }",
                "AFTER": "by(acc, out[0], 0); by(acc, out[64], 1);"}, PICKS),
    "lambda": ({"AFTER": "auto by = [&](int m) { acc(0, m, 0) *= out[m]; }; by(0); by(1);"}, PICKS),
    "slots that are loaded": ({"AFTER": "float s[2]; for (int m = 0; m < 2; ++m) s[m] = out[64 * m]; "
                                        + OF_TILE + "acc(i, m, n) *= s[m];"}, DEPENDS),
    "slots one by one": ({"AFTER": "float s[2]; s[0] = out[0]; s[1] = out[64]; " + OF_TILE + "acc(i, m, n) *= s[m];"},
                         PICKS),
    "slots in a list": ({"AFTER": "float s[2] = {out[0], out[64]}; " + OF_TILE + "acc(i, m, n) *= s[m];"},
                        "has other values for the tiles"),
    "slots by a copy": ({"AFTER": "Tensor s = make_tensor<float>(Shape<_2>{}); "
                                  "Tensor g = make_tensor(make_gmem_ptr(out), Layout<_2>{}); copy(g, s); "
                                  + OF_TILE + "acc(i, m, n) *= s(m);"}, BESIDE),
    "slots of an object": ({"HEAD": TILES + "struct Scale { float s[2]; };", "ROLE": "Scale own;",
                            "AFTER": OF_TILE + "acc(i, m, n) *= own.s[m];"}, DEPENDS),
    "place that moves": ({"AFTER": "int at = 0; " + TILE + "{ for (int i = 0; i < size<0>(acc); ++i) acc(i, m, 0) *= "
                                   "out[at]; at += 64; }"}, "another value for the next tile"),
    "sums so far": ({"AFTER": "float sum = 0; " + EACH + "{ sum += acc(i); acc(i) = sum; }"},
                    "another value for the next tile"),
    "last one": ({"AFTER": "float last = 0; " + EACH + "last = acc(i); out[0] = last;"},
                 "another value for the next tile"),
    "first ones": ({"AFTER": EACH + "{ if (acc(i) > 3) break; acc(i) = 0; }"}, "leaves out elements"),
    "view of a tile": ({"AFTER": "Tensor low = acc(_, 0, _); for (int i = 0; i < size(low); ++i) low(i) *= 2;"}, PICKS),
    "rows of the result by tiles": (
        {"AFTER": TILE + "copy(acc(_, m, _), thr.partition_C(local_tile(mC, Shape<_64, _64>{}, make_coord(m, 0))));"},
        DEPENDS),
    "pointer": ({"AFTER": "float* p = acc.data(); p += 32; for (int i = 0; i < size(acc); ++i) p[i] *= 2;"},
                "may lead to one tile"),
    "layout of its own": ({"AFTER": "Tensor low = make_tensor(acc.data(), Layout<_32>{}); "
                                    "for (int i = 0; i < size(low); ++i) low(i) *= 2;"}, PARTLY),
    "part": ({"AFTER": "auto low = local_tile(acc, Shape<_4, _1, _8>{}, make_coord(0, 1, 0));"}, PARTLY),
    "unknown function": ({"AFTER": "auto low = composition(acc, Layout<_32>{});"}, PARTLY),
    "macro": ({"HEAD": TILES + "\n#define UPPER acc(33)\n", "AFTER": "UPPER = 2;"}, "is a macro"),
    "macro that is handed them": ({"HEAD": TILES + "\n#define UPPER(t) t(33)\n", "AFTER": "UPPER(acc) = 2;"},
                                  "is a macro"),
    "copy with rows of its own": (
        {"AFTER": STAGED + "auto copy_c = make_tiled_copy(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, Layout<_128>{}, "
                           "Layout<_4>{}); " + STORED}, BESIDE),
    "copy to memory": ({"AFTER": "copy(acc, mC);"}, BESIDE),
    "thread of a number": ({"AFTER": "if (cute::thread(64)) out[0] = 1;"}, "tells which thread this is"),
    "thread of a block": ({"AFTER": "if (thread(64, 0)) out[0] = 1;"}, "tells which thread this is"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_depends_on_a_tile_is_named(tmp_path: Path, name: str) -> None:
    parts, what = LEFT[name]
    result = alone(tmp_path, **parts)
    assert any(what in m for m in missing(result)), missing(result)
    assert [p.mma_rows for p in result.plans] == [64]


def test_the_thread_of_a_number_is_another_one_in_two_warpgroups(tmp_path: Path) -> None:
    result = ported(tmp_path, AFTER="if (cute::thread(160)) out[0] = acc(0);")
    assert missing(result) == ["`thread` of a library tells which thread this is"]
    own = "__device__ bool thread(int i) { return threadIdx.x == i; }"
    assert missing(ported(tmp_path, HEAD=own, AFTER="if (thread(160)) out[0] = acc(0);")) == []
