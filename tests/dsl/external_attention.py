# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's forward and backward, and NVIDIA's example."""

from __future__ import annotations

from external_case import ExternalCase

FLASH_FORWARD = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flash_attn.cute import utils
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90


@cute.jit
def forward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    o: cute.Tensor,
    lse: cute.Tensor,
    scale: cutlass.Float32,
{tensors}    stream: cuda.CUstream,
):
    kernel = FlashAttentionForwardSm90(
        q.element_type,
        {d},
        {dv},
        qhead_per_kvhead={group},
        is_causal={causal},
        is_local={local},
        pack_gqa={pack},
        tile_m={tile_m},
        tile_n={tile_n},
        num_stages=2,
        num_threads=384,
        Q_in_regs=False,
        intra_wg_overlap={overlap},
        mma_pv_is_rs={rs},
        score_mod={score},
        paged_kv_non_tma={gather},
    )
    kernel(q, k, v, o, lse, scale, {arguments}stream=stream)
"""
FLASH_FORWARD_CASE = """
version: 1
kernel: driver.py
entry: forward
include_dirs: ["{{root}}"]
constants: {{SCALE: "{scale}"}}
sizes: {{S: {s}, T: {t}, H: {heads}, G: {kv_heads}, D: {d}, DV: {dv}}}
dsl:
  dynamic: {dynamic}
  call: [Q, K, V, O, L, {{runtime: SCALE, type: f32}}, {names}stream]
tensors:
  Q: {{dtype: {dtype}, shape: [{one}S, H, D], role: input}}
  K: {{dtype: {dtype}, shape: [{rows}, G, D], role: input}}
  V: {{dtype: {dtype}, shape: [{rows}, G, DV], role: input}}
  O: {{dtype: {dtype}, shape: [{one}S, H, DV], role: output}}
  L: {{dtype: f32, shape: [{one}H, S], role: output}}
{declared}reduction: D
reference: {{python: "reference.py:attention"}}
# Probabilities are rounded to the operands' type before they meet V.
magnitude: >-
  {{'O': np.max(V) * (65536 + 2 * SCALE * np.max(LOGITS)) + np.zeros(({one}S, H, DV)),
  'L': 16 + 2 * SCALE * np.max(LOGITS) + np.zeros(({one}H, S))}}
accumulate: f32
exact: false
families: {families}
"""
FORWARD_REFERENCE = """import numpy as np

PARTS, LEFT, RIGHT, CAP, PAGES = {parts}, {left}, {right}, {cap}, {pages}


def part(q, k, v, scale, sink):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("mhd,nhd->hmn", q, k) * scale
    if CAP:
        scores = CAP * np.tanh(scores / CAP)
    m, n = np.indices(scores.shape[1:])
    distance = (n - k.shape[0]) - (m - q.shape[0])
    scores = np.where((distance > RIGHT) | (distance < -LEFT), -np.inf, scores)
    others = np.full((q.shape[1], 1, 1), -np.inf) if sink is None else sink[:, None, None]
    largest = np.maximum(scores.max(axis=-1, keepdims=True), others)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(others - largest)
    return np.einsum("hmn,nhd->mhd", weights / total, v), (largest + np.log(total))[..., 0]


def attention(inputs, sizes):
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (inputs["Q"], inputs["K"], inputs["V"]))
    if PAGES:
        k, v = (x.reshape(len(PAGES), -1, *x.shape[1:])[PAGES].reshape(x.shape) for x in (k, v))
    found = [
        part(q[a:b], k[c:d], v[c:d], sizes["SCALE"], inputs.get("Sink"))
        for a, b, c, d in PARTS
    ]
    o, lse = np.concatenate([o for o, _ in found]), np.concatenate([lse for _, lse in found], axis=-1)
    one = inputs["Q"].shape[:-3]
    return {{"O": o.reshape(*one, *o.shape), "L": lse.reshape(*one, *lse.shape)}}
"""
FAR = 1 << 30


def flash_forward(
    d: int,
    tile_m: int,
    tile_n: int,
    overlap: bool = True,
    rs: bool = True,
    causal: bool = False,
    s: int = 0,
    t: int = 0,
    dtype: str = "bf16",
    fails: str = "",
    dv: int = 0,
    heads: tuple[int, int] = (1, 1),
    pack: bool = False,
    window: tuple[int, int] | None = None,
    cap: float = 0,
    starts: tuple[int, int] | None = None,
    used: int = 0,
    page: int = 0,
    sink: bool = False,
    dynamic: bool = False,
) -> ExternalCase:
    """`heads` are those of queries and of keys, `window` the columns to the left and to the right, `cap` what scores
    are held to, `starts` where the second of two sequences starts in rows and in columns, `used` how many columns
    there are to use, `page` columns of a page."""
    s, t, dv = s or tile_m, t or 2 * tile_n, dv or d
    one = "" if starts else "1, "
    order = [(3 * i + 1) % (t // page) for i in range(t // page)] if page else []
    more: list[tuple[str, str, str, str]] = []  # argument, parameter, tensor, its declaration
    if starts:
        for x, length, start in (("Q", s, starts[0]), ("K", t, starts[1])):
            text = f"s32, shape: [3], role: scratch, fill: [0, {start}, {length}]"
            more.append((f"mCuSeqlens{x}", f"starts_{x.lower()}", f"Starts{x}", text))
    if used:
        more.append(("mSeqUsedK", "used", "Used", f"s32, shape: [1], role: scratch, fill: {used}"))
    if page:
        more.append(("mPageTable", "pages", "Pages", f"s32, shape: [1, {len(order)}], role: scratch, fill: {order}"))
    if sink:
        more.append(("learnable_sink", "sink", "Sink", "bf16, shape: [H], role: input"))
    arguments = [f"{argument}={parameter}" for argument, parameter, _, _ in more]
    if window:
        arguments += [f"window_size_left=cutlass.Int32({window[0]})", f"window_size_right=cutlass.Int32({window[1]})"]
    driver = FLASH_FORWARD.format(
        d=d,
        dv=dv,
        tile_m=tile_m,
        tile_n=tile_n,
        overlap=overlap,
        rs=rs,
        causal=causal,
        local=window is not None,
        group=heads[0] // heads[1],
        pack=pack,
        score=f"utils.create_softcap_scoremod({cap})" if cap else None,
        gather=page not in (0, tile_n),
        arguments="".join(f"{a}, " for a in arguments),
        tensors="".join(f"    {parameter}: cute.Tensor,\n" for _, parameter, _, _ in more),
    )
    case = FLASH_FORWARD_CASE.format(
        scale=d**-0.5,
        s=s,
        t=t,
        d=d,
        dv=dv,
        dtype=dtype,
        heads=heads[0],
        kv_heads=heads[1],
        one=one,
        rows=f"{len(order)}, {page}" if page else f"{one}T",
        names="".join(f"{name}, " for _, _, name, _ in more),
        declared="".join(f"  {name}: {{dtype: {text}}}\n" for _, _, name, text in more),
        dynamic=str(dynamic).lower(),
        # Long rows of positive numbers give probabilities that are all alike.
        families="[normal, uniform]" if d <= 64 else "[normal]",
    )
    flat = [f"np.reshape({x}, (-1, {h}, D))" for x, h in (("Q", "H"), ("K", "G"))]
    flat[1] = f"np.repeat({flat[1]}, H // G, axis=1)"
    case = case.replace("LOGITS", f"np.einsum('mhd,nhd->hmn', {', '.join(flat)})")
    left, right = window or (FAR, 0 if causal else FAR)
    parts = [(0, s, 0, used or t)]
    if starts:
        parts = [(0, starts[0], 0, starts[1]), (starts[0], s, starts[1], t)]
    reference = FORWARD_REFERENCE.format(parts=parts, left=left, right=right, cap=cap, pages=order)
    return ExternalCase("flash_attn", driver, case, {"reference.py": reference}, fails)


FLASH_BACKWARD = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flash_attn.cute import utils
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90


@cute.jit
def backward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    do: cute.Tensor,
    lse: cute.Tensor,
    dpsum: cute.Tensor,
    dq: cute.Tensor,
    dk: cute.Tensor,
    dv: cute.Tensor,
    scale: cutlass.Float32,
{tensors}    stream: cuda.CUstream,
):
    kernel = FlashAttentionBackwardSm90(
        q.element_type,
        {d},
        {dv},
        qhead_per_kvhead={group},
        is_causal={causal},
        is_local={local},
        deterministic={ordered},
        tile_m={tile_m},
        tile_n={tile_n},
        Q_stage={stages[0]},
        dO_stage={stages[1]},
        PdS_stage={stages[2]},
        SdP_swapAB={swap[0]},
        dKV_swapAB={swap[1]},
        dQ_swapAB={swap[2]},
        AtomLayoutMSdP=1,
        AtomLayoutNdKV={atoms[0]},
        AtomLayoutMdQ={atoms[1]},
        num_threads=384,
        dQ_single_wg={alone},
        score_mod={score},
        score_mod_bwd={slope},
    )
    kernel(q, k, v, do, lse, dpsum, dq, dk, dv, scale, {arguments}stream=stream)
"""
FLASH_BACKWARD_CASE = """
version: 1
kernel: driver.py
entry: backward
include_dirs: ["{{root}}"]
constants: {{SCALE: "{scale}"}}
sizes: {{S: {s}, T: {t}, H: {heads}, G: {kv_heads}, D: {d}, DV: {dv}}}
dsl:
  call: [Q, K, V, dO, L, P, dQ, dK, dV, {{runtime: SCALE, type: f32}}, {names}stream]
tensors:
  Q: {{dtype: {dtype}, shape: [1, S, H, D], role: input}}
  K: {{dtype: {dtype}, shape: [1, T, G, D], role: input}}
  V: {{dtype: {dtype}, shape: [1, T, G, DV], role: input}}
  dO: {{dtype: {dtype}, shape: [1, S, H, DV], role: input}}
  # What another kernel makes of O before: the sums of exponents as base-2 logarithms, and the rows' sums of O * dO.
  L: {{dtype: f32, shape: [1, H, S], role: input}}
  P: {{dtype: f32, shape: [1, H, S], role: input}}
  # Added up in the order of the accumulators' registers; another kernel scales and sorts them.
  dQ: {{dtype: f32, shape: [1, H, S * D], role: output, fill: 0}}
  dK: {{dtype: {results}, role: output{fill}}}
  dV: {{dtype: {results_v}, role: output{fill}}}
{declared}reduction: S
reference: {{python: "reference.py:gradients"}}
# P and dS are rounded to the operands' type before they meet the second factor.
magnitude: "bounds(Q, K, V, dO, L, P)"
accumulate: f32
exact: false
# Exponents of wider inputs leave no bound that tells right from wrong.
families: [uniform]
"""
BACKWARD_REFERENCE = """import numpy as np

LEFT, RIGHT, SUMS, CAP = {left}, {right}, {sums}, {cap}


def sorted_as(registers, tile, groups, atoms, swap):
    # In the order of an accumulator's registers: by tile of rows, warpgroup, four registers, thread, register.
    # `atoms` warpgroups are below each other; with `swap` the accumulator is transposed.
    rows, columns = registers.shape[-2:]
    m, n = (columns, tile) if swap else (tile, columns)
    below = groups // atoms if swap else atoms
    width = n // (groups // below)  # of a warpgroup
    block, group, four, thread, part = np.meshgrid(
        np.arange(rows // tile), np.arange(groups), np.arange(m // 64 // below * width // 8), np.arange(128),
        np.arange(4), indexing="ij",
    )
    row = (four // (width // 8) * below + group % below) * 64 + thread // 32 * 16 + thread % 32 // 4 + part // 2 * 8
    column = group // below * width + four % (width // 8) * 8 + thread % 4 * 2 + part % 2
    row, column = (column, row) if swap else (row, column)
    return registers[..., (block * tile + row).ravel(), column.ravel()]


def gradients(inputs, sizes):
    q, do = inputs["Q"], inputs["dO"]
    group = sizes["H"] // sizes["G"]
    k, v = (np.repeat(inputs[x], group, axis=2) for x in "KV")
    scores = np.einsum("bmhd,bnhd->bhmn", q, k) * sizes["SCALE"]
    slope = 1
    if CAP:
        scores = CAP * np.tanh(scores / CAP)
        slope = 1 - (scores / CAP) ** 2
    m, n = np.indices(scores.shape[2:])
    distance = (n - scores.shape[3]) - (m - scores.shape[2])
    scores = np.where((distance > RIGHT) | (distance < -LEFT), -np.inf, scores)
    p = np.exp2(scores * np.log2(np.e) - inputs["L"][..., None])
    ds = p * (np.einsum("bmhd,bnhd->bhmn", do, v) - inputs["P"][..., None]) * slope
    dk, dv = np.einsum("bhmn,bmhd->bhnd", ds, q), np.einsum("bhmn,bmhd->bhnd", p, do)
    if SUMS:
        dk, dv = (
            sorted_as(x.reshape(1, -1, group, *x.shape[2:]).sum(axis=2), *SUMS) for x in (dk, dv)
        )
    else:
        dk, dv = (np.moveaxis(x, 1, 2) for x in (dk * sizes["SCALE"], dv))
    return {{"dQ": sorted_as(np.einsum("bhmn,bnhd->bhmd", ds, k), *{rows}), "dK": dk, "dV": dv}}
"""
LARGEST_P = "2.0 ** (SCALE * 1.5 * np.max(np.einsum('bmhd,bnhd->bhmn', Q, np.repeat(K, H // G, axis=2))) + np.max(L))"
LARGEST_DS = f"{LARGEST_P} * (np.max(np.einsum('bmhd,bnhd->bhmn', dO, np.repeat(V, H // G, axis=2))) + np.max(P))"
BACKWARD_MAGNITUDE = (
    f"{{'dQ': 4096 * {LARGEST_DS} * np.max(K) * T + np.zeros((1, H, S * D)),"
    f" 'dK': 4096 * {LARGEST_DS} * np.max(Q) * S * UNIT + np.zeros(dK),"
    f" 'dV': 4096 * {LARGEST_P} * np.max(dO) * S * (H // G) + np.zeros(dV)}}"
)


def flash_backward(
    d: int,
    tile_m: int,
    tile_n: int,
    s: int,
    t: int,
    dtype: str = "bf16",
    fails: str = "",
    dv: int = 0,
    heads: tuple[int, int] = (1, 1),
    stages: tuple[int, int, int] = (2, 2, 2),
    swap: tuple[bool, bool, bool] = (True, False, False),
    atoms: tuple[int, int] = (2, 1),
    alone: bool = False,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    ordered: bool = False,
    cap: float = 0,
) -> ExternalCase:
    """`heads` are those of queries and of keys, `window` the columns to the left and to the right; `swap` says whose
    MMAs are transposed (S and dP, dK and dV, dQ), `atoms` how many warpgroups are below each other in those of dK and
    dV and of dQ, `alone` that one warpgroup makes all of dQ, `ordered` that blocks add to dQ in their order, `cap` what
    scores are held to."""
    dv, groups = dv or d, heads[0] // heads[1]
    arguments = ["mdQ_semaphore=turns"] if ordered else []
    if window:
        arguments += [f"window_size_left=cutlass.Int32({window[0]})", f"window_size_right=cutlass.Int32({window[1]})"]
    driver = FLASH_BACKWARD.format(
        d=d,
        dv=dv,
        tile_m=tile_m,
        tile_n=tile_n,
        group=groups,
        causal=causal,
        local=window is not None,
        ordered=ordered,
        stages=stages,
        swap=swap,
        atoms=atoms,
        alone=alone,
        score=f"utils.create_softcap_scoremod({cap})" if cap else None,
        slope=f"utils.create_softcap_scoremod_bwd({cap})" if cap else None,
        arguments="".join(f"{a}, " for a in arguments),
        tensors="    turns: cute.Tensor,\n" if ordered else "",
    )
    shapes = {"dK": "[1, T, G, D]", "dV": "[1, T, G, DV]"}
    if groups > 1:
        shapes = {"dK": "[1, G, T * D]", "dV": "[1, G, T * DV]"}
    kind = "f32" if groups > 1 else dtype
    turns = f"  Turns: {{dtype: s32, shape: [1, H, {s // tile_m}, 1], role: scratch, fill: 0}}\n"
    case = FLASH_BACKWARD_CASE.format(
        scale=d**-0.5,
        tile_m=tile_m,
        s=s,
        t=t,
        d=d,
        dv=dv,
        dtype=dtype,
        heads=heads[0],
        kv_heads=heads[1],
        results=f"{kind}, shape: {shapes['dK']}",
        results_v=f"{kind}, shape: {shapes['dV']}",
        fill=", fill: 0" if groups > 1 else "",
        names="Turns, " if ordered else "",
        declared=turns if ordered else "",
    )
    magnitude = BACKWARD_MAGNITUDE.replace("UNIT", "(H // G)" if groups > 1 else "SCALE")
    for name, shape in shapes.items():
        magnitude = magnitude.replace(f"np.zeros({name})", f"np.zeros(({shape[1:-1]}))")
    case = case.replace("bounds(Q, K, V, dO, L, P)", magnitude)
    left, right = window or (FAR, 0 if causal else FAR)
    reference = BACKWARD_REFERENCE.format(
        left=left,
        right=right,
        sums=(tile_n, 2, atoms[0], swap[1]) if groups > 1 else (),
        rows=(tile_m, 1 if alone else 2, atoms[1], swap[2]),
        cap=cap,
    )
    return ExternalCase("flash_attn", driver, case, {"reference.py": reference}, fails)


FMHA = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from fmha import HopperFusedMultiHeadAttentionForward, fmha_utils


class Attention:
    def __init__(self, tile, mask):
        self.kernel = HopperFusedMultiHeadAttentionForward(
            cutlass.Float32, cutlass.Float32, tile, False, fmha_utils.MaskEnum[mask]
        )

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        log2_scale: cutlass.Float32,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        self.kernel(q, k, v, o, lse, log2_scale, scale, cutlass.Float32(1.0), None, None, stream)
"""
FMHA_CASE = """
version: 1
kernel: driver.py
entry: Attention
include_dirs: ["{{root}}", "{{root}}/{folder}"]
constants: {{SCALE: "0.125"}}
sizes: {{S: {s}, D: {d}, H: 1}}
dsl:
  dynamic: true
  init: {{tile: [64, 64, {d}], mask: WINDOW_MASK}}
  call: [Q, K, V, O, L, {{runtime: SCALE * 1.4426950408889634, type: f32}}, {{runtime: SCALE, type: f32}}, stream]
tensors:
  Q: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  K: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  V: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  O: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: output}}
  L: {{dtype: f32, shape: [S, 1, 1, H, 1], strides: [H, 1, 1, 1, S * H], role: output}}
reduction: D
reference: {{python: "reference.py:attention"}}
magnitude: >-
  {{'O': np.max(V) * (4096 + 2 * SCALE * np.max(np.abs(np.einsum('mdrhb,ndrhb->mnrhb', Q, K)))) + 0 * Q,
  'L': 16 + 2 * SCALE * np.max(np.einsum('mdrhb,ndrhb->mnrhb', Q, K)) + 0 * Q[:, :1]}}
accumulate: f32
exact: false
families: [normal, uniform]
"""
FMHA_REFERENCE = """import numpy as np


def attention(inputs, sizes):
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    scores = np.einsum("mdrhb,ndrhb->mnrhb", q, k) * sizes["SCALE"]
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    return {"O": np.einsum("mnrhb,ndrhb->mdrhb", weights / total, v), "L": largest[:, :1] + np.log(total[:, :1])}
"""


def fmha(needs: str, folder: str, s: int = 128, d: int = 64) -> ExternalCase:
    return ExternalCase(needs, FMHA, FMHA_CASE.format(folder=folder, s=s, d=d), {"reference.py": FMHA_REFERENCE})


NEWEST = "cute/hopper/kernel"
ATTENTION: dict[str, ExternalCase] = {
    "nvidia-fmha": fmha("examples", "hopper"),
    "nvidia-newest-fmha": fmha("cutlass", f"{NEWEST}/attention"),
    "flash-forward-64": flash_forward(64, 128, 128),
    "flash-forward-64-192": flash_forward(64, 192, 128),
    "flash-forward-64-plain": flash_forward(64, 128, 128, overlap=False),
    "flash-forward-64-shared": flash_forward(64, 128, 128, rs=False),
    "flash-forward-64-causal": flash_forward(64, 128, 128, causal=True, s=256, fails="tile_scheduler"),
    "flash-forward-128": flash_forward(128, 128, 128),
    "flash-forward-128-plain": flash_forward(128, 128, 128, overlap=False),
    "flash-forward-128-192": flash_forward(128, 192, 64),
    "flash-forward-96": flash_forward(96, 192, 144, rs=False),
    "flash-forward-192": flash_forward(192, 128, 112),
    "flash-forward-192-to-128": flash_forward(192, 128, 128, dv=128),
    "flash-forward-256": flash_forward(256, 128, 80),
    "flash-forward-256-window": flash_forward(256, 128, 64, window=(64, 0)),
    "flash-forward-64-window": flash_forward(64, 128, 128, window=(64, 0), s=256, t=256),
    "flash-forward-64-groups": flash_forward(64, 128, 128, heads=(4, 2)),
    "flash-forward-64-packed": flash_forward(64, 128, 128, heads=(4, 2), pack=True, s=64),
    "flash-forward-64-packed-by-three": flash_forward(64, 128, 128, heads=(6, 2), pack=True, s=128),
    "flash-forward-64-lengths": flash_forward(64, 128, 128, starts=(97, 155), s=200, t=300, dynamic=True),
    "flash-forward-64-ragged": flash_forward(64, 128, 128, s=100, t=200),
    "flash-forward-64-used": flash_forward(64, 128, 128, used=219),
    "flash-forward-64-pages": flash_forward(64, 128, 128, page=16),
    "flash-forward-64-pages-of-tiles": flash_forward(64, 128, 128, page=128),
    "flash-forward-64-cap": flash_forward(64, 128, 128, cap=15.0),
    "flash-forward-64-sink": flash_forward(64, 128, 128, sink=True, heads=(2, 2)),
    "flash-backward-64": flash_backward(64, 64, 128, s=128, t=256),
    "flash-backward-64-128": flash_backward(64, 128, 128, s=128, t=256, atoms=(2, 2)),
    "flash-backward-64-causal": flash_backward(64, 128, 128, s=256, t=256, atoms=(2, 2), causal=True),
    "flash-backward-64-window": flash_backward(64, 128, 128, s=256, t=256, atoms=(2, 2), window=(64, 0)),
    "flash-backward-64-groups": flash_backward(64, 128, 128, s=128, t=256, atoms=(2, 2), heads=(2, 1)),
    "flash-backward-64-ordered": flash_backward(
        64, 128, 128, s=128, t=256, atoms=(2, 2), ordered=True, fails="tile_scheduler"
    ),
    "flash-backward-64-cap": flash_backward(64, 128, 128, s=128, t=256, atoms=(2, 2), cap=15.0),
    "flash-backward-96": flash_backward(96, 64, 128, s=128, t=256, alone=True),
    "flash-backward-128": flash_backward(128, 80, 128, s=160, t=256, swap=(True, False, True)),
    "flash-backward-128-causal": flash_backward(128, 64, 128, s=256, t=256, causal=True),
    "flash-backward-192": flash_backward(192, 64, 96, s=128, t=192, stages=(2, 1, 1), swap=(False, True, False)),
    "flash-backward-192-to-128": flash_backward(
        192, 64, 96, s=128, t=192, dv=128, stages=(2, 2, 1), swap=(False, True, False)
    ),
    "flash-backward-256": flash_backward(
        256, 64, 64, s=128, t=128, stages=(1, 1, 1), swap=(False, False, False), atoms=(1, 1)
    ),
}  # fmt: skip
