# SPDX-License-Identifier: Apache-2.0
"""What single instructions do to operands, shared memory and Tensor Memory: pure functions over NumPy arrays.

Shared memory is a uint8 array indexed by shared::cta byte address, Tensor Memory a uint32 array of 128 lanes
by 512 columns; both belong to one CTA. No function here knows about warps' progress or pending work.
"""
