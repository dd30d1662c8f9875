# SPDX-License-Identifier: Apache-2.0
"""`--style auto`: M=128 MMAs where the case beside a kernel verifies them in the same run and the grade finds them no
slower, else the compat port with one note. Stand-ins for runs and grade; the slow tests run the case."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joined_gemm
import pytest
from fakes_cli import porter, porter_json
from test_cli_full_rate import CORPUS, gemm, planted, verified

from porter.build import trust
from porter.cli import porting
from porter.cli.context import Session
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.passes.full_rate.two_consumers import ALONE
from porter.passes.idiom_dsl.stated import stated
from porter.passes.ported import Ported, PortedRoot
from porter.tune import automatic, search, verifying
from porter.tune.automatic import one_each, time_for
from porter.tune.choosing import Chosen
from porter.tune.full_rate import equal
from porter.tune.rates import Slower
from porter.tune.staging import Staged
from porter.verify.budget import Budget
from porter.verify.outcome import Verdict

AUTO = ("--style", "auto")


@pytest.fixture(autouse=True)
def a_machine_with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """That compiles nothing: the tests stand in for what compiles ports."""
    monkeypatch.setattr(automatic, "find_toolkit", lambda chosen: None)
    monkeypatch.setattr(automatic, "slower", lambda *compared: None)
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda ported, options, tell: [])


def ported(kernel: Path, *options: str, out: str = "out") -> tuple[str, str]:
    """The kernel's text after the port, and what was said."""
    folder = kernel.parent / out
    result = porter("port", *options, kernel, "-o", folder)
    return (folder / kernel.name).read_text(), " ".join(result.output.split())


def compat(kernel: Path) -> str:
    return ported(kernel, "--style", "compat", out="compat")[0]


def notes(said: str) -> list[str]:
    """What is said of the rows of MMAs."""
    known = ("PT2503", "PT2510", "PT2511", "PT2512", "PT2532", "PT2533", "PT2534", "PT2543")
    return [f"PT{word[:4]}" for word in said.split("[PT")[1:] if f"PT{word[:4]}" in known]


def test_what_a_case_verified_has_m128(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert "tcgen05::thread_index()" in text
    assert notes(said) == ["PT2512"]
    assert len(asked) == 3
    assert {w.budget.seconds for w in asked} == {automatic.SECONDS}
    assert text == ported(tmp_path / "gemm.cu", "--style", "full-rate", out="full")[0]


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.INCOMPLETE])
def test_a_case_that_fails_leaves_the_compat_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    verified(monkeypatch, verdict)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert text == compat(tmp_path / "gemm.cu")
    assert notes(said) == ["PT2511"]
    assert "stays at M=64: gemm M=128, integers:" in said


def test_without_a_case_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    monkeypatch.setattr(automatic, "slower", lambda *compared: pytest.fail("compiled for nothing"))
    text, said = ported(gemm(tmp_path, "other"), *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2534"])
    assert "gemm.cu: no run could show that M=128 is right, as no case beside it runs `gemm`" in said
    (tmp_path / "case.yaml").write_text("version: 1\nkernel: [")
    text, said = ported(tmp_path / "gemm.cu", *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2534"])
    assert "it could not be run" in said
    assert not asked


def on_ptx(monkeypatch: pytest.MonkeyPatch, answer: Diagnostic | str | Exception) -> list[str]:
    """What the comparison on PTX answers; the roots that it was asked of."""
    asked: list[str] = []

    def compares(session: Session, made: Ported, root: PortedRoot, left: float | None, **_: object) -> Diagnostic | str:
        asked.append(root.path)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setenv("PORTER_PROVE_SECONDS", "1")
    monkeypatch.setattr("porter.cli.licence.licensed", compares)
    monkeypatch.setattr("porter.cli.port.compared_ports", lambda *asked: [])
    return asked


@pytest.mark.parametrize("style", [AUTO, ("--style", "full-rate")])
def test_what_is_equal_on_ptx_has_m128_without_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: tuple[str, ...]
) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    kernel = gemm(tmp_path, "other")
    compared = on_ptx(monkeypatch, equal(str(kernel), "gemm at M=128, K=64"))
    text, said = ported(kernel, *style)
    assert "tcgen05::thread_index()" in text
    assert notes(said) == ["PT2543"]
    assert "equal to its original on PTX, with proved synchronization: gemm at M=128, K=64" in said
    assert compared == [str(kernel)]
    assert not asked


@pytest.mark.parametrize(
    "answer", ["output of gemm: not known to be equal", PorterError(Code.NO_TOOLKIT), ValueError("a defect")]
)
def test_what_is_not_known_to_be_equal_has_m64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | Exception
) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    kernel = gemm(tmp_path, "other")
    on_ptx(monkeypatch, answer)
    text, said = ported(kernel, *AUTO)
    assert (text, notes(said)) == (compat(kernel), ["PT2534"])
    assert "no case beside it runs `gemm`; " in said


@pytest.mark.parametrize("is_equal", [True, False])
def test_instantiations_without_a_case_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_equal: bool
) -> None:
    verified(monkeypatch, Verdict.CLEAN, more="_Z4gemmIiEvPfmmi")
    kernel = gemm(tmp_path)
    on_ptx(monkeypatch, equal(str(kernel), "gemm at M=128, K=64") if is_equal else "gemm differs")
    said = ported(kernel, *AUTO)[1]
    assert notes(said) == (["PT2543"] if is_equal else ["PT2511"])
    assert is_equal or "each instantiation that the file compiles needs a case" in said


def test_what_a_case_runs_is_not_compared_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.ERROR)
    kernel = gemm(tmp_path)
    compared = on_ptx(monkeypatch, equal(str(kernel), "gemm at M=128, K=64"))
    assert notes(ported(kernel, *AUTO)[1]) == ["PT2511"]
    assert not compared


def test_without_a_compiler_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(chosen: Path | None) -> None:
        raise PorterError(Code.NO_TOOLKIT)

    asked = verified(monkeypatch, Verdict.CLEAN)
    monkeypatch.setattr(automatic, "find_toolkit", none)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert text == compat(tmp_path / "gemm.cu")
    assert notes(said) == ["PT2503", "PT2534"]
    assert "M=64 in all kernels: no run could show that M=128 is right, as no CUDA compiler was found" in said
    assert not asked


def test_who_wants_nothing_compiled_gets_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    result = porter("port", *AUTO, "--no-compile", gemm(tmp_path), "-o", tmp_path / "out")
    assert notes(result.output) == ["PT2503", "PT2534"]
    assert not asked
    assert (tmp_path / "out/gemm.cu").read_text() == compat(tmp_path / "gemm.cu")


def test_what_would_change_is_asked_of_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    result = porter("port", *AUTO, "--check", gemm(tmp_path), code=1)
    assert notes(result.output) == ["PT2512"]
    assert asked


def untrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORTER_TRUST", raising=False)
    monkeypatch.setattr("porter.cli.context.Session.ask", lambda session, question: pytest.fail("somebody is asked"))


def with_code(folder: Path) -> Path:
    kernel = gemm(folder)
    text = (folder / "case.yaml").read_text().replace('"A @ B.T"', "{python: 'reference.py:gemm'}")
    (folder / "case.yaml").write_text(text)
    (folder / "reference.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    return kernel


def test_code_that_nobody_trusts_does_not_run_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    untrusted(monkeypatch)
    text, said = ported(with_code(tmp_path), *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2534"])
    assert "which needs `--trust`: reference.py" in said
    assert not asked
    assert not (tmp_path / "ran").exists()
    assert notes(ported(tmp_path / "gemm.cu", "--trust", *AUTO)[1]) == ["PT2512"]


def test_a_dsl_file_that_nobody_trusts_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    untrusted(monkeypatch)
    kernel = next(shutil.copytree(CORPUS / "dsl_gemm_plain", tmp_path / "dsl").glob("dsl_*.py"))
    kernel.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + kernel.read_text())
    text, said = ported(kernel, *AUTO)
    support = (kernel.parent / "out/porter_dsl.py").read_bytes()
    assert text == compat(kernel)
    assert support == (kernel.parent / "compat/porter_dsl.py").read_bytes()
    assert "PT2570" in said
    assert "its trace, for which it is imported, which needs `--trust`" in said
    assert not asked
    assert not (tmp_path / "ran").exists()


def lose(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Slower("gemm", 0.266, 0.392)
    for module in (automatic, verifying):
        monkeypatch.setattr(module, "slower", lambda *compared: lost)


def test_what_the_grade_finds_slower_stays_at_m64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    lose(monkeypatch)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2532"])
    assert "stays at M=64: by the grade gemm reaches 39.2 % of its chip's nominal rate, and 26.6 % with M=128" in said
    assert not asked, "what is slower need not be proved"


def test_a_style_that_is_asked_for_by_name_is_given_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    lose(monkeypatch)
    text, said = ported(gemm(tmp_path), "--style", "full-rate")
    assert "thread_index" in text
    assert notes(said) == ["PT2512", "PT2533"]
    assert "gemm reaches 26.6 % of its chip's nominal rate; at M=64 it reaches 39.2 %" in said


@pytest.mark.slow
def test_the_native_style_does_not_end_below_the_compat_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(("case.yaml",), 1))
    lose(monkeypatch)
    kernel = shutil.copytree(CORPUS / "gemm_tma", tmp_path / "gemm_tma") / "gemm_tma.cu"
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "shared", lambda session, ported, make: Chosen(ported))
    text, said = ported(kernel, "--style", "native")
    assert text == compat(kernel)
    assert "PT2532" in notes(said)
    assert "and 26.6 % with the steps of the native style" in said
    assert "PT2513" not in said
    assert "PT2515" not in said


ONE_TILE = """\
#include <cstdint>
__global__ void __launch_bounds__(128) gemm(float* out, uint64_t a, uint64_t b) {
    float d[8] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = d[i];
}
"""


def test_a_kernel_with_one_tile_says_what_it_says_in_compat(tmp_path: Path) -> None:
    (tmp_path / "gemm.cu").write_text(ONE_TILE)
    text, said = ported(tmp_path / "gemm.cu", *AUTO)
    assert text == compat(tmp_path / "gemm.cu")
    assert notes(said) == ["PT2503"]


WARP = 'int warp() { int w; asm("mov.u32 %0, %%warpid;" : "=r"(w)); return w; }'
MISSING = {
    "the A descriptor `a` is that of the other consumer, too": ("", "a + consumer * 512", "a"),
    "asm reads which warp of the CTA a thread is in": (f"__device__ {WARP}\n", "threadIdx.x / 128", "warp() / 4"),
    "its blocks have more than one dimension": ("", "threadIdx.x / 128", "threadIdx.y"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_fact_that_is_missing_is_the_one_note(what: str, tmp_path: Path) -> None:
    head, before, after = MISSING[what]
    (tmp_path / "gemm.cu").write_text(joined_gemm.KERNEL.replace("HEAD", head).replace(before, after))
    found, said = ported(tmp_path / "gemm.cu", *AUTO)
    assert notes(said) == ["PT2510"]
    assert f"gemm stays at M=64: {what}" in said
    assert found == compat(tmp_path / "gemm.cu")


def at(line: int, what: str, code: Code = Code.FULL_RATE_LEFT, kernel: str = "gemm") -> Diagnostic:
    values = {"kernel": kernel, "what": what} if code is Code.FULL_RATE_LEFT else {"kernel": kernel}
    return Diagnostic(code, Location("a.cu", line), values)


def test_the_first_of_several_facts_stands_for_all() -> None:
    root = PortedRoot("a.cu", ("a.cu", "b.cuh"))
    said = [at(3, "one"), at(4, "two"), at(5, "three"), at(1, "", Code.HALF_RATE), at(1, "", Code.EXTRA_BARRIER)]
    found = one_each(said, [root], False)
    assert [d.code for d in found] == [Code.FULL_RATE_LEFT, Code.EXTRA_BARRIER]
    assert found[0].values["what"] == "one (and 2 more: `porter plan -v`)"
    assert [d.values.get("what") for d in one_each(said, [root], True)] == ["one", "two", "three", None]


def test_each_kernel_of_a_file_is_explained() -> None:
    root = PortedRoot("a.cu", ("a.cu",), kernels=("gemm", "other"))
    said = [at(1, "", Code.HALF_RATE), at(9, "", Code.HALF_RATE, "other"), at(3, ALONE)]
    assert [d.code for d in one_each(said, [root], False)] == [Code.HALF_RATE, Code.HALF_RATE]
    said += [Diagnostic(Code.FULL_RATE_UNPROVED, Location("a.cu"), {"path": "a.cu", "what": "x"})]
    assert [d.code for d in one_each(said, [root], False)] == [Code.FULL_RATE_UNPROVED]
    elsewhere = PortedRoot("b.cu", ("b.cu",), kernels=("gemm",))
    said[-1] = Diagnostic(Code.FULL_RATE_UNPROVED, Location("b.cu"), {"path": "b.cu", "what": "x"})
    assert len(one_each(said, [root, elsewhere], False)) == 3


def test_one_warpgroup_with_two_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = shutil.copytree(CORPUS / "gemm_tma", tmp_path / "gemm_tma") / "gemm_tma.cu"
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(("case.yaml",), 1))
    text, said = ported(kernel, *AUTO)
    assert "tcgen05::tile_row(" in text
    assert notes(said) == ["PT2512"]


def test_no_trace_of_cute_dsl_is_begun_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    monkeypatch.setattr(porting, "traces_of", lambda path, names: "traced")
    begun = Budget(10.0)
    assert porting.trusted_traces_of(begun, Path("a.py"), ()) == "traced"
    assert "no time was left" in porting.trusted_traces_of(Budget(0.0), Path("a.py"), ())


def test_cute_dsl_that_its_case_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(shutil.copytree(CORPUS / "dsl_gemm", tmp_path / "dsl").glob("dsl_*.py"))
    told = [stated(kernel, kernel.read_bytes(), 128, 128, 2)]
    monkeypatch.setattr("porter.cli.porting.traces_of", lambda path, names: told)
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(("case.yaml",), 1))
    text, said = ported(kernel, *AUTO)
    assert "porter_dsl" not in text
    assert "PT2581" in said
    assert not (kernel.parent / "out/porter_dsl.py").exists()
    assert notes(ported(kernel, *AUTO, "--no-compile", out="unrun")[1]) == ["PT2534"]
    monkeypatch.setattr(automatic, "slower", lambda *compared: Slower("kernel", 0.2, 0.3))
    text, said = ported(kernel, *AUTO, out="slow")
    assert "porter_dsl.gemm(" in text
    assert "PT2532" in said


@pytest.mark.parametrize("style", ["auto", pytest.param("native", marks=pytest.mark.slow)])
def test_a_step_of_cute_dsl_is_given_where_its_case_verified_it(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the port is in the same words without it."""
    kernel = next(shutil.copytree(CORPUS / "dsl_gemm_persistent", tmp_path / "dsl").glob("dsl_*.py"))
    told = [stated(kernel, kernel.read_bytes(), 128, 128)]
    monkeypatch.setattr("porter.cli.porting.traces_of", lambda path, names: told)
    right, claims = verifying.Proof(("case.yaml",), 1), list[Any]()

    def refused(claim: Any, *_: object) -> verifying.Proof:
        claims.append(claim)
        return verifying.Proof(missing="a hazard") if b"acc_stages" in claim.plan.files[str(kernel)] else right

    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(verifying, "prove", refused)
    text, said = ported(kernel, "--style", style)
    assert "acc_stages" not in text
    assert "porter_dsl" not in text
    assert "PT2581" in said
    assert "PT2515" not in said
    assert "is without the step mma-warp: a hazard" in said
    assert {claim.takes_turns for claim in claims} == {True, False}
    monkeypatch.setattr(verifying, "prove", lambda *claim: right)
    text, said = ported(kernel, "--style", style, out="taken")
    assert "acc_stages[(None, None, None, acc_fill_state.index)]" in text
    assert "has the step mma-warp" in said


@pytest.mark.slow
def test_cute_dsl_in_which_its_case_found_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(shutil.copytree(CORPUS / "dsl_gemm", tmp_path / "dsl").glob("dsl_*.py"))
    told = [stated(kernel, kernel.read_bytes(), 128, 128, 2)]
    monkeypatch.setattr("porter.cli.porting.traces_of", lambda path, names: told)
    monkeypatch.setattr(verifying, "prove", lambda *claim: verifying.Proof(missing="no"))
    for style in ("auto", "full-rate", "native"):
        text, said = ported(kernel, "--style", style, out=style)
        assert text == compat(kernel)
        assert "PT2580" in said


@pytest.mark.parametrize("option", [("--ignore", "PTR180"), ("--ignore", "PTR18"), ("--select", "PTR100")])
def test_who_leaves_the_rule_out_gets_the_compat_port(
    option: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    text, said = ported(gemm(tmp_path), *AUTO, *option)
    assert text == ported(tmp_path / "gemm.cu", "--style", "compat", *option, out="compat")[0]
    assert "PT2010" not in said
    assert not asked


@pytest.mark.parametrize("error", [RuntimeError("no"), MemoryError(), PorterError(Code.NO_HOST_COMPILER)])
def test_whatever_happens_in_a_run_the_compat_port_is_there(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(*claim: object) -> verifying.Proof:
        raise error

    monkeypatch.setattr(verifying, "prove", prove)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2511"])
    assert "it could not be run: " in said


def test_files_that_can_be_ported_as_compat_alone_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from porter.cli import porting

    inner = porting.engine.port_paths

    def fails(paths: Any, options: Any, *rest: Any) -> Ported:
        if options.full_rate:
            raise PorterError(Code.SHARED_HEADER, path="a.cuh", one="a.cu", other="b.cu")
        return inner(paths, options, *rest)

    monkeypatch.setattr(porting.engine, "port_paths", fails)
    text, said = ported(gemm(tmp_path), *AUTO)
    assert (text, notes(said)) == (compat(tmp_path / "gemm.cu"), ["PT2503"])


def tree(folder: Path, count: int) -> Path:
    for n in range(count):
        (folder / f"k{n}").mkdir(parents=True)
        gemm(folder / f"k{n}")
    return folder


@pytest.mark.slow
def test_files_whose_turn_did_not_come_are_named_in_one_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    folder = tree(tmp_path / "tree", 6)
    said = porter("port", *AUTO, "--seconds", "0", folder, "-o", tmp_path / "out").output
    assert not asked
    assert notes(said) == ["PT2503"] * 6 + ["PT2534"]
    assert "k3/gemm.cu and 2 other files: no run could show that M=128 is right, as 0 seconds were over" in " ".join(
        said.split()
    )
    assert "thread_index" not in (tmp_path / "out").rglob("gemm.cu").__next__().read_text()


def test_each_file_of_a_tree_is_judged_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(claim: verifying.Claim, *how: object) -> verifying.Proof:
        return verifying.Proof(missing="no") if "k1" in str(claim.source) else verifying.Proof(("case.yaml",), 1)

    monkeypatch.setattr(verifying, "prove", prove)
    folder = tree(tmp_path / "tree", 3)
    document = porter_json("port", *AUTO, folder, "-o", tmp_path / "out")
    texts = [(tmp_path / f"out/k{n}/gemm.cu").read_text() for n in range(3)]
    assert ["thread_index" in text for text in texts] == [True, False, True]
    ids = sorted(d["id"] for d in document["diagnostics"] if d["id"] in ("PT2503", "PT2511", "PT2512"))
    assert ids == ["PT2511", "PT2512", "PT2512"]


def test_time_that_ends_within_a_proof_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = Diagnostic(Code.TIME_SPENT, None, {"seconds": 7.0})
    verified(monkeypatch, Verdict.INCOMPLETE, spent)
    _, said = ported(gemm(tmp_path), *AUTO, "--seconds", "7")
    assert notes(said) == ["PT2534"]
    assert "as 7 seconds were over before its case had verified it" in said


def test_what_follows_proofs_has_as_much_time() -> None:
    assert time_for(None).seconds == automatic.SECONDS
    assert time_for(60.0).seconds == 30
    assert time_for(10_000.0).seconds == automatic.SECONDS


def test_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    for options in ((), ("--no-config",)):
        assert "thread_index" in ported(gemm(tmp_path), *options)[0]
    for command in ("port", "plan", "verify", "mutate", "grade"):
        assert "[default: auto]" in " ".join(porter(command, "--help").output.split())
    (tmp_path / "porter.toml").write_text('style = "compat"\n')
    assert "thread_index" not in ported(tmp_path / "gemm.cu")[0]


@pytest.mark.spread(3)
@pytest.mark.parametrize("command", [("build",), ("hazards",), ("kit", "-o", "kit.tar")])
def test_what_looks_at_a_port_has_the_style_of_the_configuration(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `porter port` has it."""
    (tmp_path / "porter.toml").write_text('style = "full-rate"\n')
    styles: list[str | None] = []

    class Enough(KeyboardInterrupt):
        """The port is not made."""

    def options(session: Session) -> None:
        styles.append(session.style)
        raise Enough

    monkeypatch.setattr("porter.cli.porting.port_options", options)
    porter(command[0], gemm(tmp_path), *command[1:], code=130)
    assert set(styles) == {"full-rate"}


def test_the_configuration_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(monkeypatch, Verdict.CLEAN)
    (tmp_path / "porter.toml").write_text('style = "auto"\n')
    assert "thread_index" in ported(gemm(tmp_path))[0]


def test_the_plan_runs_nothing_and_says_what_a_run_has_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verified(monkeypatch, Verdict.CLEAN)
    monkeypatch.setattr(automatic, "slower", lambda *compared: pytest.fail("compiled for a plan"))
    said = " ".join(porter("plan", *AUTO, gemm(tmp_path)).output.split())
    assert "128: one MMA for two tiles" in said
    assert "to be shown by the grade it is no slower than with M=64" in said
    full = porter("plan", "--style", "full-rate", tmp_path / "gemm.cu").output
    assert "by the grade" not in full
    assert "to be shown" in full
    (tmp_path / "gemm.cu").write_text(ONE_TILE)
    assert notes(porter("plan", *AUTO, tmp_path / "gemm.cu").output) == ["PT2503"]
    assert not asked


def rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which ports are verified, in turn: by their texts."""
    seen: list[str] = []

    def verify(items: Sequence[Any], wanted: Any, builder: Any, tell: Any) -> Any:
        plan, _ = wanted.port_of(automatic_case(items[0]))
        seen.append("M=128" if b"thread_index()" in b"".join(plan.files.values()) else "M=64")
        raise PorterError(Code.BAD_OPTION, option="x", problem="enough is known")

    def automatic_case(item: Any) -> Any:
        from porter.verify.case import load_case

        return item if not isinstance(item, Path) else load_case(item)

    monkeypatch.setattr("porter.cli.verify.verify_cases", verify)
    return seen


def test_verify_takes_the_port_that_port_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = rows(monkeypatch)
    kernel = gemm(tmp_path)
    for proof in (verifying.Proof(("case.yaml",), 1), verifying.Proof(missing="no")):
        monkeypatch.setattr(verifying, "prove", lambda *claim, proof=proof: proof)
        said = porter("verify", *AUTO, kernel, code=2).output
        assert ("PT2511" in said) is bool(proof.missing)
    porter("verify", "--style", "compat", kernel, code=2)
    porter("verify", *AUTO, "--seconds", "0", kernel, code=2)
    assert seen == ["M=128", "M=64", "M=64", "M=64"]


def test_the_grade_takes_for_granted_what_a_run_has_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "prove", lambda *claim: pytest.fail("a grade runs nothing"))
    made = []

    def of_case(session: Any, case: Any, port: Any, port_of: Any) -> tuple[list[Any], list[Diagnostic]]:
        made.append(port_of(case)[0])
        return [], []

    monkeypatch.setattr("porter.cli.grade.of_case", of_case)
    porter("grade", *AUTO, gemm(tmp_path), code=6)
    lose(monkeypatch)
    assert "PT2532" in porter("grade", *AUTO, tmp_path / "gemm.cu", code=6).output
    assert [b"thread_index()" in b"".join(plan.files.values()) for plan in made] == [True, False]


# --- with the compiler and the simulator


@pytest.fixture
def a_real_machine(monkeypatch: pytest.MonkeyPatch, a_machine_with_a_compiler: None) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(trust, "_said", True)


@pytest.mark.slow
@pytest.mark.external
def test_verify_runs_no_row_of_the_proof_again(a_real_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from porter.verify.runner import _Session

    run: list[tuple[object, ...]] = []
    inner = _Session._run

    def count(self: Any, trial: Any, program: Any, backend: Any, check: bool, left: Any = None) -> Any:
        how = getattr(backend, "options", None)
        run.append((str(trial.problem.sizes), trial.family.name, program.name, self.options.seed, str(how), check))
        return inner(self, trial, program, backend, check, left)

    monkeypatch.setattr(_Session, "_run", count)
    result = porter("verify", *AUTO, CORPUS / "gemm_ws/gemm_ws.cu")
    assert "10 clean" in result.output
    assert not {one for one in run if run.count(one) > 1}
    assert "instructions of the port" in result.output


@pytest.mark.slow
@pytest.mark.external
def test_a_planted_mistake_leaves_the_compat_port(
    tmp_path: Path, a_real_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No relabelling: every value is in another row."""
    made = automatic.given

    def given(found: Ported, *how: Any) -> Ported:
        return made(planted(found, r"return \(4 \+ warp[^;]*;", "return threadIdx.x;"), *how)

    monkeypatch.setattr(automatic, "given", given)
    text, said = ported(shutil.copytree(CORPUS / "gemm_ws", tmp_path / "gemm_ws") / "gemm_ws.cu", *AUTO)
    assert notes(said) == ["PT2511"]
    assert "differ" in said
    assert text == compat(tmp_path / "gemm_ws/gemm_ws.cu")


@pytest.mark.slow
@pytest.mark.external
def test_attention_stays_at_m64_by_the_grade(tmp_path: Path, a_real_machine: None) -> None:
    text, said = ported(
        shutil.copytree(CORPUS / "attention_fwd", tmp_path / "attention_fwd") / "attention_fwd.cu", *AUTO
    )
    assert notes(said) == ["PT2532"]
    assert "reaches 26.2 % of its chip's nominal rate, and 17.4 % with M=128 MMAs" in said
    assert "thread_index" not in text
