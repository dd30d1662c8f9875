# SPDX-License-Identifier: Apache-2.0
"""A drafted case held against a recorded launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from porter.verify.case import Case, load_case
from porter.verify.drafted import against_launch

DRAFT: dict[str, Any] = {
    "version": 1, "kernel": "k.cu", "entry": "k", "sizes": {"M": 64, "N": 64},
    "tensors": {"A": {"dtype": "f16", "shape": ["M", "N"], "role": "input"},
                "C": {"dtype": "f32", "shape": ["M", "N"], "role": "output"}},
    "launch": {"grid": ["ceil_div(N, 64)", "M // 64", 1], "block": [128, 1, 1], "dynamic_smem": 4096},
    "params": ["A", "C", "M", "N", {"value": 0.5, "type": "f32"}], "reference": "A",
}  # fmt: skip


def number(value: int) -> dict[str, str]:
    return {"bytes": value.to_bytes(4, "little").hex()}


def recorded(folder: Path, **changes: Any) -> Case:
    """A launch with M = 128 and N = 192."""
    (folder / "k.ptx").write_text("")
    for name, size in (("a", 128 * 192 * 2), ("c", 128 * 192 * 4)):
        (folder / f"{name}.bin").write_bytes(bytes(size))
        (folder / f"{name}.after").write_bytes(b"\1" * size)
    body: dict[str, Any] = {
        "version": 1, "kernel": "k.ptx", "entry": "k", "sizes": {},
        "tensors": {"arg0": {"dtype": "u8", "shape": [128 * 192 * 2], "role": "input", "before": "a.bin"},
                    "arg1": {"dtype": "u8", "shape": [128 * 192 * 4], "role": "inout", "before": "c.bin",
                             "after": "c.after"}},
        "launch": {"grid": [3, 2, 1], "block": [128, 1, 1], "dynamic_smem": 4096},
        "params": ["arg0", "arg1", number(128), number(192), {"bytes": "0000003f"}],
        "reference": {"recorded": {"arch": "sm_90a"}},
    } | changes  # fmt: skip
    (folder / "case.yaml").write_text(yaml.safe_dump(body))
    return load_case(folder / "case.yaml")


def drafted(folder: Path, **changes: Any) -> Case:
    (folder / "draft").mkdir()
    (folder / "draft" / "k.cu").write_text("")
    (folder / "draft" / "case.yaml").write_text(yaml.safe_dump(DRAFT | changes))
    return load_case(folder / "draft" / "case.yaml")


def test_sizes_are_those_of_the_launch(tmp_path: Path) -> None:
    found = against_launch(drafted(tmp_path), recorded(tmp_path))
    assert found.sizes == {"M": 128, "N": 192}
    assert not found.different
    assert {"launch.grid", "launch.block", "tensors.A", "tensors.C", "params[4]"} <= found.same
    assert found.written == {"C"}


def test_what_is_different_is_said(tmp_path: Path) -> None:
    real = recorded(tmp_path, launch={"grid": [3, 4, 1], "block": [256, 1, 1], "dynamic_smem": 4096})
    found = against_launch(drafted(tmp_path), real)
    assert found.values == {"grid": [3, 4, 1], "block": [256, 1, 1]}
    assert found.different["launch.grid"] == "was (3, 4, 1)"


def test_a_number_a_role_or_a_shape_that_is_different(tmp_path: Path) -> None:
    tensors = {"A": {"dtype": "f32", "shape": ["M", "N"], "role": "inout"}, "C": DRAFT["tensors"]["C"]}
    params = ["A", "C", "M", "N", {"value": 0.25, "type": "f32"}]
    found = against_launch(drafted(tmp_path, tensors=tensors, params=params), recorded(tmp_path))
    assert found.different["params[4]"] == "was 0.5"
    assert "49152 bytes" in found.different["tensors.A"]


def test_another_number_of_arguments(tmp_path: Path) -> None:
    found = against_launch(drafted(tmp_path, params=["A", "C"]), recorded(tmp_path))
    assert set(found.different) == {"params"}
