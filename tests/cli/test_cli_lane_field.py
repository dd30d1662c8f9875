# SPDX-License-Identifier: Apache-2.0
"""Operands that the ISA does not allow and B200s take: every command that runs kernels takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 c)
.reqntid 128
.reqnctapercluster 2
{
.reg .b32 %r<12>; .reg .b64 %d<4>; .reg .pred %p<2>; .shared .align 4 .b8 word[4];
mov.b32 %r0, %tid.x; mov.b32 %r1, %cluster_ctarank; mov.b32 %r2, word; setp.lt.u32 %p1, %r0, 32;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r2], 32;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.b32 %r3, [%r2];
shr.u32 %r4, %r0, 5; shl.b32 %r4, %r4, 5; mad.lo.u32 %r4, %r1, 128, %r4; shl.b32 %r4, %r4, 16; add.u32 %r4, %r4, %r3;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {%r0}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r5}, [%r4]; tcgen05.wait::ld.sync.aligned;
mad.lo.u32 %r6, %r1, 128, %r0; ld.param.b64 %d0, [c]; mad.wide.u32 %d1, %r6, 4, %d0; st.global.b32 [%d1], %r5;
tcgen05.fence::before_thread_sync; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r3, 32;
ret;
}
"""
LAUNCH = """version: 1
ptx: k.ptx
entry: k
launch: {grid: [2], block: [128], cluster: [2]}
tensors:
  C: {dtype: u32, shape: [256], init: 0}
params: [C]
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run",), 0),
        (("hazards",), 0),
        (("hazards", "--level", "strict"), 5),
        (("run", "--hazards"), 0),
        (("hazards", "--prove"), 0),
        (("hazards", "--prove", "--level", "strict"), 5),
    ],
)
def test_a_lane_of_the_pair(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    (tmp_path / "k.ptx").write_text(KERNEL)
    (tmp_path / "launch.yaml").write_text(LAUNCH)
    done = CliRunner().invoke(main, [*words, "--launch", str(tmp_path / "launch.yaml")])
    assert done.exit_code == code, done.output


QUARTER_LEFT_OUT = KERNEL.replace("mad.lo.u32 %r4, %r1, 128, %r4;", "mov.b32 %r4, 0;")
ANOTHER_RANK = KERNEL.replace("mad.lo.u32 %r4, %r1, 128, %r4;", "mad.lo.u32 %r4, %r1, 256, %r4;")


@pytest.mark.parametrize(
    ("kernel", "level", "hazard"),
    [
        (KERNEL, "practice", "review A2"),
        (KERNEL, "strict", "A2"),
        (QUARTER_LEFT_OUT, "practice", "review A4"),
        (QUARTER_LEFT_OUT, "strict", "A4"),
        (ANOTHER_RANK, "practice", "error A4"),
    ],
)
def test_the_proof_rules_as_the_run_does(tmp_path: Path, kernel: str, level: str, hazard: str) -> None:
    (tmp_path / "k.ptx").write_text(kernel)
    (tmp_path / "launch.yaml").write_text(LAUNCH)
    words = ["hazards", "--prove", "--level", level, "--launch", str(tmp_path / "launch.yaml")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == (0 if hazard.startswith("review") else 5), done.output
    assert hazard in done.output
