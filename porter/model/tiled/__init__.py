# SPDX-License-Identifier: Apache-2.0
"""Kernels whose MMAs a library issues: tiled MMAs, and tensors of registers that are their accumulators."""
