# SPDX-License-Identifier: Apache-2.0
"""What was captured of a program: its launches, its modules, and the launches that were left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.verify.program.kernel_facts import Dim

EVENTS = "events.jsonl"
COOPERATIVE = 2
"""CU_LAUNCH_ATTRIBUTE_COOPERATIVE (CUDA driver API, CUlaunchAttributeID)."""

REASONS = {
    "bytes": "it can reach {detail} bytes of memory, more than the limit (--max-bytes)",
    "busy": "the device could not be brought to a standstill before it",
    "copy": "memory that it can reach could not be copied",
    "cupti": "CUPTI does not start: {detail}",
    "disk": "its memory could not be written to a file",
    "driver": "the driver has no {detail}; one for CUDA 12.4 or newer is needed",
    "failed": "it failed with CUresult {detail}",
    "graph": "it was launched into a CUDA graph",
    "limit": "the limit on the number of launches was reached (--limit)",
    "parameters": "the driver does not tell its parameters",
    "nothing": "it changed no memory",
    "module": "no module that the program loaded holds it",
    "layout": "{detail}",
}
"""Why a launch is not recorded."""


@dataclass(frozen=True)
class Block:
    """An allocation that a kernel can reach: files of its bytes, `after` None if they did not change."""

    address: int
    size: int
    before: Path
    after: Path | None


@dataclass(frozen=True)
class CapturedLaunch:
    """One launch: grid in blocks, block in threads, `dynamic_smem` in bytes, `params` one item each.
    `attributes` are the CUlaunchAttributeID of those that were set, `image` is the kernel's module, where it is known
    which of those that have a kernel of this name."""

    kernel: str
    grid: Dim
    block: Dim
    cluster: Dim
    dynamic_smem: int
    params: tuple[bytes, ...]
    blocks: tuple[Block, ...]
    attributes: tuple[int, ...] = ()
    image: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Refusal:
    """A launch that was left out; `reason` is one of `REASONS`."""

    reason: str
    kernel: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        return REASONS.get(self.reason, self.reason).format(detail=self.detail)


@dataclass(frozen=True)
class Captured:
    """All of a program. `images` are its modules as they were loaded, `device` what it ran on."""

    launches: tuple[CapturedLaunch, ...]
    images: tuple[bytes, ...]
    refusals: tuple[Refusal, ...] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    exit_status: int = 0


def read_events(folder: Path) -> Captured:
    """What the processes of a program wrote below `folder`, each into a folder of its own. A last line that is
    cut off, as a crash leaves it, is passed over."""
    launches: list[CapturedLaunch] = []
    images: list[bytes] = []
    refusals: list[Refusal] = []
    device: Mapping[str, Any] = {}
    for log in sorted(folder.glob(f"*/{EVENTS}")):
        for line in log.read_text("utf-8", "replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            match event["event"]:
                case "launch":
                    launches.append(_launch(event, log.parent))
                case "image":
                    images.append((log.parent / event["file"]).read_bytes())
                case "image_file" if Path(event["path"]).is_file():
                    images.append(Path(event["path"]).read_bytes())
                case "refused":
                    refusals.append(Refusal(event["reason"], event["kernel"], event["detail"]))
                case "device":
                    device = {k: event[k] for k in ("name", "capability", "driver")}
    return Captured(tuple(launches), tuple(images), tuple(dict.fromkeys(refusals)), device)


def _launch(event: Mapping[str, Any], folder: Path) -> CapturedLaunch:
    def triple(name: str) -> Dim:
        x, y, z = event[name]
        return x, y, z

    return CapturedLaunch(
        kernel=event["kernel"],
        grid=triple("grid"),
        block=triple("block"),
        cluster=triple("cluster"),
        dynamic_smem=event["shared"],
        params=tuple(bytes.fromhex(p) for p in event["parameters"]),
        blocks=tuple(
            Block(b["address"], b["size"], folder / b["before"], folder / b["after"] if b["after"] else None)
            for b in event["blocks"]
        ),
        attributes=tuple(event["attributes"]),
    )
