# SPDX-License-Identifier: Apache-2.0
"""One cause, one block: hazards of one missing edge are one report, their sites folded, names as people write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
from check_ptx import HEADER
from click.testing import CliRunner

from porter.build.entry import demangled, display_name
from porter.cli.main import main
from porter.ptx.ast import SourceLoc
from porter.report import hazards as report_hazards
from porter.report import sarif
from porter.report.json import schema
from porter.sim.check.catalog import KINDS
from porter.sim.check.causes import causes, places
from porter.sim.check.hazard import Hazard, Severity, Site
from porter.sim.check.rulings import Ruling
from porter.verify.hazards import HazardRun

KERNEL = "_ZN5flash6kernelILi128ELb1EEEvPKfi"
CALL = SourceLoc("kernel.cu", 10)


def site(line: int, inlined_at: SourceLoc | None = None, file: str = "kernel.cu") -> Site:
    return Site("store", "st.shared.b32", 1000 + line, SourceLoc(file, line, 5, inlined_at), (0, 0, 0), 1, None)


def hazard(
    first: Site | None, second: Site, kind: str = "G1", missing: str = "a barrier", severity: Severity = "error"
) -> Hazard:
    return Hazard(KINDS[kind], severity, "RAW", KERNEL, first, second, "bytes 0 to 3", missing, "bar.sync", False, 2)


def sizes(hazards: Sequence[Hazard]) -> list[int]:
    return [len(cause.hazards) for cause in causes(hazards)]


def run_of(hazards: Sequence[Hazard]) -> HazardRun:
    return HazardRun("case", "port", KERNEL, "sm_100a", "strict", "late", (0,), "ok", (), tuple(hazards), 9, 0.1)


def test_seventeen_findings_of_one_first_site_are_one() -> None:
    found = [hazard(site(40), site(100 + 50 * i)) for i in range(17)]
    assert sizes(found) == [17]
    assert causes(found)[0].count == 34
    text = list(report_hazards.text([run_of(found)]))
    assert sum("Error: RAW hazard G1" in line for line in text) == 1
    assert any("17 pairs of accesses, seen 34 times" in line for line in text)
    assert "1 error, 0 to review (17 pairs of accesses)" in text[-1]


def test_first_accesses_that_one_barrier_orders_are_one() -> None:
    """Sixteen stores, and the copy that reads what they wrote."""
    assert sizes([hazard(site(100 + 50 * i), site(40)) for i in range(16)]) == [16]
    other = [hazard(site(100), site(40)), hazard(site(300), site(40), missing="a fence")]
    assert sizes(other) == [1, 1]


def test_what_differs_stays_apart() -> None:
    one = hazard(site(40), site(100))
    assert sizes([one, hazard(site(41), site(200))]) == [1, 1]
    assert sizes([one, hazard(site(40), site(200), kind="G8")]) == [1, 1]
    assert sizes([one, hazard(site(40), site(200), severity="review")]) == [1, 1]
    assert sizes([hazard(None, site(40)), hazard(None, site(90))]) == [1, 1]


def test_without_lines_the_ptx_tells_places_apart() -> None:
    def bare(line: int) -> Site:
        return Site("store", "st.shared.b32", line, None)

    assert sizes([hazard(bare(7), bare(8)), hazard(bare(7), bare(9)), hazard(bare(6), bare(5))]) == [2, 1]


def test_lines_of_one_inlined_call_are_one_place() -> None:
    found = [hazard(site(20 + i, CALL, "helper.cuh"), site(100 + 50 * i)) for i in range(4)]
    assert sizes(found) == [4]
    (place,) = places([h.first for h in found if h.first])
    assert place.text == "helper.cuh:20, 21, 22, 23, inlined at kernel.cu:10 (PTX lines 1020, 1021, 1022, 1023)"


def test_other_calls_of_the_helper_and_far_parts_of_it_are_not() -> None:
    """A kernel whose whole body is inlined at one line does not become one place."""
    elsewhere = SourceLoc("kernel.cu", 11)
    assert sizes([hazard(site(20, CALL), site(100)), hazard(site(20, elsewhere), site(200))]) == [1, 1]
    assert sizes([hazard(site(20, CALL), site(100)), hazard(site(220, CALL), site(200))]) == [1, 1]


def test_edges_are_told_once_each() -> None:
    found = [hazard(site(40), site(100 + i), missing="ab"[i % 2]) for i in range(6)]
    (cause,) = causes(found)
    assert cause.edges == [("a", "bar.sync"), ("b", "bar.sync")]
    assert sum("missing: " in line for line in report_hazards.text([run_of(found)])) == 2


def test_names_are_demangled() -> None:
    text = "\n".join(report_hazards.text([run_of([hazard(site(40), site(100))])]))
    assert "kernel flash::kernel<128, true>" in text
    assert "_ZN" not in text
    assert display_name("plain") == "plain"
    assert display_name("_ZN12_GLOBAL__N_11kIiEEvPT_") == "(anonymous namespace)::k<int>"
    assert demangled("mbarrier 0x8 (_ZN5flash8smem_rawE+24)") == "mbarrier 0x8 (flash::smem_raw+24)"


def test_json_and_sarif_have_the_causes() -> None:
    found = [*(hazard(site(40), site(100 + 50 * i)) for i in range(3)), hazard(site(41), site(99), kind="G8")]
    body = report_hazards.document([run_of(found)])
    jsonschema.validate(body, schema("hazards"))
    first, second = body["runs"][0]["causes"]
    assert (first["hazards"], first["count"], second["hazards"]) == ([0, 1, 2], 6, [3])
    assert first["kernel"] == "flash::kernel<128, true>"
    assert len(body["runs"][0]["hazards"]) == 4
    one, other = sarif.document([body], Path.cwd())["runs"][0]["results"]
    assert len(one["codeFlows"]) == 3
    assert len(other["codeFlows"]) == 1
    # The first access and the two second ones that do not lead.
    assert len(one["relatedLocations"]) == 3
    assert one["properties"]["occurrences"] == 6


def test_a_kernel_with_one_barrier_too_few(tmp_path: Path) -> None:
    """Warp 0 stores once, warp 1 reads it in six places: one block in text, six pairs in JSON."""
    loads = "".join(f"ld.shared.b32 %r{10 + i}, [%r2];\n" for i in range(6))
    body = f"""mov.u32 %r2, dyn; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32;
    @%p1 bra READ; st.shared.b32 [%r2], %r1; ret; READ: {loads} ret;"""
    path = tmp_path / "kernel.ptx"
    path.write_text(HEADER.format(target="sm_100a") + body + "\n}\n")
    args = ["hazards", str(path), "--arg", "0", "--arg", "0", "--block", "64", "--smem", "1024", "--level", "strict"]
    plain = CliRunner().invoke(main, args).output
    races = [line for line in plain.splitlines() if "hazard G1" in line]
    assert len(races) == 1, plain
    document = json.loads(CliRunner().invoke(main, ["--format", "json", *args]).stdout)
    jsonschema.validate(document, schema("hazards"))
    (cause,) = [c for c in document["runs"][0]["causes"] if c["hazard"] == "G1"]
    assert len(cause["hazards"]) == 6


def ruled(line: int, ruling: Ruling, kind: str = "G1", count: int = 2) -> Hazard:
    """To review, by a ruling."""
    found = hazard(site(10), site(line), kind, severity="review")
    return replace(found, ruling=ruling, count=count)


def test_what_a_ruling_lets_pass_is_one_line() -> None:
    found = [
        ruled(40, Ruling.INIT_FENCE),
        ruled(200, Ruling.INIT_FENCE, "G2", count=9),
        ruled(300, Ruling.BLOCK_END, "X1"),
        hazard(site(500), site(600), "H1", severity="review"),
        hazard(site(700), site(800), "H2"),
    ]
    lines = list(report_hazards.text([run_of(found)]))
    of_rulings = [line for line in lines if "ruling" in line]
    assert len(of_rulings) == 3
    fence, end, hint = of_rulings
    assert "Review: ruling init-fence, G1 [" in fence
    assert "2 causes (2 pairs of accesses), most at kernel.cu:200" in fence
    assert "9 times" in fence
    assert "ruling block-end, X1 [" in end
    assert "1 cause (1 pair of accesses)" in end
    assert "-v" in hint
    assert sum(" access: " in line for line in lines) == 4, "of those that no ruling lets pass"
    every = list(report_hazards.text([run_of(found)], every=True))
    assert sum(" access: " in line for line in every) == 10
    assert any("ruling: init-fence (docs/rulings.md)" in line for line in every)


def test_an_error_has_its_block_whatever_the_ruling() -> None:
    found = [replace(ruled(40, Ruling.INIT_FENCE), severity="error")]
    lines = list(report_hazards.text([run_of(found)]))
    assert sum(" access: " in line for line in lines) == 2
