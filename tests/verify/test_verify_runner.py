# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
from fakes_verify import CASE, FakeBackend, FakeBuilder, gemm, write_case

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report.exits import verification_exit
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import VerifyResult
from porter.verify.runner import VerifyOptions, verify

PORT = PortPlan(source=Path("ported.cu"))


def run(tmp_path, original=gemm, port=gemm, families=None, arithmetic="float64", text=CASE, **options):
    case = load_case(write_case(tmp_path, text))
    backend = FakeBackend(original, port, arithmetic)
    chosen = VerifyOptions(families=families, **options)
    return verify(case, PORT if port else None, FakeBuilder(), backend, chosen)


def codes(result: VerifyResult) -> set[Code]:
    return {d.code for row in result.rows for d in row.diagnostics}


def damaged(change):
    """The right kernel, with `change` made to its output."""

    def kernel(t):
        gemm(t)
        t["C"][:] = change(t["C"])

    return kernel


def test_a_right_port_is_clean_in_every_family(tmp_path):
    result = run(tmp_path, sizes=({}, {"M": 128}))
    assert [r.verdict for r in result.rows] == [Verdict.CLEAN] * 14
    assert {r.family for r in result.rows} >= {"integers", "index", "normal", "wide", "special", "nonfinite"}
    assert verification_exit(result) is ExitCode.OK
    assert all(r.controls >= 3 for r in result.rows)
    assert all(c.kind == "bits" for r in result.rows for c in r.between)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("A @ B.T * (np.exp(710) / np.exp(710))", "the reference is NaN there"),
        ("A @ B.T * (np.exp((A - A) * 1e30) / np.exp((A - A) * 1e30))[:1, :1]", "there is no bound"),
    ],
)
def test_a_reference_that_overflows_is_named_as_the_reason(tmp_path, reference, said):
    text = CASE.replace("A @ B.T", reference)
    result = run(tmp_path, text=text, families=["wide"])
    assert codes(result) == {Code.ORIGINAL_DIFFERS}
    assert said in result.rows[0].diagnostics[0].detail


def last_tile_missing(c):
    c = c.copy()
    c[-64:, -64:] = 0
    return c


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.zeros_like, id="zero"),
        pytest.param(lambda c: c.T.reshape(c.shape), id="transposed"),
        pytest.param(lambda c: np.roll(c, 64, axis=1), id="tiles-swapped"),
        pytest.param(last_tile_missing, id="tile-missing"),
        pytest.param(lambda c: np.full_like(c, np.nan), id="nan"),
        pytest.param(lambda c: c * np.float32(1.01), id="one-percent"),
        pytest.param(lambda c: -c, id="negated"),
    ],
)
@pytest.mark.parametrize("family", ["integers", "index", "normal", "uniform", "wide", "special", "nonfinite"])
@pytest.mark.parametrize("arithmetic", ["float64", "exact"])
def test_a_wrong_port_fails_in_every_family(tmp_path, change, family, arithmetic):
    result = run(tmp_path, port=damaged(change), families=[family], arithmetic=arithmetic)
    assert codes(result) == {Code.PORT_DIFFERS}
    assert verification_exit(result) is ExitCode.DIFFERENT
    assert all(c.ok for r in result.rows for c in r.original)


@pytest.mark.parametrize("family", ["integers", "index"])
def test_one_ulp_in_one_element_fails_where_sums_are_exact(tmp_path, family):
    def one_ulp(c):
        c = c.copy()
        c[17, 33] = np.nextafter(c[17, 33], np.float32(np.inf))
        return c

    result = run(tmp_path, port=damaged(one_ulp), families=[family])
    assert codes(result) == {Code.PORT_DIFFERS}
    first = result.rows[0].port[0].first
    assert first is not None
    assert first.index == (17, 33)
    assert result.rows[0].port[0].mismatches == 1
    # Row 17, column 33 of an m64n64 fragment: warp 1, row 1 of its 16, so lane 4 and register 16 + 1.
    detail = result.rows[0].diagnostics[0].detail
    assert "tile (0, 0), m64 slab 0, warp 1, lane 4, register 17" in detail
    assert "TMEM lane 33 column 33" in detail


def test_bits_that_differ_within_the_bound_are_reported_as_such(tmp_path):
    result = run(tmp_path, port=damaged(lambda c: np.nextafter(c, np.float32(0))), families=["normal"])
    assert codes(result) == {Code.PORT_BITS_DIFFER}
    assert result.rows[0].between[0].max_ulps == 1


def test_a_case_may_ask_for_the_bound_only(tmp_path):
    text = CASE + "    compare: bound\n"
    result = run(tmp_path, port=damaged(lambda c: np.nextafter(c, np.float32(0))), families=["normal"],
                 text=text)  # fmt: skip
    assert result.verdict is Verdict.CLEAN


def test_the_original_is_checked_first(tmp_path):
    result = run(tmp_path, original=damaged(np.zeros_like), port=gemm, families=["normal"])
    assert codes(result) == {Code.ORIGINAL_DIFFERS}
    both = run(tmp_path, original=damaged(np.zeros_like), port=damaged(np.zeros_like), families=["normal"])
    assert codes(both) == {Code.ORIGINAL_DIFFERS}
    assert not both.rows[0].port[0].ok


def test_without_a_port_only_the_original_runs(tmp_path):
    case = load_case(write_case(tmp_path))
    builder = FakeBuilder()
    result = verify(case, None, builder, FakeBackend(gemm), VerifyOptions(families=["integers"]))
    assert result.verdict is Verdict.CLEAN
    assert [arch for _, arch in builder.built] == ["sm_90a"]
    assert result.rows[0].port == ()


def test_an_output_never_written_is_named(tmp_path):
    def forgets(t):
        gemm(t)
        t["C"][3, :5] = np.frombuffer(b"\xff" * 20, np.float32)

    result = run(tmp_path, port=forgets, families=["normal"])
    assert "5 elements were never written" in result.rows[0].diagnostics[0].detail


def test_a_comparison_that_cannot_tell_is_an_error(tmp_path):
    text = CASE.replace('"A @ B.T"', '"0 * (A @ B.T)"')

    def zero(t):
        t["C"][:] = 0

    result = run(tmp_path, original=zero, port=zero, families=["normal"], text=text)
    assert codes(result) == {Code.CONTROL_PASSED}
    assert result.verdict is Verdict.ERROR
    assert verification_exit(result) is ExitCode.DIFFERENT


def test_a_reference_blind_to_the_end_of_the_sum_is_an_error(tmp_path):
    text = CASE.replace('"A @ B.T"', '"A[:, :-16] @ B[:, :-16].T"')

    def short(t):
        t["C"][:] = t["A"][:, :-16].astype("f8") @ t["B"][:, :-16].astype("f8").T

    result = run(tmp_path, original=short, port=short, families=["integers"], text=text)
    assert codes(result) == {Code.CONTROL_PASSED}
    assert "last step" in result.rows[0].diagnostics[0].message


def test_a_write_outside_a_tensor_is_found(tmp_path):
    def strays(t, after):
        gemm(t)
        after["C"].data[-1] = 0

    result = run(tmp_path, port=strays, families=["integers"])
    assert codes(result) == {Code.STRAY_WRITE}
    assert "63 bytes after its end" in result.rows[0].diagnostics[0].message


def test_a_changed_input_is_found(tmp_path):
    def scribbles(t):
        gemm(t)
        t["B"][2, 3] += 1

    result = run(tmp_path, port=scribbles, families=["integers"])
    assert codes(result) == {Code.INPUT_CHANGED}
    assert "[2, 3]" in result.rows[0].diagnostics[0].message


def test_a_write_in_the_gap_between_rows_is_found(tmp_path):
    text = CASE.replace("C: {dtype: f32, shape: [M, N],", "C: {dtype: f32, shape: [M, N], strides: [N + 8, 1],")
    assert run(tmp_path, families=["integers"], text=text).verdict is Verdict.CLEAN

    def strays(t, after):
        gemm(t)
        after["C"].data[64 + 128 * 4] = 0

    result = run(tmp_path, port=strays, families=["integers"], text=text)
    assert codes(result) == {Code.STRAY_WRITE}
    assert "gap between its rows" in result.rows[0].diagnostics[0].message


@pytest.mark.parametrize(
    ("status", "verdict", "exit_code", "code"),
    [
        ("error", Verdict.ERROR, ExitCode.DIFFERENT, Code.RUN_FAILED),
        ("incomplete", Verdict.INCOMPLETE, ExitCode.INCONCLUSIVE, Code.RUN_INCOMPLETE),
    ],
)
def test_a_run_that_does_not_finish_is_never_clean(tmp_path, status, verdict, exit_code, code):
    result = run(tmp_path, port=status, families=["integers"])
    assert result.verdict is verdict
    assert verification_exit(result) is exit_code
    assert codes(result) == {code}
    assert "stand-in finding" in result.rows[0].diagnostics[0].message


def test_a_build_failure_is_the_error_of_its_rows(tmp_path):
    case = load_case(write_case(tmp_path))
    result = verify(case, PORT, FakeBuilder("sm_100a"), FakeBackend(gemm, gemm),
                    VerifyOptions(families=["integers"]))  # fmt: skip
    assert result.verdict is Verdict.ERROR
    assert codes(result) == {Code.NVCC_ERROR}
    assert verification_exit(result) is ExitCode.BUILD_FAILED


def test_arguments_are_checked_against_the_kernel_before_anything_runs(tmp_path):
    text = CASE.replace("params: [map_a, B, C, M, N, K]", "params: [map_a, B, C, M, N]")
    case = load_case(write_case(tmp_path, text))
    right = load_case(write_case(tmp_path / "right"))

    class Stubborn(FakeBuilder):
        def build(self, problem, source, arch):
            from porter.verify.problem import bind

            return super().build(bind(right), source, arch)

    with pytest.raises(PorterError) as caught:
        verify(case, None, Stubborn(), FakeBackend(gemm), VerifyOptions())
    assert caught.value.diagnostic.code is Code.CASE_PARAMETERS
    assert "5 arguments, but the kernel takes 6" in str(caught.value)


def test_the_seed_replays_and_matters(tmp_path):
    seen = []

    def spy(t):
        gemm(t)
        seen.append(t["A"].copy())

    for seed in (1, 1, 2):
        run(tmp_path, original=spy, port=None, families=["normal"], seed=seed)
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])
