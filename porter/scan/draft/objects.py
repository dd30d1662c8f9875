# SPDX-License-Identifier: Apache-2.0
"""Objects that host code makes: of classes of the sources, member by member or by what a constructor says."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import declared_name
from porter.scan.draft import classes as cls
from porter.scan.draft import numbers as nums
from porter.scan.draft.types import Types
from porter.scan.draft.values import Record, Scope

INTEGER = re.compile(r"(?:std::)?(?:u?int(?:\d+_t)?|unsigned|long|short|size_t|cuuint(?:32|64)_t|uint|int|bool|char)$")
_PARAMETERS = ("parameter_declaration", "optional_parameter_declaration")


def items_of(node: Node | None) -> list[Node]:
    """What a list holds."""
    return [c for c in node.named_children if c.type != "comment"] if node is not None else []


def as_arguments(declarator: Node) -> Node | None:
    """The arguments of `dim3 grid(x, y)`, which reads like a function that takes an `x` and a `y`; None for what is no
    such object. Functions are not declared inside of host code."""
    if declarator.type != "function_declarator":
        return None
    params = declarator.child_by_field_name("parameters")
    whole = cls.expression(f"f{cls.text_of(params)}") if params is not None and items_of(params) else None
    return next((list_ for list_ in find(whole, "argument_list")), None) if whole is not None else None


def bind(function: Node, values: list[Any], scope: Scope, value: Any) -> None:
    """Give the parameters of a function their values; one that is left out is what its default says."""
    declarator = next(find(function, "function_declarator"), None)
    params = declarator.child_by_field_name("parameters") if declarator is not None else None
    for at, param in enumerate(c for c in items_of(params) if c.type in _PARAMETERS):
        name, default = declared_name(param), param.child_by_field_name("default_value")
        if name is not None and at < len(values):
            scope.names[cls.text_of(name)] = values[at]
        elif name is not None:
            scope.names[cls.text_of(name)] = value(default, scope) if default is not None else None


class Objects(Types):
    """Makes objects."""

    @abstractmethod
    def _enter(self, body: Node, scope: Scope) -> Any:
        """Run the statements of a function."""

    def _constructed(self, kind: str, value: Node | None, scope: Scope) -> Any:
        items = items_of(value)
        if len(items) == 1 and items[0].type != "initializer_pair" and INTEGER.match(kind):
            return self.value(items[0], scope)
        template = self.classes.find(cls.template_id(kind)[0])
        record = Record(kind)
        names = [f[0] for f in cls.fields(template)] if template is not None else []
        if kind.split("::")[-1] == "cudaLaunchConfig_t":
            names = ["gridDim", "blockDim", "dynamicSmemBytes", "stream", "attrs", "numAttrs"]
        record.items.update(dict.fromkeys(names))
        if "dynamicSmemBytes" in names:
            record.items["dynamicSmemBytes"] = nums.const(0)
        if template is not None and cls.constructors(template):
            self._by_constructor(template, record, [self.value(i, scope) for i in items])
            return record
        for name, item in zip(names, items, strict=False):
            if item.type != "initializer_pair":
                record.items[name] = self.value(item, scope)
        for item in items:
            inner = item.child_by_field_name("value")
            if item.type == "initializer_pair" and inner is not None:
                field = item.child_by_field_name("designator")
                record.items[cls.text_of(field).lstrip(".") if field is not None else ""] = self.value(inner, scope)
        return record if items or names or not INTEGER.match(kind) else None

    def _by_constructor(self, template: cls.Template, record: Record, values: list[Any]) -> None:
        """Members as the one constructor that takes these arguments makes them; not known where several may."""
        fitting = [c for c in cls.constructors(template) if cls.takes(c, len(values))]
        if len(values) == 1 and isinstance(values[0], Record) and values[0].kind == record.kind:
            record.items.update(values[0].items)
            return
        if len(fitting) != 1:
            return
        scope = Scope(names=record.items)
        inner = Scope(Scope(scope, {"this": record}))
        bind(fitting[0], values, inner, self.value)
        for name, given in cls.initializers(fitting[0]):
            found = [self.value(i, inner) for i in items_of(given)]
            if name in record.items:
                record.items[name] = found[0] if len(found) == 1 else None
        body = fitting[0].child_by_field_name("body")
        if body is not None:
            self._enter(body, inner)
