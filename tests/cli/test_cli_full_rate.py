# SPDX-License-Identifier: Apache-2.0
"""`porter port --style full-rate`: M=128 MMAs are given where a case verified them in the same run, else the compat
port with the reason. The quick tests stand in for the runs; the slow ones plant mistakes in the port and run it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joined_gemm
import pytest
from fakes_cli import porter

from porter.build import trust
from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.diagnostics import Code, Diagnostic
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune.full_rate import taken
from porter.tune.verifying import Proofs
from porter.verify import proof
from porter.verify.builder import PORT_ARCH
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

CORPUS = Path(__file__).parents[2] / "corpus"
KERNEL = joined_gemm.KERNEL.replace("HEAD", "")
CASE = joined_gemm.CASE


def gemm(folder: Path, entry: str = "gemm") -> Path:
    (folder / "gemm.cu").write_text(KERNEL)
    (folder / "case.yaml").write_text(CASE.replace("ENTRY", entry))
    return folder / "gemm.cu"


def verified(monkeypatch: pytest.MonkeyPatch, verdict: Verdict, *said: Diagnostic, more: str = "") -> list[Any]:
    """Every run gives one row with a verdict; `more`: another kernel stands in the file that was built."""
    asked = []

    def run(items: Any, wanted: Any, builder: Any, tell: Any) -> VerifyResult:
        asked.append(wanted)
        builder.entries.add("_Z4gemmPfmmi")
        builder.there.update({"_Z4gemmPfmmi", *more.split()})
        sizes: Mapping[str, int] = {"M": 128}
        return VerifyResult((Row("gemm", sizes, "integers", 0, verdict, diagnostics=said),), "sim", "late", "exact", 0)

    monkeypatch.setattr(proof, "verify_cases", run)
    monkeypatch.setattr(proof, "refusal", lambda *judged: "")
    monkeypatch.setattr("porter.tune.verifying.slower", lambda *compared: None)
    return asked


def ported(kernel: Path, *options: str) -> tuple[str, str]:
    """The kernel's text after the port, and what was said."""
    out = kernel.parent / "out"
    result = porter("port", *options, "--no-compile", kernel, "-o", out)
    return (out / kernel.name).read_text(), result.output


def test_the_step_is_given_where_the_case_verified_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    text, said = ported(gemm(tmp_path), "--style", "full-rate")
    assert "tcgen05::thread_index()" in text
    assert "PT2512" in said
    assert "PT2511" not in said
    assert [(w.settings.schedule, w.hazards) for w in asked] == [("late", True), ("random", True), ("random", True)]
    assert all(w.sizes is not None for w in asked)
    assert asked[0].families is None
    assert len({w.settings.seed for w in asked}) == 3


@pytest.mark.parametrize(
    ("families", "under_random"),
    [
        ("", ["integers", "index"]),
        ("families: [normal, index]", ["index"]),
        ("families: [normal, uniform]", ["normal", "uniform"]),
    ],
)
def test_random_schedules_run_the_exact_families_or_those_of_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, families: str, under_random: list[str]
) -> None:
    """Of several cases each has its own: none passes by the others' runs."""
    asked = verified(monkeypatch, Verdict.CLEAN)
    kernel = gemm(tmp_path)
    (tmp_path / "other.case.yaml").write_text(CASE.replace("ENTRY", "gemm") + families + "\n")
    assert "PT2512" in ported(kernel, "--style", "full-rate")[1]
    late, *random = asked
    case = load_case(tmp_path / "other.case.yaml")
    assert late.families_of(case) is None
    assert [list(w.families_of(case)) for w in random] == [under_random] * 2


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.INCOMPLETE])
def test_a_case_that_fails_leaves_the_step_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    values = {"tensor": "C", "count": 3, "total": 9}
    said = [Diagnostic(Code.PORT_DIFFERS, None, values)] if verdict is Verdict.ERROR else []
    verified(monkeypatch, verdict, *said)
    text, output = ported(gemm(tmp_path), "--style", "full-rate")
    assert "thread_index" not in text
    assert "PT2511" in output
    assert "gemm M=128, integers: " in " ".join(output.split())
    assert text == ported(gemm(tmp_path))[0]


def test_what_ptx_refuses_stays_at_m64_and_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    monkeypatch.setattr(proof, "refusal", lambda *judged: "which b an MMA takes goes by the thread")
    text, output = ported(gemm(tmp_path), "--style", "full-rate")
    assert "thread_index" not in text
    assert "PT2511" in output
    assert "gemm: which b an MMA takes goes by the thread" in " ".join(output.split())
    assert not asked


def test_without_a_case_of_the_kernel_the_step_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    text, output = ported(gemm(tmp_path, "other"), "--style", "full-rate")
    assert "thread_index" not in text
    assert "no case beside it runs `gemm`" in " ".join(output.split())
    (tmp_path / "case.yaml").unlink()
    assert "no case beside it runs `gemm`" in " ".join(ported(tmp_path / "gemm.cu", "--style", "full-rate")[1].split())
    assert not asked


def test_an_instantiation_that_no_case_runs_leaves_the_step_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN, more="_Z4gemmILi256EEvPfmmi")
    text, output = ported(gemm(tmp_path), "--style", "full-rate")
    assert "thread_index" not in text
    assert "each instantiation that the file compiles needs a case, and none runs `gemm<256>`" in " ".join(
        output.split()
    )
    assert len(asked) == 1, "no schedule follows the run that shows it"


def test_many_instantiations_are_not_all_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.CLEAN, more=" ".join(f"_Z4gemmILi{n}EEvPfmmi" for n in range(1, 7)))
    output = " ".join(ported(gemm(tmp_path), "--style", "full-rate")[1].split())
    assert "none runs `gemm<1>`, `gemm<2>`, `gemm<3>`, `gemm<4>`, and others" in output
    assert "gemm<5>" not in output


def test_the_configuration_asks_for_it_and_the_command_line_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    (tmp_path / "porter.toml").write_text('style = "full-rate"\n')
    assert "thread_index" in ported(gemm(tmp_path))[0]
    assert "thread_index" not in ported(gemm(tmp_path), "--style", "compat")[0]
    (tmp_path / "porter.toml").write_text('style = "fast"\n')
    assert "has to be auto or compat or full-rate or idiomatic or native" in " ".join(
        porter("plan", tmp_path / "gemm.cu", code=2).output.split()
    )


def test_the_plan_says_which_rows_mmas_have(tmp_path: Path) -> None:
    full = " ".join(porter("plan", "--style", "full-rate", gemm(tmp_path)).output.split())
    assert "128: one MMA for two tiles" in full
    assert "MMAs of M = 128 allow" in full
    assert "MMAs of M = 64 allow" in " ".join(porter("plan", "--style", "compat", gemm(tmp_path)).output.split())


# --- the gate itself, on a simulator


def made(name: str) -> Ported:
    return port_paths([CORPUS / name / f"{name}.cu"], PortOptions(full_rate=True), (), look)


def failure(found: Ported) -> str:
    (root,) = taken(found)
    said = Proofs(make_builder(None, PORT_ARCH)).full_rate(found, root)
    return "" if said.code is Code.FULL_RATE_PROVED else str(said.values["what"])


def planted(found: Ported, pattern: str, instead: str) -> Ported:
    path = next(p for p in found.new if p.endswith("tcgen05.cuh"))
    text, count = re.subn(pattern, instead, found.new[path].decode(), flags=re.DOTALL)
    assert count == 1
    found.new[path] = text.encode()
    return found


# in gemm_ws consumers arrive on the barriers of full stages themselves, which joins them too
PLANTED = {
    "no relabelling": (r"return \(4 \+ warp[^;]*;", "return threadIdx.x;", "differ"),
    "no join": (r'"bar.sync 15, 256;" :::', '"bar.sync %0, 128;" ::"r"(15 - threadIdx.x / 128) :', "hazard"),
    "no wait for the MMAs": (r"wait_phase\(done, batch % 2\);", "", ""),
    "M = 64": (r"128u >> 4 << 24", "64u >> 4 << 24", "differ"),
    "other rows of a tile": (r"return \(tile \+ [^;]*;", "return tile * 64;", "differ"),
    "the tiles in each other's lanes": (r"tmem \+ \(1u << 20\)", "tmem", "differ"),
    "an MMA for each of two tiles": (r"\(d.address >> 20 & 1\) == 0 && ", "", ""),
}  # fmt: skip
STACKED = "other rows of a tile", "the tiles in each other's lanes", "an MMA for each of two tiles"


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(name: str) -> None:
    pattern, instead, says = PLANTED[name]
    kernel = "gemm_tma" if name in STACKED else "gemm_persistent" if name == "no join" else "gemm_ws"
    what = failure(planted(made(kernel), pattern, instead))
    assert what
    assert "nvcc" not in what
    assert says in what


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    "name",
    ["gemm_ws", "gemm_persistent", "gemm_two_n", "gemm_mn_major", "gemm_tf32", "gemm_rs", "gemm_cluster",
     "gemm_fp8_scaled", "gemm_fused", "gemm_pipelined", "attention_fwd", "gemm_tma", "gemm_lambda",
     "gemm_cooperative_128"],
)  # fmt: skip
def test_the_gate_takes_a_corpus_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # references of some cases are functions
    monkeypatch.setattr(trust, "_said", True)
    assert failure(made(name)) == ""


@pytest.mark.slow
@pytest.mark.external
def test_each_instantiation_that_the_file_launches_needs_a_case(tmp_path: Path) -> None:
    copy = shutil.copytree(CORPUS / "gemm_struct", tmp_path / "gemm_struct")
    text = (copy / "case.yaml").read_text()
    for columns, name in ((96, "middle"), (64, "narrow")):
        found = port_paths([copy / "gemm_struct.cu"], PortOptions(full_rate=True), (), look)
        assert f"`gemm_bias_relu<KernelTraits<{columns}, 4> >`" in failure(found)
        case = re.sub(r"(KernelTraits<|N: )(?:384|192)", rf"\g<1>{columns}", text)
        (copy / f"{name}.case.yaml").write_text(case)
    assert failure(found) == ""


@pytest.mark.slow
@pytest.mark.external
def test_a_second_tile_that_is_elsewhere_fails_the_gate() -> None:
    found = made("gemm_tma")
    path = next(p for p in found.new if p.endswith("gemm_tma.cu"))
    # the tiles in each other's place: the second one is 64 rows in front of the first
    text, count = re.subn(r"&tile_a\[m \* 64", "&tile_a[(1 - m) * 64", found.new[path].decode())
    assert count == 1
    found.new[path] = text.encode()
    assert "differ" in failure(found)
