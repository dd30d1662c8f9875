# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: tiles are twice as wide where the grade finds that faster, whatever other steps both
ports have, where host code follows, and where a case verified it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_cli import porter
from test_cli_native_port import CORPUS

from porter.build.port_plan import Relaunch
from porter.grade.shape import Epilogue, Mma, Residency, Shape
from porter.passes.ported import Ported, PortedRoot
from porter.scan.staging import HostLaunch
from porter.tune import search, verifying, widening
from porter.tune.choosing import Chosen
from porter.tune.staging import Staged
from porter.verify.case import load_case
from porter.verify.further import half_tiles
from porter.verify.proof import Claim, Proof

KERNEL = CORPUS / "gemm_ws/gemm_ws.cu"
NARROW = Shape("sm_100a", ((Mma(128, 128), 4),), 128, 128, 32768, 4, "specialized", 128, persistent=True,
               epilogue=Epilogue(4, overlapped=True), residency=Residency(140000, 256, 416, 168))  # fmt: skip
WIDE = replace(NARROW, mmas=((Mma(128, 256), 4),), tile_n=256, load_bytes=49152,
               residency=Residency(198000, 512, 416, 168))  # fmt: skip


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: Shape = WIDE,
    wrong: Callable[[str], bool] = lambda _: False,
    *more: str,
) -> tuple[str, str]:
    """The text of a port and what was said, where cases compile these shapes; texts that are `wrong` fail."""

    def prove(claim: Claim, *how: object) -> Proof:
        text = b"".join(claim.plan.files.values()).decode()
        return Proof(missing="results differ") if wrong(text) else Proof(("case.yaml",), 3)

    def shape_of(session: object, ported: Ported, root: PortedRoot) -> Shape:
        return after if "wide" in root.native else NARROW

    def unchanged(session: object, ported: Ported, make: object) -> Chosen:
        return Chosen(ported)

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    for module in (search, widening):
        monkeypatch.setattr(module, "staged", lambda session, ported, make: Staged(ported, frozenset()))
        monkeypatch.setattr(module, "shared", unchanged)
        monkeypatch.setattr(module, "stored", unchanged)
    monkeypatch.setattr(search, "tuned", lambda session, ported, make: (ported, frozenset(), []))
    monkeypatch.setattr(widening, "shape_of", shape_of)
    result = porter("port", "--style", "native", "--no-compile", *more, KERNEL, "-o", folder)
    return (folder / KERNEL.name).read_text(), " ".join(result.output.split())


def test_tiles_are_wide_where_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch)
    assert "constexpr int BN = 256;" in text
    assert "if (w < WGMMA_N / 16 / 2 || num_block_n * BN + BN <= N) {" in text
    assert "has the step wide; case.yaml verified it at 3 sizes" in said
    launch = "{grid: [(N / BN + 1) // 2, M / BM, 1], dynamic_smem: 147456}"
    assert (
        f"{{launch: {launch}, tensor_maps: {{map_b: {{box: [256, BK]}}}}, "
        + "template: [BM, 256, BK, NUM_THREADS, STAGES]}"
        in said
    )


LEFT: dict[str, tuple[Shape, tuple[str, ...], str]] = {
    "as fast": (NARROW, (), "a gain at 4096 x 4096 x 4096: by the grade tiles twice as wide reach"),
    "few tiles": (WIDE, ("--problem", "1024x1024x4096"), "a gain at 1024 x 1024 x 4096"),
    "no room": (
        replace(WIDE, residency=replace(WIDE.residency, smem=240000)), (), "room for tiles twice as wide",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["few tiles", *(pytest.param(n, marks=pytest.mark.slow) for n in LEFT if n != "few tiles")]
)
def test_tiles_stay_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after, more, expected = LEFT[name]
    text, said = ported(tmp_path, monkeypatch, after, lambda _: False, *more)
    assert "is without the step wide; missing:" in said
    assert expected in said
    assert "constexpr int BN = 128;" in text


@pytest.mark.slow
def test_a_port_that_fails_has_tiles_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch, wrong=lambda text: "BN = 256" in text)
    assert "is without the step wide: results differ" in said
    assert "constexpr int BN = 128;" in text
    assert "has the step release" in said


def test_what_a_launch_becomes() -> None:
    found = Relaunch(196608, ((1, "256"),), rows=((2, 256),), halved=1)
    section = found.section(["BM", "BN"], ["M / BM", "N / BN", 1], [None, None, ("map_b", ["BN", "BK"])])
    assert section == {
        "launch": {"grid": ["M / BM", "(N / BN + 1) // 2", 1], "dynamic_smem": 196608},
        "tensor_maps": {"map_b": {"box": [256, "BK"]}},
        "template": ["BM", "256"],
    }
    assert Relaunch(None, halved=0).section([], [3, 2])["launch"] == {"grid": [2, 2]}


def test_sizes_with_half_a_tile() -> None:
    case = load_case(KERNEL.parent / "case.yaml")
    found = half_tiles(case, 0)
    assert found is not None
    assert [sizes["N"] // 128 for sizes in found] == [2, 3]
    assert half_tiles(case, 7) is None


GRIDS = {
    "half": (("(N // 128 + 1) // 2", "M // 128"), True),
    "rounded up": (("ceil_div(N, 256)", "M // 128"), False),
    "half, without the last": (("N // 256", "M // 128"), False),
    "as many": (("N // 128", "M // 128"), False),
    "half of the rows": (("(N // 128 + 1) // 2", "M // 256"), False),
    "nobody knows": (("f(N)", "M // 128"), False),
}


@pytest.mark.parametrize("name", GRIDS)
def test_host_code_has_half_the_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from porter.model.pipeline.facts import TensorMap

    grid, right = GRIDS[name]

    def launch(grid: tuple[str, ...], rows: str) -> HostLaunch:
        maps = (TensorMap("b", "B", 2, ("K", "N"), (), ("64", rows), "128B", "BFLOAT16", 0),)
        return HostLaunch(grid, None, None, "0", (), maps)

    found = iter([launch(("N // 128", "M // 128"), "128"), launch(grid, "256")])
    monkeypatch.setattr(widening, "launch_of", lambda *asked: next(found))
    monkeypatch.setattr(widening, "materialize", lambda plan, path: path)
    what = widening.not_followed(None, None, PortedRoot("k.cu", ("k.cu",), kernels=("k",), halved=0))  # type: ignore[arg-type]
    assert (what == "") is right


@pytest.mark.slow
@pytest.mark.external
def test_the_port_of_the_corpus_kernel_is_verified(tmp_path: Path) -> None:
    result = porter("port", "--style", "native", "--trust", KERNEL, "-o", tmp_path)
    said = " ".join(result.output.split())
    for step in ("wide", "release", "mma-thread", "tiles", "double-buffer", "stages"):
        assert f"has the step {step}; case.yaml verified it at 3 sizes" in said
    assert "BN = 256" in (tmp_path / KERNEL.name).read_text()
    graded = porter("--format", "json", "grade", "--style", "native", KERNEL.parent / "case.yaml")
    rates = [k["percent_of_nominal"] for k in json.loads(graded.output)["kernels"] if k["program"] == "port"]
    assert max(rates) > 69
