# SPDX-License-Identifier: Apache-2.0
"""`porter verify` with no option comes to what the default size does not: tile 65 of K, a third block, constants of the
text, a ring of the port that comes round, a second launch. Needs a CUDA compiler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept_folder
from test_verify_planted import _compiler_missing

from porter.cli.main import main
from porter.diagnostics import ExitCode

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
pytestmark = pytest.mark.skipif(_compiler_missing() is not None, reason=str(_compiler_missing()))


def run(*args: object, code: int | None = None) -> str:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert code is None or result.exit_code == code, result.output
    return result.stdout


def ported(folder: Path, kernel: Path, style: str = "compat") -> Path:
    run("port", "--style", style, kernel, "-o", folder, code=0)
    return kept_folder(folder) / kernel.name


def plant(path: Path, text: str, instead: str) -> None:
    before = path.read_text()
    assert before.count(text) == 1, f"{path.name} holds {before.count(text)} of {text}"
    path.write_text(before.replace(text, instead))


def wrong(kernel: Path, port: Path) -> dict[str, set[str]]:
    """Why the sizes were added that show a mistake, each with the diagnostics."""
    document = json.loads(run("--format", "json", "verify", kernel, "--port", port, code=ExitCode.DIFFERENT))
    rows = [row for row in document["rows"] if row["verdict"] == "error"]
    return {row["added"]: {d["id"] for d in row["diagnostics"]} for row in rows}


B, WAIT = "&tile_b[kk])", "hopper::umma_wait<0>(tc);"
MISTAKES = {
    # (text in the port of gemm_tma, what stands there instead, why the size was added that shows it)
    "tile 65": (B, "&tile_b[k == 64 * BK ? 0 : kk])", "long K"),
    "constant 100": (B, "&tile_b[k == 100 * BK ? 0 : kk])", "larger K, beyond 6400"),
    "blocks above 1 in x and y": (B, "&tile_b[blockIdx.x > 1 && blockIdx.y > 1 ? 0 : kk])",
                                  "three blocks a dimension"),
    "no wait from tile 65 on": (WAIT, f"if (k < 64 * BK) {WAIT}", "long K"),
    "no full barrier from tile 65 on": ("hopper::mbarrier_wait(&loaded, parity);",
                                        "if (k / BK < 64) hopper::mbarrier_wait(&loaded, parity);", "long K"),
    "no wait from tile 200 on": (WAIT, f"if (k < 200 * BK) {WAIT}", "larger K, beyond 12799"),
    "tile 67": (B, "&tile_b[k / BK >= 66 ? 0 : kk])", "long K"),
    "bit 7 of the step": (B, "&tile_b[(k / BK & 128) ? 0 : kk])", "larger K, beyond 8192"),
    "shifted step": (B, "&tile_b[(k / BK >> 7) ? 0 : kk])", "larger K, beyond 8192"),
    "the least of two": (B, "&tile_b[kk * (min(k / BK, 100) == k / BK)])", "larger K, beyond 6464"),
    "blocks above 1 in x": (B, "&tile_b[blockIdx.x > 1 ? 0 : kk])", "three blocks a dimension"),
    "blocks above 1 in y": (B, "&tile_b[blockIdx.y > 1 ? 0 : kk])", "three blocks a dimension"),
    "block 5 in x": (B, "&tile_b[blockIdx.x == 5 ? 0 : kk])", "larger N, beyond 5"),
    "block 7 of all": (B, "&tile_b[blockIdx.x + gridDim.x * blockIdx.y == 7 ? 0 : kk])", "three blocks a dimension"),
    "no wait in blocks above 1": (WAIT, f"if (blockIdx.y < 2) {WAIT}", "three blocks a dimension"),
}  # fmt: skip


@pytest.mark.spread(16)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_far_from_the_default_size_is_found(tmp_path: Path, mistake: str) -> None:
    text, instead, added = MISTAKES[mistake]
    kernel = CORPUS / "gemm_tma" / "gemm_tma.cu"
    port = ported(tmp_path, kernel)
    plant(port, text, instead)
    run("verify", kernel, "--port", port, "--sizes", "default", code=ExitCode.OK)
    assert set(wrong(kernel, port)) == {added}


@pytest.mark.slow
def test_a_block_in_z_is_above_1(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "gemm_splitk", tmp_path / "original")
    kernel = tmp_path / "original/gemm_splitk.cu"
    case = kernel.with_name("case.yaml")
    case.write_text(case.read_text().replace("PARTS: 3}", "PARTS: 2}", 1))
    port = ported(tmp_path / "port", kernel)
    text = port.read_text()
    assert "atomicAdd(" in text
    port.write_text(text.replace("atomicAdd(", "if (blockIdx.z < 2) atomicAdd("))
    run("verify", kernel, "--port", port, "--sizes", "default", code=ExitCode.OK)
    assert set(wrong(kernel, port)) == {"three blocks a dimension"}


@pytest.mark.slow
def test_a_ring_that_the_port_made_comes_round(tmp_path: Path) -> None:
    """Two accumulators that tiles take turns with: the default size gives a block one tile for each of them."""
    shutil.copytree(CORPUS / "gemm_persistent", tmp_path / "original")
    kernel = tmp_path / "original/gemm_persistent.cu"
    case = kernel.with_name("case.yaml")
    port = ported(tmp_path / "port", kernel, "native")
    launch = '{grid: ["(CTAS + 1) // 2 * 2", 1, 1], cluster: [2, 1, 1], dynamic_smem: 163968}'
    case.write_text(f"{case.read_text()}port: {{launch: {launch}}}\n")
    wait = "wait_phase(full + (kBuffers + turn % kBuffers) * 8, turn / kBuffers % 2 ^ 1);"
    plant(port.with_name("tcgen05.cuh"), wait, "")
    run("verify", kernel, "--port", port, "--sizes", "default", code=ExitCode.OK)
    assert set(wrong(kernel, port)) == {"many tiles of a block"}


STATES = {
    # (declaration, in front of the work, behind the work, what stands behind the work of a wrong port)
    "counter": (
        "__device__ unsigned finished;",
        "__shared__ unsigned begun;\n"
        "    if (threadIdx.x == 0) begun = atomicAdd(&finished, 0u);\n"
        "    __syncthreads();\n"
        "    if (begun >= gridDim.x * gridDim.y) return;",
        "if (threadIdx.x == 0 && atomicAdd(&finished, 1u) == gridDim.x * gridDim.y - 1) atomicExch(&finished, 0u);",
        "if (threadIdx.x == 0) atomicAdd(&finished, 1u);",
    ),
    "lock": (
        "__device__ unsigned lock;",
        "if (threadIdx.x == 0) while (atomicCAS(&lock, 0u, 1u) != 0u) {}",
        "__syncthreads();\n    if (threadIdx.x == 0) atomicExch(&lock, 0u);",
        "__syncthreads();\n"
        "    if (threadIdx.x == 0) atomicExch(&lock, blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y);",
    ),
}  # fmt: skip


def with_state(folder: Path, declaration: str, before: str, behind: str, lock: bool) -> Path:
    """gemm_tma with a variable of the module, alone in blocks that come one after another if there is a lock."""
    shutil.copytree(CORPUS / "gemm_tma", folder)
    kernel = folder / "gemm_tma.cu"
    plant(
        kernel,
        "template <int BM, int BN, int BK>\n__global__",
        f"{declaration}\n\ntemplate <int BM, int BN, int BK>\n__global__",
    )
    place = "const int warp = threadIdx.x / 32;" if lock else "const int first_row"
    text = kernel.read_text()
    text = text.replace(place, f"{before}\n    {place}", 1)
    end = "        }\n    }\n}\n\n// ---- host"
    assert text.count(end) == 1
    kernel.write_text(text.replace(end, f"        }}\n    }}\n    {behind}\n}}\n\n// ---- host"))
    return kernel


@pytest.mark.slow
@pytest.mark.parametrize("state", ["counter", pytest.param("lock", marks=pytest.mark.slow)])
def test_a_second_launch_finds_what_the_first_left(tmp_path: Path, state: str) -> None:
    declaration, before, behind, instead = STATES[state]
    # the lock of several blocks would be waited for in the first launch
    size = {"lock": "sizes: {M: 128, N: 64, K: 320}\n", "counter": "sizes: {M: 256, N: 128, K: 128}\n"}[state]
    kernel = with_state(tmp_path / "original", declaration, before, behind, state == "lock")
    case = kernel.with_name("case.yaml")
    case.write_text("".join(size if line.startswith("sizes:") else line for line in case.read_text().splitlines(True)))
    port = ported(tmp_path / "port", kernel)
    document = json.loads(run("--format", "json", "verify", kernel, "--port", port, "--sizes", "default",
                              "--families", "integers", code=ExitCode.OK))  # fmt: skip
    added = {row["added"] for row in document["rows"]}
    assert added == {None}, "the original leaves all as it found it"
    plant(port, behind, instead)
    found = wrong(kernel, port)
    assert found["second launch"] == {"PT5030"}


@pytest.mark.slow
def test_an_original_that_is_wrong_in_its_second_launch_says_nothing_of_its_port(tmp_path: Path) -> None:
    declaration, before, _, behind = STATES["counter"]
    kernel = with_state(tmp_path / "original", declaration, before, behind, False)
    port = ported(tmp_path / "port", kernel)
    document = json.loads(
        run("--format", "json", "verify", kernel, "--port", port, "--sizes", "default", code=ExitCode.OK)
    )
    left = {item["size"]: item["reason"] for item in document["not_run"][0]["left_out"]}
    assert "the original is not right in one" in left["second launch"]
