# SPDX-License-Identifier: Apache-2.0
"""Programs on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from porter.lang.sources import CUDA_ENDINGS
from porter.project.include_dirs import stated_directories
from porter.verify.program.source import Request


def program_request(path: Path, *values: Any, **options: Any) -> Request:
    """As `Request`, with what the ending of a path says, and what build files say of its headers."""
    options["is_source"] = path.suffix.lower() in CUDA_ENDINGS
    request = Request(path, *values, **options)
    if not request.is_source:
        return request
    return replace(request, include_dirs=(*request.include_dirs, *stated_directories(path)))
