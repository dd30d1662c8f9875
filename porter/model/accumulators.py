# SPDX-License-Identifier: Apache-2.0
"""Accumulators: the register arrays that wgmma adds to, traced from the asm operands to their declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.model.functions import Call, Function, Param, Style, array_extents
from porter.model.homes import Home, Key, Member, Scalars, TileSize
from porter.model.lambdas import kept_by_address, lost_lambdas
from porter.model.members import (
    MemberField,
    field_extents,
    find_field,
    measured,
    names_in_class,
    objects_of,
    passed_on,
    unseen_objects,
)
from porter.model.objects import calls_outside_bodies, is_unnamed
from porter.model.program import PACK, Program, Refusal
from porter.model.registers import RegisterList, register_list, take_apart, without_casts
from porter.model.scopes import Variable, resolve
from porter.model.tensor_core import MmaStep
from porter.ptx.types import ElementType

_DECLARED, _SHAPE = Code.ACCUMULATOR_DECLARED, Code.ACCUMULATOR_SHAPE


@dataclass(eq=False)
class AccumulatorParam:
    """A parameter through which a function receives an accumulator tile, or an array of `depth` levels of
    tiles. In scalar form it stands for the consecutive parameters `params`."""

    function: Function
    params: list[Param]
    depth: int = 0
    path: str = ""
    """Member that holds the registers, if the parameter is of class type."""
    extents: list[str] = field(default_factory=list)
    """Texts of the extents of the array that is passed, outermost first; empty where the declaration leaves it out."""

    @property
    def is_scalars(self) -> bool:
        return len(self.params) > 1

    @property
    def name(self) -> str:
        return self.params[0].name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.params)

    @property
    def is_whole(self) -> bool:
        """Whether the parameter's type, where it is no scalar, has all registers: it is a reference or an object."""
        node = self.params[0].node
        is_reference = node is not None and any(n.type.endswith("reference_declarator") for n in walk(node))
        return self.is_scalars or bool(self.path) or is_reference

    @property
    def rank(self) -> int:
        """Subscripts that select a register; -1 if the declaration does not say."""
        return 0 if self.is_scalars else self.params[0].rank or -1

    def moved(self, helper: str, tile: str) -> str:
        """The statement that moves all registers by `helper`."""
        if self.is_scalars:
            return f"{helper}_each({tile}, {', '.join(self.names)});"
        return f"{helper}({self.name}{self.path}, {tile});"


@dataclass(eq=False)
class AccumulatorArgument:
    """The arguments of one call that are an accumulator: `args` are their indices."""

    call: Call
    param: AccumulatorParam
    args: range
    registers: RegisterList


@dataclass(eq=False)
class Accumulator:
    """The registers of an accumulator: `home` is where they are declared, `registers` how many a thread has for a
    tile."""

    home: Home
    registers: int
    element: str
    d_type: ElementType
    sizes: set[int] = field(default_factory=set)
    """N of every MMA that may add to it: several where templates choose one."""
    arguments: list[AccumulatorArgument] = field(default_factory=list)
    steps: list[tuple[Function, MmaStep]] = field(default_factory=list)

    @property
    def variable(self) -> Variable:
        return self.home.variable

    @property
    def function(self) -> Function:
        return self.home.function

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def packed(self) -> bool:
        """Whether a register holds two f16."""
        return self.d_type is ElementType.F16

    @property
    def size(self) -> TileSize:
        return TileSize(max(self.sizes), len(self.sizes) == 1, self.packed)


@dataclass(eq=False)
class AccumulatorMap:
    """All accumulators of a program, and the parameters that carry them."""

    accumulators: list[Accumulator]
    params: dict[int, list[AccumulatorParam]]
    """By id of the function."""
    arguments: dict[int, list[AccumulatorArgument]]
    """By id of the call node."""
    refusals: list[Refusal]
    member_steps: list[tuple[MemberField, MmaStep]] = field(default_factory=list)
    """MMAs onto registers that are a member, also of classes of which no object is declared."""
    by_key: dict[Key, Accumulator] = field(default_factory=dict)
    """By key of each variable that is an accumulator, or a register of one."""

    def held_by(self, variable: Variable | None) -> Accumulator | None:
        """The accumulator whose registers a variable is, or holds."""
        return self.by_key.get(variable.key) if variable is not None else None

    def params_of(self, function: Function) -> list[AccumulatorParam]:
        return self.params.get(id(function), [])

    def arguments_of(self, call: Call) -> list[AccumulatorArgument]:
        return self.arguments.get(call.node.id, [])


def find_accumulators(program: Program) -> AccumulatorMap:
    """Trace every D operand to the variables it comes from."""
    finder = _Finder(program)
    for statement in program.statements:
        for step in statement.steps:
            if isinstance(step, MmaStep):
                finder.trace_step(statement.function, step)
    finder.finish()
    return finder.result


class _Finder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.result = AccumulatorMap([], {}, {}, [])
        self._inner_path = ""
        self._traced: set[tuple[int, int, int]] = set()

    def trace_step(self, function: Function, step: MmaStep) -> None:
        if function.style is Style.MACRO and function.param(step.d.name) is None:
            self._trace_free_name(function, step)
            return
        variable = self._variable(function, step.d)
        if variable is None and (member := find_field(self.program, function, step.d.name)) is not None:
            self._reached_member(function, member, step)
            return
        if variable is None:
            self._refuse(function, step.d.root, f"`{step.d.name}` is not a local variable or parameter", _DECLARED)
            return
        self._reached(variable, step.d, 0, step, function)

    def _trace_free_name(self, macro: Function, step: MmaStep) -> None:
        """A macro that names the registers of whatever function uses it."""
        for call in self.program.callers(macro):
            variable = resolve(call.caller, call.node, step.d.name)
            if variable is None or variable.param is not None:
                self._refuse(call.caller, call.node, f"`{step.d.name}` is not a local variable", _DECLARED)
                continue
            self._reached(variable, step.d, 0, step, call.caller, at=call.node)

    def _reached_member(self, method: Function, member: MemberField, step: MmaStep) -> None:
        """The registers are a member: every local object of the class holds an accumulator."""
        if step.d.prefix or not step.d.inner:
            self._refuse(method, step.d.root, f"member `{member.name}` holds more than one tile", _SHAPE)
            return
        self.result.member_steps.append((member, step))
        for path, node in measured(self.program, member):
            what = f"code goes by the size of `{member.owner}`, which holds an accumulator and is given its tile"
            self.result.refusals.append(
                Refusal(method, path, node.start_byte, node.end_byte, what, Code.OBJECT_NOT_FOLLOWED)
            )
        for holder, node in passed_on(self.program, member):
            what = f"an object of class `{member.owner}`, which holds an accumulator, is copied or kept"
            self._refuse(holder, node, what, Code.OBJECT_NOT_FOLLOWED)
        for caller, node in unseen_objects(self.program, member):
            what = f"the object of class `{member.owner}`, which holds an accumulator, was not found"
            self._refuse(caller, node, what, Code.OBJECT_NOT_FOLLOWED)
        for variable in objects_of(self.program, member):
            if variable.is_reference:
                # the flow reports what it does to the object
                continue
            extents = array_extents(variable.declarator) if variable.declarator is not None else []
            if len(extents) > 1:
                self._refuse(
                    variable.function,
                    step.d.root,
                    f"`{variable.name}` is an array of arrays of objects",
                    Code.OBJECT_NOT_FOLLOWED,
                )
                continue
            known = self.result.held_by(variable)
            if known is None:
                known = self._add(Member(variable, len(extents), member=member), step)
            if (known.home.owner, known.home.field_name) != member.key:
                self._refuse(variable.function, step.d.root, f"`{variable.name}` holds several accumulators", _SHAPE)
                continue
            known.registers = max(known.registers, step.op.d_registers)
            known.sizes.add(step.op.n)
            known.steps.append((method, step))

    def _variable(self, function: Function, registers: RegisterList) -> Variable | None:
        if function.style is Style.MACRO:
            param = function.param(registers.name)
            return Variable(function, registers.name, param=param) if param is not None else None
        return resolve(function, registers.root, registers.name)

    def _reached(
        self,
        variable: Variable,
        registers: RegisterList,
        inner_depth: int,
        step: MmaStep,
        user: Function,
        argument: AccumulatorArgument | None = None,
        at: Node | None = None,
    ) -> None:
        """`registers` of `variable` hold a tile of `step` (or an array of tiles, `inner_depth` levels). They are named
        at `at` in the function `user`."""
        if variable.param is not None:
            self._inner_path = argument.param.path if argument is not None else ""
            self._reached_param(variable, registers, inner_depth, step)
            return
        if variable.ambiguous:
            self._refuse(user, registers.root, f"`{variable.name}` is declared in several `#if` branches", _DECLARED)
            return
        if variable.is_reference:
            what = f"`{variable.name}`; name what it stands for in the call"
            self._refuse(user, registers.root, what, Code.ACCUMULATOR_REFERENCE)
            return
        if registers.is_scalars:
            home: Home | None = _scalars(variable, registers, user, at or registers.root)
        else:
            home = self._array(variable, registers, inner_depth, argument)
        if home is None:
            self._refuse(user, registers.root, f"`{variable.name}` is not an array of registers", _DECLARED)
            return
        if argument is not None and not registers.is_cast:
            selected = len(without_trailing_zeros(registers.prefix))
            if selected > max(home.depth - argument.param.depth, 0) and argument.param.rank > 0:
                self._refuse(user, registers.root, f"`{variable.name}` is handed on from within a tile", _SHAPE)
                return
        known = self.result.held_by(variable)
        if known is None:
            if len(home.extents) < home.depth:
                self._refuse(user, registers.root, f"the class of `{variable.name}` is defined elsewhere", _DECLARED)
                return
            known = self._add(home, step)
        what = _contradiction(known, home, step, argument)
        if what:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is used {what}", _SHAPE)
            return
        known.registers = max(known.registers, step.op.d_registers)
        known.sizes.add(step.op.n)
        if argument is None:
            known.steps.append((user, step))
        elif argument not in known.arguments:
            known.arguments.append(argument)

    def _add(self, home: Home, step: MmaStep) -> Accumulator:
        known = Accumulator(home, step.op.d_registers, step.element, step.op.d_type)
        self.result.by_key.update(dict.fromkeys(home.keys, known))
        self.result.accumulators.append(known)
        return known

    def _array(
        self, variable: Variable, registers: RegisterList, inner_depth: int, argument: AccumulatorArgument | None
    ) -> Home | None:
        """The home that a use of a local variable shows; None if the variable is no array."""
        extents = array_extents(variable.declarator) if variable.declarator is not None else []
        path = registers.path or (argument.param.path if argument is not None else "")
        prefix = without_trailing_zeros(registers.prefix)
        if path:
            selected = registers.prefix if registers.inner else prefix
            return self._in_class(variable, max(len(selected) + inner_depth, len(extents)), path)
        of_type = self._extents_of_alias(variable, len(extents))
        rank = len(extents) + len(of_type)
        if not rank:
            return None
        depth = len(prefix) + inner_depth
        if registers.inner:
            depth = len(registers.prefix)
        elif registers.is_cast:
            # the cast fits the array to the parameter: all of it is one tile
            depth = len(prefix)
        elif argument is not None and argument.param.params[0].rank:
            depth = rank - argument.param.params[0].rank + argument.param.depth
        return Home(variable, depth, type_extents=of_type)

    def _extents_of_alias(self, variable: Variable, declared: int) -> list[str]:
        """The extents that an alias of an array type adds to those of the declarator, of which there are `declared`."""
        kind = self.program.names.expressions.variable(variable)
        return [str(e) for e in kind.extents[declared:]] if kind.is_array and not kind.reference else []

    def _in_class(self, variable: Variable, depth: int, path: str) -> Home:
        names, declaration = self.program.names, variable.declaration
        classes = names.class_of(variable.function, declaration, None) if declaration is not None else ()
        extents = field_extents(self.program, classes, path)
        return Home(variable, depth, path, extents, names_in_class(classes, " ".join(extents)))

    def _reached_param(self, variable: Variable, registers: RegisterList, inner_depth: int, step: MmaStep) -> None:
        function = variable.function
        assert variable.param is not None
        if registers.is_scalars:
            params = [function.param(n) for n in registers.scalars]
            found = [p for p in params if p is not None]
            if len(found) != len(params) or [p.index for p in found] != list(
                range(found[0].index, found[0].index + len(found))
            ):
                self._refuse(function, registers.root, "accumulator registers are not consecutive parameters", _SHAPE)
                return
        else:
            found = [variable.param]
        depth = len(registers.prefix) if registers.inner else inner_depth + len(registers.prefix)
        if not registers.is_scalars and not variable.param.rank and function.style is not Style.MACRO:
            depth = len(without_trailing_zeros(registers.prefix)) + inner_depth
        known = next((p for p in self.result.params_of(function) if p.params[0] is found[0]), None)
        if known is None:
            path = registers.path or self._inner_path
            declarator = found[0].node.child_by_field_name("declarator") if found[0].node is not None else None
            if path and declarator is not None and declarator.type == "identifier":
                what = f"accumulator `{variable.name}` is passed by value; pass a reference to it"
                self._refuse(function, registers.root, what, Code.ACCUMULATOR_COPIED)
                return
            known = AccumulatorParam(function, found, depth, path, self._extents_of(function, found[0], path))
            if len(known.extents) < depth:
                self._refuse(
                    function, registers.root, f"the extents of parameter `{variable.name}` are not known", _SHAPE
                )
                return
            self.result.params.setdefault(id(function), []).append(known)
        elif known.path != (registers.path or self._inner_path):
            self._refuse(function, registers.root, f"parameter `{variable.name}` holds several accumulators", _SHAPE)
            return
        elif known.depth != depth or len(known.params) != len(found):
            self._refuse(
                function, registers.root, f"parameter `{variable.name}` is used as tiles of different shapes", _SHAPE
            )
            return
        for call in self.program.callers(function):
            self._trace_call(call, known, step)

    def _extents_of(self, function: Function, param: Param, path: str) -> list[str]:
        own = [function.text(n) if n is not None else "" for n in param.extents]
        kind = param.node.child_by_field_name("type") if param.node is not None else None
        if not path or kind is None:
            return own
        assert param.node is not None
        return own + field_extents(self.program, self.program.names.class_of(function, param.node, None), path)

    def _trace_call(self, call: Call, param: AccumulatorParam, step: MmaStep) -> None:
        trace = (id(call), id(param), id(step))
        if trace in self._traced:
            # recursion, or another way to a call that was followed
            return
        self._traced.add(trace)
        first, count = param.params[0].index, len(param.params)
        if first < len(call.args) and call.args[first].type == PACK:
            count = 1
        nodes = call.args[first : first + count]
        existing = next((a for a in self.result.arguments_of(call) if a.args.start == first), None)
        if existing is not None and existing.param is param:
            registers = existing.registers
            argument = existing
        else:
            found = self._registers(call, list(nodes), count)
            if found is None:
                self._refuse(
                    call.caller,
                    nodes[0] if nodes else call.node,
                    "what is handed to the function that multiplies is no array of registers",
                    _DECLARED,
                )
                return
            registers = found
            argument = AccumulatorArgument(call, param, range(first, first + count), registers)
            if existing is None:
                self.result.arguments.setdefault(call.node.id, []).append(argument)
        variable = self._variable(call.caller, registers)
        if variable is None:
            self._refuse(
                call.caller, registers.root, f"`{registers.name}` is not a local variable or parameter", _DECLARED
            )
            return
        self._reached(variable, registers, param.depth, step, call.caller, argument)

    def _registers(self, call: Call, nodes: list[Node], count: int) -> RegisterList | None:
        if count > 1:
            return register_list(call.caller, [*nodes])
        if nodes and nodes[0].type == PACK:
            # `d[I]...` is the whole of d, one element a parameter
            pattern = take_apart(call.caller, nodes[0].named_children[0])
            if pattern is None or not pattern.subscripts:
                return None
            return RegisterList(pattern.name, pattern.root, pattern.subscripts[:-1])
        if not nodes:
            return None
        inner = without_casts(call.caller, nodes[0])
        element = take_apart(call.caller, inner)
        if element is None:
            return None
        is_cast = inner.id != nodes[0].id and nodes[0].type != "pointer_expression"
        return RegisterList(element.name, element.root, element.subscripts, path=element.path, is_cast=is_cast)

    def _refuse(self, function: Function, node: Node, what: str, code: Code) -> None:
        at = function.span(node) if node != function.body else function.head
        if not any(r.start == at.start and r.what == what for r in self.result.refusals):
            self.result.refusals.append(Refusal(function, function.file.path, at.start, at.end, what, code))

    def finish(self) -> None:
        """A call of a wrapper that the model lost would keep passing registers."""
        if self.program.kernels:
            self._refuse_unnamed()
            for function, around, node in lost_lambdas(self.program):
                what = f"the calls of `{function.name or 'a lambda'}`, which has to do with MMAs, are not all seen"
                self._refuse(around, node, f"{what}; call it by its name where it is declared", Code.CALL_NOT_FOLLOWED)
            for params in self.result.params.values():
                self._check_called(params[0].function)
        for accumulator in self.result.accumulators:
            if accumulator.variable.declarator is None:
                self._refuse(
                    accumulator.function,
                    accumulator.function.body,
                    f"`{accumulator.name}` has no declaration",
                    _DECLARED,
                )

    def _refuse_unnamed(self) -> None:
        """Where no call names a function the model sees none, nor could it hand the warpgroup on; it does not read what
        stands outside of bodies either: lists of members' values, values of members and parameters, conversions."""
        uses = self.program.uses_tensor_core()
        named: dict[str, Function] = {}
        for function in self.program.functions:
            if id(function) not in uses or not function.name:
                continue
            named.setdefault(function.name, function)
            if is_unnamed(function):
                name = function.qualified_name
                what = f"`{name}` has to do with MMAs, and is called without its name; make it a plain function"
                self._refuse(function, function.body, what, Code.CALL_NOT_FOLLOWED)
        for name, function, path, node in calls_outside_bodies(self.program, named):
            what = f"`{name}` has to do with MMAs, and is called outside of a function's body; call it in one"
            at = Refusal(function, path, node.start_byte, node.end_byte, what, Code.CALL_NOT_FOLLOWED)
            self.result.refusals.append(at)

    def _check_called(self, function: Function) -> None:
        for caller, node in kept_by_address(self.program, function):
            what = f"a pointer to `{function.qualified_name}`, which takes an accumulator, is kept or chosen"
            self._refuse(caller, node, f"{what}; call it by its name", Code.CALL_NOT_FOLLOWED)
        if self.program.callers(function):
            return
        name = function.name
        mentions = sum(
            len(re.findall(rb"\b" + name.encode() + rb"\b", file.lexed.code))
            for file in self.program.sources.files.values()
        )
        definitions = sum(1 for f in [*self.program.functions, *self.program.forward] if f.name == name)
        # calls of another function of this name are accounted for
        definitions += sum(
            1 for f in self.program.functions for c in f.calls if c.name == name and self.program.targets(c)
        )
        if name.startswith("operator") or not name or mentions > definitions:
            what = f"the calls of `{function.qualified_name or 'a lambda'}` were not found"
            unfit = [c for c in self.program.calls_named(name) if name and not self.program.targets(c)]
            for call in unfit:
                self._refuse(call.caller, call.node, f"this call fits no `{name}` that is seen", Code.CALL_NOT_FOLLOWED)
            if not unfit:
                self._refuse(function, function.body, what, Code.CALL_NOT_FOLLOWED)


def _scalars(variable: Variable, registers: RegisterList, user: Function, at: Node) -> Scalars | None:
    """The home of registers that are named one by one; None if one of them is not declared in the sources."""
    found = [v for name in registers.scalars if (v := resolve(user, at, name)) is not None]
    return Scalars(variable, variables=tuple(found)) if len(found) == len(registers.scalars) else None


def _contradiction(known: Accumulator, home: Home, step: MmaStep, argument: AccumulatorArgument | None) -> str:
    """How a use differs from what is known of the accumulator; empty if it does not."""
    if known.home.path != home.path:
        return "as an object that holds several"
    if known.home.depth != home.depth or known.home.keys != home.keys:
        return "as tiles of different shapes"
    if known.d_type is not step.op.d_type:
        return "with different types"
    if known.registers != step.op.d_registers and argument is None:
        return "with different N"
    return ""


def without_trailing_zeros(subscripts: tuple[str, ...]) -> tuple[str, ...]:
    end = len(subscripts)
    while end and subscripts[end - 1].strip() == "0":
        end -= 1
    return subscripts[:end]
