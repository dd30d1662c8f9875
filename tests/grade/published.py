# SPDX-License-Identifier: Apache-2.0
"""The model against published measurements: rates of single MMAs, main loops, and series of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from porter.grade.calibration import Point
from porter.grade.chips import chip_of, read, values
from porter.grade.clocks import clocks, interval
from porter.grade.model import run
from porter.grade.schedule import schedule
from porter.grade.shape import Epilogue, Mma, Problem, Residency, Shape, Work
from porter.ptx.arch import SM100A, WARP
from porter.ptx.umma import DENSE_K, K_BYTES, Kind

BIG_STEP = 1.15
"""A step whose measured rates differ by more than this factor has to be seen."""

_TIE = 1.001
"""Predictions nearer to each other than this factor are in no order."""


_FORMATS = {"BF16": Kind.F16, "E4M3": Kind.F8F6F4, "S8": Kind.I8, "F4": Kind.F8F6F4, "MXF8": Kind.MXF8F6F4,
            "MXF4": Kind.MXF4}  # fmt: skip


def mma_points(rows: Iterable[Mapping[str, str]]) -> list[Point]:
    """Clocks per MMA; rows with the columns of SemiAnalysis' `tput_results_max.csv`."""
    found = []
    for row in rows:
        m, n, group, where = int(row["M"]), int(row["N"]), int(row["CTAGroup"]), row["ABLayout"]
        mma = Mma(m, n, _FORMATS[row["Format"]], group, "tensor" if where == "TS" else "shared")
        name = f"{row['Format']} {where} {m} x {n} cta_group::{group}"
        found.append(
            Point("SemiAnalysis umma_throughput", name, float(row["CyclesPerMMA"]), interval(mma), _is_bf16(row))
        )
    return found


def _is_bf16(row: Mapping[str, str]) -> bool:
    return (row.get("Format") or row.get("dtype")) == "BF16"


def recorded_mma() -> list[Point]:
    """Those of `data/measured.yaml`."""
    given = read("measured")["umma"]
    found = []
    for row in given["rows"]:
        for n, taken in zip(given["n"], row["clocks"], strict=True):
            mma = Mma(row["m"], n, Kind.F16, row["group"], row["a"])
            name = f"BF16 {row['m']} x {n} cta_group::{row['group']}, A in {row['a']} memory"
            found.append(Point("SemiAnalysis umma_throughput", name, taken, interval(mma), True))
    return found


def recorded_mainloop() -> list[Point]:
    """Those of `data/measured.yaml`, % of an SM's peak."""
    found = []
    for row in read("measured")["mainloop"]:
        m, n = row["tile"]
        for stages, percent in enumerate(row["percent"], 2):
            peak = 2 * m * n * 64 / _MMA_CLOCKS
            predicted = 100 * peak / mainloop(m, n, Kind.F16, stages, _LENGTH)
            found.append(Point("SemiAnalysis cutlass_gemm_mainloop", f"BF16 {m} x {n}, {stages} stages",
                               percent, predicted, True))  # fmt: skip
    return found


_MAINLOOP_GHZ = 1.3
_LENGTH = 131072
_MMA_CLOCKS = 8192


def mainloop_points(rows: Iterable[Mapping[str, str]]) -> list[Point]:
    """Clocks per stage of one block that multiplies 128-byte stages of one long K; rows with the columns of
    SemiAnalysis' `results.csv`. Others of its rows are left out."""
    found = []
    for row in rows:
        if row["dtype"] not in ("BF16", "FP8_E4M3") or row["STAGES"] == "0":
            continue
        kind = Kind.F16 if row["dtype"] == "BF16" else Kind.F8F6F4
        per_mma = DENSE_K[kind]
        m, n, k, length, stages = (int(row[x]) for x in ("TILE_M", "TILE_N", "TILE_K", "K", "STAGES"))
        if k * K_BYTES // per_mma != 128:
            continue
        measured = float(row["time_ms"]) * 1e6 * _MAINLOOP_GHZ / (length / k)
        predicted = mainloop(m, n, kind, stages, length)
        found.append(Point("SemiAnalysis cutlass_gemm_mainloop", f"{row['dtype']} {m} x {n}, {stages} stages",
                           measured, predicted, _is_bf16(row)))  # fmt: skip
    return found


def mainloop(m: int, n: int, kind: Kind, stages: int, length: int) -> float:
    """Clocks per stage of 128 bytes of K at 1.3 GHz, of one block on an otherwise idle chip."""
    chip = chip_of(SM100A.name)
    assert chip is not None
    shape = Shape(SM100A.name, ((Mma(m, n, kind), 4),), m, n, (m + n) * 128, stages, "specialized")
    far = _operand_bytes(m, n, kind, length) > _cliff()
    c = replace(clocks(shape, replace(chip, clock_ghz=_MAINLOOP_GHZ), far), fill=0.0, drain=0.0)
    short = 64
    ends = [schedule(shape, c, steps, 1, 1, stages).end for steps in (short, 2 * short)]
    return (ends[1] - ends[0]) / short


def _operand_bytes(m: int, n: int, kind: Kind, length: int) -> float:
    return (m + n) * length * K_BYTES / DENSE_K[kind]


def _cliff() -> float:
    return values()["l2_cliff_bytes"]


@dataclass(frozen=True)
class Rung:
    """One kernel of a published series: its shape, the measured % of nominal, and what no source states of it."""

    name: str
    shape: Shape
    measured: float
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Ladder:
    name: str
    repository: str
    problem: Problem
    rungs: tuple[Rung, ...]


def _rung(given: Mapping[str, Any]) -> Rung:
    m, n, k = given["tile"]
    group = given.get("group", 1)
    mma = Mma(min(m, 128 * group), min(n, 256), Kind.F16, group)
    count = (m // mma.m) * (n // mma.n) * (k // DENSE_K[Kind.F16])
    nbytes = (m + n) // group * k * 2
    assumed = tuple(given.get("assumed", ()))
    epilogue = Epilogue(2, given["store"], given.get("pieces", 1), given.get("overlapped", False))
    shape = Shape(SM100A.name, ((mma, count),), m, n, nbytes, given["stages"], given["roles"],
                  given.get("row_bytes", 128), given.get("waits_each", False), 1, group,
                  given.get("persistent", False), epilogue=epilogue,
                  residency=Residency(given["stages"] * nbytes, given["tmem"], 128), assumed=assumed)  # fmt: skip
    return Rung(given["name"], shape, float(given["rate"]), assumed)


def ladders(which: str = "ladders") -> list[Ladder]:
    """Published series of kernels; `further` are those that were looked at when the constants stood already."""
    return [
        Ladder(one["name"], one["repository"], Problem(*one["problem"]), tuple(_rung(r) for r in one["rungs"]))
        for one in read("ladders")[which]
    ]


_D = 128
"""Elements of a head."""


def attention_points() -> list[tuple[str, str, list[Point], list[tuple[str, ...]]]]:
    """Kernels for attention that were published with their rates: name, repository, % of nominal, what no source states
    of each."""
    found = []
    for one in read("ladders")["attention"]:
        chip = chip_of(one["arch"])
        assert chip is not None
        rates = [100 * run(attention(given, one["arch"]), chip, None).rate for given in one["rungs"]]
        points = [Point(one["repository"], f"{one['name']} {given['name']}", float(given["rate"]), rate)
                  for given, rate in zip(one["rungs"], rates, strict=True)]  # fmt: skip
        found.append((one["name"], one["repository"], points, [tuple(g["assumed"]) for g in one["rungs"]]))
    return found


def attention(given: Mapping[str, Any], arch: str) -> Shape:
    """S = Q K^T, the softmax of S, and O += P V, of one block and one block of keys. On Hopper P is in registers, on
    Blackwell in Tensor Memory."""
    wgmma = arch == "sm_90a"
    m = 64 if wgmma else 128
    queries, keys = given["queries"], given["keys"]
    tiles, per_mma = queries // m, DENSE_K[Kind.F16]
    p: Literal["registers", "tensor"] = "registers" if wgmma else "tensor"
    mmas = (
        (Mma(m, keys, Kind.F16, wgmma=wgmma), tiles * _D // per_mma),
        (Mma(m, _D, Kind.F16, a=p, wgmma=wgmma), tiles * keys // per_mma),
    )
    scores = queries * keys
    work = Work(
        round(scores / WARP * given["per_element"]), round(scores * given.get("by_mufu", 1)), not given["ahead"]
    )
    return Shape(arch, mmas, None, None, 2 * keys * _D * 2, given["stages"], given["roles"], K_BYTES * 4,
                 False, given["issuers"], in_turns=given["in_turns"], work=work)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two rungs of one ladder, the slower first by measurement. `right`: the model says so too."""

    ladder: str
    slower: str
    faster: str
    factor: float
    right: bool


def ladder_points(ladder: Ladder) -> list[Point]:
    """% of nominal, uncapped."""
    chip = chip_of(SM100A.name)
    assert chip is not None
    return [
        Point(ladder.repository, f"{ladder.name} {r.name}", r.measured, 100 * run(r.shape, chip, ladder.problem).rate)
        for r in ladder.rungs
    ]


def pairs(ladder: Ladder, points: Sequence[Point]) -> list[Pair]:
    """All pairs of rungs of a ladder."""
    found = []
    for a, b in itertools.combinations(points, 2):
        slow, fast = sorted((a, b), key=lambda p: p.measured)
        found.append(Pair(ladder.name, slow.name, fast.name, fast.measured / slow.measured,
                          slow.predicted * _TIE < fast.predicted))  # fmt: skip
    return found
