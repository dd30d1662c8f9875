# SPDX-License-Identifier: Apache-2.0
"""Warpgroup MMAs of Hopper on Blackwell's tensor cores, under the names that kernels use."""
