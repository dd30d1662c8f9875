# SPDX-License-Identifier: Apache-2.0
"""Questions of kits that are kernels in PTX: what the simulator answers, and that ptxas takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import yaml

from porter.build.toolchain import find_toolkit
from porter.verify.backends import SimBackend
from porter.verify.kit.bare import BareRun, assembled
from porter.verify.kit.questions import question_runs
from porter.verify.kit.record import Done, KitRecord, hold
from porter.verify.launch_file import load_launch
from porter.verify.settings import SimOptions

RUNS = {run.case.split(":")[1]: run for run in question_runs()}


def answer(run: BareRun, folder: Path) -> npt.NDArray[np.uint32]:
    """The words that a run leaves on the simulator."""
    (out,) = run.tensors.values()
    tensors = {"out": {"dtype": "u32", "shape": [out.nbytes // 4], "init": out.word}}
    launch = {"grid": [run.grid[0]], "block": [run.block], "cluster": [run.cluster]}
    (folder / "k.ptx").write_text(run.ptx)
    (folder / "l.yaml").write_text(
        yaml.safe_dump({"version": 1, "launch": launch, "tensors": tensors, "params": ["out"]})
    )
    given = load_launch(folder / "l.yaml", folder / "k.ptx")
    done = SimBackend(SimOptions()).run(given.kernel, given.problem, given.launch, given.images)
    assert done.status == "ok", done.findings
    return done.after["out"].elements().view(np.uint32)


@pytest.mark.parametrize("name", ["mma_then_copy", "load_without_fence", "load_without_wait"])
def test_orders_that_the_simulator_keeps(name: str, tmp_path: Path) -> None:
    assert not answer(RUNS[name], tmp_path).any()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("mma_then_copy", "tcgen05.cp.cta_group::1.128x256b [%r4], %rd7;", ""),
        ("load_without_fence", "tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd4, %rd5, %r18, %p5;", ""),
        ("load_without_wait", "{%r20}, [%r5]", "{%r20}, [%r5+1]"),
        ("lbo_k_major", "wgmma.mma_async", "//"),
    ],
)
def test_a_wrong_order_would_be_seen(name: str, before: str, after: str, tmp_path: Path) -> None:
    """Kernels that leave out what they ask about, or read another column, do not give the answer that is hoped for."""
    run = RUNS[name]
    assert before in run.ptx
    other = replace(run, ptx=run.ptx.replace(before, after))
    right = 0x41800000 if name.startswith("lbo") else 0
    assert (answer(other, tmp_path) != right).all()


@pytest.mark.parametrize("name", ["lbo_k_major", "lbo_mn_major"])
def test_offsets_that_wgmma_ignores(name: str, tmp_path: Path) -> None:
    run = RUNS[name]
    assert run.capability == "9.0"
    words = answer(run, tmp_path)
    assert set(words.tolist()) == {run.tensors["out"].after}


def test_each_warp_reads_its_own_lanes(tmp_path: Path) -> None:
    assert answer(RUNS["lane_bits"], tmp_path).tolist() == list(range(128))


def test_every_element_of_a_ws_product_is_somewhere_once(tmp_path: Path) -> None:
    """M = N = 64 in two halves of the lanes: rows and columns can be told from the words."""
    words = answer(RUNS["ws_lanes"], tmp_path).reshape(128, 2)
    written = [(lane, w) for lane in range(128) for w in range(2) if words[lane, w] != 0x7FC0ABCD]
    values = np.array([words[lane, w] for lane, w in written], np.uint32).view(np.float32)
    rows, columns = values % 256, values // 256
    assert len(written) == 128
    assert sorted(rows.tolist()) == sorted([*range(64), *range(64)])
    assert set(columns.tolist()) == {0, 32}


def test_both_blocks_of_a_pair_get_the_same_columns(tmp_path: Path) -> None:
    first, second = answer(RUNS["pair_columns"], tmp_path).reshape(2, 2).tolist()
    assert first == second
    assert first[0] != first[1]


def test_every_question_has_a_number_and_says_what_an_answer_means() -> None:
    assert {run.question.split(":")[0] for run in RUNS.values()} == {"Q3", "Q4", "Q5", "Q7", "Q8", "Q9"}
    assert len({run.label for run in RUNS.values()}) == len(RUNS)
    assert all(" " not in run.case and " " not in run.sizes for run in RUNS.values())


def test_a_refusal_is_an_answer_too(tmp_path: Path) -> None:
    run = RUNS["lane_bits"]
    refused = Done(run.label, run.source, run.inputs, "cuCtxSynchronize:CUDA_ERROR_ILLEGAL_INSTRUCTION")
    (held,) = hold(KitRecord(tmp_path, "12ab", {"capability": "10.0"}, (refused,)), [run])
    assert (held.verdict, held.what) == ("answered", refused.status)


def test_answers_are_taken_as_they_are(tmp_path: Path) -> None:
    runs = list(RUNS.values())
    done = tuple(
        Done(r.label, r.source, r.inputs, "ok", {n: (d, "whole") for n, d in r.expected().items()}) for r in runs
    )
    record = KitRecord(tmp_path, "12ab", {"capability": "10.0"}, done)
    assert {h.verdict for h in hold(record, runs)} == {"answered"}
    record = KitRecord(tmp_path, "12ab", {"capability": "9.0"}, done)
    assert {h.verdict for h in hold(record, runs)} == {"same"}


@pytest.mark.slow
def test_ptxas_takes_all_questions() -> None:
    toolkit = find_toolkit()
    for run in RUNS.values():
        assert assembled(run, toolkit).image
