# SPDX-License-Identifier: Apache-2.0
"""References that a draft proposes: for what looks like a matrix product, or like attention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from porter.scan.draft.tensors import Tensor

ATTENTION_FILE = '''\
"""The float64 reference of a draft case: softmax attention. A guess; check scale, mask and what is written."""

import numpy as np


def attention(inputs, sizes):
    """`inputs`: arrays in float64 by name; `sizes`: sizes and constants by name. Gives the outputs by name."""
    q, k, v = {query}, {key}, {value}
    scores = q @ np.swapaxes(k, -1, -2) * {scale}
    if {causal}:
        queries, keys = np.indices(scores.shape[-2:])
        scores = np.where(keys > queries, -np.inf, scores)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return {{{results}}}
'''


@dataclass
class Proposal:
    """What a case says of its results. `why` is empty where nothing is guessed."""

    reference: str | dict[str, str]
    reduction: str | int
    why: str
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    exact: bool = True
    magnitude: str | None = None
    families: tuple[str, ...] = ()
    steps: dict[str, int] = field(default_factory=dict)
    is_known: bool = True
    """False where it is nothing but a value to replace, and shapes are no better."""


def texts(tensor: Tensor) -> tuple[str, ...]:
    return tuple(map(str, tensor.shape))


@dataclass(frozen=True)
class Product:
    """C = A B over the size that both have: the free sizes of each, those of the batch first."""

    expression: str
    rows: str
    columns: str
    reduction: str
    batch: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[str, ...]:
        return (*self.batch, self.rows, self.columns)


def product(a: Tensor, b: Tensor) -> Product | None:
    """The matrix product of two tensors, None if their shapes are of none."""
    left, right = texts(a), texts(b)
    if len(left) != len(right) or len(left) < 2:
        return None
    batch, (p, q), (r, s) = left[:-2], left[-2:], right[-2:]
    if batch != right[:-2]:
        return None
    if q == s:
        found, rows, columns, k = (f"{a.name} @ {b.name}.T", p, r, q)
        if batch:
            found = f"{a.name} @ np.swapaxes({b.name}, -1, -2)"
    elif q == r:
        found, rows, columns, k = f"{a.name} @ {b.name}", p, s, q
    elif p == r:
        found, rows, columns, k = (f"{a.name}.T @ {b.name}", q, s, p) if not batch else ("", q, s, p)
    elif p == s:
        found, rows, columns, k = (f"{a.name}.T @ {b.name}.T", q, r, p) if not batch else ("", q, r, p)
    else:
        return None
    return Product(found, rows, columns, k, batch) if found else None


def looks_like_attention(inputs: list[Tensor], text: str) -> list[Tensor] | None:
    """Queries, keys and values, in this order."""
    found = []
    for letter, word in (("q", "quer"), ("k", "key"), ("v", "val")):
        pattern = re.compile(rf"(?:m|g|ptr_?|d_)?{letter}(?:_?ptr)?|{word}\w*", re.IGNORECASE)
        named = [t for t in inputs if pattern.fullmatch(t.name)]
        if len(named) != 1:
            return None
        found.append(named[0])
    return found if re.search(r"exp", text) else None


def attention(qkv: list[Tensor], outputs: list[Tensor], scale: str, causal: str, file: str) -> Proposal:
    """Softmax attention over the last two sizes of the tensors."""
    q, k, v = qkv
    main = next((o for o in outputs if len(o.shape) in (0, len(q.shape)) and o.dtype == v.dtype), outputs[0])
    shape = texts(q)
    rows = {main.name: shape}
    results = [f"{main.name!r}: weights / total @ v"]
    for other in outputs:
        if other is not main:
            rows[other.name] = shape[:-1]
            results.append(f"{other.name!r}: (largest + np.log(total))[..., 0]")
    given = {part: f'inputs["{t.name}"]' for part, t in (("query", q), ("key", k), ("value", v))}
    text = ATTENTION_FILE.format(
        **given, scale=f'sizes["{scale}"]' if scale.isidentifier() else scale, causal=causal, results=", ".join(results)
    )
    wide = f"2 * {scale} * np.max({q.name} @ np.swapaxes({k.name}, -1, -2), axis=-1{{}})"
    bounds = [f"'{main.name}': np.max({v.name}, axis=-2, keepdims=True) * (4096 + {wide.format(', keepdims=True')})"]
    bounds += [f"'{o.name}': 16 + {wide.format('')}" for o in outputs if o is not main]
    return Proposal(
        {"python": f"{file}:attention"}, shape[-1], "softmax attention over the last two sizes", rows, {file: text},
        False, "{" + ", ".join(bounds) + "}", ("normal",),
    )  # fmt: skip


@dataclass
class Linear:
    """Factors and terms by their names in NumPy, in the order of the parameters."""

    factors: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)

    def around(self, expression: str) -> str:
        if self.factors:
            expression = " * ".join([*self.factors, f"({expression})"])
        return " + ".join([expression, *self.terms])


@dataclass
class Epilogue:
    """What becomes of a product: what it is multiplied with and added to `first`, a function of the sum with `{}` for
    it, and what is done with that `then`."""

    first: Linear = field(default_factory=Linear)
    function: str = ""
    then: Linear = field(default_factory=Linear)

    def magnitude(self, expression: str) -> str:
        """What errors of the function are relative to, of positive inputs: functions that are as steep as 1 at most."""
        return self.then.around(f"({self.first.around(expression)})")

    def around(self, expression: str, is_whole: bool = True) -> str:
        """The expression of an output; `is_whole`: not of one that has the sum ahead of the function."""
        expression = self.first.around(expression)
        if not is_whole:
            return expression
        return self.then.around(self.function.format(expression) if self.function else expression)


class Takes(Protocol):
    """A function that sums go through."""

    def is_of(self, name: str) -> bool | None: ...


def epilogue(
    product: Product, inputs: Iterable[Tensor], in_kernel: Mapping[str, str], function: Takes | None
) -> Epilogue:
    """What inputs that are no operands do to a product. `in_kernel`: what the kernel calls them."""
    found = Epilogue()
    for t in inputs:
        # what is as large as the output is added to it, if nothing says that it goes into a function first
        is_first = function is None or function.is_of(in_kernel.get(t.name, t.name))
        side = found.first if is_first or (is_first is None and len(t.shape) == 1) else found.then
        # whether a vector is a factor, by its name on the host or in the kernel
        is_scale = "scale" in f"{t.name} {in_kernel.get(t.name, '')}".lower()
        if len(t.shape) == 1:
            by_row = str(t.shape[0]) == product.rows
            text = f"{t.name}[:, None]" if by_row else t.name
            (side.factors if is_scale else side.terms).append(text)
        elif product.batch and texts(t)[:-1] == product.batch:
            by_row = str(t.shape[-1]) == product.rows
            text = f"{t.name}[..., None]" if by_row else f"{t.name}[..., None, :]"
            (side.factors if is_scale else side.terms).append(text)
        elif texts(t) == product.shape and t.name not in product.expression:
            side.terms.append(t.name)
    return found
