# SPDX-License-Identifier: Apache-2.0
"""Targets: their macros as the compiler defines them, and the limits of their chips."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from porter.ptx import arch


def test_names() -> None:
    assert arch.target("sm_90a").compute == "compute_90a"
    assert arch.target("compute_100f") is arch.TARGETS["sm_100f"]
    for bad in ("sm_90f", "sm_95", "90a", "sm_100b"):
        with pytest.raises(ValueError, match="unknown target"):
            arch.target(bad)


def test_limits() -> None:
    assert arch.limits("sm_90a").shared_per_block == arch.limits("sm_100a").shared_per_block == 232448
    assert set(arch.LIMITS) == {target.sm for target in arch.TARGETS.values()}


def test_macros_tell_targets_apart() -> None:
    macros = {name: arch.target(name).macros for name in ("sm_90a", "sm_100", "sm_100a", "sm_100f")}
    assert macros["sm_90a"]["__CUDA_ARCH_FEAT_SM90_ALL"] == 1
    assert macros["sm_100"] == {"__CUDA_ARCH__": 1000}
    assert "__CUDA_ARCH_FEAT_SM100_ALL" not in macros["sm_100f"]
    assert macros["sm_100f"]["__CUDA_ARCH_FAMILY_SPECIFIC__"] == 1000


@pytest.mark.external
def test_macros_are_those_of_nvcc(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    nvcc = next((root / "cu13/bin/nvcc" for root in roots if (root / "cu13/bin/nvcc").exists()), None)
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("no CUDA compiler from PyPI")
    source = tmp_path / "empty.cu"
    source.write_text("")
    for name in ("sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103a"):
        command = [str(nvcc), f"-arch={name}", "-cuda", "--dryrun", str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        # The last device preprocessor run; before it nvcc may make one for the plain sibling.
        device = [line for line in result.stderr.splitlines() if "-D__CUDA_ARCH__=" in line][-1]
        pairs = re.findall(r"-D(__CUDA_ARCH\w*)=?(\d*)", device)
        found = {key: int(value or 1) for key, value in pairs}
        known = arch.target(name).macros
        assert {key: found.get(key) for key in known} == known, name
        extra = {key for key in found if "FEAT" in key or "SPECIFIC" in key} - set(known)
        assert not extra, name
