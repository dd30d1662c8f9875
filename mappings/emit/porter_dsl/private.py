# SPDX-License-Identifier: Apache-2.0
"""What is private in the DSL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cutlass import base_dsl
from cutlass._mlir.dialects import nvvm
from cutlass.cutlass_dsl import BaseDSL

# --- what is private in the DSL


PRIVATE = {
    "cutlass._mlir": "the program while it is traced, and the dialects of what is put into it",
    "cutlass.cute.core._unpack_x_tuple": "the numbers of a coordinate",
    "cutlass.cute.tensor._Tensor": "the tensor that a value of the program is",
    "BaseDSL._get_dsl": "who says which chip is compiled for",
}
"""Names without a promise. nvidia-cutlass-dsl 4.6.2 to 4.8.1 have them; what those call differently stands below."""

_SM90A = (getattr(base_dsl, "Arch", None) or base_dsl.arch.Arch).sm_90a
_INTEGERS = nvvm.Tcgen05MMAKind["I8" if "I8" in nvvm.Tcgen05MMAKind.__members__ else "INT8"]


def get_arch_enum() -> Any:
    """The architecture that the kernel was written for: it chooses its own way by it."""
    return _SM90A


@contextlib.contextmanager
def _for_hopper() -> Iterator[None]:
    """The DSL answers so too: constructors of warpgroup MMAs ask it, and what they make is valid for sm_100a."""
    dsl = BaseDSL._get_dsl()
    dsl.get_arch_enum = get_arch_enum
    try:
        yield
    finally:
        del dsl.get_arch_enum
