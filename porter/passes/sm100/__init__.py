# SPDX-License-Identifier: Apache-2.0
"""Checks of code that is for SM100 already: what compiles there and is slow, empty or not ordered."""
