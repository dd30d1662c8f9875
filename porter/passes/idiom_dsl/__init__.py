# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL kernels in Blackwell's own words: public names alone, nothing beside the file. One file a rule."""
