# SPDX-License-Identifier: Apache-2.0
"""Records of originals: they come back as they were written, and refuse what does not match."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_case import small_case

from porter.diagnostics import Code, PorterError
from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.verify.arguments import Pointer, Scalar
from porter.verify.backends import RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.case import Case
from porter.verify.images import Image, make_image
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.record import Record, ReplayBackend, _plain, environment, load, record_case, save

PTX = ".version 9.0\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 c)\n{\n  ret;\n}\n"


class Builder:
    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        return BuiltKernel(arch, "k", parse_module(PTX % arch), PTX % arch)


class Doubling:
    """A backend that computes what the case asks for, `factor` times A."""

    name, guard, arithmetic = "fake", 64, "exact"

    def __init__(self, factor: float = 2.0) -> None:
        self.factor, self.runs = factor, 0

    def run(self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: dict[str, Image]) -> RunResult:
        self.runs += 1
        values = images["A"].elements() * np.float32(self.factor)
        after = {**images, "C": make_image(images["C"].tensor, values, self.guard)}
        return RunResult("ok", (), after, where="Fake, native")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return small_case(tmp_path, "A + A", "// the kernel\n")


@pytest.fixture
def path(case: Case, tmp_path: Path) -> Path:
    entries = record_case(case, {}, ["normal"], Builder(), Doubling(), seed=5)
    save(Record(environment("porter record"), tuple(entries)), tmp_path / "runs.porter")
    return tmp_path / "runs.porter"


def replay(record: Record, case: Case, values: np.ndarray | None = None, arch: str = "sm_90a") -> RunResult:
    from porter.verify.inputs import choose, generate

    problem = bind(case, {})
    (family,) = choose(["normal"], problem)
    inputs = generate(problem, family, 5) if values is None else {"A": values}
    images = {n: make_image(t, inputs.get(n), 64) for n, t in problem.tensors.items()}
    kernel = Builder().build(problem, case.kernel, arch)
    return ReplayBackend(record, Path("runs.porter"), Doubling()).run(kernel, problem, problem.launch, images)


def test_a_record_comes_back_as_it_was(path: Path, case: Case) -> None:
    record = load(path)
    (entry,) = record.entries
    assert (entry.case, entry.family, entry.seed, entry.where) == (case.name, "normal", 5, "Fake, native")
    result = replay(record, case)
    assert result.status == "ok"
    assert result.where == "record runs.porter (Fake, native)"
    assert np.array_equal(result.after["C"].elements(), result.after["A"].elements() * 2)


def test_the_port_still_runs(path: Path, case: Case) -> None:
    assert replay(load(path), case, arch="sm_100a").where == "Fake, native"


def test_other_inputs_give_no_verdict(path: Path, case: Case) -> None:
    result = replay(load(path), case, np.ones(32, np.float32))
    assert result.status == "incomplete"
    assert result.findings[0].code is Code.RECORD_MISSING


def test_another_launch_is_another_run(path: Path, case: Case) -> None:
    other = replace(case, launch=replace(case.launch, block=(64,)))
    assert replay(load(path), other).status == "incomplete"


def test_a_changed_kernel_is_refused(path: Path, case: Case) -> None:
    case.kernel.write_text("// another kernel\n")
    with pytest.raises(PorterError) as raised:
        replay(load(path), case)
    assert raised.value.diagnostic.code is Code.RECORD_MISMATCH


def test_a_wrong_original_is_not_recorded(case: Case) -> None:
    with pytest.raises(PorterError) as raised:
        record_case(case, {}, ["normal"], Builder(), Doubling(3.0))
    assert raised.value.diagnostic.code is Code.ORIGINAL_DIFFERS


def rewritten(path: Path, change: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, **change}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("what", ["output", "head", "version", "no archive"])
def test_a_damaged_record_is_refused(path: Path, what: str) -> None:
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("record.json"))
    if what == "output":
        rewritten(path, {"0/C": bytes(128)})
    elif what == "head":
        head["entries"][0]["seed"] = 6
        rewritten(path, {"record.json": json.dumps(head).encode()})
    elif what == "version":
        rewritten(path, {"record.json": json.dumps({**head, "version": 99}).encode()})
    else:
        path.write_bytes(b"PK")
    with pytest.raises(PorterError) as raised:
        load(path)
    assert raised.value.diagnostic.code is Code.RECORD_UNREADABLE


def test_what_decides_a_run_is_said_alike_everywhere() -> None:
    """Records made with one version of Python and NumPy are read with another."""
    map_ = TensorMap(TensorMapType.BFLOAT16, 0, (64, 8), (128,), (64, 8), swizzle=TensorMapSwizzle.B128)
    assert _plain(map_) == ["TensorMap", [
        ("address", 0), ("box", [64, 8]), ("dtype", 9), ("element_strides", [1, 1]), ("sizes", [64, 8]),
        ("strides", [128]), ("swizzle", 3),
    ]]  # fmt: skip
    assert _plain((Scalar(np.int64(3)), Scalar(0.5, "f32"), Pointer("A", 4))) == [
        ["Scalar", [("value", 3)]],
        ["Scalar", [("type", "f32"), ("value", "0.5")]],
        ["Pointer", [("offset", 4), ("tensor", "A")]],
    ]
    assert _plain({"b": b"\x01", "a": float("nan")}) == [("a", "nan"), ("b", "01")]
