# SPDX-License-Identifier: Apache-2.0
"""`--drop-promotion`: sums of FP8 stay in the accumulator where a case verified it. The kernel is that of the corpus
with scales, without them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes_cli import porter

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.native.promotion import NAME
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

CORPUS = Path(__file__).parents[2] / "corpus/gemm_fp8_scaled"
SCALED = re.compile(r"for \(int i = 0; i < WGMMA::kNumAccum / 4; \+\+i\) \{\s+total\[.*?\n        \}", re.DOTALL)
PLAIN = "for (int i = 0; i < WGMMA::kNumAccum; ++i) total[i] += accum[i];"


@pytest.fixture
def promoted(tmp_path: Path) -> Path:
    """A kernel that adds partial sums as they are, with its case."""
    text, case = (CORPUS / "gemm_fp8_scaled.cu").read_text(), (CORPUS / "case.yaml").read_text()
    text, found = SCALED.subn(PLAIN, text)
    text, scales = re.subn(r"        // the scales travel.*?\n(        float const scale_.*\n)+", "", text)
    assert (found, scales) == (1, 1)
    path = tmp_path / "promoted.cu"
    path.write_text(text)
    case = case.replace("gemm_fp8_scaled.cu", path.name)
    case = re.sub(r"# Block by block.*?\naccumulate", "reference: A @ B.T\naccumulate", case, flags=re.DOTALL)
    (tmp_path / "case.yaml").write_text(case)
    return path


def test_it_is_a_step_of_the_native_style(promoted: Path) -> None:
    result = porter("--no-config", "port", "--drop-promotion", promoted, code=2)
    assert "--style native" in result.output


def test_a_plan_names_the_option(promoted: Path) -> None:
    result = porter("--format", "json", "plan", "--style", "native", promoted)
    (native,) = json.loads(result.output)["native"]
    (step,) = (s for s in native["steps"] if s["name"] == "promotion")
    assert (step["port"], step["why"]) == ("on request", ["`--drop-promotion` asks for it"])
    asked = porter("plan", "--style", "native", "--drop-promotion", promoted).output
    assert "the order of sums is new" in " ".join(asked.split())


@pytest.mark.slow
def test_a_configuration_asks_for_it(promoted: Path) -> None:
    (promoted.parent / "porter.toml").write_text('style = "native"\ndrop-promotion = true\n')
    said = porter("plan", promoted).output
    assert "the order of sums is new" in " ".join(said.split())
    assert "the order of sums is new" not in porter("plan", "--style", "compat", promoted).output


# --- the gate itself, on a simulator


def made(promoted: Path, steps: tuple[str, ...] = (NAME, "release")) -> Ported:
    found = port_paths([promoted], PortOptions(full_rate=True, native=steps), (), look)
    assert found.roots[0].native == steps
    return found


def failure(found: Ported) -> str:
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


@pytest.mark.slow
def test_the_gate_takes_it_by_its_bound(promoted: Path) -> None:
    """Bits differ, as the order of sums does: a case that asks for them has no such port."""
    assert failure(made(promoted)) == ""
    case = promoted.parent / "case.yaml"
    case.write_text(case.read_text() + "compare: bits\n")
    assert "differ in the bits" in failure(made(promoted))


PLANTED = {
    "sums of the last turn": (r"accum_tmem, 1\);", "accum_tmem, k);"),
    "an addition in each turn": (
        r"(?=if \(lane == 0\) empty\[s\].arrive\(\);)",
        "tcgen05::load(accum, accum_tmem); " + PLAIN,
    ),
    "no addition": (re.escape(PLAIN), ""),
    "no load": (r"tcgen05::load\(accum, accum_tmem\);", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(promoted: Path, name: str) -> None:
    pattern, instead = PLANTED[name]
    found = made(promoted, (NAME,))
    hits = [(p, *re.subn(pattern, instead, t.decode())) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    what = failure(found)
    assert "promoted M=" in what
    assert "nvcc" not in what
