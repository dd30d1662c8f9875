# SPDX-License-Identifier: Apache-2.0
"""The GPU process: every way it can fail becomes a diagnostic, and the parent goes on."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.hopper import TrapReport
from porter.verify.gpu.frames import FrameError, read_frame, write_frame
from porter.verify.gpu.process import GpuFailure, GpuProcess

CHILD = str(Path(__file__).parent / "fake_gpu_child.py")
LAUNCH = {
    "module": 1, "entry": "kernel", "grid": [1, 1, 1], "block": [32, 1, 1], "cluster": [1, 1, 1], "shared": 0,
    "parameters": [8],
}  # fmt: skip


@contextmanager
def gpu(behaviour: str) -> Iterator[GpuProcess]:
    with GpuProcess([sys.executable, CHILD, behaviour]) as process:
        yield process


def launch(process: GpuProcess, seconds: float = 30.0) -> tuple[int, dict[str, object]]:
    at = int(process.call("allocate", size=16)[0]["address"])
    process.call("load", b"image")
    head, _ = process.call("launch", at.to_bytes(8, "little"), seconds, **LAUNCH)
    return at, head


def test_frames_come_back_as_they_went() -> None:
    stream = io.BytesIO()
    write_frame(stream, {"op": "write", "n": 3}, b"\0\1\2")
    stream.seek(0)
    assert read_frame(stream) == ({"op": "write", "n": 3}, b"\0\1\2")
    with pytest.raises(FrameError):
        read_frame(stream)


def test_a_launch_runs_and_memory_comes_back() -> None:
    with gpu("good") as process:
        assert process.info().arch == "sm_90"
        at, head = launch(process)
        assert head["milliseconds"] == 1.25
        assert process.call("read", address=at, size=16)[1] == bytes([7]) * 16


def test_no_gpu_is_said() -> None:
    with gpu("unavailable") as process, pytest.raises(PorterError) as raised:
        process.info()
    assert raised.value.diagnostic.code is Code.BACKEND_UNAVAILABLE
    assert "no NVIDIA GPU" in raised.value.diagnostic.message


def test_a_hang_ends_at_the_limit_and_the_next_call_works() -> None:
    with gpu("hang") as process:
        with pytest.raises(GpuFailure) as raised:
            launch(process, seconds=0.3)
        assert raised.value.code is Code.GPU_TIMEOUT
        assert "0.3" in str(raised.value)
        assert process.call("allocate", size=16)[0]["address"] == 256


def test_a_process_that_dies_is_told_from_a_kernel_that_fails() -> None:
    with gpu("die") as process:
        with pytest.raises(GpuFailure) as raised:
            launch(process)
        assert raised.value.code is Code.GPU_PROCESS_ENDED
        assert raised.value.values["status"] == 41
        assert "so to speak" in raised.value.detail
        assert process.info().name == "Fake"


def test_a_fault_loses_the_context_and_nothing_else() -> None:
    with gpu("fault") as process:
        with pytest.raises(GpuFailure) as raised:
            launch(process)
        assert raised.value.code is Code.GPU_ERROR
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(raised.value)
        assert process.call("allocate", size=16)[0]["address"] == 256


def test_a_trap_brings_its_report() -> None:
    with gpu("trap") as process, pytest.raises(GpuFailure) as raised:
        launch(process)
    report = TrapReport.decode(raised.value.report)
    assert report is not None
    assert (report.code, report.block, report.thread) == (6, (1, 2, 0), 37)


def test_a_refused_launch_keeps_the_process() -> None:
    with gpu("refuse") as process:
        with pytest.raises(GpuFailure) as raised:
            launch(process)
        assert raised.value.code is Code.GPU_REFUSED
        assert process.call("allocate", size=16)[0]["address"] > 256


def test_memory_that_is_not_there() -> None:
    with gpu("good") as process, pytest.raises(GpuFailure) as raised:
        process.call("allocate", size=1 << 40, name="C")
    assert raised.value.code is Code.GPU_OUT_OF_MEMORY
    assert "C" in str(raised.value)


def test_output_that_is_no_frame() -> None:
    with gpu("noise") as process, pytest.raises(GpuFailure) as raised:
        process.info()
    assert raised.value.code is Code.GPU_PROCESS_ENDED


def test_a_command_that_does_not_exist() -> None:
    with GpuProcess(["/nonexistent/python"]) as process, pytest.raises(PorterError) as raised:
        process.info()
    assert raised.value.diagnostic.code is Code.BACKEND_UNAVAILABLE
