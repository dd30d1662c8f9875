# SPDX-License-Identifier: Apache-2.0
"""What this machine has, and what each missing part disables."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import porter
from porter.build.cache import default_directory
from porter.build.dsl import NEWEST, OLDEST, PACKAGE, dsl_untested
from porter.build.toolchain import find_host_compiler, search_toolkits
from porter.diagnostics import PorterError
from porter.verify.capture.library import find_cupti
from porter.verify.gpu.process import GpuFailure, GpuProcess


@dataclass(frozen=True)
class Probe:
    """One thing looked for. `needed_for` is what does not work without it; `required` says whether the
    default commands (scan, port, build, verify on the simulator) need it."""

    name: str
    found: bool
    what: str
    needed_for: str
    required: bool = False


def probe(toolkit: Path | None = None) -> list[Probe]:
    """Everything that Porter may use, in order of need."""
    return [
        Probe("porter", True, f"{porter.__version__}, Python {platform.python_version()}", "all", True),
        *_toolkits(toolkit),
        _guarded("host compiler", _host_compiler, "build, verify", True),
        _dsl("CuTe DSL kernels: build, verify"),
        _guarded("GPU", _gpu, "verify on a GPU (the simulator needs none)", False),
        _package("cuda-bindings", "verify on a GPU"),
        *_backends(),
        _guarded("CUPTI", lambda: _cupti(toolkit), "capture from programs on a GPU", False),
        _package("lz4", "programs and libraries whose images are compressed", extra="binaries"),
        _package("zstandard", "programs and libraries whose images are compressed", extra="binaries"),
        _package("mcp", "porter mcp", extra="mcp"),
        Probe("git", shutil.which("git") is not None, shutil.which("git") or "not on PATH",
              "port --apply without --allow-dirty"),
        Probe("cache", True, str(default_directory()), "fast rebuilds"),
    ]  # fmt: skip


def _toolkits(explicit: Path | None) -> list[Probe]:
    """One row per place; only the first usable one is used, the others say why they were passed over."""
    rows: list[Probe] = []
    chosen = False
    for attempt in search_toolkits(explicit):
        if attempt.toolkit is None:
            if not chosen:
                place = f" ({attempt.place})" if attempt.place else ""
                rows.append(Probe(f"CUDA: {attempt.origin}", False, f"{attempt.reason}{place}", ""))
            continue
        what = attempt.toolkit.name + (" (not used: an earlier one is)" if chosen else "")
        rows.append(Probe(f"CUDA: {attempt.origin}", True, what, "build, verify"))
        chosen = True
    summary = "the first found is used" if chosen else "none found (pip install 'porter-sm100[cuda]')"
    return [*rows, Probe("CUDA compiler", chosen, summary, "build, verify", True)]


def _guarded(name: str, look: Callable[[], str | None], needed_for: str, required: bool) -> Probe:
    try:
        found = look()
    except PorterError as error:
        return Probe(name, False, error.diagnostic.message, needed_for, required)
    return Probe(name, found is not None, found or "none found", needed_for, required)


def _host_compiler() -> str:
    host = find_host_compiler()
    return f"{host.path} ({host.version})"


def _package(name: str, needed_for: str, extra: str = "") -> Probe:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        wanted = f"'{porter.__distribution__}[{extra}]'" if extra else name
        return Probe(name, False, f"not installed (pip install {wanted})", needed_for)
    return Probe(name, True, version, needed_for)


def _dsl(needed_for: str) -> Probe:
    """CuTe DSL, and whether the version is one of those that are tested."""
    found = _package(PACKAGE, needed_for)
    if not found.found:
        return found
    note = dsl_untested()
    tested = f"{OLDEST} to {NEWEST} are tested"
    return replace(found, what=f"{found.what} ({tested}{'' if note is None else ': this one is not'})")


def _backends() -> list[Probe]:
    """What runs here, as the process that talks to the GPU finds it."""
    originals, ports = "verify: originals (sm_90a) on Hopper, ports (sm_100a) on Blackwell", "verify: ports on Hopper"
    try:
        with GpuProcess() as process:
            info = process.info()
    except PorterError as error:
        reason = str(error.diagnostic.values["reason"])
        return [Probe("driver", False, reason, "verify on a GPU"), Probe("backend gpu", False, reason, originals),
                Probe("backend hopper", False, reason, ports)]  # fmt: skip
    except GpuFailure as failure:
        return [Probe("driver", False, str(failure), "verify on a GPU")]
    version = f"CUDA {info.driver // 1000}.{info.driver % 1000 // 10}"
    native = {9: "originals, natively", 10: "ports, natively"}.get(info.capability[0])
    hopper = info.capability[0] == 9
    return [
        Probe("driver", True, version, "verify on a GPU"),
        Probe(
            "backend gpu", native is not None, f"{info.name} ({info.arch}): {native or 'neither runs on it'}", originals
        ),
        Probe("backend hopper", hopper, f"{info.name}: {'ports, emulated' if hopper else 'no Hopper GPU'}", ports),
    ]


def _cupti(toolkit: Path | None) -> str | None:
    found = next((a.toolkit for a in search_toolkits(toolkit) if a.toolkit is not None), None)
    return str(find_cupti(found))


def _gpu() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return "; ".join(lines) if done.returncode == 0 and lines else None


def is_usable(probes: Sequence[Probe]) -> bool:
    """Whether everything that the default commands need is there."""
    return all(p.found for p in probes if p.required)
