# SPDX-License-Identifier: Apache-2.0
"""Columns of functions: what a function declares lies behind what the functions that it calls declare, so that the
kernel knows how many columns all of them take. Beside each function that is no kernel stands one that says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from porter.diagnostics import Code
from porter.lang.cuda import enclosing, walk
from porter.model.functions import Call, Function, Style, outermost
from porter.model.program import PACK
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Handle
from porter.passes.tiled import atoms
from porter.passes.tiled.context import NAMESPACE, Frame, TiledContext, TiledKernel
from porter.passes.tiled.lifetimes import together
from porter.passes.tiled.names import Names
from porter.passes.tiled.operands import COUNT, Term, conditions_around, counted_by, operand_terms
from porter.passes.tiled.spelling import Place, Unnamed, arguments_given, parameters_of, spelled, template_parameters
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.text import cpp

RULE = "PTR622"
WARPGROUPS = "kWarpgroups"
_DECLARED = re.compile(r"\b\w+(?:<[^;]*?>)?[\s&*]+(\w+)\s*[=({;]")
"""A name that a declaration in a macro's text declares."""
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")


@dataclass(eq=False)
class Columns:
    """Columns of a function's accumulators, as C++ constant expressions."""

    lines: list[str] = field(default_factory=list)
    first: dict[int, str] = field(default_factory=dict)
    """First column of a fragment, by id of the handle."""
    total: str = "0"


def find_frames(context: TiledContext) -> None:
    """The functions with accumulators of their own or of functions that they call."""
    kernels = {id(k.function): k for k in context.kernels}
    for handle in context.tiled.fragments:
        outer = outermost(handle.function)
        kernel = kernels.get(id(outer))
        inside = kernel is not None and context.sees_warpgroup(handle.function, handle.declaration)
        if not inside and outer.style not in (Style.DEVICE, Style.METHOD):
            what = f"accumulator `{handle.name}` is declared in `{handle.function.name}`, which is no kernel"
            context.tiled.refuse(handle.function, handle.declaration, what, Code.OUTSIDE_OF_KERNELS)
            continue
        frame = context.frames.setdefault(id(outer), kernel if kernel is not None else Frame(outer))
        frame.fragments.append(handle)
    program = context.tiled.program
    seeds = [f.function for f in context.frames.values()]
    seeds += [outermost(o.function) for m in context.tiled.multiplies for o in context.tiled.operands(m)]
    ids = program.reaching(seeds)
    for function in program.functions:
        if id(function) in ids and function.style in (Style.DEVICE, Style.METHOD, Style.KERNEL):
            kernel = kernels.get(id(function))
            if kernel is not None or function.style is not Style.KERNEL:
                context.frames.setdefault(id(function), kernel if kernel is not None else Frame(function))
    for frame in context.frames.values():
        frame.fragments.sort(key=lambda h: h.declaration.start_byte)


def state_frames(context: TiledContext, names: Names) -> None:
    """Write, beside every function that is no kernel, how many columns it takes."""
    busy: set[int] = set()
    done: set[int] = set()

    def visit(frame: Frame) -> None:
        key = id(frame.function)
        if key in done:
            return
        if key in busy:
            what = f"`{frame.function.name}` declares accumulators and calls itself"
            context.tiled.refuse(frame.function, frame.function.body, what, Code.OUTSIDE_OF_KERNELS)
            return
        busy.add(key)
        for _, target in _calls(context, frame):
            if target is not frame or frame.fragments:
                visit(target)
        done.add(key)
        if not isinstance(frame, TiledKernel):
            _state(context, names, frame)

    for frame in list(context.frames.values()):
        visit(frame)


def _state(context: TiledContext, names: Names, frame: Frame) -> None:
    """The functions beside one function. What it does not declare or hand to MMAs, itself or through others, it does
    not say either."""
    function = frame.function
    hidden = frozenset(_declared_by_macros(context, function))
    place = Place(context.tiled.program, function, hidden=hidden)
    try:
        columns = columns_of(context, names, frame, place, WARPGROUPS)
        terms = operands_of(context, frame, place, WARPGROUPS)
    except Unnamed as reason:
        what = f"beside `{function.name}`, {reason}"
        context.tiled.refuse(*(reason.at or (function, function.body)), what, Code.COLUMNS_UNKNOWN)
        return
    frame.taken = place.taken
    texts: list[str] = []
    if columns.total != "0":
        frame.columns_name = context.port.names.fresh(f"{_word(function)}_columns")
        what = f"the accumulators of {function.name}"
        texts.append(_function(frame, frame.columns_name, f"Columns for {what}", columns.lines, columns.total))
    for handle in frame.fragments:
        column = columns.first[id(handle)]
        if column:
            name = context.port.names.fresh(f"{_word(function)}_{handle.name}_column")
            texts.append(_function(frame, name, f"The first column of {handle.name}", columns.lines, column))
            own = ", ".join(_inside(function, n, d) for n, d in frame.taken.items())
            alone, several = (_value(f"{name}<{', '.join([w, own] if own else [w])}>()") for w in "12")
            state = warpgroup_at(context, handle.function, handle.declaration, handle.name)
            column = cpp("first_column", state=state, alone=alone, several=several)
        frame.first[id(handle)] = column
    if terms:
        frame.operands_name = context.port.names.fresh(f"{_word(function)}_operand_columns")
        what = f"A operands from registers of {function.name}"
        lines, most = counted(context, frame, terms, WARPGROUPS)
        texts.append(_function(frame, frame.operands_name, f"Columns for {what}", lines, most))
    if not texts:
        return
    beside = function
    if function.style is Style.METHOD and enclosing(function.node, *_CLASSES) is None:
        declared = context.tiled.program.declarations(function)
        if len(declared) != 1 or not _names_class_alike(function):
            what = f"`{function.name}` is defined outside of its class"
            context.tiled.refuse(function, function.body, what, Code.OUTSIDE_OF_KERNELS)
            return
        beside = declared[0]
    node = beside.node
    if node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    at, text = context.port.statement_before(beside, node, "\n".join(texts) + "\n", above_comments=True)
    context.port.edit(RULE, beside, at, text)


def _names_class_alike(function: Function) -> bool:
    """Whether a method that is defined outside of its class calls the parameters of the class's template as the class
    does."""
    owner, node, heads = function.owner_class, function.node.parent, list[str]()
    if owner is None or owner.special is not None:
        return False
    while node is not None and node.type == "template_declaration":
        heads = [*parameters_of(function, node), *heads]
        node = node.parent
    return heads == [*(p.name for p in owner.params), *function.template_params]


def _declared_by_macros(context: TiledContext, function: Function) -> Iterator[str]:
    """Names that macros declare which a function uses."""
    macros = context.tiled.program.macros
    words = {function.text(n) for n in walk(function.body) if n.type in ("identifier", "type_identifier")}
    for word in words & macros.by_name.keys():
        yield from (m[1] for m in _DECLARED.finditer(macros.text(word)))


def _word(function: Function) -> str:
    return "call" if not re.fullmatch(r"\w+", function.name) else function.name


def _inside(function: Function, name: str, declared: str) -> str:
    """A template parameter of the functions beside a function, in the function itself."""
    param = function.param(name)
    if param is not None and declared == f"class {param.name}_type":
        return cpp("type_of", expression=name)
    return name


def _function(frame: Frame, name: str, what: str, lines: list[str], result: str) -> str:
    head = ", ".join([f"int {WARPGROUPS}", *frame.taken.values()])
    return cpp(
        "columns_function",
        what=what,
        warpgroups=WARPGROUPS,
        head=head,
        static=frame.function.style is Style.METHOD,
        name=name,
        body=[{"line": line} for line in lines],
        result=result,
    )


def columns_of(context: TiledContext, names: Names, frame: Frame, place: Place, warpgroups: str) -> Columns:
    """Columns of a function's accumulators behind those of what it calls. Raises Unnamed."""
    found = Columns()
    called = [
        _stated(call, other, other.columns_name, place, warpgroups)
        for call, other in _calls(context, frame)
        if other.columns_name and other is not frame
    ]
    base = ""
    if called:
        base = context.local(frame, "called_columns") if frame.fragments else greatest(called)
        if frame.fragments:
            found.lines.append(cpp("constant", name=base, value=greatest(called)))
    ends: list[str] = [base] if base else []
    own: dict[int, str] = {}
    for handle in frame.fragments:
        name = context.local(frame, f"{handle.name}_columns")
        if handle.array is not None:
            width = atoms.width(context, frame, handle)
        else:
            mma, fragment = _types(place, handle)
            width = cpp("columns_of", warpgroups=warpgroups, mma=mma, fragment=fragment)
        frame.widths[handle.name] = width
        found.lines.append(cpp("constant", name=name, value=width))
        others = [o for o in frame.fragments if id(o) in own]
        before = [own[id(o)] for o in others if o.array or handle.array or together(names, o, handle)]
        before = [base, *before] if base else before
        found.first[id(handle)] = " + ".join(before)
        own[id(handle)] = name
        ends.append(" + ".join([*before, name]))
    ends = [e for e in ends if not any(o != e and o.startswith(e + " + ") for o in ends)]
    if ends:
        found.total = greatest(ends)
    return found


def operands_of(context: TiledContext, frame: Frame, place: Place, warpgroups: str) -> list[Term]:
    """Columns of the A operands that may come from registers, of a function and of what it calls. Raises Unnamed."""
    terms = operand_terms(context, frame, place, warpgroups)
    if isinstance(frame, TiledKernel) and atoms.reads_registers(context, frame):
        terms.append(Term(cpp("atom_operand_columns")))
    for call, other in _calls(context, frame):
        if other.operands_name and other is not frame:
            conditions = conditions_around(call.caller, call.node, place)
            shown = _stated(call, other, other.operands_name, place, counted_by(warpgroups, conditions))
            terms.append(Term(shown, conditions))
    return list(dict.fromkeys(terms))


def greatest(expressions: list[str]) -> str:
    found = list(dict.fromkeys(expressions))
    text = found[0]
    for other in found[1:]:
        text = cpp("greater", one=text, other=other)
    return text


def counted(context: TiledContext, frame: Frame, terms: list[Term], warpgroups: str) -> tuple[list[str], str]:
    """Lines of a function that count its terms, those of a batch together, and the greatest number. What a condition
    excludes has no type."""
    lines: list[str] = []
    batches: dict[tuple[int, ...], list[str]] = {}
    for number, term in enumerate(terms):
        values = batches.setdefault(term.batch or (number,), [])
        if not term.conditions:
            values.append(term.columns)
            continue
        name = context.local(frame, "operand")
        condition = " && ".join(term.conditions)
        lines += cpp("columns_if", name=name, parameter=COUNT, condition=condition, columns=term.columns).split("\n")
        values.append(_value(cpp("call_with_number", name=name, number=warpgroups)))
    return lines, greatest([" + ".join(values) for values in batches.values()])


def _value(call: str) -> str:
    """The number that the type of a call's result is."""
    return cpp("number_of", call=call)


def _types(place: Place, handle: Handle) -> tuple[str, str]:
    """The types of an accumulator's MMA and of its registers. Raises Unnamed."""
    assert handle.mma is not None
    if handle.value is None:
        raise Unnamed(f"`{handle.name}` is declared without a value", (handle.function, handle.declaration))
    holder, node = handle.mma
    mma, fragment = spelled(holder, node, place), spelled(handle.function, handle.value, place)
    return cpp("declared_type", expression=mma), cpp("declared_type", expression=fragment)


def _calls(context: TiledContext, frame: Frame) -> Iterator[tuple[Call, Frame]]:
    """Calls of a function and its lambdas that come to accumulators of another."""
    program = context.tiled.program
    for function in program.functions:
        if outermost(function) is not frame.function:
            continue
        for call in function.calls:
            for target in program.targets(call):
                other = context.frames.get(id(outermost(target)))
                if other is not None and target.style in (Style.DEVICE, Style.METHOD):
                    yield call, other


def frames_of(context: TiledContext, frame: Frame) -> list[Frame]:
    """A function and those with accumulators that it comes to."""
    found, work = [], [frame]
    while work:
        one = work.pop()
        if one not in found:
            found.append(one)
            work += [other for _, other in _calls(context, one)]
    return found


def _stated(call: Call, frame: Frame, name: str, place: Place, warpgroups: str) -> str:
    """What the function `name` beside the one that is called says. Raises Unnamed."""
    function, target = call.caller, frame.function
    shown = f"{name}<{', '.join([warpgroups, *_arguments(call, frame, place)])}>()"
    callee = call.node.child_by_field_name("function")
    of = None
    if callee is not None and callee.type == "identifier" and target.style is Style.METHOD:
        # an object that is called, but for a method of the same class
        of = callee if resolve(function, callee, function.text(callee)) is not None else None
    if callee is not None and of is None and callee.type in ("identifier", "template_function"):
        return _value(shown)
    if callee is not None and (of is not None or callee.type == "field_expression"):
        of = of or callee.child_by_field_name("argument")
        if of is not None and function.text(of) == "this":
            return _value(shown)
        if of is not None:
            written = spelled(function, of, place)
            declared = re.fullmatch(rf"{NAMESPACE}::declval<(.*)&>\(\)", written)
            kind = declared[1] if declared else cpp("type_of", expression=written)
            return _value(f"{kind}::template {shown}")
    if callee is not None and callee.type == "qualified_identifier":
        scope, last = callee.child_by_field_name("scope"), callee
        while last.type == "qualified_identifier":
            inner = last.child_by_field_name("name")
            if inner is None:
                break
            last = inner
        front = spelled(function, scope, place) if scope is not None else ""
        rest = function.file.source[scope.end_byte if scope is not None else callee.start_byte : last.start_byte]
        front += rest.decode().replace("template ", "")
        return _value(f"{front}{'template ' if target.style is Style.METHOD else ''}{shown}")
    raise Unnamed(f"`{function.text(call.node)}` calls something that has no name there", (function, call.node))


def _arguments(call: Call, frame: Frame, place: Place) -> Iterator[str]:
    """What a call hands in for the template parameters of the functions beside its target. Raises Unnamed."""
    target = frame.function
    for name, declared in frame.taken.items():
        param = target.param(name)
        if param is not None and declared == f"class {param.name}_type":
            yield _type_of(call, param.index, place)
        elif "..." in declared:
            raise Unnamed(f"template parameter `{name}` of `{target.name}` is a pack")
        else:
            yield _template_argument(call, target, name, place)


def _type_of(call: Call, index: int, place: Place) -> str:
    if index >= len(call.args) or any(a.type == PACK for a in call.args):
        raise Unnamed(f"`{call.caller.text(call.node)}` leaves an argument to its default", (call.caller, call.node))
    return cpp("type_of", expression=spelled(call.caller, call.args[index], place))


def _template_argument(call: Call, target: Function, name: str, place: Place) -> str:
    """A template argument of a call, given or deduced from a parameter that is of that type alone."""
    given = [n for n in arguments_given(call) if n.type != "comment"]
    index = list(template_parameters(target)).index(name)
    if index < len(given):
        return spelled(call.caller, given[index], place)
    for param in target.params:
        text = target.file.text(param.span)
        if re.fullmatch(rf"(?:const\s+)?{name}(?:\s+const)?\s*&{{0,2}}\s*{param.name}", text.strip()):
            return _type_of(call, param.index, place)
    raise Unnamed(
        f"template argument `{name}` of `{call.caller.text(call.node)}` is not written there", (call.caller, call.node)
    )
