# SPDX-License-Identifier: Apache-2.0
"""The grade of a shape: % of a chip's nominal rate, and which part of the kernel holds it there.

A part's weight is what the kernel would gain if that part took no time, everything else as it is. Ranks inside one
family of kernels and the limiting part can be trusted, absolute rates not: see docs/grade.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from porter.grade.changes import changes
from porter.grade.chips import Chip, calibrated, chip_of, values
from porter.grade.clocks import Clocks, Term, clocks, resident
from porter.grade.schedule import Schedule, schedule
from porter.grade.shape import Problem, Shape
from porter.ptx.umma import K_BYTES

STANDARD = Problem(4096, 4096, 4096)
"""The problem that published figures share."""

_STEPS = 96
"""Stages of a tile that are put in time; a longer tile goes on as the last of them do."""

_TILES = 3
_NOTHING = 0.005
"""A gain below this share is none."""

_OF_EPILOGUE = ("uncoalesced access", "bank conflicts")
_MOST = 0.4
"""What makes up this share of an epilogue's cost is named in its place."""

_BLAMED = 0.1
"""A part whose time costs more than this share is to blame."""


@dataclass(frozen=True)
class Run:
    """One problem on the chip: `clocks` in all, `tile_clocks` for one tile of a block in the middle, `stage_clocks`
    for one stage; `rate` as a share of the nominal one."""

    clocks: float
    tile_clocks: float
    stage_clocks: float
    rate: float
    waves: float


@dataclass(frozen=True)
class Grade:
    """`rate` and `capped` are shares of the nominal rate, before and after what power allows; `terms` are gains without
    each part, largest first; `lifts` gains of changes to the kernel; `blocks` share an SM."""

    shape: Shape
    chip: Chip
    problem: Problem | None
    rate: float
    capped: float
    tile_clocks: float
    stage_clocks: float
    waves: float
    blocks: int
    limit: str
    terms: tuple[tuple[Term, float], ...]
    lifts: tuple[tuple[str, float], ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    """Those of a calibration that it was made with."""


def missing(shape: Shape) -> tuple[str, ...]:
    """What a grade needs and a shape has not, in words."""
    found = []
    if not shape.mmas:
        found.append("the shape of its MMAs")
    if shape.load_bytes is None:
        found.append("the bytes of a stage")
    if shape.stages is None:
        found.append("the number of stages")
    if shape.roles is None:
        found.append("which warp loads")
    if chip_of(shape.arch) is None:
        found.append(f"the rates of a chip that runs {shape.arch}")
    return tuple(found)


def _tiles(shape: Shape, problem: Problem, chip: Chip, blocks: int) -> tuple[int, float]:
    """Tiles of the busiest slot, and those that each would have if all had the same."""
    assert shape.tile_m is not None
    assert shape.tile_n is not None
    count = -(-problem.m // shape.tile_m) * -(-problem.n // shape.tile_n)
    slots = chip.sms // shape.cta_group * blocks
    return -(-count // slots), count / slots


def _far(shape: Shape, problem: Problem) -> bool:
    """Whether loads come from DRAM: the operands do not fit L2, and no other block loads the same."""
    tm, tn = shape.tile_m or 1, shape.tile_n or 1
    element = K_BYTES / (shape.mmas[0][0].operations / (2 * shape.mmas[0][0].m * shape.mmas[0][0].n))
    unique = (problem.m + problem.n) * problem.k * element
    loads = problem.m * problem.n * problem.k * (1 / tm + 1 / tn) * element
    return unique > values()["l2_cliff_bytes"] and loads < 2 * unique


def run(shape: Shape, chip: Chip, problem: Problem | None, without: Term | None = None) -> Run:
    """Put a problem in time, or, without one, a long loop over one tile.

    `without`: as if that part of the kernel took no time. Raises ValueError if the shape lacks what `missing` says.
    """
    if gaps := missing(shape):
        raise ValueError(f"not known: {', '.join(gaps)}")
    assert shape.stages is not None
    far = problem is not None and shape.is_product and _far(shape, problem)
    c = _spared(clocks(shape, chip, far), without)
    stages = 1 if shape.roles == "serial" else shape.stages
    blocks = resident(shape) + (1 if without == "occupancy" else 0)
    if problem is None or not shape.is_product:
        return _endless(shape, chip, c, stages, blocks)
    tiles, even = _tiles(shape, problem, chip, blocks)
    blocks = min(blocks, max(1, round(even * blocks + 0.5))) if tiles == 1 else blocks
    assert shape.tile_k is not None
    steps = -(-problem.k // shape.tile_k)
    total, tile, stage = _timed(shape, c, stages, blocks, steps, tiles)
    if without == "waves":
        total *= even / tiles
    seconds = total / chip.clock_ghz / 1e9
    if without != "HBM":
        seconds = max(seconds, _traffic(shape, problem) / (chip.hbm_tb_per_s * 1e12))
    operations = 2 * problem.m * problem.n * problem.k
    rate = operations / seconds / (chip.nominal_tflops(shape.mmas[0][0].speed) * 1e12)
    return Run(seconds * chip.clock_ghz * 1e9, tile, stage, rate, even)


def _timed(shape: Shape, c: Clocks, stages: int, blocks: int, steps: int, tiles: int) -> tuple[float, float, float]:
    """Clocks of all tiles, of one tile of a block, and of one stage."""
    few, shown = min(tiles, _TILES), min(steps, _STEPS)
    timed = schedule(shape, c, shown, few, blocks, stages)
    tile = _per_tile(timed, few)
    stage = _stage(shape, c, stages, blocks)
    beyond = (steps - shown) * stage * blocks
    return timed.end + (tiles - few) * tile + beyond * tiles, (tile + beyond) / blocks, stage


def product_clocks(shape: Shape, c: Clocks, blocks: int, steps: int) -> float:
    """Clocks of one tile of `steps` stages by each of `blocks` on an SM."""
    assert shape.stages is not None
    return _timed(shape, c, 1 if shape.roles == "serial" else shape.stages, blocks, steps, 1)[0]


def _per_tile(timed: Schedule, tiles: int) -> float:
    return timed.end if tiles == 1 else timed.tiles[-1] - timed.tiles[-2]


def _stage(shape: Shape, c: Clocks, stages: int, blocks: int) -> float:
    """Clocks per stage of one of the blocks once the ring is full, of all of them together divided by their number."""
    short = 4 * stages + 8
    ends = [schedule(shape, replace(c, drain=0.0), steps, 1, blocks, stages).end for steps in (short, 2 * short)]
    return (ends[1] - ends[0]) / short / blocks


def _endless(shape: Shape, chip: Chip, c: Clocks, stages: int, blocks: int) -> Run:
    stage = _stage(shape, c, stages, blocks)
    speed = shape.mmas[0][0].speed
    rate = shape.operations / stage / shape.cta_group / (chip.mma_clocks * speed)
    return Run(stage, stage, stage, rate, 1.0)


def _spared(c: Clocks, term: Term | None) -> Clocks:
    match term:
        case "tensor core":
            return replace(c, mma=min(c.mma, c.peak))
        case "barrier latency":
            return replace(c, load=0.0, tail=0.0, ahead_tail=0.0, issue=0.0)
        case "TMA fill":
            return replace(c, fill=0.0, transfer=0.0)
        case "epilogue":
            return replace(c, drain=0.0)
        case "launch":
            return replace(c, launch=0.0)
        case "MUFU":
            return replace(c, mufu=0.0)
        case "instruction issue":
            return replace(c, instructions=0.0)
    return c


def _traffic(shape: Shape, problem: Problem) -> float:
    """Bytes that have to come from and go to memory at least once."""
    mma = shape.mmas[0][0]
    element = K_BYTES / (mma.operations / (2 * mma.m * mma.n))
    return (problem.m + problem.n) * problem.k * element + problem.m * problem.n * shape.epilogue.element_bytes


_TERMS: tuple[Term, ...] = (
    "tensor core", "barrier latency", "TMA fill", "epilogue", "launch", "waves", "MUFU", "instruction issue", "HBM",
    "occupancy",
)  # fmt: skip


def grade(
    shape: Shape, problem: Problem | None = STANDARD, chip: Chip | None = None, lifts: bool = True,
    constants: Mapping[str, float] | None = None,
) -> Grade:  # fmt: skip
    """`constants` are those of a calibration. Raises ValueError if the shape lacks what `missing` says, or no chip runs
    its code."""
    with calibrated(constants or {}):
        return replace(_graded(shape, problem, chip, lifts), constants=constants or {})


def _graded(shape: Shape, problem: Problem | None, chip: Chip | None, lifts: bool) -> Grade:
    on = chip or chip_of(shape.arch)
    if on is None:
        raise ValueError(f"no chip is known that runs {shape.arch}")
    asked = problem if shape.is_product else None
    base = run(shape, on, asked)
    gains = [(term, run(shape, on, asked, term).rate / base.rate - 1) for term in _TERMS]
    if shape.epilogue.store == "rows":
        through = replace(shape, epilogue=replace(shape.epilogue, store="tma", pieces=4))
        gains.append(("uncoalesced access", run(through, on, asked).rate / base.rate - 1))
    if shape.epilogue.ways > 1:
        even = replace(shape, epilogue=replace(shape.epilogue, ways=1))
        gains.append(("bank conflicts", run(even, on, asked).rate / base.rate - 1))
    terms = sorted(((t, g) for t, g in gains if g > _NOTHING), key=lambda item: -item[1])
    cap = on.power_cap.get(str(shape.kind), 1.0)
    # Another block on the SM hides what other parts cost: it is none itself while one of them is to blame.
    parts = [(term, gain) for term, gain in terms if term != "occupancy"]
    blamed = parts if parts and parts[0][1] > _BLAMED else terms
    limit: str = blamed[0][0] if blamed else "tensor core"
    if limit == "epilogue":
        limit = next((term for term, gain in terms if term in _OF_EPILOGUE and gain > _MOST * blamed[0][1]), limit)
    if base.rate > cap:
        limit = "power"
    raised = _lifts(shape, on, asked, base.rate) if lifts else ()
    return Grade(shape, on, asked, base.rate, min(base.rate, cap), base.tile_clocks, base.stage_clocks, base.waves,
                 resident(shape), limit, tuple(terms), raised)  # fmt: skip


def timeline(found: Grade, tiles: int = 2) -> Schedule:
    """What happens on one SM of the first tiles, with every activity."""
    shape = found.shape
    assert shape.stages is not None
    stages = 1 if shape.roles == "serial" else shape.stages
    steps = _STEPS if found.problem is None or not shape.tile_k else min(_STEPS, -(-found.problem.k // shape.tile_k))
    with calibrated(found.constants):
        c = clocks(shape, found.chip)
    return schedule(shape, c, steps, tiles, found.blocks, stages, keep=True)


def _lifts(shape: Shape, chip: Chip, problem: Problem | None, rate: float) -> tuple[tuple[str, float], ...]:
    found = [(text, run(changed, chip, problem).rate / rate - 1) for text, changed in changes(shape, chip)]
    return tuple(sorted(((t, g) for t, g in found if g > 2 * _NOTHING), key=lambda item: -item[1]))


__all__ = ["STANDARD", "Grade", "Run", "grade", "missing", "product_clocks", "run", "timeline"]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
