# SPDX-License-Identifier: Apache-2.0
"""What originals get away with and ports may not, as the compiler's PTX says it: blocks that may end while others of
their cluster still need them, and bulk stores of what other warps may not have written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from porter.build.entry import display_name, function_name
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.endings import Ending, endings, readings
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


def latent(files: Sequence[Path], options: GateOptions) -> tuple[frozenset[tuple[str, str]], Unready]:
    """The kernels of files, as (file, links followed, name), that may end too early and that can be given a cluster
    barrier; and bulk stores that lack a barrier. What cannot be compiled has none: the compile gate says so."""
    try:
        toolkit = find_toolkit(options.toolkit)
    except PorterError:
        return frozenset(), frozenset()
    wanted = [r for f in _suspects(files, options.include_dirs) for r in requests(f, options)]
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        texts = list(pool.map(lambda request: _ptx(request, toolkit), wanted))
    early = _places(end for text in texts for end in endings(text))
    # every kernel that a template makes gets it
    hanging = _places(one for text in texts for one in readings(text) if one.obstacle) if early else frozenset()
    return early - hanging, frozenset(
        (str(Path(file).resolve()), function_name(store.entry), line, writer)
        for text in texts
        for store in unready(text)
        for file, line, writer in (store.lines,)
    )


def _places(kernels: Iterable[Ending]) -> frozenset[tuple[str, str]]:
    return frozenset((str(Path(k.file).resolve()), function_name(k.entry)) for k in kernels if k.file)


def _suspects(files: Sequence[Path], include_dirs: Sequence[Path]) -> list[Path]:
    """The files that have remote accesses by their texts or those of their headers."""
    cuda = [f for f in files if not is_python(f)]
    told = {}
    _, closures = with_headers(cuda, include_dirs)
    for name in set().union(*closures.values()):
        with suppress(PorterError):
            told[name] = _MAY.search(read_source(Path(name))) is not None
    return [f for f in cuda if any(told.get(name) for name in closures.get(f.as_posix(), ()))]


def _ptx(request: CompileRequest, toolkit: Toolkit) -> str:
    with suppress(PorterError):
        return compile_ptx(request, toolkit).ptx
    return ""


def named(ptx: str) -> Iterator[Diagnostic]:
    """What is said of kernels of a port that may end too early, or store too early, at places of the files that were
    compiled."""
    for store in unready(ptx):
        file, line, _ = store.lines
        yield Diagnostic(Code.STORE_NOT_READY, Location(file, line), {"kernel": display_name(store.entry)})
    for end in endings(ptx):
        # the kernel's own statement, whatever it calls
        place = list(end.loc.outwards())[-1] if end.loc is not None else None
        where = Location(place.file, place.line) if place is not None else None
        obstacle = f"; Porter adds none, as {end.obstacle}" if end.obstacle else ""
        if is_python(Path(end.file)):
            obstacle = "; in CuTe DSL it is `cute.arch.cluster_arrive()` and `cute.arch.cluster_wait()`"
        name = display_name(end.entry)
        yield Diagnostic(Code.BLOCK_ENDS_EARLY, where, {"kernel": name, "what": end.what, "obstacle": obstacle})
