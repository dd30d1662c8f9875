# SPDX-License-Identifier: Apache-2.0
"""A case that was drafted from sources against a launch that was recorded: what agrees, and what is different."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from porter.diagnostics import PorterError
from porter.verify.arguments import Argument, MapValue, Pointer, Raw, Scalar
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.problem import Problem, bind


@dataclass
class Agreement:
    """`sizes` are those of the launch, as far as it tells them. `same` are fields of the case that give what was
    launched; `different` says of the others what that was. `written` are tensors that changed."""

    sizes: dict[str, Number] = field(default_factory=dict)
    same: set[str] = field(default_factory=set)
    different: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[int] | int] = field(default_factory=dict)
    """Launch values as they were, where they are different."""
    written: set[str] = field(default_factory=set)


def against_launch(draft: Case, recorded: Case) -> Agreement:
    """What a recorded launch of the kernel says of a draft.

    Raises:
        PorterError: the recorded case does not hold together.
    """
    real, found = bind(recorded), Agreement()
    if len(draft.params) != len(recorded.params):
        found.different["params"] = f"the kernel was launched with {len(recorded.params)} arguments"
        return found
    found.sizes = dict(_sizes(draft, real))
    try:
        mine = bind(draft, found.sizes)
    except PorterError as error:
        found.different["sizes"] = error.diagnostic.message
        return found
    for name in ("grid", "block", "cluster", "dynamic_smem"):
        here, there = getattr(mine.launch, name), getattr(real.launch, name)
        if here == there:
            found.same.add(f"launch.{name}")
        elif name != "dynamic_smem" or there > here:
            found.different[f"launch.{name}"] = f"was {there}"
            found.values[name] = list(there) if isinstance(there, tuple) else there
    _arguments(mine, real, found)
    return found


def _sizes(draft: Case, real: Problem) -> Iterator[tuple[str, Number]]:
    """Sizes that stand as they are among the parameters or the extents of tensor maps."""
    for param, argument in zip(draft.params, real.arguments, strict=True):
        number = _integer(argument)
        if isinstance(param, str) and param in draft.sizes and number is not None:
            yield param, number
        if isinstance(param, str) and param in draft.tensor_maps and isinstance(argument, MapValue):
            spec = draft.tensor_maps[param]
            extents = spec.dims or draft.tensors[spec.tensor].shape
            for extent, value in zip(extents, reversed(real.tensor_maps[argument.tensor_map].map.sizes), strict=False):
                if isinstance(extent, str) and extent in draft.sizes:
                    yield extent, value


def _integer(argument: Argument) -> Number | None:
    """The integer that an argument is; what has no type of its own is taken for one."""
    if isinstance(argument, Raw) and len(argument.data) in (4, 8) and not argument.contains:
        return int.from_bytes(argument.data, "little", signed=True)
    return argument.value if isinstance(argument, Scalar) else None


def _like(here: Scalar, there: Argument) -> Number | None:
    """A number of the launch, read as the draft says."""
    if here.type == "f32" and isinstance(there, Raw) and len(there.data) == 4:
        return float(struct.unpack("<f", there.data)[0])
    return _integer(there)


def _arguments(mine: Problem, real: Problem, found: Agreement) -> None:
    for i, (here, there) in enumerate(zip(mine.arguments, real.arguments, strict=True)):
        where = f"params[{i}]"
        if isinstance(here, MapValue) and isinstance(there, MapValue):
            _maps(mine, real, here.tensor_map, there.tensor_map, found)
        elif isinstance(here, Pointer) and isinstance(there, Pointer):
            _memory(mine, real, here.tensor, there.tensor, found)
        elif isinstance(here, Scalar) and (number := _like(here, there)) is not None:
            if here.value == number:
                found.same.add(where)
            else:
                found.different[where] = f"was {number}"
        elif not isinstance(there, Raw):
            found.different[where] = f"was {type(there).__name__.lower()}, not {type(here).__name__.lower()}"


def _maps(mine: Problem, real: Problem, here: str, there: str, found: Agreement) -> None:
    a, b = mine.tensor_maps[here].map, real.tensor_maps[there].map
    wrong = [
        f"{name} was {getattr(b, name)}"
        for name in ("sizes", "strides", "box", "element_strides", "swizzle", "interleave")
        if getattr(a, name) != getattr(b, name)
    ]
    if wrong:
        found.different[f"tensor_maps.{here}"] = "; ".join(wrong)
    else:
        found.same.add(f"tensor_maps.{here}")
    _memory(mine, real, mine.tensor_maps[here].tensor, real.tensor_maps[there].tensor, found)


def _memory(mine: Problem, real: Problem, here: str, there: str, found: Agreement) -> None:
    a, b = mine.tensors[here], real.tensors[there]
    if b.is_output:
        found.written.add(here)
    where = f"tensors.{here}"
    if a.nbytes > b.nbytes:
        found.different[where] = f"was {b.nbytes} bytes, not {a.nbytes}"
    elif a.is_output != b.is_output:
        found.different[where] = "was written" if b.is_output else "was not written"
    elif a.nbytes == b.nbytes:
        found.same.add(where)
