# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: results leave by bulk copies where the grade finds that faster and a case verified it.
The slow tests plant mistakes in the port of a kernel with edges and run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_cli import porter
from test_cli_native_port import CORPUS, failure, planted

from porter.cli.porting import look
from porter.grade.changes import Impossible, bulk_store
from porter.grade.clocks import drain
from porter.grade.shape import Epilogue, Mma, Residency, Shape
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import search, storing, verifying
from porter.tune.choosing import Built, Chosen
from porter.tune.staging import Staged
from porter.verify.proof import Claim, Proof

SHORT = Shape("sm_100a", ((Mma(128, 128), 4),), 128, 128, 32768, 3, "specialized", 128,
              epilogue=Epilogue(4, load_columns=64), residency=Residency(100000, 128, 384, 168))  # fmt: skip
"""A kernel whose blocks have one tile each."""
BESIDE = replace(SHORT, persistent=True, epilogue=replace(SHORT.epilogue, overlapped=True))
"""One that stores a tile while it multiplies the next."""


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Shape = SHORT,
    after: Shape | None = None,
    wrong: Callable[[str], bool] = lambda _: False,
    name: str = "gemm_tf32",
) -> tuple[str, str]:
    """The text of a port and what was said, where cases compile these shapes; texts that are `wrong` fail."""

    def prove(claim: Claim, *how: object) -> Proof:
        text = b"".join(claim.plan.files.values()).decode()
        return Proof(missing="results differ") if wrong(text) else Proof(("case.yaml",), 4)

    def built(choice: object, ported: Ported) -> dict[str, Built]:
        copies = any("bulk-store" in root.native for root in ported.roots)
        return {"kernel<128>": Built("kernel<128>", 0, (after or bulk_store(before)) if copies else before)}

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "widened", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "shared", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "tuned", lambda session, ported, make: (ported, frozenset(), []))
    monkeypatch.setattr(storing._Choice, "built_of", built)
    kernel = CORPUS / name / f"{name}.cu"
    result = porter("port", "--style", "native", "--no-compile", kernel, "-o", folder)
    return (folder / kernel.name).read_text(), " ".join(result.output.split())


def test_results_leave_by_copies_where_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch)
    assert "leaving.put_pair(0, 0, *reinterpret_cast<float2*>(out + 8 * j), {acc[4 * j], acc[4 * j + 1]});" in text
    assert "has the step bulk-store; case.yaml verified it at 4 sizes" in said


LEFT = {
    "an epilogue beside the next tile": ({"before": BESIDE}, "by the grade results leave as fast without"),
    "as fast": ({"after": SHORT}, "by the grade results leave as fast without"),
    "slower": ({"after": replace(SHORT, epilogue=replace(SHORT.epilogue, store="rows"))}, "is slower with copies"),
    "no room": (
        {"after": replace(SHORT, residency=replace(SHORT.residency, smem=240000))}, "room for what warps stage",
    ),
    "a fact that the text does not tell": ({"name": "gemm_lambda"}, "a loop over columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_threads_store_results(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, expected = LEFT[name]
    text, said = ported(tmp_path, monkeypatch, **given)  # type: ignore[arg-type]
    assert "is without the step bulk-store; missing:" in said
    assert expected in said
    assert "has the step bulk-store" not in said
    assert "leaving" not in text


@pytest.mark.parametrize("name", ["gemm_cooperative_128", "gemm_persistent"])
def test_nothing_is_missing_where_there_is_no_use(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results leave by TMA already."""
    _, said = ported(tmp_path, monkeypatch, name=name)
    assert "bulk-store" not in said


def test_a_port_that_fails_is_given_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = ported(tmp_path, monkeypatch, wrong=lambda text: "leaving.put" in text)
    assert "is without the step bulk-store: results differ" in said
    assert "leaving" not in text
    assert "has the step release" in said


def test_what_if_results_left_by_copies() -> None:
    changed = bulk_store(SHORT)
    assert (changed.epilogue.store, changed.epilogue.pieces) == ("tma", 4)
    assert drain(changed) < 0.8 * drain(SHORT)
    assert changed.residency.smem == 100000 + 8 * 2 * 16 * 160
    with pytest.raises(Impossible, match="by TMA already"):
        bulk_store(changed)


# --- the gate itself, on a simulator

CASE = """\
version: 1
kernel: gemm_coop.cu
entry: gemm_coop_kernel
constants: {BM: 64, BN: 128, BK: 64}
sizes: {M: 64, N: 128, K: 64}
other_sizes:
  - {M: 40, N: 132, K: 64}       # rows of 16 bytes, some of them outside
  - {M: 64, N: 130, K: 64}       # every other row begins at 8 bytes
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
launch:
  grid: ["ceil_div(N, BN)", "ceil_div(M, BM)", 1]
  block: [128, 1, 1]
params: [A, B, C, M, N, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""


HALVES = (
    ("float* __restrict__ C", "half* __restrict__ C"),
    ("*reinterpret_cast<float2*>(", "*reinterpret_cast<half2*>("),
    (" = upper;", " = __float22half2_rn(upper);"),
    (" = lower;", " = __float22half2_rn(lower);"),
    ("half* B, float* C", "half* B, half* C"),
)
"""Changes of the kernel to results of 16 bits."""


def made(folder: Path, changes: tuple[tuple[str, str], ...] = ()) -> Ported:
    path = folder / "gemm_coop.cu"
    text = (CORPUS / "gemm_coop" / "gemm_coop.cu").read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    (folder / "case.yaml").write_text(CASE.replace("dtype: f32", "dtype: f16") if changes else CASE)
    options = PortOptions(full_rate=True, native=("bulk-store",), chosen=frozenset({(path.as_posix(), "bulk-store")}))
    found = port_paths([path], options, (), look)
    assert found.roots[0].native == ("bulk-store",)
    return found


PLANTED = {
    "no proxy fence": (r'asm volatile\("fence.proxy.async.shared::cta;" ::: "memory"\);(\s*__syncwarp)', r"\1"),
    "no barrier ahead of copies": (r"__syncwarp\(\);(\s*if \(__all_sync)", r"\1"),
    "no wait for copies of the part before": (r"cp.async.bulk.wait_group.read 1;", ""),
    "a wait for fewer of them": (r"cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;"),
    "no wait at the end": (r'asm volatile\("cp.async.bulk.wait_group 0;" ::: "memory"\);', ""),
    "rows at another distance": (r"shared_address\(part\(lane % 4\)\)", "shared_address(part(lane % 4) + 16)"),
    "rows of the other half": (r"lane % 4 == 0 \? row\[0\] : row\[kHalves - 1\]",
                               "lane % 4 == 1 ? row[0] : row[kHalves - 1]"),
    "rows that begin anywhere": (r" && row\[half\] % 16 == 0", ""),
    "rows that are not whole": (r"found\[half\] == all && ", ""),
    "elements that nobody stored": (r"if \(\(found\[half\] >> i & 1\) == 0\) continue;", ""),
    "elements of another column": (r"i / 2 \* 8 \+ lane % 4 \* 2 \+ i % 2", "i / 2 * 8 + lane % 4 * 2"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(name: str, tmp_path: Path) -> None:
    what = failure(planted(made(tmp_path), *PLANTED[name]))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_rows_with_edges(tmp_path: Path) -> None:
    assert failure(made(tmp_path)) == ""


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_rows_of_16_bits_with_edges(tmp_path: Path) -> None:
    found = made(tmp_path, HALVES)
    assert b"Rows<2, 8, 2, 0, 4> leaving;" in b"".join(found.new.values())
    assert failure(found) == ""
    wrong = planted(made(tmp_path, HALVES), *PLANTED["elements of another column"])
    assert failure(wrong)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    "name", ["gemm_tf32", "gemm_pipelined", "gemm_mn_major", "gemm_cluster", "gemm_tma", "gemm_ws"]
)
def test_the_gate_takes_kernels_of_the_corpus(name: str) -> None:
    path = CORPUS / name / f"{name}.cu"
    steps = ("release", "bulk-store")
    found = port_paths(
        [path], PortOptions(full_rate=True, native=steps, chosen=frozenset({(str(path), "bulk-store")})), (), look
    )
    assert "bulk-store" in found.roots[0].native
    assert failure(found) == ""
