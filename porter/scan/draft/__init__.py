# SPDX-License-Identifier: Apache-2.0
"""Draft cases: what launch code, a kernel's text and a real launch tell of how to run a kernel."""
