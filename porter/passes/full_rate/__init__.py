# SPDX-License-Identifier: Apache-2.0
"""Two m64 tiles of a kernel become one M=128 MMA: the facts that it takes, and the edits."""
