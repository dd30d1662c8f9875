# SPDX-License-Identifier: Apache-2.0
"""Order of tensor-core events in a function, with known callees inlined: the tree of `porter.model.events`."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import enclosing, find
from porter.model.accumulators import Accumulator, AccumulatorMap
from porter.model.empty_calls import only_aborts
from porter.model.events import Branch, Event, Exit, Inlined, Item, Jumping, Kind, Label, Loop, Switch
from porter.model.flow_calls import FlowCalls
from porter.model.flow_names import place
from porter.model.frames import Frame
from porter.model.functions import Function
from porter.model.inlining import Inliner, in_any_order
from porter.model.kernels import contains_tensor_core, statements_in
from porter.model.objects import constructors
from porter.model.program import Program
from porter.model.registers import take_apart
from porter.model.scopes import PREPROCESSOR_BLOCKS
from porter.model.tensor_core import MmaStep, Step, SyncStep, without_cast
from porter.model.zeroing import Zeroing, ZeroingFinder

_SEQUENCES = frozenset(
    ("compound_statement", "else_clause", "case_statement", "labeled_statement", "template_declaration")
)
"""Nodes whose children are executed one after the other."""


class FlowBuilder(FlowCalls):
    """Builds flows of one program. `anchors` maps ids of statement nodes to the accumulators that are loaded in
    front of them, `stores` to those that are stored behind them."""

    def __init__(self, program: Program, accumulators: AccumulatorMap) -> None:
        super().__init__(program, accumulators)
        self.zeroing: dict[int, Zeroing] = {}
        """By id of the statement node."""
        self.anchors: dict[int, list[Accumulator]] = {}
        self.stores: dict[int, list[Accumulator]] = {}
        self.leaving: dict[int, bool] = {}
        """By id of a node whether a statement that leaves something stands in it."""
        self._jumps: dict[int, list[Node]] = {}
        self._is_whole = False
        self._kept: dict[tuple[int, int], list[Item]] = {}
        """Flows of statements of outermost functions, by ids of function and node, until something is placed there."""
        self._found_meetings: dict[int, list[Node]] = {}
        self._asm_by_node: dict[int, dict[int, AsmStatement]] = {}
        """By id of a function: its asm statements by the ids of their nodes."""
        self._statements = {s.statement.node.id: s for s in program.statements}
        self._declared: dict[int, list[Accumulator]] = {}
        for accumulator in accumulators.accumulators:
            if accumulator.variable.declaration is not None:
                self._declared.setdefault(accumulator.variable.declaration.id, []).append(accumulator)
        zeroing = ZeroingFinder(program)
        for accumulator in accumulators.accumulators:
            for found in zeroing.of(accumulator):
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

    def place_load(self, anchor: Node, accumulator: Accumulator) -> None:
        """Have the accumulator loaded in front of a statement."""
        self.anchors.setdefault(anchor.id, []).append(accumulator)
        self._forget(anchor)

    def place_store(self, anchor: Node, accumulator: Accumulator) -> None:
        """Have it stored behind a statement."""
        self.stores.setdefault(anchor.id, []).append(accumulator)
        self._forget(anchor)

    def _forget(self, anchor: Node) -> None:
        """Drop the flows that a statement is in."""
        changed: set[int] = set()
        node: Node | None = anchor
        while node is not None:
            if node.type == "lambda_expression":
                # what a lambda does is in the flow of whoever calls it
                self._kept.clear()
                return
            changed.add(node.id)
            node = node.parent
        for key in [k for k in self._kept if k[1] in changed]:
            del self._kept[key]

    def flow(self, function: Function) -> list[Item]:
        return self._body(Frame(function, {}, None, 0), function.body)

    def jumps(self, body: Node) -> list[Node]:
        """Every `goto` below a node."""
        found = self._jumps.get(body.id)
        if found is None:
            found = self._jumps[body.id] = list(find(body, "goto_statement"))
        return found

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
        self._kept.clear()
        for places in (self.anchors, self.stores):
            for known in places.values():
                known[:] = [a for a in known if a is not accumulator]
        for node_id, zeroing in list(self.zeroing.items()):
            zeroing.accumulators[:] = [a for a in zeroing.accumulators if a is not accumulator]
            if not zeroing.accumulators:
                del self.zeroing[node_id]

    def zeroing_of(self, accumulator: Accumulator) -> list[Zeroing]:
        """Statements that do nothing but clear the accumulator."""
        return [z for z in self.zeroing.values() if accumulator in z.accumulators]

    # --- statements

    def _statements_of(self, frame: Frame, node: Node | None) -> list[Item]:
        if node is None:
            return []
        outermost = frame.depth == 0 and not frame.bound and not self._is_whole
        key = id(frame.function), node.id
        if outermost and key in self._kept:
            return self._kept[key]
        items = self._statement(frame, node)
        if frame.at is None or self._is_whole:
            items += [Event(Kind.STORE, frame.at or node, a) for a in self.stores.get(node.id, ())]
        if outermost:
            self._kept[key] = items
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
        jumps = [(jump, _target(frame, jump)) for jump in self.jumps(node)]
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
            if node.type in ("declaration", "init_declarator", "array_declarator") and _declares(node, child):
                continue
            items += self._expression(frame, child)
        return items

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
        self._changed.add(place(frame, element.root))
        items = [Event(Kind.READ, at, accumulator)] if compound else []
        return [*items, Event(Kind.WRITE, at, accumulator)]

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
                registers = step.op.d_registers
                items.append(Event(Kind.MMA, at, accumulator, overwrites=overwrites, registers=registers))
            else:
                items.append(self._sync(frame, step, at))
        return items

    def _sync(self, frame: Frame, step: SyncStep, at: Node) -> Event:
        if step.kind is Step.WAIT:
            return Event(Kind.WAIT, at, pending=self._constants(frame).evaluate(step.pending))
        return Event(Kind.FENCE if step.kind is Step.FENCE else Kind.COMMIT, at)

    def _plain_asm(self, frame: Frame, node: Node) -> list[Item]:
        """Registers pinned by an empty asm statement are neither read nor written."""
        function = frame.function
        if id(function) not in self._asm_by_node:
            self._asm_by_node[id(function)] = {s.node.id: s for s in reversed(function.asm)}
        statement = self._asm_by_node[id(function)].get(node.id)
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


def _declares(node: Node, child: Node) -> bool:
    """Whether `child` is the declared name, not a use of a variable."""
    named = child.type in ("identifier", "array_declarator", "reference_declarator")
    return named and child in node.children_by_field_name("declarator")
