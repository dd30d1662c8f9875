# SPDX-License-Identifier: Apache-2.0
"""Texts of emitters: `$NAME` and `${NAME}` are captures of the rule, fields of the fact, and what passes bind."""

from __future__ import annotations

import re
from collections.abc import Mapping

from porter.model.facts import Commit, Fact, Fence, Mma, Tile, Wait

_WORD = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")

EMITTED: Mapping[type[Fact], frozenset[str]] = {
    Mma: frozenset({"tile", "state", "idesc", "accumulate", "kind", "operand_a", "indent"}),
    Fence: frozenset({"state"}),
    Commit: frozenset({"state"}),
    Wait: frozenset({"state"}),
    Tile: frozenset({"state", "value", "column"}),
}
"""Facts that texts are for, and what passes bind at them: the tile in Tensor Memory, the state of the warpgroup, the
instruction descriptor, whether D is added to, the kind of tcgen05.mma, and A: its descriptor or registers; of new
registers the value that they are declared with, and their first column in Tensor Memory."""


FACETS: Mapping[type[Fact], Mapping[str, str]] = {
    Mma: {
        "a_from": "`smem` or `registers`",
        "accumulate": "`always`, or `given` by an expression",
        "kind": "the kind of tcgen05.mma, `f16` say",
        "types": "those of D, A and B as in `f32.f16.f16`",
        "shape": "m64nNkK",
    },
}
"""What an emitter may ask of the instruction."""


class Unbound(Exception):
    """A text that needs what nothing binds. `name` is what, the text of the exception why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


def words_in(text: str) -> list[str]:
    """The names that a text mentions."""
    return [m[1] or m[2] for m in _WORD.finditer(text)]


def filled(text: str, bound: Mapping[str, str | None], reasons: Mapping[str, str] | None = None) -> str:
    """A text with what its names are bound to; `reasons` say why one is bound to None.

    Raises:
        Unbound: a name is bound to nothing.
    """

    def one(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        value = bound.get(name)
        if value is None:
            raise Unbound(name, (reasons or {}).get(name, "the model has none here"))
        return value

    return _WORD.sub(one, text)
