# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in a port with two-level accumulation: seen by the values, or by the hazard checker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from porter.passes.dsl.port import port_python
from porter.verify.backends import SimBackend
from porter.verify.builder import PORT_ARCH, PortPlan, ToolkitBuilder, materialize
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.external

CASE = Path(__file__).parents[2] / "corpus" / "dsl_gemm_fp8_scaled" / "case.yaml"
SIZES = {"M": 128, "N": 128, "K": 256, "L": 1}

LOADS = "                    for subtile in cutlass.range_constexpr("
RELEASE = """                    acc_pipeline.consumer_release(acc_consumer_state)
                    acc_consumer_state.advance()
"""
WAIT = "                    acc_pipeline.consumer_wait(acc_consumer_state)\n"
ACQUIRE = "                        acc_pipeline.producer_acquire(acc_producer_state)\n"


def run(*changes: tuple[str, str]) -> tuple[bool, list[str]]:
    """Whether the values are right, and the errors that the checker found."""
    case = load_case(CASE)
    text = port_python(case.kernel).files[str(case.kernel)].decode()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    problem = bind(case, SIZES)
    source = materialize(PortPlan(files={str(case.kernel): text.encode()}), case.kernel)
    built = ToolkitBuilder().build(problem, source, PORT_ARCH)
    images = {n: make_image(t, v, 0) for n, t in problem.tensors.items()
              for v in [generate(problem, choose(["integers"], problem)[0], 1).get(n)]}  # fmt: skip
    a, b, sa, sb = (images[n].elements().astype(np.float64) for n in ("A", "B", "sa", "sb"))
    blocks = [np.einsum("mil,nil->mnl", a[:, i * 128 :][:, :128], b[:, i * 128 :][:, :128]) for i in range(2)]
    wanted = sum(block * sa[:, None, i] * sb[None, :, i] for i, block in enumerate(blocks))
    dtype = problem.tensors["C"].dtype
    result = SimBackend(SimOptions("late", checking="practice")).run(built, problem, built.launch(problem), images)
    errors = [str(h.kind.id) for h in result.hazards if h.severity == "error"]
    if result.status != "ok":
        return False, [*errors, *(str(f.message) for f in result.findings)]
    got = result.after["C"].elements().astype(np.float64)
    return bool(np.array_equal(got, dtype.decode(dtype.encode(wanted)))), errors


def test_the_port_is_right_and_has_no_error() -> None:
    assert run() == (True, [])


HAZARDS = {
    "released before the loads": ((RELEASE, ""), (LOADS, RELEASE + LOADS)),
    "the next MMA waits for nobody": ((ACQUIRE, ""),),
    "nobody waits for the MMAs": ((WAIT, ""),),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_a_missing_order_is_an_error(name: str) -> None:
    _, errors = run(*HAZARDS[name])
    assert errors


VALUES = {
    "factor of the first block": (("first_row + tCcC_part[i][0], k_tile", "first_row + tCcC_part[i][0], 0"),),
    "rows as wgmma has them": (
        ("first_row + tCcC_part[i][0]", "first_row + (tidx - 128) // 32 * 16 + tidx % 32 // 4 + i // 2 % 2 * 8"),
    ),
    "always the first subtile": (
        ("accumulators[(None, None, (None, subtile))]", "accumulators[(None, None, (None, 0))]"),
    ),
    "parts add to the parts before": (("tiled_mma.set(tcgen05.Field.ACCUMULATE, False)",
                                       "tiled_mma.set(tcgen05.Field.ACCUMULATE, k_tile > 0)"),),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_wrong_value_is_seen(name: str) -> None:
    right, _ = run(*VALUES[name])
    assert not right
