# SPDX-License-Identifier: Apache-2.0
"""A kit as an archive: the launcher, what it runs, and a manifest with the checksum of every file."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.build.cache import default_directory, digest
from porter.build.toolchain import Toolkit, find_host_compiler
from porter.diagnostics import Code, PorterError
from porter.verify.images import Image
from porter.verify.kit.bare import BareRun
from porter.verify.kit.plan import PROBE, KitRun, facts_of, map_words, parameter_words

VERSION = 1
SOURCE = Path(__file__).parent / "launcher.cpp"
_FLAGS = ("-std=c++17", "-O1", "-fdata-sections", "-ffunction-sections", "-Wl,--gc-sections", "-s", "-static-libstdc++",
          "-static-libgcc")  # fmt: skip
_README = """\
This archive runs GPU kernels and writes down what they computed. It needs a Linux machine (x86-64, glibc 2.35 or
newer) with an NVIDIA GPU of compute capability 9.0, 10.0, 10.3 or 11.0 and its driver; no CUDA toolkit, no Python, no
network, no root.

    ./run.sh                 # some seconds; writes record.txt here

Send back record.txt. It holds the name of the GPU, the version of the driver, the clock, and of every run a checksum of
each output and the time it took: nothing else of the machine. Whoever made the kit checks it with

    porter verify PATH --against record.txt
"""
_SCRIPT = """\
#!/bin/sh
# Runs what is for this machine's GPU and writes a record.
cd "$(dirname "$0")" && exec ./launcher . "${1:-record.txt}"
"""


@dataclass(frozen=True)
class Kit:
    """A written kit: its ID and how many runs are for which GPUs."""

    id: str
    runs: dict[str, int]
    files: int
    nbytes: int


def build_launcher(toolkit: Toolkit, cache: Path | None = None) -> Path:
    """The launcher, built into the cache directory unless it is there.

    Raises:
        PorterError: KIT_LAUNCHER; NO_HOST_COMPILER.
    """
    compiler = str(find_host_compiler().path)
    header = toolkit.include_dir / "cuda.h"
    if not header.is_file():
        raise PorterError(Code.KIT_LAUNCHER, reason=f"there is no {header}")
    key = digest([SOURCE.read_bytes(), header.read_bytes(), compiler, *_FLAGS])
    built = (cache or default_directory()) / "kit" / key / "launcher"
    if not built.is_file():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            target = Path(scratch) / built.name
            command = [compiler, *_FLAGS, f"-I{toolkit.include_dir}", str(SOURCE), "-o", str(target), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"{compiler} failed with exit status {done.returncode}"
                raise PorterError(Code.KIT_LAUNCHER, detail=done.stderr, reason=reason)
            os.replace(target, built)
    return built


def write_kit(
    runs: Sequence[KitRun], launcher: bytes, target: Path, tell: Callable[[str], None] | None = None,
    bare: Sequence[BareRun] = (),
) -> Kit:  # fmt: skip
    """Write the archive. What every run should give is computed here, on the simulator, and of those without a case
    known.

    Raises:
        PorterError: KIT_RUN, WRITE_FAILED.
    """
    files: dict[str, bytes] = {"launcher": launcher, "run.sh": _SCRIPT.encode(), "README": _README.encode(),
                               "launcher.cpp": SOURCE.read_bytes()}  # fmt: skip
    lines: list[str] = []
    facts: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        if tell is not None:
            tell(f"{run.label}: what it should give")
        expected = run.expected()
        lines += _lines(number, run, expected, files)
        facts.append({"number": number, **facts_of(run), "expected": expected})
    for number, one in enumerate(bare, len(runs)):
        lines += _bare_lines(number, one, files)
        facts.append({"number": number, **one.facts(), "expected": one.expected()})
    files["runs.json"] = (json.dumps({"porter-kit": VERSION, "runs": facts}, indent=1) + "\n").encode()
    sums = [f"file {hashlib.sha256(data).hexdigest()} {name}" for name, data in sorted(files.items())]
    body = "\n".join([*sums, *lines]) + "\n"
    identity = hashlib.sha256(body.encode()).hexdigest()[:32]
    files["manifest"] = f"porter-kit {VERSION}\nkit {identity}\n{body}".encode()
    try:
        with tarfile.open(target, "w") as archive:
            for name, data in sorted(files.items()):
                member = tarfile.TarInfo(f"kit/{name}")
                member.size, member.mode = len(data), 0o755 if name in ("launcher", "run.sh") else 0o644
                archive.addfile(member, io.BytesIO(data))
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=target, reason=error.strerror or str(error)) from None
    counts: dict[str, int] = {}
    for capability in (*(r.capability for r in runs), *(r.capability for r in bare)):
        counts[capability] = counts.get(capability, 0) + 1
    return Kit(identity, counts, len(files), sum(map(len, files.values())))


def _kind(run: KitRun, image: Image) -> str:
    """Whether a tensor is compared, and whether the record has its bytes too: the first of every row of a probe."""
    if not image.tensor.is_output:
        return "in"
    return "probe" if run.program == PROBE else "out"


def _stored(files: dict[str, bytes], folder: str, data: bytes, ending: str) -> str:
    name = f"{folder}/{hashlib.sha256(data).hexdigest()[:24]}.{ending}"
    files[name] = data
    return name


def _bare_lines(number: int, run: BareRun, files: dict[str, bytes]) -> list[str]:
    found: list[tuple[object, ...]] = [("run", number, run.capability, run.source, run.inputs, run.label)]
    found += run.lines(_stored(files, "images", run.image, "cubin"))
    found += [("expect", name, checksum) for name, checksum in run.expected().items()]
    return [" ".join(map(str, words)) for words in found]


def _lines(number: int, run: KitRun, expected: dict[str, str], files: dict[str, bytes]) -> list[str]:
    """What the launcher reads of a run; its files join `files`."""

    launch = run.launch
    found: list[tuple[object, ...]] = [("run", number, run.capability, run.source, run.inputs, run.label)]
    found.append(("image", _stored(files, "images", run.image, "cubin"), run.kernel.entry))
    found.append(("launch", *launch.grid, *launch.block, *launch.cluster, launch.dynamic_smem, int(launch.cooperative)))
    if run.emulate:
        found.append(("emulate", *run.emulate))
    for name, image in run.images.items():
        holds = image.tensor.is_input or image.tensor.fill is not None
        data = image.data.tobytes()
        place = _stored(files, "inputs", data, "bin") if holds else "-"
        found.append(("tensor", name, len(data), place, _kind(run, image)))
    found += [("map", *words) for words in map_words(run)]
    found += [("param", *words) for words in parameter_words(run)]
    found += [("expect", name, checksum) for name, checksum in expected.items()]
    return [" ".join(map(str, words)) for words in found]
