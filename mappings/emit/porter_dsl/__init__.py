# SPDX-License-Identifier: Apache-2.0
"""The support module of ports of CuTe DSL, in parts: a port has one file, without the lines ahead of each `# ---`."""
