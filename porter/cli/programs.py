# SPDX-License-Identifier: Apache-2.0
"""Programs on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from porter.lang.sources import CUDA_ENDINGS
from porter.verify.program.source import Request


def program_request(path: Path, *values: Any, **options: Any) -> Request:
    """As `Request`, with what the ending of a path says."""
    options["is_source"] = path.suffix.lower() in CUDA_ENDINGS
    return Request(path, *values, **options)
