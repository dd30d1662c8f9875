# SPDX-License-Identifier: Apache-2.0
"""Every call of a function that reaches wgmma means what clang says, in the corpus and in installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORPUS = sorted(p for p in (ROOT / "corpus").glob("*/*.cu") if not p.parent.name.startswith("cute_"))
"""Without kernels in CuTe C++, which multiply in headers that are not there."""
NO_CALLS = {"main", "gemm_int8", "gemm_lambda"}
"""Files of the corpus with all their wgmma in one kernel, or with none."""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("clang") is None, reason="libclang is not installed (the extra `dev`)"
)


def _flashinfer() -> Path | None:
    found = importlib.util.find_spec("flashinfer")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else None


PACKAGED = [
    ("data/csrc/nv_internal/tensorrt_llm/deep_gemm/fp8_gemm.cuh", ("data/csrc/nv_internal",), 20),
    (
        "data/csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_gemm_kernel.cuh",
        ("data/csrc/nv_internal",),
        20,
    ),
    ("data/csrc/xqa/mha_sm90.cu", (), 7),
    ("data/csrc/fused_moe/monomoe/src/moe_up_projection.cuh", (), 4),
]
"""Kernels of a package, with include directories, and how many calls clang resolves at least."""


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_corpus(path: Path, tmp_path: Path) -> None:
    from names_judged import judge

    verdict = judge(path, tmp_path / "stubs")
    assert not verdict.wrong
    assert not verdict.loose
    assert verdict.certain + verdict.open > 0 or path.stem in NO_CALLS


@pytest.mark.external
@pytest.mark.parametrize(("name", "directories", "least"), PACKAGED, ids=lambda v: v[-9:] if isinstance(v, str) else "")
def test_packages(name: str, directories: tuple[str, ...], least: int, tmp_path: Path) -> None:
    from names_judged import judge

    package = _flashinfer()
    if package is None or not (package / name).is_file():
        pytest.skip("the package flashinfer-python is not installed")
    verdict = judge(package / name, tmp_path / "stubs", tuple(package / d for d in directories))
    assert not verdict.wrong
    assert not verdict.loose
    assert verdict.certain + verdict.open >= least


def test_the_judge_sees_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without overload resolution the judge finds both kinds of difference."""
    from names_judged import judge

    from porter.model.names.overloads import Overloads

    path = ROOT / "corpus" / "gemm_two_n" / "gemm_two_n.cu"
    monkeypatch.setattr(Overloads, "select", lambda self, symbols, *rest: list(symbols))
    assert judge(path, tmp_path / "stubs").loose
    monkeypatch.setattr(Overloads, "select", lambda self, symbols, *rest: list(symbols)[:1])
    assert judge(path, tmp_path / "stubs").wrong
