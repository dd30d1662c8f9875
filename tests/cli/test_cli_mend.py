# SPDX-License-Identifier: Apache-2.0
"""`porter port --mend`: what the original lacks is offered as a group of its own, or named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import shared_operand
from click.testing import CliRunner
from kept_sources import kept

from porter.cli.main import main
from porter.lang.cuda import parse_cuda
from porter.lang.statements import gap
from porter.report.json import schema

CORPUS = Path(__file__).parents[2] / "corpus"

SOURCE = b"""void kernel() {
    for (int i = 0; i < 4; ++i) {
        store(i);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        copy(i);
        again(i);
    }
    if (leader) { copy(9); }
    one(); two();
}
"""


def placed(first: int, second: int) -> tuple[int, int, bytes] | None:
    """Lines (from 1) of the place between two lines."""
    found = gap(parse_cuda("k.cu", SOURCE), first, second)
    return found and (SOURCE[: found.behind].count(b"\n") + 1, SOURCE[: found.ahead].count(b"\n") + 1, found.indent)


def test_a_place_between_two_statements() -> None:
    # Not between a loop and its pragma.
    assert placed(3, 7) == (5, 5, b"    ")
    assert placed(3, 10) == (5, 10, b"    ")
    assert placed(7, 8) == (8, 8, b"        ")


def test_a_place_that_a_loop_leads_to() -> None:
    """Ahead of the second line, in the turn that follows."""
    found = gap(parse_cuda("k.cu", SOURCE), 8, 7)
    assert found is not None
    assert found.wraps
    assert placed(8, 7) == (9, 7, b"        ")


@pytest.mark.parametrize(("first", "second"), [(7, 3), (3, 3), (11, 11), (3, 99)])
def test_where_no_statement_comes_between_there_is_no_place(first: int, second: int) -> None:
    assert placed(first, second) is None


def run(*args: object, code: int) -> tuple[str, str]:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def planted(tmp_path: Path, name: str, text: str, instead: str) -> Path:
    shutil.copytree(CORPUS / name, tmp_path / name)
    kernel = tmp_path / name / f"{name}.cu"
    before = kernel.read_text()
    assert before.count(text) == 1
    kernel.write_text(before.replace(text, instead))
    return kernel


PERSISTENT = "fence_async_shared();\n            named_barrier_sync<128>(1 + consumer);"
COOP = 'asm volatile("fence.proxy.async.shared::cta;\\n" ::: "memory");\n'


@pytest.mark.spread(3)
@pytest.mark.external
@pytest.mark.parametrize(
    ("name", "text", "instead", "rule", "offered"),
    [
        ("gemm_persistent", PERSISTENT, "named_barrier_sync<128>(1 + consumer);", "PT4103", "fence.proxy.async"),
        ("gemm_persistent", PERSISTENT, "fence_async_shared();", "PT4103", "bar.sync %0, 128;"),
        ("gemm_coop", COOP, "", "PT4103", "fence.proxy.async"),
    ],
)
def test_what_the_original_lacks_is_offered(
    tmp_path: Path, name: str, text: str, instead: str, rule: str, offered: str
) -> None:
    kernel = planted(tmp_path, name, text, instead)
    out = tmp_path / "out"
    document = json.loads(run("--format", "json", "port", "--mend", "--no-compile", kernel, "-o", out, code=0)[0])
    jsonschema.validate(document, schema("port"))
    groups = [g for g in document["groups"] if g["rule"] == rule]
    assert groups
    assert {g["safety"] for g in groups} == {"review"}
    assert offered in groups[0]["edits"][0]["replacement"]
    assert not [d for d in document["diagnostics"] if d["id"] == "PT4111"]
    # The port is whole; the original still has what it lacks.
    found = json.loads(run("--format", "json", "hazards", kernel, "--port", out / kernel.name, code=0)[0])
    assert [(r["verdict"], r["inherited"]) for r in found["runs"]] == [("clean", [])]
    # Nothing is offered without being asked for.
    plain = json.loads(run("--format", "json", "port", "--no-compile", kernel, code=0)[0])
    assert not [g for g in plain["groups"] if g["rule"] == rule]


END = "    ptx::cluster_arrive();\n    ptx::cluster_wait();\n#else"


@pytest.mark.slow
@pytest.mark.external
def test_blocks_that_a_run_shows_to_end_too_early(tmp_path: Path) -> None:
    """Nothing is compiled but what runs."""
    kernel = planted(tmp_path, "gemm_cluster", END, "#else")
    document = json.loads(run("--format", "json", "port", "--mend", "--no-compile", kernel, code=0)[0])
    (group,) = (g for g in document["groups"] if g["rule"].startswith("PT4"))
    assert (group["rule"], group["safety"]) == ("PT4112", "review")
    assert not [d for d in document["diagnostics"] if d["id"] == "PT4111"]
    (file,) = (f for f in document["files"] if f["path"].endswith(kernel.name))
    assert file["diff"].index("~ClusterEnd") < file["diff"].index("tmem_shared")


@pytest.mark.slow
@pytest.mark.external
def test_a_barrier_where_a_loop_leads_back(tmp_path: Path) -> None:
    kernel, out = kept(shared_operand.files()) / "k.cu", tmp_path / "out"
    run("port", "--style", "compat", "--mend", "--no-compile", kernel, "-o", out, code=0)
    assert (out / "k.cu").read_text().count(shared_operand.MEET) == 2
    found = json.loads(run("--format", "json", "hazards", kernel, "--port", out / "k.cu", code=0)[0])
    assert [(r["verdict"], r["inherited"]) for r in found["runs"]] == [("clean", [])]


@pytest.mark.external
def test_what_cannot_be_placed_is_named(tmp_path: Path) -> None:
    kernel = planted(tmp_path, "gemm_cluster", END, "    ptx::cluster_arrive();\n#else")
    _, said = run("port", "--mend", "--no-compile", kernel, "-o", tmp_path / "out", code=0)
    assert "PT4111" in said
    assert "hazard H26" in said


@pytest.mark.external
def test_a_right_original_is_left_alone(tmp_path: Path) -> None:
    kernel = CORPUS / "gemm_tma/gemm_tma.cu"
    plain, _ = run("port", "--no-compile", kernel, code=0)
    assert run("port", "--mend", "--no-compile", kernel, code=0)[0] == plain


def test_mending_needs_a_case(tmp_path: Path) -> None:
    shutil.copy(CORPUS / "gemm_coop/gemm_coop.cu", tmp_path)
    _, said = run("port", "--mend", "--no-compile", tmp_path / "gemm_coop.cu", code=2)
    assert "needs a case" in said
