# SPDX-License-Identifier: Apache-2.0
"""Input families: each is made to show one kind of mistake, and is replayed from its seed.

A tensor's values depend on the seed, the family and the tensor's name only, so a single family or tensor can
be
drawn again on its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from porter.diagnostics import Code, Location, PorterError
from porter.verify.arithmetic import exact_integer_limit
from porter.verify.case import place
from porter.verify.dtypes import DTYPES, Array, DType, Float64
from porter.verify.fills import fill_values
from porter.verify.images import element_offsets
from porter.verify.problem import Problem
from porter.verify.tensor import Tensor


@dataclass(frozen=True)
class Family:
    """`exact`: sums come out exact, so results must agree bit for bit. `classes`: results hold NaN and
    infinities, which are compared by kind."""

    name: str
    title: str
    draw: Callable[[Problem, Tensor, np.random.Generator], Float64]
    exact: bool = False
    classes: bool = False
    floats_only: bool = True
    integers_only: bool = False
    default: bool = True


def _integer_range(problem: Problem, tensor: Tensor) -> tuple[int, float]:
    """Largest magnitude of an operand's integers, and the share of nonzero ones, so that no partial sum
    leaves
    what every accumulator and output format holds exactly."""
    operands = [t for t in problem.inputs if problem.reduction_axis(t) is not None]
    others = len(problem.inputs) - len(operands)
    accumulate = problem.case.accumulate
    limit = exact_integer_limit(problem.operand, accumulate)
    for output in problem.outputs:
        limit = min(limit, int(min(output.dtype.largest, 2.0**53)))
    limit = max(limit >> others, 1)
    products = max(len(operands), 1)
    per_term = limit / problem.reduction
    share = min(1.0, per_term)
    largest = int(max(per_term, 1.0) ** (1 / products) + 1e-9)
    if tensor not in operands:
        largest = 2
    return max(1, min(largest, tensor.dtype.max_exact_integer)), share


def _integers(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    largest, share = _integer_range(problem, tensor)
    lowest = 0 if not tensor.dtype.is_float and tensor.dtype.smallest == 0 else -largest
    if problem.reduction_axis(tensor) is None:
        return rng.integers(1, largest + 1, tensor.shape).astype(np.float64)
    values = rng.integers(lowest, largest + 1, tensor.shape).astype(np.float64)
    if share < 1:
        _thin(values, problem.reduction_axis(tensor) or 0, share)
    return values


def _positive(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """Large integers of one sign: sums grow as far as they can and still be exact."""
    largest, share = _integer_range(problem, tensor)
    values = rng.integers((largest + 1) // 2, largest + 1, tensor.shape).astype(np.float64)
    if share < 1 and problem.reduction_axis(tensor) is not None:
        _thin(values, problem.reduction_axis(tensor) or 0, share)
    return values


def _thin(values: Float64, axis: int, share: float) -> None:
    """Keep one value in every `1 / share` along the sum."""
    keep = np.arange(values.shape[axis]) % int(np.ceil(1 / share)) == 0
    values *= np.expand_dims(keep, tuple(i for i in range(values.ndim) if i != axis))


def code_modulus(dtype: DType, problem: Problem) -> int:
    """Index codes run from 1 to this: a prime where one fits, so that codes do not repeat with tile
    widths."""
    room = min(dtype.max_exact_integer, exact_integer_limit(problem.operand, problem.case.accumulate))
    room = min([room, *(o.dtype.max_exact_integer for o in problem.outputs)])
    return next((p for p in (2039, 1021, 509, 251, 127, 61, 31, 13, 7) if p <= room), 3)


def coded_tensor(problem: Problem) -> Tensor | None:
    """The operand whose elements carry their own index in the index family: the first with a sum."""
    return next((t for t in problem.inputs if problem.reduction_axis(t) is not None), None)


def _index(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """The first operand holds codes, each row of another picks one of its columns: an output is a code."""
    axis = problem.reduction_axis(tensor)
    if axis is None:
        return np.ones(tensor.shape)
    if tensor == coded_tensor(problem):
        modulus = code_modulus(tensor.dtype, problem)
        flat = np.arange(np.prod(tensor.shape, dtype=np.int64))
        return (flat % modulus + 1).reshape(tensor.shape).astype(np.float64)
    length = tensor.shape[axis]
    rows = int(np.prod(tensor.shape, dtype=np.int64)) // length
    stride = max(1, length // rows)
    steps = np.arange(rows) * stride
    # Each round through the columns starts one further on, so that no two tiles of outputs are alike.
    picks = (steps + steps // length + int(rng.integers(length))) % length
    chosen = np.zeros((rows, length))
    chosen[np.arange(rows), picks] = 1
    other = tuple(n for i, n in enumerate(tensor.shape) if i != axis)
    return np.moveaxis(chosen.reshape(*other, length), -1, axis)


def _normal(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    return rng.standard_normal(tensor.shape)


def _uniform(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """Same sign throughout: truncation toward zero adds up instead of averaging out."""
    return rng.random(tensor.shape)


def _exponent_range(problem: Problem, tensor: Tensor) -> tuple[int, int]:
    """Exponents of operands whose products and sums overflow no accumulator or output."""
    top = min([DTYPES[problem.case.accumulate].emax, *(o.dtype.emax for o in problem.outputs)])
    operands = max(1, len(problem.inputs))
    high = (top - int(np.ceil(np.log2(problem.reduction + 1))) - 1) // operands - 1
    return max(tensor.dtype.emin, -20), min(tensor.dtype.emax - 1, high, 20)


def _wide(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    low, high = _exponent_range(problem, tensor)
    low = min(low, high)
    exponents = rng.integers(low, high + 1, tensor.shape)
    signs = rng.choice([-1.0, 1.0], tensor.shape)
    return np.ldexp(signs * rng.uniform(1, 2, tensor.shape), exponents)


def _special(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """Signed zeros, subnormals and the edges of the range among ones and ordinary values."""
    dtype = tensor.dtype
    _, high = _exponent_range(problem, tensor)
    tiny = np.ldexp(1.0, dtype.emin)
    subnormal = dtype.min_subnormal * rng.integers(1, max(2, 2 ** (dtype.significand - 1)), tensor.shape)
    fixed = np.array([0.0, -0.0, dtype.min_subnormal, -dtype.min_subnormal, tiny, -tiny, 1.0, -1.0,
                      np.ldexp(1.0, high), -np.ldexp(1.0, high)])  # fmt: skip
    values = rng.choice(fixed, tensor.shape)
    kind = rng.random(tensor.shape)
    return np.where(kind < 0.2, subnormal, np.where(kind < 0.6, rng.standard_normal(tensor.shape), values))


def _nonfinite(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """A few NaN and infinities, in few rows, so that most outputs stay finite."""
    values = rng.standard_normal(tensor.shape)
    flat = values.reshape(-1)
    kinds = [np.nan, np.inf, -np.inf] if tensor.dtype.has_infinity else [np.nan]
    for kind in kinds:
        flat[int(rng.integers(flat.size))] = kind
    return values


def _whole(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Float64:
    """An integer tensor of a float problem, in families of floats: quantized operands have values of their whole
    range that leave room for the sum, other tensors (lengths, indices, flags) are 1."""
    if problem.reduction_axis(tensor) is None:
        return np.ones(tensor.shape)
    top = min([DTYPES[problem.case.accumulate].largest, *(o.dtype.largest for o in problem.outputs)])
    room = top ** (1 / max(1, len(problem.inputs))) / problem.reduction
    largest = int(min(tensor.dtype.largest, problem.operand.max_exact_integer, max(room, 1)))
    return rng.integers(int(max(tensor.dtype.smallest, -largest)), largest + 1, tensor.shape).astype(np.float64)


FAMILIES: dict[str, Family] = {
    f.name: f
    for f in (
        Family("integers", "small integers, every sum exact", _integers, exact=True, floats_only=False),
        Family("index", "codes that name the element they come from", _index, exact=True, floats_only=False),
        Family("positive", "large integers of one sign", _positive, exact=True, floats_only=False, integers_only=True),
        Family("normal", "standard normal", _normal),
        Family("uniform", "one sign, truncation adds up", _uniform),
        Family("wide", "exponents spread over the range", _wide),
        Family("special", "signed zeros, subnormals, large values", _special),
        Family("nonfinite", "a few NaN and infinities", _nonfinite, classes=True),
    )
}

RECORDED = Family("recorded", "the inputs that were recorded", lambda problem, tensor, rng: np.zeros(tensor.shape))
"""The one family of a recorded case; its values are files."""

DEFAULT_FAMILIES = ("integers", "index", "positive", "normal", "uniform", "wide", "special", "nonfinite")


def choose(names: list[str] | None, problem: Problem, restricted: bool = True) -> tuple[Family, ...]:
    """The families asked for (None: all) that apply to the problem: integer operands only have exact ones,
    and a case may name its own, for which its reference holds (`restricted`).

    Raises:
        PorterError: UNKNOWN_FAMILY.
    """
    if problem.case.recorded is not None:
        return (RECORDED,)
    asked = list(DEFAULT_FAMILIES) if not names or names == ["all"] else names
    for name in [*asked, *(problem.case.families or ())]:
        if name not in FAMILIES:
            raise PorterError(Code.UNKNOWN_FAMILY, name=name, known=", ".join(FAMILIES))
    allowed = (problem.case.families if restricted else None) or DEFAULT_FAMILIES
    integral = not problem.operand.is_float
    found = [FAMILIES[n] for n in dict.fromkeys(asked) if n in allowed]
    return tuple(f for f in found if not (f.floats_only if integral else f.integers_only))


def generate(problem: Problem, family: Family, seed: int) -> dict[str, Array]:
    """Elements of every input tensor, in its number format and shape."""
    if problem.case.recorded is not None:
        given = {t.name: recorded_elements(problem, t, t.before) for t in problem.tensors.values() if t.before}
        for i, t in enumerate(problem.tensors.values()):
            if t.init is not None:
                given[t.name] = t.dtype.encode(fill_values(t.init, t.shape, seed + i))
        return given
    result: dict[str, Array] = {}
    for tensor in problem.inputs:
        key = [seed, zlib.crc32(family.name.encode()), zlib.crc32(tensor.name.encode())]
        rng = np.random.default_rng(key)
        if tensor.dtype.is_float or family.exact:
            values = family.draw(problem, tensor, rng)
        else:
            values = _whole(problem, tensor, rng)
        if problem.operand.name == "tf32" and tensor.dtype.name == "f32":
            # The tensor core drops the low bits of what it reads; the reference must see the same values.
            values = problem.operand.decode(problem.operand.encode(values))
        result[tensor.name] = tensor.dtype.encode(values)
    return result


def recorded_elements(problem: Problem, tensor: Tensor, path: Path) -> Array:
    """The elements that a file of a recorded case holds.

    Raises:
        PorterError: FILE_NOT_FOUND; CASE_DOES_NOT_FIT if the file is not as long as the tensor.
    """

    def unfit(what: str) -> PorterError:
        field = f"tensors.{tensor.name}"
        return PorterError(Code.CASE_DOES_NOT_FIT, place(problem.case, field), field=field, problem=what)

    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
            if values.shape != tensor.shape:
                raise unfit(f"{path.name} has the shape {list(values.shape)}, the tensor {list(tensor.shape)}")
            return values if values.dtype == tensor.dtype.container else tensor.dtype.encode(values.astype(np.float64))
        data = path.read_bytes()
    except OSError:
        raise PorterError(Code.FILE_NOT_FOUND, Location(str(problem.case.path)), path=path) from None
    except ValueError as error:
        raise unfit(f"{path.name}: {error}") from None
    if len(data) != tensor.nbytes:
        raise unfit(f"{path.name} holds {len(data)} bytes, the tensor {tensor.nbytes}")
    flat = np.frombuffer(data, tensor.dtype.container)
    return flat[element_offsets(tensor.shape, tensor.strides)]


def decoded(problem: Problem, inputs: Mapping[str, Array]) -> dict[str, Float64]:
    """The inputs as float64, which is what a reference sees."""
    return {name: problem.tensors[name].dtype.decode(array) for name, array in inputs.items()}
