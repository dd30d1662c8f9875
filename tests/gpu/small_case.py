# SPDX-License-Identifier: Apache-2.0
"""A case with one input and one output of 32 floats."""

from __future__ import annotations

from pathlib import Path

from porter.verify.case import Case, load_case

_TEXT = """version: 1
kernel: k.cu
entry: k
sizes: {N: 32}
tensors:
  A: {dtype: f32, shape: [N], role: input}
  C: {dtype: f32, shape: [N], role: output}
launch: {grid: [1], block: [32]}
params: [A, C]
reduction: 1
reference: "%s"
accumulate: f32
"""


def small_case(folder: Path, reference: str, source: str = "", more: str = "") -> Case:
    """The case in `folder` whose output is `reference`, an expression of A; `more` are further lines of it."""
    (folder / "k.cu").write_text(source)
    (folder / "case.yaml").write_text(_TEXT % reference + more)
    return load_case(folder / "case.yaml")
