# SPDX-License-Identifier: Apache-2.0
"""The parts of the compile gate that need no compiler: where a port lies, what runs at once, what is compared."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from porter.build.gate import Module, Pair, kernels, run_pairs, spills
from porter.build.ptxas import Assembled, Resources
from porter.build.tree import write_tree
from porter.diagnostics import Code, PorterError


def module(ptx: str = "", **resources: Resources) -> Module:
    return Module(ptx, Assembled(dict(resources), (), ""))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


def test_both_sides_of_all_pairs_run_at_once_and_progress_is_told() -> None:
    meeting = threading.Barrier(4, timeout=20)

    def side() -> Module:
        meeting.wait()
        return module()

    told: list[tuple[int, int]] = []
    outcomes = run_pairs([Pair(side, side), Pair(side, side)], 4, lambda done, total: told.append((done, total)))
    assert len(outcomes) == 2
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_more_run_at_once_than_asked_for() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def side() -> Module:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return module()

    run_pairs([Pair(side, side)] * 4, 2)
    assert most == 2


def test_a_refusal_stays_with_its_side_and_a_name_that_is_not_there_is_left_out() -> None:
    def unnamed() -> Module:
        raise PorterError(Code.ENTRY_NOT_FOUND, path="x.cu", entry="k")

    def refused() -> Module:
        raise PorterError(Code.NVCC_ERROR, path="x.cu", arch="sm_100a", text="no")

    first, second = run_pairs([Pair(module, refused), Pair(unnamed, refused, Pair(module, module))])
    assert isinstance(first.before, Module)
    assert isinstance(first.after, PorterError)
    assert isinstance(second.before, Module)
    assert isinstance(second.after, Module)


def test_kernels_are_matched_by_their_names() -> None:
    before = module(_Z1kIiEvPT_=Resources(10), _Z1gPf=Resources(20), _Z1hv=Resources(30), _Z1hi=Resources(31))
    after = module(_Z1kIiEvPT_=Resources(11), _Z1gPfi=Resources(21), _Z1hf=Resources(32))
    rows = {r.kernel.split("(")[0]: r.metric("registers").after for r in kernels(before, after, "a", "b").rows}
    assert rows["void k<int>"] == 11
    assert rows["g"] == 21, "its parameters changed"
    assert rows["h"] is None, "an overload is not guessed"


NT, TN, NN = ({"old": f"_Z1kI3OldLi{n}EEvT_", "new": f"_Z1kI3NewLi{n}EEvT_"} for n in (64, 8, 1))


@pytest.mark.parametrize("order", [(NT, TN, NN), (NN, NT, TN), (TN, NT, NN)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_instantiations_whose_types_change_are_matched_by_the_others(order: list[dict[str, str]], count: int) -> None:
    """Each is the one with which it has most words in common, whatever the order of the compiler."""
    before = module(**{one["old"]: Resources(10 + n) for n, one in enumerate(order[:count])})
    after = module(**{one["new"]: Resources(20 + n) for n, one in enumerate(reversed(order[:count]))})
    rows = kernels(before, after, "a", "b").rows
    assert {r.entries for r in rows} == {(one["old"], one["new"]) for one in order[:count]}


@pytest.mark.parametrize(("before", "after", "worse"), [(0, 8, True), (8, 16, False), (8, 0, False), (0, 0, False)])
def test_only_new_spills_count(before: int, after: int, worse: bool) -> None:
    old, new = module(k=Resources(9, spill_stores=before)), module(k=Resources(9, spill_loads=after))
    assert [spills(r) for r in kernels(old, new, "a", "b").rows] == [worse]


MMA = ".visible .entry k() {{ {} }}\n.func helper() {{ {} }}\n"


@pytest.mark.parametrize(
    ("port", "emptied"),
    [
        (MMA.format("tcgen05.mma.x;", ""), ()),
        (MMA.format("call helper;", "tcgen05.mma.x;"), ()),
        (MMA.format("ret;", "tcgen05.mma.x;"), ("k",)),
        (".visible .entry other() { tcgen05.mma.x; }\n", ("k",)),
    ],
)
def test_a_kernel_that_lost_its_tensor_core_instructions_is_named(port: str, emptied: tuple[str, ...]) -> None:
    before = module(MMA.format("wgmma.mma_async.x;", ""), k=Resources(9))
    name = "k" if "entry k" in port else "other"
    assert kernels(before, module(port, **{name: Resources(9)}), "a", "b").emptied == emptied


def test_a_tree_keeps_the_places_of_files_to_each_other(tmp_path: Path) -> None:
    include = tmp_path / "p" / "include"
    (include / "deep").mkdir(parents=True)
    files = {str(tmp_path / "p" / "src" / "a.cu"): b"a", str(include / "deep" / "b.cuh"): b"b"}
    tree = write_tree(files, [include, tmp_path / "elsewhere"])
    assert tree.place(tmp_path / "p" / "src" / "a.cu").read_bytes() == b"a"
    assert (tree.place(include) / "deep" / "b.cuh").read_bytes() == b"b"
    searched = tree.include_dirs([include, tmp_path / "elsewhere"])
    assert searched == (tree.place(include), include, tmp_path / "elsewhere")
    assert tree.has(include / "deep" / "b.cuh")
    assert not tree.has(include / "deep" / "c.cuh")
    words = f"{tree.place(include / 'deep' / 'b.cuh')}(3): error: no"
    assert tree.original_names(words) == f"{include / 'deep' / 'b.cuh'}(3): error: no"


def test_an_include_directory_above_all_files_is_part_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "p" / "src").mkdir(parents=True)
    files = {str(tmp_path / "p" / "src" / "a.cu"): b"a", str(tmp_path / "p" / "src" / "b.cuh"): b"b"}
    tree = write_tree(files, [tmp_path / "p"])
    assert (tree.include_dirs([tmp_path / "p"])[0] / "src" / "b.cuh").read_bytes() == b"b"


def test_a_tree_is_named_by_its_content(tmp_path: Path) -> None:
    file = str(tmp_path / "a.cu")
    assert write_tree({file: b"1"}).base == write_tree({file: b"1"}).base
    assert write_tree({file: b"1"}).base != write_tree({file: b"2"}).base


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "file" / "cache"))
    tree = write_tree({str(tmp_path / "a.cu"): b"1"}, (), tmp_path / "spare")
    assert tree.base.is_relative_to(tmp_path / "spare")
    with pytest.raises(OSError, match="Not a directory"):
        write_tree({str(tmp_path / "a.cu"): b"1"})


FILL = """\
.version 9.0
.target {chip}
.address_size 64
.global .align 4 .u32 count = {count};
.visible .entry fill(.param .u64 p) {{
    {place}
    mov.u32 %r1, {number};
    {more}
    ret;
}}
.visible .entry other() {{ ret; }}
"""
AS_BEFORE = {"chip": "sm_90a", "count": 1, "place": ".loc 1 2 3", "number": 4, "more": ""}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"chip": "sm_100a"}, True),
        ({"place": ".loc 1 9 9"}, True),
        ({"number": 5}, False),
        ({"count": 2}, False),
        ({"more": "bar.sync 0;"}, False),
    ],
)
def test_kernels_with_the_same_ptx_are_told(changes: dict[str, object], same: bool) -> None:
    sides = [module(FILL.format(**AS_BEFORE | c), fill=Resources(8)) for c in ({}, changes)]
    assert kernels(*sides, "a", "b").unchanged == (("fill",) if same else ())


def test_a_kernel_that_calls_others_is_not_taken_for_the_same() -> None:
    sides = [module(FILL.format(**AS_BEFORE | {"more": "call.uni helper;"}), fill=Resources(8)) for _ in range(2)]
    assert kernels(*sides, "a", "b").unchanged == ()


@pytest.mark.parametrize(
    ("body", "idle"),
    [
        ("\n    .loc 1 2 3\n$L__BB0_0:\n    ret;\n", True),
        ("\n    @%p1 ret;\n    trap;\n", False),
        ("\n    st.u32 [%rd1], 0;\n    ret;\n", False),
    ],
)
def test_a_kernel_that_does_nothing_is_the_same_by_any_name(body: str, idle: bool) -> None:
    """Libraries name the chip in it."""
    names = {"old": "_ZN6lib9005emptyEv", "new": "_ZN7lib10005emptyEv"}
    sides = [module(f".visible .entry {name}()\n{{{body}}}\n", **{name: Resources(4)}) for name in names.values()]
    assert kernels(*sides, "a", "b").unchanged == ((names["old"],) if idle else ())
