# SPDX-License-Identifier: Apache-2.0
"""Kernels that state their clusters themselves (`__cluster_dims__`), with cases that do not: proofs and comparisons
execute them as runs do."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.ptx.parser import parse_module
from porter.sync.checked import Verdict
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.problem import Problem
from porter.verify.proving import Prover

CASE = """version: 1
kernel: kernel.cu
entry: k
sizes: {N: 256}
tensors:
  source: {dtype: f32, shape: [N], role: input}
  out: {dtype: f32, shape: [N], role: output}
launch: {grid: [8, 1, 1], block: [32, 1, 1]@CLUSTER@}
params: [source, out]
reference: "source"
"""
# Each block stores what the block beside it in the cluster has loaded.
KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out)
.reqntid 32
{stated}
{{
.reg .pred %p<9>;
.reg .b32 %r<19>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
.shared .align 4 .b8 room[128];
ld.param.u64 %d0, [source];
ld.param.u64 %d1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, 32, %r0;
mul.wide.u32 %d2, %r2, 4;
add.s64 %d0, %d0, %d2;
ld.global.f32 %f0, [%d0];
mov.u32 %r3, room;
mad.lo.u32 %r4, %r0, 4, %r3;
mov.u32 %r5, %cluster_ctarank;
xor.b32 %r6, %r5, {other};
mapa.shared::cluster.u32 %r7, %r4, %r6;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
st.shared::cluster.f32 [%r7], %f0;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ld.shared.f32 %f1, [%r4];
sub.u32 %r8, %r1, %r5;
add.u32 %r8, %r8, %r6;
mad.lo.u32 %r9, %r1, 32, %r0;
mul.wide.u32 %d3, %r9, 4;
add.s64 %d1, %d1, %d3;
st.global.f32 [%d1], %f1;
ret;
}}
"""
STATED = ".explicitcluster\n.reqnctapercluster {}"


class Compiled:
    """What a builder gives that asks no compiler."""

    def __init__(self, text: str, arch: str = "sm_100a") -> None:
        self.text, self.arch = text, arch

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        return BuiltKernel(self.arch, "k", parse_module(self.text), self.text)


def program(folder: Path, stated: str, cluster: str = "", other: int = 1) -> Program:
    (folder / "kernel.cu").write_text("")
    (folder / "case.yaml").write_text(CASE.replace("@CLUSTER@", cluster))
    return Program(load_case(folder / "case.yaml"), Compiled(KERNEL.format(stated=stated, other=other)))


@pytest.mark.parametrize(("stated", "cluster", "other"), [
    (STATED.format("2, 1, 1"), "", 1),
    (STATED.format("2"), "", 1),
    (STATED.format("4, 1, 1"), "", 3),
    (STATED.format("8"), "", 5),
    ("", ", cluster: [2, 1, 1]", 1),
    (STATED.format("2, 1, 1"), ", cluster: [2, 1, 1]", 1),
])  # fmt: skip
def test_synchronization_is_proved_in_the_clusters_that_a_kernel_states(
    stated: str, cluster: str, other: int, tmp_path: Path
) -> None:
    one = program(tmp_path, stated, cluster, other)
    proof = Prover("kernel", one.at, Budget(None), "strict").prove([{}], turns=False)
    assert proof.checked.verdict is Verdict.CLEAN


def test_a_block_that_is_not_in_the_cluster_is_told(tmp_path: Path) -> None:
    for stated, other in (("", 1), (STATED.format("2"), 2)):
        one = program(tmp_path, stated, other=other)
        proof = Prover("kernel", one.at, Budget(None), "strict").prove([{}], turns=False)
        assert proof.checked.verdict is not Verdict.CLEAN


def test_an_original_is_compared_in_the_clusters_that_it_states(tmp_path: Path) -> None:
    one = program(tmp_path, STATED.format("2"))
    kernel, problem = one.at({})
    assert problem.launch.cluster == (2, 1, 1)
    assert kernel.launch(problem) == problem.launch
