# SPDX-License-Identifier: Apache-2.0
"""Which values all lanes have alike that hold elements of one row of a sum, lanes 4q to 4q + 3 of a warp; and which all
threads have alike."""

from __future__ import annotations

import re
from itertools import pairwise

from tree_sitter import Node

from porter.lang.cuda import above, find
from porter.model.functions import Function
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS, resolve
from porter.model.settings import settings_of
from porter.model.thread_values import ThreadValues
from porter.model.threads import Threads
from porter.ptx.wgmma import QUAD

_BRANCHES = ("if_statement", "switch_statement", "conditional_expression", *LOOPS)
_JUMPS = ("break_statement", "continue_statement", "return_statement", "goto_statement")
_ACTS = ("lambda_expression", "update_expression", "assignment_expression", "gnu_asm_expression", "new_expression")
_NAMES = ("type_identifier", "template_type", "primitive_type", "field_identifier", "type_descriptor",
          "sized_type_specifier", "comment")  # fmt: skip
_OF_LANES = re.compile(
    r"__(?:shfl|ballot|match|reduce|activemask|any|all|syncthreads_|syncwarp|nanosleep|popc_lane)\w*|clock\w*|atomic\w+"
)
"""Functions that give lanes other values though they are handed the same, or at other times."""


class Quads:
    """Asks about the kernel `function`, and threads `who` of blocks of `threads`: about `group` of them at a time, as
    many as have a row if nothing else is said."""

    def __init__(
        self, program: Program, function: Function, threads: int, who: frozenset[int], group: int = QUAD
    ) -> None:  # fmt: skip
        self.program, self.function, self.group = program, function, group
        self._differ = Threads(program)
        self._values, self._who = ThreadValues(program, threads), sorted(who)
        self._asked: set[tuple[int, int, str]] = set()

    def alike(self, node: Node) -> bool:
        """Whether the lanes of a row have one value of an expression. What memory holds at one place is one value."""
        if any(True for _ in find(node, *_ACTS)):
            return False
        if node.type == "identifier":
            return self._named(node)
        if self._is_number(node):
            return True
        if self._differ.tells(self.function, node):
            return False
        if node.type == "call_expression":
            arguments = node.child_by_field_name("arguments")
            return self._is_function(node) and arguments is not None and self._all(arguments)
        return self._all(node)

    def _all(self, node: Node) -> bool:
        return all(self.alike(c) for c in node.named_children if c.type not in _NAMES)

    def _is_number(self, node: Node) -> bool:
        """Whether the thread's index and constants alone decide a value, which is the same in the lanes of a row."""
        values = self._values.of(self.function, node)
        mine = [values[t] for t in self._who] if values is not None else [None]
        return None not in mine and all(v == mine[at // self.group * self.group] for at, v in enumerate(mine))

    def _is_function(self, node: Node) -> bool:
        """Whether a call gives all who hand it the same the same."""
        callee = node.child_by_field_name("function")
        name = self.function.text(callee) if callee is not None else ""
        if name.split("<")[0].strip() in CASTS or (callee is not None and callee.type == "primitive_type"):
            return True
        calls = self.program.calls_by_node.get(node.id, ())
        known = not any(self._differ.call_differs(c) for c in calls)
        return bool(calls) and known and name not in self.program.macros.by_name and not _OF_LANES.fullmatch(name)

    def _named(self, node: Node) -> bool:
        function, name = self.function, self.function.text(node)
        variable = resolve(function, node, name)
        if variable is None:
            return not self._differ.differ(function, node)
        if variable.ambiguous or variable.function is not function:
            return False
        settings = list(settings_of(self.program, variable))
        if variable.param is not None:
            return not settings
        if variable.declaration is not None and SHARED in function.text(variable.declaration):
            return not settings
        if self._is_number(node):
            return True
        if variable.key in self._asked:
            # of itself: it is as the others of its values are
            return True
        self._asked.add(variable.key)
        try:
            return bool(settings) and all(
                s.sign and (s.value is None or self.alike(s.value)) and self._comes_alike(s.node) for s in settings
            )
        finally:
            self._asked.discard(variable.key)

    def _comes_alike(self, node: Node) -> bool:
        """Whether the lanes of a row come to a place together, as often."""
        loops = [n for n in above(node, self.function.body) if n.type in LOOPS]
        return self._chosen_alike(node, self.function.body) and all(
            self._chosen_alike(jump, loop) for loop in loops for jump in find(loop, *_JUMPS)
        )

    def _chosen_alike(self, node: Node, top: Node) -> bool:
        """Whether the lanes of a row answer the conditions around a node alike, up to that of `top`: whole warps do, or
        what they ask for is the same."""
        branches = ((i, o) for i, o in pairwise([node, *above(node, top), top]) if o.type in _BRANCHES)
        conditions = ((inner, outer.child_by_field_name("condition")) for inner, outer in branches)
        return all(c is None or c.id == i.id or self._is_number(c) or self.alike(c) for i, c in conditions)
