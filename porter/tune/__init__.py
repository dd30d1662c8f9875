# SPDX-License-Identifier: Apache-2.0
"""Which steps a port has: those that are faster by the grade, and then judged."""
