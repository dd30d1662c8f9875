# SPDX-License-Identifier: Apache-2.0
"""Ports of CuTe DSL kernels introduce nothing at strict level, and what their support module leaves out is an error at
every level and under every schedule."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.report.json import schema
from porter.verify.case import Case, cases_of, load_case

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
CASES = [case for path in cases_of(CORPUS) if (case := load_case(path)).dsl is not None]
MODULE = "porter_dsl.py"
ATTENTION = CORPUS / "dsl_attention/dsl_attention.py"
GEMM = CORPUS / "dsl_gemm/dsl_gemm.py"
pytestmark = pytest.mark.external


def run(*args: object, code: int | None = None) -> dict:
    result = CliRunner().invoke(main, ["--format", "json", *(str(a) for a in args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert code is None or result.exit_code == code, result.output
    return {"code": result.exit_code, **json.loads(result.stdout)}


def ported(folder: Path, kernel: Path) -> Path:
    run("port", "--style", "compat", kernel, "-o", folder, code=ExitCode.OK)
    return folder / kernel.name


def case_of(kernel: Path) -> list[object]:
    return ["--case", kernel.parent / "case.yaml"]


def change(path: Path, text: str, instead: str) -> None:
    before = path.read_text()
    assert before.count(text) == 1, f"{path} holds {before.count(text)} of {text}"
    path.write_text(before.replace(text, instead))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_port_introduces_nothing_at_strict_level(case: Case) -> None:
    found = run("hazards", "--style", "compat", case.kernel, "--case", case.path, "--level", "strict", code=ExitCode.OK)
    jsonschema.validate({k: v for k, v in found.items() if k != "code"}, schema("hazards"))
    original, port = found["runs"]
    assert not port["hazards"]
    # By the letter alone; the original's level is that of its port here.
    assert {h["hazard"] for h in port["inherited"]} <= {h["hazard"] for h in original["hazards"]}


# Mistakes of the support module --------------------------------------------------------------------------------

# Put behind the module: the dialect's operations `NAMES` do not arise, or arise with another argument, where the
# module is what asks for them; user code and NVIDIA's pipelines call the same functions.
PLANT = """

def _plant(names, spoil, only, turn):
    import sys

    met = [0]

    def asked(frame):
        while frame is not None:
            if frame.f_code.co_filename == __file__ and frame.f_code.co_name not in ("asked", "spoiled"):
                return True
            frame = frame.f_back
        return False

    def wrap(function):
        def spoiled(*args, **kwargs):
            given = " ".join(str(v) for v in (*args, *kwargs.values()))
            if only.lower() in given.lower() and asked(sys._getframe(1)):
                met[0] += 1
                if turn in (0, met[0]):
                    return spoil(function, args, kwargs)
            return function(*args, **kwargs)

        return spoiled

    for name in names:
        if hasattr(nvvm, name):
            setattr(nvvm, name, wrap(getattr(nvvm, name)))


_plant({names}, {spoil}, {only!r}, {turn})
"""
LEAVE_OUT = "lambda function, args, kwargs: None"
COUNT_ONE = "lambda f, args, kwargs: f(args[0], cutlass.Int32(1).ir_value(), *args[2:], **kwargs)"
OTHER_PARITY = "lambda f, args, kwargs: f(args[0], (cutlass.Int32(args[1]) ^ 1).ir_value(), *args[2:], **kwargs)"
WAITS = ["mbarrier_try_wait_parity", "mbarrier_wait_parity"]
MISTAKES = {
    # names of operations, what happens to them, a word among the arguments, which of them (0: all)
    "no-wait-ld": (["tcgen05_wait"], LEAVE_OUT, "load", 0),
    "no-wait-st": (["tcgen05_wait"], LEAVE_OUT, "store", 0),
    "no-fence-before": (["tcgen05_fence"], LEAVE_OUT, "before", 0),
    "no-fence-after": (["tcgen05_fence"], LEAVE_OUT, "after", 0),
    "no-commit": (["tcgen05_commit"], LEAVE_OUT, "", 0),
    "no-arrival": (["mbarrier_arrive"], LEAVE_OUT, "", 0),
    "arrival-of-one": (["mbarrier_init"], COUNT_ONE, "", 1),
    "no-mbarrier-wait": (WAITS, LEAVE_OUT, "", 0),
    "other-parity": (WAITS, OTHER_PARITY, "", 0),
    "no-barrier-behind-the-allocation": (["barrier"], LEAVE_OUT, "", 1),
    "no-barrier-ahead-of-the-deallocation": (["barrier"], LEAVE_OUT, "", 2),
}


def plant(port: Path, mistake: str) -> None:
    names, spoil, only, turn = MISTAKES[mistake]
    module = port.with_name(MODULE)
    module.write_text(module.read_text() + PLANT.format(names=names, spoil=spoil, only=only, turn=turn))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_module_is_an_error_at_every_level(tmp_path: Path, mistake: str) -> None:
    port = ported(tmp_path, ATTENTION)
    plant(port, mistake)
    for more in (["--level", "strict"], ["--level", "practice"], ["--schedule", "random", "--seed", 1]):
        found = run("hazards", ATTENTION, *case_of(ATTENTION), "--port", port, "--budget", 400_000, *more)
        assert found["code"] == ExitCode.DIFFERENT, (mistake, more)


@pytest.mark.slow
def test_a_missing_wait_is_an_error_at_every_level_and_in_verify(tmp_path: Path) -> None:
    port = ported(tmp_path, GEMM)
    plant(port, "no-wait-ld")
    for level in ("strict", "practice"):
        found = run("hazards", GEMM, *case_of(GEMM), "--port", port, "--level", level, code=ExitCode.DIFFERENT)
        (checked,) = found["runs"]
        assert {h["severity"] for h in checked["hazards"] if h["remedy"].startswith("tcgen05.wait::ld")} == {"error"}
    options = ["--sizes", "default", "--families", "integers"]
    document = run("verify", GEMM, *case_of(GEMM), "--port", port, *options, code=ExitCode.DIFFERENT)
    # Only the order is wrong: the values of every run are right.
    assert "PT4101" in {d["id"] for row in document["rows"] for d in row["diagnostics"]} <= {"PT4101", "PT4102"}


def test_a_port_runs_under_all_schedules(tmp_path: Path) -> None:
    options = ["--sizes", "default", "--families", "normal"]
    document = run("verify", "--style", "compat", GEMM, *case_of(GEMM), *options, code=ExitCode.OK)
    jsonschema.validate({k: v for k, v in document.items() if k != "code"}, schema("verify"))
    assert [(row["schedule"], row["schedule_seed"]) for row in document["rows"]] == [
        (None, None), ("eager", None), ("random", 0), ("random", 1),
    ]  # fmt: skip


# What the kernel itself lacks ----------------------------------------------------------------------------------

FENCE = '            cute.arch.fence_proxy("async.shared", space="cta")\n'


@pytest.mark.slow
def test_a_race_of_the_kernel_is_inherited_and_not_excused_in_its_port_alone(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel" / GEMM.name
    shutil.copytree(GEMM.parent, kernel.parent)
    change(kernel, FENCE, "")
    original, port = run("hazards", "--style", "compat", kernel, *case_of(kernel), code=ExitCode.OK)["runs"]
    assert "H27" in {h["hazard"] for h in original["hazards"]}
    assert not port["hazards"]
    assert "H27" in {h["hazard"] for h in port["inherited"]}

    mine = ported(tmp_path / "out", GEMM)
    change(mine, FENCE, "")
    for level in ("strict", "practice"):
        found = run("hazards", GEMM, *case_of(GEMM), "--port", mine, "--level", level, code=ExitCode.DIFFERENT)
        assert "H27" in {h["hazard"] for h in found["runs"][0]["hazards"]}
