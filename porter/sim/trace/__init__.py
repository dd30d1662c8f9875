# SPDX-License-Identifier: Apache-2.0
"""Recording what a run does and in which order, for people to look at."""
