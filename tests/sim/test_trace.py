# SPDX-License-Identifier: Apache-2.0
"""Traces: a run that is recorded computes the same, and what is recorded is true and well formed."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import test_core_async
from core_ptx import module_text, run, upload
from test_core_tcgen05 import COMMIT, DEALLOC, HEAD, IDESC, MMA, REGS, RELINQUISH, TRY, operands

from porter.report import timeline, trace
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.observer import Named, Observers
from porter.sim.results import Schedule
from porter.sim.trace.recorder import Recorder, Slice
from porter.sim.trace.tracer import Tracer

TILES = 5
TILE = 512

PIPELINE = f"""ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
mov.u32 %r2, full; mov.u32 %r3, empty; mov.u32 %r4, tile;
.shared .align 8 .b8 full[16]; .shared .align 8 .b8 empty[16]; .shared .align 128 .b8 tile[{2 * TILE}];
setp.eq.u32 %p0, %r0, 0; mov.u32 %r5, 0; @!%p0 bra READY;
mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r2+8], 1;
mbarrier.init.shared.b64 [%r3], 32; mbarrier.init.shared.b64 [%r3+8], 32; fence.mbarrier_init.release.cluster;
READY: bar.sync 0; setp.eq.u32 %p1, %r1, 1; @%p1 bra CONSUME; @!%p0 bra END;
PRODUCE: and.b32 %r6, %r5, 1; shl.b32 %r7, %r6, 3; add.u32 %r8, %r2, %r7; add.u32 %r9, %r3, %r7;
shr.u32 %r10, %r5, 1; and.b32 %r10, %r10, 1; xor.b32 %r10, %r10, 1;
FREE: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r10; @!%p2 bra FREE;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {TILE};
mad.lo.u32 %r12, %r6, {TILE}, %r4; mul.wide.u32 %d3, %r5, {TILE}; add.u64 %d4, %d0, %d3;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%d4], {TILE}, [%r8];
add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, {{produced}}; @%p3 bra PRODUCE; bra END;
CONSUME: and.b32 %r6, %r5, 1; shl.b32 %r7, %r6, 3; add.u32 %r8, %r2, %r7; add.u32 %r9, %r3, %r7;
shr.u32 %r10, %r5, 1; and.b32 %r10, %r10, 1;
DATA: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], %r10; @!%p2 bra DATA;
sub.u32 %r13, %r0, 32; shl.b32 %r13, %r13, 4; mad.lo.u32 %r12, %r6, {TILE}, %r4; add.u32 %r12, %r12, %r13;
ld.shared.v4.u32 {{{{%r20, %r21, %r22, %r23}}}}, [%r12]; mbarrier.arrive.shared.b64 _, [%r9];
mad.lo.u32 %r14, %r5, {TILE}, %r13; cvt.u64.u32 %d5, %r14; add.u64 %d5, %d1, %d5;
st.global.v4.u32 [%d5], {{{{%r20, %r21, %r22, %r23}}}};
add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, {TILES}; @%p3 bra CONSUME;
END: ret;"""
"""Warp 0's first thread copies tiles into two stages, warp 1 writes them out."""

SCHEDULES: tuple[Schedule, ...] = ("eager", "late", "random")


def pipeline(
    recorder: Recorder | None, produced: int = TILES, grid: int = 1, **options: Any
) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    source = np.arange(TILES * TILE // 4, dtype=np.uint32)
    a, out = upload(memory, source), memory.alloc(source.nbytes)
    text = module_text(["in", "out"], REGS + PIPELINE.format(produced=produced))
    outcome = run(text, [a, out], memory, grid, 64, options=Options(trace=recorder, seed=5, **options))
    return outcome, memory.read(out, source.nbytes).view(np.uint32)


def recorded(**more: Any) -> Recorder:
    recorder = Recorder()
    outcome, _ = pipeline(recorder, **more)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return recorder


# The file's form ----------------------------------------------------------------------------------------

# As far as Perfetto needs it: "Trace Event Format", sections Metadata, Complete, Instant and Flow Events.
_NUMBER = {"type": "number", "minimum": 0}
_COMMON = {"name": {"type": "string"}, "pid": {"type": "integer"}, "tid": {"type": "integer"}}


def _form(ph: str, required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "properties": {"ph": {"const": ph}, **_COMMON, **properties},
        "required": ["name", "ph", "pid", "tid", *required],
    }


FORMAT = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _form("M", ["args"], args={"type": "object", "minProperties": 1}),
                    _form("X", ["ts", "dur", "cat"], ts=_NUMBER, dur={"type": "number", "exclusiveMinimum": 0}),
                    _form("i", ["ts", "s"], ts=_NUMBER, s={"enum": ["t", "p", "g"]}),
                    _form("s", ["ts", "id", "cat"], ts=_NUMBER, id={"type": "integer"}),
                    _form("f", ["ts", "id", "cat", "bp"], ts=_NUMBER, id={"type": "integer"}, bp={"const": "e"}),
                ]
            },
        },
    },
}


def check_form(recorder: Recorder, path: Path) -> list[dict[str, Any]]:
    """Write a trace and hold it to the format, to nesting, and to flows whose ends lie in slices."""
    count = trace.write(recorder, path)
    document = json.loads(path.read_text())
    jsonschema.validate(document, FORMAT)
    events = document["traceEvents"]
    assert len(events) == count
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if e["ph"] != "M":
            tracks[e["pid"], e["tid"]].append(e)
    assert set(tracks) <= named
    for found in tracks.values():
        assert all(a["ts"] <= b["ts"] for a, b in itertools.pairwise(found))
        open_: list[float] = []
        for e in (e for e in found if e["ph"] == "X"):
            while open_ and open_[-1] <= e["ts"]:
                open_.pop()
            assert not open_ or e["ts"] + e["dur"] <= open_[-1], e
            open_.append(e["ts"] + e["dur"])
    flows: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            assert e["ph"] not in flows[e["id"]]
            flows[e["id"]][e["ph"]] = e
            place = tracks[e["pid"], e["tid"]]
            assert any(x["ph"] == "X" and x["ts"] <= e["ts"] < x["ts"] + x["dur"] for x in place), e
    for pair in flows.values():
        assert set(pair) == {"s", "f"}
        assert pair["s"]["ts"] <= pair["f"]["ts"]
    for group in {e["pid"] for e in events}:
        (name,) = [e["args"]["name"] for e in events if e["pid"] == group and e["name"] == "process_name"]
        assert "order, not time" in name
    assert "order, not time" in document["otherData"]["axis"]
    return events


@pytest.mark.parametrize("mode", ["functional", "checking"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_recorded_run_is_the_same_run(schedule: Schedule, mode: Any, tmp_path: Path) -> None:
    plain, expected = pipeline(None, schedule=schedule, mode=mode)
    recorder = Recorder()
    outcome, got = pipeline(recorder, schedule=schedule, mode=mode)
    assert outcome.status == plain.status == "ok"
    assert got.tolist() == expected.tolist() == list(range(expected.size))
    assert outcome.stats.warp_instructions == plain.stats.warp_instructions
    assert outcome.stats.steps == plain.stats.steps
    assert [h.kind.id for h in outcome.hazards] == [h.kind.id for h in plain.hazards]
    check_form(recorder, tmp_path / "trace.json")


def test_nothing_of_the_recorder_runs_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("a run that is not recorded must not meet the recorder")

    for kind in (Tracer, Named, Observers):
        monkeypatch.setattr(kind, "__init__", refuse)
    outcome, _ = pipeline(None)
    assert outcome.status == "ok"
    with pytest.raises(AssertionError, match="not recorded"):
        pipeline(Recorder())


# What is in it ------------------------------------------------------------------------------------------


def of(recorder: Recorder, category: str, name: str = "") -> list[Slice]:
    return [s for s in recorder.slices if s.category == category and name in s.name]


def reached_from(recorder: Recorder, starts: Iterable[Slice], name: str) -> list[Slice]:
    chosen = {id(s) for s in starts}
    return [f.target for f in recorder.flows if id(f.source) in chosen and f.name == name]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_is_followed_from_its_issue_to_the_released_wait(schedule: Schedule) -> None:
    recorder = recorded(schedule=schedule)
    copies = of(recorder, "operation", "TMA load bulk")
    assert len(copies) == TILES
    assert {s.track.kind for s in copies} == {"TMA"}
    issues = of(recorder, "event", "TMA load bulk")
    assert [s.track.name for s in issues] == ["warp 0"] * TILES
    assert reached_from(recorder, issues, "issue") == copies
    phases = reached_from(recorder, copies, "complete")
    assert [s.track.name.endswith("(full+8)") for s in phases] == [False, True, False, True, False]
    assert all(s.args["completed"] for s in phases)
    waits = reached_from(recorder, phases, "released")
    assert len(waits) >= TILES
    assert {s.track.name for s in waits} == {"warp 1"}
    for copy, phase in zip(copies, phases, strict=True):
        assert copy.start < copy.end <= phase.end


def test_phases_alternate_and_consumers_release_the_producer() -> None:
    recorder = recorded(schedule="random")
    for label, completions in (("full+0", 3), ("full+8", 2), ("empty+0", 3), ("empty+8", 2)):
        phases = [s for s in recorder.slices if s.category == "phase" and f"({label})" in s.track.name]
        assert [s.args["number"] for s in phases] == list(range(completions + 1))
        assert [s.args["parity"] for s in phases] == [i & 1 for i in range(completions + 1)]
        assert [s.args["completed"] for s in phases] == [True] * completions + [False]
        assert all(a.end == b.start for a, b in itertools.pairwise(phases))
    arrivals = [s for s in of(recorder, "event", "mbarrier.arrive") if s.track.name == "warp 1"]
    released = reached_from(recorder, reached_from(recorder, arrivals, "arrive"), "released")
    assert "warp 0" in {s.track.name for s in released}


def test_no_warp_runs_and_waits_at_once() -> None:
    recorder = recorded(schedule="late")
    for track in {s.track for s in recorder.slices if s.track.kind == "warp"}:
        mine = sorted((s.start, s.end) for s in recorder.slices if s.track is track and s.category in ("run", "wait"))
        assert mine
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))
    assert sum(s.args["instructions"] for s in of(recorder, "run")) == pipeline(None)[0].stats.warp_instructions


def test_a_deadlock_shows_what_is_never_released(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome, _ = pipeline(recorder, produced=TILES - 1)
    assert outcome.status == "error"
    (stuck,) = of(recorder, "wait", "(never released)")
    assert stuck.track.name == "warp 1"
    assert "(full+0)" in stuck.name
    assert stuck.args["phase"] == "2 (parity 0)"
    check_form(recorder, tmp_path / "trace.json")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_core_work_is_followed_to_its_commit(schedule: Schedule, tmp_path: Path) -> None:
    memory = GlobalMemory()
    a, _ = operands()
    data = upload(memory, np.resize(a.view(np.uint8).reshape(-1), 8192))
    out = memory.alloc(4096)
    body = MMA.format(a_desc="0x4000400000000000", b_desc="0x4000400000000000", idesc=IDESC, commit=COMMIT, wait=TRY)
    text = HEAD.format(columns=32, relinquish=RELINQUISH) + body + DEALLOC.format(columns=32)
    recorder = Recorder()
    module = module_text(["in", "out"], REGS + text, "sm_100a", ".extern .shared .align 1024 .b8 dyn[];")
    run(module, [data, out], memory, 1, 128, smem=8192, options=Options(schedule=schedule, seed=3, trace=recorder))
    check_form(recorder, tmp_path / "trace.json")
    products = of(recorder, "operation", "tcgen05.mma f16")
    assert len(products) == 3
    assert {s.track.kind for s in products} == {"tensor core"}
    commits = of(recorder, "operation", "tcgen05.commit")
    assert {s.track.kind for s in commits} == {"commit"}
    # A commit ends when what was issued before it has ended.
    assert commits[0].end >= max(s.end for s in products)
    waits = reached_from(recorder, reached_from(recorder, commits, "complete"), "released")
    assert {s.track.name for s in waits} == {f"warp {w}" for w in range(4)}
    assert of(recorder, "event", "tcgen05.alloc")


@pytest.mark.parametrize("schedule", ["late", "random"])
def test_a_wgmma_belongs_to_its_warpgroup(schedule: Schedule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(test_core_async, "Options", partial(Options, trace=recorder))
    got, want = test_core_async.wgmma_case("wgmma.wait_group.sync.aligned 0;", schedule)
    assert got.tolist() == want.tolist()
    check_form(recorder, tmp_path / "trace.json")
    four = {f"warp {w}" for w in range(4)}
    products = of(recorder, "operation", "wgmma m64n8k16")
    assert len(products) == 3
    assert {s.track.name for s in of(recorder, "event", "wgmma m64n8k16")} == four
    assert {s.track.name for s in of(recorder, "wait", "wgmma.wait_group")} == four
    if schedule == "late":
        assert {s.track.name for s in reached_from(recorder, products[-1:], "complete")} == four


# Bounds -------------------------------------------------------------------------------------------------


def test_the_limit_bounds_the_trace_and_is_reported(tmp_path: Path) -> None:
    whole = recorded()
    size = len(whole.slices) + len(whole.flows)
    recorder = Recorder(limit=size // 2)
    outcome, _ = pipeline(recorder)
    assert outcome.status == "ok"
    assert len(recorder.slices) + len(recorder.flows) == size // 2
    assert recorder.left_out > 0
    assert f"beyond the limit of {size // 2}" in trace.left_out(recorder)
    check_form(recorder, tmp_path / "trace.json")
    assert trace.left_out(whole) == ""


def test_blocks_and_kernels_are_chosen() -> None:
    default = recorded(grid=6)
    assert [g.block for g in default.groups] == [(i, 0, 0) for i in range(4)]
    assert trace.left_out(default) == "2 of 6 blocks (k)"
    chosen = Recorder(blocks=lambda block: block in (1, 5))
    pipeline(chosen, grid=6, resident=4)
    assert [g.block for g in chosen.groups] == [(1, 0, 0), (5, 0, 0)]
    other = Recorder(kernels=lambda name: name == "other")
    pipeline(other)
    assert not other.slices


# The picture --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_timeline_fits_and_shows_every_warp_engine_and_mbarrier(width: int) -> None:
    recorder = recorded(schedule="late")
    lines = [line.plain for line in timeline.lines(recorder, width)]
    assert all(len(line) <= width for line in lines), lines
    heads = [line[: width // 3].split("  ")[0].strip() for line in lines]
    assert heads[1:4] == ["warp 0", "warp 1", "TMA"]
    assert [h for h in heads if h.startswith("mbar ")] == ["mbar full+0", "mbar full+8", "mbar empty+0", "mbar empty+8"]
    assert any("order, not time" in " ".join(lines[i:]) for i in range(len(lines)))
    producer = next(line for line in lines if line.startswith("warp 0"))
    consumer = next(line for line in lines if line.startswith("warp 1"))
    assert "T" in producer
    assert "T" not in consumer
    assert width < 80 or "·" in consumer


def test_the_timeline_keeps_to_ascii_where_it_must() -> None:
    recorder = recorded()
    assert all(line.plain.isascii() for line in timeline.lines(recorder, 100, ascii_only=True))
    assert not all(line.plain.isascii() for line in timeline.lines(recorder, 100))


def test_neighbouring_warps_that_do_the_same_share_a_line() -> None:
    body = ".shared .align 4 .b8 x[4]; bar.sync 0; bar.sync 0; ret;"
    recorder = Recorder()
    run(module_text([], REGS + body), [], GlobalMemory(), 1, 128, options=Options(trace=recorder))
    assert [line.plain.split("  ")[0] for line in timeline.lines(recorder, 100)][1] == "warp 0-3"
