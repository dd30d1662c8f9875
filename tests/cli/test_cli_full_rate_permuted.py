# SPDX-License-Identifier: Apache-2.0
"""`porter port --style full-rate` where rows of A change places in shared memory: the gate runs the port with the
tensor maps that its own host code makes. The quick tests stand in for the runs; the slow ones plant mistakes and run
them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import permuted_gemm
import pytest
import yaml
from fakes_cli import porter

from porter.cli.building import make_builder
from porter.cli.porting import boxes_of, launches_of, look
from porter.diagnostics import Code
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.report.json import schema
from porter.tune.full_rate import taken
from porter.tune.staging import port_plan
from porter.tune.verifying import Proofs
from porter.verify import proof
from porter.verify.builder import PORT_ARCH
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

SECTION = {"tensor_maps": {"of_a": {"box": [16, 64]}}}


def verified(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> list[Any]:
    """Every run gives one row with a verdict; what the runs are asked for."""
    asked = []

    def run(items: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        asked.append((wanted, items))
        sizes: Mapping[str, int] = {"M": 128}
        return VerifyResult((Row("tiles", sizes, "index", 0, verdict),), "sim", "late", "exact", 0)

    monkeypatch.setattr(proof, "verify_cases", run)
    monkeypatch.setattr(proof, "refusal", lambda *judged: "")
    return asked


def text_and_said(kernel: Path, *options: str) -> tuple[str, str]:
    out = kernel.parent / "out"
    result = porter("port", "--style", "full-rate", *options, "--no-compile", kernel, "-o", out)
    return (out / kernel.name).read_text(), " ".join(result.output.split())


def test_the_port_runs_with_the_maps_of_its_own_host_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    text, said = text_and_said(permuted_gemm.write(tmp_path))
    assert "rows_of_a<128>(shared.slots[s].tall, part), &tall, &shared.arrived[s], k, top + 16 * part);" in text
    assert "tall = map_of(a, M, K, 16), flat = map_of(b, N, K, 16);" in text
    assert all(code in said for code in ("PT2512", "PT2529", "PT2530"))
    assert "`port: {tensor_maps: {of_a: {box: [16, 64]}}}`" in said
    assert [(w.settings.schedule, w.hazards) for w, _ in asked] == [("late", True), ("random", True), ("random", True)]
    assert all(w.sizes is not None for w, _ in asked)
    for wanted, items in asked:
        plan, _ = wanted.port_of(items[0])
        assert plan.section == SECTION


def test_a_run_that_fails_leaves_host_code_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.INCOMPLETE)
    kernel = permuted_gemm.write(tmp_path)
    text, said = text_and_said(kernel)
    assert "PT2511" in said
    assert "PT2529" not in said
    assert "PT2530" not in said
    assert "rows_of_a" not in text
    assert "map_of(a, M, K, 128)" in text


def test_a_port_that_is_kept_needs_its_section(tmp_path: Path) -> None:
    """What PT2530 says is what a case understands."""
    kernel = permuted_gemm.write(tmp_path)
    case = tmp_path / "case.yaml"
    case.write_text(case.read_text() + yaml.safe_dump({"port": SECTION}))
    assert load_case(case).port == SECTION
    found = made(kernel)
    assert port_plan(None, found, found.roots[0]).on((), (), load_case(case).map_params).section == SECTION


def test_maps_that_the_host_code_does_not_make_are_missing(tmp_path: Path) -> None:
    found = in_kernel(made(permuted_gemm.write(tmp_path)), r"map_of\(a, M, K, 16\)", "map_of(a, M, K, M / 16)")
    (root,) = taken(found)
    said = Proofs(make_builder(None, PORT_ARCH)).full_rate(found, root)
    assert said.code is Code.FULL_RATE_UNPROVED
    assert said.values["what"] == "the tensor maps that its host code makes are not known"


def test_a_plan_says_that_rows_change_places(tmp_path: Path) -> None:
    said = " ".join(porter("plan", "--style", "full-rate", permuted_gemm.write(tmp_path)).output.split())
    assert "128: one MMA for two tiles" in said
    assert "PT2529" in said
    assert "rows of A stand in shared memory where their sums arrive" in said
    document = json.loads(porter("--format", "json", "plan", "--style", "full-rate", tmp_path / "tiles.cu").stdout)
    jsonschema.validate(document, schema("plan"))
    (plan,) = document["kernels"]
    assert (plan["mma_rows"], plan["permuted"]) == (128, True)


@pytest.mark.parametrize("threads", [288, 384])
def test_steps_of_the_native_style_go_on_from_there(tmp_path: Path, threads: int) -> None:
    """A pair would load half of the rows in each CTA: that step is left out."""
    kernel = permuted_gemm.write(tmp_path, threads=threads)
    host = {"boxes": partial(boxes_of, ()), "launches": partial(launches_of, ())}
    found = port_paths([kernel], PortOptions(full_rate=True, native=STEPS, **host), (), look)
    (root,) = found.roots
    assert root.permuted == ("tiles",)
    assert root.native == (("release",) if threads == 288 else ("release", "mma-thread", "double-buffer"))
    left = {str(d.values["step"]): str(d.values["what"]) for d in found.diagnostics if d.code is Code.NATIVE_LEFT}
    if threads == 384:
        assert left["pair"] == "rows of A in the places of their MMA: here they change places, and a pair halves them"


# --- the gate itself, on a simulator


def made(kernel: Path) -> Ported:
    return port_paths([kernel], PortOptions(full_rate=True, boxes=partial(boxes_of, ())), (), look)


def failure(found: Ported) -> str:
    (root,) = taken(found)
    said = Proofs(make_builder(None, PORT_ARCH)).full_rate(found, root)
    return "" if said.code is Code.FULL_RATE_PROVED else str(said.values["what"])


def in_kernel(found: Ported, pattern: str, instead: str, ending: str = "tiles.cu") -> Ported:
    path = next(p for p in found.new if p.endswith(ending))
    text, count = re.subn(pattern, instead, found.new[path].decode())
    assert count == 1
    found.new[path] = text.encode()
    return found


PLANTED = {
    "boxes in their order": ("tcgen05.cuh", r"from / 8 \* 8 \+ from % 4 \* 2 \+ from / 4 % 2", "from", "differ"),
    "a box that is missing": ("tiles.cu", r"part < 8", "part < 7", ""),
    "a box twice": ("tiles.cu", r"top \+ 16 \* part", "top + 16 * (part & 6)", "differ"),
    "other bytes expected": ("tiles.cu", r"16384 \+ 2048\);\n", "16384 + 4096);\n", ""),
    "fewer bytes expected": ("tiles.cu", r"16384 \+ 2048\);\n", "8192 + 2048);\n", ""),
    "whole boxes": ("tiles.cu", r"map_of\(a, M, K, 16\)", "map_of(a, M, K, 128)", ""),
    "no join": ("tcgen05.cuh", r'"bar.sync 15, 256;" :::', '"bar.sync %0, 128;" ::"r"(15 - threadIdx.x / 128) :',
                "hazard"),
    "M = 64": ("tcgen05.cuh", r"128u >> 4 << 24", "64u >> 4 << 24", "differ"),
    "rows of a box are not as long": ("tiles.cu", r"rows_of_a<128>", "rows_of_a<64>", ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    ending, pattern, instead, says = PLANTED[name]
    what = failure(in_kernel(made(permuted_gemm.write(tmp_path)), pattern, instead, ending))
    assert what
    assert "nvcc" not in what
    assert says in what


@pytest.mark.slow
@pytest.mark.parametrize("halves", [False, True])
def test_the_gate_takes_a_port(tmp_path: Path, halves: bool) -> None:
    kernel = permuted_gemm.write(tmp_path, permuted_gemm.HALVES, 64) if halves else permuted_gemm.write(tmp_path)
    assert failure(made(kernel)) == ""


@pytest.mark.slow
def test_a_second_half_in_the_place_of_the_first_fails_the_gate(tmp_path: Path) -> None:
    found = made(permuted_gemm.write(tmp_path, permuted_gemm.HALVES, 64))
    what = failure(in_kernel(found, r", \(top \+ h \* 64\) / 16 % 8\)", ")"))
    assert what
    assert "nvcc" not in what
