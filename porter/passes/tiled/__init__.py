# SPDX-License-Identifier: Apache-2.0
"""Kernels whose MMAs a library issues: its tiled MMAs stay, and their accumulators move to Tensor Memory."""
