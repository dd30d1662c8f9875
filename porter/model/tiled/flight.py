# SPDX-License-Identifier: Apache-2.0
"""Whether MMAs that write an accumulator may be in flight where a statement begins: what the paths to it issue, close
and wait for, through functions and lambdas that are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.model.constants import Constants
from porter.model.facts import Commit, Wait
from porter.model.functions import Call, Function, Style
from porter.model.names.paths import is_whole, template_heads, template_params
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS
from porter.model.tiled.accumulators import Handle, Multiply, Origin, Synchronization, Tiled
from porter.model.tiled.activity import is_constant_branch
from porter.model.tiled.tensors import Key

Ages = frozenset[int | None]
"""For each path how many batches have been closed since its last MMA on the accumulator; None where that has landed."""

_LANDED: Ages = frozenset([None])
_UNKNOWN: Ages = frozenset([None, 0])
_OLDEST = 16
_DEEPEST = 12
_BRANCHES = ("if_statement", "switch_statement", "conditional_expression", *PREPROCESSOR_BLOCKS)


@dataclass
class _Path:
    """What a function's paths have come to, and where those go on that leave a loop."""

    function: Function
    keys: frozenset[Key]
    known: Constants
    """What names of constants mean in the function, parameters of its template among them."""
    depth: int = 0
    seen: dict[int, Ages] = field(default_factory=dict)
    """In front of each statement, by its id."""
    left: Ages = frozenset()
    again: Ages = frozenset()
    returned: Ages = frozenset()


class Flight:
    """Asks about one program."""

    def __init__(self, tiled: Tiled) -> None:
        self.tiled = tiled
        self._events: dict[tuple[int, int], Multiply | Synchronization] = {}
        events: list[Multiply | Synchronization] = [*tiled.multiplies, *tiled.synchronizations]
        for one in events:
            self._events[id(one.call.caller.file), one.call.node.id] = one
        self._atoms = {(id(a.call.caller.file), a.call.node.id): a for a in tiled.atoms}
        self._known: dict[tuple[int, Key], dict[int, Ages]] = {}

    def ages(self, function: Function, statement: Node, handle: Handle) -> Ages:
        """What the paths to a statement of a function have behind them of MMAs on an accumulator. Empty where none
        comes to it; a function begins with none in flight."""
        key = self.root(handle).variable.key
        known = self._known.get((id(function), key))
        if known is None:
            self._known[id(function), key] = {}
            path = _Path(function, frozenset([key]), self.tiled.program.constants_in(function))
            self._run(path, function.body, self._before(function, self.root(handle)))
            known = self._known[id(function), key] = path.seen
        return known.get(statement.id, _UNKNOWN)

    def _before(self, function: Function, handle: Handle) -> Ages:
        """What callers have behind them where a function begins that is handed an accumulator, or a lambda that sees
        one."""
        if function is handle.function and handle.origin is Origin.FRAGMENT:
            return _LANDED
        found: Ages = frozenset()
        for call in self.tiled.program.callers(function):
            given, param = handle, handle.variable.param
            if function is handle.function and param is not None and param.index < len(call.args):
                outer = self.tiled.handle_of(call.caller, call.args[param.index])
                if outer is None:
                    return _UNKNOWN
                given = outer
            found |= self.ages(call.caller, call.node, given)
        return found or _UNKNOWN

    def is_by_parts(self, handle: Handle) -> bool:
        """Whether some MMAs write a part of an accumulator and leave the rest."""
        return self.root(handle).variable.key in self._parts

    @cached_property
    def _parts(self) -> set[Key]:
        """Accumulators of which an MMA is handed a part."""
        found: set[Key] = set()
        issued = [(m.call.caller, m.d) for m in self.tiled.multiplies]
        work = [(f, n, False) for f, n in (*issued, *((a.call.caller, a.d) for a in self.tiled.atoms))]
        seen: set[tuple[int, int, bool]] = set()
        while work:
            function, node, is_part = work.pop()
            if (id(function), node.id, is_part) in seen:
                continue
            seen.add((id(function), node.id, is_part))
            is_part = is_part or _is_part(function, node)
            handle = self.tiled.handle_of(function, node)
            if handle is None:
                continue
            if handle.origin is Origin.VIEW and handle.value is not None:
                work.append((handle.function, handle.value, is_part))
            elif (param := handle.variable.param) is not None:
                calls = self.tiled.program.callers(handle.function)
                work += [(c.caller, c.args[param.index], is_part) for c in calls if param.index < len(c.args)]
            elif is_part:
                found.add(handle.variable.key)
        return found

    def root(self, handle: Handle) -> Handle:
        """The accumulator whose registers a view names."""
        for _ in range(_DEEPEST):
            value = handle.value if handle.origin is Origin.VIEW else None
            further = self.tiled.handle_of(handle.function, value) if value is not None else None
            if further is None or further is handle:
                break
            handle = further
        return handle

    def _is_meant(self, path: _Path, function: Function, node: Node) -> bool:
        handle = self.tiled.handle_of(function, node)
        return handle is not None and self.root(handle).variable.key in path.keys

    def _run(self, path: _Path, node: Node, ages: Ages) -> Ages:
        """The ages behind a node of a function."""
        path.seen[node.id] = path.seen.get(node.id, frozenset()) | ages
        if node.type == "lambda_expression":
            return ages | self._inner(path, node, ages)
        if node.type == "goto_statement":
            path.left |= _UNKNOWN
            return _UNKNOWN
        if node.type == "return_statement":
            path.returned |= self._all(path, node, ages)
            return frozenset()
        if node.type == "break_statement":
            path.left |= ages
            return frozenset()
        if node.type == "continue_statement":
            path.again |= ages
            return frozenset()
        if node.type in LOOPS:
            return self._loop(path, node, ages)
        if node.type in _BRANCHES:
            return self._branch(path, node, ages)
        ages = self._all(path, node, ages)
        return self._called(path, node, ages)

    def _all(self, path: _Path, node: Node, ages: Ages) -> Ages:
        for child in node.named_children:
            ages = self._run(path, child, ages)
        return ages

    def _inner(self, path: _Path, node: Node, ages: Ages) -> Ages:
        """A lambda that is run where it stands, perhaps several times, or is called elsewhere."""
        inner = next((f for f in self.tiled.program.functions if f.node.id == node.id), None)
        if inner is None or self.tiled.program.callers(inner) or id(inner) not in self.tiled.active:
            return ages
        return ages | self._of(path, inner, path.keys, ages | self._of(path, inner, path.keys, ages))

    def _loop(self, path: _Path, node: Node, ages: Ages) -> Ages:
        around = path.left, path.again
        path.left, path.again = frozenset(), frozenset()
        before = ages
        while True:
            ended = self._all(path, node, ages) | path.again
            if ended <= ages:
                break
            ages |= ended
        behind = path.left | (ended if self._begins(path, node) else before | ended)
        path.left, path.again = around
        return behind

    def _begins(self, path: _Path, node: Node) -> bool:
        """Whether a loop is run at least once: its condition holds for the constant that its variable begins with."""
        if node.type == "do_statement":
            return True
        begin, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
        declared = begin.child_by_field_name("declarator") if begin is not None else None
        if declared is None or condition is None or declared.type != "init_declarator":
            return False
        name, value = (declared.child_by_field_name(f) for f in ("declarator", "value"))
        if name is None or value is None:
            return False
        first = path.known.evaluate(path.function.text(value))
        known = path.known.extended({path.function.text(name): str(first)})
        return first is not None and bool(known.evaluate(path.function.text(condition)))

    def _branch(self, path: _Path, node: Node, ages: Ages) -> Ages:
        condition = node.child_by_field_name("condition")
        if condition is not None:
            ages = self._run(path, condition, ages)
        taken = self._taken(path, node)
        if taken is not None:
            return self._run(path, taken, ages) if taken.id != node.id else ages
        is_switch = node.type == "switch_statement"
        around = path.left
        path.left = frozenset() if is_switch else around
        ended: Ages = frozenset()
        kept = [c for c in node.named_children if c.type != "comment"]
        arms = [c for c in kept if condition is None or c.id != condition.id]
        cases = arms[0].named_children if is_switch and arms else arms
        before: Ages = frozenset()
        for arm in cases:
            before = self._run(path, arm, ages | before if is_switch else ages)
            ended |= before
        if is_switch:
            ended, path.left = ended | path.left | ages, around
        # a branch without another one may be passed by
        whole = len(arms) > 1 and node.type in ("if_statement", "conditional_expression")
        return ended if whole else ended | ages

    def _taken(self, path: _Path, node: Node) -> Node | None:
        """The arm of a constant branch that is run, the branch itself for none; None where that is not known."""
        condition = node.child_by_field_name("condition") if is_constant_branch(node) else None
        asked = condition.child_by_field_name("value") if condition is not None else None
        value = path.known.evaluate(path.function.text(asked)) if asked is not None else None
        if value is None:
            return None
        return node.child_by_field_name("consequence" if value else "alternative") or node

    def _called(self, path: _Path, node: Node, ages: Ages) -> Ages:
        place = (id(path.function.file), node.id)
        atom = self._atoms.get(place)
        if atom is not None:
            return frozenset([0]) if self._is_meant(path, path.function, atom.d) else ages
        event = self._events.get(place)
        if isinstance(event, Multiply):
            return frozenset([0]) if self._is_meant(path, path.function, event.d) else ages
        if event is not None:
            return _synchronized(path, event, ages)
        call = self.tiled.tensors.call(path.function, node)
        targets = self.tiled.program.targets(call) if call is not None else []
        active = [t for t in targets if id(t) in self.tiled.active and t.style is not Style.KERNEL]
        if call is None or not active:
            return ages
        found: Ages = frozenset() if len(active) == len(targets) else ages
        for target in active:
            known = self._with_arguments(path, call, target)
            found |= self._of(path, target, self._handed(path, call, target), ages, known)
        return found

    def _handed(self, path: _Path, call: Call, target: Function) -> frozenset[Key]:
        """The names that the accumulator has in a function that is called."""
        given = [p for p in target.params if p.index < len(call.args)]
        meant = [p for p in given if self._is_meant(path, call.caller, call.args[p.index])]
        handed = [(target.node.id, -1, p.name) for p in meant]
        return frozenset([*handed, *path.keys] if target.style is Style.LAMBDA else handed)

    def _with_arguments(self, path: _Path, call: Call, target: Function) -> Constants:
        """What names mean in a function that is called so."""
        known = self.tiled.program.constants_in(target)
        head = next(iter(template_heads(target.node)), None)
        for index, param in enumerate(template_params(head, target.file.text) if head is not None else ()):
            given = index < len(call.template_args)
            text = call.template_args[index] if given else param.default or ""
            value = (path.known if given else known).evaluate(text)
            known = known.extended({param.name: "" if value is None else str(value)})
        return known

    def _of(
        self, path: _Path, target: Function, keys: frozenset[Key], ages: Ages, known: Constants | None = None
    ) -> Ages:
        """The ages behind a function or lambda that is run."""
        if path.depth > _DEEPEST:
            return _UNKNOWN
        inner = _Path(target, keys, known or self.tiled.program.constants_in(target), path.depth + 1)
        behind = self._run(inner, target.body, ages)
        return behind | inner.returned


def _is_part(function: Function, node: Node) -> bool:
    """Whether an expression is more than a name: a slice by coordinates that are not all whole, or a distance."""
    if node.type == "parenthesized_expression" and node.named_children:
        return _is_part(function, node.named_children[0])
    arguments = node.child_by_field_name("arguments") if node.type == "call_expression" else None
    if arguments is not None:
        return not all(is_whole(function.text(a)) for a in arguments.named_children)
    return node.type != "identifier"


def _synchronized(path: _Path, event: Synchronization, ages: Ages) -> Ages:
    if isinstance(event.fact, Commit):
        return frozenset(None if a is None else min(a + 1, _OLDEST) for a in ages)
    if not isinstance(event.fact, Wait):
        return ages
    pending = path.known.evaluate(event.fact.pending)
    if pending is None:
        return ages | (_LANDED if any(a for a in ages) else frozenset())
    return frozenset(a if a is not None and a <= pending else None for a in ages)
