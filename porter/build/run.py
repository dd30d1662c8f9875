# SPDX-License-Identifier: Apache-2.0
"""Running a compiler and turning what it says into messages with places."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError

TIMEOUT = 1800
"""Seconds that one compiler run may take; heavy CuTe kernels need minutes on a slow machine."""

_MESSAGE = (
    # nvcc's front end: file.cu(12): error: text
    re.compile(
        r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
        r"(?P<kind>(?:catastrophic )?error|warning)(?: #\S+)?: (?P<text>.*)$"
    ),
    # gcc: file.cu:12:3: error: text
    re.compile(
        r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
        r"(?P<kind>(?:fatal )?error|warning): (?P<text>.*)$"
    ),
    # ptxas file.ptx, line 12; error   : text
    re.compile(r"^ptxas (?P<file>.+), line (?P<line>\d+); (?P<kind>error|warning)\s*: (?P<text>.*)$"),
    re.compile(r"^At end of source: (?P<kind>error): (?P<text>.*)$"),
    re.compile(r"^(?:nvcc|ptxas|nvlink|cicc|cudafe\+\+) ?(?P<kind>fatal|error|warning)\s*: (?P<text>.*)$"),
    re.compile(r"^(?:\S*/)?ld: (?P<kind>)(?P<text>.*)$"),
)


_OF_ANOTHER_CHIP = re.compile(
    r"(?:Instruction|Feature) '[^']+' (?:not supported on \.target|cannot be compiled for architecture) '"
)


@dataclass(frozen=True)
class CompilerMessage:
    """One line of a compiler: `kind` is `error` or `warning`."""

    kind: str
    text: str
    where: Location | None = None


@dataclass(frozen=True)
class Run:
    status: int
    stdout: str
    stderr: str

    @property
    def log(self) -> str:
        return "\n".join(part.strip("\n") for part in (self.stdout, self.stderr) if part.strip())


def run(command: Sequence[str | Path], *, cwd: Path | None = None, timeout: float = TIMEOUT) -> Run:
    """Run a compiler with messages in English.

    Raises:
        PorterError: TOOL_MISSING if it cannot be started, COMPILER_TIMEOUT after `timeout` seconds.
    """
    words = [str(word) for word in command]
    environment = {**os.environ, "LC_ALL": "C"}
    # Options that the user keeps for nvcc's own builds would change what is compared.
    for variable in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        environment.pop(variable, None)
    try:
        done = subprocess.run(
            words, capture_output=True, cwd=cwd, env=environment, timeout=timeout, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise PorterError(Code.COMPILER_TIMEOUT, tool=Path(words[0]).name, seconds=int(timeout)) from None
    except OSError as error:
        raise PorterError(Code.TOOL_MISSING, tool=Path(words[0]).name, place=error.strerror or str(error)) from None
    return Run(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def messages(log: str) -> list[CompilerMessage]:
    """The errors and warnings in a compiler's output, in order."""
    found: list[CompilerMessage] = []
    for line in log.splitlines():
        for pattern in _MESSAGE:
            match = pattern.match(line)
            if match is None:
                continue
            values = match.groupdict()
            kind = "warning" if values["kind"] == "warning" else "error"
            where = None
            if values.get("file"):
                where = Location(values["file"], int(values["line"]), int(values.get("column") or 0))
            found.append(CompilerMessage(kind, values["text"].strip(), where))
            break
    return found


_NOT_FOUND = re.compile(r"([^\s:]+): No such file or directory")


def missing_header_hint(log: str) -> str:
    """What to do about a header that a compiler did not find; empty where it found all."""
    found = _NOT_FOUND.search(log)
    if found is None:
        return ""
    return f"{found[1]} was not found: name its directory with `-I DIR`, or build files that name it (docs/projects.md)"


def failure(code: Code, log: str, where: Location | None = None, **values: object) -> PorterError:
    """The error for a compiler that refused: the first error's place and text, the whole log as detail.

    `where` takes the place of the compiler's own. The code's title gets `text` besides `values`.
    """
    errors = [m for m in messages(log) if m.kind == "error"]
    first = errors[0] if errors else None
    lines = [line for line in log.splitlines() if line.strip()]
    text = first.text if first else (lines[-1].strip() if lines else "no message")
    detail = "\n".join(part for part in (log.rstrip("\n"), missing_header_hint(log)) if part)
    return PorterError(code, where or (first.where if first else None), detail=detail, text=text, **values)


def instructions_of_another_chip(log: str) -> list[str]:
    """The instructions that ptxas says its target has not, each once; empty if it refused anything else.

    ptxas says of each use of such an instruction that it is not supported, and so of each of its features.
    """
    errors = [m.text for m in messages(log) if m.kind == "error" and not m.text.startswith("Ptx assembly aborted")]
    if not all(_OF_ANOTHER_CHIP.match(text) for text in errors):
        return []
    return list(dict.fromkeys(name for text in errors for name in re.findall(r"^Instruction '([^']+)'", text)))
