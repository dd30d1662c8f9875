# SPDX-License-Identifier: Apache-2.0
"""The epilogue: a tile of the accumulator comes out of Tensor Memory where registers were copied, and the load decides
which thread holds what. All between the load and the stores stays.

CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py, get_tmem_load_op, get_smem_store_op.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.text import Draft, Left, Statement, argument, assigned, found_in, method, one
from porter.passes.idiom_dsl.words import Words

RULE = "PTR586"


@dataclass(frozen=True)
class ByTiles:
    """An epilogue that has the accumulator's registers tile by tile: `copy` is the loop over the elements of a tile, or
    what names them (`is_view`); `index` which tile it is, `slice` the thread, `tile` its rows and columns. `fragment`:
    the registers of a tile."""

    retiled: Statement
    copy: Statement
    is_view: bool
    index: str
    fragment: str
    store: cst.Call
    store_name: str
    atom: cst.Call
    slice: str
    tile: str
    layout: str
    c_dtype: str
    acc_dtype: str
    warpgroups: int = 1
    number: str = "1"


def by_tiles(kernel: Kernel, acc: str = "") -> ByTiles:
    """How the accumulator is copied, or other registers `acc` that are used in further ways, too.

    Raises:
        Left: the registers are read in another way.
    """
    if len(kernel.accumulator.names) > 1:
        raise Left("several accumulators", kernel.accumulator.statements[-1])
    text, aliases = kernel.text, kernel.aliases_of(acc or kernel.accumulator.name)
    used_apart = kernel.uses(aliases) if not acc else []
    acc = acc or kernel.accumulator.name
    bound = _bound(kernel)
    retiled = [s for name, (s, v) in bound.items() if name in aliases and method_arg(kernel, v, "retile") == acc]
    statement = one(retiled, f"retiled copies of `{acc}`")
    name, value = _assigned(statement)
    store_name = method(cst.ensure_type(value, cst.Call), "retile")
    for used in used_apart:
        if used.value != name and not text.span(statement).contains(text.span(used)):
            raise Left(f"registers of the accumulator that are used apart from the copy, by `{used.value}`", used)
    copy, index, fragment = _view(kernel, name) or _copy(kernel, name)
    store = bound.get(store_name, (None, None))[1]
    if not isinstance(store, cst.Call) or not text.is_a(store.func, KNOWN["tiled_store"]):
        raise Left("a copy to shared memory that is not made of the accumulator's layout", statement)
    atom = _value_of(kernel, store.args[0].value)
    base = _value_of(kernel, store.args[1].value)
    if (
        not isinstance(atom, cst.Call)
        or not isinstance(base, cst.Call)
        or not text.is_a(base.func, KNOWN["tiled_atom"])
    ):
        raise Left("a copy to shared memory that is not made of the accumulator's layout", store)
    layout, c_dtype, acc_dtype = _types(kernel, atom)
    is_view = not isinstance(copy, cst.For)
    if fragment not in bound:
        raise Left(f"registers `{fragment}` of the epilogue that are not made in the kernel", copy)
    slices = {
        text.code(c.args[0].value) for c in found_in(kernel.function, cst.Call) if method(c, "get_slice") == store_name
    }
    if len(slices) != 1:
        raise Left("several slices of the copy to shared memory", store)
    return ByTiles(
        statement, copy, is_view, index, fragment, store, store_name, atom, slices.pop(), _tile(kernel, copy), layout,
        c_dtype, acc_dtype or f"{acc}.element_type"
    )  # fmt: skip


def edit(kernel: Kernel, how: ByTiles, draft: Draft, words: Words) -> None:
    words.update(values(how))
    if how.acc_dtype == f"{kernel.accumulator.name}.element_type":
        words["acc_dtype"] = f"{words['acc']}.element_type"
    draft.above(RULE, kernel.text.statement(how.atom), words.text("tile_load", slice=how.slice))
    store_as_loaded(kernel, how, draft, words)
    draft.remove(RULE, how.retiled)
    fragment = f"{how.store_name}.retile({words['registers']})"
    loaded = words.loaded("copy_tile", index=how.index)
    if how.is_view:
        loaded += f"\n{how.fragment} = {fragment}"
    else:
        draft.replace(RULE, _bound(kernel)[how.fragment][1], fragment)
    draft.instead(RULE, how.copy, loaded)
    if kernel.repeats:
        _given_back(kernel, how, draft, words)


def values(how: ByTiles) -> dict[str, str]:
    """What sections of text have for it."""
    return {"tile": how.tile, "c_layout": how.layout, "c_dtype": how.c_dtype, "acc_dtype": how.acc_dtype}


def store_as_loaded(kernel: Kernel, how: ByTiles, draft: Draft, words: Words) -> None:
    """Registers are stored in the layout that they are loaded in."""
    text = kernel.text
    if text.span(how.atom).start < text.span(kernel.accumulator.statement).start:
        raise Left("a copy to shared memory that is made ahead of the accumulator", how.atom)
    new = f"{words['sm100']}.get_smem_store_op({how.layout}, {how.c_dtype}, {how.acc_dtype}, {words['load']})"
    draft.replace(RULE, how.atom, new)
    first = how.store.args[0].value
    draft.replace(RULE, how.store, f"{words['cute']}.make_tiled_copy_D({text.code(first)}, {words['load']})", [first])


def _given_back(kernel: Kernel, how: ByTiles, draft: Draft, words: Words) -> None:
    """Behind the last load of a tile the next one may be multiplied."""
    behind = kernel.text.in_block(how.copy, kernel.region.block)
    if behind is None:
        raise Left("an accumulator that is read away from its main loop", how.copy)
    draft.below(RULE, behind, words.text_if_any("release"))


def _bound(kernel: Kernel) -> dict[str, tuple[Statement, cst.BaseExpression]]:
    """Names that the kernel binds once, with the statement and the value."""
    found: dict[str, tuple[Statement, cst.BaseExpression]] = {}
    twice = set()
    for statement in found_in(kernel.function, cst.SimpleStatementLine):
        if (bound := assigned(statement)) is not None:
            twice |= {bound[0]} & set(found)
            found[bound[0]] = statement, bound[1]
    return {name: value for name, value in found.items() if name not in twice}


def _assigned(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression]:
    found = assigned(statement)
    assert found is not None
    return found


def value_of(statement: cst.CSTNode) -> cst.BaseExpression:
    return _assigned(statement)[1]


def method_arg(kernel: Kernel, value: cst.CSTNode, name: str) -> str:
    """What a method is called with, where a value is a call of it with one argument."""
    if isinstance(value, cst.Call) and method(value, name) and len(value.args) == 1:
        return kernel.text.code(value.args[0].value)
    return ""


def _value_of(kernel: Kernel, value: cst.BaseExpression) -> cst.BaseExpression:
    bound = _bound(kernel)
    while isinstance(value, cst.Name) and value.value in bound:
        value = bound[value.value][1]
    return value


def _view(kernel: Kernel, name: str) -> tuple[Statement, str, str] | None:
    """`D = make_tensor(ACC.iterator + e * n, LAYOUT)` of n registers, which tile e is, and the name of D."""
    text = kernel.text
    for fragment, (statement, value) in _bound(kernel).items():
        if not isinstance(value, cst.Call) or not text.is_a(value.func, KNOWN["tensor"]) or len(value.args) != 2:
            continue
        where, layout = value.args[0].value, text.code(value.args[1].value)
        both = m.BinaryOperation(m.Attribute(m.Name(name), m.Name("iterator")), m.Add(), m.BinaryOperation())
        if not m.matches(where, both):
            continue
        product = cst.ensure_type(cst.ensure_type(where, cst.BinaryOperation).right, cst.BinaryOperation)
        for count, index in ((product.left, product.right), (product.right, product.left)):
            if text.only_argument(_value_of(kernel, count), KNOWN["size"]) in (layout, f"{layout}.shape"):
                if not isinstance(product.operator, cst.Multiply) or len(_uses(kernel, name)) != 2:
                    break
                return statement, text.code(index), fragment
    return None


def _uses(kernel: Kernel, name: str) -> list[cst.Name]:
    return [n for n in found_in(kernel.function, cst.Name) if n.value == name]


def _copy(kernel: Kernel, name: str) -> tuple[cst.For, str, str]:
    """The loop `for v in …: D[v] = ACC[e * n + v]`, which tile e is, and the name of D."""
    text = kernel.text
    element = m.Subscript(m.Name(), [m.SubscriptElement(m.Index())])
    body = m.IndentedBlock([m.SimpleStatementLine([m.Assign([m.AssignTarget(element)], element)])])
    loops = [f for f in found_in(kernel.function, cst.For) if m.matches(f, m.For(m.Name(), body=body))]
    loops = [f for f in loops if any(n.value == name for n in found_in(f.body, cst.Name))]
    loop = one(loops, f"loops that copy `{name}`")
    line = cst.ensure_type(loop.body.body[0], cst.SimpleStatementLine).body[0]
    copy = cst.ensure_type(line, cst.Assign)
    to, source = cst.ensure_type(copy.targets[0].target, cst.Subscript), cst.ensure_type(copy.value, cst.Subscript)
    counter = cst.ensure_type(loop.target, cst.Name).value
    if text.code(to.slice[0]) != counter or text.code(source.value) != name:
        raise Left("a copy of registers in another order", loop)
    if len(uses := _uses(kernel, name)) != 2:
        raise Left(f"`{name}` that is used apart from its copy", uses[-1])
    where = cst.ensure_type(source.slice[0].slice, cst.Index).value
    count = cst.ensure_type(loop.iter, cst.Call).args if isinstance(loop.iter, cst.Call) else ()
    if len(count) != 1:
        raise Left("a copy of registers in another order", loop)
    return loop, _tile_index(kernel, where, counter, text.code(count[0].value)), text.code(to.value)


def _tile_index(kernel: Kernel, where: cst.BaseExpression, counter: str, count: str) -> str:
    """Of `e * n + v`, in any order of its parts, what e is."""
    text = kernel.text
    if m.matches(where, m.BinaryOperation(operator=m.Add())):
        both = cst.ensure_type(where, cst.BinaryOperation)
        for v, product in ((both.left, both.right), (both.right, both.left)):
            if text.code(v) == counter and m.matches(product, m.BinaryOperation(operator=m.Multiply())):
                sides = cst.ensure_type(product, cst.BinaryOperation)
                for n, e in ((sides.left, sides.right), (sides.right, sides.left)):
                    if text.code(n) == count:
                        return text.code(e)
    raise Left("a copy of registers in another order", where)


def _tile(kernel: Kernel, copy: Statement) -> str:
    """Rows and columns of the epilogue's tile, as the kernel calls them."""
    text = kernel.text
    found = {text.code(c.args[1].value) for c in text.calls(kernel.function, *OBSERVED["divide"]) if len(c.args) == 2}
    if len(found) != 1:
        raise Left("an epilogue tile that has no name in the kernel", copy)
    return found.pop()


def _types(kernel: Kernel, atom: cst.Call) -> tuple[str, str, str]:
    """Layout and element type of C, and the type of the sums if it is said, as an atom of the store has them."""
    text = kernel.text
    if text.is_a(atom.func, *OBSERVED["store_atom"]):
        given = [argument(atom, i, k) for i, k in enumerate(("layout_d", "elem_ty_d", "elem_ty_acc"))]
        if all(given):
            layout, c_dtype, acc_dtype = (text.code(a.value) for a in given if a is not None)
            return layout, c_dtype, acc_dtype
    if text.is_a(atom.func, KNOWN["copy_atom"]) and len(atom.args) == 2:
        op = _value_of(kernel, atom.args[0].value)
        transposed = (
            op.args[0].value
            if isinstance(op, cst.Call) and op.args and text.is_a(op.func, KNOWN["matrix_store"])
            else None
        )
        if isinstance(transposed, cst.Call) and (layout := method(transposed, "is_m_major_c")):
            return layout, text.code(atom.args[1].value), ""
    raise Left("an atom of the store to shared memory whose layout and types are not said", atom)
