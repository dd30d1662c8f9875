# SPDX-License-Identifier: Apache-2.0
"""What instructions do to data, one family a file."""
