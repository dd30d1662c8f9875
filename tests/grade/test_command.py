# SPDX-License-Identifier: Apache-2.0
"""`porter grade` as a command: PTX, what if, the timeline, JSON, and what it does not know."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from grade.kernels import kernel
from grade.published import ladders

from porter.cli.grading import of_ptx
from porter.cli.main import main
from porter.grade import model
from porter.grade.chips import chips
from porter.grade.reading import Reading, read_shape
from porter.grade.schedule import _together
from porter.grade.shape import Mma, Shape
from porter.grade.whatif import Impossible, apply
from porter.ptx.parser import parse_module
from porter.ptx.umma import Kind
from porter.report import json as report_json

RUNGS = {rung.name: rung.shape for ladder in ladders() for rung in ladder.rungs}
RING = RUNGS["v4: warp specialized, 7 stages"]


def porter(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--no-config", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def graded(*arguments: str | Path, code: int = 0) -> Any:
    document = json.loads(porter("--format", "json", "grade", *arguments, code=code))
    if document["kind"] == "grade":
        jsonschema.validate(document, report_json.schema("grade"))
    return document


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(shape: Shape, *changes: tuple[str, str]) -> Path:
        text = kernel(shape)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "kernel.ptx"
        path.write_text(text)
        return path

    return written


def test_ptx_is_graded(write: Any) -> None:
    found = graded(write(RING))["kernels"]
    assert len(found) == 1
    one = found[0]
    assert one["chip"] == "B200"
    assert one["shape"]["tile"] == [128, 128, 64]
    assert one["shape"]["stages"] == 7
    assert one["limit"] == "TMA fill"
    assert 40 < one["percent_of_nominal"] < 70
    assert one["problem"] == [4096, 4096, 4096]
    assert any("128 bytes" in text for text in one["assumed"])


def test_the_table_names_what_limits_and_what_lifts(write: Any) -> None:
    text = porter("grade", write(RING))
    assert "TMA fill" in text
    assert "would lift" in text
    assert "order and limiting part can be trusted" in text


def test_a_port_that_cannot_be_graded_is_named(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(RING)
    (read,) = of_ptx(path)
    none = Reading(None, ("M and N of its MMAs",))
    found = [replace(read, label="original"), replace(read, label="port", kernel="ported", reading=none)]
    monkeypatch.setattr("porter.cli.grade.of_ptx", lambda _: found)
    text = " ".join(porter("grade", path, code=6).split())
    assert "ported" in text
    assert "M and N of its MMAs" in text
    found[:] = [read, replace(read, label="kernel", kernel="other", reading=none)]
    assert "other" not in porter("grade", path)


@pytest.mark.parametrize(
    ("change", "rises"),
    [
        ("tile=128x256,stages=4", True),
        ("pair", True),
        ("stages=2", False),
        ("problem=256x256x4096", False),
        ("problem=8192x8192x8192", True),
    ],
)
def test_what_if(write: Any, change: str, rises: bool) -> None:
    before, after = graded(write(RING), "--what-if", change)["kernels"]
    assert before["what_if"] == ""
    assert after["what_if"] == change
    assert (after["percent_of_nominal"] > before["percent_of_nominal"]) is rises


def test_what_if_changes_what_is_asked_for_and_nothing_else(write: Any) -> None:
    before, after = graded(write(RING), "--what-if", "stages=3")["kernels"]
    assert after["shape"] == {**before["shape"], "stages": 3}
    _, paired = graded(write(RING), "--what-if", "pair")["kernels"]
    assert paired["shape"]["mmas"][0]["cta_group"] == 2
    assert paired["shape"]["tile"] == [256, 128, 64]
    assert paired["shape"]["load_bytes"] == before["shape"]["load_bytes"] * 3 // 4


def test_the_order_of_more_stages(write: Any) -> None:
    asked = [x for n in range(2, 8) for x in ("--what-if", f"stages={n}")]
    rates = [k["percent_of_nominal"] for k in graded(write(RING), *asked)["kernels"][1:]]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


@pytest.mark.parametrize(
    "change", ["stages", "tile=128", "stages=99", "tile=100x128", "tile=128x512x64,pair,overlap", "overlap,overlap",
               "problem=1x2", "m128", "faster"],
)  # fmt: skip
def test_changes_that_are_none_or_do_not_fit_are_refused(write: Any, change: str) -> None:
    document = graded(write(RING), "--what-if", change, code=2)
    assert "--what-if" in document["diagnostics"][0]["message"]


WIDE = RUNGS["8: 128 x 256, epilogue in pieces"]


@pytest.mark.parametrize(
    "changes",
    [
        ("tile=128x256", "stages=3"),
        ("tile=128x256x128", "stages=2"),
        ("pair", "tile=256x256", "stages=4"),
        ("pair", "tile=128x256", "specialize"),
        ("overlap", "tile=128x128", "stages=5", "problem=8192x8192x1024"),
        ("blocks=2", "tile=128x64x64", "stages=3"),
    ],
)
def test_the_order_of_changes_means_nothing(changes: tuple[str, ...]) -> None:
    """Whichever comes first, the result is the same, and what does not fit on the way to it refuses nothing."""
    full = replace(WIDE, stages=4, waits_each=True, tile_n=128, mmas=((Mma(128, 128, Kind.F16), 4),),
                   load_bytes=32768, residency=replace(WIDE.residency, smem=5 * 32768, tmem_columns=512))  # fmt: skip
    found = {str(apply(",".join(order), full, model.STANDARD)) for order in itertools.permutations(changes)}
    assert len(found) == 1
    assert str(full) not in next(iter(found))


@pytest.mark.parametrize("change", ["tile=128x256,stages=7", "overlap,tile=128x512", "stages=12,problem=512x512x512"])
def test_the_result_of_changes_has_to_fit(change: str) -> None:
    for order in itertools.permutations(change.split(",")):
        with pytest.raises(Impossible, match="fit"):
            apply(",".join(order), RING, model.STANDARD)


def test_half_of_b_in_each_block_of_a_pair_leaves_room() -> None:
    shape = replace(RING, residency=replace(RING.residency, smem=7 * 32768 + 1024))
    paired, _ = apply("pair", shape, model.STANDARD)
    assert paired.residency.smem == 7 * 24576 + 1024
    assert apply("pair,stages=9", shape, model.STANDARD)[0].stages == 9
    with pytest.raises(Impossible, match="10 stages"):
        apply("pair,stages=10", shape, model.STANDARD)


def test_a_change_is_made_where_a_kernel_allows_it(write: Any, tmp_path: Path) -> None:
    """Of two kernels one has pairs already: it is said, and the other is graded; where neither allows it, none is."""
    single, pair = kernel(RING), kernel(RUNGS["v5: pair"]).replace("kernel", "paired")
    path = tmp_path / "two.ptx"
    path.write_text(single + pair[pair.index(".visible .entry") :])
    document = graded(path, "--what-if", "pair", "--what-if", "stages=2")
    assert [(k["kernel"], k["what_if"]) for k in document["kernels"]] == [
        ("kernel", ""), ("kernel", "pair"), ("kernel", "stages=2"), ("paired", ""), ("paired", "stages=2")
    ]  # fmt: skip
    (said,) = document["diagnostics"]
    assert (said["id"], said["severity"]) == ("PT5072", "note")
    assert "paired" in said["message"]
    assert "--what-if" in graded(path, "--what-if", "m128", code=2)["diagnostics"][0]["message"]


def test_a_fact_that_is_missing_is_named_and_can_be_stated(write: Any) -> None:
    path = write(RING, ("selp.b32", "min.s32 %r99, %r98, %r97; //"))
    document = graded(path, code=6)
    assert document["diagnostics"][0]["id"] == "PT5066"
    assert "the number of stages" in document["diagnostics"][0]["message"]
    stated = graded(path, "--what-if", "stages=7")["kernels"]
    assert [k["what_if"] for k in stated] == ["stages=7"]
    assert stated[0]["percent_of_nominal"] == graded(write(RING))["kernels"][0]["percent_of_nominal"]


@pytest.mark.parametrize(("arguments", "code"), [(["--problem", "4096"], 2), (["--kernel", "other"], 6)])
def test_options_that_name_nothing(write: Any, arguments: list[str], code: int) -> None:
    assert graded(write(RING), *arguments, code=code)["diagnostics"]


TWO = replace(RING, mmas=((Mma(64, 128, Kind.F16), 8),), issuers=2, waits_each=True)
"""Two warpgroups, each with a tile of 64 rows that it multiplies and waits for."""


def test_mmas_of_several_issuers_run_in_the_order_of_their_issue() -> None:
    """Both wait for the last of both, unless they take turns: then one multiplies while the other waits."""
    together, in_turns = (
        model.run(shape, chips()["B200"], model.STANDARD) for shape in (TWO, replace(TWO, in_turns=True))
    )
    mmas = 8 * 64.5
    assert in_turns.stage_clocks == pytest.approx(mmas + 8, rel=0.02)
    assert together.stage_clocks > mmas + 136
    alone = model.run(replace(TWO, issuers=1), chips()["B200"], model.STANDARD)
    assert alone.stage_clocks >= together.stage_clocks


def test_an_issuer_that_comes_later_waits_for_no_other() -> None:
    assert _together([0.0, 5.0, 300.0], 44.0, False) == [[0, 1], [2]]
    assert _together([300.0, 0.0], 44.0, False) == [[1], [0]]
    assert _together([0.0, 0.0], 44.0, True) == [[0], [1]]


def test_turns_are_read() -> None:
    text = kernel(TWO)
    ring = read_shape(parse_module(text), parse_module(text).entries()[0]).shape
    turned = text.replace("tcgen05.commit.", "bar.arrive 2, 256;\ntcgen05.commit.")
    taking = read_shape(parse_module(turned), parse_module(turned).entries()[0]).shape
    assert ring is not None
    assert taking is not None
    assert (ring.in_turns, taking.in_turns) == (False, True)


@pytest.mark.parametrize("arch", ["sm_103a", "sm_110a"])
def test_chips_that_the_model_does_not_know(write: Any, arch: str) -> None:
    document = graded(write(RING, ("sm_100a", arch)), code=6)
    assert document["diagnostics"][0]["id"] == "PT5066"
    assert f"a chip that runs {arch}" in document["diagnostics"][0]["message"]


def test_files_that_hold_no_kernel(tmp_path: Path) -> None:
    assert graded(tmp_path / "none.ptx", code=2)["diagnostics"]
    (tmp_path / "empty.ptx").write_text(".version 8.7\n.target sm_100a\n.address_size 64\n")
    assert graded(tmp_path / "empty.ptx", code=6)["diagnostics"]


@pytest.mark.parametrize("name", ["v1: serial, rows of 16 bytes", "v6: persistent, epilogue overlapped"])
def test_the_timeline_is_in_clocks(write: Any, tmp_path: Path, name: str) -> None:
    out = tmp_path / "timeline.json"
    document = graded(write(RUNGS[name]), "--timeline", out)
    trace = json.loads(out.read_text())
    assert len(trace["traceEvents"]) == document["timeline"]["events"]
    assert "clock" in trace["otherData"]["axis"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    slices = [(names[e["pid"], e["tid"]], e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    products = sorted((start, end) for lane, start, end in slices if lane == "tensor core")
    stores = sorted((start, end) for lane, start, end in slices if lane == "epilogue")
    assert products
    assert len(stores) == 2
    assert all(a[1] <= b[0] + 1 for a, b in itertools.pairwise(products))
    overlap = any(start < end_of and end > start_of for start, end in products for start_of, end_of in stores)
    assert overlap is RUNGS[name].epilogue.overlapped


def test_a_timeline_that_cannot_be_written(write: Any, tmp_path: Path) -> None:
    assert graded(write(RING), "--timeline", tmp_path / "no" / "t.json", code=2)["diagnostics"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("v1: serial, rows of 16 bytes", "TMA fill"),
        ("v4: warp specialized, 7 stages", "TMA fill"),
        ("6: TMA and tcgen05, serial", "barrier latency"),
        ("3: 128-byte swizzle", "barrier latency"),
    ],
)
def test_what_limits(write: Any, name: str, limit: str) -> None:
    assert graded(write(RUNGS[name]))["kernels"][0]["limit"] == limit


def test_m64_is_limited_by_the_tensor_core(write: Any) -> None:
    wide = RUNGS["8: 128 x 256, epilogue in pieces"]
    half = replace(wide, mmas=((replace(wide.mmas[0][0], m=64), 2 * wide.mmas[0][1]),))
    one = graded(write(half), "--what-if", "m128")["kernels"]
    assert one[0]["limit"] == "tensor core"
    assert one[1]["percent_of_nominal"] > 1.2 * one[0]["percent_of_nominal"]


def test_a_plan_says_what_its_mmas_allow(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "corpus/gemm_ws/gemm_ws.cu"
    assert "MMAs of M = 64 allow 49.8 % of a B200's nominal rate" in porter("plan", "--style", "compat", source)
    found = json.loads(porter("--format", "json", "plan", "--style", "compat", source))
    jsonschema.validate(found, report_json.schema("plan"))
    assert found["kernels"][0]["ceiling"] == pytest.approx(0.498, abs=0.001)
