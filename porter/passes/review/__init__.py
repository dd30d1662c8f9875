# SPDX-License-Identifier: Apache-2.0
"""Ports reviewed group by group: what needs what, decisions that last, edits by hand that a new port keeps."""
