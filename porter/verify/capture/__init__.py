# SPDX-License-Identifier: Apache-2.0
"""Captured launches: what a real program launches becomes cases that `porter verify` runs anywhere."""
