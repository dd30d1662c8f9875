# SPDX-License-Identifier: Apache-2.0
"""Hazards that an original has too are told from those that its port introduces."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.ptx.ast import SourceLoc
from porter.report.json import schema
from porter.sim.check.catalog import KINDS
from porter.sim.check.hazard import Hazard, Site, edge
from porter.sim.check.judge import AFTER_COMMIT, AFTER_WAIT_GROUP
from porter.verify.hazards import HazardRun, against_original
from porter.verify.inherited import as_introduced, split
from porter.verify.line_map import LineMap

CORPUS = Path(__file__).parents[2] / "corpus"
PROXY = "fence.proxy.async between the threads' accesses and the synchronization"
SYNC = "synchronization of the threads' accesses with the issue"
COPY = "a wait on the mbarrier that the copy completes on"
WAIT_GROUP = "a wgmma.wait_group that covers the first access"
COMMIT = "a wait on the mbarrier that the commit arrives on"
WGMMA, MMA = "wgmma reading shared memory", "tcgen05.mma reading shared memory"
BULK = "asynchronous copy from shared memory"

ORIGINAL = """void produce() {
  store(tile);
  other(tile);
}
void kernel() {
  produce();
  wgmma(tile);
  bulk(tile);
}
"""
PORTED = """void helper() {
  tcgen05(tile);
}
void produce() {
  store(tile);
  other(tile);
}
void kernel() {
  produce();
  umma(tile);
  umma_wait();
  bulk(tile);
}
"""


@pytest.fixture
def lines(tmp_path: Path) -> LineMap:
    for folder, text in (("original", ORIGINAL), ("port", PORTED)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(text)
    return LineMap(tmp_path / "original/k.cu", tmp_path / "port/k.cu")


@pytest.fixture
def at(tmp_path: Path):
    def place(folder: str, *chain: int) -> SourceLoc:
        """Line numbers, outermost first."""
        loc = None
        for line in chain:
            loc = SourceLoc(str(tmp_path / folder / "k.cu"), line, 0, loc)
        assert loc is not None
        return loc

    return place


def site(what: str, opcode: str, loc: SourceLoc | None) -> Site:
    return Site(what, opcode, 7, loc, (0, 0, 0), 0)


def hazard(
    first: Site | None, second: Site, *missing: str, kind: str = "H16", race: str = "RAW", relied: bool = False,
    severity: str = "error", strict: bool = False,
) -> Hazard:  # fmt: skip
    edges = {edge(m, "add", relied) for m in missing}
    return Hazard(KINDS[kind], severity, race, "k", first, second, "", missing[0], "add", strict, edges=edges)


def test_lines_that_the_port_left_alone_are_found(lines: LineMap, at) -> None:
    assert lines.same(at("port", 9, 5), at("original", 6, 2))
    assert not lines.same(at("port", 9, 5), at("original", 6, 3))
    # Through other calls it is another place.
    assert not lines.same(at("port", 5), at("original", 6, 2))
    assert not lines.same(at("port", 10), at("original", 7))
    assert not lines.same(None, None)
    assert lines.replaced(at("port", 10, 2), at("original", 7))
    assert lines.replaced(at("port", 11), at("original", 7))
    assert not lines.replaced(at("port", 12), at("original", 7))
    assert not lines.replaced(at("port", 12), at("original", 8))
    assert not lines.replaced(at("port", 1), at("original", 7))


def test_headers_belong_to_those_in_the_same_place(tmp_path: Path) -> None:
    for folder in ("original", "port"):
        for path, text in (("k.cu", "a\n"), ("inc/h.cuh", "h\n"), ("inc/g.cuh", "h\n"), ("lib/h.cuh", "h\n")):
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_text(text)
    lines = LineMap(tmp_path / "original/k.cu", tmp_path / "port/k.cu")
    mine = SourceLoc(str(tmp_path / "port/inc/h.cuh"), 1)
    for path, same in (("inc/h.cuh", True), ("inc/g.cuh", False), ("lib/h.cuh", False)):
        assert lines.same(mine, SourceLoc(str(tmp_path / "original" / path), 1)) is same
    # A module of an installed package belongs to the port's copy of that package.
    copies = (("port/quack_sm100/sub/m.py", "site/quack/sub/m.py"), ("port/quack_sm100/m.py", "site/quack/m.py"),
              ("port/deep/other_sm100/m.py", "site/other/m.py"))  # fmt: skip
    for path in (p for pair in copies for p in pair):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("m\n")
    for i, (copy, _) in enumerate(copies):
        for j, (_, module) in enumerate(copies):
            assert lines.same(SourceLoc(str(tmp_path / copy), 1), SourceLoc(str(tmp_path / module), 1)) is (i == j)
    # A port without the header takes the original's own.
    there = SourceLoc(str(tmp_path / "original/inc/h.cuh"), 1)
    assert lines.same(there, there)


def test_a_hazard_of_untouched_lines_is_inherited_only_as_it_is(lines: LineMap, at) -> None:
    def pair(folder: str, *missing: str, first: int, second: int, **more) -> Hazard:
        store, bulk = at(folder, first), at(folder, second)
        return hazard(site("store", "stmatrix.x4", store), site(BULK, "cp.async.bulk", bulk), *missing, **more)

    original = [pair("original", PROXY, first=2, second=8, kind="H27")]
    port = pair("port", PROXY, first=5, second=12, kind="H27")
    assert [i.original for i in split([port], original, lines).inherited] == original

    others = [
        pair("port", SYNC, first=5, second=12, kind="H27"),
        pair("port", PROXY, SYNC, first=5, second=12, kind="H27"),
        pair("port", PROXY, first=6, second=12, kind="H27"),
        pair("port", PROXY, first=5, second=11, kind="H27"),
        pair("port", PROXY, first=5, second=12, kind="G1"),
        pair("port", PROXY, first=5, second=12, kind="H27", race="WAR"),
        replace(port, first=None),
        replace(port, first=replace(port.first, what="load")),
        replace(port, first=replace(port.first, opcode="tcgen05.ld.x4")),
    ]
    found = split(others, original, lines)
    assert not found.inherited
    assert found.introduced == tuple(others)
    # In the same place but for another reason, which the report says.
    assert [s.hazard for s in found.similar][:2] == others[:2]
    assert found.similar[1].more == SYNC


def test_a_line_that_the_port_changed_has_the_access_that_stood_there(lines: LineMap, at) -> None:
    def pair(folder: str, *missing: str, first: int, second: int, opcode: str = "st.shared.b32") -> Hazard:
        store, bulk = at(folder, first), at(folder, second)
        return hazard(site("store", opcode, store), site(BULK, "cp.async.bulk", bulk), *missing, kind="H27")

    original = [pair("original", PROXY, first=7, second=8)]
    port = pair("port", PROXY, first=10, second=12)
    assert [i.original for i in split([port], original, lines).inherited] == original
    others = [
        pair("port", SYNC, first=10, second=12),
        pair("port", PROXY, first=10, second=12, opcode="st.shared.v4.b32"),
        pair("port", PROXY, first=5, second=12),
        pair("port", PROXY, first=1, second=12),
        hazard(site("store", "tcgen05.st", at("port", 10)), site(BULK, "cp.async.bulk", at("port", 12)), PROXY,
               kind="H27"),
    ]  # fmt: skip
    assert split(others, original, lines).introduced == tuple(others)


def test_a_fence_beside_an_order_that_lacks_cannot_be_seen(lines: LineMap, at) -> None:
    """An original whose accesses nothing orders may or may not have the fence; its port orders them, and lacks it."""

    def pair(folder: str, missing: str, first: int, second: int, **more) -> Hazard:
        store, bulk = at(folder, first), at(folder, second)
        return hazard(site("store", "st.shared", store), site(BULK, "cp.async.bulk", bulk), missing, kind="H20", **more)

    unordered = pair("original", SYNC, 2, 8)
    assert split([pair("port", PROXY, 5, 12)], [unordered], lines).inherited
    assert not split([pair("port", PROXY, 6, 12)], [unordered], lines).inherited
    assert not split([pair("port", COMMIT, 5, 12)], [unordered], lines).inherited
    assert not split([pair("port", PROXY, 5, 12, relied=True)], [unordered], lines).inherited
    # one that is ordered, and lacks something else, has the fence
    assert not split([pair("port", PROXY, 5, 12)], [pair("original", COMMIT, 2, 8)], lines).inherited


def test_an_operand_is_inherited_where_its_order_is_the_users(lines: LineMap, at) -> None:
    def operand(folder: str, missing: str, line: int, what: str, opcode: str, **more) -> Hazard:
        first = site("store", "st.shared", at(folder, 2 if folder == "original" else 5))
        return hazard(first, site(what, opcode, at(folder, line)), missing, **more)

    def inherits(missing: str, line: int = 10, **more) -> bool:
        original = operand("original", missing, 7, WGMMA, "wgmma.mma_async", **more)
        port = operand("port", missing, line, MMA, "tcgen05.mma")
        return bool(split([port], [original], lines).inherited)

    assert inherits(PROXY)
    assert inherits(COPY)
    # A line that calls what the port has put another in for.
    assert not inherits(PROXY, line=12)
    store = site("store", "st.shared", at("original", 2))
    there = hazard(store, site(WGMMA, "wgmma.mma_async", at("original", 8)), PROXY)
    here = operand("port", PROXY, 12, MMA, "tcgen05.mma")
    assert split([here], [there], lines).inherited
    # Four warps meet at a wgmma, which orders them in practice; the one thread that issues an MMA has to be told.
    assert not inherits(SYNC)
    assert not inherits(PROXY, relied=True)
    assert not inherits("a write of these bytes")


def test_a_buffer_given_back_too_early_is_the_ports_to_keep(lines: LineMap, at) -> None:
    original = hazard(site(WGMMA, "wgmma", at("original", 7)), site("store", "st.shared", at("original", 2)),
                      WAIT_GROUP, kind="H19", race="WAR")  # fmt: skip
    port = hazard(site(MMA, "tcgen05.mma", at("port", 10)), site("store", "st.shared", at("port", 5)),
                  COMMIT, kind="H19", race="WAR")  # fmt: skip
    found = split([port], [original], lines)
    assert found.introduced == (port,)
    assert [s.original for s in found.similar] == [original]


def test_what_lacks_behind_a_wait_is_inherited_where_the_original_waits(lines: LineMap, at) -> None:
    def pair(folder: str, wait: int | None, *missing: str, line: int = 0, kind: str = "H19") -> Hazard:
        mine = folder == "port"
        issue = site(
            MMA if mine else WGMMA, "tcgen05.mma" if mine else "wgmma", at(folder, line or (10 if mine else 7))
        )
        store = site("store", "st.shared", at(folder, 5 if mine else 2))
        found = hazard(issue, store, *missing, kind=kind, race="WAR")
        where = at(folder, wait) if wait is not None else None
        found.edges = {replace(e, waited=where) if "after the w" in e.missing else e for e in found.edges}
        return found

    def inherits(port: Hazard, *original: Hazard) -> bool:
        return bool(split([port], list(original), lines).inherited)

    original = pair("original", 7, AFTER_WAIT_GROUP)
    assert inherits(pair("port", 11, AFTER_COMMIT), original)
    # with a second pair that the original lacks the wait for, too
    assert inherits(pair("port", 11, AFTER_COMMIT), pair("original", 7, AFTER_WAIT_GROUP, WAIT_GROUP))
    others = [
        # no wait, or not by all; then also a wait in some pairs alone
        pair("port", None, COMMIT), pair("port", 11, AFTER_COMMIT, COMMIT), pair("port", None, AFTER_COMMIT),
        # a wait at another statement, other MMAs, another hazard
        pair("port", 12, AFTER_COMMIT), pair("port", 11, AFTER_COMMIT, line=12),
        pair("port", 11, AFTER_COMMIT, kind="H18"), pair("port", 11, AFTER_COMMIT, PROXY),
    ]  # fmt: skip
    for port in others:
        assert not inherits(port, original), port
    # an original that never waits says nothing of what comes behind a wait
    assert not inherits(pair("port", 11, AFTER_COMMIT), pair("original", None, WAIT_GROUP))
    assert not inherits(pair("port", 11, AFTER_COMMIT))


def test_without_lines_only_the_letter_passes_and_each_but_once(lines: LineMap) -> None:
    def store(**more) -> Hazard:
        bulk = site("asynchronous copy to global memory", "cp.async.bulk", None)
        return hazard(bulk, bulk, "one thread that stores for the warp", kind="G5", race="WAW", **more)

    letter = {"severity": "review", "strict": True}
    assert len(split([store(**letter)] * 2, [store(**letter)], lines).inherited) == 1
    assert not split([store()], [store()], lines).inherited
    # The port's level makes errors of what is to review in the original.
    assert split([store(severity="error", strict=True)], [store(**letter)], lines).inherited


def test_an_access_without_a_line_is_another_than_one_with_a_line(lines: LineMap, at) -> None:
    def pair(loc: SourceLoc | None, line: SourceLoc | None) -> Hazard:
        first, second = site("load", "ld.shared", line), site("asynchronous copy", "cp.async.bulk", loc)
        return hazard(first, second, PROXY, kind="H20", race="WAR", strict=True)

    original = pair(None, at("original", 2))
    assert split([pair(None, at("port", 5))], [original], lines).inherited
    for other in (pair(None, at("port", 6)), pair(None, None), pair(at("port", 12), at("port", 5))):
        assert not split([other], [original], lines).inherited


def test_what_one_level_reports_apart_is_one_place(lines: LineMap, at) -> None:
    """The strict level has all that one pair of lines lacks in one hazard, the original's level errors apart."""

    def pair(folder: str, *missing: str, **more) -> Hazard:
        first, second = (2, 8) if folder == "original" else (5, 12)
        store, bulk = site("store", "st.shared", at(folder, first)), site(BULK, "cp.async.bulk", at(folder, second))
        return hazard(store, bulk, *missing, kind="H27", **more)

    original = [pair("original", PROXY, severity="review", strict=True), pair("original", COMMIT)]
    (found,) = split([pair("port", PROXY, COMMIT)], original, lines).inherited
    assert found.original.severity == "error"
    assert not split([pair("port", PROXY, COMMIT)], original[:1], lines).inherited
    assert not split([pair("port", PROXY, COMMIT, SYNC)], original, lines).inherited


def test_fences_that_a_library_has_no_name_for_stay_to_review(lines: LineMap, at) -> None:
    mma = site("tcgen05.mma on Tensor Memory", "tcgen05.mma", at("port", 10))
    load = site("tcgen05.ld", "tcgen05.ld", at("port", 12))
    behind = "tcgen05.fence::after_thread_sync between the synchronization and the second access"

    def severities(lacks_fences: bool) -> list[str]:
        found = [hazard(mma, load, *missing, kind="H1", severity="review", strict=True)
                 for missing in ((behind,), (behind, SYNC), (SYNC,))]  # fmt: skip
        run = HazardRun("k", "port", "k", "sm_100a", "practice", "late", (0,), "ok", (), tuple(found), 1, 0.0,
                        lacks_fences=lacks_fences)  # fmt: skip
        judged, _ = against_original(run, replace(run, program="original", hazards=()), lines)
        return [h.severity for h in judged.hazards]

    assert severities(False) == ["error", "error", "error"]
    assert severities(True) == ["review", "error", "error"]


def test_what_is_introduced_is_an_error_at_every_level() -> None:
    fence, wait = "tcgen05.fence::before_thread_sync", "tcgen05.wait::ld.sync.aligned"

    def lenient(*remedies: str) -> Hazard:
        found = hazard(None, site("register", "add", None), "x", kind="H31", severity="review", strict=True)
        found.edges = {edge("missing", r) for r in remedies}
        return found

    assert as_introduced(lenient(fence), "practice").severity == "error"
    assert as_introduced(lenient(wait), "practice").severity == "error"
    # What the strict level leaves to review is doubtful.
    assert as_introduced(lenient(wait), "strict").severity == "review"


def run(*args: object, code: int) -> str:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def planted(tmp_path: Path, name: str, text: str, instead: str = "") -> Path:
    """A corpus kernel with its case, and a change in it."""
    shutil.copytree(CORPUS / name, tmp_path / name)
    kernel = tmp_path / name / f"{name}.cu"
    change(kernel, text, instead)
    return kernel


def change(path: Path, text: str, instead: str = "", last: bool = False) -> None:
    before = path.read_text()
    assert text in before, f"{path} holds no {text}"
    head, _, tail = before.rpartition(text) if last else before.partition(text)
    path.write_text(head + instead + tail)


FENCE = 'asm volatile("fence.proxy.async.shared::cta;\\n" ::: "memory");\n'
PERSISTENT = "fence_async_shared();\n            named_barrier_sync<128>(1 + consumer);"
RACES = {
    "H27-fence": ("gemm_persistent", "fence_async_shared();\n", ""),
    "H27-barrier": ("gemm_persistent", PERSISTENT, "fence_async_shared();"),
    "H16-fence": ("gemm_coop", FENCE, ""),
    "H26-arrive": ("gemm_cluster", "    ptx::cluster_arrive();\n    ptx::cluster_wait();\n#else", "#else"),
}


@pytest.mark.spread(4)
@pytest.mark.external
@pytest.mark.parametrize("race", RACES)
def test_a_race_of_the_original_is_not_blamed_on_its_port(tmp_path: Path, race: str) -> None:
    kernel = planted(tmp_path, *RACES[race])
    document = json.loads(run("--format", "json", "hazards", "--style", "compat", "--no-mend", kernel, code=0))
    jsonschema.validate(document, schema("hazards"))
    original, port = document["runs"]
    assert document["verdict"] == "review"
    assert original["baseline"]
    assert race[:3] in {h["hazard"] for h in original["hazards"]}
    assert not port["hazards"]
    assert race[:3] in {h["hazard"] for h in port["inherited"]}
    assert all(h["original"]["second"]["source"] for h in port["inherited"])
    # The original alone is judged by what it has.
    only = run("hazards", kernel, "--only", "original", code=0 if race == "H16-fence" else 5)
    assert race[:3] in only
    # A port that is checked alone is compared with its original all the same.
    assert "also in the original" in run("hazards", "--style", "compat", kernel, "--no-mend", "--only", "port", code=0)
    if race == "H26-arrive":
        # what is mended by itself is not there
        words = ["--format", "json", "hazards", "--style", "compat", kernel, "--only", "port"]
        mended = json.loads(run(*words, code=0))["runs"]
        assert [(r["verdict"], r["inherited"]) for r in mended if r["program"] == "port"] == [("clean", [])]


@pytest.mark.slow
@pytest.mark.external
def test_verify_says_what_the_port_has_from_its_original(tmp_path: Path) -> None:
    kernel = planted(tmp_path, *RACES["H27-fence"])
    arguments = ["verify", "--style", "compat", kernel, "--hazards", "--sizes", "default", "--families", "integers"]
    document = json.loads(run("--format", "json", *arguments, code=0))
    jsonschema.validate(document, schema("verify"))
    row = document["rows"][0]
    assert row["verdict"] == "review"
    assert [d["id"] for d in row["diagnostics"]] == ["PT4110"]
    assert "gemm_persistent.cu" in row["diagnostics"][0]["message"]


@pytest.mark.external
@pytest.mark.parametrize("level", ["strict", pytest.param("practice", marks=pytest.mark.slow)])
def test_a_ports_own_mistake_is_its_own_beside_a_race_of_the_original(tmp_path: Path, level: str) -> None:
    """The original lacks the proxy fence before its bulk store, the port lacks the barrier there too."""
    kernel = planted(tmp_path, *RACES["H27-fence"])
    run("port", "--style", "compat", kernel, "-o", tmp_path / "out", code=0)
    port = tmp_path / "out" / kernel.name
    output = run("hazards", kernel, "--port", port, "--level", level, code=0)
    assert "1 also in the original" in output
    change(port, "named_barrier_sync<128>(1 + consumer);", last=True)
    output = run("hazards", kernel, "--port", port, "--level", level, code=5)
    assert "Error: RAW hazard H27" in output
    assert "the port lacks beyond that: synchronization" in output


@pytest.mark.external
def test_a_fence_that_only_the_port_lost_is_an_error_at_both_levels(tmp_path: Path) -> None:
    kernel = CORPUS / "gemm_coop/gemm_coop.cu"
    run("port", "--style", "compat", kernel, "-o", tmp_path, code=0)
    change(tmp_path / kernel.name, FENCE)
    for level in ("strict", "practice"):
        run("hazards", kernel, "--port", tmp_path / kernel.name, "--level", level, code=5)
