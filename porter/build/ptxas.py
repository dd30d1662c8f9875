# SPDX-License-Identifier: Apache-2.0
"""Assembling PTX with ptxas: what each kernel needs, and what ptxas warns about."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from porter.build.cache import Cache, digest
from porter.build.run import failure, messages, run
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Location, PorterError
from porter.ptx.occupancy import Taken

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)$")
TMEM_CHECK = "--g-tensor-memory-access-check"
"""Of CUDA 13: code that traps at accesses to columns that are not allocated, which `-g` has too."""
_WARNING = re.compile(r"^ptxas (?:.*; )?(?:warning\s*:|info\s*: \(C\d+\))\s*.*$")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes: registers per thread, bytes per thread of spills and stack, bytes per block of
    statically declared shared memory, named barriers, and bytes of each constant bank in use."""

    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    static_smem: int = 0
    barriers: int = 0
    cmem: dict[int, int] = field(default_factory=dict)

    @property
    def taken(self) -> Taken:
        """What a block takes of an SM, but for what its launch says."""
        return Taken(registers=self.registers, barriers=self.barriers)


@dataclass(frozen=True)
class Assembled:
    """`resources` by mangled entry name; `warnings` as ptxas words them, the losses of `wgmma` and
    `setmaxnreg` included; `cubin` is the object."""

    resources: dict[str, Resources]
    warnings: tuple[str, ...]
    log: str
    cubin: bytes = field(default=b"", repr=False)


def assemble(
    toolkit: Toolkit,
    ptx: str,
    arch: str,
    *,
    name: str = "kernel",
    flags: tuple[str, ...] = (),
    cache: Cache | None = None,
) -> Assembled:
    """Assemble a PTX module for `arch` (`sm_90a`, `sm_100a`); without `cache` through the user's.

    Raises:
        PorterError: PTXAS_ERROR with the line of the source or the PTX and ptxas's text; TOOL_MISSING;
            COMPILER_TIMEOUT.
    """
    cache = cache or Cache.default()
    if toolkit.tmem_check and "tcgen05." in ptx:
        flags = (*flags, TMEM_CHECK)
    key = digest(["ptxas 1", toolkit.build, str(toolkit.ptxas), arch, *flags, "", ptx])
    if (hit := _load(cache, key)) is not None:
        return hit
    with tempfile.TemporaryDirectory(prefix="porter-") as directory:
        # ptxas names the file in its messages.
        source = Path(directory) / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.ptx"
        target = source.with_suffix(".cubin")
        source.write_text(ptx, encoding="utf-8", errors="surrogateescape")
        done = run([toolkit.ptxas, "-v", f"-arch={arch}", *flags, source.name, "-o", target.name], cwd=source.parent)
        if done.status != 0:
            raise refusal(done.log, ptx, arch)
        result = Assembled(*parse_log(done.log), done.log, target.read_bytes())
    _store(cache, key, result)
    return result


def refusal(log: str, ptx: str, arch: str) -> PorterError:
    """The PTXAS_ERROR for what ptxas said about `ptx`, placed in the CUDA source where the PTX has line
    information, else in the PTX."""
    first = next((m for m in messages(log) if m.kind == "error" and m.where is not None), None)
    where = None
    if first is not None and first.where is not None:
        where = _source_of(ptx, first.where.line) or first.where
    return failure(Code.PTXAS_ERROR, log, where, arch=arch)


def _source_of(ptx: str, line: int) -> Location | None:
    """Where in the source the instruction on a 1-based line of the PTX comes from."""
    lines = ptx.splitlines()
    for text in reversed(lines[:line]):
        if re.match(r"\s*(?:\.visible\s+|\.weak\s+)?\.(?:entry|func)\b", text):
            return None
        if position := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)", text):
            file = re.search(rf'^\s*\.file\s+{position.group(1)}\s+"([^"]+)"', ptx, re.MULTILINE)
            if file is None or position.group(2) == "0":
                return None
            return Location(file.group(1), int(position.group(2)), int(position.group(3)))
    return None


def parse_log(log: str) -> tuple[dict[str, Resources], tuple[str, ...]]:
    """(resources by entry, warnings) of `ptxas -v`."""
    resources: dict[str, Resources] = {}
    warnings: list[str] = []
    entry: str | None = None
    subject: str | None = None
    stack = (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack = match.group(1), (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            subject = match.group(1)
        elif match := _STACK.search(line):
            if subject == entry:
                stack = (int(match.group(1)), int(match.group(2)), int(match.group(3)))
        elif (match := _USED.search(line)) and entry is not None:
            rest = match.group(2)
            resources[entry] = Resources(
                registers=int(match.group(1)),
                stack=stack[0],
                spill_stores=stack[1],
                spill_loads=stack[2],
                static_smem=_number(r"(\d+) bytes smem", rest),
                barriers=_number(r"used (\d+) barriers", rest),
                cmem={int(b): int(n) for n, b in re.findall(r"(\d+) bytes cmem\[(\d+)\]", rest)},
            )
        if _WARNING.match(line):
            warnings.append(re.sub(r"^ptxas\s*(?:(?:info|warning)\s*:\s*)?", "", line).strip())
    return resources, tuple(dict.fromkeys(warnings))


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 0


def _load(cache: Cache, key: str) -> Assembled | None:
    stored, cubin = cache.get(key), cache.get(digest([key, "cubin"]))
    if stored is None or cubin is None:
        return None
    try:
        data = json.loads(stored)
        resources = {
            name: Resources(**{**values, "cmem": {int(b): n for b, n in values["cmem"].items()}})
            for name, values in data["resources"].items()
        }
        return Assembled(resources, tuple(data["warnings"]), data["log"], cubin)
    except (ValueError, KeyError, TypeError):
        return None


def _store(cache: Cache, key: str, result: Assembled) -> None:
    data = {
        "resources": {name: asdict(r) for name, r in result.resources.items()},
        "warnings": result.warnings,
        "log": result.log,
    }
    cache.put(digest([key, "cubin"]), result.cubin)
    cache.put(key, json.dumps(data).encode())
