# SPDX-License-Identifier: Apache-2.0
"""Where a project lies, and where its build files say that headers are."""
