# SPDX-License-Identifier: Apache-2.0
"""The backend that a user names."""

from __future__ import annotations

from porter.diagnostics import Code, PorterError
from porter.verify.backend_names import BACKENDS
from porter.verify.backends import Backend, SimBackend
from porter.verify.gpu.backend import make_gpu_backend
from porter.verify.settings import SimOptions


def make_backend(name: str, options: SimOptions) -> Backend:
    """The backend of this name.

    Raises:
        PorterError: BACKEND_UNAVAILABLE.
    """
    if name == "sim":
        return SimBackend(options)
    if name not in BACKENDS:
        raise PorterError(Code.BACKEND_UNAVAILABLE, name=name, reason=f"there is {', '.join(BACKENDS)}")
    return make_gpu_backend(name, options)
