# SPDX-License-Identifier: Apache-2.0
"""Runs a program on a GPU with the recording library in it.

The driver loads the library that `CUDA_INJECTION64_PATH` names into every process that initializes CUDA, also those
that the program starts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, PorterError
from porter.verify.capture.events import Captured, read_events
from porter.verify.capture.library import build_library, find_cupti

_STDERR = 2


@dataclass(frozen=True)
class CaptureOptions:
    """`kernel` is a regular expression that mangled or readable names are searched with; `limit` the number of
    launches, `max_bytes` the memory that one may reach. On the simulator `stops` ends the program when it has made that
    many launches, and `budget` is how many warp instructions a launch may take."""

    kernel: str = ""
    limit: int = 100
    max_bytes: int = 1 << 30
    stops: bool = False
    budget: int = 2_000_000_000


def capture_program(
    command: Sequence[str],
    folder: Path,
    options: CaptureOptions,
    toolkit: Toolkit | None = None,
    extra: Mapping[str, str] | None = None,
) -> Captured:
    """Run `command` to its end; the files of its launches lie below `folder`. What the program prints goes to
    standard error.

    Raises:
        PorterError: FILE_NOT_FOUND if there is no such program; CAPTURE_NO_CUPTI, CAPTURE_NOT_BUILT, NO_TOOLKIT,
            NO_HOST_COMPILER.
    """
    library, cupti = build_library(toolkit), find_cupti(toolkit)
    texts = folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "CUDA_INJECTION64_PATH": str(library),
        "PORTER_CAPTURE_CUPTI": str(cupti),
        "PORTER_CAPTURE_FOLDER": str(folder),
        "PORTER_CAPTURE_KERNEL": options.kernel,
        "PORTER_CAPTURE_LIMIT": str(options.limit),
        "PORTER_CAPTURE_BYTES": str(options.max_bytes),
        # Each tensor of PyTorch is an allocation of its own, so that a launch reaches no unrelated ones.
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        # CuTe DSL loads cubins; the PTX they were made of is kept beside them.
        "CUTE_DSL_KEEP_PTX": "1",
        "CUTE_DSL_DUMP_DIR": str(texts),
        **(extra or {}),
    }
    try:
        done = subprocess.run(list(command), env=environment, stdout=_STDERR, check=False)
    except OSError:
        raise PorterError(Code.FILE_NOT_FOUND, path=command[0]) from None
    found = read_events(folder)
    kept = tuple(p.read_bytes() for p in sorted(texts.rglob("*.ptx")))
    return replace(found, images=(*found.images, *kept), exit_status=done.returncode)
