# SPDX-License-Identifier: Apache-2.0
"""Statements of host code run with names for its sizes: declarations, conditions, loops."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import suppress
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import array_extents, declared_name
from porter.model.scopes import PREPROCESSOR_BLOCKS
from porter.scan.draft import classes as cls
from porter.scan.draft import numbers as nums
from porter.scan.draft.branches import Branches
from porter.scan.draft.numbers import Num
from porter.scan.draft.objects import INTEGER, Objects, as_arguments
from porter.scan.draft.values import LaunchFacts, MapValue, Pointer, Scope

LONGEST_LOOP = 64
"""Passes of a loop whose condition stays known."""
MOST_STEPS = 20_000
"""Statements of a function and what it calls."""
FLOAT = ("float", "double")


_ASKED = re.compile(r"\barg[vc]\b|ato[ilf]|\bsto[iul]|strto|getenv|opt|parse|flag|\barg|input|config", re.IGNORECASE)
"""How a program asks its user for a number."""
_SIZE = re.compile(r"(\w+)\s*\.\s*size\(\s*(\d)\s*\)")


class Launched(Exception):
    """The launch that is looked for was come to."""

    def __init__(self, facts: LaunchFacts) -> None:
        super().__init__(facts.kernel.name)
        self.facts = facts


class Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class GaveUp(Exception):
    pass


class TooLong(Exception):
    """More statements than host code runs on its way to a launch."""


class Left(Exception):
    """`break` or `continue`."""


class Statements(Objects):
    """Runs statements. `conditions` hold of the sizes at the statement that is run; `parameters` are the sizes and
    memory that the outermost function is handed, or has of its own if it is `main`."""

    def __init__(self, classes: cls.Classes, branches: Branches) -> None:
        super().__init__(classes)
        self.branches = branches
        self.conditions: list[Num] = []
        self.parameters: list[tuple[str, Any]] = []
        self.steps = 0

    @abstractmethod
    def named(self, text: str, scope: Scope) -> Any: ...

    @abstractmethod
    def _triple(self, node: Node | None, scope: Scope) -> tuple[Num, ...] | None:
        """Three extents of what a `dim3` is made of."""

    def _body(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self.run(child, scope)

    def run(self, node: Node, scope: Scope) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooLong
        handler = getattr(self, f"_run_{node.type}", None)
        if handler is not None:
            handler(node, scope)
        elif node.type in PREPROCESSOR_BLOCKS:
            arm = self.branches.arm(node)
            for child in node.named_children if arm is None else arm:
                self.run(child, scope)
        elif node.type in ("else_clause", "case_statement"):
            self._body(node, scope)

    def _run_compound_statement(self, node: Node, scope: Scope) -> None:
        self._body(node, Scope(scope))

    def _run_try_statement(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self.run(body, scope)

    def _run_expression_statement(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self.value(child, scope)

    def _run_return_statement(self, node: Node, scope: Scope) -> None:
        inner = [c for c in node.named_children if c.type != "comment"]
        if inner and inner[0].type == "initializer_list":
            raise Return(self.value(inner[0], scope))
        raise Return(self.value(inner[0], scope) if inner else None)

    def _run_throw_statement(self, node: Node, scope: Scope) -> None:
        raise GaveUp

    def _run_break_statement(self, node: Node, scope: Scope) -> None:
        raise Left

    _run_continue_statement = _run_break_statement

    def _run_alias_declaration(self, node: Node, scope: Scope) -> None:
        name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
        if name is not None and kind is not None:
            scope.types[cls.text_of(name)] = self.resolve(cls.text_of(kind), scope)

    def _run_using_declaration(self, node: Node, scope: Scope) -> None:
        text = cls.text_of(node).removeprefix("using").strip(" ;")
        if "::" in text and not text.startswith("namespace"):
            scope.types[text.split("::")[-1].strip()] = text

    def _run_declaration(self, node: Node, scope: Scope) -> None:
        kind = node.child_by_field_name("type")
        text = self.resolve(cls.text_of(kind), scope) if kind is not None else ""
        for enumeration in find(node, "enumerator_list"):
            for item in find(enumeration, "enumerator"):
                name, value = item.child_by_field_name("name"), item.child_by_field_name("value")
                if name is not None and value is not None:
                    scope.names[cls.text_of(name)] = self.value(value, scope)
        for declarator in node.children_by_field_name("declarator"):
            name = declared_name(declarator)
            if name is not None:
                value = declarator.child_by_field_name("value") or node.child_by_field_name("value")
                if value is None and (value := as_arguments(declarator)) is not None:
                    declarator = name
                scope.names[cls.text_of(name)] = self._declared(cls.text_of(name), text, declarator, value, scope)

    def _size_of_tensor(self, name: str, value: Node, scope: Scope) -> Num | None:
        """A size of a tensor of PyTorch is named after the first variable that it is put into."""
        match = _SIZE.fullmatch(cls.text_of(value))
        tensor = self.named(match[1], scope) if match is not None else None
        if (
            match is None
            or not isinstance(tensor, Pointer)
            or int(match[2]) in (*tensor.asked, *range(len(tensor.extents)))
        ):
            return None
        return tensor.asked.setdefault(int(match[2]), nums.name(name))

    def _declared(self, name: str, kind: str, declarator: Node, value: Node | None, scope: Scope) -> Any:
        pointer = any(True for _ in find(declarator, "pointer_declarator"))
        end = value.start_byte if value is not None else declarator.end_byte
        extents = array_extents(declarator) or [n for n in find(declarator, "array_declarator") if n.end_byte <= end]
        if value is None and extents:
            return [MapValue(f"{name}{i}") for i in range(16)] if kind == "CUtensorMap" else [None] * 16
        if value is None and pointer:
            return MapValue(name) if kind == "CUtensorMap" else Pointer(name, kind)
        if kind == "CUtensorMap" and not pointer:
            found = self.value(value, scope) if value is not None else None
            if isinstance(found, MapValue):
                found.name = name if not extents else found.name
                return found
            return MapValue(name)
        if kind.split("::")[-1] == "dim3":
            return self._triple(value, scope) if value is not None else (nums.const(1),) * 3
        if value is None or (value.type == "initializer_list" and not extents and kind not in ("auto", "")):
            return self._constructed(kind, value, scope)
        if value.type == "argument_list":
            given = [self.value(c, scope) for c in value.named_children if c.type != "comment"]
            return given[0] if len(given) == 1 else self._constructed(kind, value, scope)
        found = self._size_of_tensor(name, value, scope) or self.value(value, scope)
        if isinstance(found, Num) and kind in FLOAT and isinstance(found.known, int):
            return nums.const(float(found.known))
        owner = scope.owner
        if owner is not None and owner.name == "main" and INTEGER.match(kind) and not extents:
            return self._size_of_main(name, found, value)
        return found

    def _size_of_main(self, name: str, found: Any, value: Node) -> Any:
        """A number of `main` is a size, of which the text may tell the default. One that is computed by what is not
        understood is none, and what counts a loop is none."""
        if isinstance(found, Num) and (found.names() or _counts_loop(value)):
            return found
        text = cls.text_of(value)
        if not isinstance(found, Num) and not _ASKED.search(text):
            return None
        plain = [int(t) for t in re.findall(r"\b\d+\b", text) if int(t) > 4]
        known = found.known if isinstance(found, Num) else None
        return self.sized(name, known if known is not None else plain[-1] if plain else None)

    def sized(self, name: str, default: Any) -> Num:
        """A size of `main`, with the value that it has there if nobody says another one."""
        self.parameters.append((name, nums.name(name)))
        if isinstance(default, int):
            self.conditions.append(Num("==", (nums.name(name), nums.const(default))))
        return nums.name(name)

    def _run_if_statement(self, node: Node, scope: Scope) -> None:
        condition = node.child_by_field_name("condition")
        inner = Scope(scope)
        found = self._condition(condition, inner)
        first, second = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        if isinstance(found, Num) and found.known is not None:
            arm = first if found.known else second
            if arm is not None:
                self.run(arm, inner)
            return
        self._either(found, first, second, inner)

    def _condition(self, node: Node | None, scope: Scope) -> Any:
        if node is None:
            return None
        for child in node.children_by_field_name("initializer"):
            self.run(child, scope)
        value = node.child_by_field_name("value") or node
        if value.type == "declaration":
            self._run_declaration(value, scope)
            return None
        return self.value(value, scope)

    def _either(self, condition: Any, first: Node | None, second: Node | None, scope: Scope) -> None:
        """Both arms of a condition that is not known."""
        known = condition if isinstance(condition, Num) else None
        before = {id(s): dict(s.names) for s in scope.levels()}
        conditions = len(self.conditions)
        if known is not None:
            self.conditions.append(known)
        gave_up, result = self._arm(first, scope)
        del self.conditions[conditions:]
        after = {id(s): dict(s.names) for s in scope.levels()}
        for s in scope.levels():
            s.names.update(before[id(s)])
        if known is not None and (gave_up or second is not None):
            self.conditions.append(nums.negated(known))
        if second is not None:
            gave_up_too, _ = self._arm(second, scope)
            if gave_up_too and not gave_up and known is not None:
                self.conditions[-1] = known
                for s in scope.levels():
                    s.names.update(after[id(s)])
                return
        if not gave_up:
            self._join(known, after, scope)
        elif isinstance(result, Num) and known is not None and scope.owner is not None:
            scope.names["return value"] = (known, result)

    def _arm(self, node: Node | None, scope: Scope) -> tuple[bool, Any]:
        if node is None:
            return False, None
        try:
            self.run(node, Scope(scope))
        except Return as result:
            return True, result.value
        except (GaveUp, Left):
            return True, None
        return False, None

    def _join(self, condition: Num | None, after: dict[int, dict[str, Any]], scope: Scope) -> None:
        for s in scope.levels():
            for name, value in after[id(s)].items():
                old = s.names.get(name)
                if value is old or value == old:
                    continue
                if isinstance(value, Num) and isinstance(old, Num):
                    s.names[name] = nums.apply("if", condition, value, old) if condition is not None else None
                elif old is None:
                    s.names[name] = value

    def _run_for_statement(self, node: Node, scope: Scope) -> None:
        inner = Scope(scope)
        start, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
        update, body = node.child_by_field_name("update"), node.child_by_field_name("body")
        if start is not None:
            (self.run if start.type == "declaration" else self.value)(start, inner)
        for _ in range(LONGEST_LOOP):
            found = self.value(condition, inner) if condition is not None else None
            if isinstance(found, Num) and found.known is not None and not found.known:
                return
            try:
                if body is not None:
                    self.run(body, inner)
            except Left:
                return
            if not isinstance(found, Num) or found.known is None:
                return
            if update is not None:
                self.value(update, inner)

    def _run_do_statement(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self._arm(body, scope)

    def _run_while_statement(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        self._condition(node.child_by_field_name("condition"), scope)
        if body is not None:
            self._arm(body, scope)

    def _run_switch_statement(self, node: Node, scope: Scope) -> None:
        subject = self._condition(node.child_by_field_name("condition"), scope)
        body = node.child_by_field_name("body")
        for case in body.named_children if body is not None else ():
            value = case.child_by_field_name("value")
            count = len(self.conditions)
            wanted = self.value(value, scope) if value is not None else None
            if isinstance(subject, Num) and isinstance(wanted, Num):
                self.conditions.append(nums.apply("==", subject, wanted))
            self._arm_of_case(case, scope)
            del self.conditions[count:]

    def _arm_of_case(self, case: Node, scope: Scope) -> None:
        with suppress(Left, Return, GaveUp):
            self._body(case, Scope(scope))


def _counts_loop(value: Node) -> bool:
    """Whether a variable that begins with a value is one of a `for`."""
    above = value.parent
    while above is not None and above.type in ("init_declarator", "declaration"):
        above = above.parent
    return above is not None and above.type == "for_statement"
