# SPDX-License-Identifier: Apache-2.0
"""How a kernel's copies, MMAs and results hand each other stages: mbarriers, rings, who does what."""
