# SPDX-License-Identifier: Apache-2.0
"""A port and its original as the preprocessor sees them: the same units, with the same options, as the compile gate
compiles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from porter.build.gate import available_cores
from porter.build.nvcc import CompileRequest
from porter.build.preprocess import Line, host_asks, preprocess
from porter.build.toolchain import Toolkit, find_toolkit
from porter.build.tree import Tree, write_tree
from porter.diagnostics import PorterError
from porter.project.include_dirs import outside_directories
from porter.project.root import project_root
from porter.verify.builder import ORIGINAL_ARCH
from porter.verify.gate import GateOptions, request_in_tree, requests

Sides = tuple[Sequence[Line], Sequence[Line]]


def preprocessed(
    options: GateOptions, root: str, left: Mapping[str, bytes], right: Mapping[str, bytes], include_dirs: Sequence[Path]
) -> list[Sides] | str:
    """What each pass over a root leaves of the project's files: of `left` for Hopper, of `right` for the chip of ports.
    Files are named by their keys, those of the project that are not among them by their paths. A text says why nothing
    can be told.

    Raises:
        PorterError: BAD_TOOLKIT.
    """
    searched = [*options.include_dirs, *include_dirs, *outside_directories(Path(root))]
    options = replace(options, include_dirs=tuple(dict.fromkeys(searched)))
    with tempfile.TemporaryDirectory(prefix="porter-") as spare:
        try:
            toolkit = find_toolkit(options.toolkit)
            chips = (left, ORIGINAL_ARCH), (right, options.target)
            sides = [_Side.of(Path(root), files, arch, options, Path(spare), toolkit) for files, arch in chips]
            with ThreadPoolExecutor(max_workers=options.jobs or available_cores()) as pool:
                device = [list(pool.map(side.device, side.requests)) for side in sides]
                asks = pool.map(lambda r: host_asks(r, toolkit), dict.fromkeys(r for s in sides for r in s.requests))
                host = [list(pool.map(side.host, side.requests)) for side in sides] if any(list(asks)) else []
        except PorterError as error:
            if options.toolkit is not None:
                raise
            return error.diagnostic.message
        except OSError as error:
            return f"cannot write the files for the compiler: {error.strerror or error}"
    return [pair for made in (device, host) if made for pair in zip(*made, strict=True)]


@dataclass(frozen=True)
class _Side:
    """The files of one side in a tree, and what is asked of them: one request for each set of options."""

    tree: Tree
    requests: Sequence[CompileRequest]
    project: Path
    toolkit: Toolkit

    @classmethod
    def of(
        cls, root: Path, files: Mapping[str, bytes], arch: str, options: GateOptions, spare: Path, toolkit: Toolkit
    ) -> _Side:
        tree = write_tree(files, options.include_dirs, spare)
        whole = (replace(r, entry=None, template_args=()) for r in requests(root, options))
        asked = tuple(dict.fromkeys(request_in_tree(r, root, tree, arch) for r in whole))
        return cls(tree, asked, project_root(root), toolkit)

    def device(self, request: CompileRequest) -> list[Line]:
        return list(self._named(self._lines(request, False)))

    def host(self, request: CompileRequest) -> list[Line]:
        return list(self._named(self._lines(request, True)))

    def _lines(self, request: CompileRequest, host: bool) -> Sequence[Line]:
        return preprocess(request, [self.tree.base, self.project], host, self.toolkit)

    def _named(self, lines: Iterable[Line]) -> Iterator[Line]:
        keys = {str(self.tree.place(path)): name for path, name in self.tree.names.items()}
        base, tools = f"{self.tree.base}/", f"{self.toolkit.root}/"
        for path, line, text in lines:
            whole = os.path.normpath(path)
            if whole in keys or not whole.startswith((base, tools)):
                # texts name their own files where __FILE__ stands
                yield keys.get(whole, whole), line, text.replace(base, "")
