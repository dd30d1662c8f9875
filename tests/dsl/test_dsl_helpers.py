# SPDX-License-Identifier: Apache-2.0
"""MMAs that the kernel issues through a helper of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.passes.dsl.port import DslPortResult, port_python
from porter.verify.backends import SimBackend
from porter.verify.builder import PortPlan, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.results import Verdict
from porter.verify.runner import VerifyOptions, verify

PLAIN = Path(__file__).parents[2] / "corpus" / "dsl_gemm" / "dsl_gemm.py"
INLINE = """            warpgroup.fence()
            for k_block in cutlass.range(cute.size(tCrA, mode=[2]), unroll_full=True):
                part = (None, None, k_block, mma_state.index)
                cute.gemm(tiled_mma, accumulators, tCrA[part], tCrB[part], accumulators)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            # Nothing else is in flight, so the buffer is free as soon as this WGMMA group is done.
            warpgroup.wait_group(0)
"""
FLAG = "        tiled_mma.set(warpgroup.Field.ACCUMULATE, False)\n"
ZEROES = "        accumulators.fill(0.0)\n        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)\n"
HELPER = """
    @cute.jit
    def multiply(self, mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor, stage: cutlass.Int32):
        warpgroup.fence()
        for k_block in cutlass.range(cute.size(a, mode=[2]), unroll_full=True):
            part = (None, None, k_block, stage)
            cute.gemm(mma, acc, a[part], b[part], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
"""
CALL = "            self.multiply(tiled_mma, accumulators, tCrA, tCrB, stage=mma_state.index)\n"

Port = Callable[..., DslPortResult]


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """The port of the plain GEMM with its MMAs in a helper, some text replaced."""

    def run(*changes: tuple[str, str]) -> DslPortResult:
        text = PLAIN.read_text()
        assert text.count(INLINE) == text.count(FLAG) == 1
        text = text.replace(INLINE, CALL).replace(FLAG, ZEROES) + HELPER
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        copy = tmp_path / PLAIN.name
        copy.write_text(text)
        return port_python(copy)

    return run


def text_of(result: DslPortResult) -> str:
    assert result.exit_code is ExitCode.OK, [d.message for d in result.diagnostics]
    (text,) = result.files.values()
    return text.decode()


def test_one_warp_calls_the_helper_and_the_flag_is_on_behind_it(port: Port) -> None:
    text = text_of(port())
    call = text.index(CALL.strip())
    assert text.rindex("        if warp_idx == 0:\n", 0, call) < text.index("ACCUMULATE, False)") < call
    assert text[call:].split("\n")[1].strip() == "tiled_mma.set(tcgen05.Field.ACCUMULATE, True)"
    helper = text.split("def multiply(")[1]
    assert "warpgroup" not in helper
    gemm = helper.index("cute.gemm(")
    assert helper[gemm:].split("\n")[1] == " " * 12 + "mma.set(tcgen05.Field.ACCUMULATE, True)"


REFUSED = {
    "a traced helper's flag ends with it": ((ZEROES, FLAG), "off again behind it"),
    "a helper that clears": (
        ("            cute.gemm(mma,",
         "            mma.set(warpgroup.Field.ACCUMULATE, k_block > 0)\n            cute.gemm(mma,"),
        "decides whether its first MMA",
    ),
    "a helper that waits for its stage": (("        warpgroup.fence()\n        for",
                                           "        cute.arch.sync_threads()\n        for"), "synchronizes itself"),
    "two MMAs in a helper": (("            cute.gemm(mma, acc, a[part], b[part], acc)\n",
                              "            cute.gemm(mma, acc, a[part], b[part], acc)\n"
                              "            cute.gemm(mma, acc, a[part], a[part], acc)\n"), "more than one MMA"),
    "an accumulator of its own": (("cute.gemm(mma, acc, a[part], b[part], acc)",
                                   "cute.gemm(mma, self.acc, a[part], b[part], self.acc)"), "of its parameters"),
    "a helper of others as well": ((HELPER, HELPER + "\n    @cute.jit\n    def twice(self, mma, acc, a, b):\n"
                                    "        self.multiply(mma, acc, a, b, 0)\n"), "for other functions as well"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_by_name_and_changes_nothing(name: str, port: Port) -> None:
    change, why = REFUSED[name]
    result = port(change)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.groups
    (refused,) = [d for d in result.diagnostics if d.code is Code.DSL_STRUCTURE]
    assert why in refused.message


@pytest.mark.external
@pytest.mark.parametrize("traced", [True, False])
def test_original_port_and_reference_agree(traced: bool, port: Port) -> None:
    # Python itself runs a helper without a decorator, so its loop is one of Python's.
    plain = (
        ("    @cute.jit\n    def multiply", "    def multiply"),
        ("cutlass.range(cute.size(a, mode=[2]), unroll_full=True)", "range(cute.size(a, mode=[2]))"),
    )
    own = () if traced else plain
    result = port(*own)
    (path,) = map(Path, result.files)
    case = path.with_name("case.yaml")
    case.write_text(PLAIN.with_name("case.yaml").read_text())
    plan = PortPlan(files=dict(result.files))
    rows = verify(load_case(case), plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=("integers",))).rows
    assert {row.verdict for row in rows} == {Verdict.CLEAN}
