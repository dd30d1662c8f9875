# SPDX-License-Identifier: Apache-2.0
"""What originals get away with and ports may not, as the compiler's PTX says it: blocks that may end while others of
their cluster still need them, and bulk stores of what other warps may not have written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from porter.build.entry import display_name, function_name
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.endings import Ending, endings
from porter.grade.unready import Unready as Store
from porter.grade.unready import unready
from porter.lang.closures import with_headers
from porter.lang.sources import is_python, read_source
from porter.passes.store_ready import Unready
from porter.verify.gate import GateOptions, requests

_MAY = re.compile(
    rb"mapa\b|multicast|map_shared_rank|cluster_map|ClusterBarrier|ClusterTransaction|PipelineTma|(?:st|red)[._]async|stmatrix",
    re.IGNORECASE,
)
"""What kernels with remote accesses, or matrices that warps store, have in their sources in one form or another; the
compiler tells them from others."""

_LONGEST = 80
"""Characters of a kernel's name in a message."""


def latent(files: Sequence[Path], options: GateOptions) -> tuple[frozenset[tuple[str, str]], Unready]:
    """The kernels of files, as (file, links followed, name), that may end too early and that can be given a cluster
    barrier; and bulk stores that lack a barrier. What cannot be compiled has none: the compile gate says so."""
    try:
        toolkit = find_toolkit(options.toolkit)
    except PorterError:
        return frozenset(), frozenset()
    wanted = [r for f in _suspects(files, options.include_dirs) for r in requests(f, options)]
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        found = list(pool.map(lambda request: _of(request, toolkit), wanted))
    ends = frozenset(
        (str(Path(end.file).resolve()), function_name(end.entry))
        for one, _ in found
        for end in one
        if end.file and not end.obstacle
    )
    stores = ((*store.lines, function_name(store.entry)) for _, one in found for store in one)
    return ends, frozenset((str(Path(file).resolve()), name, line, writer) for file, line, writer, name in stores)


def _suspects(files: Sequence[Path], include_dirs: Sequence[Path]) -> list[Path]:
    """The files that have remote accesses by their texts or those of their headers."""
    cuda = [f for f in files if not is_python(f)]
    told = {}
    _, closures = with_headers(cuda, include_dirs)
    for name in set().union(*closures.values()):
        with suppress(PorterError):
            told[name] = _MAY.search(read_source(Path(name))) is not None
    return [f for f in cuda if any(told.get(name) for name in closures.get(f.as_posix(), ()))]


def _of(request: CompileRequest, toolkit: Toolkit) -> _Read:
    with suppress(PorterError):
        return _read(compile_ptx(request, toolkit).ptx)
    return (), ()


_Read = tuple[tuple[Ending, ...], tuple[Store, ...]]


@lru_cache(maxsize=16)
def _read(ptx: str) -> _Read:
    return tuple(endings(ptx)), tuple(unready(ptx))


def named(ptx: str) -> Iterator[Diagnostic]:
    """What is said of kernels of a port that may end too early, or store too early, at places of the files that were
    compiled."""
    ends, stores = _read(ptx)
    for store in stores:
        file, line, _ = store.lines
        yield Diagnostic(Code.STORE_NOT_READY, Location(file, line), {"kernel": display_name(store.entry)[:_LONGEST]})
    for end in ends:
        # the kernel's own statement, whatever it calls
        place = list(end.loc.outwards())[-1] if end.loc is not None else None
        where = Location(place.file, place.line) if place is not None else None
        obstacle = f"; Porter adds none, as {end.obstacle}" if end.obstacle else ""
        if is_python(Path(end.file)):
            obstacle = "; in CuTe DSL it is `cute.arch.cluster_arrive()` and `cute.arch.cluster_wait()`"
        name = display_name(end.entry)
        name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
        yield Diagnostic(Code.BLOCK_ENDS_EARLY, where, {"kernel": name, "what": end.what, "obstacle": obstacle})
