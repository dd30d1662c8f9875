# SPDX-License-Identifier: Apache-2.0
"""Operands in shared memory, and the TMA that brings them, are laid out as Blackwell's own helpers lay them out for the
tiled MMA: tensors and boxes have the modes of its atom ahead of their own.

CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py (make_smem_layout_a); cute/nvgpu/helpers.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.launches import given_at, in_kernel, launch_of
from porter.passes.idiom_dsl.mma import made_mma
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED, OPERANDS
from porter.passes.idiom_dsl.shapes import targets_of
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, argument, assigned, found_in, method
from porter.passes.idiom_dsl.words import Words
from porter.steps.step import Declared, Step

RULE = "PTR592"
NAME = "sm100-layouts"
_NONE = m.Element(m.Name("None"))
_STAGE = m.Tuple([_NONE, _NONE, m.Element(m.Integer("0"))])
_BOX = m.Call(args=[m.Arg(), m.Arg(m.Integer("0")), m.Arg(m.Integer("2"))])
_NEW_STAGE, _NEW_MODES = "(None, None, None, 0)", "3"
_MEMBERS = ("outer", "inner")


@dataclass
class _Changes:
    """What becomes of nodes, and lines that stand above statements."""

    new: list[tuple[cst.CSTNode, str]] = field(default_factory=list)
    above: list[tuple[cst.CSTNode, str]] = field(default_factory=list)

    def add(self, node: cst.CSTNode, new: str) -> None:
        self.new.append((node, new))


def _write(site: Site) -> None:
    kernel, text, words = site.kernel, site.kernel.text, site.words
    if len({text.function(c) for c in text.calls(text.module, *OBSERVED["multiply"])}) > 1:
        raise Left("one kernel with MMAs in the file")
    made, launch, changes = made_mma(kernel), launch_of(kernel), _Changes()
    bound, host = assigned(text.statement(made)), text.function(made)
    if bound is None or bound[1] is not made or text.function(launch) is not host:
        raise Left("a tiled MMA with a name in the function that launches the kernel", made)
    named = dict(_layouts(kernel, host, made, bound[0], words, changes))
    if {operand for operand, _ in named.values()} != set(OPERANDS):
        raise Left("layouts of A and of B where the kernel is launched", made)
    slices = {name: _slices(kernel, host, name, launch, named, changes) for name in named}
    _atoms(kernel, host, launch, named, slices, bound[0], words, changes)
    for name, (operand, _) in named.items():
        own = in_kernel(kernel, launch, name)
        _slices(kernel, kernel.function, own, launch, (), changes)
        for tensor in _tensors(kernel, own):
            _in_shared_memory(kernel, tensor, {**OPERANDS[operand], "name": f"tCg{operand}"}, changes)
    before = site.also

    def edits(draft: Draft, words: Words) -> None:
        if before is not None:
            before(draft, words)
        for node, new in changes.new:
            draft.replace(RULE, node, new)
        for statement, new in changes.above:
            draft.above(RULE, statement, new)

    site.also = edits


def _layouts(
    kernel: Kernel, host: cst.FunctionDef, made: cst.Call, mma: str, words: Words, changes: _Changes
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The name of each operand's layout in the host function, with which operand it is and its whole tile."""
    text = kernel.text
    for call in dict.fromkeys(s.call for s in kernel.facts.of("operand_layout")):
        bound = assigned(text.statement(call))
        if text.function(call) is not host or text.span(call).start < text.span(made).end:
            raise Left("the tiled MMA ahead of layouts of operands, in one function", call)
        if bound is None or bound[1] is not call or not bound[0].isidentifier():
            raise Left("a name of a layout", call)
        if len(call.args) != 4 or any(arg.keyword is not None or arg.star for arg in call.args):
            raise Left("a layout whose arguments are not named", call)
        operand = "B" if text.is_a(call.func, KNOWN["layout_b"]) else "A"
        changes.add(call.func, f"{words['sm100']}.{OPERANDS[operand]['layout']}")
        changes.add(call.args[0].value, mma)
        yield bound[0], (operand, text.code(call.args[1].value))


def _uses(function: cst.FunctionDef, kernel: Kernel, name: str) -> Iterator[cst.Name]:
    """Where a function reads a name."""
    bound = {id(part) for t in found_in(function, cst.AssignTarget) for part in _bound_in(t.target)}
    for node in found_in(function, cst.Name):
        parent = kernel.text.parent(node)
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
        is_member = isinstance(parent, cst.Attribute) and parent.attr is node
        if node.value == name and not (is_keyword or is_member or id(node) in bound or isinstance(parent, cst.Param)):
            yield node


def _bound_in(target: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of a target that are bound one by one."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _bound_in(element.value)
    else:
        yield target


def _called_with(kernel: Kernel, node: cst.CSTNode) -> cst.Call | None:
    """The call that a node is an argument of."""
    arg = kernel.text.parent(node)
    above = kernel.text.parent(arg)
    return above if isinstance(arg, cst.Arg) and isinstance(above, cst.Call) else None


def _slices(
    kernel: Kernel, function: cst.FunctionDef, name: str, launch: cst.Call, operands: Collection[str], changes: _Changes
) -> list[cst.CSTNode]:
    """The layout of one stage, wherever it is made of a layout, and names that are bound to it. Raises Left: the layout
    has another use, which may ask for its modes."""
    text, found = kernel.text, list[cst.CSTNode]()
    for node in _uses(function, kernel, name):
        parent, call = text.parent(node), _called_with(kernel, node)
        if isinstance(parent, cst.Attribute) and parent.attr.value in _MEMBERS:
            continue
        if call is not None and (call is given_at(launch) or text.is_a(call.func, *KNOWN["measures"])):
            continue
        bound, call = _listed(kernel, node, operands) if call is None else (_bound_to(kernel, call), call)
        if call is None or not text.is_a(call.func, KNOWN["slice"]) or len(call.args) != 2:
            raise Left(f"a layout that is used apart from its stages, by `{text.code(text.statement(node))}`", node)
        if not m.matches(_value_of(function, call.args[1].value), _STAGE):
            raise Left("a stage of a layout", call)
        changes.add(call.args[1].value, _NEW_STAGE)
        found += [call, *(_of_stage(kernel, function, bound) if bound else ())]
    return found


def _of_stage(kernel: Kernel, function: cst.FunctionDef, name: str) -> Iterator[cst.Name]:
    """Where the layout of a stage is used by its name. Raises Left: for more than a load, or its size."""
    for node in _uses(function, kernel, name):
        call = _called_with(kernel, node)
        if call is None or not kernel.text.is_a(call.func, KNOWN["tma_atom"], *KNOWN["measures"]):
            raise Left(f"a stage of a layout that is used apart from loads, by `{name}`", node)
        yield node


def _bound_to(kernel: Kernel, call: cst.Call) -> str:
    """The name that a statement binds to a call; empty if it does more."""
    bound = assigned(kernel.text.statement(call))
    return bound[0] if bound is not None and bound[1] is call else ""


def _listed(kernel: Kernel, node: cst.Name, operands: Collection[str]) -> tuple[str, cst.Call | None]:
    """Of `a, b = [f(x, …) for x in (A, B)]`, all of which are operands: the name for A and the call that all of them
    have."""
    text = kernel.text
    these = text.parent(text.parent(node))
    made = text.parent(text.parent(these))
    shape = m.ListComp(elt=m.Call(args=[m.Arg(m.Name()), m.Arg()]), for_in=m.CompFor(m.Name(), m.Tuple()))
    if not isinstance(these, cst.Tuple) or not isinstance(made, cst.ListComp) or not m.matches(made, shape):
        return "", None
    statement, values = text.statement(node), [e.value for e in these.elements]
    targets = found_in(statement, cst.AssignTarget)
    names = list(targets_of(targets[0].target)) if len(targets) == 1 else []
    call = cst.ensure_type(made.elt, cst.Call)
    same = text.code(call.args[0].value) == text.code(made.for_in.target)
    if not same or len(names) != len(values) or not {text.code(v) for v in values} <= set(operands):
        return "", None
    return names[values.index(node)], call


def _value_of(function: cst.FunctionDef, value: cst.BaseExpression) -> cst.BaseExpression:
    """What a name stands for that one statement binds."""
    if isinstance(value, cst.Name):
        said = [b[1] for s in found_in(function, cst.SimpleStatementLine) if (b := assigned(s)) and b[0] == value.value]
        return said[0] if len(said) == 1 else value
    return value


def _atoms(
    kernel: Kernel, host: cst.FunctionDef, launch: cst.Call, named: Mapping[str, tuple[str, str]],
    slices: Mapping[str, Sequence[cst.CSTNode]], mma: str, words: Words, changes: _Changes,
) -> None:  # fmt: skip
    """The loads of operands, of boxes of the atom's own rows."""
    text = kernel.text
    cluster = argument(launch, None, "cluster")
    seen = set[str]()
    for call in text.calls(host, KNOWN["tma_atom"]):
        layout = argument(call, 2, "smem_layout_")
        name = next((n for n, nodes in slices.items() if layout is not None and layout.value in nodes), None)
        if name is None:
            continue
        if len(call.args) not in (4, 5) or any(arg.keyword is not None for arg in call.args[:4]):
            raise Left("a load whose arguments are not named", call)
        operand, tile = named[name]
        seen.add(name)
        changes.add(call.func, f"{words['loading']}.{OPERANDS[operand]['atom']}")
        changes.add(call.args[3].value, f"{tile}, {mma}")
        if len(call.args) == 5:
            if cluster is None:
                raise Left("the shape of clusters where the kernel is launched", call)
            changes.add(call.args[4], f"(1, *{text.code(cluster.value)})")
    if seen != set(named):
        raise Left("a load with each layout", launch)


def _tensors(kernel: Kernel, layout: str) -> list[str]:
    """Tensors in shared memory with a layout."""
    text, found = kernel.text, list[str]()
    for node in _uses(kernel.function, kernel, layout):
        parent = text.parent(node)
        if not isinstance(parent, cst.Attribute) or parent.attr.value != _MEMBERS[0]:
            continue
        call = _called_with(kernel, parent)
        bound = assigned(text.statement(node))
        if call is None or bound is None or bound[1] is not call:
            raise Left("a tensor in shared memory with a name of its own", node)
        found.append(bound[0])
    if not found:
        raise Left(f"a tensor in shared memory that is made with `{layout}`", kernel.function)
    return found


def _in_shared_memory(kernel: Kernel, tensor: str, operand: Mapping[str, str], changes: _Changes) -> None:
    """Where the buffers of an operand are filled, and what an MMA reads of them. Raises Left: they are used apart from
    that, or not for both."""
    text, found = kernel.text, set[str]()
    for node in _uses(kernel.function, kernel, tensor):
        call = _called_with(kernel, node)
        above = _called_with(kernel, call) if call is not None else None
        if call is None or above is None:
            raise Left(f"an operand that is used apart from loads and MMAs, by `{tensor}`", node)
        if method(call, operand["part"]) and len(call.args) == 1 and method(above, operand["fragment"]) == kernel.mma:
            found.add("fragment")
            changes.add(call, tensor)
        elif text.is_a(call.func, KNOWN["group_modes"]) and text.is_a(above.func, KNOWN["partition"]):
            found.add("load")
            _partition(kernel, above, call, operand, changes)
        else:
            raise Left(f"an operand that is used apart from loads and MMAs, by `{tensor}`", node)
    if len(found) < 2:
        raise Left(f"loads and MMAs of `{tensor}`, where it is made", kernel.function)


def _partition(
    kernel: Kernel, load: cst.Call, buffers: cst.Call, operand: Mapping[str, str], changes: _Changes
) -> None:
    """The boxes that are brought are those of the MMA's operand. Raises Left: it is not seen which they were."""
    text, there = kernel.text, argument(load, 4, "gmem_tensor")
    boxes = there.value if there is not None else None
    if not isinstance(boxes, cst.Call) or not text.is_a(boxes.func, KNOWN["group_modes"]) or len(load.args) != 5:
        raise Left("boxes of a tensor, where they are partitioned", load)
    if not m.matches(buffers, _BOX) or not m.matches(boxes, _BOX):
        raise Left("boxes of rows and columns where they are partitioned", load)
    statement, whole = text.statement(load), boxes.args[0].value
    if not isinstance(statement, cst.SimpleStatementLine) or any(
        isinstance(node, (cst.BaseComp, cst.Lambda)) for node in text.above(load)
    ):
        raise Left("a partition by a statement", load)
    name = kernel.fresh(operand["name"])
    own = f"{name} = {kernel.mma}.get_slice(0).{operand['part']}({text.code(whole)})"
    changes.above.append((statement, own))
    changes.add(whole, name)
    changes.add(buffers.args[2].value, _NEW_MODES)
    changes.add(boxes.args[2].value, _NEW_MODES)


STEP = Step(
    NAME, RULE, _write, "dsl", Declared(maps=True), follows=("mma-warp",), on_request="--layouts sm100",
)  # fmt: skip
