# SPDX-License-Identifier: Apache-2.0
"""Kernels with a TiledMMA in SM100's own words of CuTe C++: one rule a file, nothing of ours beside the kernel."""
