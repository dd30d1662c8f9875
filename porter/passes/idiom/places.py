# SPDX-License-Identifier: Apache-2.0
"""Functions with MMAs: the kernel, or members and other functions that it calls, with their lambdas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.functions import Call, Function, Style, outermost
from porter.model.scopes import PREPROCESSOR_BLOCKS
from porter.model.tiled.accumulators import Multiply
from porter.passes.idiom.gemm_functions import GemmFunction, take_gemm_functions
from porter.passes.idiom.site import Site
from porter.passes.idiom.storage import Storage
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

_FILES = ("translation_unit", "declaration_list", "linkage_specification")


@dataclass(eq=False)
class Place:
    """A function that multiplies, itself or in its lambdas, and its name of what the port adds to shared memory."""

    site: Site
    function: Function
    multiplies: list[Multiply]
    front: str = ""
    handed: list[str] = field(default_factory=list)
    """Variables of the kernel that it is handed, by the names that they have in both."""
    others: list[Place] = field(default_factory=list)
    """Functions with MMAs that the kernel calls, where this is the kernel."""
    gemms: dict[int, GemmFunction] = field(default_factory=dict)
    """Functions that open batches and multiply, by the ids of their calls."""
    has_phases: bool = False
    """Whether phases of mbarriers are variables of the kernel."""

    @property
    def is_kernel(self) -> bool:
        return self.function is self.site.kernel

    @property
    def scopes(self) -> list[Function]:
        """The function and its lambdas, of those the ones that multiply themselves, innermost ones first."""
        found = {id(m.call.caller): m.call.caller for m in self.multiplies}
        return sorted(found.values(), key=lambda f: -f.body.start_byte)

    @property
    def calls(self) -> list[Call]:
        """How the kernel comes to it."""
        return [] if self.is_kernel else self.site.program.callers(self.function)

    def member(self, name: str) -> str:
        """A warpgroup's mbarrier."""
        own = f"[{self.site.name('warpgroup')}]" if self.site.groups > 1 else ""
        return f"{self.site.name(name)}{own}"

    @property
    def issues(self) -> str:
        """Whether a thread's warp issues MMAs."""
        return f"{self.warp} == {self.site.first_warp}" if self.site.groups == 1 else self.site.name("issues")

    @property
    def warp(self) -> str:
        """The index of a thread's warp; the kernel may have had one."""
        return self.site.name("warp" if self.is_kernel else "own_warp")

    @property
    def base(self) -> str:
        """The address of a warpgroup's Tensor Memory."""
        return f"{self.front}{self.site.name('tmem_base')}" if self.site.groups == 1 else self.site.name("tmem_own")

    def left(self, node: Node, what: str, function: Function | None = None) -> Left:
        return self.site.left(node, what, function or self.function)


def places_of(site: Site) -> list[Place]:
    """Where a kernel's MMAs stand.

    Raises:
        Left: the kernel does not call a function with MMAs itself, or not alone.
    """
    gemms, found = take_gemm_functions(site), dict[int, Place]()
    for multiply in site.multiplies:
        function = outermost(multiply.call.caller)
        place = found.setdefault(id(function), Place(site, function, [], gemms=gemms))
        place.multiplies.append(multiply)
    for place in found.values():
        if not place.is_kernel:
            _require_called(place)
        _require_known_lambdas(place)
        place.others = [p for p in found.values() if place.is_kernel and p is not place]
    return sorted(found.values(), key=lambda p: not p.is_kernel)


def _require_called(place: Place) -> None:
    site, function = place.site, place.function
    calls = place.calls
    if not calls or any(c.caller is not site.kernel for c in calls) or site.is_shared(function):
        raise place.left(function.body, f"MMAs that `{function.name}` issues for one kernel, which calls it")
    params = function.params_span
    variable = function.variadic or any(p.node is not None and p.node.child_by_field_name("default_value") is not None
                                        for p in function.params)  # fmt: skip
    if params is None or variable or site.program.declarations(function) or function.style is Style.MACRO:
        raise place.left(function.body, f"`{function.name}` with all its parameters where it is defined")


def _require_known_lambdas(place: Place) -> None:
    for scope in place.scopes:
        if scope is not place.function and not (scope.captures_all and site_calls(place, scope)):
            raise place.left(scope.body, "MMAs in a lambda that sees all around it, and is called by its name", scope)


def site_calls(place: Place, scope: Function) -> list[Call]:
    """Calls of a lambda with MMAs."""
    return place.site.program.callers(scope)


def hand_storage(places: list[Place], storage: Storage, rule: str) -> Storage:
    """Find the names of the kernel's shared memory in functions; what the port has of its own they are handed. Gives
    what the kernel still has to declare.

    Raises:
        Left: a function is not handed it, or its type cannot be declared in front of all.
    """
    called = [p for p in places if not p.is_kernel]
    for place in places:
        place.front = storage.front
    if storage.declaration is not None:
        for place in called:
            place.front = _handed(place, storage)
        return storage
    if not called:
        return storage
    site, name = called[0].site, storage.front.removesuffix(".")
    for place in called:
        hand(place, rule, {name: cpp("storage_by_reference", kind=storage.kind, name=name)})
    order = _order(site)
    users = [site.kernel, *(p.function for p in called)]
    first = min(users, key=lambda f: (order.index(f.file.path), f.node.start_byte))
    for user in users:
        if _namespaces(user)[: len(_namespaces(first))] != _namespaces(first):
            raise site.left(user.body, f"`{user.name}` in the namespace of `{first.name}`", user)
    site.draft.before(rule, first, _item(first), storage.struct + "\n", above_comments=True)
    return replace(storage, struct="")


def _order(site: Site) -> list[str]:
    """Files in the order in which the compiler comes to what stands behind their includes."""
    sources, found, seen = site.program.sources, list[str](), set[str]()

    def visit(path: str) -> None:
        seen.add(path)
        for include in sources.includes:
            if include.path == path and include.resolved is not None and include.resolved not in seen:
                visit(include.resolved)
        found.append(path)

    visit(sources.root)
    return found


def _handed(place: Place, storage: Storage) -> str:
    """How a function names the kernel's own shared memory."""
    named = re.fullmatch(r"(?P<name>\w+)(?P<mark>\.|->)", storage.front)
    fronts = {_front(place.function, call, **named.groupdict()) for call in place.calls} if named is not None else set()
    front = fronts.pop() if len(fronts) == 1 else ""
    if not front:
        raise place.left(place.function.body, f"the kernel's shared memory by a parameter of `{place.function.name}`")
    return front


def _item(function: Function) -> Node:
    """The function, or the class around it, as a file or a namespace has it."""
    current = function.node
    while current.parent is not None and current.parent.type not in (*_FILES, *PREPROCESSOR_BLOCKS):
        current = current.parent
    return current


def _namespaces(function: Function) -> list[str]:
    found, current = list[str](), function.node.parent
    while current is not None:
        name = current.child_by_field_name("name") if current.type == "namespace_definition" else None
        if name is not None:
            found.insert(0, function.text(name))
        current = current.parent
    return found


def _front(function: Function, call: Call, name: str, mark: str) -> str:
    """What members of the kernel's shared memory have in front of them in a function, by one of its calls."""
    for param, argument in zip(function.params, call.args, strict=False):
        text = re.sub(r"\s", "", call.caller.text(argument))
        declared = function.text(param.node) if param.node is not None else ""
        is_reference, is_pointer = "&" in declared, "*" in declared
        if is_reference and text == (name if mark == "." else f"*{name}"):
            return f"{param.name}."
        if is_pointer and text == (f"&{name}" if mark == "." else name):
            return f"{param.name}->"
    return ""


def hand(place: Place, rule: str, variables: Mapping[str, str]) -> None:
    """Hand variables of the kernel, each with its declaration as a parameter, to a function, behind what it is handed
    already."""
    function, span = place.function, place.function.params_span
    assert span is not None
    is_more = bool(function.params or place.handed)
    _append(place, rule, function, span, ", ".join(variables.values()), is_more)
    for call in place.calls:
        _append(place, rule, call.caller, call.args_span, ", ".join(variables), is_more)
    place.handed += variables


def _append(place: Place, rule: str, function: Function, span: Span, text: str, is_more: bool) -> None:
    end = span.end
    while function.file.source[end - 1 : end] in (b" ", b"\n", b"\t", b"\r") and end > span.start:
        end -= 1
    place.site.draft.insert(rule, function, end, f", {text}" if is_more else text)


def calls_in(place: Place, scope: Function) -> Iterator[Node]:
    """Calls in a scope by which other functions and lambdas with MMAs are run: what they do with registers is done
    there."""
    calls = [c for other in place.scopes if other is not scope for c in site_calls(place, other)]
    calls += [c for other in place.others for c in other.calls]
    yield from (c.node for c in calls if c.caller is scope)
