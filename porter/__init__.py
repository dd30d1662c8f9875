# SPDX-License-Identifier: Apache-2.0
"""Porter ports Hopper (SM90a) GPU kernels to datacenter Blackwell (SM100a) and proves the port."""

__version__ = "0.2.0"
__distribution__ = "porter-sm100"
"""What pip calls it: PyPI's `porter` is another project."""
