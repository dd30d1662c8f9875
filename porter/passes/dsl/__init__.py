# SPDX-License-Identifier: Apache-2.0
"""Port of CuTe DSL kernels from warpgroup MMA to tcgen05."""
