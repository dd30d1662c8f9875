# SPDX-License-Identifier: Apache-2.0
"""What addresses and sizes have to be multiples of, in bytes, where it is not what is accessed there (PTX ISA 6.4.1:
addresses are naturally aligned to the size of the access, of vectors to that of the vector)."""

from __future__ import annotations

BULK_COPY = 16
"""Both addresses and the size of a bulk copy (PTX ISA 9.7.9.25.4)."""
BULK_STORE = 8
"""The address and the size of st.bulk (PTX ISA 9.7.9.13)."""
TENSOR_COPY = 128
"""The address in shared memory of a tensor copy (PTX ISA 5.5.6, 9.7.9.25.5)."""
TENSOR_MAP = 64
"""A tensor map that a copy uses (CUDA Driver API, CUtensorMap)."""
RESPONSE_BYTES = 16
"""The response of clusterlaunchcontrol, which has as many bytes (PTX ISA 9.7.13.17.1)."""
CHANGED_MAP = 128
"""A tensor map that is changed or published (PTX ISA 9.7.9.28, 9.7.13.16)."""
