# SPDX-License-Identifier: Apache-2.0
"""What CuTe DSL kernels say about themselves: the statements of a GEMM and the parts they play."""
