# SPDX-License-Identifier: Apache-2.0
"""What a kernel does beside storing its results, as far as it matters when these are stored a little later."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.affine import Affine, size_of
from porter.model.functions import Call, Function, Style
from porter.model.kernels import SHARED
from porter.model.pipeline.frames import first_value
from porter.model.program import Program
from porter.model.pure import is_pure, is_toolkit
from porter.model.registers import CASTS
from porter.model.scopes import Variable, declared_names, resolve
from porter.passes.native.sites import Left

_TELLS = re.compile(
    r"\b(?:__threadfence\w*|atomic\w+|cudaTriggerProgrammaticLaunchCompletion|fence\.(?:acq_rel|sc)\.(?:gpu|sys)|"
    r"(?:st|red|atom)\.(?:\w+\.)*(?:release|relaxed|acq_rel|global)|griddepcontrol\.launch\w*|volatile\s+(?:int|unsigned)|"
    r"cp\.async\.bulk\.(?:commit|wait)_group|bulk_group)\b"
)
"""What tells others that results are there, or waits for copies of the kernel's own."""
_NOT_QUIET = re.compile(r"__(?:sync\w*|threadfence\w*|st\w\w|nanosleep|trap|brkpt|barrier\w*|nv_\w+)|printf")
_ACTS_IN_TEXT = re.compile(r"\basm\b|;|(?<![=!<>])=(?!=)|\+\+|--|->|\batomic")
_RESTRICT = re.compile(r"\b(?:__restrict__|__restrict)\b")
_ACTS = ("assignment_expression", "update_expression", "gnu_asm_expression", "lambda_expression", "new_expression",
         "delete_expression", "statement_expression")  # fmt: skip
_DEEPEST = 4


@dataclass(eq=False)
class Effects:
    """Asks about one kernel."""

    program: Program
    function: Function
    _outputs: set[str] = field(default_factory=set)
    _pointers: dict[tuple[int, int, str], Variable] = field(default_factory=dict)
    _reads: dict[int, Node] = field(default_factory=dict)
    """Where expressions read memory, by id."""

    def _left(self, node: Node, what: str) -> Left:
        return Left(self.function, self.function.span(node), what)

    def alone(self) -> None:
        """That no other thread is told of results while the kernel runs.

        Raises:
            Left: one may be.
        """
        for function in self._reached():
            text = function.file.lexed.code[function.span(function.body).start : function.span(function.body).end]
            for statement in function.asm:
                if _TELLS.search(statement.template) is not None:
                    raise Left(function, function.span(statement.node), "that nobody waits for results in this kernel")
            if (match := _TELLS.search(text.decode("utf-8", "replace"))) is not None:
                what = f"that nobody waits for results in this kernel: `{match[0]}`"
                raise Left(function, function.span(function.body), what)

    def _reached(self) -> list[Function]:
        found, work = [self.function], [self.function]
        while work:
            for call in work.pop().calls:
                for target in self.program.targets(call):
                    if not any(target is f for f in found):
                        found.append(target)
                        work.append(target)
        return found

    # --- Pointers

    def is_handed(self, variable: Variable, probe: Affine, depth: int = 0) -> bool:
        """Whether a variable is a pointer that the kernel is handed, or is made of one."""
        kind = self.program.names.expressions.variable(variable)
        if variable.function is not self.function or not kind.is_pointer:
            return False
        if variable.param is not None:
            return True
        value = first_value(variable)
        if value is None or depth > _DEEPEST:
            return False
        return any(
            (v := resolve(self.function, n, self.function.text(n))) is not None
            and v.key != variable.key
            and self.is_handed(v, probe, depth + 1)
            for n in find(value, "identifier")
        )

    def only_stored(self, affine: Affine, lefts: list[Node]) -> set[int]:
        """The names in the text that stores come by: of one output, which nothing else reads or writes.

        Raises:
            Left: there are several.
        """
        roots = {self.function.text(n) for n in self._nodes(affine) if self._param(n) is not None}
        if len(roots) != 1:
            raise self._left(lefts[0], "one output that this loop stores to")
        self._outputs |= roots
        self._pointers |= affine.pointers
        return set(affine.roots)

    def _nodes(self, affine: Affine) -> list[Node]:
        return [n for n in find(self.function.body, "identifier", "call_expression") if n.id in affine.roots]

    def _param(self, node: Node) -> Variable | None:
        if node.type != "identifier":
            return None
        variable = resolve(self.function, node, self.function.text(node))
        return variable if variable is not None and variable.param is not None else None

    def nowhere_else(self, seen: set[int]) -> None:
        """
        Raises:
            Left: the output, or a pointer to it, is named elsewhere, or what is read may be what is stored.
        """
        for name in {*self._outputs, *(k[2] for k in self._pointers)}:
            for node in self.function.named(name):
                variable = resolve(self.function, node, name)
                if variable is None or (variable.param is None and variable.key not in self._pointers):
                    continue
                if variable.declarator is not None and _declares(variable.declarator, node):
                    continue
                if node.id not in seen and not self._in_macro(node, seen):
                    raise self._left(node, f"that nothing but these stores uses `{name}`")
        self._in_no_macro(seen)
        for name in self._outputs:
            param = self.function.param(name)
            if param is not None and param.node is not None and "volatile" in self.function.text(param.node):
                raise self._left(param.node, "an output that is not volatile")
        if not all(self._is_restricted(name) for name in self._outputs):
            for node in self._reads.values():
                if not self._is_apart(node):
                    what = "that this is not what is stored: neither it nor the output is declared __restrict__"
                    raise self._left(node, what)

    def _in_no_macro(self, seen: set[int]) -> None:
        """That no macro which names the output is used but for the place of a store."""
        names = {*self._outputs, *(k[2] for k in self._pointers)}
        macros = self.program.macros
        for macro in (m for m in macros.by_name if names & macros.words(m)):
            for node in self.function.named(macro):
                if not self._in_macro(node, seen):
                    raise self._left(node, f"that nothing but these stores uses what `{macro}` names")

    def _is_restricted(self, name: str) -> bool:
        param = self.function.param(name)
        text = self.function.text(param.node) if param is not None and param.node is not None else ""
        return _RESTRICT.search(text) is not None

    def _is_apart(self, node: Node, depth: int = 0) -> bool:
        """Whether memory that is read is the thread's own, shared memory, or that of a parameter that nothing else
        leads to."""
        root: Node | None = node
        while root is not None and root.type in ("subscript_expression", "pointer_expression", "field_expression",
                                                 "parenthesized_expression"):  # fmt: skip
            root = root.child_by_field_name("argument") or (root.named_children[0] if root.named_children else None)
        if root is None or root.type != "identifier" or depth > _DEEPEST:
            return False
        name = self.function.text(root)
        variable = resolve(self.function, root, name)
        if variable is None:
            return False
        if variable.param is not None:
            return self._is_restricted(name)
        kind = self.program.names.expressions.variable(variable)
        if variable.declaration is not None and SHARED in self.function.text(variable.declaration):
            return True
        value = first_value(variable)
        if kind.is_pointer or kind.reference or kind.is_unknown or variable.is_reference:
            return value is not None and self._is_apart(value, depth + 1)
        return kind.is_array or self._has_no_pointer(node)

    def _has_no_pointer(self, node: Node) -> bool:
        """Whether an expression of a local object leads nowhere else."""
        inner: Node | None = node
        while inner is not None and inner.type != "identifier":
            argument = inner.child_by_field_name("argument")
            if inner.type == "pointer_expression" or (
                argument is not None
                and inner.type == "subscript_expression"
                and not self.program.names.type_of(self.function, argument).is_array
            ):
                return False
            inner = argument or (inner.named_children[0] if inner.named_children else None)
        return inner is not None

    def _in_macro(self, node: Node, seen: set[int]) -> bool:
        above: Node | None = node
        while above is not None and above.id != self.function.body.id:
            if above.id in seen:
                return True
            above = above.parent
        return False

    # --- Expressions

    def quiet(self, node: Node, stored: bool = False) -> None:
        """That an expression, or a declaration, only computes; what it reads is kept for `nowhere_else`. `stored`: it
        is the place of a store, which nobody reads.

        Raises:
            Left: it does something.
        """
        for inner in walk(node):
            if inner.type in _ACTS:
                raise self._left(inner, "an expression that only computes")
            if inner.type == "call_expression":
                self._quiet_call(self.function, inner, 0)
            elif not stored and self._reads_memory(inner):
                self._reads[inner.id] = inner

    @staticmethod
    def _reads_memory(node: Node) -> bool:
        above = node.parent
        if above is not None and above.type == "pointer_expression" and above.children[0].type == "&":
            return False
        if node.type == "field_expression":
            return any(c.type == "->" for c in node.children)
        if node.type == "pointer_expression":
            return node.children[0].type == "*"
        return node.type == "subscript_expression"

    def _quiet_call(self, function: Function, node: Node, depth: int) -> None:
        callee = node.child_by_field_name("function")
        name = function.text(callee) if callee is not None else ""
        if callee is None or callee.type == "primitive_type" or name.split("<")[0].strip() in CASTS:
            return
        found = list(self.program.calls_by_node.get(node.id, ()))
        targets = [t for c in found for t in self.program.targets(c)]
        if name in self.program.macros.by_name:
            if self._is_quiet_macro(name):
                return
        elif targets:
            if depth < _DEEPEST and all(self._is_quiet(t, depth) for t in targets):
                return
        elif self._makes(function, callee) or (found and self._is_pure(found[0])):
            return
        raise Left(function, function.span(node), f"that `{name}` only computes")

    def _is_pure(self, call: Call) -> bool:
        return _NOT_QUIET.fullmatch(call.name) is None and is_pure(call.name) and is_toolkit(self.program, call)

    def _is_quiet_macro(self, name: str) -> bool:
        """Whether a macro's text is an expression that calls nothing but functions of the toolkit that only compute."""
        text = self.program.macros.text(name)
        if _ACTS_IN_TEXT.search(text) is not None:
            return False
        called = (m[1] for m in re.finditer(r"([A-Za-z_]\w*)\s*\(", text))
        return all(
            n in self.program.macros.by_name or n == "sizeof" or (is_pure(n) and _NOT_QUIET.fullmatch(n) is None)
            for n in called
        )

    def declares_values(self, node: Node) -> None:
        """That a declaration makes numbers, pointers or references: no constructor of the sources runs.

        Raises:
            Left: one may.
        """
        for declarator in node.children_by_field_name("declarator"):
            for name in declared_names(declarator):
                variable = Variable(self.function, self.function.text(name), declaration=node, declarator=declarator)
                kind = self.program.names.expressions.variable(variable)
                plain = kind.kind in ("arithmetic", "toolkit", "enum") or kind.is_pointer or variable.is_reference
                written = node.child_by_field_name("type")
                deduced = written is not None and written.type == "placeholder_type_specifier"
                if not plain and not deduced:
                    raise self._left(node, "a declaration of numbers or pointers")

    def _is_quiet(self, target: Function, depth: int) -> bool:
        """Whether a function does nothing but compute from its parameters, none of which is a pointer."""
        names = self.program.names
        if target.style is not Style.DEVICE or target.asm:
            return False
        kinds = [names.type_of_param(target, p) for p in target.params]
        if any(not k.is_plain or k.reference not in ("", "&") for k in kinds):
            return False
        for inner in walk(target.body):
            if inner.type in ("assignment_expression", "update_expression"):
                held = inner.child_by_field_name("left") or inner.child_by_field_name("argument")
                variable = resolve(target, held, target.text(held)) if held is not None else None
                if (
                    variable is None
                    or variable.is_reference
                    or (variable.param is not None and names.type_of_param(target, variable.param).reference)
                ):
                    return False
            elif inner.type in (*_ACTS, "pointer_expression"):
                return False
            elif inner.type == "call_expression":
                try:
                    self._quiet_call(target, inner, depth + 1)
                except Left:
                    return False
        return True

    def _makes(self, function: Function, callee: Node) -> bool:
        """Whether a call makes a value of a type of the language or the toolkit."""
        if callee.type not in ("identifier", "type_identifier"):
            return False
        site = self.program.names.lookup.site(function, callee)
        return size_of(self.program.names.declared.from_text(function.text(callee), site)) > 0


def _declares(declarator: Node, name: Node) -> bool:
    """Whether a name is the one that a declarator declares."""
    value = declarator.child_by_field_name("value")
    inside = declarator.start_byte <= name.start_byte < declarator.end_byte
    return inside and (value is None or name.start_byte < value.start_byte)
