# SPDX-License-Identifier: Apache-2.0
"""What `porter doctor` says of GPUs: which backends run there, and why others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import Code
from porter.report import environment
from porter.verify.gpu.process import GpuFailure, GpuInfo


class FakeProcess:
    answer: GpuInfo | Exception

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def info(self) -> GpuInfo:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def backends(monkeypatch: pytest.MonkeyPatch, answer: GpuInfo | Exception) -> dict[str, tuple[bool, str]]:
    monkeypatch.setattr(FakeProcess, "answer", answer, raising=False)
    monkeypatch.setattr(environment, "GpuProcess", FakeProcess)
    return {p.name: (p.found, p.what) for p in environment._backends()}


def info(major: int, name: str) -> GpuInfo:
    return GpuInfo(name, (major, 0), 13000, 132, 1 << 37, 0)


def test_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends(monkeypatch, info(9, "H200")) == {
        "driver": (True, "CUDA 13.0"),
        "backend gpu": (True, "H200 (sm_90): originals, natively"),
        "backend hopper": (True, "H200: ports, emulated"),
    }


def test_blackwell_and_older(monkeypatch: pytest.MonkeyPatch) -> None:
    found = backends(monkeypatch, info(10, "B200"))
    assert found["backend gpu"] == (True, "B200 (sm_100): ports, natively")
    assert not found["backend hopper"][0]
    found = backends(monkeypatch, info(8, "A100"))
    assert found["backend gpu"] == (False, "A100 (sm_80): neither runs on it")


def test_a_gpu_process_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = backends(monkeypatch, GpuFailure(Code.GPU_PROCESS_ENDED, status=1))
    assert found == {"driver": (False, "the process that talks to the GPU ended (status 1)")}


def test_cupti_is_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcupti.so.13").write_bytes(b"")
    monkeypatch.setenv("CUPTI_LIBRARY_DIR", str(tmp_path))
    assert environment._cupti(None) == str(tmp_path / "libcupti.so.13")
