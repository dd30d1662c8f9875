# SPDX-License-Identifier: Apache-2.0
"""Captures the launches of a program that runs on the simulator, which needs no GPU."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from porter.build.entry import demangle
from porter.diagnostics import Diagnostic
from porter.sim import GlobalMemory, Options
from porter.verify.capture.events import COOPERATIVE, Block, Captured, CapturedLaunch, Refusal
from porter.verify.capture.program import CaptureOptions
from porter.verify.layout import Area, Layout
from porter.verify.program import LaunchRecord, ProgramOptions, run_program
from porter.verify.program.runner import Enough

TABLE_BYTES = 1 << 20
"""Larger allocations hold data, not addresses."""


def capture_simulated(
    command: Sequence[str],
    folder: Path,
    options: CaptureOptions,
    target: str | None = None,
    multiprocessors: int = 8,
    runtime: Path | None = None,
) -> tuple[Captured, tuple[Diagnostic, ...]]:
    """Run `command` on the simulator, with the hardware's arithmetic; the files of its launches lie
    below `folder`. Also gives what the simulator could not answer.

    Raises:
        PorterError: what `porter.verify.program.run_program` raises.
    """
    recorder = _Recorder(folder, options)
    settings = ProgramOptions(
        simulator=Options(level="practice", arithmetic="exact", max_warp_instructions=options.budget),
        target=target,
        multiprocessors=multiprocessors,
        on_launch=recorder,
        runtime=runtime,
    )
    outcome = run_program(Path(command[0]), command[1:], settings)
    sys.stderr.write(outcome.stdout + outcome.stderr)
    captured = Captured(
        tuple(recorder.launches),
        tuple(dict.fromkeys(recorder.images)),
        tuple(dict.fromkeys(recorder.refusals)),
        {"name": "simulator"},
        outcome.exit_status,
    )
    return captured, outcome.diagnostics


class _Recorder:
    """Called before and after each launch."""

    def __init__(self, folder: Path, options: CaptureOptions) -> None:
        self.folder, self.options = folder, options
        self.launches: list[CapturedLaunch] = []
        self.images: list[bytes] = []
        self.refusals: list[Refusal] = []
        self._seen: set[object] = set()
        self._before: list[tuple[Area, bytes]] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, when: Literal["before", "after"], launch: LaunchRecord, memory: GlobalMemory) -> None:
        if when == "before":
            self._before = self._begin(launch, memory)
        elif self._before is not None:
            self._end(launch, memory, self._before)
            if self.options.stops and len(self.launches) + len(self.refusals) >= self.options.limit:
                raise Enough

    def _begin(self, launch: LaunchRecord, memory: GlobalMemory) -> list[tuple[Area, bytes]] | None:
        wanted = re.compile(self.options.kernel)
        if not wanted.search(launch.kernel) and not wanted.search(demangle(launch.kernel)):
            return None
        if len(self.launches) >= self.options.limit:
            self.refusals.append(Refusal("limit", launch.kernel))
            return None
        reached = _reached(launch, memory)
        total = sum(a.size for a in reached)
        if total > self.options.max_bytes:
            self.refusals.append(Refusal("bytes", launch.kernel, str(total)))
            return None
        key = (launch.kernel, launch.grid, launch.block, launch.cluster, launch.dynamic_smem, launch.params)
        if key in self._seen:
            return None
        self._seen.add(key)
        return [(a, memory.read(a.address, a.size).tobytes()) for a in reached]

    def _end(self, launch: LaunchRecord, memory: GlobalMemory, before: list[tuple[Area, bytes]]) -> None:
        if launch.outcome is None or launch.outcome.status != "ok":
            status = launch.outcome.status if launch.outcome else "none"
            self.refusals.append(Refusal("layout", launch.kernel, f"its run on the simulator ended with: {status}"))
            return
        blocks = []
        for number, (area, data) in enumerate(before):
            name = f"{len(self.launches)}.{number}"
            first, second = self.folder / f"{name}.before", self.folder / f"{name}.after"
            first.write_bytes(data)
            after = memory.read(area.address, area.size).tobytes()
            if after != data:
                second.write_bytes(after)
            blocks.append(Block(area.address, area.size, first, second if after != data else None))
        image = launch.ptx.encode("utf-8", "surrogateescape")
        self.images.append(image)
        self.launches.append(
            CapturedLaunch(
                launch.kernel, launch.grid, launch.block, launch.cluster, launch.dynamic_smem, launch.params,
                tuple(blocks), (COOPERATIVE,) if launch.cooperative else (), image,
            )
        )  # fmt: skip


def _reached(launch: LaunchRecord, memory: GlobalMemory) -> list[Area]:
    """The allocations that the parameters lead to, in the order in which they are met."""
    layout = Layout([Area(str(a), a, size) for a, size in launch.allocations], lambda number: str(number))
    found: dict[str, Area] = {}
    left = list(launch.params)
    while left:
        data = left.pop(0)
        for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
            area = layout.area(word)
            if area is not None and area.tensor not in found:
                found[area.tensor] = area
                if area.size <= TABLE_BYTES:
                    left.append(memory.read(area.address, area.size).tobytes())
    return list(found.values())
