# SPDX-License-Identifier: Apache-2.0
"""One wgmma.mma_async.sp as a PTX kernel, and inputs for it: run on the simulator, or on a GPU to compare."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from opcodes import given

from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.sparse import LEGAL_PAIRS, LEGAL_TF32, chunk_elements, metadata_register
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.wgmma import WgmmaOp

N = 64
B_BYTES = 64 * N
LIBRARY = {
    T.F16: np.dtype(np.float16), T.BF16: np.dtype(ml_dtypes.bfloat16), T.TF32: np.dtype(np.float32),
    T.E4M3: np.dtype(ml_dtypes.float8_e4m3fn), T.E5M2: np.dtype(ml_dtypes.float8_e5m2),
    T.S8: np.dtype(np.int8), T.U8: np.dtype(np.uint8),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    a_type: T
    b_type: T
    d_type: T
    selector: int = 0
    registers: bool = False
    satfinite: bool = False
    negate: bool = False

    @property
    def op(self) -> WgmmaOp:
        return WgmmaOp.of(given(self.opcode))

    @property
    def opcode(self) -> str:
        k = {32: 16, 16: 32, 8: 64}[self.a_type.bits]
        sat = ".satfinite" if self.satfinite else ""
        types = f"{self.d_type}.{self.a_type}.{self.b_type}"
        return f"wgmma.mma_async.sp.sync.aligned.m64n{N}k{k}{sat}.{types}"


FORMS = [
    Form(T.F16, T.F16, T.F32),
    Form(T.F16, T.F16, T.F32, 1, True, False, True),
    Form(T.F16, T.F16, T.F16, 1),
    Form(T.BF16, T.BF16, T.F32, 0, True),
    Form(T.TF32, T.TF32, T.F32, 1),
    Form(T.TF32, T.TF32, T.F32, 0, True),
    Form(T.E4M3, T.E4M3, T.F32),
    Form(T.E4M3, T.E5M2, T.F32, 0, True),
    Form(T.E5M2, T.E5M2, T.F32),
    Form(T.E5M2, T.E4M3, T.F16),
    Form(T.S8, T.U8, T.S32),
    Form(T.U8, T.S8, T.S32, 0, True, True),
]
FAMILIES = ["integers", "bits", "positive", "special"]


def kernel(form: Form) -> str:
    """Parameters: bytes of B and A, A registers, metadata, D registers in and out, all [.., 128 threads]."""
    op = form.op
    d = "{" + ", ".join(f"%c{i}" for i in range(op.d_registers)) + "}"
    a_word = SmemDescriptor(B_BYTES, 1024, 128, SwizzleMode.NONE).encode("sm_90")
    b_word = SmemDescriptor(0, N * 16, 128, SwizzleMode.NONE).encode("sm_90")
    a = "{%a0, %a1, %a2, %a3}" if form.registers else "%da"
    tail = ", -1, 1" if form.negate else ", 1, 1" if op.has_scale else ""
    tail += (", 0" if form.registers else ", 0, 0") if op.has_transpose else ""
    loads = "\n".join(
        f"ld.global.u32 %{name}{i}, [%d{at}+{512 * i}];"
        for name, at, count in (("c", 14, op.d_registers), ("a", 12, 4))
        for i in range(count)
    )
    stores = "\n".join(f"st.global.u32 [%d15+{512 * i}], %c{i};" for i in range(op.d_registers))
    return f""".version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 ba, .param .u64 areg, .param .u64 meta, .param .u64 din, .param .u64 dout)
{{
.reg .b32 %r<20>; .reg .b32 %c<32>; .reg .b32 %a<4>; .reg .b64 %d<20>; .reg .b64 %da; .reg .b64 %db; .reg .pred %p<4>;
.shared .align 1024 .b8 tile[6144];
mov.u32 %r0, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, 0; ld.param.u64 %d0, [ba];
COPY: mad.lo.u32 %r4, %r3, 128, %r0; mul.lo.u32 %r5, %r4, 16; add.u32 %r6, %r2, %r5; cvt.u64.u32 %d1, %r5;
add.u64 %d1, %d0, %d1; ld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%d1];
st.shared.v4.u32 [%r6], {{%r8, %r9, %r10, %r11}};
add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 3; @%p0 bra COPY;
mul.wide.u32 %d2, %r0, 4; ld.param.u64 %d12, [areg]; ld.param.u64 %d13, [meta]; ld.param.u64 %d14, [din];
ld.param.u64 %d15, [dout]; add.u64 %d12, %d12, %d2;
add.u64 %d13, %d13, %d2; add.u64 %d14, %d14, %d2; add.u64 %d15, %d15, %d2;
ld.global.u32 %r12, [%d13];
{loads}
shr.u32 %r13, %r2, 4; cvt.u64.u32 %d3, %r13; add.u64 %da, %d3, {a_word}; add.u64 %db, %d3, {b_word};
setp.ne.u32 %p1, 1, 0;
fence.proxy.async; bar.sync 0;
wgmma.fence.sync.aligned;
{form.opcode} {d}, {a}, %db, %r12, {form.selector}, %p1{tail};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
{stores}
ret;
}}
"""


def core_matrices(rows: np.ndarray) -> np.ndarray:
    data = rows.view(np.uint8)
    return np.ascontiguousarray(data.reshape(len(data), -1, 16).transpose(1, 0, 2)).reshape(-1)


@dataclass
class Inputs:
    """`stored` [64, K / 2], `b` [N, K], `nibbles` [64, chunks]; the rest as the kernel takes it."""

    stored: np.ndarray
    b: np.ndarray
    nibbles: np.ndarray
    ba: np.ndarray
    areg: np.ndarray
    meta: np.ndarray
    din: np.ndarray


def elements(rng: np.random.Generator, shape: tuple[int, int], element: T, family: str) -> np.ndarray:
    dtype = LIBRARY[element]
    if family == "integers" or element in (T.S8, T.U8):
        low, high = (-3, 4) if family == "integers" else (-128, 128)
        if element is T.U8:
            low, high = 0, 4 if family == "integers" else 256
        return rng.integers(low, high, shape).astype(dtype)
    if family == "positive":
        return rng.uniform(0.25, 4, shape).astype(np.float32).astype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    out = np.ascontiguousarray(raw).view(dtype)[..., 0].copy()
    with np.errstate(invalid="ignore"):
        wide = out.astype(np.float32)
    bad = ~np.isfinite(wide)
    if family == "bits":
        out[bad] = 0
    else:
        # Mostly ordinary numbers, with whatever special ones the type has here and there.
        keep = rng.random(shape) < 0.01
        out = np.where(keep, out, rng.integers(-3, 4, shape).astype(dtype))
    return out


def inputs(form: Form, family: str, seed: int) -> Inputs:
    op, rng = form.op, np.random.default_rng(seed)
    bits = form.a_type.bits
    stored = elements(rng, (64, op.stored_k), form.a_type, family)
    b = elements(rng, (N, op.k), form.b_type, family)
    legal = np.array(sorted(LEGAL_TF32 if bits == 32 else LEGAL_PAIRS))
    nibbles = rng.choice(legal, (64, op.k // chunk_elements(bits)))
    meta = np.zeros(128, np.uint32)
    for row in range(64):
        for chunk in range(nibbles.shape[1]):
            thread, low = metadata_register(row, chunk, bits, form.selector)
            meta[thread] |= np.uint32(int(nibbles[row, chunk]) << low)
    # Thread 4g + q of warp w has row 16w + g (and + 8) in registers 0 and 2 (1 and 3), 4 bytes at 4q and 16 + 4q.
    words = np.ascontiguousarray(stored).view(np.uint32)
    thread = np.arange(128)
    row, quad = 16 * (thread // 32) + thread % 32 // 4, thread % 4
    areg = np.stack([words[row + 8 * (i % 2), quad + 4 * (i // 2)] for i in range(4)])
    if form.d_type is T.S32:
        din = rng.integers(0, 1 << 32, (op.d_registers, 128), dtype=np.uint32)
    elif form.d_type is T.F16:
        din = rng.normal(0, 2, (op.d_registers, 128, 2)).astype(np.float16).view(np.uint32)[..., 0]
    else:
        din = rng.normal(0, 8, (op.d_registers, 128)).astype(np.float32).view(np.uint32)
    ba = np.concatenate([core_matrices(b), core_matrices(stored)])
    return Inputs(stored, b, nibbles, ba, np.ascontiguousarray(areg), meta, np.ascontiguousarray(din))
