# SPDX-License-Identifier: Apache-2.0
"""Runs of a kit that need no case: kernels in PTX, on memory that holds one word everywhere."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from porter.build.ptxas import assemble
from porter.build.toolchain import Toolkit
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap, TensorMapSwizzle, TensorMapType
from porter.verify.kit.plan import CAPABILITY, map_fields

Role = Literal["in", "out", "answer"]


@dataclass(frozen=True)
class Filled:
    """Memory of `nbytes`, all of it one 32-bit `word` before the launch. `out`: it has to be `after` everywhere then.
    `answer`: the record has its bytes, whatever they are."""

    nbytes: int
    word: int = 0
    role: Role = "in"
    after: int = 0


@dataclass(frozen=True)
class BareRun:
    """One run. `maps` are tensor maps with the tensors they are over. `params` are names of tensors and maps, and
    32-bit numbers. `question` says what an answer tells; empty where there is none."""

    case: str
    sizes: str
    program: str
    ptx: str
    entry: str
    arch: str
    grid: tuple[int, int, int]
    block: int
    tensors: Mapping[str, Filled]
    params: Sequence[str | int]
    maps: Mapping[str, tuple[str, TensorMap]] = field(default_factory=dict)
    cluster: int = 1
    dynamic_smem: int = 0
    question: str = ""
    image: bytes = field(repr=False, default=b"")

    @property
    def label(self) -> str:
        return f"{self.case} {self.sizes} none 0 {self.program}"

    @property
    def capability(self) -> str:
        return CAPABILITY[self.arch]

    @property
    def origin(self) -> Path:
        return Path(self.case)

    @cached_property
    def source(self) -> str:
        return hashlib.sha256(self.ptx.encode()).hexdigest()

    @cached_property
    def inputs(self) -> str:
        said = [self.grid, self.block, self.cluster, self.dynamic_smem, *self.tensors.items(), *self.params]
        said += [" ".join(map(str, words)) for words in self._maps()]
        return hashlib.sha256(repr(said).encode()).hexdigest()

    @property
    def is_open(self) -> bool:
        """No answer is expected."""
        return not any(t.role == "out" for t in self.tensors.values())

    def expected(self) -> dict[str, str]:
        """The digest of every output."""
        return {n: _digest(t.after, t.nbytes) for n, t in self.tensors.items() if t.role == "out"}

    def facts(self) -> dict[str, Any]:
        """What identifies the run, for records and reports."""
        return {"case": self.case, "sizes": self.sizes, "program": self.program, "capability": self.capability,
                "source": self.source, "inputs": self.inputs}  # fmt: skip

    def lines(self, image: str) -> Iterator[tuple[object, ...]]:
        """What the launcher reads, with the place of the image."""
        yield "image", image, self.entry
        yield "launch", *self.grid, self.block, 1, 1, self.cluster, 1, 1, self.dynamic_smem, 0
        for name, t in self.tensors.items():
            yield "tensor", name, t.nbytes, f"fill:{t.word.to_bytes(4, 'little').hex()}", t.role
        yield from (("map", *words) for words in self._maps())
        for one in self.params:
            if isinstance(one, int):
                yield "param", one.to_bytes(4, "little").hex()
            elif one in self.maps:
                yield "param", "00" * ENCODED_BYTES, f"0:map:{one}"
            else:
                yield "param", "00" * 8, f"0:tensor:{one}:0"

    def _maps(self) -> Iterator[tuple[object, ...]]:
        return (map_fields(name, tensor, m) for name, (tensor, m) in self.maps.items())


@functools.lru_cache(maxsize=32)
def _digest(word: int, nbytes: int) -> str:
    piece = word.to_bytes(4, "little") * 4096
    found = hashlib.sha256()
    for at in range(0, nbytes, len(piece)):
        found.update(piece[: nbytes - at])
    return found.hexdigest()


def rows_of(rows: int, columns: int, box_rows: int, box_columns: int) -> TensorMap:
    """Over a row-major bf16 matrix, with boxes in the 128-byte swizzle."""
    return TensorMap(TensorMapType.BFLOAT16, 0, (columns, rows), (2 * columns,), (box_columns, box_rows),
                     swizzle=TensorMapSwizzle.B128)  # fmt: skip


def assembled(run: BareRun, toolkit: Toolkit) -> BareRun:
    """The run with its cubin.

    Raises:
        PorterError: PTXAS_ERROR.
    """
    return replace(run, image=assemble(toolkit, run.ptx, run.arch, name=run.entry).cubin)
