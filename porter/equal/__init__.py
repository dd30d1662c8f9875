# SPDX-License-Identifier: Apache-2.0
"""Whether two kernels write the same: what each element of their output is made of, told from PTX without a run."""
