# SPDX-License-Identifier: Apache-2.0
"""`--style native`: steps from a Hopper schedule to one of sm_100a, each left out where a fact is missing."""
