# SPDX-License-Identifier: Apache-2.0
"""Kits: runs of kernels in one archive, for a machine that has a GPU and its driver and nothing else."""
