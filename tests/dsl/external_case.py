# SPDX-License-Identifier: Apache-2.0
"""A kernel that nobody here wrote, as a driver that imports it and a case."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

EXAMPLES = "data/cutlass/examples/python/CuTeDSL"
"""Where NVIDIA's examples are in flashinfer-python."""


class Missing(Exception):
    """What a case needs and this machine does not have."""


@dataclass(frozen=True)
class ExternalCase:
    """`driver` and `case` are texts; `{root}` in the case is where the kernel is imported from. `needs` says what has
    to be there: a package, `examples` (NVIDIA's, of flashinfer-python or in PORTER_CUTLASS), or `flash_attn`."""

    needs: str
    driver: str
    case: str
    files: Mapping[str, str] = field(default_factory=dict)
    fails: str = ""
    """What the DSL says to the original, where it refuses that."""


def root_of(needs: str) -> Path:
    """Where the kernels are imported from.

    Raises:
        Missing: it is not here.
    """
    if needs == "flash_attn":
        path = os.environ.get("PORTER_FLASH_ATTENTION")
        if not path:
            raise Missing("PORTER_FLASH_ATTENTION names no directory with flash_attn/cute in it")
        if not (Path(path) / "flash_attn" / "cute").is_dir() or find_spec("quack") is None:
            raise Missing(f"{path} has no flash_attn/cute, or the package quack is not installed")
        return Path(path)
    if needs == "cutlass":
        path = os.environ.get("PORTER_CUTLASS")
        if not path:
            raise Missing("PORTER_CUTLASS names no checkout of NVIDIA's cutlass")
        return Path(path) / "examples" / "python" / "CuTeDSL"
    package = "flashinfer" if needs == "examples" else needs
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"the package {package} is not installed")
    place = Path(spec.submodule_search_locations[0])
    return place / EXAMPLES if needs == "examples" else place.parent
