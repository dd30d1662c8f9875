# SPDX-License-Identifier: Apache-2.0
"""`porter equal`: mistakes planted in the PTX of a port, and ports that somebody wrote."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import written_pair
from click.testing import CliRunner, Result
from corpus_kernels import CORPUS

from porter.build.toolchain import Toolkit
from porter.cli.building import make_builder
from porter.cli.main import main
from porter.report.json import schema
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, BuiltKernel, parse_ptx
from porter.verify.problem import Problem

KERNEL = CORPUS / "gemm_tma"
SIZES = ["--sizes", "M=256,N=128,K=192"]
"""Where no two of sizes and block indices are the same."""
Plant = Callable[[str], str]


def equal(*words: object) -> tuple[Result, dict[str, Any]]:
    sizes = [] if "--sizes" in words else [*SIZES, "--seconds", "3"]
    options = ["--style", "compat", *sizes, *map(str, words)]
    result = CliRunner().invoke(main, ["--format", "json", "equal", *options])
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema(document["kind"]))
    return result, document


def nth(pattern: str, number: int, change: Callable[[re.Match[str]], str]) -> Plant:
    """Changes what matches for the n-th time."""

    def plant(ptx: str) -> str:
        found = list(re.finditer(pattern, ptx, re.MULTILINE))[number]
        return ptx[: found.start()] + change(found) + ptx[found.end() :]

    return plant


def swapped(pattern: str, first: int, second: int) -> Plant:
    """Exchanges the group `what` of two matches."""

    def plant(ptx: str) -> str:
        found = list(re.finditer(pattern, ptx, re.MULTILINE))
        one, other = found[first], found[second]
        (a, b), (c, d) = one.span("what"), other.span("what")
        assert one["what"] != other["what"]
        return ptx[:a] + other["what"] + ptx[b:c] + one["what"] + ptx[d:]

    return plant


STORE = r"^\s*st\.global\.f32\s+\[(?P<to>%rd\d+)(?P<off>\+\d+)?\], (?P<what>%f\d+);"
MMA = r"^\s*tcgen05\.mma\S* \[%r\d+\], %rd\d+, %rd\d+, %r\d+, accumulate;"
COPY = r"^\s*cp\.async\.bulk\.tensor\S* \[%r\d+\], \[(?P<what>%rd\d+), \{(?P<k>%r\d+), (?P<row>%r\d+)\}\]"
MISTAKES: dict[str, Plant] = {
    "two elements": swapped(STORE, 0, 1),
    "an element is missing": nth(STORE, 3, lambda m: ""),
    "an element in a wrong place": nth(STORE, 0, lambda m: m[0].replace("]", "+8]")),
    "a k step is missing": nth(MMA, 4, lambda m: ""),
    "k steps in another order": swapped(r"^\s*tcgen05\.mma\S* \[%r\d+\], (?P<what>%rd\d+, %rd\d+),", 0, 2),
    "rows of another block": nth(COPY, 1, lambda m: m[0].replace(m["row"], m["k"])),
    "the first product adds": nth("setp.ne.b32 accumulate, (%r[0-9]+), 0;", 0,
                                  lambda m: f"setp.eq.b32 accumulate, {m[1]}, {m[1]};"),
    "each product begins anew": nth("setp.ne.b32 accumulate, (%r[0-9]+), 0;", 4,
                                    lambda m: f"setp.ne.b32 accumulate, {m[1]}, {m[1]};"),
}  # fmt: skip

NOT_WRITTEN = ("an element is missing", "an element in a wrong place")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes the PTX of ports, or of originals."""

    class Planted:
        def __init__(self, change: Plant, of: str, toolkit: Toolkit | None) -> None:
            self.change, self.of, self.builder = change, of, make_builder(toolkit)

        def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
            kernel = self.builder.build(problem, source, arch)
            if arch != self.of:
                return kernel
            text = self.change(kernel.ptx)
            assert text != kernel.ptx
            return replace(kernel, ptx=text, module=parse_ptx(text, "planted"))

    def planted(change: Plant, of: str = PORT_ARCH) -> None:
        monkeypatch.setattr("porter.cli.equal.make_builder", partial(Planted, change, of))

    return planted


def test_a_port_is_equal() -> None:
    result, document = equal(KERNEL)
    assert result.exit_code == 0, result.output
    (case,) = document["cases"]
    assert (case["status"], case["sizes"], case["bytes"]) == ("equal", ["M=256, N=128, K=192"], 256 * 128 * 4)


@pytest.mark.slow
def test_a_port_is_equal_for_all_of_k(plant: Callable[..., None]) -> None:
    words = (KERNEL, "--sizes", "M=256,N=128,K=256", "--seconds", 300)
    _, document = equal(*words)
    assert [count["name"] for count in document["cases"][0]["counts"] if count["all"]] == ["M", "N", "K"]
    assert document["cases"][0]["counts"][-1]["beside"] == ["M", "N"]
    plant(nth(COPY, 1, lambda m: f".reg .b32 %rz;\nand.b32 %rz, {m['k']}, 4095;\n" + m[0].replace(m["k"], "%rz")))
    result, document = equal(*words)
    *_, count = document["cases"][0]["counts"]
    assert (result.exit_code, count["name"], count["all"]) == (0, "K", False)
    assert "is not known to move evenly" in count["why"]


@pytest.mark.spread(2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_both_places(mistake: str, plant: Callable[..., None]) -> None:
    plant(MISTAKES[mistake])
    result, document = equal(KERNEL)
    assert result.exit_code == 5, result.output
    (case,) = document["cases"]
    assert (case["status"], case["at"]) == ("differs", "M=256, N=128, K=192")
    assert case["why"].startswith("C, element ")
    programs = [place["program"] for place in case["places"]]
    assert programs == (["original"] if mistake in NOT_WRITTEN else ["original", "port"])
    assert [d["id"] for d in document["diagnostics"]] == ["PT4115"]
    assert all("st.global" in place["place"] and "gemm_tma.cu:" in place["place"] for place in case["places"])


def test_what_overwrites_what_decides_is_shown_by_a_run(plant: Callable[..., None]) -> None:
    """The other matrix has a larger box, behind whose place the port's own words lie."""
    plant(swapped(COPY, 0, 1))
    result, document = equal(KERNEL)
    assert result.exit_code == 5, result.output
    (case,) = document["cases"]
    assert case["why"].startswith("a branch on data, on which ")
    assert case["why"].endswith("does not come to its end")


def test_what_is_not_understood_is_not_equal(plant: Callable[..., None]) -> None:
    plant(nth("^\tret;", 0, lambda m: "\tcall.uni elsewhere;\n\tret;"))
    result, document = equal(KERNEL)
    assert result.exit_code == 6, result.output
    assert "call" in document["cases"][0]["why"]
    assert document["cases"][0]["places"][0]["program"] == "port"


def test_without_proved_synchronization_it_is_not_equal(plant: Callable[..., None]) -> None:
    """One schedule stands for all only where nothing races. Of this original the mbarrier may be used uninitialized."""
    plant(nth(r"^\s*(bar|barrier)\S* .*;$", 0, lambda m: ""), ORIGINAL_ARCH)
    result, document = equal(KERNEL)
    assert result.exit_code == 6, result.output
    (case,) = document["cases"]
    assert case["status"] == "unknown"
    assert case["why"].startswith("equal for the schedule that was executed; the original's own hazards: H21")
    text = CliRunner().invoke(main, ["equal", "--style", "compat", *SIZES, str(KERNEL)])
    assert "not known to be equal" in text.output
    assert "    original: " in text.output


def test_who_waits_for_ever_leaves_nothing(plant: Callable[..., None]) -> None:
    plant(nth(r"^\s*tcgen05\.commit\S* .*;$", 0, lambda m: ""))
    result, document = equal(KERNEL)
    assert result.exit_code == 5, result.output
    assert document["cases"][0]["why"].startswith("a deadlock at mbarrier tmem_shared+0x0, phase 0")
    assert "no tcgen05.commit tells of" in document["cases"][0]["why"]


def compared(original: Path, written: Path, *words: str) -> tuple[Result, dict[str, Any]]:
    result = CliRunner().invoke(main, ["--format", "json", "equal", str(original), str(written), *words])
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema(document["kind"]))
    return result, document


@pytest.mark.parametrize("params", ["K,y,w,x", pytest.param("4,3,2,1", marks=pytest.mark.slow)])
def test_a_pair_that_shares_no_text(tmp_path: Path, params: str) -> None:
    result, document = compared(*written_pair.write(tmp_path), "--entry", "outer", "--params", params)
    assert result.exit_code == 0, result.output
    (case,) = document["cases"]
    assert (case["status"], case["sizes"]) == ("equal", ["K=64", "K=112"])


@pytest.mark.slow
@pytest.mark.parametrize("fault", written_pair.FAULTS)
def test_a_fault_in_such_a_pair_differs(tmp_path: Path, fault: str) -> None:
    result, document = compared(*written_pair.write(tmp_path, fault), *written_pair.MAPPED)
    assert result.exit_code == 5, result.output
    (case,) = document["cases"]
    assert case["status"] == "differs"
    assert [place["program"] for place in case["places"]] == ["original", "port"]


def test_parameters_in_a_wrong_order_differ(tmp_path: Path) -> None:
    result, document = compared(*written_pair.write(tmp_path), "--entry", "outer", "--params", "K,y,x,w")
    assert result.exit_code in (5, 6), result.output
    assert document["cases"][0]["status"] != "equal"


@pytest.mark.slow
def test_a_case_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    shutil.copytree(KERNEL, tmp_path / "right")
    (tmp_path / "a.case.yaml").write_text("version: 1\n")
    result, document = equal(tmp_path)
    assert result.exit_code == 2, result.output
    assert [case["status"] for case in document["cases"]] == ["equal"]
    assert document["diagnostics"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([KERNEL / "gemm_tma.cu", "--entry", "mine"], "--entry"),
        ([KERNEL / "gemm_tma.cu", KERNEL / "gemm_tma.cu", "--params", "map_a,nothing"], "`nothing` is none of map_a"),
        ([KERNEL / "gemm_tma.cu", KERNEL / "gemm_tma.cu", "--params", "7"], "`7` is none of map_a"),
        ([KERNEL, "--port", KERNEL / "gemm_tma.cu"], "--port"),
        ([KERNEL / "gemm_tma.cu", KERNEL / "gemm_tma.cu", "--port", KERNEL / "gemm_tma.cu"], "PORT, --port"),
        ([KERNEL / "gemm_tma.cu", KERNEL / "none.cu"], "none.cu"),
        ([CORPUS / "none.cu"], "none.cu"),
    ],
)
def test_bad_input(words: list[object], said: str) -> None:
    result, document = equal(*words)
    assert result.exit_code == 2, result.output
    assert said in document["diagnostics"][0]["message"]
