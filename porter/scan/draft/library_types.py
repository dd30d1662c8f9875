# SPDX-License-Identifier: Apache-2.0
"""Sizes of types of CuTe and CUTLASS that shared memory is made of, as their headers lay them out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from porter.scan.draft import classes as cls

LAYOUT = "__layout_of"
"""What a layout that only its size is known of is called, with the elements that it takes as argument."""
MBARRIER = 8
ARRAYS: Mapping[str, int] = MappingProxyType({"array": 1, "array_aligned": 16, "ArrayEngine": 16})
"""Classes that hold as many elements as they are told, with the bytes that they begin at a multiple of
(CUTLASS include/cute/container/array_aligned.hpp, include/cute/tensor_impl.hpp)."""
PIPELINES = ("PipelineTmaAsync", "PipelineTmaUmmaAsync", "PipelineUmmaAsync")
"""Classes of pipelines whose `SharedStorage` is two mbarriers for each stage (CUTLASS
include/cutlass/pipeline/sm90_pipeline.hpp, sm100_pipeline.hpp)."""
STORAGE = "SharedStorage"
_NUMBER = re.compile(r"(?:cute\s*::\s*)?(?:_(\d+)|(?:Int|C)\s*<(.*)>)\s*(?:\{\s*\})?\Z", re.DOTALL)
_SHAPED = re.compile(r"decltype\s*\(\s*(?:cute\s*::\s*)?tile_to_shape\s*\((.*)\)\s*\)\Z", re.DOTALL)
_SHAPE = re.compile(r"(?:cute\s*::\s*)?(?:Shape\s*<(.*)>\s*\{\s*\}|make_shape\s*\((.*)\))\Z", re.DOTALL)

Evaluated = Callable[[str], "int | None"]


def elements(text: str, value: Evaluated) -> int | None:
    """How many elements a layout takes that is `decltype(tile_to_shape(atom, shape))`; None of another type. It has no
    gaps, as the layouts of operands have none (CUTLASS include/cute/layout.hpp, tile_to_shape)."""
    given = _SHAPED.match(text.strip())
    parts = cls.split_arguments(given[1]) if given is not None else []
    shape = _SHAPE.match(parts[1].strip()) if len(parts) == 2 else None
    if shape is None:
        return None
    found = 1
    for extent in cls.split_arguments(shape[1] or shape[2]):
        known = number(extent, value)
        if known is None or known < 1:
            return None
        found *= known
    return found


def number(text: str, value: Evaluated) -> int | None:
    """What `_64`, `Int<64>`, `Int<N>{}` or an expression comes to."""
    match = _NUMBER.match(text.strip())
    if match is None:
        return value(text)
    return int(match[1]) if match[1] else value(match[2])
