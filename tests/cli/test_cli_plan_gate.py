# SPDX-License-Identifier: Apache-2.0
"""What `porter plan` says of M=128 MMAs and steps that `porter port` gives only where a run agrees."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joined_gemm
import jsonschema
import pytest
from fakes_cli import porter

from porter.report.json import schema
from porter.verify import proof

CORPUS = Path(__file__).parents[2] / "corpus"
KERNEL = joined_gemm.KERNEL
CASE = joined_gemm.CASE.replace("ENTRY", "gemm")
ROWS = "its second A tile lies 64 rows behind the first, for the stride of the descriptor"
WAITS = "its consumers do not wait for each other in front of MMAs in a way that the text does not show"
INSTANCES = "each instantiation that the file compiles is one that a case runs"
ORDER = "nobody waits for good, under any of the schedules"
TRUST = "code that its case brings along may run (`--trust`): reference.py"
SAME = "outputs have the original's bits for all sizes and inputs, and no hazard is new"


def planned(path: Path, style: str = "full-rate") -> tuple[dict[str, Any], list[str], str]:
    """The plan of the one kernel of a file, the warnings beside it, and all that is shown."""
    shown = " ".join(porter("plan", "--style", style, path).output.split())
    document = json.loads(porter("--format", "json", "plan", "--style", style, path).stdout)
    jsonschema.validate(document, schema("plan"))
    (kernel,) = document["kernels"]
    return kernel, [d["message"] for d in document["diagnostics"] if d["severity"] == "warning"], shown


def written(folder: Path, case: str = CASE, head: str = "") -> Path:
    (folder / "gemm.cu").write_text(KERNEL.replace("HEAD", head))
    if case:
        (folder / "case.yaml").write_text(case)
    return folder / "gemm.cu"


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("name", "style", "asked"),
    [
        ("gemm_struct", "full-rate", [ROWS, WAITS, INSTANCES, SAME]),
        ("gemm_cooperative_128", "full-rate", [ROWS, SAME]),
        ("gemm_cluster", "full-rate", [ROWS, WAITS, SAME]),
        ("attention_fwd", "full-rate", [ROWS, WAITS, INSTANCES, SAME, TRUST]),
        ("gemm_tma", "full-rate", [ROWS, INSTANCES, SAME]),
        pytest.param("gemm_ws", "native", [ROWS, WAITS, ORDER, INSTANCES, SAME], marks=pytest.mark.slow),
    ],
)
def test_what_a_run_has_to_show_is_said(name: str, style: str, asked: list[str]) -> None:
    kernel, _, _ = planned(CORPUS / name / f"{name}.cu", style)
    assert kernel["mma_rows"] == 128
    assert kernel["gate"] == asked


def test_it_is_shown_beside_the_rows(tmp_path: Path) -> None:
    _, warnings, shown = planned(written(tmp_path))
    assert not warnings
    assert "finds all of this; else 64" in shown
    assert [shown.count(f"to be shown {what}") for what in (ROWS, WAITS, SAME, INSTANCES)] == [1, 1, 1, 0]


def test_a_template_is_asked_for_its_instantiations(tmp_path: Path) -> None:
    assert INSTANCES in planned(written(tmp_path, head="template <int N> "))[0]["gate"]


@pytest.mark.parametrize(
    ("case", "why"),
    {
        "none": ("", "no case beside it runs `gemm`"),
        "of another kernel": (CASE.replace("entry: gemm", "entry: other"), "no case beside it runs `gemm`"),
        "not to be read": (CASE.replace("version: 1", "version: 77"), "it could not be run: "),
        "recorded": (CASE + "recorded: nowhere\n", ""),
    }.values(),
)
def test_without_a_run_it_has_to_be_equal_on_ptx(tmp_path: Path, case: str, why: str) -> None:
    kernel, warnings, shown = planned(written(tmp_path, case))
    assert (kernel["mma_rows"], kernel["gate"][:-1], warnings) == (128, [ROWS, WAITS], [])
    assert f"equal on PTX, at several sizes of each launch that is known, as {why}" in kernel["gate"][-1]
    assert "128: one MMA" in shown


def test_a_recording_is_named_where_it_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = SimpleNamespace(dsl=None, recorded="sm_90a", entry="_ZN2ns4gemmEPf", path=tmp_path / "gemm.launch.yaml")
    monkeypatch.setattr(proof, "cases_if_any", lambda source: [kept.path])
    monkeypatch.setattr(proof, "load_case", lambda path: kept)
    told = "no case beside it runs `{}`"
    known = proof.cases_that_run(tmp_path / "gemm.cu", ["gemm"])[1]
    assert known.startswith(told.format("gemm"))
    assert "(gemm.launch.yaml)" in known
    assert proof.cases_that_run(tmp_path / "gemm.cu", ["other"])[1] == told.format("other")


def test_kernels_in_strings_stay_at_m64(tmp_path: Path) -> None:
    path = tmp_path / "gemm.py"
    path.write_text(f'SOURCE = r"""\n{KERNEL.replace("HEAD", "")}"""\n')
    kernel, warnings, _ = planned(path)
    assert kernel["mma_rows"] == 64
    assert [w.partition("M=64: ")[2] for w in warnings] == [
        "its kernels stand in strings, and no case runs those alone"
    ]


@pytest.mark.slow
def test_without_a_run_there_are_no_steps(tmp_path: Path) -> None:
    (tmp_path / "gemm_ws.cu").write_text((CORPUS / "gemm_ws" / "gemm_ws.cu").read_text())
    kernel, warnings, _ = planned(tmp_path / "gemm_ws.cu", "native")
    assert (kernel["mma_rows"], kernel["native"], kernel["gate"][:-1]) == (128, [], [ROWS, WAITS])
    assert any("without the step release: no case beside it" in w for w in warnings)


@pytest.mark.spread(2)
@pytest.mark.parametrize("order", [("a.cu", "b.cu"), ("b.cu", "a.cu")])
def test_a_header_is_shown_once_for_the_files_that_share_it(tmp_path: Path, order: tuple[str, str]) -> None:
    (tmp_path / "gemm.cuh").write_text("#pragma once\n" + KERNEL.replace("HEAD", ""))
    for name in order:
        (tmp_path / name).write_text('#include "gemm.cuh"\nvoid launch() { gemm<<<1, 256>>>(nullptr, 0, 0, 1); }\n')
    (tmp_path / "a.case.yaml").write_text(CASE.replace("gemm.cu", "a.cu"))
    kernel, warnings, _ = planned(tmp_path / "a.cu")
    assert (kernel["mma_rows"], warnings) == (128, [])
    document = json.loads(
        porter("--format", "json", "plan", "--style", "full-rate", *(tmp_path / n for n in order)).stdout
    )
    (shown,) = document["kernels"]
    assert (shown["mma_rows"], {SAME, *kernel["gate"]} <= set(shown["gate"])) == (128, True)
    assert [what.rpartition(", as ")[2] for what in shown["gate"] if "equal on PTX" in what] == [
        "no case beside it runs `gemm`"
    ]
    assert not [d for d in document["diagnostics"] if d["id"] == "PT2511"]


def test_a_missing_fact_needs_no_run(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_text(path.read_text().replace("__launch_bounds__(256)", "__launch_bounds__(128)"))
    kernel, warnings, _ = planned(path)
    assert (kernel["mma_rows"], kernel["gate"]) == (64, [])
    assert not any("no case" in w for w in warnings)


def test_the_compat_style_has_nothing_to_show(tmp_path: Path) -> None:
    kernel, warnings, _ = planned(written(tmp_path, ""), "compat")
    assert (kernel["mma_rows"], kernel["gate"], warnings) == (64, [], [])
