# SPDX-License-Identifier: Apache-2.0
"""Where kernels can run."""

BACKENDS = ("sim", "gpu", "hopper", "auto")
"""`sim` the simulator; `gpu` modules for the GPU that is here; `hopper` also those for SM100, emulated on a
Hopper GPU; `auto` each module where it can run, the simulator for what no GPU here runs."""
