# SPDX-License-Identifier: Apache-2.0
"""The NumPy that a reference expression may use: every function by its name, each with what a call of it makes.

A cost function gets the arguments of a call and gives (elements of the largest array that comes out, elementary steps),
so that a call that would take too much memory or time is refused before it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Cost = Callable[..., tuple[int, int]]

STEPS = 16
"""What an element of an elementwise operation costs, in steps: nanoseconds of a slow core, with strided operands and
memory that is touched for the first time."""
GATHER_STEPS = 50
"""What an element costs that an array of indices picks."""
_FUNCTION_STEPS = 100
_REMAINDER_STEPS = 4000
"""Of a division that takes the quotient's bits one by one, as many as the exponents of float64 are apart."""
_SORT_STEPS = 320
_SHORT_ROW_STEPS = 100
"""What an element costs where each row goes through several functions and may have two elements."""
_SOFT = 10
"""How much longer arithmetic of float16 takes, which processors convert, subnormal values in a trap."""


def size(value: Any) -> int:
    """Elements of a value, those of its items together."""
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, tuple | list):
        return sum(map(size, value))
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    return 1


def elementwise(*args: Any, **_: Any) -> tuple[int, int]:
    """Of one element for each of the arguments, broadcast together."""
    made = math.prod(np.broadcast_shapes(*(np.shape(a) for a in args)))
    return made, made * STEPS * _softness(args)


def _softness(values: Any) -> int:
    """The factor for arithmetic with the types of arrays, however they are nested in lists."""
    if isinstance(values, tuple | list):
        return max(map(_softness, values), default=1)
    return _SOFT if getattr(values, "dtype", None) == np.float16 else 1


def transcendental(*args: Any, **_: Any) -> tuple[int, int]:
    """The same by a function of its own."""
    made, _steps = elementwise(*args)
    return made, made * _FUNCTION_STEPS


def _remainder(*args: Any, **_: Any) -> tuple[int, int]:
    """The same by a division whose remainder is exact."""
    made, _steps = elementwise(*args)
    whole = all(np.asarray(a).dtype.kind in "biu" for a in args)
    return made, made * (_FUNCTION_STEPS if whole else _REMAINDER_STEPS)


def _through(*args: Any, **kwargs: Any) -> tuple[int, int]:
    """Of at most as many elements as go in."""
    read = size(args) + size(list(kwargs.values()))
    return read, read * STEPS * _softness(args)


def _by_rows(*args: Any, **kwargs: Any) -> tuple[int, int]:
    """The same in several functions, one after the other."""
    read, _steps = _through(*args, **kwargs)
    return read, read * _SHORT_ROW_STEPS


def _sorted(a: Any, *_: Any, **__: Any) -> tuple[int, int]:
    return size(a), size(a) * _SORT_STEPS


def _shaped(shape: Any, *_: Any, **__: Any) -> tuple[int, int]:
    """Of the shape that is asked for."""
    made = math.prod(_extents(shape))
    return made, made * STEPS


def _extents(shape: Any) -> list[int]:
    return [int(n) for n in np.atleast_1d(np.asarray(shape)).reshape(-1)[:64]]


def _shaped_second(_: Any, shape: Any, *__: Any, **___: Any) -> tuple[int, int]:
    return _shaped(shape)


def _range(start: Any, stop: Any = None, step: Any = 1, **_: Any) -> tuple[int, int]:
    low, high = (0, start) if stop is None else (start, stop)
    made = max(0, math.ceil((float(high) - float(low)) / float(step)))
    return made, made * STEPS


def _linspace(_: Any, __: Any, num: Any = 50, **___: Any) -> tuple[int, int]:
    return int(num), int(num) * STEPS


def _square(n: Any, m: Any = None, *_: Any, **__: Any) -> tuple[int, int]:
    made = int(n) * int(n if m is None else m)
    return made, made * STEPS


def _diagonal(v: Any, k: Any = 0, **_: Any) -> tuple[int, int]:
    made = (size(v) + abs(int(k))) ** 2 if np.ndim(v) == 1 else size(v)
    return made, made * STEPS


def _repeated(a: Any, repeats: Any, axis: Any = None) -> tuple[int, int]:
    length = size(a) if axis is None else np.shape(a)[axis]
    counts = np.asarray(repeats)
    times = int(counts) * length if counts.size == 1 else int(counts.sum())
    made = times * (size(a) // max(length, 1))
    return made, made * STEPS


def _tiled(a: Any, reps: Any) -> tuple[int, int]:
    made = size(a) * math.prod(_extents(reps))
    return made, made * STEPS


def _padded(a: Any, pad_width: Any, **_: Any) -> tuple[int, int]:
    widths = np.broadcast_to(np.asarray(pad_width), (np.ndim(a), 2)).tolist()
    made = math.prod(n + int(before) + int(after) for n, (before, after) in zip(np.shape(a), widths, strict=True))
    return made, made * STEPS


def _outer(a: Any, b: Any) -> tuple[int, int]:
    made = size(a) * size(b)
    return made, made * STEPS * _softness((a, b))


def _outer_of_functions(a: Any, b: Any) -> tuple[int, int]:
    made = size(a) * size(b)
    return made, made * _FUNCTION_STEPS


def _outer_of_remainders(a: Any, b: Any) -> tuple[int, int]:
    made = size(a) * size(b)
    return made, made * _REMAINDER_STEPS


def _multiplied(a: Any, b: Any, made: int, products: int, read: int) -> tuple[int, int]:
    """Of sums of products: without float32 and float64 there is no BLAS for them."""
    kind = np.result_type(np.asarray(a).dtype, np.asarray(b).dtype)
    each = products // 2 if kind in (np.float32, np.float64) else 8 * products
    return made, each + 2 * read + made * STEPS


def _product(a: Any, b: Any) -> tuple[int, int]:
    """Of a matrix product."""
    left, right = np.shape(a), np.shape(b)
    length = left[-1] if left else 1
    batch = math.prod(np.broadcast_shapes(left[:-2], right[:-2]))
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    made = batch * rows * columns
    return _multiplied(a, b, made, made * length, batch * length * (rows + columns))


def _dot(a: Any, b: Any) -> tuple[int, int]:
    length = np.shape(a)[-1] if np.ndim(a) else 1
    made = size(a) * size(b) // max(length * (length if np.ndim(b) else 1), 1)
    if np.ndim(a) > 2 or np.ndim(b) > 2:
        return made, 8 * made * length + made * STEPS
    return _multiplied(a, b, made, made * length, size(a) + size(b))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> tuple[int, int]:
    count = np.ndim(a)
    summed = range(count - int(axes), count) if np.ndim(axes) == 0 else np.atleast_1d(np.asarray(axes[0])).tolist()
    length = max(math.prod(np.shape(a)[axis] for axis in summed), 1)
    made = size(a) * size(b) // (length * length)
    # both may be copied into another order first
    made, steps = _multiplied(a, b, made, made * length, size(a) + size(b))
    return made, steps + (size(a) + size(b)) * STEPS * 2


def _einsum(subscripts: Any, *operands: Any) -> tuple[int, int]:
    """Of the extents of all letters for the steps, of those in the output for the elements."""
    if not isinstance(subscripts, str):
        raise ValueError("einsum takes its subscripts as one text")
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"{len(terms)} terms for {len(operands)} operands")
    extents: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        shape = np.shape(operand)
        middle = len(shape) - len(before) - len(after)
        if middle < 0 or (middle and not dots):
            raise ValueError(f"{term} does not fit an array of {len(shape)} dimensions")
        if dots:
            extents["."] = max(extents.get(".", 1), math.prod(shape[len(before) : len(before) + middle]))
        for letter, extent in (
            *zip(before, shape, strict=False),
            *zip(after, shape[len(before) + middle :], strict=False),
        ):
            extents[letter] = max(extents.get(letter, 1), int(extent))
    kept = output if arrow else "".join(c for c in sorted(extents) if inputs.count(c) == 1 or c == ".")
    made = math.prod(extent for letter, extent in extents.items() if letter in kept)
    each = len(operands) * _softness(operands)
    return made, each * math.prod(extents.values()) + made * STEPS


def _meshed(*args: Any, **_: Any) -> tuple[int, int]:
    made = math.prod(size(a) for a in args) * len(args)
    return made, made * STEPS


@dataclass(frozen=True)
class Function:
    """A function that may be called, with as many positional arguments and the keywords listed."""

    call: Callable[..., Any]
    cost: Cost
    positional: int
    keywords: frozenset[str] = frozenset()


_REDUCE = "axis keepdims"
_ONE = (
    "abs absolute fabs sqrt square sign floor ceil rint trunc negative positive reciprocal isfinite isnan isinf "
    "signbit logical_not invert"
)
_TWO = (
    "add subtract multiply divide true_divide maximum minimum fmax fmin copysign logical_and logical_or logical_xor "
    "equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift"
)
_MORE = "ldexp heaviside"
_DIVIDED = "floor_divide mod remainder fmod"
_TABLE: tuple[tuple[str, Cost, int, str], ...] = (
    (_ONE, elementwise, 1, ""),
    (_TWO, elementwise, 2, ""),
    ("cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh",
     transcendental, 1, ""),
    ("power float_power arctan2 hypot logaddexp logaddexp2", transcendental, 2, ""),
    (_MORE, transcendental, 2, ""),
    (_DIVIDED, _remainder, 2, ""),
    ("where clip", elementwise, 3, ""),
    ("round around", _by_rows, 2, "decimals"),
    ("nan_to_num", _through, 1, "nan posinf neginf"),
    ("sum prod max min amax amin", _through, 2, f"{_REDUCE} initial"),
    ("nansum nanmax nanmin", _by_rows, 2, f"{_REDUCE} initial"),
    ("mean any all argmax argmin count_nonzero", _through, 2, _REDUCE),
    ("nanmean", _by_rows, 2, _REDUCE),
    ("std var", _by_rows, 2, f"{_REDUCE} ddof"),
    ("median sort argsort", _sorted, 2, "axis"),
    ("cumsum cumprod", _through, 2, "axis"),
    ("transpose squeeze flip expand_dims", _through, 2, "axis axes"),
    ("reshape", _through, 2, ""),
    ("ravel copy", _through, 1, ""),
    ("swapaxes moveaxis rot90", _through, 3, "source destination axis1 axis2"),
    ("roll", _through, 3, "axis"),
    ("tril triu", _through, 2, "k"),
    ("trace diagonal", _through, 4, "offset axis1 axis2"),
    ("concatenate stack", _through, 2, "axis"),
    ("hstack vstack", _through, 1, ""),
    ("take_along_axis", _by_rows, 3, "axis"),
    ("array asarray", _through, 2, "dtype"),
    ("zeros_like ones_like", _through, 2, "dtype"),
    ("full_like", _through, 3, "dtype"),
    ("zeros ones", _shaped, 2, "dtype"),
    ("full", _shaped, 3, "dtype"),
    ("broadcast_to", _shaped_second, 2, ""),
    ("arange", _range, 3, "dtype"),
    ("linspace", _linspace, 3, "num endpoint dtype"),
    ("eye tri", _square, 3, "k dtype"),
    ("identity", _square, 1, "dtype"),
    ("diag", _diagonal, 2, "k"),
    ("repeat", _repeated, 3, "axis"),
    ("tile", _tiled, 2, ""),
    ("pad", _padded, 2, "constant_values"),
    ("outer kron", _outer, 2, ""),
    ("matmul", _product, 2, ""),
    ("dot vdot inner", _dot, 2, ""),
    ("tensordot", _tensordot, 3, "axes"),
    ("einsum", _einsum, 8, ""),
    ("meshgrid", _meshed, 3, ""),
)  # fmt: skip


FUNCTIONS: dict[str, Function] = {
    name: Function(getattr(np, name), cost, positional, frozenset(keywords.split()))
    for names, cost, positional, keywords in _TABLE
    for name in names.split()
} | {
    f"{name}.outer": Function(getattr(np, name).outer, cost, 2)
    for names, cost in ((_TWO, _outer), (_MORE, _outer_of_functions), (_DIVIDED, _outer_of_remainders))
    for name in names.split()
}
"""By the name after `np.`."""

_SAME = (
    "sum prod max min mean std var any all argmax argmin cumsum cumprod reshape transpose swapaxes round clip repeat "
    "ravel squeeze copy dot diagonal trace argsort"
)
METHODS: dict[str, str] = {name: name for name in _SAME.split()} | {"flatten": "ravel", "astype": "asarray"}
"""Of an array: the function that does the same with the array as its first argument."""

VARIADIC = frozenset({"reshape", "transpose"})
"""Methods that take a shape or axes as so many arguments too."""

_NUMBERS = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool_"
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in _NUMBERS.split()}

CONSTANTS: dict[str, Any] = {"pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None}
