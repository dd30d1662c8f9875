# SPDX-License-Identifier: Apache-2.0
"""The constant that is the width of a kernel's tiles, and what each place that it is written at becomes with tiles of
twice the width: most follow, numbers of tiles are rounded up, and what is asked of the size of a product stays."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import enclosing, inside
from porter.lang.text import Edit, Span, as_bytes
from porter.model.constants import Constants, returned
from porter.model.program import Program
from porter.passes.native.counting import Counting, Mention
from porter.passes.native.host_places import HostPlaces

_PRINTS = re.compile(r"(?:std::)?(?:v?f?printf|v?sn?printf)|(?:std::)?format")
_AROUND = ("parenthesized_expression", "cast_expression")
CEILING = re.compile(r"\(?(\w+)\+(\w+)-1u?l*\)?/\2|\(?(\w+)\+\(?(\w+)-1u?l*\)*/\4")


class Widths(Counting):
    """Follows the width of a kernel's tiles. Templates of host code that are handed other numbers too are not followed:
    what they make of it, other facts have to show."""

    def _is_argument(self, mention: Mention) -> bool:
        for _, template, index in self.handed_to(mention):
            if any(not self._is_one_of(arguments, index) for _, arguments in self._uses(template)):
                return False
        return super()._is_argument(mention)

    def _is_one_of(self, arguments: list[Node], index: int) -> bool:
        given = (arguments[index].text or b"").decode() if index < len(arguments) else ""
        return self._is_word(given.rpartition("::")[2].strip())


class Judging:
    """What becomes of each mention in host code, as edits of the text; device code is judged on PTX. `width` is how
    wide tiles are, `size` what host code calls the columns of the product.

    Raises:
        Left: a place is not understood.
    """

    def __init__(
        self, program: Program, constants: Constants, widths: Widths, width: int, size: str, host: HostPlaces
    ) -> None:
        self.program, self.constants, self.widths, self.width = program, constants, widths, width
        self.size, self.host = size, host
        self.rounds = 0
        """How many numbers of tiles host code makes of it."""
        self.checks = False
        """Whether host code asks that the size of a product is a multiple of it."""
        self.floors = False
        """Whether some number of tiles is rounded down."""
        self.loops: list[Node] = []
        """Loops that end by it."""

    def edits(self, mention: Mention) -> Iterator[Edit]:
        """What becomes of a mention."""
        self._ends_loop(mention.node)
        if self.widths.is_of_device(mention):
            return
        node, above = _climb(mention.node)
        if above is None:
            raise self._left(mention)
        if above.type == "binary_expression":
            yield from self._in_expression(mention, node, above)
        elif above.type in ("argument_list", "template_argument_list", "type_descriptor", "initializer_list"):
            yield from self._argument(mention, above)
        elif not self._is_of_host(mention, node):
            raise self._left(mention)

    def _in_expression(self, mention: Mention, node: Node, above: Node) -> Iterator[Edit]:
        sign = mention.text(above.children[1])
        left, right = above.child_by_field_name("left"), above.child_by_field_name("right")
        is_right = right is not None and right.id == node.id
        if sign == "%" and is_right and not mention.word.derived and self.host.is_asked(mention.file, above):
            self.checks |= left is not None and mention.text(left) == self.size
            yield self._as_it_was(mention)
        elif sign == "/" and is_right and self.host.is_grid(mention.file, above):
            yield from self._count(mention, above)
        elif sign in ("+", "-") and self._is_rounding(mention, above):
            return
        elif not self._is_of_host(mention, above):
            raise self._left(mention)
        elif sign == "/" and not is_right:
            self._part(mention, right)
        elif sign != "*" and not (sign in ("+", "-") and self._is_summand(mention, above)):
            raise self._left(mention)

    def _count(self, mention: Mention, above: Node) -> Iterator[Edit]:
        """A number of tiles: half as many, the last of which may be half a tile."""
        if mention.word.derived:
            raise self._left(mention)
        self.rounds += 1
        text = "".join(mention.text(above).split())
        if CEILING.fullmatch(text.replace("::", "")):
            return
        if "+" in text or "-" in text:
            raise self._left(mention)
        self.floors = True
        left = above.child_by_field_name("left")
        assert left is not None
        name = mention.text(mention.node)
        whole = f"({mention.text(left)} / ({name} / 2) + 1) / 2"
        outer = above.parent
        bare = outer is not None and outer.type in ("argument_list", "init_declarator", "parenthesized_expression")
        span = Span(above.start_byte, above.end_byte)
        yield Edit(mention.file.path, span, as_bytes(whole if bare else f"({whole})"))

    def _part(self, mention: Mention, right: Node | None) -> None:
        """Parts of a tile are of the size that they were: there are twice as many."""
        size = self.constants.evaluate(mention.text(right)) if right is not None else None
        if size is None or size <= 0 or (not mention.word.derived and self.width % size):
            raise self._left(mention)

    def _is_rounding(self, mention: Mention, above: Node) -> bool:
        """Whether a sum is that by which a number of tiles is rounded up."""
        node: Node | None = above
        while node is not None and node.type in ("binary_expression", "parenthesized_expression"):
            text = "".join(mention.text(node).split()).replace("::", "")
            if CEILING.fullmatch(text):
                return self.host.is_grid(mention.file, node)
            node = node.parent
        return False

    def _is_summand(self, mention: Mention, above: Node) -> bool:
        """Whether a sum is a part of a product, such as that of the rows and columns of a stage with their depth."""
        outer = above.parent
        while outer is not None and (
            outer.type in _AROUND or (outer.type == "binary_expression" and mention.text(outer.children[1]) in "+-")
        ):
            outer = outer.parent
        return outer is not None and outer.type == "binary_expression" and mention.text(outer.children[1]) == "*"

    def _is_of_host(self, mention: Mention, node: Node) -> bool:
        """Whether host code makes shared memory of a launch, or a tensor map, of it."""
        return self.host.is_amount(mention.file, node) or self.host.is_encoded(mention.file, node)

    def _ends_loop(self, node: Node) -> None:
        """Note the loop that what is made of a width is the end of."""
        loop = enclosing(node, "for_statement")
        condition = loop.child_by_field_name("condition") if loop is not None else None
        if loop is not None and condition is not None and inside(condition, node):
            self.loops.append(loop)

    def _argument(self, mention: Mention, above: Node) -> Iterator[Edit]:
        call = enclosing(mention.node, "call_expression")
        called = call.child_by_field_name("function") if call is not None else None
        name = mention.text(called) if called is not None else ""
        if above.type == "argument_list" and _PRINTS.fullmatch(name):
            yield self._as_it_was(mention)
        elif call is not None and self._rounds_up(name, mention, above):
            if not self.host.is_grid(mention.file, call):
                raise self._left(mention)
            self.rounds += 1
        elif not self._is_of_host(mention, mention.node):
            raise self._left(mention)

    def _rounds_up(self, name: str, mention: Mention, above: Node) -> bool:
        """Whether a call divides what is handed first by the width, and rounds up."""
        for function in self.program.functions:
            if function.name != name.rpartition("::")[2]:
                continue
            known = returned(function)
            given = [c for c in above.named_children if c.type != "comment"]
            if known is None or len(known[0]) != 2 or len(given) != 2 or given[1].id != _climb(mention.node)[0].id:
                continue
            match = CEILING.fullmatch("".join(known[1].split()))
            if match is not None and (match[1] or match[3], match[2] or match[4]) == known[0]:
                return True
        return False

    def _as_it_was(self, mention: Mention) -> Edit:
        name = mention.text(mention.node)
        return Edit(mention.file.path, mention.span, as_bytes(f"({name} / 2)"))

    def _left(self, mention: Mention) -> Exception:
        return self.widths.unknown(mention, "the width of a tile")


def _climb(node: Node) -> tuple[Node, Node | None]:
    """A name with the parentheses and casts around it, and what that is in."""
    above = node.parent
    while above is not None and above.type in _AROUND:
        node, above = above, above.parent
    return node, above
