# SPDX-License-Identifier: Apache-2.0
"""Which public kernels of CuTe C++ come out in SM100's own words, and of the others which fact is missing.

    python scripts/public_cute.py -I cutlass/include colfax/pipeline-gemm FlashMLA/csrc > docs/results/public-cute.txt

Takes files and folders, of which each file ending in `.cu` is ported whose sources have a TiledMMA of Hopper. The C++
compiler is asked for types, and compiles the port for sm_100a (not with `--text`); nothing is run. Whether a port is
given is what `porter port` says further, by PTX and runs. Needs the CUDA compiler that Porter finds; no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from porter.diagnostics import Code, PorterError, Severity
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.verify.builder import PORT_ARCH
from porter.verify.gate import GateOptions
from porter.verify.types import types_of

_HOPPER = (b"SM90_64x", b"_op_selector", b"warpgroup_arrive", b"MMA_64x")


class Row(NamedTuple):
    """A file: the modes of its kernels (W, W', P), or what keeps them from SM100's own words, with what the compiler
    says of the port, where it is asked."""

    path: str
    modes: tuple[str, ...] = ()
    missing: str = ""

    def __str__(self) -> str:
        missing = " ".join(self.missing.split())
        return f"{self.path}: {' '.join(self.modes) if not self.missing else f'no: {missing}'}"


def rows(paths: Sequence[Path], asking: GateOptions, compiles: bool = True, jobs: int = 1) -> Iterator[Row]:
    """Of each file in its order, `jobs` at once."""
    files = [(given, path) for given in paths for path in (sorted(given.rglob("*.cu")) if given.is_dir() else [given])]
    names = [str(path.relative_to(given.parent if given.is_dir() else path.parent)) for given, path in files]
    of = partial(row_of, asking=asking, compiles=compiles)
    if jobs == 1:
        yield from filter(None, map(of, names, (path for _, path in files)))
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from filter(None, pool.map(of, names, [path for _, path in files]))


def row_of(name: str, path: Path, asking: GateOptions, compiles: bool) -> Row | None:
    """None: nothing in the file's sources multiplies by a TiledMMA of Hopper."""
    try:
        sources = load_sources(path, asking.include_dirs)
        if not any(word in file.source for file in sources.files.values() for word in _HOPPER):
            return None
        result = port_sources(sources, PortOptions(full_rate=True, types=partial(types_of, asking)))
    except PorterError as error:
        return Row(name, missing=error.diagnostic.message)
    modes = tuple(p.mode for p in result.plans if p.mode)
    if modes:
        return Row(name, modes, _refused(path, result, asking) if compiles else "")
    left = [str(d.values["what"]) for d in result.diagnostics if d.code is Code.IDIOM_LEFT]
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    return Row(name, missing=next(iter([*left, *errors]), "no kernel that multiplies"))


def _refused(path: Path, result: PortResult, asking: GateOptions) -> str:
    """Why a port is none for sm_100a; empty where the compiler makes tcgen05 of it."""
    made = types_of(asking, str(path), result.files, (), PORT_ARCH)
    if isinstance(made, str):
        return f"the compiler refuses the port: {made}"
    return "" if any("tcgen05.mma" in ptx for ptx in made) else "the port has no MMA"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("-I", dest="include_dirs", action="append", default=[], type=Path, metavar="DIR")
    parser.add_argument("--nvcc-flag", dest="flags", action="append", default=[], metavar="FLAG")
    parser.add_argument("--text", action="store_true", help="Do not compile ports.")
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="Files at once.")
    given = parser.parse_args()
    found = []
    asking = GateOptions(tuple(given.include_dirs), (), tuple(given.flags))
    for row in rows(given.paths, asking, not given.text, given.jobs):
        print(row, flush=True)
        found.append(row)
    print(f"{sum(not r.missing for r in found)} of {len(found)} in SM100's own words")


if __name__ == "__main__":
    main()
