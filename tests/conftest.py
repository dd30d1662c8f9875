# SPDX-License-Identifier: Apache-2.0
"""What tests need from the machine: a test that cannot run here is skipped with the reason, never passed. And where
they write."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# Kernels and references of the tests are Python that may run.
os.environ["PORTER_TRUST"] = "1"
# processes that run tests beside each other have a width, which output that is no terminal takes
os.environ.pop("COLUMNS", None)
# What is proved beside other checks has tests of its own.
os.environ["PORTER_PROVE_SECONDS"] = "0"
# Processes that tests start find Porter compiled, as where it is installed.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _missing_gpu() -> str | None:
    return None if shutil.which("nvidia-smi") else "no NVIDIA GPU on this machine"


def _missing_packages() -> str | None:
    if importlib.util.find_spec("cutlass_library") is None:
        return "the package nvidia-cutlass is not installed (pip install -e '.[external]')"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _spread(items)
    reasons = {"gpu": _missing_gpu(), "external": _missing_packages()}
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _spread(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `spread(n)` each n-th one is in every run, the others are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("spread")
        if marker is None or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        if seen[test] % marker.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[test] += 1


def pytest_collection_finish() -> None:
    """Thousands of tests are objects that stay: the collector need not go through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty directory whose path is the same in every run: compilers' results are kept by the paths of their
    sources, so what a test compiles here is compiled once. While another run is at the same test, one of pytest's."""
    test = f"{Path(__file__).parent}\0{request.node.nodeid}"
    home = Path(tempfile.gettempdir()).resolve() / f"porter-tests-{os.getuid()}"
    home = home / hashlib.sha256(test.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield tmp_path_factory.mktemp("beside")
            return
        try:
            directory = home / "test"
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700)
            yield directory
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
