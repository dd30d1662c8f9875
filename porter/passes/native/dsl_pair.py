# SPDX-License-Identifier: Apache-2.0
"""Two CTAs multiply together: one issues MMAs of 256 rows for both. Each keeps its tile of 128 rows with the epilogue
as it is, and brings its rows of A and half of those of B. The scheduler of tiles gives a cluster two tiles below each
other.

CUTLASS: python/CuTeDSL/cutlass/pipeline/sm100.py; utils/static_persistent_tile_scheduler.py. PTX ISA 9.7.16.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.launches import given_at, in_kernel, launch_of
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED, OPTIONAL
from porter.passes.idiom_dsl.shapes import binds, targets_of, whole_call
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, Statement, argument, found_in, one, operand
from porter.passes.idiom_dsl.words import Words
from porter.ptx.umma import Kind, legal_n
from porter.steps.step import Declared, Step

RULE = "PTR590"
_ROWS = 128
SINGLE = m.Tuple([m.Element(m.Integer("1"))] * 3) | m.List([m.Element(m.Integer("1"))] * 3)
_OF_B = m.Tuple([m.Element(m.Integer("0")), m.Element(m.Name("None")), m.Element(m.Name("None"))])
_NAMED = m.Name() | m.Attribute()


@dataclass(frozen=True)
class _Load:
    """A load of boxes: how its atom is made, its layout in shared memory, and what the kernel calls atom and tensor."""

    made: cst.Call
    layout: str
    atom: str
    tensor: str


def _write(site: Site) -> None:
    kernel = site.kernel
    _require(kernel)
    of_b = one(kernel.text.calls(kernel.text.module, KNOWN["layout_b"]), "layouts of B")
    tile, box = _argument(of_b, 1, "tile_shape_mnk"), _name_bound(kernel, of_b)
    if not m.matches(tile, _NAMED):
        raise Left("a tile with a name where the layout of B is made", of_b)
    launch = _launch(kernel)
    loads = _loads(kernel, launch)
    b = next((load for load in loads if load.layout == box), None)
    if b is None or len(loads) != 2:
        raise Left("one load that brings A and one that brings B", of_b)
    rows = _argument(b.made, 3, "cta_tiler")
    if not isinstance(rows, cst.Tuple) or len(rows.elements) != 2:
        raise Left("rows of a box of B that are written where its atom is made", b.made)
    copies = {load.atom: _copies(kernel, load.atom) for load in loads}
    for load in loads:
        for place in copies[load.atom]:
            _require_a_tile(kernel, place, int(load is b))
    tiles = _tiles_of(kernel, b)
    others = next(load for load in loads if load is not b)
    stores = _stores(kernel, launch)
    tile_idx = _tile_stored(kernel, stores)
    params, grid = _scheduler(kernel)
    layout, bytes_ = _pipeline(kernel)
    waits = {name: _alone(kernel, name) for name in ("producer_acquire", "producer_tail")}
    words = site.words
    words.update(pair=True, leads=f" and {words['rank']} == 0")
    places = [place[1] for place in copies[b.atom]]
    ops = list({id(o): o for o in (_op(kernel, load.made) for load in loads)}.values())

    def edits(draft: Draft, words: Words) -> None:
        _edit_host(kernel, launch, (tile, rows.elements[0].value, params, grid), ops, draft, words)
        _edit_loads(kernel, tiles, places, waits, draft, words)
        _edit_sums(kernel, (tile_idx, tiles, others.tensor), stores, (layout, bytes_), draft)

    site.also = edits


def _edit_host(
    kernel: Kernel, launch: cst.Call, shapes: Sequence[cst.BaseExpression], ops: Sequence[cst.Call], draft: Draft,
    words: Words,
) -> None:  # fmt: skip
    """`shapes`: the tile in the layout of B, rows of a box of B, the cluster that gets tiles, and how many blocks."""
    text, (tile, rows, params, grid) = kernel.text, shapes
    name = text.code(tile)
    draft.replace(RULE, tile, f"({name}[0], {name}[1] // 2, {name}[2])")
    draft.replace(RULE, rows, f"{operand(text.code(rows))} // 2")
    for op in ops:
        draft.replace(RULE, op, f"{text.code(op.func)}({words['tcgen05']}.CtaGroup.TWO)", [op.func])
    draft.replace(RULE, params, "(2, 1, 1)")
    draft.replace(RULE, grid, f"max({operand(text.code(grid))} // 2, 1)")
    if (cluster := argument(launch, None, "cluster")) is not None:
        draft.replace(RULE, cluster.value, "[2, 1, 1]")
        return
    block = argument(launch, None, "block")
    assert block is not None
    start = text.span(block).start
    margin = text.source[text.line_start(start) : start].decode()
    draft.around(RULE, block, f"cluster=[2, 1, 1],{' ' if margin.strip() else chr(10) + margin}", "")


def _edit_loads(
    kernel: Kernel, tiles: cst.BaseExpression, places: Sequence[cst.BaseExpression],
    waits: Mapping[str, Sequence[cst.Call]], draft: Draft, words: Words,
) -> None:  # fmt: skip
    """`tiles`: what the tensor of B is divided by; `places`: which of its boxes are loaded."""
    text = kernel.text
    whole = cst.ensure_type(tiles, cst.Call).args[0].value
    draft.replace(RULE, tiles, f"({text.code(whole)}[1] // 2, {text.code(whole)}[2])", [whole])
    for place in places:
        draft.replace(RULE, place, f"2 * {operand(text.code(place))} + {words['rank']}")
    for name, section in (("producer_acquire", "load_of_pair"), ("producer_tail", "tail_of_pair")):
        for call in waits[name]:
            new = words.text(section, loads=kernel.pipeline[0], filling=text.code(call.args[0].value))
            draft.instead(RULE, text.statement(call), new)


def _edit_sums(
    kernel: Kernel, tile: tuple[str, cst.BaseExpression, str], stores: Sequence[Statement],
    made: tuple[cst.BaseExpression | None, cst.BaseExpression], draft: Draft,
) -> None:  # fmt: skip
    """`tile`: its index, what says its rows, and the tensor of A; `made`: layout and bytes of the loads' pipeline."""
    text, (index, tiles, tensor), (layout, bytes_) = kernel.text, tile, made
    whole = cst.ensure_type(tiles, cst.Call).args[0].value
    for store in stores:
        inside = f"{text.code(whole)}[0] * {index}[0] < {tensor}.shape[0]"
        draft.above(RULE, store, f"if {inside}:", over_comments=False)
        draft.indent(RULE, store, store)
    draft.around(RULE, bytes_, "2 * (", ")")
    if layout is not None:
        draft.replace(RULE, layout, f"{text.code(cst.ensure_type(layout, cst.Call).func)}((2, 1, 1, 1))")


def _argument(call: cst.Call, index: int, keyword: str) -> cst.BaseExpression:
    found = argument(call, index, keyword)
    if found is None:
        raise Left(f"`{keyword}` where it is called", call)
    return found.value


def _require(kernel: Kernel) -> None:
    """Raises Left: tiles that no pair has, or a cluster that is there already."""
    integers = any("I8" in s.value(0, "atom")["op"]["kind"] for s in kernel.multiplies)
    for rows, columns in kernel.tiles.values():
        if rows != _ROWS or columns not in legal_n(Kind.I8 if integers else Kind.F16, 2) or columns % 32:
            raise Left(f"a tile of {_ROWS} rows, of whose columns each CTA brings half; it has {rows} x {columns}")
    if any(t.cluster > 1 for t in kernel.facts.traces):
        raise Left("blocks without clusters")
    if OPTIONAL["fence"] in kernel.facts.absent:
        raise Left("waits with the scope of a cluster, for which this version of the DSL has no names")
    if not kernel.of_pipeline(kernel.function, "producer_tail"):
        raise Left("a wait for the last buffers where loads end")
    require_places_of_tiles(kernel)


def require_places_of_tiles(kernel: Kernel) -> None:
    """Raises Left: a block's place in the grid is asked for by others than the scheduler of tiles."""
    text = kernel.text
    for call in text.calls(kernel.function, *KNOWN["places"]):
        above = next(n for n in text.above(call) if isinstance(n, (cst.Call, cst.BaseStatement)))
        if not isinstance(above, cst.Call) or not text.is_a(above.func, KNOWN["tile_scheduler"]):
            raise Left("a block's place in the grid, for the scheduler of tiles alone", call)


def _name_bound(kernel: Kernel, call: cst.Call) -> str:
    """The one name that a statement binds to a call."""
    line = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())])])
    statement = kernel.text.statement(call)
    if not m.matches(statement, line) or found_in(statement, cst.Assign)[0].value is not call:
        raise Left("a name of what is made here", call)
    return cst.ensure_type(found_in(statement, cst.AssignTarget)[0].target, cst.Name).value


def _launch(kernel: Kernel) -> cst.Call:
    """Where the kernel is launched with tensors that it reaches by TMA alone."""
    text, launch = kernel.text, launch_of(kernel)
    cluster = argument(launch, None, "cluster")
    if argument(launch, None, "block") is None or (cluster is not None and not m.matches(cluster.value, SINGLE)):
        raise Left("a launch that says the block, and no clusters", launch)
    host = text.function(launch)
    plain = {p.name.value: p for p in host.params.params}
    for given in given_at(launch).args:
        if isinstance(given.value, cst.Name) and (parameter := plain.get(given.value.value)) is not None:
            noted = parameter.annotation
            if noted is None or not text.is_a(noted.annotation, *KNOWN["constants"]):
                raise Left(f"tensors that the kernel reaches by TMA alone: `{given.value.value}`", given)
    return launch


def _loads(kernel: Kernel, launch: cst.Call) -> list[_Load]:
    """Loads of boxes, each made by one statement in the function that launches the kernel."""
    text, host = kernel.text, kernel.text.function(launch)
    found = []
    for call in text.calls(host, KNOWN["tma_atom"]):
        if not text.is_a(_op(kernel, call, any_kind=True).func, KNOWN["tma_load"]):
            continue
        assign = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Tuple([m.Element(m.Name())] * 2))], m.Call())])
        statement = text.statement(call)
        layouts = found_in(_argument(call, 2, "smem_layout_"), cst.Name)
        names = [n.value for n in layouts if n.value in _bound_by(kernel, host)]
        if not m.matches(statement, assign) or len(names) != 1:
            raise Left("a load whose atom and tensor have names of their own", call)
        atom, tensor = targets_of(found_in(statement, cst.AssignTarget)[0].target)
        found.append(_Load(call, names[0], in_kernel(kernel, launch, atom), in_kernel(kernel, launch, tensor)))
    return found


def _stores(kernel: Kernel, launch: cst.Call) -> list[Statement]:
    """Statements that store boxes of results. The second CTA of a pair may have a tile behind the last row: where there
    is one tile of rows, CuTe takes its coordinate for that of the first."""
    text = kernel.text
    atoms = []
    for call in text.calls(text.function(launch), KNOWN["tma_atom"]):
        if text.is_a(_op(kernel, call, any_kind=True).func, KNOWN["tma_store"]):
            targets = found_in(text.statement(call), cst.AssignTarget)
            atoms.append(in_kernel(kernel, launch, next(targets_of(targets[0].target))))
    found = []
    for call in text.calls(kernel.function, KNOWN["copy"]):
        if text.code(_argument(call, 0, "atom")) in atoms:
            if whole_call(text.statement(call)) is not call:
                raise Left("a store that is a statement", call)
            found.append(text.statement(call))
    if not found:
        raise Left("results that leave by TMA", kernel.region.first)
    return found


def _tile_stored(kernel: Kernel, stores: Sequence[Statement]) -> str:
    """What the consumers call the index of their tile, ahead of the next one."""
    text, block = kernel.text, kernel.region.block
    said = {text.code(a) for a in found_in(block, cst.Attribute) if a.attr.value == "tile_idx"}
    if len(said) != 1 or not (name := next(iter(said)).removesuffix(".tile_idx")).isidentifier():
        raise Left("an index of the tile that is stored, by one name", kernel.region.first)
    places = [list(block.body).index(s) for store in stores if (s := text.in_block(store, block)) is not None]
    again = [i for i, s in enumerate(block.body) if name in set(binds(s))]
    if len(places) != len(stores) or max(places) >= min(again, default=len(block.body)):
        raise Left("stores ahead of the next tile", stores[0])
    return f"{name}.tile_idx"


def _bound_by(kernel: Kernel, host: cst.FunctionDef) -> set[str]:
    """Names of layouts of operands."""
    return {_name_bound(kernel, c) for c in kernel.text.calls(host, *OBSERVED["operand_layout"])}


def _op(kernel: Kernel, made: cst.Call, any_kind: bool = False) -> cst.Call:
    """What an atom of TMA does: a call, or the value of a name that one statement binds, alone or with others."""
    value = _argument(made, 0, "op")
    if isinstance(value, cst.Name):
        bound = list[cst.BaseExpression]()
        for assign in found_in(kernel.text.function(made), cst.Assign):
            target, given = assign.targets[0].target, assign.value
            pairs: list[tuple[cst.CSTNode, cst.BaseExpression]] = [(target, given)]
            if isinstance(target, cst.Tuple) and isinstance(given, cst.Tuple):
                pairs = [(t.value, v.value) for t, v in zip(target.elements, given.elements, strict=True)]
            bound += [v for t, v in pairs if m.matches(t, m.Name(value.value))]
        value = bound[0] if len(bound) == 1 else value
    if not isinstance(value, cst.Call) or (not any_kind and value.args):
        raise Left("what a load does is written as a call", made)
    return value


def _copies(kernel: Kernel, atom: str) -> list[Sequence[cst.BaseExpression]]:
    """Coordinates of all copies with an atom, each behind the box's own."""
    found = list[Sequence[cst.BaseExpression]]()
    for call in kernel.text.calls(kernel.function, KNOWN["copy"]):
        if kernel.text.code(_argument(call, 0, "atom")) != atom:
            continue
        source = _argument(call, 1, "src")
        subscript = source if isinstance(source, cst.Subscript) and isinstance(source.value, cst.Name) else None
        where = [s.slice.value for s in subscript.slice if isinstance(s.slice, cst.Index)] if subscript else []
        if len(where) == 1 and isinstance(where[0], cst.Tuple):
            where = [e.value for e in where[0].elements]
        if len(where) < 3 or not m.matches(where[0], m.Name("None")):
            raise Left("boxes by their coordinates where they are loaded", call)
        found.append(where)
    if not found:
        raise Left(f"copies with `{atom}`", kernel.function)
    return found


def _require_a_tile(kernel: Kernel, place: Sequence[cst.BaseExpression], mode: int) -> None:
    """Raises Left: a coordinate of rows is not what the scheduler says of a tile, so that the two CTAs of a pair may
    multiply rows and columns that do not belong together."""
    text, where = kernel.text, place[1]
    name = where.value if isinstance(where, cst.Name) else ""
    said = m.Attribute(attr=m.Name("tile_idx"))
    bound = [a for a in found_in(kernel.function, cst.Assign) if name in set(targets_of(a.targets[0].target))]
    loop = next((n for n in text.above(where) if isinstance(n, cst.While)), None)
    near = [a for a in bound if loop is not None and text.span(loop).contains(text.span(a))]
    direct = m.Subscript(said, [m.SubscriptElement(m.Index(m.Integer(str(mode))))])
    if m.matches(where, direct):
        return
    if len(near) == 1:
        target, value = near[0].targets[0].target, near[0].value
        elements = target.elements if isinstance(target, cst.Tuple) else ()
        is_part = len(elements) == 3 and m.matches(elements[mode].value, m.Name(name))
        if m.matches(value, direct) or (is_part and m.matches(value, said)):
            return
    raise Left("rows that are loaded as the scheduler of tiles says", where)


def _tiles_of(kernel: Kernel, load: _Load) -> cst.BaseExpression:
    """How the tensor of B is divided into boxes."""
    text = kernel.text
    calls = [c for c in text.calls(kernel.function, KNOWN["tiled"]) if text.code(c.args[0].value) == load.tensor]
    where = _argument(one(calls, f"divisions of `{load.tensor}`"), 1, "tiler")
    is_slice = isinstance(where, cst.Call) and text.is_a(where.func, KNOWN["slice"]) and len(where.args) == 2
    if not is_slice or not m.matches(where, m.Call(args=[m.Arg(_NAMED), m.Arg(_OF_B)])):
        raise Left("a division of B by a part of a tile's shape", where)
    return where


def _alone(kernel: Kernel, name: str) -> list[cst.Call]:
    """Calls of a method of the pipeline of the loads, each of which is a statement with a state alone."""
    found = kernel.of_pipeline(kernel.function, name)
    for call in found:
        if whole_call(kernel.text.statement(call)) is not call or len(call.args) != 1:
            raise Left("waits of loads that are statements", call)
    return found


def _scheduler(kernel: Kernel) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """The shape of clusters that tiles are handed out to, and how many blocks there are."""
    text = kernel.text
    made = one(text.calls(text.module, KNOWN["tile_parameters"]), "schedulers of tiles")
    shape = _argument(made, 1, "cluster_shape_mnk")
    if not m.matches(shape, SINGLE):
        raise Left("a scheduler of tiles for single blocks, as it is written", made)
    grids = text.calls(text.module, *KNOWN["tile_grid"])
    return shape, _argument(one(grids, "grids of a scheduler of tiles"), 1, "max_active_clusters")


def _pipeline(kernel: Kernel) -> tuple[cst.BaseExpression | None, cst.BaseExpression]:
    """The layout of the cluster where the pipeline of the loads is made, and how many bytes they bring."""
    made = kernel.pipeline[1]
    layout, bytes_ = argument(made, None, "cta_layout_vmnk"), argument(made, None, "tx_count")
    if bytes_ is None:
        raise Left("the bytes of a buffer where the pipeline of loads is made", made)
    if layout is None or not isinstance(layout.value, cst.Call):
        raise Left("the layout of the cluster, written where the pipeline of loads is made", made)
    return layout.value, bytes_.value


STEP = Step(
    "cta-pair", RULE, _write, "dsl", Declared(roles=True, barriers=True, launch=("grid", "cluster"), maps=True),
    after={"mma-warp": "a warp of its own that issues the MMAs"}, cost=True,
    follows=("sm100-layouts", "next-tiles"),
    beside={
        "sm100-layouts": "operands in the layouts of the original, which CTAs can share",
        "next-tiles": "tiles that a block takes without asking: these are handed out to single blocks",
    },
)  # fmt: skip
