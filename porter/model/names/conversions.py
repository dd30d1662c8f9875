# SPDX-License-Identifier: Apache-2.0
"""How an argument converts to a parameter, with template parameters deduced: [over.best.ics], [temp.deduct.call]."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import IntEnum

from porter.model.constants import Constants
from porter.model.functions import ClassScope
from porter.model.names.lookup import Lookup, same_argument
from porter.model.names.types import FLOATS, INTEGERS, Type


class Rank(IntEnum):
    """Better is smaller."""

    EXACT = 0
    PROMOTION = 1
    CONVERSION = 2
    USER = 3
    ELLIPSIS = 4


@dataclass(frozen=True)
class Conversion:
    """`sure` is false where the types leave open whether, or how well, the argument converts."""

    rank: Rank
    sure: bool = True
    added_const: bool = False
    """Whether a reference or pointer to const is bound to something that is not const."""


MAYBE = Conversion(Rank.EXACT, False)
_EXACT = Conversion(Rank.EXACT)


@dataclass
class Deduced:
    """What template parameters are for one call: `values` as texts or numbers, `types` as types."""

    names: frozenset[str]
    values: dict[str, int | str] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    known: Constants = field(default_factory=Constants)

    def evaluate(self, text: str) -> int | None:
        """The number that an expression over the parameters gives, if it is known."""
        words = set(re.findall(r"[A-Za-z_]\w*", text)) & self.names
        if any(not isinstance(self.values.get(w), int) for w in words):
            return None
        bound = {w: str(self.values[w]) for w in words}
        return (self.known.extended(bound) if bound else self.known).evaluate(text)


class Conversions:
    """Decides whether arguments convert. None means that they surely do not."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup

    def convert(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        """The conversion of an expression of type `given` to a parameter of type `wanted`."""
        if wanted.is_unknown or given.is_unknown or given.kind == "param":
            return MAYBE
        if wanted.kind == "param":
            return self._to_template_param(given, wanted, deduced)
        if wanted.reference == "&" and not given.lvalue and not wanted.const and wanted.kind != "name":
            return None
        if wanted.reference == "&&" and given.lvalue and given.kind == wanted.kind and not given.is_array:
            same = self._same(given, wanted, deduced)
            return MAYBE if same is None else None if same else self._by_value(given, wanted, deduced)
        if wanted.reference:
            return self._to_reference(given, wanted, deduced)
        return self._by_value(given, wanted, deduced)

    # --- template parameters of the callee

    def _to_template_param(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        """`T`, `T&`, `T*`, `T (&)[N]`: `T` is deduced."""
        if wanted.name in deduced.types and wanted.is_plain:
            fixed = replace(
                deduced.types[wanted.name], reference=wanted.reference or deduced.types[wanted.name].reference
            )
            if fixed.kind == "unknown":
                return MAYBE
            return self.convert(given, replace(fixed, const=fixed.const or wanted.const), deduced)
        if wanted.name not in deduced.names:
            return MAYBE
        if wanted.is_array or wanted.to_array:
            own = given if wanted.reference else given.decayed()
            if not own.extents or len(own.extents) < len(wanted.extents):
                return None if own.kind not in ("name", "null") else MAYBE
            head = own.extents[: len(wanted.extents)]
            return _EXACT if self._extents(head, wanted.extents, deduced) else None
        if wanted.reference == "&" and not given.lvalue and not wanted.const:
            return None
        if wanted.is_pointer and not wanted.reference:
            own = given.decayed()
            if own.kind == "name" and own.is_plain:
                return MAYBE
            return _EXACT if own.pointers >= wanted.pointers else None
        if wanted.is_pointer:
            return _EXACT if given.pointers >= wanted.pointers else None if given.kind != "name" else MAYBE
        return Conversion(Rank.EXACT, True, bool(wanted.reference) and wanted.const and not given.const)

    def _extents(self, given: tuple[int | str, ...], wanted: tuple[int | str, ...], deduced: Deduced) -> bool:
        """Whether extents agree, or may; a lone template parameter is deduced."""
        for have, want in zip(given, wanted, strict=True):
            if isinstance(want, str):
                value = deduced.evaluate(want)
                if value is not None:
                    want = value
                elif want in deduced.names and want not in deduced.values and have != "?":
                    deduced.values[want] = have
                    continue
            if isinstance(have, int) and isinstance(want, int) and have != want:
                return False
        return True

    def _sure(self, given: tuple[int | str, ...], wanted: tuple[int | str, ...], deduced: Deduced) -> bool:
        for have, want in zip(given, wanted, strict=True):
            if isinstance(want, str):
                value = deduced.evaluate(want)
                want = value if value is not None else deduced.values.get(want, want)
            if have != want or have == "?":
                return False
        return True

    # --- references

    def _to_reference(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        same = self._same(given, wanted, deduced)
        if same is False:
            if not wanted.const and wanted.reference == "&":
                derived = self._derived(given, wanted)
                if derived is None and given.kind == "class" and given.is_plain and self._may_convert(given):
                    # a conversion function may give a reference
                    return MAYBE_USER
                return derived
            return self._by_value(given, wanted, deduced)
        if not wanted.const and given.const and wanted.kind == given.kind and wanted.kind != "name":
            return None
        return Conversion(Rank.EXACT, same is True, wanted.const and not given.const)

    def _same(self, given: Type, wanted: Type, deduced: Deduced) -> bool | None:
        """Whether two types are the same but for const on the outside; None if that is open."""
        if given.kind == "null" or (given.to_array, given.pointers) != (wanted.to_array, wanted.pointers):
            return None if "name" in (given.kind, wanted.kind) else False
        if len(given.extents) != len(wanted.extents):
            return None if "name" in (given.kind, wanted.kind) else False
        if not self._extents(given.extents, wanted.extents, deduced):
            return False
        base = self._same_base(given, wanted, deduced)
        if base is True and given.pointers and given.const and not wanted.const:
            return False
        return base if base is not True or self._sure(given.extents, wanted.extents, deduced) else None

    def _same_base(self, given: Type, wanted: Type, deduced: Deduced) -> bool | None:
        if wanted.kind == "param" or given.kind == "param" or "unknown" in (given.kind, wanted.kind):
            return None
        if given.kind == wanted.kind == "class":
            if given.name != wanted.name:
                return False
            return self._same_args(given, wanted, deduced)
        if given.kind == wanted.kind:
            return True if given.name == wanted.name else None if given.kind == "name" else False
        if "name" in (given.kind, wanted.kind):
            return None
        return False

    def _same_args(self, given: Type, wanted: Type, deduced: Deduced) -> bool | None:
        """Whether two classes of one template have the same arguments; parameters of the callee are deduced."""
        one, other = given.args, wanted.args
        if one is None and other is None:
            return True if not any(c.params for c in given.classes) else None
        if one is None or other is None or len(one) != len(other):
            return None
        result: bool | None = True
        for have, want in zip(one, other, strict=True):
            want = want.strip()
            if want in deduced.names:
                value = deduced.known.evaluate(have)
                known = deduced.values.get(want)
                if known is None and want not in deduced.types:
                    deduced.values[want] = value if value is not None else have
                elif isinstance(known, int) and value is not None and known != value:
                    return False
                continue
            evaluated = deduced.evaluate(want)
            same = same_argument(have, str(evaluated) if evaluated is not None else want, deduced.known)
            if same is False:
                return False
            if same is None:
                result = None
        return result

    # --- by value

    def _by_value(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        if wanted.kind == "class" and wanted.is_plain:
            return self._to_class(given, wanted, deduced)
        if given.kind == "class" and given.is_plain:
            return MAYBE_USER if self._may_convert(given) else None
        if "name" in (given.kind, wanted.kind):
            return self._to_name(given, wanted, deduced)
        own = given.decayed()
        if own.is_unknown:
            return MAYBE
        if wanted.is_pointer:
            return self._to_pointer(own, wanted, deduced)
        if own.is_pointer or own.kind == "null":
            return Conversion(Rank.CONVERSION) if wanted.name == "bool" and own.is_pointer else None
        if wanted.kind == "toolkit" or own.kind == "toolkit":
            if own.kind == wanted.kind and own.name == wanted.name:
                return _EXACT
            scalar = {"half", "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2"}
            kinds = {own.name if own.kind == "toolkit" else "", wanted.name if wanted.kind == "toolkit" else ""} - {""}
            return MAYBE_USER if kinds & scalar or "dim3" in kinds else None
        if own.kind == wanted.kind == "arithmetic":
            return Conversion(_numeric(own.name, wanted.name))
        return None

    def _to_name(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        """At least one of the types is a name that the sources do not define: a class, a number, a pointer."""
        if given.kind == wanted.kind and given.name == wanted.name:
            return self._shape(given.decayed(), wanted, deduced)
        if wanted.is_pointer and given.kind in ("arithmetic", "toolkit", "null") and given.is_plain:
            return MAYBE if given.args == ("0",) or given.kind == "null" else None
        return MAYBE

    def _shape(self, own: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        if (own.pointers, own.to_array, len(own.extents)) != (wanted.pointers, wanted.to_array, len(wanted.extents)):
            return MAYBE if own.is_plain else None
        return _EXACT if self._extents(own.extents, wanted.extents, deduced) else None

    def _to_pointer(self, own: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        if own.kind == "null" or (own.args == ("0",) and own.kind == "arithmetic" and own.is_plain):
            return Conversion(Rank.CONVERSION)
        if not own.is_pointer:
            return None
        if own.const and not wanted.const:
            return None
        if wanted.kind == "void" and wanted.pointers == 1:
            return Conversion(
                Rank.CONVERSION if own.kind != "void" else Rank.EXACT, True, wanted.const and not own.const
            )
        if (own.pointers, own.to_array, len(own.extents)) != (wanted.pointers, wanted.to_array, len(wanted.extents)):
            return None
        if not self._extents(own.extents, wanted.extents, deduced):
            return None
        base = self._same_base(own, wanted, deduced)
        if base is False:
            derived = self._derived(replace(own, pointers=0), replace(wanted, pointers=0))
            return derived
        return Conversion(Rank.EXACT, base is True, wanted.const and not own.const)

    # --- classes

    def _to_class(self, given: Type, wanted: Type, deduced: Deduced) -> Conversion | None:
        if given.kind == "class" and given.is_plain:
            same = self._same(given, wanted, deduced)
            if same is not False:
                return Conversion(Rank.EXACT, same is True)
            derived = self._derived(given, wanted)
            if derived is not None:
                return derived
            if self._may_convert(given):
                return MAYBE_USER
        if given.kind in ("name", "unknown"):
            return MAYBE
        return MAYBE_USER if any(self._constructs(c) for c in wanted.classes) else None

    def _derived(self, given: Type, wanted: Type) -> Conversion | None:
        if given.kind != "class" or wanted.kind != "class" or not (given.is_plain and wanted.is_plain):
            return None
        for one in given.classes:
            if any(self.lookup.derives(one, other) for other in wanted.classes):
                return Conversion(Rank.CONVERSION, len(given.classes) == 1 and wanted.args is None)
            if not self.lookup.bases_known(one):
                return Conversion(Rank.CONVERSION, False)
        return None

    def _may_convert(self, given: Type) -> bool:
        """Whether a class has, or may have, conversion functions."""
        return any(self._converts(c, 0) for c in given.classes)

    def _converts(self, scope: ClassScope, depth: int) -> bool:
        if scope.node is None or scope.converts or not self.lookup.bases_known(scope):
            return True
        return depth < 8 and any(self._converts(b, depth + 1) for b, _ in self.lookup.bases(scope))

    def _constructs(self, scope: ClassScope) -> bool:
        """Whether a class may be made of one argument of another type."""
        if scope.node is None:
            return True
        named = scope.functions.get(scope.name, ())
        return (
            any(s.function.params or s.variadic for s in named)
            or any(p.steps and p.steps[-1].name == scope.name for paths in scope.declared.values() for p in paths)
            or bool(scope.bases and scope.declared)
        )


MAYBE_USER = Conversion(Rank.USER, False)


def _numeric(own: str, wanted: str) -> Rank:
    if own == wanted:
        return Rank.EXACT
    if wanted == "int" and INTEGERS.get(own, 9) < INTEGERS["int"]:
        return Rank.PROMOTION
    if (own, wanted) == ("float", "double"):
        return Rank.PROMOTION
    if own in FLOATS or own in INTEGERS:
        return Rank.CONVERSION
    return Rank.CONVERSION
