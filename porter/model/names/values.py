# SPDX-License-Identifier: Apache-2.0
"""What names of constants and of constant functions mean at a place, as C++ looks them up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from porter.model.constants import Constants, Meant, returned
from porter.model.functions import Component, FunctionSymbol, Path, Scope
from porter.model.names.lookup import Found, Known, Lookup, Site


class Values:
    """Constants of the scopes of one index."""

    def __init__(self, lookup: Lookup, macros: Mapping[str, str | None]) -> None:
        self._lookup = lookup
        self._macros = macros
        self._scopes: dict[int, Constants] = {}

    def at(self, site: Site) -> Constants:
        """What names mean at a place, apart from what the function around it declares."""
        return Constants({}, self._macros, partial(self._meant, site))

    def within(self, scope: Scope) -> Constants:
        """What they mean in a namespace, class or enumeration."""
        return self._scopes.setdefault(id(scope), self.at(Site(scope)))

    def _meant(self, site: Site, name: str) -> Meant | None:
        path = Path(tuple(Component(step) for step in name.split("::") if step), name.startswith("::"))
        if not path.steps:
            return None
        last = path.steps[-1].name
        if len(path.steps) == 1 and not path.rooted:
            # a template parameter hides what is outside
            return None if last in self._lookup.template_names(site) else self._one([self._plain(site, last)])
        prefix = Path(path.steps[:-1], path.rooted or len(path.steps) == 1)
        scopes, known = self._lookup.scopes(prefix, site)
        if known is Known.YES and scopes:
            return self._one([self._member(scope, last) for scope in scopes])
        return self._enumerator(site, prefix, last)

    def _plain(self, site: Site, name: str) -> Found:
        if name in site.scope.values and site.scope.is_enumeration:
            return Found(constants=[(text, site.scope) for text in site.scope.values[name]])
        return self._lookup.unqualified(site, name)

    def _member(self, scope: Scope, name: str) -> Found:
        return self._lookup.own(scope, name) or (
            Found() if scope.is_class else self._lookup.member_of_namespace(scope, name)
        )

    def _enumerator(self, site: Site, path: Path, name: str) -> Meant | None:
        """A member of an enumeration that a path names."""
        outer = Path(path.steps[:-1], path.rooted)
        around = list(site.scope.above())
        if outer.steps or outer.rooted:
            around = self._lookup.scopes(outer, site)[0]
        for scope in around:
            found = scope.enumerations.get(path.steps[-1].name)
            if found is not None:
                return self._one([Found(constants=[(text, found) for text in found.values.get(name, ())])])
        return None

    def _one(self, every: list[Found]) -> Meant | None:
        """What all of these agree on."""
        texts = {(text, id(scope)): scope for found in every for text, scope in found.constants}
        functions: list[FunctionSymbol] = []
        for found in every:
            functions += [f for f in found.functions if f not in functions]
            if not (found.constants or found.functions) or found.classes or found.outside:
                return None
        if len(texts) == 1 and not functions:
            (text, _), scope = next(iter(texts.items()))
            return Meant(text, self.within(scope))
        if len(functions) != 1 or texts or functions[0].is_template:
            return None
        function = functions[0].function
        found_text = returned(function) if functions[0].defined else None
        return Meant(found_text[1], self.within(functions[0].scope), found_text[0]) if found_text else None
