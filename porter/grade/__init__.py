# SPDX-License-Identifier: Apache-2.0
"""How near to a chip's nominal rate a kernel would come, predicted without the chip."""
