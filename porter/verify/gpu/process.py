# SPDX-License-Identifier: Apache-2.0
"""The parent's side: starts the GPU process, limits its time, and turns its failures into exceptions."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from porter.diagnostics import Code, PorterError
from porter.verify.gpu.frames import FrameError, read_frame, write_frame

START_SECONDS = 120.0
CALL_SECONDS = 120.0


class GpuFailure(Exception):
    """A request failed; the next one finds a fresh process where the old one is gone.

    `code` and `values` make the diagnostic, `report` holds what the device wrote before it stopped.
    """

    def __init__(self, code: Code, detail: str = "", report: bytes = b"", **values: object) -> None:
        super().__init__(code.value.title.format(**values))
        self.code, self.values, self.detail, self.report = code, values, detail, report


@dataclass(frozen=True)
class GpuInfo:
    """`capability` like (9, 0); `driver` as cuDriverGetVersion gives it; `report` is the device address of
    memory that outlives a context."""

    name: str
    capability: tuple[int, int]
    driver: int
    multiprocessors: int
    memory: int
    report: int

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


class GpuProcess:
    """Requests to a GPU. The process starts with the first one."""

    def __init__(self, command: Sequence[str] | None = None, seconds: float = CALL_SECONDS) -> None:
        self._command = list(command or (sys.executable, "-m", "porter.verify.gpu.child"))
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._info: GpuInfo | None = None
        self.seconds = seconds

    def info(self) -> GpuInfo:
        """What GPU this is.

        Raises:
            PorterError: BACKEND_UNAVAILABLE with the reason.
            GpuFailure: the process ended or does not answer.
        """
        self._start()
        assert self._info is not None
        return self._info

    def call(
        self, op: str, payload: bytes = b"", seconds: float | None = None, **values: Any
    ) -> tuple[dict[str, Any], bytes]:
        """One request.

        Raises:
            GpuFailure: GPU_TIMEOUT, GPU_PROCESS_ENDED, GPU_ERROR, GPU_OUT_OF_MEMORY, GPU_REFUSED.
            PorterError: BACKEND_UNAVAILABLE.
        """
        process = self._start()
        limit = self.seconds if seconds is None else seconds
        assert process.stdin is not None
        try:
            write_frame(process.stdin, {"op": op, **values}, payload)
        except OSError:
            raise self._ended() from None
        head, data = self._read(process, limit)
        if head.get("ok"):
            return head, data
        if head.get("fatal"):
            self.close()
        raise _failure(op, head, data, values)

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process, self._info = self._process, None, None
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            if self._process.poll() is None:
                return self._process
            self.close()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            raise PorterError(Code.BACKEND_UNAVAILABLE, name="gpu", reason=error.strerror or str(error)) from None
        self._process = process
        head, _ = self._read(process, START_SECONDS)
        if not head.get("ok"):
            self.close()
            raise PorterError(Code.BACKEND_UNAVAILABLE, name="gpu", reason=head.get("unavailable", "no reason given"))
        self._info = GpuInfo(
            head["name"], (head["capability"][0], head["capability"][1]), head["driver"],
            head["multiprocessors"], head["memory"], head["report"],
        )  # fmt: skip
        return process

    def _read(self, process: subprocess.Popen[bytes], seconds: float) -> tuple[dict[str, Any], bytes]:
        assert process.stdout is not None
        stream = _Timed(process.stdout, seconds)
        try:
            return read_frame(stream)
        except TimeoutError:
            self.close()
            raise GpuFailure(Code.GPU_TIMEOUT, seconds=round(seconds, 1)) from None
        except (FrameError, OSError):
            raise self._ended() from None

    def _ended(self) -> GpuFailure:
        process = self._process
        status: int | str = "unknown"
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=5)
        output = self._output()
        self.close()
        return GpuFailure(Code.GPU_PROCESS_ENDED, output, status=status)

    def _output(self) -> str:
        """The end of what the process wrote to standard error."""
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4000))
        return self._errors.read().decode("utf-8", "replace")

    def __enter__(self) -> GpuProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Timed:
    """A pipe whose reads end with TimeoutError once the time is over."""

    def __init__(self, stream: IO[bytes], seconds: float) -> None:
        self._stream, self._until = stream, time.monotonic() + seconds

    def read(self, count: int) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0 or not select.select([self._stream], [], [], left)[0]:
            raise TimeoutError
        return os.read(self._stream.fileno(), min(count, 1 << 20))


def _failure(op: str, head: dict[str, Any], report: bytes, values: dict[str, Any]) -> GpuFailure:
    name, text = str(head.get("error", "")), str(head.get("text", ""))
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        return GpuFailure(Code.GPU_OUT_OF_MEMORY, size=values.get("size", "the"), what=values.get("name", op))
    if head.get("fatal"):
        return GpuFailure(Code.GPU_ERROR, report=report, error=text)
    return GpuFailure(Code.GPU_REFUSED, what=f"{op} ({head.get('call', '')})", error=text)
