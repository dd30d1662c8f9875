# SPDX-License-Identifier: Apache-2.0
"""`--block-scale`: scales that are powers of two are those of the tensor core where a case verified it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from fakes_cli import porter
from scaled_kernels import kernel_text, one_after_another

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.native.scales import NAME
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

CORPUS = Path(__file__).parents[2] / "corpus/gemm_fp8_ue8m0"


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """The kernel of the corpus with a case of one size."""
    path = tmp_path / "scaled.cu"
    shutil.copy(CORPUS / "gemm_fp8_ue8m0.cu", path)
    case = (CORPUS / "case.yaml").read_text().replace("gemm_fp8_ue8m0.cu", path.name)
    case, found = re.subn(r"other_sizes:\n(  - .*\n)+", "", case)
    assert found == 1
    (tmp_path / "case.yaml").write_text(case)
    return path


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A kernel without a case, for which nothing is compiled."""
    path = tmp_path / "kernel.cu"
    path.write_text(kernel_text())
    return path


def test_it_is_a_step_of_the_native_style(alone: Path) -> None:
    result = porter("--no-config", "port", "--block-scale", alone, code=2)
    assert "--style native" in result.output


def test_a_plan_names_the_option(alone: Path) -> None:
    result = porter("--format", "json", "plan", "--style", "native", alone)
    (native,) = json.loads(result.output)["native"]
    steps = {s["name"]: s for s in native["steps"]}
    assert (steps["scales"]["port"], steps["scales"]["why"]) == ("on request", ["`--block-scale` asks for it"])
    assert steps["promotion"]["port"] == "no"


def test_a_configuration_asks_for_it(alone: Path) -> None:
    (alone.parent / "porter.toml").write_text('style = "native"\nblock-scale = true\n')
    said = porter("-v", "plan", alone).output
    assert "scales `part` in the tensor core" in said
    assert "scales `part` in the tensor core" not in porter("-v", "plan", "--no-block-scale", alone).output


# --- the gate itself, on a simulator


def made(scaled: Path, steps: tuple[str, ...] = (NAME, "release")) -> Ported:
    found = port_paths([scaled], PortOptions(full_rate=True, native=steps), (), look)
    assert found.roots[0].native == steps
    return found


def failure(found: Ported) -> str:
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


@pytest.mark.slow
def test_the_gate_takes_it_by_its_bound(scaled: Path) -> None:
    assert failure(made(scaled)) == ""
    case = scaled.parent / "case.yaml"
    case.write_text(case.read_text() + "compare: bits\n")
    assert "differ in the bits" in failure(made(scaled))


MANY = """\
version: 1
kernel: scaled.cu
entry: kernel
sizes: {S: 1}
families: [integers]
tensors:
  out: {dtype: f32, shape: [2048], role: output}
  bytes: {dtype: u8, shape: [128], role: input}
launch: {grid: [1, 1, 1], block: [256, 1, 1]}
params: [out, bytes, out, bytes, bytes, 0, 0, S]
reference: "bytes"
"""


def test_factors_that_do_not_fit_beside_sums_fail_the_gate(tmp_path: Path) -> None:
    """All 512 columns of Tensor Memory are those of sums."""
    path = tmp_path / "scaled.cu"
    path.write_text(one_after_another(32))
    (tmp_path / "case.yaml").write_text(MANY)
    assert "the accumulators and their factors do not fit into Tensor Memory" in failure(made(path, (NAME,)))


def of_columns(scaled: Path) -> Path:
    """The same with scales of B for 64 columns each."""
    text, case = scaled.read_text(), scaled.parent / "case.yaml"
    declared = "        float const scale_b = from_ue8m0(__ldg(scales_b + block_n * num_k_blocks + kb));\n"
    for old, instead in (
        (declared, "".join(declared.replace("scale_b ", f"scale_b{i} ").replace("block_n", f"(2 * block_n + {i})")
                           for i in (0, 1))),
        (" * scale_b;", ";"),
        ("] += scale_", "] += (i < 8 ? scale_b0 : scale_b1) * scale_"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, instead)
    scaled.write_text(text)
    said = case.read_text()
    for old, instead in (('sb: {dtype: f8e8m0, shape: ["N / BN"', 'sb: {dtype: f8e8m0, shape: ["N / 64"'),
                         ("np.repeat(sb, BN, 0)", "np.repeat(sb, 64, 0)")):  # fmt: skip
        assert old in said
        said = said.replace(old, instead)
    case.write_text(said)
    return scaled


@pytest.mark.slow
def test_scales_of_blocks_of_columns(scaled: Path) -> None:
    found = made(of_columns(scaled))
    assert "[&](uint32_t column) { return column < 64 ? scale_b0 : scale_b1; }" in str(found.new)
    assert failure(found) == ""


PLANTED_IN_COLUMNS = {
    "the other block of columns": (r"column < 64 \? scale_b0 : scale_b1", "column < 64 ? scale_b1 : scale_b0"),
    "columns at another place": (r"column % 32 \* 16", "column % 16 * 16"),
    "columns of half the threads": (r"half \* 128 \+ threadIdx.x % 128;", "threadIdx.x % 128 / 2;"),
    "no copy of the columns' factors": (r"i < \(n \+ 127\) / 128", "i < 0"),
    "rows' factors for columns": (r"from \+ \(i \+ 1\) \*", "from + i *"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_COLUMNS)
def test_a_mistake_planted_in_columns_fails_the_gate(scaled: Path, name: str) -> None:
    of_columns(scaled)
    planted(scaled, *PLANTED_IN_COLUMNS[name])


PLANTED = {
    "scales of the rows of the other warpgroup": (r"const uint32_t row = half \* 16 \+", "const uint32_t row ="),
    "scales of rows eight further": (r"lane % 4 == 0 \? upper : lower", "lane % 4 == 0 ? lower : upper"),
    "scales of another warp's rows": (r"threadIdx.x / 32 % 4 \* 4;", "(threadIdx.x / 32 + 1) % 4 * 4;"),
    "scales of another turn": (r"%0\], %1;\" ::\"r\"\(d.row_factors\)", '%0], %1;" ::"r"(tc.factors)'),
    "another byte of the factors": (r"\| 0x800000u\)", "| 0x800000u | 1u << 29)"),
    "factors in one quarter of the lanes": (r"32x128b\.warpx4", "128x128b"),
    "factors of columns in one quarter": (r"if \(threadIdx.x / 32 < 4\) \{", "if (threadIdx.x / 32 < 1) {"),
    "no proxy fence ahead of the copy": (
        r"// the copy reads what threads have written\n    asm volatile\(\"fence.proxy.async.*\n", ""),
    "no meeting ahead of the copy": (r"sync_warpgroup\(\);(?=\n    d.row_factors)", ""),
    "staged ones that were not copied yet": (r"wait_phase\(tc.staged \+ 512, .*\n", ""),
    "factors that MMAs still read": (r"tc.scaled % 2 \* 4", "0"),
    "sums of the last turn": (r"accum_tmem, 1\);", "accum_tmem, k);"),
    "scales that are no powers": (r"tcgen05::scale\(tc, accum_tmem, scale_0, scale_1\)",
                                    "tcgen05::scale(tc, accum_tmem, scale_0 * 1.5f, scale_1)"),
    "no scales in a turn": (r"tcgen05::scale\(", "if (kb != 2) tcgen05::scale("),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(scaled: Path, name: str) -> None:
    planted(scaled, *PLANTED[name])


def planted(scaled: Path, pattern: str, instead: str) -> None:
    found = made(scaled)
    hits = [(p, *re.subn(pattern, instead, t.decode())) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    what = failure(found)
    assert "scaled M=" in what
    assert "nvcc" not in what
