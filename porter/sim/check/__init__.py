# SPDX-License-Identifier: Apache-2.0
"""The checker: happens-before over shared memory, Tensor Memory, registers and mbarriers while a kernel runs."""
