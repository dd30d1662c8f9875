# SPDX-License-Identifier: Apache-2.0
"""The rows of the instruction table, one module per family. Read them through `porter.ptx.table`."""
