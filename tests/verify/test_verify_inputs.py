# SPDX-License-Identifier: Apache-2.0
from fractions import Fraction

import numpy as np
import pytest
from fakes_verify import CASE, write_case

from porter.diagnostics import Code, PorterError
from porter.verify.arithmetic import exact_integer_limit, rule_of, step_loss
from porter.verify.bounds import bound
from porter.verify.case import load_case
from porter.verify.dtypes import DTYPES
from porter.verify.inputs import FAMILIES, choose, generate
from porter.verify.judge import expectation, failed_controls
from porter.verify.problem import bind


def problem_of(tmp_path, dtype="bf16", out="f32", accumulate="f32", k=64, extra=""):
    text = CASE.replace("bf16", dtype).replace("f32, shape: [M, N]", f"{out}, shape: [M, N]")
    text = text.replace("K: 64}", f"K: {k}}}") + f"    accumulate: {accumulate}\n{extra}"
    # The width of the box is not what is tried here.
    start, end = text.index("    tensor_maps:"), text.index("    launch:")
    text = (text[:start] + text[end:]).replace("params: [map_a", "params: [A")
    return bind(load_case(write_case(tmp_path, text)))


TYPES = [
    ("bf16", "f32", "f32"), ("f16", "f32", "f32"), ("f16", "f16", "f16"), ("tf32", "f32", "f32"),
    ("bf16", "bf16", "f32"), ("f8e4m3", "f32", "f32"), ("f8e5m2", "bf16", "f32"), ("f8e4m3", "f16", "f16"),
    ("s8", "s32", "s32"), ("u8", "s32", "s32"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "out", "accumulate"), TYPES)
@pytest.mark.parametrize("k", [32, 512, 4096])
@pytest.mark.parametrize("family", ["integers", "index"])
def test_exact_families_are_exact_in_any_order(tmp_path, dtype, out, accumulate, k, family):
    """Every partial sum, in any order, is an integer that the narrowest accumulator holds."""
    problem = problem_of(tmp_path, dtype, out, accumulate, k)
    inputs = generate(problem, FAMILIES[family], 1)
    a, b = (problem.tensors[n].dtype.decode(inputs[n]) for n in "AB")
    assert np.array_equal(a, np.rint(a))
    largest_partial_sum = (np.abs(a) @ np.abs(b).T).max()
    assert 0 < largest_partial_sum <= exact_integer_limit(problem.operand, accumulate)
    assert largest_partial_sum <= DTYPES[out].largest
    if family == "integers":
        assert len(np.unique(a @ b.T)) > 2


@pytest.mark.parametrize(("dtype", "out", "accumulate"), TYPES)
@pytest.mark.parametrize("arithmetic", ["float64", "exact"])
def test_no_family_is_blind(tmp_path, dtype, out, accumulate, arithmetic):
    problem = problem_of(tmp_path, dtype, out, accumulate, 256)
    for family in choose(None, problem):
        inputs = generate(problem, family, 0)
        tried, passed = failed_controls(expectation(problem, family, inputs, arithmetic))
        assert tried >= 4
        assert not passed, f"{family.name}: {[d.message for d in passed]}"


@pytest.mark.parametrize(("dtype", "out", "accumulate"), TYPES[:8])
@pytest.mark.parametrize("family", ["normal", "uniform", "wide", "special"])
def test_finite_families_stay_finite(tmp_path, dtype, out, accumulate, family):
    problem = problem_of(tmp_path, dtype, out, accumulate, 256)
    inputs = generate(problem, FAMILIES[family], 2)
    a, b = (problem.tensors[n].dtype.decode(inputs[n]) for n in "AB")
    assert np.isfinite(a).all()
    sums = np.abs(a) @ np.abs(b).T
    assert sums.max() < min(DTYPES[out].largest, DTYPES[accumulate].largest)


def test_families_hold_what_they_are_for(tmp_path):
    problem = problem_of(tmp_path, "f16")

    def draw(name):
        return problem.tensors["A"].dtype.decode(generate(problem, FAMILIES[name], 0)["A"])

    assert (draw("uniform") >= 0).all()
    special = draw("special")
    assert np.signbit(special[special == 0]).any()
    assert ((special != 0) & (np.abs(special) < 2.0**-14)).any()
    nonfinite = draw("nonfinite")
    assert np.isnan(nonfinite).any()
    assert np.isposinf(nonfinite).any()
    assert np.isfinite(nonfinite).mean() > 0.99
    wide = np.abs(draw("wide"))
    assert wide.max() / wide.min() > 2**12


def test_index_family_outputs_name_elements(tmp_path):
    problem = problem_of(tmp_path, k=32)
    inputs = generate(problem, FAMILIES["index"], 0)
    a, b = (problem.tensors[n].dtype.decode(inputs[n]) for n in "AB")
    assert (b.sum(axis=1) == 1).all()
    assert set(np.unique(a @ b.T)) <= set(np.unique(a))


def test_integer_operands_only_have_exact_families(tmp_path):
    problem = problem_of(tmp_path, "s8", "s32", "s32")
    assert [f.name for f in choose(None, problem)] == ["integers", "index", "positive"]


@pytest.mark.parametrize(("dtype", "lowest"), [("s8", -127), ("u8", 0)])
@pytest.mark.parametrize("family", ["normal", "uniform", "wide", "special", "nonfinite"])
def test_quantized_operands_have_values_in_families_of_floats(tmp_path, dtype, lowest, family):
    """Integer weights that are multiplied as bf16: not all alike, finite sums, and controls that see something."""
    text = CASE.replace("A: {dtype: bf16", f"A: {{dtype: {dtype}").replace("map_a, B", "A, B") + "    operand: bf16\n"
    start, end = text.index("    tensor_maps:"), text.index("    launch:")
    problem = bind(load_case(write_case(tmp_path, text[:start] + text[end:])))
    inputs = generate(problem, FAMILIES[family], 0)
    values = problem.tensors["A"].dtype.decode(inputs["A"])
    assert len(np.unique(values)) > 50
    assert lowest <= values.min() <= lowest + 5
    tried, passed = failed_controls(expectation(problem, FAMILIES[family], inputs, "float64"))
    assert tried >= 4
    assert not passed


def test_a_case_may_name_its_families(tmp_path):
    problem = problem_of(tmp_path, extra="    families: [normal, uniform]\n")
    assert [f.name for f in choose(["all"], problem)] == ["normal", "uniform"]
    assert [f.name for f in choose(["uniform"], problem)] == ["uniform"]


def test_an_unknown_family(tmp_path):
    with pytest.raises(PorterError) as caught:
        choose(["gaussian"], problem_of(tmp_path))
    assert caught.value.diagnostic.code is Code.UNKNOWN_FAMILY
    assert "integers" in str(caught.value)


def truncated_dot(a, b, length, fraction_bits, keep):
    """The hardware's sum by its definition, in exact fractions: align at the largest exponent, cut, add,
    cut."""
    total = Fraction(0)
    for start in range(0, len(a), length):
        terms = [Fraction(x) * Fraction(y) for x, y in zip(a[start:start + length], b[start:start + length],
                                                           strict=True)]  # fmt: skip
        terms = [t for t in [*terms, total] if t]
        if not terms:
            continue
        exponent = max(int(np.frexp(float(abs(t)))[1]) - 1 for t in terms)
        unit = Fraction(2) ** (exponent - fraction_bits)
        total = sum((Fraction(int(t / unit)) * unit for t in terms), Fraction(0))
        if total:
            cut = Fraction(2) ** (int(np.frexp(float(abs(total)))[1]) - 1 - keep)
            total = Fraction(int(total / cut)) * cut
    return float(total)


@pytest.mark.parametrize("family", ["normal", "uniform", "wide"])
@pytest.mark.parametrize(("dtype", "arch"), [("bf16", "sm_90a"), ("f8e4m3", "sm_90a"), ("f8e4m3", "sm_100a")])
def test_the_bound_holds_for_truncated_sums_and_is_not_vacuous(tmp_path, family, dtype, arch):
    problem = problem_of(tmp_path, dtype, k=128)
    inputs = generate(problem, FAMILIES[family], 5)
    wanted = expectation(problem, FAMILIES[family], inputs, "exact")
    allowed = wanted.allowed(problem.tensors["C"], arch)
    rule = rule_of(problem.operand, "f32", "sm_90" if arch == "sm_90a" else "sm_100")
    assert rule is not None
    keep = 13 if rule.fraction_bits == 13 else 23
    a, b = wanted.inputs["A"], wanted.inputs["B"]
    for i, j in [(0, 0), (7, 100), (63, 127), (31, 64)]:
        got = truncated_dot(a[i].tolist(), b[j].tolist(), rule.length, rule.fraction_bits, keep)
        assert abs(got - wanted.expected["C"][i, j]) <= allowed[i, j]
    # A bound as large as the values themselves would let anything pass.
    assert np.median(allowed / wanted.terms["C"]) < (0.05 if keep == 13 else 1e-4)


def test_the_step_loss_is_that_of_the_written_rule():
    loss = step_loss(DTYPES["bf16"], "f32", "sm_90", "exact")
    assert loss.length == 16
    assert loss.relative == 17 * 2.0**-25 + 2.0**-23
    hopper = step_loss(DTYPES["f8e5m2"], "f32", "sm_90", "exact")
    assert hopper.relative == 33 * 2.0**-13 + 2.0**-13
    assert step_loss(DTYPES["s8"], "s32", "sm_90", "exact").relative == 0


def test_bounds_scale_with_the_sum(tmp_path):
    problem = problem_of(tmp_path)
    tensor = problem.tensors["C"]
    one, two = (bound(problem, tensor, np.zeros(1), np.array([s]), "sm_90a", "exact")[0] for s in (1.0, 2.0))
    assert one < two < 2.01 * one
