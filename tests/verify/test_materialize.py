# SPDX-License-Identifier: Apache-2.0
"""Files of ports below the cache."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from porter.build.port_plan import PortPlan, materialize

THREADS = 8


def test_threads_may_write_the_same_port_at_once(tmp_path: Path) -> None:
    kernel = tmp_path / "k.cu"
    together = threading.Barrier(THREADS)

    def write(turn: int) -> Path:
        together.wait()
        return materialize(PortPlan(files={str(kernel): f"// {turn}\n".encode() * 10000}), kernel, tmp_path / "ports")

    with ThreadPoolExecutor(THREADS) as pool:
        for turn in range(40):
            written = set(pool.map(write, [turn] * THREADS))
            assert len(written) == 1
            assert written.pop().read_text().startswith(f"// {turn}\n")
