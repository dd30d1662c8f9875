# SPDX-License-Identifier: Apache-2.0
"""Layouts of a library whose last extent is the number of stages, and what is made of them: arrays of their size,
tensors, and threads' parts of these. Whoever asks for something that grows with the stages is found."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.model.functions import Function, declared_name
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.passes.native.counting import Counting, Mention
from porter.passes.native.mainloop import inside
from porter.passes.native.sites import Left

_NAMES = ("identifier", "type_identifier", "field_identifier")
_WHOLE = ("qualified_identifier", "dependent_type", "type_descriptor", "parenthesized_expression")
"""What a name stands in and is all of."""
_MADE = ("template_type", "template_function")
_SIZE = re.compile(r"(\w+)\s*<\s*(\d+)\s*>\s*\(\s*\Z")
_ALL = re.compile(r"(?:cute\s*::\s*)?(?:_|Underscore\s*\{\s*\})")
"""An index that stands for a whole extent."""
_MOST = 64
"""Names that are followed."""


class StagedLayouts:
    """What is known of these layouts in the sources of a kernel. `memory`: where tensors that have stages begin, each
    with the function that makes them."""

    def __init__(self, program: Program, counting: Counting) -> None:
        self.program, self.counting = program, counting
        self._are = program.vocabulary.spellings.are
        self.names: dict[str, int] = {}
        """Names of layouts and tensors, with the index of the extent that is the stages."""
        self.memory: list[tuple[Function, Node]] = []

    # --- Where they begin

    def begins(self, mention: Mention) -> bool:
        """Whether a mention of the number is the last extent of such a layout, which has a name."""
        file, node = mention.file, mention.node
        if mention.word.derived:
            return False
        above = self._above(node)
        if above is not None and above.type == "template_argument_list" and len(above.named_children) == 1:
            whole = above.parent
            if whole is None or not self._is("static_number", file, whole):
                return False
            node, above = self._object(whole)
        if above is None or not above.type.endswith("argument_list"):
            return False
        extents = [c for c in above.named_children if c.type != "comment"]
        shape = above.parent
        if shape is None or not inside(extents[-1], node) or not self._is("shape_of_extents", file, shape):
            return False
        node, above = self._object(shape)
        if above is None or above.type != "argument_list" or above.parent is None:
            return False
        given = [c for c in above.named_children if c.type != "comment"]
        if len(given) < 2 or not inside(given[1], node) or not self._is("layout_of_shape", file, above.parent):
            return False
        return self._named(file, above.parent, len(extents) - 1)

    def _object(self, node: Node) -> tuple[Node, Node | None]:
        """A type, or the object that is made of it where it stands, and what that is in."""
        above = self._above(node)
        if above is not None and above.type == "compound_literal_expression":
            return above, self._above(above)
        return node, above

    @staticmethod
    def _above(node: Node) -> Node | None:
        above = node.parent
        while above is not None and above.type in _WHOLE:
            above = above.parent
        return above

    def _is(self, spelling: str, file: CudaFile, node: Node) -> bool:
        """Whether a type or a call is of a name of the library."""
        name = node.child_by_field_name("name") or node.child_by_field_name("function")
        text = file.text(name) if name is not None else ""
        return self._are(spelling, re.split(r"::|\.|->", text)[-1].strip())

    def _named(self, file: CudaFile, node: Node, index: int) -> bool:
        """Whether what a node is gets a name."""
        above = self._above(node)
        while above is not None and above.type == "decltype":
            node, above = above, self._above(above)
        if above is None or above.type not in ("alias_declaration", "init_declarator"):
            return False
        name = above.child_by_field_name("name") or declared_name(above)
        if name is None or (above.type == "init_declarator" and above.child_by_field_name("value") is None):
            return False
        self._follow(file, name, file.text(name), index)
        return True

    def _follow(self, file: CudaFile, node: Node, name: str, index: int) -> None:
        if self.names.setdefault(name, index) != index or len(self.names) > _MOST:
            raise self.counting.left(file, node, f"which of several `{name}` is")

    # --- What is made of them

    def check(self) -> None:
        """
        Raises:
            Left: something else than is known is made of one.
        """
        done = 0
        while done < len(self.names):
            name, index = list(self.names.items())[done]
            for file in self.program.sources.files.values():
                for node in find(file.root, *_NAMES):
                    if file.text(node) == name and not self._is_declared(node):
                        self._use(file, node, index)
            done += 1

    @staticmethod
    def _is_declared(node: Node) -> bool:
        """Whether a name is declared where it stands."""
        if enclosing(node, "static_assert_declaration") is not None:
            return True
        inner, above = node, node.parent
        while above is not None and above.type.endswith("declarator"):
            declarator = above.child_by_field_name("declarator")
            of_reference = above.type == "reference_declarator"
            if not of_reference and (declarator is None or declarator.id != inner.id):
                return False
            inner, above = above, above.parent
        if above is None:
            return False
        if above.type in ("type_parameter_declaration", "optional_type_parameter_declaration"):
            return True
        if above.type == "alias_declaration":
            named = above.child_by_field_name("name")
            return named is not None and named.id == node.id
        return above.type.endswith("declaration") and any(
            d.id == inner.id for d in above.children_by_field_name("declarator")
        )

    def _use(self, file: CudaFile, node: Node, index: int) -> None:
        if self._asks_of_another(file, node, index):
            return
        above = self._above(node)
        while above is not None and above.type == "decltype":
            node, above = above, self._above(above)
        known = False
        if above is None:
            known = False
        elif above.type == "template_argument_list":
            known = self._is_argument_of_type(file, above, node, index)
        elif above.type in ("alias_declaration", "init_declarator"):
            known = self._named(file, node, index)
        elif above.type == "compound_literal_expression":
            known = self._is_argument(file, above, index)
        elif above.type == "call_expression":
            known = self._is_slice(file, above, node, index)
        elif above.type == "argument_list":
            known = self._is_argument(file, node, index)
        if not known:
            whole = above or node
            if whole.type.endswith("argument_list") and whole.parent is not None:
                whole = whole.parent
            text = " ".join(file.text(whole).split())[:60]
            raise self.counting.left(file, node, f"what `{text}` has to do with stages")

    def _asks_of_another(self, file: CudaFile, node: Node, index: int) -> bool:
        """Whether it is asked how large another extent is."""
        whole = node
        while whole.parent is not None and whole.parent.type in ("qualified_identifier", "dependent_type"):
            whole = whole.parent
        before = file.source[max(0, whole.start_byte - 80) : whole.start_byte].decode("utf-8", "replace")
        after = file.source[whole.end_byte : whole.end_byte + 8].decode("utf-8", "replace")
        found = _SIZE.search(before)
        asked = found is not None and self._are("asking_for_shape", found[1]) and int(found[2]) < index
        return asked and re.match(r"\s*(?:\{\s*\}\s*)?\)", after) is not None

    def _is_argument_of_type(self, file: CudaFile, listed: Node, node: Node, index: int) -> bool:
        """Whether it is how long an array in shared memory is, or an argument of a template of the sources, whose
        parameter is followed."""
        whole = listed.parent
        if whole is None:
            return False
        if self._is("size_of_layout", file, whole):
            return self._is_extent(file, whole)
        name = whole.child_by_field_name("name")
        at = next((i for i, c in enumerate(listed.named_children) if inside(c, node)), -1)
        found = False
        for other in self.program.sources.files.values():
            for template in find(other.root, "template_declaration"):
                params = _parameters(other, template)
                if name is not None and _declared(template) == name.text and 0 <= at < len(params):
                    self._follow(file, node, params[at], index)
                    found = True
        return found

    def _is_extent(self, file: CudaFile, node: Node) -> bool:
        above = self._above(node)
        while above is not None and above.type in ("template_argument_list", *_MADE):
            node, above = above, self._above(above)
        while above is not None and above.type.endswith("declarator"):
            size = above.child_by_field_name("size")
            if above.type == "array_declarator" and size is not None and not inside(size, node):
                return False
            above = above.parent
        if above is None:
            return False
        return above.type == "field_declaration" or (above.type == "declaration" and SHARED in file.text(above))

    def _is_slice(self, file: CudaFile, call: Node, node: Node, index: int) -> bool:
        """Whether one stage of a tensor is taken."""
        called, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if called is None or given is None or not inside(called, node):
            return False
        indices = [c for c in given.named_children if c.type != "comment"]
        return len(indices) == index + 1 and not _ALL.fullmatch(file.text(indices[-1]))

    def holds(self, file: CudaFile, node: Node) -> bool:
        """Whether an expression is one of these tensors, or a part of one."""
        first = next((n for n in (node, *find(node, "identifier")) if n.type == "identifier"), None)
        return first is not None and file.text(first) in self.names

    def is_stage(self, file: CudaFile, node: Node) -> bool:
        """Whether an expression says which stage of a tensor is taken."""
        listed = node.parent
        call = listed.parent if listed is not None and listed.type == "argument_list" else None
        called = call.child_by_field_name("function") if call is not None else None
        if listed is None or called is None or called.type != "identifier":
            return False
        index = self.names.get(file.text(called))
        given = [c for c in listed.named_children if c.type != "comment"]
        return index is not None and len(given) == index + 1 and given[-1].id == node.id

    def _is_argument(self, file: CudaFile, node: Node, index: int) -> bool:
        """Whether it is handed to a function whose result, or parameter, is followed."""
        listed = self._above(node)
        call = listed.parent if listed is not None and listed.type == "argument_list" else None
        if call is None or listed is None or call.type != "call_expression":
            return False
        given = [c for c in listed.named_children if c.type not in ("comment", "ERROR")]
        at = next((i for i, c in enumerate(given) if inside(c, node)), -1)
        calls = [c for c in self.program.calls_by_node.get(call.id, ()) if c.caller.file is file]
        targets = [t for c in calls for t in self.program.targets(c)]
        if targets:
            if any(at >= len(t.params) for t in targets):
                return False
            for target in targets:
                self._follow(file, node, target.params[at].name, index)
            return True
        if self._is("tensor_of_memory", file, call) and at == 1 and calls:
            self.memory.append((calls[0].caller, given[0]))
            return self._goes_on(file, call, index)
        if self._is("part_with_another_extent", file, call) and at == 0:
            return self._goes_on(file, call, index + 1)
        return self._is("fragment_of_part", file, call) and at == 0 and self._goes_on(file, call, index)

    def _goes_on(self, file: CudaFile, node: Node, index: int) -> bool:
        above = self._above(node)
        if above is not None and above.type == "argument_list":
            return self._is_argument(file, node, index)
        return self._named(file, node, index)


def _declared(template: Node) -> bytes | None:
    """The name of the class, or of the type, that a template declares."""
    for child in template.named_children:
        if child.type in ("struct_specifier", "class_specifier", "alias_declaration"):
            named = child.child_by_field_name("name")
            return named.text if named is not None else None
        if child.type in ("function_definition", "declaration"):
            return next((n.text for n in find(child, "function_declarator")
                         for n in find(n, "identifier", "field_identifier")), None)  # fmt: skip
    return None


def _parameters(file: CudaFile, template: Node) -> list[str]:
    """The names of the parameters of a template, types among them."""
    listed = template.child_by_field_name("parameters")
    found = []
    for parameter in listed.named_children if listed is not None else ():
        if parameter.type == "comment":
            continue
        named = parameter.child_by_field_name("name") or parameter.child_by_field_name("declarator")
        words = [n for n in parameter.named_children if n.type in _NAMES]
        node = named if named is not None else (words[-1] if words else None)
        found.append(file.text(node) if node is not None else "")
    return found


__all__ = ["Left", "StagedLayouts"]
