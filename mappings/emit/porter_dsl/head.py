# SPDX-License-Identifier: Apache-2.0
"""Warpgroup MMAs of Hopper on the tensor cores of Blackwell, under the names that kernels use.

A kernel keeps its tiled MMAs, its fragments and its pipelines: they say how operands lie in shared memory and which
elements of an accumulator a thread holds. What changes is where a product is made: in Tensor Memory, by MMAs of 64
rows that one thread issues. `tcgen05.ld.16x256b` hands a warp the elements of the `wgmma` fragment in their order.

    porter_dsl.begin()                      first statement of a kernel
    porter_dsl.gemm(mma, d, a, b, c)        cute.gemm; other atoms than warpgroup MMAs go on to it
    porter_dsl.fence(), commit_group(), wait_group(n)
    porter_dsl.end()                        last statement, of all threads

Tracing a kernel only marks these places. `end` knows the whole program, and then decides: which warpgroups multiply
(from the conditions around the MMAs), where an accumulator is newer in Tensor Memory than in registers (a flow
analysis over loops and branches; a flag at run time where paths differ), and which columns each one has. Registers are
loaded before something reads them, stored before an MMA adds to what was written to them, and left alone otherwise.
What cannot be ported is collected and raised at `end` as `Unportable`, with the lines of the kernel.

References: PTX ISA 9.7.16 (tcgen05), 9.7.15 (wgmma); CUTLASS include/cute/arch/mma_sm100_desc.hpp.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass import base_dsl
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, nvvm, scf
from cutlass.cute.core import _unpack_x_tuple
from cutlass.cute.nvgpu import tcgen05, warpgroup
from cutlass.cute.tensor import _Tensor
from cutlass.cutlass_dsl import BaseDSL, T

RING = 8
"""Groups of MMAs in flight, a power of two: each has an mbarrier of its own."""

CHUNK = 8
"""Blocks of 8 columns that one tcgen05.ld or tcgen05.st moves at most: 32 registers."""

COLUMNS = 512
"""Columns of Tensor Memory (PTX ISA 9.7.16.1)."""

MAX_SHARED = 232448
"""Bytes of shared memory that a block may have (CUDA C++ Programming Guide, technical specifications of 9.0, 10.0)."""

BEFORE, AFTER = nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC


class Unportable(RuntimeError):
    """What of a kernel Tensor Memory cannot do. `obstacles`: (file, line, text)."""

    def __init__(self, obstacles: list[tuple[str, int, str]]) -> None:
        self.obstacles = obstacles
        super().__init__("; ".join(f"{os.path.basename(f)}:{n}: {text}" for f, n, text in obstacles))
