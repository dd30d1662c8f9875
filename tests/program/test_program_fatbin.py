# SPDX-License-Identifier: Apache-2.0
"""Fat binaries: what nvcc puts in, the parser must find."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from porter.build.toolchain import Toolkit, find_host_compiler
from porter.verify.program.fatbin import KIND_CUBIN, KIND_PTX, FatbinError, images

KERNEL = "__global__ void k(int *p) { p[threadIdx.x] = __CUDA_ARCH__; }\n"
ARCHS = ["90a", "100a"]


@pytest.fixture(scope="module")
def nvcc(toolkit: Toolkit, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    directory = tmp_path_factory.mktemp("fatbin")
    source = directory / "k.cu"
    source.write_text(KERNEL)

    def compile(out: str, *flags: str) -> Path:
        command = [toolkit.nvcc, "-ccbin", find_host_compiler().path, *flags, "-o", directory / out, source]
        subprocess.run(command, check=True)
        return directory / out

    return compile


def gencode(arch: str, code: str) -> str:
    return f"-gencode=arch=compute_{arch},code={code}_{arch}"


def test_ptx_is_what_the_compiler_writes(nvcc: Callable[..., Path]) -> None:
    whole = nvcc("two.fatbin", "-fatbin", "-no-compress", *(gencode(arch, "compute") for arch in ARCHS))
    found = images(whole.read_bytes())
    assert [(image.kind, image.arch, image.target) for image in found] == [
        (KIND_PTX, 90, "sm_90a"),
        (KIND_PTX, 100, "sm_100a"),
    ]
    for arch, image in zip(ARCHS, found, strict=True):
        alone = nvcc(f"{arch}.ptx", "-ptx", f"-arch=compute_{arch}").read_text()
        assert instructions(image.ptx) == instructions(alone)


def instructions(ptx: str) -> list[str]:
    """The lines that are not comments."""
    lines = (" ".join(line.split()) for line in ptx.splitlines())
    return [line for line in lines if line and not line.startswith("//")]


def test_binaries_are_told_from_ptx(nvcc: Callable[..., Path]) -> None:
    kinds = gencode("90a", "compute"), gencode("90a", "sm")
    both = nvcc("both.fatbin", "-fatbin", "-no-compress", *kinds)
    found = images(both.read_bytes())
    assert sorted(image.kind for image in found) == [KIND_PTX, KIND_CUBIN]
    cubin = next(image for image in found if image.kind == KIND_CUBIN)
    assert cubin.payload.startswith(b"\x7fELF")
    with pytest.raises(FatbinError, match="no PTX"):
        _ = cubin.ptx


@pytest.mark.parametrize("mode", ["size", "speed", "balance"])
def test_compressed_ptx_is_unpacked(nvcc: Callable[..., Path], mode: str) -> None:
    (plain,) = images(nvcc("plain.fatbin", "-fatbin", "-no-compress", gencode("90a", "compute")).read_bytes())
    data = nvcc(f"{mode}.fatbin", "-fatbin", f"-compress-mode={mode}", gencode("90a", "compute")).read_bytes()
    (image,) = images(data)
    assert image.compression
    assert image.target == "sm_90a"
    assert image.ptx == plain.ptx
    damaged = dataclasses.replace(image, payload=image.payload[: len(image.payload) // 2])
    with pytest.raises(FatbinError, match="cannot be unpacked"):
        _ = damaged.ptx


def test_an_empty_fat_binary_has_no_images() -> None:
    assert images(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)) == []


WHOLE = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x7fELF", "too short"),
        (b"\x7fELF" + bytes(60), "begins with"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 500) + bytes(100), "ends after 116"),
        (WHOLE + struct.pack("<HHIQ", 1, 1, 64, 1000) + bytes(48), "past"),
    ],
)
def test_other_bytes_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(FatbinError, match=why):
        images(data)
