# SPDX-License-Identifier: Apache-2.0
"""What the compiler makes of an original with statements that ask for types: the same units, with the same options, as
the compile gate compiles."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from porter.build.gate import available_cores
from porter.build.nvcc import compile_ptx
from porter.build.toolchain import find_toolkit
from porter.build.tree import write_tree
from porter.diagnostics import PorterError
from porter.verify.builder import ORIGINAL_ARCH
from porter.verify.gate import GateOptions, request_in_tree, requests


def types_of(
    options: GateOptions, root: str, files: Mapping[str, bytes], include_dirs: Sequence[Path], arch: str = ORIGINAL_ARCH
) -> list[str] | str:
    """The PTX of a root with these files, for Hopper or another chip, for each request of the compile gate; a text says
    why there is none."""
    options = replace(options, include_dirs=tuple(dict.fromkeys([*options.include_dirs, *include_dirs])))
    path = Path(root)
    with tempfile.TemporaryDirectory(prefix="porter-") as spare:
        try:
            toolkit = find_toolkit(options.toolkit)
            tree = write_tree(files, options.include_dirs, Path(spare))
            asked = dict.fromkeys(request_in_tree(r, path, tree, arch) for r in requests(path, options))
            with ThreadPoolExecutor(max_workers=options.jobs or available_cores()) as pool:
                return [made.ptx for made in pool.map(partial(compile_ptx, toolkit=toolkit), asked)]
        except PorterError as error:
            return str(error.diagnostic.values.get("text") or error.diagnostic.message)
        except OSError as error:
            return f"cannot write the files for the compiler: {error.strerror or error}"
