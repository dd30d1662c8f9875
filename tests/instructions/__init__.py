# SPDX-License-Identifier: Apache-2.0
"""Sample instructions of every row of the table, kernels around them, and what Porter makes of them."""
