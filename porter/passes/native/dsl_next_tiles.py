# SPDX-License-Identifier: Apache-2.0
"""Blocks go on with tiles of blocks that have not begun: one warp asks which one is next, and all that work on tiles
read the answer. The grid has a block for each tile.

CUTLASS: python/CuTeDSL/cutlass/utils/dynamic_persistent_tile_scheduler.py; pipeline/sm100.py, PipelineClcFetchAsync.
PTX ISA 9.7.18 (clusterlaunchcontrol).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.memory import member_of
from porter.passes.idiom_dsl.names import KNOWN
from porter.passes.idiom_dsl.shapes import whole_call
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, Statement, argument, assigned, found_in, method, one
from porter.passes.idiom_dsl.words import Words
from porter.passes.native.dsl_mma_warp import idle_warps
from porter.passes.native.dsl_pair import SINGLE, require_places_of_tiles
from porter.ptx.arch import WARP
from porter.steps.step import Declared, Ring, Step

RULE = "PTR594"
NAME = "next-tiles"
_NEXT, _TAKE, _FIRST = "advance_to_next_work", "get_current_work", "initial_work_tile_info"


@dataclass(frozen=True)
class _Tiles:
    """A scheduler of tiles in a branch of a kernel: the statement that makes it, its name, the parameters that it is
    made with, those that go on to the next tile and take it, and what asks how many there were."""

    made: Statement
    name: str
    params: str
    goes_on: Statement
    takes: Statement
    counts: Sequence[cst.Attribute]


def _write(site: Site) -> None:
    kernel, text = site.kernel, site.kernel.text
    if kernel.is_by_hand:
        raise Left("mbarriers of the loads that are members of a struct")
    require_places_of_tiles(kernel)
    parameters = one(text.calls(text.module, KNOWN["tile_parameters"]), "schedulers of tiles")
    shape = argument(parameters, 1, "cluster_shape_mnk")
    if len(parameters.args) != 2 or shape is None or not m.matches(shape.value, SINGLE):
        raise Left("a scheduler of tiles for single blocks, in the order of its grid", parameters)
    grid = one(text.calls(text.module, *KNOWN["tile_grid"]), "grids of a scheduler of tiles")
    given = argument(grid, 0, "params")
    if given is None:
        raise Left("parameters of tiles where the grid is made", grid)
    tiles = [_tiles(kernel, call) for call in text.calls(kernel.function, KNOWN["tile_scheduler"])]
    mine = [t for t in tiles if text.in_block(t.made, _body(kernel)) is kernel.branch]
    loaders = [t for t in tiles if t not in mine]
    for one_ in loaders:
        _require_a_warp(kernel, one_)
    warps = idle_warps(kernel, site.slice)
    if len(mine) != 1 or not loaders:
        raise Left("tiles of who loads, and of who multiplies", kernel.function)
    if len(warps) < 2:
        raise Left("two warps ahead of those that multiply which have nothing to do", kernel.region.first)
    owner, field = member_of(kernel, kernel.pipeline[1])
    words = site.words
    words.update(owner=owner, asker=warps[-2], params=mine[0].params, takers=len(loaders) + 2, lanes=WARP)
    words["instead"] = {id(s): new for t in tiles for s, new in _instead(kernel, t, words)}

    def edits(draft: Draft, words: Words) -> None:
        utils = words["utils"]
        for node in _named(kernel, KNOWN["tile_parameters"]):
            draft.replace(RULE, node, f"{utils}.ClcDynamicPersistentTileSchedulerParams")
        draft.replace(
            RULE, grid, f"{utils}.ClcDynamicPersistentTileScheduler.get_grid_shape({text.code(given.value)})", [given]
        )
        draft.below(RULE, field, words.text("next_tile_members"))
        draft.below(RULE, text.statement(kernel.pipeline[1]), words.text("next_tiles"))
        for one_ in tiles:
            for statement in (one_.made, one_.goes_on, one_.takes):
                if not draft.is_gone(text.span(statement)):
                    draft.instead(RULE, statement, words["instead"][id(statement)])
            for count in one_.counts:
                draft.replace(RULE, count, f"{words['took']}.count")
        assert kernel.branch is not None
        draft.above(RULE, kernel.branch, words.text("asks") + "\n\n")

    before = site.also

    def also(draft: Draft, words: Words) -> None:
        if before is not None:
            before(draft, words)
        edits(draft, words)

    site.also = also


def _body(kernel: Kernel) -> cst.BaseSuite:
    return kernel.function.body


def _tiles(kernel: Kernel, made: cst.Call) -> _Tiles:
    """Raises Left: a scheduler is used for more than taking one tile after the other."""
    text, statement = kernel.text, kernel.text.statement(made)
    bound = assigned(statement)
    if bound is None or bound[1] is not made or not bound[0].isidentifier() or len(made.args) != 3:
        raise Left("a scheduler of tiles with a name", made)
    name, block = bound[0], text.block(statement)
    params = argument(made, 0, "params")
    assert params is not None
    used = [n for n in found_in(block, cst.Name) if n.value == name and not text.span(statement).contains(text.span(n))]
    above = [text.parent(n) for n in used]
    asked = [a for a in above if isinstance(a, cst.Attribute) and isinstance(a.value, cst.Name)]
    known = (_NEXT, _TAKE, _FIRST, "num_tiles_executed")
    if len(asked) != len(used) or any(a.attr.value not in known for a in asked):
        raise Left("a scheduler of tiles that is asked for tiles alone", made)
    goes_on = [s for a in asked if a.attr.value == _NEXT for s in [text.statement(a)]]
    takes = [s for a in asked if a.attr.value == _TAKE for s in [text.statement(a)]]
    first = [a for a in asked if a.attr.value == _FIRST]
    if len(goes_on) != 1 or len(takes) != 1 or len(first) != 1:
        raise Left("one place where the next tile is taken", made)
    _require_together(kernel, goes_on[0], takes[0], name)
    counts = [a for a in asked if a.attr.value == "num_tiles_executed"]
    return _Tiles(statement, name, text.code(params.value), goes_on[0], takes[0], counts)


def _require_together(kernel: Kernel, goes_on: Statement, takes: Statement, name: str) -> None:
    """Raises Left: a tile is not taken right where its scheduler goes on to it, in each turn of a loop."""
    text, block = kernel.text, kernel.text.block(goes_on)
    call, bound, body = whole_call(goes_on), assigned(takes), list(block.body)
    plain = call is not None and not call.args and bound is not None and m.matches(bound[1], m.Call(args=[]))
    if not plain or method(cst.ensure_type(bound[1], cst.Call), _TAKE) != name:  # type: ignore[index]
        raise Left("statements that go on to the next tile, and take it", goes_on)
    if (
        takes not in body
        or body.index(takes) != body.index(goes_on) + 1
        or not isinstance(text.parent(block), cst.While)
    ):
        raise Left("the next tile, taken in each turn right where the scheduler goes on to it", takes)


def _require_a_warp(kernel: Kernel, tiles: _Tiles) -> None:
    """Raises Left: others than one warp take these tiles."""
    branch = kernel.text.in_block(tiles.made, _body(kernel))
    test = branch.test if isinstance(branch, cst.If) and branch.orelse is None else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not isinstance(test.left, cst.Name):
        raise Left("tiles that one warp takes, by its number", tiles.made)
    bound = [a for s in _body(kernel).body if (a := assigned(s)) is not None and a[0] == test.left.value]
    is_warp = len(bound) == 1 and bool(kernel.text.calls(bound[0][1], KNOWN["warp_index"]))
    number = kernel.number(test.comparisons[0].comparator)
    if not is_warp or number is None or not isinstance(test.comparisons[0].operator, cst.Equal):
        raise Left("tiles that one warp takes, by its number", tiles.made)


def _instead(kernel: Kernel, tiles: _Tiles, words: Words) -> Iterator[tuple[Statement, str]]:
    bound = assigned(tiles.takes)
    assert bound is not None
    yield tiles.made, words.text("tiles", scheduler=tiles.name, params=tiles.params)
    yield tiles.goes_on, words.text("wait_for_tile")
    yield tiles.takes, words.text("take_tile", scheduler=tiles.name, work=bound[0])


def _named(kernel: Kernel, name: str) -> Iterator[cst.CSTNode]:
    """Where something is named, as a whole."""
    text = kernel.text
    for kind in (cst.Attribute, cst.Name):
        for node in found_in(text.module, kind):
            above = text.parent(node)
            is_part = isinstance(above, (cst.Attribute, cst.ImportAlias, cst.ImportFrom))
            if not is_part and text.is_a(node, name):
                yield node


STEP = Step(
    NAME, RULE, _write, "dsl",
    Declared(roles=True, rings=(Ring("answers", "others' tiles"),), barriers=True, launch=("grid",)),
    after={"mma-warp": "a warp of its own that issues the MMAs"}, on_request="--tiles handed-out",
)  # fmt: skip
