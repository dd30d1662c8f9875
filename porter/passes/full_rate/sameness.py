# SPDX-License-Identifier: Apache-2.0
"""Which expressions have one value in all threads of two consumer warpgroups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find, walk
from porter.lang.text import Span
from porter.model.facts import Index
from porter.model.functions import Function, Param, Style, declared_name, outermost
from porter.model.program import Program
from porter.model.pure import is_pure
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS
from porter.model.thread_values import ThreadValues
from porter.model.threads import TO_A_LOOP, Threads, target_of
from porter.passes.full_rate.leading import (
    OF_CLASS,
    Aliases,
    Key,
    cast,
    first,
    holds,
    innermost,
    key_of,
    parts,
    resolve,
    root,
    variable_of,
)
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.full_rate.writing import Writing
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

WARPS = WARPGROUP // WARP
_BRANCHES = ("if_statement", "switch_statement", *LOOPS)
_CHOICES = ("conditional_expression", "binary_expression")
SHORT = ("&&", "||", "and", "or")
_TIMED = re.compile(r"\bmbarrier\.(?:test|try)_wait\b|\bld\.(?:volatile|relaxed|acquire)\b")
"""Instructions whose result depends on when a thread comes to them (PTX ISA 9.7.13.15.16, 9.7.9.8)."""
_OF_CONST = re.compile(r"\bconst\b[^*]*\*")

_READS = ("call_expression", "subscript_expression", "pointer_expression")
_OF_TYPES = (*OF_CLASS, "type_qualifier")


@dataclass(eq=False)
class Sameness:
    """Asks about the two warpgroups from `first` on. A variable is a thread's own if what it is set to is, where it is
    set, or a function that is handed a thread's own value may write to it; what a pointer leads to says nothing about
    the pointer."""

    program: Program
    threads: Threads
    first: int
    library: LibraryCalls | None = None
    """What is known of calls of a library."""
    shapes: bool = False
    """Whether it is asked for shapes of tensors alone."""
    _names: dict[int, set[Key]] = field(default_factory=dict)
    _led: dict[int, Aliases] = field(default_factory=dict)
    _asked_of: set[int] = field(default_factory=set)
    """Lambdas, by the ids of their nodes, of which it is being asked who comes to them."""

    @cached_property
    def _values(self) -> ThreadValues:
        return ThreadValues(self.program, (self.first + 2) * WARPGROUP)

    def by_warp(self, function: Function, node: Node) -> list[int | None]:
        """The value that an expression has in each warp, None where its threads differ or it is not known."""
        return self._values.by_warp(function, node)[self.first * WARPS :]

    def known(self, function: Function, node: Node) -> int | None:
        """The value that an expression has in all these threads, None if it is not known or differs."""
        found = set(self.by_warp(function, node))
        return found.pop() if len(found) == 1 else None

    def truth(self, function: Function, node: Node) -> bool | None:
        """What all these threads answer to a condition."""
        found = {None if v is None else bool(v) for v in self.by_warp(function, node)}
        return found.pop() if len(found) == 1 else None

    def same(self, function: Function, node: Node) -> bool:
        """Whether an expression has one value in all these threads."""
        return not self._own(function, node) or self.known(function, node) is not None

    def _own(self, function: Function, node: Node) -> bool:
        names = self.names(function)
        return any(self._says(function, n, names) for n in self._asked(function, node))

    def _asked(self, function: Function, node: Node) -> Iterator[Node]:
        """The nodes of an expression that tell its value."""
        if self.library is None:
            yield from walk(node)
            return
        stack, skipped = [node], set[int]()
        while stack:
            current = stack.pop()
            yield current
            if current.type == "call_expression":
                skipped |= {n.id for n in self.library.without(function, current, self.shapes)}
                arguments = current.child_by_field_name("arguments")
                # an extent is another one only where a shape is
                if not self.shapes and arguments is not None and self.library.asks_for_shape(function, current):
                    skipped |= set() if self.of_shapes._own(function, arguments) else {arguments.id}
            stack.extend(c for c in reversed(current.children) if c.id not in skipped and current.id not in skipped)

    @cached_property
    def of_shapes(self) -> Sameness:
        """The same, asked for shapes."""
        return self if self.shapes else Sameness(self.program, self.threads, self.first, self.library, shapes=True)

    @cached_property
    def _classes(self) -> re.Pattern[str] | None:
        """Names of classes whose objects may hold a thread's own value without being handed one: their text, or that
        of a class that they mention, tells threads apart."""
        words = {"tid", "warpid", "laneid", *self.program.vocabulary.naming((Index,))}
        texts: dict[str, str] = {}
        for file in self.program.sources.files.values():
            for node in find(file.root, "struct_specifier", "class_specifier"):
                name = node.child_by_field_name("name")
                if name is not None and node.child_by_field_name("body") is not None:
                    key = file.text(Span(name.start_byte, name.end_byte))
                    texts[key] = texts.get(key, "") + file.text(Span(node.start_byte, node.end_byte))
            for node in find(file.root, "alias_declaration", "type_definition"):
                name = node.child_by_field_name("name") or node.child_by_field_name("declarator")
                kind = node.child_by_field_name("type")
                if name is not None and kind is not None:
                    key = file.text(Span(name.start_byte, name.end_byte))
                    texts[key] = texts.get(key, "") + file.text(Span(kind.start_byte, kind.end_byte))
        for method in self.program.functions:
            if method.style is Style.METHOD:
                key = method.class_name.rsplit("::", 1)[-1]
                texts[key] = texts.get(key, "") + method.text(method.node)
        words |= {f.name for f in self.program.functions if f.style is Style.DEVICE and self.threads.varies(f)}
        words |= {name for name in self.program.macros.by_name if self.threads.macro_differs(name)}
        found: set[str] = set()
        while True:
            wanted = _any_of({*words, *found} - {""})
            new = {name for name, text in texts.items() if name not in found and wanted.search(text)}
            if not new:
                return _any_of(found) if found else None
            found |= new

    def _is_class(self, text: str) -> bool:
        return self._classes is not None and self._classes.search(text) is not None

    def _says(self, function: Function, node: Node, names: set[Key]) -> bool:
        library = self.library if node.type in _READS and not self.shapes else None
        if library is not None and library.reads_element(function, node):
            return True
        text = function.text(node) if node.type in _OF_TYPES else ""
        if text == "volatile" or (text and (self._is_class(text) or key_of(function, node) in names)):
            return True
        if node.type == "identifier":
            key = key_of(function, node)
            if key in names or self.threads.tells(function, node) or self._of_class(function, node, key[2]):
                return True
            macro = key[2] in self.program.macros.by_name
            return macro and not self.program.macros.words(key[2]).isdisjoint({name for _, _, name in names})
        if node.type == "call_expression":
            if self.library is not None and self.library.computes(function, node):
                return False
            calls = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
            targets = [f for c in calls for f in self.program.targets(c)]
            return any(map(self.threads.call_differs, calls)) or any(
                self._is_class(f.text(f.node)) or self._by_default(f) or self._returns_timed(f) for f in targets
            )
        return self.threads.tells(function, node)

    def _by_default(self, function: Function) -> bool:
        """Whether a parameter that is not handed may be a thread's own."""
        defaults = [p.node.child_by_field_name("default_value") for p in function.params if p.node is not None]
        return any(self.threads.tells(function, n) for d in defaults if d is not None for n in walk(d))

    def _returns_timed(self, function: Function) -> bool:
        kind = function.node.child_by_field_name("type")
        return id(function) in self._timed and (kind is None or function.text(kind) != "void")

    @cached_property
    def _timed(self) -> set[int]:
        """ids of the functions that come to an instruction whose result depends on the time."""
        return self.program.reaching([f for f in self.program.functions if any(map(_is_timed, f.asm))])

    def _of_class(self, function: Function, node: Node, name: str) -> bool:
        """Whether a name may be that of a member, whose value is not followed."""
        if outermost(function).style is not Style.METHOD or name in function.template_params:
            return False
        above = node.parent
        if above is not None and above.type in ("call_expression", "qualified_identifier", "template_function"):
            return False
        return resolve(function, node, name) is None and self.program.value(function, name) is None

    def names(self, function: Function) -> set[Key]:
        """Variables and parameters that may hold another value in another thread."""
        known = self._names.get(id(function))
        if known is not None:
            return known
        found = self._names[id(function)] = set(self.names(function.parent)) if function.parent is not None else set()
        settled = set(self._names)
        for param in function.params if function.style is not Style.KERNEL else ():
            calls = [c for c in self.program.callers(function) if param.index < len(c.args)]
            if any(self._own(c.caller, c.args[param.index]) for c in calls):
                found.add(key_of(function, function.body, param.name))
        while True:
            before = len(found)
            found.update(self._by_asm(function))
            found.update(self._by_calls_of_lambdas(function))
            for key, node in self._set(function):
                if key in found or not self.comes_to(function, node):
                    continue
                if self._own(function, node) or self._where_parted(function, node):
                    found.add(key)
            if len(found) == before:
                return found
            # what others were asked on the way they told by fewer names
            for other in self._names.keys() - settled:
                del self._names[other]

    def _by_calls_of_lambdas(self, function: Function) -> Iterator[Key]:
        """Parameters of lambdas inside a function that are handed a thread's own value, or nobody sees what."""
        for inner in function.lambdas.values():
            calls = [(c.caller, list(c.args)) for c in self.program.callers(inner)]
            above = inner.node.parent
            if above is not None and above.type == "call_expression":
                calls.append((function, _arguments(above)))
            handed_on = [] if calls else list(_handed_to(function, inner))
            others = [n for call in handed_on for n in _arguments(call) if n.type != "lambda_expression"]
            unseen = not calls and (not handed_on or any(self._own(function, n) for n in others))
            for param in inner.params:
                handed = [(caller, args[param.index]) for caller, args in calls if param.index < len(args)]
                if unseen or any(self._own(caller, argument) for caller, argument in handed):
                    yield key_of(inner, inner.body, param.name)
            yield from self._by_calls_of_lambdas(inner)

    def _by_asm(self, function: Function) -> Iterator[Key]:
        """Variables that asm sets, and may set to another value in another thread."""
        aliases = self._aliases(function)
        for statement in function.asm:
            nodes = [o.expr_node for o in statement.operands if o.is_output and o.expr_node is not None]
            inputs = [o.expr_node for o in statement.operands if not o.is_output and o.expr_node is not None]
            own = self.threads.asm_differs(statement) or _is_timed(statement)
            if own or any(self._own(function, n) for n in inputs) or self._where_parted(function, statement.node):
                yield from (key for n in nodes if (key := variable_of(function, n)) is not None)
                yield from (led for n in nodes for led in aliases.of(root(function, n)))
                # what it is handed the address of, it may write to
                taken = (n for n in inputs if any(function.text(e)[:1] == "&" for e in find(n, "pointer_expression")))
                yield from (v.key for n in taken if (v := first(function, n)) is not None)

    def written_in(self, function: Function) -> Iterator[tuple[Key, Node]]:
        """Variables of a function that something in it sets, in whatever way, with what does so."""
        yield from self._set(function)
        aliases = self._aliases(function)
        for statement in function.asm:
            for operand in statement.operands:
                node = operand.expr_node
                taken = any(function.text(e)[:1] == "&" for e in find(node, "pointer_expression")) if node else False
                if node is not None and (operand.is_output or taken):
                    variable, key = first(function, node), variable_of(function, node)
                    yield from ((k, node) for k in (key, variable.key if variable is not None else None) if k)
                    yield from ((led, node) for led in aliases.of(root(function, node)))

    def leads_to(self, function: Function, name: Node) -> list[Key]:
        """The variables of a thread's own that a pointer, a reference or an object leads to."""
        return self._aliases(function).of(key_of(function, name))

    def _set(self, function: Function) -> Iterator[tuple[Key, Node]]:
        """Variables that are set, with what tells the value."""
        aliases = self._aliases(function)
        yield from self._assigned(function, aliases)
        yield from self._declared(function)
        yield from self._handed(function, aliases)
        yield from self._writing.written(function, aliases)

    def _aliases(self, function: Function) -> Aliases:
        if id(function) not in self._led:
            self._led[id(function)] = Aliases(self.program, function)
        return self._led[id(function)]

    @cached_property
    def _writing(self) -> Writing:
        library = self.library
        if library is None:
            return Writing(self.program, None)
        return Writing(self.program, lambda function, node: library.keeps(function, node, self.shapes))

    def _assigned(self, function: Function, aliases: Aliases) -> Iterator[tuple[Key, Node]]:
        for node in find(function.body, "init_declarator", "assignment_expression", "update_expression"):
            target = node.child_by_field_name("declarator") or node.child_by_field_name("left")
            target = target or node.child_by_field_name("argument")
            value = node.child_by_field_name("value") or node.child_by_field_name("right") or target
            for part in parts(target) if target is not None and value is not None else ():
                key = variable_of(function, part)
                element = self.library.element_of(function, part) if self.library is not None else None
                if element is not None:
                    if not self.shapes:
                        yield key_of(function, element), node
                elif key is None and part.type in ("pointer_expression", "call_expression"):
                    # through a cast of its address, or of itself
                    yield from ((v.key, node) for v in cast(function, part))
                if key is not None and value is not None and node.type == "init_declarator":
                    # its own declaration is not in sight of the name that it declares
                    yield (innermost(function, node).node.id, node.start_byte, key[2]), value
                    if part is not target:
                        yield (0, 0, key[2]), value
                elif key is not None:
                    yield key, node
                if node.type != "init_declarator":
                    yield from ((led, node) for led in aliases.of(root(function, part)))
        for node in find(function.body, "for_range_loop"):
            target, value = node.child_by_field_name("declarator"), node.child_by_field_name("right")
            for each in find(target, "identifier") if target is not None else ():
                if value is not None:
                    yield key_of(function, each), value

    def _declared(self, function: Function) -> Iterator[tuple[Key, Node]]:
        """Variables whose type, or a constructor that their declaration calls, tells the value."""
        for node in find(function.body, "declaration"):
            home = innermost(function, node).node.id
            kind = node.child_by_field_name("type")
            volatile = (c for c in node.children if c.type == "type_qualifier" and c.text == b"volatile")
            kind = next(volatile, kind)
            for declarator in node.children_by_field_name("declarator") if kind is not None else ():
                # what is handed to a constructor may read as the parameters of a function
                first = declarator.child_by_field_name("declarator")
                named = first if declarator.type == "function_declarator" and first is not None else declarator
                key = variable_of(function, named)
                if key is not None and named is not declarator:
                    yield (home, declarator.start_byte, key[2]), declarator
                if kind is not None and key is not None and declarator.type != "init_declarator":
                    yield (home, declarator.start_byte, key[2]), kind
                elif kind is not None and declarator.type == "init_declarator":
                    name = declared_name(declarator)
                    if name is not None:
                        yield (home, declarator.start_byte, function.text(name)), kind

    def _handed(self, function: Function, aliases: Aliases) -> Iterator[tuple[Key, Node]]:
        """Variables that calls may write to."""
        for node in find(function.body, "call_expression"):
            arguments = node.child_by_field_name("arguments")
            if arguments is None or (self.library is not None and self.library.keeps(function, node, self.shapes)):
                continue
            for argument in arguments.named_children:
                inner = argument.named_children[0] if argument.type == "pointer_expression" else argument
                if inner.type == "identifier" and (inner.id != argument.id or self.written(function, node, argument)):
                    yield key_of(function, inner), node
                elif inner.type != "identifier":
                    variable = first(function, argument)
                    address = argument.type == "pointer_expression"
                    if variable is not None and (address or self.written(function, node, argument)):
                        yield variable.key, node
                yield from ((led, node) for led in aliases.of(root(function, inner)))
            callee = node.child_by_field_name("function")
            holder = callee.child_by_field_name("argument") if callee is not None else None
            if holder is not None and holder.type == "identifier":
                # a method may keep what it is handed
                yield key_of(function, holder), arguments

    def written(self, function: Function, node: Node, argument: Node) -> bool:
        """Whether a call may write to an argument that it is handed by its name."""
        calls = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        variable = first(function, argument) if argument.type in ("identifier", "binary_expression") else None
        own = variable is not None and holds(variable)
        for call in calls:
            index = next((i for i, a in enumerate(call.args) if a.id == argument.id), None)
            targets = self.program.targets(call) if index is not None else []
            if not targets and call.name in self.program.macros.by_name:
                return self._macro_writes(function, node, argument)
            if not targets and index is not None and self.program.facts.of_call(call) is None:
                return not (call.name in CASTS or is_pure(call.name))
            for target in targets:
                if target.style is Style.MACRO and self._macro_writes(function, node, argument):
                    return True
                if index is not None and index < len(target.params):
                    param = target.params[index]
                    kind = self.program.names.type_of_param(target, param)
                    if self.library is not None and self.library.only_reads(target, param):
                        continue
                    if (kind.reference and not kind.const) or (
                        own and param.node is not None and _leads(target, param)
                    ):
                        return True
        # macros may be no calls that are followed
        return not calls and argument.type == "identifier" and self._macro_writes(function, node, argument)

    def _macro_writes(self, function: Function, node: Node, argument: Node) -> bool:
        """Whether the text of a macro may write to an argument: it is assigned to, its address is taken, or it is
        handed on."""
        macros = self.program.macros.by_name.get(_callee(function, node), ())
        arguments = node.child_by_field_name("arguments")
        given = [n.id for n in arguments.named_children if n.type != "comment"] if arguments is not None else []
        for macro in macros:
            params, index = macro.params, given.index(argument.id) if argument.id in given else -1
            text = macro.joined.decode("utf-8", "replace")
            if params is None or not 0 <= index < len(params) or "#" in text or "asm" in text:
                return True
            p = rf"\(*\b{re.escape(params[index])}\b\)*"
            if re.search(rf"{p}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|{p}\s*(?:\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{p}|"
                         rf"\w\s*\((?:[^()]*,)?\s*{p}\s*[,)]", text):  # fmt: skip
                return True
        return False

    def comes_to(self, function: Function, node: Node) -> bool:
        """Whether the consumers may come to a place, as far as the branches around it tell."""
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            if current.type == "if_statement":
                condition = current.child_by_field_name("condition")
                taken = self.truth(function, condition) if condition is not None and condition.id != inner.id else None
                arm = current.child_by_field_name("consequence" if taken is False else "alternative")
                if taken is not None and arm is not None and arm.id == inner.id:
                    return False
            inner, current = current, current.parent
        return True

    def _where_parted(self, function: Function, node: Node) -> bool:
        """Whether a place stands behind a condition that threads may answer differently, or in a loop that some of them
        may leave, or a turn of it, by themselves."""
        return (
            self._parted(function, node, function.body)
            or any(
                self._parted(function, leaving, loop)
                for loop in self._loops(function, node)
                for leaving in find(loop, *TO_A_LOOP)
                if target_of(leaving, function).id == loop.id
            )
            or self._in_parted_lambda(function, node)
        )

    def _in_parted_lambda(self, function: Function, node: Node) -> bool:
        """Whether a place stands in a lambda that threads may call, or leave, by themselves."""
        inner = innermost(function, node)
        while inner is not function and inner.parent is not None:
            if inner.node.id not in self._asked_of:
                self._asked_of.add(inner.node.id)
                calls = [(c.caller, c.node) for c in self.program.callers(inner)]
                calls += [(inner.parent, n) for n in _handed_to(inner.parent, inner)]
                apart = any(self._where_parted(caller, call) for caller, call in calls)
                ways = (n for n in inner.own_nodes("return_statement") if self._parted(inner, n, inner.body))
                apart = apart or next(ways, None) is not None
                self._asked_of.discard(inner.node.id)
                if apart:
                    return True
            inner = inner.parent
        return False

    def _parted(self, function: Function, node: Node, outer: Node) -> bool:
        """Whether a node stands behind a condition inside `outer` that threads may answer differently."""
        inner, current = node, node.parent
        while current is not None and inner.id != outer.id:
            if current.type in (*_BRANCHES, *_CHOICES):
                condition = current.child_by_field_name("condition") or current.child_by_field_name("left")
                if current.type == "binary_expression" and function.text(current.children[1]) not in SHORT:
                    condition = None
                apart = condition is not None and condition.id != inner.id and self._own(function, condition)
                if apart and condition is not None and self.truth(function, condition) is None:
                    return True
            inner, current = current, current.parent
        return False

    @staticmethod
    def _loops(function: Function, node: Node) -> Iterator[Node]:
        """The loops around a node."""
        current = node.parent
        while current is not None and current.id != function.body.id:
            if current.type in LOOPS:
                yield current
            current = current.parent


def _is_timed(statement: AsmStatement) -> bool:
    return _TIMED.search(statement.template) is not None


def _arguments(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return [n for n in arguments.named_children if n.type != "comment"] if arguments is not None else []


def _handed_to(function: Function, inner: Function) -> Iterator[Node]:
    """The calls that a lambda is handed to, as it is or by its name."""
    for node in (inner.node, *(function.named(inner.name) if inner.name else ())):
        above = node.parent
        if above is not None and above.type == "argument_list" and above.parent is not None:
            yield above.parent


def _callee(function: Function, call: Node) -> str:
    name = call.child_by_field_name("function")
    return function.text(name) if name is not None else ""


def _leads(function: Function, param: Param) -> bool:
    """Whether a function may write through a parameter."""
    text = function.text(param.node) if param.node is not None else ""
    return ("*" in text or "[" in text) and _OF_CONST.search(text) is None


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b")
