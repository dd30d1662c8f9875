# SPDX-License-Identifier: Apache-2.0
"""Order of tensor-core events in a function, with known callees inlined: the tree of `porter.model.events`."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import enclosing, find, walk
from porter.model.accumulators import Accumulator, AccumulatorMap
from porter.model.constants import Constants
from porter.model.empty_calls import is_register_fence_call, only_aborts
from porter.model.events import Branch, Event, Exit, Inlined, Item, Jumping, Kind, Label, Loop, Switch
from porter.model.frames import Frame
from porter.model.functions import Call, Function, Style
from porter.model.inlining import Inliner, in_any_order
from porter.model.kernels import contains_tensor_core, statements_in
from porter.model.macro_uses import MacroUses
from porter.model.objects import constructors, is_const, object_root, returns_pointer
from porter.model.program import Program
from porter.model.registers import CASTS, take_apart, without_casts
from porter.model.scopes import PREPROCESSOR_BLOCKS, resolve
from porter.model.tensor_core import MmaStep, Step, SyncStep, without_cast
from porter.model.threads import Threads
from porter.model.zeroing import Zeroing, find_zeroing

_SEQUENCES = frozenset(
    ("compound_statement", "else_clause", "case_statement", "labeled_statement", "template_declaration")
)
"""Nodes whose children are executed one after the other."""


class FlowBuilder:
    """Builds flows of one program. `anchors` maps ids of statement nodes to the accumulators that are loaded in
    front of them, `stores` to those that are stored behind them."""

    def __init__(self, program: Program, accumulators: AccumulatorMap) -> None:
        self.program = program
        self.accumulators = accumulators
        self.zeroing: dict[int, Zeroing] = {}
        """By id of the statement node."""
        self.anchors: dict[int, list[Accumulator]] = {}
        self.stores: dict[int, list[Accumulator]] = {}
        self.threads = Threads(program)
        self.inliner = Inliner(program)
        self._is_whole = False
        self._found_meetings: dict[int, list[Node]] = {}
        self._visited: set[tuple[str, int]] = set()
        self._changed: set[tuple[str, int]] = set()
        self._uses = program.uses_tensor_core()
        self._macros = MacroUses(program, accumulators.accumulators)
        self._statements = {s.statement.node.id: s for s in program.statements}
        self._calls: dict[int, dict[int, Call]] = {}
        self._names = {n for a in accumulators.accumulators for n in a.home.names}
        self._declared: dict[int, list[Accumulator]] = {}
        for accumulator in accumulators.accumulators:
            if accumulator.variable.declaration is not None:
                self._declared.setdefault(accumulator.variable.declaration.id, []).append(accumulator)
        for accumulator in accumulators.accumulators:
            for found in find_zeroing(program, accumulator):
                if self._by_some(found):
                    continue
                self.zeroing.setdefault(found.node.id, found)
                if accumulator not in self.zeroing[found.node.id].accumulators:
                    self.zeroing[found.node.id].accumulators.append(accumulator)

    def _by_some(self, zeroing: Zeroing) -> bool:
        """Whether only some threads may clear their registers: the tile in Tensor Memory belongs to all of them. A
        branch with MMAs in it is taken by whole warpgroups."""
        node, function = zeroing.node, zeroing.function
        outer = node
        while outer.parent is not None and outer.id != function.body.id:
            if contains_tensor_core(self.program, function, outer.parent, self._uses):
                break
            outer = outer.parent
        if self.threads.splits(function, node, outer):
            return True
        return self.threads.apart(function, node, node.start_byte, self._meetings(function), returns=False)

    def _meetings(self, function: Function) -> list[Node]:
        """Statements that issue, commit or wait for MMAs."""
        found = self._found_meetings.get(id(function))
        if found is None:
            own = [s.statement.node for s in self.program.statements if s.function is function]
            called = [c.node for c in function.calls if any(id(t) in self._uses for t in self.program.targets(c))]
            found = self._found_meetings[id(function)] = own + called
        return found

    def unseen_macros(self, accumulator: Accumulator) -> list[tuple[str, int]]:
        """(name, byte offset) of macros that name the accumulator where no use was seen. Call after `flow`."""
        return self._macros.unseen(accumulator)

    def flow(self, function: Function) -> list[Item]:
        return self._body(Frame(function, {}, None, 0), function.body)

    def whole_flow(self, function: Function) -> list[Item] | None:
        """The flow with what callees do to accumulators of their own; None if calls nest too deep to be followed."""
        usual, self.inliner, self._is_whole = self.inliner, Inliner(self.program), True
        try:
            items = self.flow(function)
            return None if self.inliner.too_deep else items
        finally:
            self.inliner, self._is_whole = usual, False

    def flow_in(self, function: Function, bound: dict[str, Accumulator]) -> list[Item]:
        """The flow of a function whose parameters carry accumulators."""
        return self._body(Frame(function, bound, None, 0), function.body)

    def is_inlined_call(self, function: Function, node: Node) -> bool:
        """Whether a node calls a function of the sources that issues, commits or waits for MMAs."""
        call = self.call_at(function, node)
        return call is not None and any(id(t) in self._uses for t in self.program.targets(call))

    def keep_registers_true(self, accumulator: Accumulator) -> None:
        """Forget what was placed for an accumulator: zeroing it, say, is nothing but a change of its registers."""
        for places in (self.anchors, self.stores):
            for known in places.values():
                known[:] = [a for a in known if a is not accumulator]
        for node_id, zeroing in list(self.zeroing.items()):
            zeroing.accumulators[:] = [a for a in zeroing.accumulators if a is not accumulator]
            if not zeroing.accumulators:
                del self.zeroing[node_id]

    def has_visited(self, function: Function, offset: int, *, change: bool) -> bool:
        """Whether a flow came by what stands at a byte offset of the function's file and names an accumulator or a
        macro, and with `change` knows that registers are changed there. Call after `flow`."""
        place = (function.file.path, offset)
        if self._macros.has_read(function, offset):
            return not change or self._macros.has_changed(function, offset)
        return place in (self._changed if change else self._visited)

    def zeroing_of(self, accumulator: Accumulator) -> list[Zeroing]:
        """Statements that do nothing but clear the accumulator."""
        return [z for z in self.zeroing.values() if accumulator in z.accumulators]

    # --- statements

    def _statements_of(self, frame: Frame, node: Node | None) -> list[Item]:
        if node is None:
            return []
        items = self._statement(frame, node)
        if frame.at is None or self._is_whole:
            items += [Event(Kind.STORE, frame.at or node, a) for a in self.stores.get(node.id, ())]
        return items

    def _statement(self, frame: Frame, node: Node) -> list[Item]:
        items: list[Item] = []
        if frame.at is None or self._is_whole:
            items += [Event(Kind.LOAD, frame.at or node, a) for a in self.anchors.get(node.id, ())]
        zeroing = self.zeroing.get(node.id)
        if zeroing is not None:
            cleared = [a for a in zeroing.accumulators if not a.home.field_name or a in frame.bound.values()]
            return items + [Event(Kind.ZERO, frame.at or node, a) for a in cleared]
        kind = node.type
        if frame.at is None:
            items += [Event(Kind.DECLARE, node, a) for a in self._declared.get(node.id, ())]
        if kind == "labeled_statement":
            items.append(Label(node.id))
        if kind in _SEQUENCES:
            for child in node.named_children:
                items += self._statements_of(frame, child)
        elif kind == "if_statement":
            items += self._expression(frame, node.child_by_field_name("condition"))
            taken = self._decided(frame, node)
            if taken is not None:
                items += self._statements_of(frame, taken[0])
                return items
            arms = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
            items.append(Branch([self._statements_of(frame, arm) for arm in arms]))
        elif kind in PREPROCESSOR_BLOCKS:
            items += self._preprocessor(frame, node)
        elif kind == "for_range_loop":
            items += self._range(frame, node)
        elif kind in ("for_statement", "while_statement"):
            items += self._statements_of(frame, node.child_by_field_name("initializer"))
            body = self._expression(frame, node.child_by_field_name("condition"))
            body += self._statements_of(frame, node.child_by_field_name("body"))
            items.append(Loop(body + self._expression(frame, node.child_by_field_name("update"))))
        elif kind == "do_statement":
            body = self._statements_of(frame, node.child_by_field_name("body"))
            items.append(Loop(body + self._expression(frame, node.child_by_field_name("condition")), True))
        elif kind == "goto_statement":
            target = _target(frame, node)
            items += [Exit("goto", target.id)] if target is not None else []
        elif kind == "switch_statement":
            items += self._expression(frame, node.child_by_field_name("condition"))
            items += self._switch(frame, node)
        elif kind in ("return_statement", "break_statement", "continue_statement"):
            items += self._expression(frame, node)
            items.append(Exit(kind.removesuffix("_statement")))
        else:
            items += self._expression(frame, node)
        if frame.at is None:
            items += [e for a in self._declared.get(node.id, ()) for e in self._initialized(frame, node, a)]
        return items

    def _body(self, frame: Frame, node: Node) -> list[Item]:
        """The body of a function; where a `goto` leads nowhere that is known, its events may come in any order."""
        items = self._statements_of(frame, node)
        jumps = [(jump, _target(frame, jump)) for jump in find(node, "goto_statement")]
        if any(target is None for _, target in jumps):
            return in_any_order(items)
        back = any(target is not None and target.start_byte < jump.start_byte for jump, target in jumps)
        return [Jumping(items)] if back else items

    def _switch(self, frame: Frame, node: Node) -> list[Item]:
        body = node.child_by_field_name("body")
        if body is None:
            return []
        arms = statements_in(body) if body.type == "compound_statement" else [body]
        flows = [self._statements_of(frame, arm) for arm in arms]
        inside = [c for c in find(body, "case_statement") if enclosing(c, "switch_statement") == node]
        if any(c not in arms for c in inside):
            # into the middle of a statement
            return in_any_order([item for flow in flows for item in flow])
        falls = any(c.children[0].type == "default" and c.parent == body for c in inside)
        return [Switch(flows, falls)]

    def _decided(self, frame: Frame, node: Node) -> tuple[Node | None] | None:
        """The arm of an `if constexpr` whose condition is known, None for no arm; None if it is not known."""
        if not any(c.type == "constexpr" for c in node.children) or frame.at is None:
            return None
        condition = node.child_by_field_name("condition")
        named = [c for c in condition.named_children if c.type != "comment"] if condition is not None else []
        value = self._constants(frame).evaluate(frame.function.text(named[0])) if len(named) == 1 else None
        if value is None:
            return None
        return (node.child_by_field_name("consequence" if value else "alternative"),)

    def _initialized(self, frame: Frame, node: Node, accumulator: Accumulator) -> list[Item]:
        """What a declaration puts into the registers; one with zeros is a zeroing."""
        if accumulator.home.is_set_where_declared():
            return [Event(Kind.WRITE, node, accumulator)]
        home = accumulator.home
        items: list[Item] = []
        for constructor in constructors(self.program, frame.function, node, home.class_type):
            if home.field_name:
                inner = frame.into(constructor, {home.field_name: accumulator}, {}, node)
                items.append(Branch([[], [Inlined(self._body(inner, constructor.body))]]))
            elif home.is_set_by(constructor):
                return [Event(Kind.WRITE, node, accumulator)]
        return items

    def _preprocessor(self, frame: Frame, node: Node) -> list[Item]:
        """A branch of the preprocessor: either arm may be the one that is compiled."""
        alternative = node.child_by_field_name("alternative")
        skipped = {c.id for n in ("condition", "name", "alternative") for c in node.children_by_field_name(n)}
        kept = [c for c in node.named_children if c.id not in skipped]
        main = [i for c in kept for i in self._statements_of(frame, c)]
        if node.type == "preproc_else":
            return [Exit("abort")] if only_aborts(self.program, frame.function, node) else main
        return [Branch([main, self._statements_of(frame, alternative)])]

    def _range(self, frame: Frame, node: Node) -> list[Item]:
        """`for (auto& x : d)` touches what it runs over, and may change it if `x` is a reference."""
        over, declarator = node.child_by_field_name("right"), node.child_by_field_name("declarator")
        body = self._statements_of(frame, node.child_by_field_name("body"))
        by_reference = declarator is not None and declarator.type == "reference_declarator"
        constant = any(c.type == "type_qualifier" and frame.function.text(c) == "const" for c in node.children)
        if by_reference and not constant:
            return [Loop(self._target(frame, over, True) + body)]
        return [*self._expression(frame, over), Loop(body)]

    # --- expressions

    def _expression(self, frame: Frame, node: Node | None) -> list[Item]:
        if node is None or node.type in ("sizeof_expression", "lambda_expression", "decltype", "comment"):
            return []
        if node.type == "gnu_asm_expression" or node.id in self._statements:
            return self._asm(frame, node)
        if node.type == "call_expression":
            return self._call(frame, node)
        if node.type == "assignment_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            items = self._expression(frame, right)
            operator = node.child_by_field_name("operator")
            compound = operator is not None and frame.function.text(operator) != "="
            return items + self._target(frame, left, compound)
        if node.type == "conditional_expression":
            arms = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
            condition = self._expression(frame, node.child_by_field_name("condition"))
            return [*condition, Branch([self._expression(frame, arm) for arm in arms])]
        if node.type == "binary_expression" and _operator(frame, node) in ("&&", "||", "and", "or"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            return [*self._expression(frame, left), Branch([[], self._expression(frame, right)])]
        if node.type == "update_expression":
            return self._target(frame, node.child_by_field_name("argument"), True)
        if node.type in ("identifier", "type_identifier") and (call := self.call_at(frame.function, node)) is not None:
            return [i for target in self.program.targets(call) for i in self._inline(frame, call, target)]
        if node.type == "identifier":
            accumulator = self._accumulator(frame, node)
            if accumulator is not None:
                return [Event(Kind.READ, frame.at or node, accumulator)]
            return self._macros.named(frame, node, frame.function.text(node))
        if node.type == "field_expression" and frame.function.text(node).startswith("this->"):
            name = frame.function.text(node).removeprefix("this->").strip()
            bound = frame.bound.get(name)
            return [Event(Kind.READ, frame.at or node, bound)] if bound is not None else []
        if node.type in ("init_declarator", "cast_expression") or self._is_cast_call(frame, node):
            alias = self._alias(frame, node)
            if alias is not None:
                return alias
        items = []
        for child in node.named_children:
            if node.type in ("declaration", "init_declarator", "array_declarator") and self._declares(
                frame, node, child
            ):
                continue
            items += self._expression(frame, child)
        return items

    def call_at(self, function: Function, node: Node) -> Call | None:
        """The call that a node of a function is."""
        calls = self._calls.get(id(function))
        if calls is None:
            # the first call of a node, as in `function.calls`
            calls = self._calls[id(function)] = {c.node.id: c for c in reversed(function.calls)}
        return calls.get(node.id)

    def _declares(self, frame: Frame, node: Node, child: Node) -> bool:
        """Whether `child` is the declared name, not a use of a variable."""
        field_name = None
        for index, candidate in enumerate(node.children):
            if candidate.id == child.id:
                field_name = node.field_name_for_child(index)
        return field_name == "declarator" and child.type in (
            "identifier",
            "array_declarator",
            "reference_declarator",
        )

    def _target(self, frame: Frame, node: Node | None, compound: bool) -> list[Item]:
        if node is None:
            return []
        element = take_apart(frame.function, node)
        accumulator = self._accumulator(frame, element.root) if element is not None else None
        at = frame.at or node
        if accumulator is None:
            items = self._expression(frame, node)
            held = self._object(frame, node)
            return [*items, Event(Kind.WRITE, at, held)] if held is not None else items
        assert element is not None
        self._changed.add(_place(frame, element.root))
        items = [Event(Kind.READ, at, accumulator)] if compound else []
        return [*items, Event(Kind.WRITE, at, accumulator)]

    def _object(self, frame: Frame, node: Node | None) -> Accumulator | None:
        """The accumulator of class type that an expression reaches into by its methods."""
        root = object_root(node)
        accumulator = self._accumulator(frame, root) if root is not None else None
        return accumulator if accumulator is not None and accumulator.home.class_type else None

    def _accumulator(self, frame: Frame, node: Node) -> Accumulator | None:
        found = self._named(frame, node)
        if found is not None:
            self._visited.add(_place(frame, node))
        return found

    def _named(self, frame: Frame, node: Node) -> Accumulator | None:
        name = frame.function.text(node)
        if name in frame.bound:
            return frame.bound[name]
        if name not in self._names and all(name != outer[2] for outer in frame.outer):
            return None
        variable = resolve(frame.function, node, name)
        if variable is None:
            return None
        return self.accumulators.held_by(variable) or frame.outer.get(variable.key)

    def _asm(self, frame: Frame, node: Node) -> list[Item]:
        known = self._statements.get(node.id)
        at = frame.at or node
        if known is None:
            return self._plain_asm(frame, node)
        items: list[Item] = []
        for step in known.steps:
            if isinstance(step, MmaStep):
                overwrites = self._constants(frame).evaluate(without_cast(step.scale_d)) == 0
                accumulator = self._step_accumulator(frame, step)
                items.append(Event(Kind.MMA, at, accumulator, overwrites=overwrites))
            else:
                items.append(self._sync(frame, step, at))
        return items

    def _step_accumulator(self, frame: Frame, step: MmaStep) -> Accumulator | None:
        if step.d.name in frame.bound:
            return frame.bound[step.d.name]
        function, root = frame.function, step.d.root
        if function.style is Style.MACRO:
            if frame.call is None:
                return None
            function, root = frame.call.caller, frame.call.node
        return self.accumulators.held_by(resolve(function, root, step.d.name))

    def _constants(self, frame: Frame) -> Constants:
        return frame.constants(self.program.constants_in(frame.function))

    def _sync(self, frame: Frame, step: SyncStep, at: Node) -> Event:
        if step.kind is Step.WAIT:
            return Event(Kind.WAIT, at, pending=self._constants(frame).evaluate(step.pending))
        return Event(Kind.FENCE if step.kind is Step.FENCE else Kind.COMMIT, at)

    def _plain_asm(self, frame: Frame, node: Node) -> list[Item]:
        """Registers pinned by an empty asm statement are neither read nor written."""
        statement = next((s for s in frame.function.asm if s.node.id == node.id), None)
        if statement is None or not statement.template.strip():
            return []
        items: list[Item] = []
        for operand in statement.operands:
            if operand.expr_node is None:
                continue
            if operand.is_written:
                items += self._target(frame, operand.expr_node, operand.is_read)
            else:
                items += self._expression(frame, operand.expr_node)
        return items

    def _call(self, frame: Frame, node: Node) -> list[Item]:
        if self._is_cast_call(frame, node):
            alias = self._alias(frame, node)
            if alias is not None:
                return alias
        call = self.call_at(frame.function, node)
        if call is None:
            return [i for child in node.named_children for i in self._expression(frame, child)]
        targets = self.program.targets(call)
        if is_register_fence_call(self.program, call):
            return []
        held = self._held(frame, call)
        objects = self._objects(frame, call)
        inlined = [
            t
            for t in targets
            if id(t) in self._uses or t.style is Style.LAMBDA or self._is_method_of(t, held) or objects
        ]
        carried = {i for argument in self.accumulators.arguments_of(call) for i in argument.args} | set(objects)
        items: list[Item] = []
        for index, argument in enumerate(call.args):
            if index in carried and inlined:
                continue
            items += self._argument(frame, call, index, argument, targets)
        if not targets:
            items += self._macros.named(frame, node, call.name)
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type == "field_expression" and not (held and inlined):
            items += self._expression(frame, callee.child_by_field_name("argument"))
            changed = self._object(frame, callee)
            if changed is not None and not (targets and all(is_const(t) for t in targets)):
                items.append(Event(Kind.WRITE, frame.at or node, changed))
        if inlined and not self.inliner.is_too_deep(frame, call):
            arms = [self._inline(frame, call, target, held) for target in inlined]
            items += arms[0] if len(arms) == 1 else [Branch(arms)]
        return items

    def _is_cast_call(self, frame: Frame, node: Node) -> bool:
        if node.type != "call_expression":
            return False
        callee = node.child_by_field_name("function")
        return callee is not None and frame.function.text(callee).split("<")[0].strip() in CASTS

    def _alias(self, frame: Frame, node: Node) -> list[Item] | None:
        """A pointer or reference to an accumulator that is kept: `T* p = d`, `T& x = d[i]`, a cast of `d`. None if
        the node makes none; the elements of the array by value are no alias."""
        if node.type == "init_declarator":
            declarator, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            if declarator is None or value is None:
                return None
            reference = declarator.type in ("reference_declarator", "pointer_declarator") or _has_auto(node)
            if not reference:
                return None
            constant = any(c.type == "type_qualifier" and "const" in frame.function.text(c) for c in _siblings(node))
        else:
            arguments = node.child_by_field_name("arguments")
            value = node.child_by_field_name("value")
            if value is None and arguments is not None and arguments.named_children:
                value = arguments.named_children[0]
            if value is None:
                return None
            constant = "const" in frame.function.text(node).split("(", 1)[0].split()
        element = take_apart(frame.function, without_casts(frame.function, value))
        accumulator = self._accumulator(frame, element.root) if element is not None else None
        if element is None or accumulator is None:
            held = self._object(frame, value) if node.type == "init_declarator" else None
            if held is None or (_declares_value(node) and not self._hands_out(frame, value)):
                return None
            return [Event(Kind.ALIAS, frame.at or node, held, changes=not constant)]
        full = accumulator.home.is_register(element.subscripts)
        by_value = node.type == "init_declarator" and _declares_value(node)
        if full and (node.type != "init_declarator" or by_value) and not _takes_address(value):
            return None
        return [Event(Kind.ALIAS, frame.at or node, accumulator, changes=not constant)]

    def _hands_out(self, frame: Frame, node: Node) -> bool:
        """Whether a call returns a pointer, or is of a function that the sources do not define."""
        call = self.call_at(frame.function, node)
        targets = self.program.targets(call) if call is not None else []
        return not targets or any(returns_pointer(t) for t in targets)

    def _argument(self, frame: Frame, call: Call, index: int, node: Node, targets: list[Function]) -> list[Item]:
        if node.type == "lambda_expression":
            inner = next((f for f in self.program.functions if f.node.id == node.id), None)
            if inner is not None:
                body = self._body(frame.into(inner, {}, None, node, lexical=True), inner.body)
                return [Loop([Inlined(body)])]
        element = take_apart(frame.function, without_casts(frame.function, node))
        accumulator = self._accumulator(frame, element.root) if element is not None else None
        at = frame.at or node
        address_taken = node.type == "pointer_expression"
        if element is None or accumulator is None:
            items = self._expression(frame, node)
            held = self._object(frame, node)
            changes = any(_may_write(t, index) for t in targets) if targets else address_taken
            return [*items, Event(Kind.WRITE, at, held)] if held is not None and changes else items
        read = Event(Kind.READ, at, accumulator)
        whole = not accumulator.home.is_register(element.subscripts)
        changes = any(_may_write(t, index) for t in targets) if targets else whole or address_taken
        if changes:
            self._changed.add(_place(frame, element.root))
        return [read, Event(Kind.WRITE, at, accumulator)] if changes else [read]

    def _held(self, frame: Frame, call: Call) -> dict[str, Accumulator]:
        """Member accumulators of the object that a method is called on, by the name of the field."""
        callee = call.node.child_by_field_name("function")
        root = callee
        if callee is not None and callee.type == "field_expression":
            root = callee.child_by_field_name("argument")
        while root is not None and root.type == "subscript_expression":
            # one of an array of objects
            root = root.child_by_field_name("argument")
        if root is None or root.type not in ("identifier", "this"):
            return {}
        accumulator = self._accumulator(frame, root)
        if accumulator is not None and accumulator.home.field_name:
            return {accumulator.home.field_name: accumulator}
        # a method that calls another of its own object
        return {n: a for n, a in frame.bound.items() if a.home.field_name == n}

    def _objects(self, frame: Frame, call: Call) -> dict[int, Accumulator]:
        """Objects with a member accumulator that a call hands on, by index of the argument."""
        found = {}
        for index, argument in enumerate(call.args):
            element = take_apart(frame.function, argument)
            accumulator = self._accumulator(frame, element.root) if element is not None and not element.path else None
            if accumulator is not None and accumulator.home.field_name:
                found[index] = accumulator
        return found

    def _is_method_of(self, target: Function, held: dict[str, Accumulator]) -> bool:
        return any(a.home.has_method(target) for a in held.values())

    def _inline(
        self, frame: Frame, call: Call, target: Function, held: dict[str, Accumulator] | None = None
    ) -> list[Item]:
        bound: dict[str, Accumulator] = dict(held or {}) if self._is_method_of(target, held or {}) else {}
        if target.style is Style.LAMBDA and target.parent is frame.function:
            own = {p.name for p in target.params}
            bound |= {name: a for name, a in frame.bound.items() if name not in own}
        for index, accumulator in self._objects(frame, call).items():
            if index < len(target.params):
                bound[target.params[index].name] = accumulator
        for argument in self.accumulators.arguments_of(call):
            if argument.param.function is not target:
                continue
            carried = self._accumulator(frame, argument.registers.root)
            if carried is not None:
                for param in argument.param.params:
                    bound[param.name] = carried
        values = self.inliner.template_values(call, target, self._constants(frame))
        inner = frame.into(target, bound, values, call.node, call, lexical=True)
        return [Inlined(self.inliner.body(inner, lambda: self._body(inner, target.body)))]


def _target(frame: Frame, jump: Node) -> Node | None:
    """The labelled statement that a `goto` leads to; None if that is not known."""
    label, text = jump.child_by_field_name("label"), frame.function.text
    found = [
        n
        for n in find(frame.function.body, "labeled_statement")
        if label is not None and (name := n.child_by_field_name("label")) is not None and text(name) == text(label)
    ]
    return found[0] if len(found) == 1 else None


def _operator(frame: Frame, node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return frame.function.text(operator) if operator is not None else ""


def _place(frame: Frame, node: Node) -> tuple[str, int]:
    """Path and byte offset of a node."""
    return frame.function.file.path, node.start_byte + frame.function.shift


def _siblings(node: Node) -> list[Node]:
    return list(node.parent.children) if node.parent is not None else []


def _has_auto(node: Node) -> bool:
    """`auto p = d` keeps a pointer."""
    return any(c.type in ("placeholder_type_specifier", "auto") for c in _siblings(node))


def _declares_value(node: Node) -> bool:
    declarator = node.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "identifier"


def _takes_address(node: Node) -> bool:
    return any(n.type == "pointer_expression" and n.children and n.children[0].type == "&" for n in walk(node))


def _may_write(function: Function, index: int) -> bool:
    """Whether an argument passed to parameter `index` may be changed through it."""
    if index >= len(function.params) or function.params[index].node is None:
        return True
    text = function.file.text(function.params[index].span)
    if "const" in text.split():
        return False
    return "&" in text or "*" in text or "[" in text
