# SPDX-License-Identifier: Apache-2.0
"""A function of the file that gets the tiled MMA to know which elements of C a thread has: the port hands it the copy
out of Tensor Memory, which says the same of its registers."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.memory import thread_indices
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.text import Draft, Left, Text, assigned, found_in, method
from porter.passes.idiom_dsl.words import Words

RULE = "PTR586"


@dataclass(frozen=True)
class Handed:
    """`argument` of a call, which `function` has as a `parameter`; `slices`: calls that take a thread's part of it, and
    what the function calls them; `parts`: those that partition C so."""

    argument: cst.Arg
    function: cst.FunctionDef
    parameter: cst.Param
    slices: tuple[cst.Call, ...]
    slice_names: tuple[str, ...]
    parts: tuple[cst.Call, ...]

    def require_thread(self, text: Text, thread: str, indices: AbstractSet[str]) -> None:
        """Raises Left: a slice is not that of `thread` of the kernel, where `indices` name a thread's in its block."""
        own = thread_indices(text, self.function)
        first = m.Subscript(m.Call(), [m.SubscriptElement(m.Index(m.Integer("0")))])
        for call in self.slices:
            value = call.args[0].value
            asked = m.matches(value, first) and text.is_a(
                cst.ensure_type(cst.ensure_type(value, cst.Subscript).value, cst.Call).func, *OBSERVED["thread_index"]
            )
            if thread not in indices or not (asked or text.code(value) in own):
                raise Left("a function that stores sums of another thread than multiplies them", call)

    def edit(self, draft: Draft, words: Words) -> None:
        """The same of both kernels that call the function."""
        draft.replace(RULE, self.argument.value, words["load"])
        noted = self.parameter.annotation
        if noted is not None and draft.text.is_a(noted.annotation, KNOWN["tiled_mma"]):
            draft.replace(RULE, noted.annotation, f"{words['cute']}.{KNOWN['tiled_copy']}")
        becomes = {self.parameter.name.value: words["load"], **dict.fromkeys(self.slice_names, words["thread"])}
        for node in found_in(self.function, cst.Name):
            if node.value in becomes:
                draft.replace(RULE, node, becomes[node.value])
        for call in self.parts:
            draft.replace(RULE, cst.ensure_type(call.func, cst.Attribute).attr, "partition_D")


def handed(text: Text, call: cst.Call, given: cst.Arg) -> Handed:
    """Raises Left: what a call does with the tiled MMA is not followed."""
    why = "a copy that is laid out as the MMA, beside its registers"
    functions = [
        f for f in text.module.body if isinstance(f, cst.FunctionDef) and m.matches(call.func, m.Name(f.name.value))
    ]
    if len(functions) != 1:
        raise Left(why, call)
    function, plain = functions[0], list(functions[0].params.params)
    index = list(call.args).index(given)
    if given.keyword is not None or index >= len(plain) or any(a.star or a.keyword for a in call.args[: index + 1]):
        raise Left(why, call)
    name = plain[index].name.value
    slices = [c for c in found_in(function, cst.Call) if method(c, "get_slice") == name and len(c.args) == 1]
    named = set[str]()
    for one in slices:
        bound = assigned(text.statement(one))
        if bound is None or bound[1] is not one:
            raise Left(why, one)
        named.add(bound[0])
    parts = [c for c in found_in(function, cst.Call) if method(c, "partition_C") in named and len(c.args) == 1]
    known = {id(plain[index].name), *(id(cst.ensure_type(c.func, cst.Attribute).value) for c in (*slices, *parts))}
    known |= {id(t.target) for t in found_in(function, cst.AssignTarget)}
    other = [n for n in found_in(function, cst.Name) if n.value in {name, *named} and id(n) not in known]
    bound_again = [t for t in found_in(function, cst.AssignTarget) if m.matches(t.target, m.Name(name))]
    if not parts or other or bound_again or len(named) != 1:
        raise Left(why, other[0] if other else call)
    return Handed(given, function, plain[index], tuple(slices), tuple(named), tuple(parts))
