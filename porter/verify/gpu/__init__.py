# SPDX-License-Identifier: Apache-2.0
"""Kernels on a real GPU, in a process of its own: natively, or on Hopper emulating SM100."""
