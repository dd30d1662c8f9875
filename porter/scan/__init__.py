# SPDX-License-Identifier: Apache-2.0
"""What is here, what becomes of it, and how much work that is."""
