# SPDX-License-Identifier: Apache-2.0
"""Programs on the command line."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from porter.build.trust import require_trust
from porter.diagnostics import Code, PorterError
from porter.lang.sources import CUDA_ENDINGS
from porter.project.include_dirs import stated_directories
from porter.verify.program.runner import SCRIPT
from porter.verify.program.source import Request

TRITON = "triton"


def require_triton(path: Path) -> None:
    """That a script can be run which launches Triton's kernels.

    Raises:
        PorterError: BAD_OPTION: it is no script; PACKAGE_MISSING; NOT_TRUSTED.
    """
    if path.suffix != SCRIPT:
        raise PorterError(Code.BAD_OPTION, option="--triton", problem="PATH is to be a Python script")
    if find_spec(TRITON) is None:
        raise PorterError(Code.PACKAGE_MISSING, package=TRITON, what=f"running {path}")
    require_trust(path, "it is a script that is run")


def program_request(path: Path, *values: Any, **options: Any) -> Request:
    """As `Request`, with what the ending of a path says, and what build files say of its headers."""
    options["is_source"] = path.suffix.lower() in CUDA_ENDINGS
    request = Request(path, *values, **options)
    if not request.is_source:
        return request
    return replace(request, include_dirs=(*request.include_dirs, *stated_directories(path)))
