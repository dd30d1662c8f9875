# SPDX-License-Identifier: Apache-2.0
"""Sizes that a verification adds to the default one: other instantiations, edges of tiles, a long main loop, three
blocks in each dimension of the grid, many tiles of a block.

Mistakes that the default size cannot show are a predicate that only matters at the edge of a tile, a template branch
that only another instantiation takes, a step of K beyond those that fill a pipeline for the first times, an index of a
block or of its tiles. Each of these is a *feature* of a size. Sizes that the case lists are taken first, the fewest
that have all the features which any of them has. What is left is derived: multiples of one size or two, and sizes that
are no multiple of a tile.

A derived size is legal if the case says so (`multiples`), or else if the original turns out right on it. Where the
case's own expressions do not come out even, or the original is wrong, it is left out with the reason.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from porter.diagnostics import PorterError
from porter.ptx.swizzle import SwizzleMode
from porter.verify.case import Case, Expr
from porter.verify.dsl import constructor
from porter.verify.expr import ExpressionError, Number, evaluate, names_in
from porter.verify.problem import Problem, bind

LONG = 67
"""Steps of a derived long loop: a prime, so that no ring of buffers ends where it began."""

ENOUGH = 66
"""Steps that need no longer loop: the 65th one, where a mask of 64 bits ends, is not the last."""

SQUARE, ENOUGH_OF_SQUARE = 19, 18
"""The same where outputs grow with the loop, and its work with the square of it."""

_ROUND = 17
"""Steps in which a ring of eight stages comes round twice."""

WIDE = 3
"""Blocks in a dimension of the grid: an index of a block is not always 0 or 1."""

_WIDE_STEPS = 10
"""Steps of the main loop of a derived size with so many blocks: each comes round again to its stages."""

TURNS = 12
"""Tiles of a block at which two accumulators come round again, also where a pair of blocks takes four at a time."""

ALONE = 8
"""The same where no blocks multiply in pairs: three times."""

OVER = 8
"""Blocks of a launch that one block does the work of: two answers to its requests, and two accumulators, have come
round again three times."""

_MOST_WIDE = 8
"""A size with so many blocks has a shorter loop where it would take more than this many times the default's work."""

_SWIZZLE_BYTES = SwizzleMode.B128.span
"""A step of K where nothing says how long it is: one row of the widest swizzle."""

_ALIGNED = 8
"""What a derived edge is a multiple of, where the case does not say."""

_MOST_WORK = 16
"""A size that the case lists is added only up to this many times the default's work."""

_LITTLE = 1 << 28
"""Terms of sums that are run whatever the default has: of a hundred steps of a large tile."""

Feature = tuple[str, ...]


@dataclass(frozen=True)
class Further:
    """A size to run on one input family, and `why`. `tried`: the original decides whether it is legal; if it is not,
    `instead` is to be tried."""

    sizes: Mapping[str, Number]
    why: str
    tried: bool = False
    instead: tuple[Further, ...] = ()


@dataclass(frozen=True)
class Plan:
    """`sizes` to run; `left_out` are the derived ones that the case does not allow, with the reason."""

    sizes: tuple[Further, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass
class _Shape:
    """What the sizes of a case mean: `extents` are the tiles that a size is divided into, `steps` what one step of
    the main loop takes of it. `axes`: the dimensions of the grid in which it can have `WIDE` blocks, with the sizes
    that they grow with; `wide`: the least sizes at which kernels of CuTe DSL, whose host code makes the grid, have."""

    wide: dict[str, int] = field(default_factory=dict)
    axes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    extents: dict[str, set[int]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


def further_sizes(case: Case) -> Plan:
    """What to run besides the default size.

    Raises:
        PorterError: what binding the default size raises.
    """
    if case.recorded is not None:
        return Plan((), (("other sizes", "what was recorded has one"),))
    default = bind(case, case.sizes)
    shape = _shape(default)
    candidates = list(_listed(case, work(default) * _MOST_WORK))
    persistent = _persistent(case)
    have = _features(default, shape, persistent)
    chosen: list[Further] = []
    while candidates:
        best = max(candidates, key=lambda p: (len(_features(p, shape, persistent) - have), -work(p)))
        new = _features(best, shape, persistent) - have
        if not new:
            break
        candidates.remove(best)
        have |= new
        chosen.append(Further(best.sizes, _why(new)))
    plans = [_derived(case, default, shape, have), _wide(case, default, shape, have)]
    if persistent is not None and ("tiles",) not in have:
        plans.append(_turning(case, default, persistent))
    left_out = [x for p in plans for x in p.left_out]
    if not shape.steps:
        left_out.append(("a long loop", "`reduction` and `steps` name no size that can change without other code"))
    return Plan((*chosen, *(s for p in plans for s in p.sizes)), tuple(left_out))


def long_loop(case: Case) -> Mapping[str, Number] | None:
    """The least work at which every main loop takes `ENOUGH` steps: a size that the case lists, else one that is made
    of them; None if there is none.

    Raises:
        PorterError: what binding the default size raises.
    """
    default = bind(case, case.sizes)
    shape = _shape(default)
    long = {("long", name) for name in shape.steps}
    listed = [p for p in (default, *_listed(case, math.inf)) if long <= _features(p, shape, None)]
    if not long or listed:
        return min(listed, key=work).sizes if long else None
    derived = [f.sizes for f in _derived(case, default, shape, set()).sizes if f.why.startswith("long ")]
    sizes = {**(derived[0] if derived else default.sizes)}
    for found in derived:
        sizes |= {name: max(sizes[name], found[name]) for name in shape.steps}
    try:
        problem = bind(case, sizes)
    except PorterError:
        return None
    return sizes if long <= _features(problem, shape, None) else None


def few_steps(case: Case) -> list[Mapping[str, Number]]:
    """The least sizes of the case with a main loop of one step, of two and of three, of as many as rings of usual
    length come round twice in, and of none where that is a size.

    Raises:
        PorterError: what binding the default size raises.
    """
    default = bind(case, case.sizes)
    listed = [p for p in (default, *_listed(case, math.inf)) if instantiation(p) == instantiation(default)]
    base, steps = min(listed, key=work), _shape(default).steps
    return [{**base.sizes, name: count * step} for name, step in steps.items() for count in (1, 2, 3, _ROUND, 0)]


def extents_of(case: Case) -> tuple[Mapping[str, int], Collection[str]]:
    """The largest tile that each size is divided into, and the sizes that a main loop goes along.

    Raises:
        PorterError: what binding the default size raises.
    """
    shape = _shape(bind(case, case.sizes))
    return {name: max(extents) for name, extents in shape.extents.items() if extents}, shape.steps


def _launched(problem: Problem) -> int:
    return math.prod(problem.launch.grid)


def many_tiles(
    case: Case, least: int = TURNS, blocks: Callable[[Problem], int] | None = None
) -> Mapping[str, Number] | None:
    """A size at which a block has at least so many output tiles, made of one that the case lists: more rows or columns,
    where the grid does not grow with them. None if there is none. `blocks`: how many a problem is launched with, where
    the case does not say it.

    Raises:
        PorterError: what binding the default size, and `blocks` for a size that the case lists, raise.
    """
    default = bind(case, case.sizes)
    bound = frozenset().union(*(_names(e) for e in case.launch.grid)) | _fixed(case)
    listed = [p for p in (default, *_listed(case, math.inf)) if instantiation(p) == instantiation(default)]
    known = blocks(default) if blocks is not None else 0
    for _ in range(2):
        # a grid may grow up to the blocks that a kernel has at most
        for problem in sorted(_grown(case, listed, bound, least, known), key=work):
            launched = (blocks or _launched)(problem)
            if tiles_of(problem) >= least * launched:
                return problem.sizes
            if launched > known and blocks is not None:
                known = launched
                break
    return None


def _grown(case: Case, listed: Sequence[Problem], bound: Collection[str], least: int, known: int) -> list[Problem]:
    """Problems with so many tiles for each of `known` blocks: listed ones, else those with more rows or columns."""
    found = [p for p in listed if tiles_of(p) >= least * max(known, _launched(p))]
    for base in listed if not found else ():
        symbols = {s for t in base.outputs for s in _of_tile(base, t.symbolic) if isinstance(s, str)}
        times = -(-least * max(known, _launched(base)) // max(1, tiles_of(base)))
        for name in sorted(symbols & set(case.sizes) - set(bound)):
            try:
                found.append(bind(case, {**base.sizes, name: int(base.sizes[name]) * times}))
            except PorterError:
                continue
    return found


def _of_tile(problem: Problem, modes: Sequence[Any]) -> Sequence[Any]:
    """The modes of an output that its tiles divide: of CuTe DSL the first two, of others the last two."""
    return modes[:2] if problem.case.dsl is not None else modes[-2:]


def many_blocks(case: Case, least: int = OVER) -> Mapping[str, Number] | None:
    """A size with at least so many blocks, made of one that the case lists: one of the sizes that the grid grows with
    is larger. None if there is none.

    Raises:
        PorterError: what binding the default size raises.
    """
    default = bind(case, case.sizes)
    listed = [p for p in (default, *_listed(case, math.inf)) if instantiation(p) == instantiation(default)]
    enough = [p for p in listed if math.prod(p.launch.grid) >= least]
    growing = frozenset().union(*(_names(e) for e in case.launch.grid)) & set(case.sizes) - _fixed(case)
    for base in listed:
        for name in sorted(growing):
            times = -(-least // math.prod(base.launch.grid))
            try:
                enough.append(bind(case, {**base.sizes, name: int(base.sizes[name]) * times}))
            except PorterError:
                continue
    enough = [p for p in enough if math.prod(p.launch.grid) >= least]
    return min(enough, key=work).sizes if enough else None


def half_tiles(case: Case, axis: int) -> tuple[Mapping[str, Number], Mapping[str, Number]] | None:
    """Sizes for tiles of twice the width, whose number is a dimension of the grid: one of whole tiles alone, and one
    with a whole tile and a half. Made of those that the case lists, one size being a multiple. None if there are none.

    Raises:
        PorterError: what binding the default size raises.
    """
    default = bind(case, case.sizes)
    if axis >= len(case.launch.grid):
        return None
    listed = [p for p in (default, *_listed(case, math.inf)) if instantiation(p) == instantiation(default)]
    growing = sorted(_names(case.launch.grid[axis]) & set(case.sizes) - _fixed(case))
    made = list(listed)
    for base in listed:
        for name in growing:
            for times in (2, 3):
                try:
                    made.append(bind(case, {**base.sizes, name: int(base.sizes[name]) * times}))
                except PorterError:
                    continue
    counts = [(p, p.launch.grid[axis]) for p in made]
    whole = [p for p, tiles in counts if tiles and not tiles % 2]
    half = [p for p, tiles in counts if tiles > 2 and tiles % 2]
    if not whole or not half:
        return None
    return min(whole, key=work).sizes, min(half, key=work).sizes


def tiles_of(problem: Problem) -> int:
    """Output tiles of a problem; none where nobody knows how large one is."""
    tile = problem.tile
    if tile is None or not problem.outputs or len(problem.outputs[0].shape) < len(tile):
        return 0
    shape = problem.outputs[0].shape
    divided = _of_tile(problem, shape)
    parts = [-(-extent // step) for extent, step in zip(divided, tile, strict=True)]
    return math.prod(parts) * (math.prod(shape) // math.prod(divided))


def instantiation(problem: Problem) -> str:
    """What the compiler is given besides the source; sizes with the same one share their code."""
    if problem.case.dsl is not None:
        return ", ".join(f"{name}={value}" for name, value in constructor(problem).items())
    defines = [f"-D{name}={value}" for name, value in problem.defines.items()]
    return " ".join([f"<{', '.join(problem.template)}>" if problem.template else "", *defines]).strip()


def _listed(case: Case, most: float) -> Iterator[Problem]:
    """The case's other sizes, with that of its mutants, as far as they are no larger than `most`."""
    for sizes in (*case.all_sizes()[1:], {**case.sizes, **case.mutate_sizes}):
        try:
            problem = bind(case, sizes)
        except PorterError:
            continue  # It is reported when it is asked for.
        if work(problem) <= most:
            yield problem


def work(problem: Problem) -> float:
    """A measure of what a run costs: terms of all sums."""
    return sum(math.prod(t.shape) for t in problem.outputs) * problem.reduction


def _blocks(problem: Problem) -> tuple[int, int]:
    """Few blocks of few outputs: each goes through more of a long loop."""
    return math.prod(problem.launch.grid), sum(math.prod(t.shape) for t in problem.outputs)


# What sizes mean ----------------------------------------------------------------------------------------


def _shape(problem: Problem) -> _Shape:
    case = problem.case
    shape = _Shape()
    for name, extent in _boxes(problem):
        shape.extents.setdefault(name, set()).add(extent)
    for expression in (*case.launch.grid, *_scalars(case.params)):
        for name, extent in _divisions(expression, problem.names):
            shape.extents.setdefault(name, set()).add(extent)
    if problem.tile is not None:
        for tensor in problem.outputs[:1]:
            for symbol, extent in zip(_of_tile(problem, tensor.symbolic), problem.tile, strict=False):
                if symbol in case.sizes:
                    shape.extents.setdefault(str(symbol), set()).add(extent)
    for name in case.sizes:
        tile = problem.names.get(f"B{name}")
        if isinstance(tile, int) and tile > 1:
            shape.extents.setdefault(name, set()).add(tile)
    fixed = _fixed(case)
    if case.steps:
        shape.steps = {name: int(evaluate(step, problem.names)) for name, step in case.steps.items()}
    else:
        usual = _SWIZZLE_BYTES // problem.operand.itemsize
        loops = [n for n in sorted(_names(case.reduction)) if n in case.sizes]
        shape.steps = {name: max(shape.extents.get(name, {usual})) for name in loops}
    for name, step in shape.steps.items():
        shape.extents.setdefault(name, set()).add(step)
    shape.steps = {name: step for name, step in shape.steps.items() if name not in fixed and step > 0}
    shape.extents = {name: found for name, found in shape.extents.items() if name in case.sizes and name not in fixed}
    for extents in shape.extents.values():
        extents.discard(1)
    for axis, expression in enumerate(case.launch.grid if case.dsl is None else ()):
        growing = tuple(sorted(names_within(case, [expression]) & set(case.sizes) - fixed))
        if any(_widened(case, problem, name, axis) is not None for name in growing):
            shape.axes[axis] = growing
    for tensor in problem.outputs if case.dsl is not None else ():
        of_tile = _of_tile(problem, tensor.symbolic)
        for name in {str(s) for s in tensor.symbolic} & set(case.sizes) - fixed:
            if name in shape.extents or name not in of_tile:
                shape.wide[name] = WIDE * max(shape.extents.get(name, {1}))
    return shape


def _fixed(case: Case) -> frozenset[str]:
    """Sizes that the code is compiled for: template arguments, defines, the constructor's arguments."""
    fields: list[object] = [*case.template, *case.defines.values()]
    if case.dsl is not None:
        fields += [case.dsl.init, case.dsl.call]
    return names_within(case, fields)


def names_within(case: Case, fields: Sequence[object]) -> frozenset[str]:
    """The names in expressions, and in the constants that they name."""
    found: set[str] = set()
    waiting = [name for item in fields for name in _names(item)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _names(case.constants.get(name, 0))
    return frozenset(found)


def _names(item: object) -> frozenset[str]:
    """The names in an expression, or in all those of a list or mapping; C++ text has none."""
    if isinstance(item, Mapping):
        return frozenset().union(*(_names(v) for v in item.values()))
    if isinstance(item, list | tuple):
        return frozenset().union(*(_names(v) for v in item))
    try:
        return names_in(item) if isinstance(item, str) else frozenset()
    except ExpressionError:
        return frozenset()


def _boxes(problem: Problem) -> Iterator[tuple[str, int]]:
    """(size, extent of the box) for every dimension of a tensor map that is one of the sizes."""
    for name, spec in problem.case.tensor_maps.items():
        dims = spec.dims or problem.case.tensors[spec.tensor].shape
        for symbol, extent in zip(dims, problem.tensor_maps[name].map.box[::-1], strict=False):
            if isinstance(symbol, str) and symbol in problem.sizes and extent > 1:
                yield symbol, extent


def _scalars(params: Sequence[object]) -> Iterator[Expr]:
    for item in params:
        if isinstance(item, Mapping):
            yield from _scalars([item["value"]] if "value" in item else list(item.get("struct", ())))
        elif isinstance(item, str | int | float):
            yield item


def _divisions(expression: Expr, names: Mapping[str, Number]) -> Iterator[tuple[str, int]]:
    """(size, divisor) of `M / BM`, `M // BM` and `ceil_div(M, BM)` in an expression."""
    if not isinstance(expression, str):
        return
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        pair: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
            pair = (node.left, node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ceil_div":
            pair = node.args
        if len(pair) != 2 or not isinstance(pair[0], ast.Name):
            continue
        try:
            divisor = evaluate(ast.unparse(pair[1]), names)
        except ExpressionError:
            continue
        if isinstance(divisor, int) and divisor > 1:
            yield pair[0].id, divisor


_WIDE_WHY = "three blocks a dimension"
_TURNING_WHY = "many tiles of a block"


# Features -----------------------------------------------------------------------------------------------


def _features(problem: Problem, shape: _Shape, persistent: Mapping[str, Number] | None) -> set[Feature]:
    found: set[Feature] = {("instance", instantiation(problem))}
    for name, extents in shape.extents.items():
        found |= {("edge", name, str(e)) for e in extents if int(problem.sizes[name]) % e}
    for name, step in shape.steps.items():
        if int(problem.sizes[name]) >= (ENOUGH_OF_SQUARE if _is_square(problem, name) else ENOUGH) * step:
            found.add(("long", name))
    if all(problem.launch.grid[a] >= WIDE for a in shape.axes) and all(
        problem.sizes[name] >= least for name, least in shape.wide.items()
    ):
        found.add(("wide",))
    if persistent is not None and tiles_of(problem) >= TURNS * _launched(problem):
        found.add(("tiles",))
    return found


def _is_square(problem: Problem, name: str) -> bool:
    """Whether outputs grow with a size."""
    return any(name in _names(list(t.symbolic)) for t in problem.outputs)


def _why(features: set[Feature]) -> str:
    """`edge of M and N, long K`."""
    edges = sorted({f[1] for f in features if f[0] == "edge"})
    loops = sorted({f[1] for f in features if f[0] == "long"})
    parts = ["other instantiation"] if any(f[0] == "instance" for f in features) else []
    parts += [f"edge of {' and '.join(edges)}"] if edges else []
    parts += [f"long {' and '.join(loops)}"] if loops else []
    parts += [_WIDE_WHY] if ("wide",) in features else []
    parts += [_TURNING_WHY] if ("tiles",) in features else []
    return ", ".join(parts)


# Derived sizes ------------------------------------------------------------------------------------------


def _derived(case: Case, default: Problem, shape: _Shape, have: set[Feature]) -> Plan:
    listed = [default, *_listed(case, math.inf)]
    base = min((p for p in listed if instantiation(p) == instantiation(default)), key=_blocks)
    plans = [_long(case, base, name, step) for name, step in shape.steps.items() if ("long", name) not in have]
    edged = {f[1] for f in have if f[0] == "edge"}
    names = [n for n in shape.extents if n not in edged and (n in case.multiples or n not in shape.steps)]
    names = [n for n in names if case.multiples or any(n in _names(t.symbolic) for t in default.outputs)]
    plans.append(_edges(case, base, names, shape))
    return Plan(tuple(s for p in plans for s in p.sizes), tuple(s for p in plans for s in p.left_out))


def _long(case: Case, base: Problem, name: str, step: int) -> Plan:
    """A long loop over one size, which stays a multiple of what its listed values are multiples of."""
    unit = math.lcm(unit_of(case, base, name), step)
    value = -(-(SQUARE if _is_square(base, name) else LONG) * step // unit) * unit
    return checked_size(case, base, {name: value}, f"long {name}", tried=name not in case.multiples)


def _edges(case: Case, base: Problem, names: Sequence[str], shape: _Shape) -> Plan:
    """One size with every edge that the case says is legal, or that may be; then, if it is not, each edge alone."""
    alone: list[Further] = []
    left_out: list[tuple[str, str]] = []
    for name in names:
        extents = sorted(shape.extents[name])
        declared = _multiple(case, base, name)
        unit = declared or _ALIGNED
        part = max(1, 3 * extents[0] // 8 // unit | 1) * unit
        if part % extents[0] == 0:
            continue  # Any legal size is whole tiles.
        plan = checked_size(case, base, {name: extents[-1] + part}, f"edge of {name}", tried=declared is None)
        alone += plan.sizes
        left_out += plan.left_out
    if len(alone) < 2:
        return Plan(tuple(alone), tuple(left_out))
    changes = {n: f.sizes[n] for f in alone for n in f.sizes if f.sizes[n] != base.sizes[n]}
    tried = any(f.tried for f in alone)
    why = f"edge of {' and '.join(sorted(changes))}"
    together = Further({**base.sizes, **changes}, why, tried, tuple(alone) if tried else ())
    return Plan((together,), tuple(left_out))


def _wide(case: Case, default: Problem, shape: _Shape, have: set[Feature]) -> Plan:
    """One size with `WIDE` blocks in each dimension of the grid that grows with a size."""
    if ("wide",) in have:
        return Plan()
    listed = [p for p in (default, *_listed(case, math.inf)) if instantiation(p) == instantiation(default)]
    base = min((p for p in listed if all(p.sizes[n] >= default.sizes[n] for n in shape.steps)), key=work)
    problem: Problem | None = base
    for axis, growing in shape.axes.items():
        found = [
            p for name in growing if problem is not None and (p := _widened(case, problem, name, axis)) is not None
        ]
        problem = min(found, key=work, default=None)
    if problem is None:
        return Plan((), ((_WIDE_WHY, "no multiples of sizes of the case give as many"),))
    sizes = dict(_occupied(case, problem).sizes)
    for name, least in shape.wide.items():
        unit = unit_of(case, base, name)
        sizes[name] = max(int(sizes[name]), -(-least // unit) * unit)
    plan = Plan()
    for steps in _wide_steps(case, base, listed, shape):
        change = {name: int(value) for name, value in (sizes | steps).items() if value != base.sizes[name]}
        plan = checked_size(case, base, change, _WIDE_WHY, tried=not change.keys() <= case.multiples.keys())
        most = max(_MOST_WIDE * work(default), _LITTLE / 4)
        if all(work(bind(case, further.sizes)) <= most for further in plan.sizes):
            break
    return plan


def _wide_steps(case: Case, base: Problem, listed: Sequence[Problem], shape: _Shape) -> Iterator[dict[str, Number]]:
    """Lengths of the main loop, from that at which stages come round again down to the least one of the case."""
    loops = {name: step for name, step in shape.steps.items() if not _is_square(base, name)}
    units = {name: math.lcm(unit_of(case, base, name), step) for name, step in loops.items()}
    yield {n: max(int(base.sizes[n]), -(-_WIDE_STEPS * s // units[n]) * units[n]) for n, s in loops.items()}
    yield {}
    yield {name: min(p.sizes[name] for p in listed) for name in loops}


def _widened(case: Case, base: Problem, name: str, axis: int) -> Problem | None:
    """The problem with the least multiple of a size at which the grid has `WIDE` blocks in a dimension."""
    if base.launch.grid[axis] >= WIDE:
        return base
    for times in range(2, 2 * WIDE + 1):
        try:
            found = bind(case, {**base.sizes, name: int(base.sizes[name]) * times})
        except PorterError:
            continue
        if found.launch.grid[axis] >= WIDE:
            return found
    return None


def _occupied(case: Case, problem: Problem) -> Problem:
    """The problem with a tile for each block, where blocks are a size of their own."""
    lacking = -(-_launched(problem) // max(1, tiles_of(problem) or _launched(problem)))
    for name in sorted(_grown_alone(case, problem)) if lacking > 1 else ():
        try:
            return bind(case, {**problem.sizes, name: int(problem.sizes[name]) * lacking})
        except PorterError:
            continue
    return problem


def _grown_alone(case: Case, problem: Problem) -> set[str]:
    """Sizes that tiles grow with, and the grid does not."""
    symbols = {s for t in problem.outputs for s in _of_tile(problem, t.symbolic) if isinstance(s, str)}
    return symbols & set(case.sizes) - names_within(case, case.launch.grid) - _fixed(case)


def _persistent(case: Case) -> Mapping[str, Number] | None:
    """The least size at which a block has many tiles, where tiles grow and the grid does not."""
    if case.dsl is not None:
        return None
    found = many_tiles(case)
    if found is not None or not (names := sorted(_grown_alone(case, bind(case, case.sizes)))):
        return found
    sizes = {**case.sizes, **case.mutate_sizes}
    # nobody says what a tile is: each size is at least one
    return {**sizes, names[0]: int(sizes[names[0]]) * TURNS * _launched(bind(case, sizes))}


def turning_of_dsl(case: Case, blocks: int) -> Plan:
    """Many tiles of a block of a kernel in CuTe DSL that was launched with so many blocks.

    Raises:
        PorterError: what binding the default size raises.
    """
    found = many_tiles(case, ALONE, lambda problem: blocks)
    return _turning(case, bind(case), found) if found is not None else Plan()


def _turning(case: Case, default: Problem, sizes: Mapping[str, Number]) -> Plan:
    """Many tiles of a block, if that is no work without measure."""
    change = {name: int(value) for name, value in sizes.items() if value != default.sizes[name]}
    plan = checked_size(case, default, change, _TURNING_WHY, tried=not change.keys() <= case.multiples.keys())
    for further in plan.sizes:
        terms = work(bind(case, further.sizes))
        if terms > max(_MOST_WORK * work(default), _LITTLE):
            return Plan((), ((_TURNING_WHY, f"{terms / work(default):.0f} times the work of the default size"),))
    return plan


def unit_of(case: Case, problem: Problem, name: str) -> int:
    """What larger values of a size are multiples of: what the case says, else what its listed values have in common."""
    return _multiple(case, problem, name) or math.gcd(*(int(sizes[name]) for sizes in case.all_sizes()))


def _multiple(case: Case, problem: Problem, name: str) -> int | None:
    """What the case says that a size has to be a multiple of."""
    return int(evaluate(case.multiples[name], problem.names)) if name in case.multiples else None


def checked_size(case: Case, base: Problem, change: Mapping[str, int], why: str, *, tried: bool) -> Plan:
    """A size to run, or why the case does not allow it."""
    sizes = {**base.sizes, **change}
    try:
        bind(case, sizes)
    except PorterError as error:
        where = error.diagnostic.values.get("field", "sizes")
        asked = ", ".join(f"{name}={value}" for name, value in change.items())
        return Plan((), ((why, f"{where} of the case does not allow {asked}"),))
    return Plan((Further(sizes, why, tried),))
