# SPDX-License-Identifier: Apache-2.0
"""Accumulators: the register arrays that wgmma adds to, traced from the asm operands to their declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import Call, Function, Param, Style, array_extents
from porter.model.members import (
    MemberField,
    field_extents,
    find_field,
    names_in_class,
    objects_of,
    passed_on,
    unseen_objects,
)
from porter.model.program import PACK, Program, Refusal
from porter.model.registers import RegisterList, register_list, take_apart, without_casts
from porter.model.scopes import Variable, resolve
from porter.model.tensor_core import MmaStep
from porter.ptx.types import ElementType


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


@dataclass(eq=False)
class AccumulatorArgument:
    """The arguments of one call that are an accumulator: `args` are their indices."""

    call: Call
    param: AccumulatorParam
    args: range
    registers: RegisterList


@dataclass(eq=False)
class Accumulator:
    """A register array declared in `function`. Its first `depth` extents select a tile of `registers`
    registers a thread; scalar form has no extents and `scalars` instead."""

    variable: Variable
    registers: int
    element: str
    d_type: ElementType
    depth: int = 0
    scalars: tuple[str, ...] = ()
    path: str = ""
    """Member that holds the registers, for an accumulator of class type (`.reg`)."""
    sizes: set[int] = field(default_factory=set)
    """N of every MMA that may add to it: several where templates choose one."""
    path_extents: list[str] = field(default_factory=list)
    """Extents of that member."""
    hidden_extents: bool = False
    """Whether they are named in the class only."""
    member: MemberField | None = None
    """The field, if the registers are a member of the object `variable`."""
    arguments: list[AccumulatorArgument] = field(default_factory=list)
    steps: list[tuple[Function, MmaStep]] = field(default_factory=list)

    @property
    def function(self) -> Function:
        return self.variable.function

    @property
    def name(self) -> str:
        return self.variable.name

    @property
    def _declared_extents(self) -> list[str]:
        declarator = self.variable.declarator
        return [self.function.text(n) for n in array_extents(declarator)] if declarator is not None else []

    @property
    def object_extents(self) -> list[str]:
        """Extents of an array of objects that hold accumulators; empty for arrays of registers."""
        return self._declared_extents if self.path or self.member is not None else []

    @property
    def extents(self) -> list[str]:
        """Texts of the declared extents, outermost first; those of an array of objects come first."""
        if self.member is not None:
            return self._declared_extents + self.member.extents
        return self._declared_extents + (self.path_extents if self.path else [])

    def registers_of(self, subscripts: list[str]) -> str:
        """The expression for the registers that the outermost subscripts select: `acc[i].d[j]`."""
        cut = len(self.object_extents)
        outer, inner = ("".join(f"[{s}]" for s in part) for part in (subscripts[:cut], subscripts[cut:]))
        return f"{self.name}{outer}{self.path}{inner}"

    @property
    def packed(self) -> bool:
        """Whether a register holds two f16."""
        return self.d_type is ElementType.F16

    @property
    def columns(self) -> int:
        """Tensor Memory columns of a tile: the largest N."""
        return max(self.sizes)

    @property
    def type_name(self) -> str:
        """Text of the type in the declaration."""
        declaration = self.variable.declaration
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        return self.function.text(kind) if kind is not None else ""

    @property
    def class_type(self) -> str:
        """Text of the declared type of an accumulator that is a class, empty for arrays and scalars."""
        return self.type_name if self.path or self.member is not None else ""

    @property
    def tile_extents(self) -> list[str]:
        """Extents of the array of tiles, as constant expressions behind the declaration."""
        texts = self.extents[: self.depth]
        for axis in range(len(self.object_extents), len(texts) if self.hidden_extents else 0):
            whole = self.registers_of(["0"] * axis)
            texts[axis] = f"sizeof({whole}) / sizeof({self.registers_of(['0'] * (axis + 1))})"
        return texts


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

    def of(self, function: Function) -> list[Accumulator]:
        return [a for a in self.accumulators if a.function is function]

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
        self._by_key: dict[tuple[int, int, str], Accumulator] = {}
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
            self._refuse(function, step.d.root, f"accumulator `{step.d.name}` is not a local variable or parameter")
            return
        self._reached(variable, step.d, 0, step, function)

    def _trace_free_name(self, macro: Function, step: MmaStep) -> None:
        """A macro that names the registers of whatever function uses it."""
        for call in self.program.callers(macro):
            variable = resolve(call.caller, call.node, step.d.name)
            if variable is None or variable.param is not None:
                self._refuse(call.caller, call.node, f"accumulator `{step.d.name}` is not a local variable")
                continue
            self._reached(variable, step.d, 0, step, call.caller)

    def _reached_member(self, method: Function, member: MemberField, step: MmaStep) -> None:
        """The registers are a member: every local object of the class holds an accumulator."""
        if step.d.prefix or not step.d.inner:
            self._refuse(method, step.d.root, f"member `{member.name}` holds more than one tile")
            return
        self.result.member_steps.append((member, step))
        for holder, node in passed_on(self.program, member):
            what = f"an object of class `{member.owner}`, which holds an accumulator, is copied or kept"
            self._refuse(holder, node, what)
        for caller, node in unseen_objects(self.program, member):
            what = f"the object of class `{member.owner}`, which holds an accumulator, was not found"
            self._refuse(caller, node, what)
        for variable in objects_of(self.program, member):
            if variable.is_reference:
                # the flow reports what it does to the object
                continue
            extents = array_extents(variable.declarator) if variable.declarator is not None else []
            if len(extents) > 1:
                self._refuse(variable.function, step.d.root, f"`{variable.name}` is an array of arrays of objects")
                continue
            known = self._by_key.get(variable.key)
            if known is None:
                depth = len(extents)
                known = Accumulator(variable, step.op.d_registers, step.element, step.op.d_type, depth, member=member)
                self._by_key[variable.key] = known
                self.result.accumulators.append(known)
            if known.member is None or known.member.key != member.key:
                self._refuse(variable.function, step.d.root, f"`{variable.name}` holds several accumulators")
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
    ) -> None:
        """`registers` of `variable` hold a tile of `step` (or an array of tiles, `inner_depth` levels)."""
        if variable.param is not None:
            self._inner_path = argument.param.path if argument is not None else ""
            self._reached_param(variable, registers, inner_depth, step)
            return
        if variable.ambiguous:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is declared in several `#if` branches")
            return
        if variable.is_reference:
            what = f"accumulator `{variable.name}` is a reference or pointer; name what it stands for in the call"
            self._refuse(user, registers.root, what)
            return
        extents = array_extents(variable.declarator) if variable.declarator is not None else []
        in_class = registers.path or (argument is not None and argument.param.path)
        if registers.is_scalars:
            depth = 0
        elif in_class:
            selected = registers.prefix if registers.inner else without_trailing_zeros(registers.prefix)
            depth = max(len(selected) + inner_depth, len(extents))
        elif not extents:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is not an array of registers")
            return
        elif registers.inner:
            depth = len(registers.prefix)
        elif registers.is_cast:
            # the cast fits the array to the parameter: all of it is one tile
            depth = len(without_trailing_zeros(registers.prefix))
        elif argument is not None and argument.param.params[0].rank:
            depth = len(extents) - argument.param.params[0].rank + argument.param.depth
        else:
            depth = len(without_trailing_zeros(registers.prefix)) + inner_depth
        known = self._by_key.get(variable.key)
        if known is None:
            path = registers.path or (argument.param.path if argument is not None else "")
            known = Accumulator(
                variable, step.op.d_registers, step.element, step.op.d_type, depth, registers.scalars, path
            )
            if path:
                declaration = variable.declaration
                classes = (
                    self.program.names.class_of(variable.function, declaration, None) if declaration is not None else ()
                )
                known.path_extents = field_extents(self.program, classes, path)
                hidden = names_in_class(classes, " ".join(known.path_extents))
                known.hidden_extents = hidden
                if len(known.extents) < depth:
                    self._refuse(user, registers.root, f"the class of `{variable.name}` is defined elsewhere")
                    return
            self._by_key[variable.key] = known
            self.result.accumulators.append(known)
        if known.depth != depth or known.scalars != registers.scalars:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is used as tiles of different shapes")
            return
        if known.d_type is not step.op.d_type:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is used with different types")
            return
        if known.registers != step.op.d_registers and argument is None:
            self._refuse(user, registers.root, f"accumulator `{variable.name}` is used with different N")
            return
        known.registers = max(known.registers, step.op.d_registers)
        known.sizes.add(step.op.n)
        if argument is not None:
            if argument not in known.arguments:
                known.arguments.append(argument)
        else:
            known.steps.append((user, step))

    def _reached_param(self, variable: Variable, registers: RegisterList, inner_depth: int, step: MmaStep) -> None:
        function = variable.function
        assert variable.param is not None
        if registers.is_scalars:
            params = [function.param(n) for n in registers.scalars]
            found = [p for p in params if p is not None]
            if len(found) != len(params) or [p.index for p in found] != list(
                range(found[0].index, found[0].index + len(found))
            ):
                self._refuse(function, registers.root, "accumulator registers are not consecutive parameters")
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
                self._refuse(function, registers.root, what)
                return
            known = AccumulatorParam(function, found, depth, path, self._extents_of(function, found[0], path))
            if len(known.extents) < depth:
                self._refuse(function, registers.root, f"the extents of parameter `{variable.name}` are not known")
                return
            self.result.params.setdefault(id(function), []).append(known)
        elif known.depth != depth or len(known.params) != len(found):
            self._refuse(function, registers.root, f"parameter `{variable.name}` is used as tiles of different shapes")
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
                    "an accumulator argument that is not a register array",
                )
                return
            registers = found
            argument = AccumulatorArgument(call, param, range(first, first + count), registers)
            if existing is None:
                self.result.arguments.setdefault(call.node.id, []).append(argument)
        variable = self._variable(call.caller, registers)
        if variable is None:
            self._refuse(
                call.caller,
                registers.root,
                f"accumulator `{registers.name}` is not a local variable or parameter",
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

    def _refuse(self, function: Function, node: Node, what: str) -> None:
        at = function.span(node)
        if not any(r.start == at.start and r.what == what for r in self.result.refusals):
            self.result.refusals.append(Refusal(function, function.file.path, at.start, at.end, what))

    def finish(self) -> None:
        """A call of a wrapper that the model lost would keep passing registers."""
        if self.program.kernels:
            for params in self.result.params.values():
                self._check_called(params[0].function)
        for accumulator in self.result.accumulators:
            if accumulator.variable.declarator is None:
                self._refuse(accumulator.function, accumulator.function.body, "accumulator without a declaration")

    def _check_called(self, function: Function) -> None:
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
            self._refuse(
                function, function.body, f"the calls of `{function.qualified_name or 'a lambda'}` were not found"
            )


def without_trailing_zeros(subscripts: tuple[str, ...]) -> tuple[str, ...]:
    end = len(subscripts)
    while end and subscripts[end - 1].strip() == "0":
        end -= 1
    return subscripts[:end]
