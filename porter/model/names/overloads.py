# SPDX-License-Identifier: Apache-2.0
"""Which functions of a set a call may reach: viable ones, and the best of them where the types tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.constants import Constants
from porter.model.functions import ClassScope, Function, FunctionSymbol, Param, TemplateParam
from porter.model.names.conversions import MAYBE, Conversion, Conversions, Deduced, Rank
from porter.model.names.declared import Declared, adjusted
from porter.model.names.lookup import Lookup, Site, same_argument
from porter.model.names.types import UNKNOWN, Type, builtin

PACK = "parameter_pack_expansion"


@dataclass(eq=False)
class Candidate:
    """A function that takes a call's arguments."""

    symbol: FunctionSymbol
    conversions: list[Conversion]
    wanted: list[Type]
    deduced: Deduced
    sure: bool = True
    """Whether nothing that is not evaluated can take it out."""
    kept: list[FunctionSymbol] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return self.sure and all(c.sure and c.rank is Rank.EXACT and not c.added_const for c in self.conversions)


class Overloads:
    def __init__(self, lookup: Lookup, declared: Declared) -> None:
        self.lookup = lookup
        self.declared = declared
        self.conversions = Conversions(lookup)
        self._wanted: dict[tuple[int, int], Type] = {}
        self._signatures: dict[int, tuple[object, ...]] = {}

    def select(
        self,
        symbols: Sequence[FunctionSymbol],
        types: Sequence[Type],
        args: Sequence[Node],
        template_args: tuple[str, ...] | None,
        site: Site,
        apart: bool = False,
    ) -> list[FunctionSymbol]:
        """Those of `symbols` that the call may reach. `types` are the arguments' types, `template_args` the explicit
        template arguments, None for a call without a template list. With `apart`, functions of different scopes do
        not compete: the call is of one of the scopes, but it is not known of which."""
        if apart:
            scopes: dict[int, list[FunctionSymbol]] = {}
            for symbol in symbols:
                scopes.setdefault(id(symbol.scope), []).append(symbol)
            chosen = [self.select(own, types, args, template_args, site) for own in scopes.values()]
            return [s for own in chosen for s in own]
        expanded = any(a.type == PACK for a in args)
        candidates = []
        for symbol in symbols:
            candidate = self.viable(symbol, types, expanded, template_args, site)
            if candidate is not None:
                candidates.append(candidate)
        best = [c for c in candidates if not any(o is not c and self._better(o, c) for o in candidates)]
        return self._specialized([c.symbol for c in best], candidates, template_args, site)

    # --- viability

    def viable(
        self,
        symbol: FunctionSymbol,
        types: Sequence[Type],
        expanded: bool,
        template_args: tuple[str, ...] | None,
        site: Site,
    ) -> Candidate | None:
        """The symbol as a candidate; None if it surely takes no such call."""
        function = symbol.function
        pack = function.params and _is_pack(function.params[-1])
        required = sum(1 for p in function.params if not (has_default(p) or _is_pack(p)))
        if len(types) > len(function.params) and not (pack or symbol.variadic):
            return None
        if len(types) < required and not expanded:
            return None
        if template_args is not None and not symbol.is_template and symbol.special is None:
            return None
        names = frozenset(p.name for p in symbol.params if p.name)
        outer = self._class_names(symbol)
        deduced = Deduced(names, known=self.lookup.constants_in(site.function))
        explicit = template_args is not None and symbol.special is None
        if explicit and not self._bind(symbol.params, template_args or (), deduced, site):
            return None
        conversions, wanted = [], []
        for index, given in enumerate(types):
            if expanded:
                conversions.append(MAYBE)
                wanted.append(UNKNOWN)
                continue
            if index >= len(function.params):
                conversions.append(Conversion(Rank.ELLIPSIS) if not pack else Conversion(Rank.EXACT))
                wanted.append(UNKNOWN)
                continue
            param = function.params[index]
            want = self.wanted(function, param)
            if want.kind == "class" and want.args and set(re.findall(r"\w+", " ".join(want.args))) & outer:
                want = replace(want, args=None)
            conversion = Conversion(Rank.EXACT) if _is_pack(param) else self._convert(given, want, deduced, outer)
            if conversion is None:
                return None
            conversions.append(conversion)
            wanted.append(want)
        if not self._all_deduced(symbol, template_args, expanded):
            return None
        guarded = symbol.constrained or any(p.dependent for p in symbol.params)
        if guarded and self._ruled_out(symbol, deduced):
            return None
        return Candidate(symbol, conversions, wanted, deduced, not guarded)

    def _convert(self, given: Type, want: Type, deduced: Deduced, outer: frozenset[str]) -> Conversion | None:
        if want.kind == "param" and want.name in outer and want.name not in deduced.names:
            return MAYBE
        return self.conversions.convert(given, want, deduced)

    def wanted(self, function: Function, param: Param) -> Type:
        """The declared type of a parameter."""
        key = (id(function), param.index)
        if key not in self._wanted:
            found = UNKNOWN
            if param.node is not None:
                declarator = param.node.child_by_field_name("declarator")
                site = self.lookup.site(function, param.node)
                found = adjusted(self.declared.declaration(param.node, declarator, site, function.text))
            self._wanted[key] = found
        return self._wanted[key]

    def _class_names(self, symbol: FunctionSymbol) -> frozenset[str]:
        """Template parameters of the classes around a member."""
        scopes = (s for s in symbol.scope.above() if isinstance(s, ClassScope))
        return frozenset(p.name for s in scopes for p in s.params)

    def _bind(self, params: tuple[TemplateParam, ...], given: tuple[str, ...], deduced: Deduced, site: Site) -> bool:
        """Bind explicit template arguments; False if they cannot be for these parameters."""
        if len(given) > len(params) and not any(p.pack for p in params):
            return False
        for param, text in zip(params, given, strict=False):
            if param.pack or "..." in text:
                break
            value = deduced.known.evaluate(text)
            kind = self._argument_kind(text, value, site)
            if kind is not None and param.kind != "template" and kind != param.kind:
                return False
            if param.kind == "value":
                deduced.values[param.name] = value if value is not None else text
            elif param.kind == "type":
                found = self.declared.from_text(text, site)
                deduced.types[param.name] = found if found.kind != "param" else UNKNOWN
        return True

    def _argument_kind(self, text: str, value: int | None, site: Site) -> str | None:
        """Whether a template argument is a type or a value; None if its text does not tell."""
        if value is not None or re.fullmatch(r"[-+!~(\d].*|true|false", text):
            return "value"
        if (
            builtin(text) is not None
            or text.startswith(("const ", "typename ", "struct "))
            or text.endswith(("*", "&"))
        ):
            return "type"
        if re.fullmatch(r"\w+", text):
            found = self.lookup.unqualified(site, text)
            if found.classes and not found.value and not found.functions:
                return "type"
        return None

    def _all_deduced(self, symbol: FunctionSymbol, template_args: tuple[str, ...] | None, expanded: bool) -> bool:
        """Whether every template parameter is given, deducible, or has a default."""
        if not symbol.params or expanded or symbol.special is not None:
            return True
        given = len(template_args or ())
        declared = " ".join(
            p.node.text.decode("utf-8", "replace") if p.node is not None and p.node.text else ""
            for p in symbol.function.params
        )
        words = set(re.findall(r"\w+", declared))
        return all(p.pack or p.default is not None or not p.name or p.name in words for p in symbol.params[given:])

    def _ruled_out(self, symbol: FunctionSymbol, deduced: Deduced) -> bool:
        """Whether a condition of `enable_if` or `requires` is known not to hold."""
        function = symbol.function
        head = function.node
        while head.parent is not None and head.parent.type == "template_declaration":
            head = head.parent
        end = function.body.start_byte if symbol.defined else function.node.end_byte
        text = function.file.source[head.start_byte : end].decode("utf-8", "replace")
        for match in re.finditer(r"enable_if(?:_t)?\s*<", text):
            condition = _first_argument(text[match.end() :])
            if deduced.evaluate(condition) == 0:
                return True
        required = re.search(r"\brequires\s*(\()", text)
        if required is not None:
            condition = _first_argument(text[required.end() :], inside=1)
            rest = text[required.end() + len(condition) + 1 :].lstrip()
            return not rest.startswith(("||", "&&")) and deduced.evaluate(condition) == 0
        return False

    # --- the best

    def _better(self, one: Candidate, other: Candidate) -> bool:
        """Whether `one` is chosen over `other` for sure."""
        if one.symbol.function is other.symbol.function:
            return False
        first, second = one.symbol, other.symbol
        if first.special is not None or second.special is not None:
            return False
        if self._redeclares(first, second):
            return False
        if one.exact and not first.is_template and not (other.exact and not second.is_template):
            return True
        if not one.sure:
            return False
        better = False
        for have, against, want, wanted in zip(
            one.conversions, other.conversions, one.wanted, other.wanted, strict=True
        ):
            if want == wanted and not want.is_unknown and want.kind != "param":
                continue
            if not have.sure:
                return False
            if not against.sure:
                # what is open is at least as good as an exact match only where it is one
                if have.rank is Rank.EXACT and not have.added_const and against.rank > have.rank:
                    better = True
                    continue
                return False
            if (have.rank, have.added_const) > (against.rank, against.added_const):
                return False
            better = better or (have.rank, have.added_const) < (against.rank, against.added_const)
        if better:
            return True
        equal = all(
            (a.rank, a.added_const) == (b.rank, b.added_const)
            for a, b in zip(one.conversions, other.conversions, strict=True)
        )
        if not equal:
            return False
        if first.is_template != second.is_template:
            return second.is_template and all(c.sure for c in other.conversions)
        if first.is_template and all(c.sure for c in [*one.conversions, *other.conversions]):
            return self._more_special(one, other)
        return False

    def _more_special(self, one: Candidate, other: Candidate) -> bool:
        """Partial ordering of templates, by how much each parameter's form says."""
        pairs = [
            (_special(a, one.symbol), _special(b, other.symbol)) for a, b in zip(one.wanted, other.wanted, strict=True)
        ]
        if any(a < b for a, b in pairs):
            return False
        return any(a > b for a, b in pairs)

    def _redeclares(self, one: FunctionSymbol, other: FunctionSymbol) -> bool:
        """Whether two symbols are declarations of one function, as far as the texts tell."""
        if one.scope is not other.scope or len(one.function.params) != len(other.function.params):
            return False
        if len(one.params) != len(other.params) or one.is_template != other.is_template:
            return False
        return self.signature(one) == self.signature(other)

    def signature(self, symbol: FunctionSymbol) -> tuple[object, ...]:
        """The types of the parameters, with template parameters numbered."""
        known = self._signatures.get(id(symbol))
        if known is None:
            known = self._signatures[id(symbol)] = self._signature(symbol)
        return known

    def _signature(self, symbol: FunctionSymbol) -> tuple[object, ...]:
        numbers = {p.name: f"#{i}" for i, p in enumerate(symbol.params) if p.name}

        def renamed(text: str) -> str:
            return re.sub(r"[A-Za-z_]\w*", lambda m: numbers.get(m[0], m[0]), text)

        shown: list[object] = []
        for param in symbol.function.params:
            found = self.wanted(symbol.function, param)
            if found.is_unknown:
                # in an unknown type the text is all there is
                text = symbol.function.file.text(param.span).split("=")[0]
                words = re.findall(r"\w+|[^\w\s]", renamed(text))
                shown.append(" ".join(w for w in words if w != param.name))
                continue
            extents = tuple(renamed(e) if isinstance(e, str) else e for e in found.extents)
            args = tuple(renamed(a) for a in found.args) if found.args is not None else None
            name = renamed(found.name) if found.kind == "param" else found.name
            const = found.const and bool(found.reference or found.pointers)
            shown.append(replace(found, extents=extents, args=args, name=name, classes=(), const=const))
        return tuple(shown)

    # --- specializations

    def _specialized(
        self,
        best: list[FunctionSymbol],
        candidates: list[Candidate],
        template_args: tuple[str, ...] | None,
        site: Site,
    ) -> list[FunctionSymbol]:
        """Explicit specializations of a chosen template take its place, where the arguments say so."""
        special = [c for c in candidates if c.symbol.special is not None]
        primary = [s for s in best if s.special is None]
        if not special:
            return primary
        if not any(s.is_template for s in primary):
            # without the primary template in sight every specialization may be meant
            return primary or [c.symbol for c in special]
        constants = self.lookup.constants_in(site.function)
        templates = [c for c in candidates if c.symbol in primary and c.symbol.is_template]
        maybe: list[FunctionSymbol] = []
        for candidate in special:
            match = self._is_for(candidate, templates, template_args, constants)
            if match is True:
                return [candidate.symbol]
            if match is None:
                maybe.append(candidate.symbol)
        return primary + maybe

    def _is_for(
        self, special: Candidate, templates: list[Candidate], given: tuple[str, ...] | None, constants: Constants
    ) -> bool | None:
        wanted = special.symbol.special or ()
        result: bool | None = None
        for template in templates:
            bound = self._arguments(template, given)
            if not wanted:
                # `template <> void f(float)`: the parameters tell
                result = True if special.exact else None
                continue
            same = [
                same_argument(want, have, constants) if have is not None else None
                for want, have in zip(wanted, bound, strict=False)
            ]
            if False in same:
                result = False if result is None else result
                continue
            if all(same) and same:
                return True
            return None
        return result

    def _arguments(self, template: Candidate, given: tuple[str, ...] | None) -> list[str | None]:
        """Template arguments of a call, explicit, deduced or by default; None where one is not known."""
        found: list[str | None] = []
        for index, param in enumerate(template.symbol.params):
            value = template.deduced.values.get(param.name)
            if given is not None and index < len(given):
                found.append(given[index])
            elif value is not None:
                found.append(str(value))
            else:
                found.append(param.default if param.default and param.name not in template.deduced.types else None)
        return found


def has_default(param: Param) -> bool:
    return param.node is not None and param.node.child_by_field_name("default_value") is not None


def _is_pack(param: Param) -> bool:
    return param.node is not None and (
        param.node.type.startswith("variadic") or any(n.type == "variadic_declarator" for n in walk(param.node))
    )


def _special(wanted: Type, symbol: FunctionSymbol) -> int:
    """How much a parameter's form says: a template parameter alone says nothing."""
    names = {p.name for p in symbol.params}
    if wanted.kind == "param":
        score = 0 if wanted.is_plain else 2 if wanted.extents else 1
        score += sum(1 for e in wanted.extents if isinstance(e, int))
        return score + (1 if wanted.const and not wanted.is_plain else 0)
    if wanted.is_unknown:
        return 0
    words = {w for a in (wanted.args or ()) for w in re.findall(r"\w+", a)}
    words |= {w for e in wanted.extents if isinstance(e, str) for w in re.findall(r"\w+", e)}
    return 10 - (4 if words & names else 0)


def _first_argument(text: str, inside: int = 0) -> str:
    """The text up to the comma or bracket that ends a template argument, or with `inside` what stands in brackets:
    there `<` is a comparison."""
    depth, brackets = 0, inside
    for index, character in enumerate(text):
        if character in "<>" and brackets:
            # a comparison
            continue
        if character in "([{<":
            depth += 1
            brackets += character != "<"
        elif character in ")]}>":
            if depth == 0:
                return text[:index]
            depth -= 1
            brackets -= character != ">"
        elif character == "," and depth == 0:
            return text[:index]
    return text
