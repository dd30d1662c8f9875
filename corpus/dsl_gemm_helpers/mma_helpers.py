# SPDX-License-Identifier: Apache-2.0
"""What dsl_gemm_helpers does with a warpgroup's registers: its MMAs, with A from shared memory or from registers."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup


@cute.jit
def multiply(
    tiled_mma: cute.TiledMma,
    acc: cute.Tensor,
    a: cute.Tensor,
    b: cute.Tensor,
    zero_init: cutlass.Boolean,
    in_flight: cutlass.Constexpr[int] = 0,
):
    """acc = a b, or acc += a b, with all but `in_flight` WGMMA groups done on return."""
    atom = cute.make_mma_atom(tiled_mma.op)
    atom.set(warpgroup.Field.ACCUMULATE, not zero_init)
    warpgroup.fence()
    for k_block in cutlass.range_constexpr(cute.size(a, mode=[2])):
        cute.gemm(atom, acc, a[(None, None, k_block)], b[(None, None, k_block)], acc)
        atom.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(in_flight)


@cute.jit
def multiply_rectified(
    tiled_mma: cute.TiledMma,
    tiled_copy: cute.TiledCopy,
    registers: cute.Tensor,
    acc: cute.Tensor,
    a: cute.Tensor,
    b: cute.Tensor,
    zero_init: cutlass.Boolean,
):
    """The same with max(A, 0) for A, which takes the way through `registers`; nothing is in flight on return."""
    cute.copy(tiled_copy, a, tiled_copy.retile(registers))
    values = registers.load()
    registers.store(cute.where(values > 0, values, cute.zeros_like(values)))
    # One lane of the warp gives the buffer back, for TMA to write: the reads of all come before.
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    multiply(tiled_mma, acc, registers, b, zero_init)
