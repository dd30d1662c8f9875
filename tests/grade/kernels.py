# SPDX-License-Identifier: Apache-2.0
"""PTX of kernels with a given tile, number of stages and roles, as far as a reader of text looks at it."""

from __future__ import annotations

from pathlib import Path

import yaml

from porter.grade.kernels import DEPTH, Timed
from porter.grade.shape import Shape
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.verify.launch_file import PtxLaunch, load_launch

_HEAD = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel(.param .u64 kernel_param_0, .param .u64 kernel_param_1, .param .u32 kernel_param_2)
.reqntid {threads}
{{
.reg .pred %p<64>;
.reg .b32 %r<256>;
.reg .b64 %rd<64>;
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
ld.param.u32 %r3, [kernel_param_2];
ld.param.u64 %rd1, [kernel_param_0];
mov.b32 %r4, smem;
mov.b32 %r5, {tx};
mov.b32 %r6, {idesc};
mov.b32 %r8, {columns};
tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r4], %r8;
"""


def kernel(shape: Shape) -> str:
    """A kernel of this shape. It multiplies nothing sensible: addresses are not those of a real one."""
    mma, count = shape.mmas[0]
    element = ElementType.BF16 if mma.kind is Kind.F16 else ElementType.E4M3
    d = InstructionDescriptor(mma.kind, mma.m, mma.n, ElementType.F32, element, element)
    text = _HEAD.format(
        threads=shape.residency.threads,
        tx=(shape.load_bytes or 0) * shape.cta_group,
        idesc=d.encode(),
        columns=shape.residency.tmem_columns,
        group=mma.cta_group,
    )
    labels = _Labels()
    parts = _Parts(shape, count, labels)
    if shape.roles == "specialized":
        text += parts.specialized()
    else:
        text += parts.alone()
    return text + "ret;\n}\n"


class _Labels:
    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"$L_{self.count}"


class _Parts:
    def __init__(self, shape: Shape, count: int, labels: _Labels) -> None:
        self.shape = shape
        self.count = count
        self.labels = labels

    def wait(self, at: int) -> str:
        return f"""{{
.reg .pred P1;
LAB_WAIT:
mbarrier.try_wait.parity.shared::cta.b64 P1, [%r4+{at}], %r9;
@P1 bra.uni DONE;
bra.uni LAB_WAIT;
DONE:
}}
"""

    def load(self) -> str:
        group = f".cta_group::{self.shape.cta_group}" if self.shape.cta_group == 2 else ""
        tma = f"cp.async.bulk.tensor.2d{group}.shared::cluster.global.mbarrier::complete_tx::bytes"
        return f"""mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+8], %r5;
{tma} [%r10], [%rd1, {{%r11, %r12}}], [%r4+8];
{tma} [%r13], [%rd1, {{%r11, %r14}}], [%r4+8];
"""

    def multiply(self) -> str:
        mma, _ = self.shape.mmas[0]
        one = f"tcgen05.mma.cta_group::{mma.cta_group}.kind::{mma.kind} [%r15], %rd2, %rd3, %r6, %p1;\n"
        commit = f"tcgen05.commit.cta_group::{mma.cta_group}.mbarrier::arrive::one.shared::cluster.b64 [%r4+16];\n"
        return one * self.count + commit

    def advance(self, index: int) -> str:
        return f"""add.s32 %r{index + 1}, %r{index}, 1;
setp.eq.s32 %p{index}, %r{index + 1}, {self.shape.stages};
selp.b32 %r{index}, 0, %r{index + 1}, %p{index};
"""

    def loop(self, body: str, counter: int) -> str:
        label = self.labels.new()
        return f"""mov.b32 %r{counter}, 0;
{label}:
{body}add.s32 %r{counter}, %r{counter}, 1;
setp.lt.s32 %p{counter - 40}, %r{counter}, %r3;
@%p{counter - 40} bra {label};
"""

    def epilogue(self) -> str:
        end = self.shape.epilogue
        shape = "32x32b.x32" if end.store == "rows" else "16x256b.x8"
        read = ", ".join(f"%r{n}" for n in range(100, 132))
        text = f"""tcgen05.ld.sync.aligned.{shape}.b32 {{{read}}}, [%r15];
tcgen05.wait::ld.sync.aligned;
cvt.rn.bf16x2.f32 %r140, %r100, %r101;
"""
        if end.store == "tma":
            store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r11, %r12}], [%r10];\n"
            return text + store * end.pieces + "cp.async.bulk.commit_group;\n"
        return text + "st.global.v4.b32 [%rd4], {%r140, %r140, %r140, %r140};\n"

    def over_tiles(self, body: str, counter: int) -> str:
        return self.loop(body, counter) if self.shape.persistent else body

    def alone(self) -> str:
        """One warp loads, multiplies and waits."""
        if self.shape.roles == "serial":
            return self.loop(self.load() + self.wait(8) + self.multiply() + self.wait(16), 60) + self.epilogue()
        ahead = self.load() * ((self.shape.stages or 1) - 1)
        ring = self.wait(8) + self.multiply() + (self.wait(16) if self.shape.waits_each else "") + self.load()
        return ahead + self.loop(ring + self.advance(20), 60) + self.epilogue()

    def specialized(self) -> str:
        """A warp that loads, one that multiplies, others that store."""
        producer, consumer, out = self.labels.new(), self.labels.new(), self.labels.new()
        loads = self.over_tiles(self.loop(self.wait(24) + self.load() + self.advance(20), 60), 62)
        multiplies = self.loop(self.wait(8) + self.multiply() + self.advance(22), 64)
        text = f"setp.eq.s32 %p2, %r2, 0;\n@%p2 bra {producer};\nsetp.eq.s32 %p3, %r2, 1;\n@%p3 bra {consumer};\n"
        if self.shape.epilogue.overlapped:
            text += self.over_tiles(self.wait(32) + self.epilogue(), 66)
            stores = ""
        else:
            stores = self.epilogue()
        text += f"bra {out};\n{producer}:\n{loads}bra {out};\n{consumer}:\n"
        return text + self.over_tiles(multiplies + self.wait(32) + stores, 68) + f"{out}:\n"


def timed_launch(timed: Timed, folder: Path, blocks: int, init: int | str) -> PtxLaunch:
    """A kernel to time, launched over 256 rows and `blocks` of its columns; `init` is what A and B hold."""
    rows, columns = 256, blocks * timed.n
    launch = {"grid": [2, blocks], "block": [timed.threads], "cluster": [timed.ctas], "dynamic_smem": timed.smem}
    tensors = {
        "A": {"dtype": "bf16", "shape": [rows, timed.k], "init": init},
        "B": {"dtype": "bf16", "shape": [columns, timed.k], "init": init},
        "D": {"dtype": "f32", "shape": [rows, columns]},
        "clocks": {"dtype": "u64", "shape": [4, 4], "init": 0},
    }
    maps = {
        "a": {"tensor": "A", "box": [128, DEPTH], "swizzle": "128B"},
        "b": {"tensor": "B", "box": [timed.n // timed.ctas, DEPTH], "swizzle": "128B"},
    }
    given = ["a", "b", "D", "clocks", {"value": timed.k // DEPTH, "type": "u32"}, {"value": columns, "type": "u32"}]
    (folder / "k.ptx").write_text(timed.ptx())
    (folder / "l.yaml").write_text(
        yaml.safe_dump({"version": 1, "launch": launch, "tensors": tensors, "tensor_maps": maps, "params": given})
    )
    return load_launch(folder / "l.yaml", folder / "k.ptx")
