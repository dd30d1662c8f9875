# SPDX-License-Identifier: Apache-2.0
"""flashinfer's mixtures of experts and gated delta rule."""

from __future__ import annotations

from typing import Any

from external_case import ExternalCase

EXPERTS = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flashinfer.fused_moe.cute_dsl.hopper.{module} import {kernel}{more}


@cute.jit
def experts(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, chosen: cute.Tensor, limits: cute.Tensor, rows: cute.Tensor,
    tiles: cute.Tensor, {scales}stream: cuda.CUstream,
):
    kernel = {kernel}(cutlass.Float32, {tile}, 2, cluster_shape_mn={cluster}, enable_pdl=False, {options})
    kernel(a, b, c, chosen, limits, rows, tiles, {passed}2, stream)
"""
EXPERTS_CASE = """
version: 1
kernel: driver.py
entry: experts
include_dirs: ["{{root}}"]
sizes: {{M: {m}, N: {n}, K: 192, E: 3, R: {results}, W: {width}}}
dsl:
  call: [A, B, C, Chosen, Limits, Rows, Tiles, {names}stream]
tensors:
  A: {{dtype: bf16, shape: [{rows_a}, K, 1], strides: [K, 1, {rows_a} * K], role: input}}
  B: {{dtype: bf16, shape: [N, K, E], strides: [K, 1, N * K], role: input}}
  C: {{dtype: {out}, shape: [R, W, 1], strides: [W, 1, R * W], role: output, fill: 0}}
  # For each tile of rows its expert, and where its rows end; for each row its token, or what was left there.
  Chosen: {{dtype: s32, shape: [{tiles}], role: scratch, fill: {chosen}}}
  Limits: {{dtype: s32, shape: [{tiles}], role: scratch, fill: {limits}}}
  Rows: {{dtype: s32, shape: [M], role: scratch, fill: {rows}}}
  Tiles: {{dtype: s32, shape: [1], role: scratch, fill: {tiles}}}
{declared}reduction: K
reference: {{python: "reference.py:experts"}}
magnitude: "{{'C': {magnitude} + np.zeros((R, W, 1))}}"
exact: false
families: [normal, uniform]
"""
EXPERTS_REFERENCE = """import numpy as np

ROWS, CHOSEN, LIMITS, TILE = {rows}, {chosen}, {limits}, {tile}


def experts(inputs, sizes):
    a, b, s = inputs["A"][..., 0], inputs["B"], inputs.get("Scales")
    out = np.zeros((sizes["R"], sizes["W"], 1))
    for row, token in enumerate(ROWS):
        if row < LIMITS[row // TILE]:
            expert = b[:, :, CHOSEN[row // TILE]]
            {body}
    return {{"C": out}}
"""


def experts(
    module: str,
    kernel: str,
    tile: tuple[int, int],
    body: str,
    magnitude: str,
    options: str = "",
    more: str = "",
    cluster: tuple[int, int] = (1, 1),
    n: int = 256,
    gather: bool = False,
    out: str = "f32",
    half: bool = False,
    tokens: int = 0,
) -> ExternalCase:
    """100 tokens with two experts each; three tiles of rows, of which one is full, one half, one nearly empty.
    `gather` takes the rows of A by token, `tokens` are the rows of the result (else the tiles')."""
    count = 4 if cluster[0] > 1 else 3
    valid = [tile[0], tile[0] // 2 - 3, 5, 0][:count]
    order = iter((37 * i + 11) % 200 for i in range(200))
    rows = [next(order) if j < n_rows else -12345 for n_rows in valid for j in range(tile[0])]
    limits = [i * tile[0] + n_rows for i, n_rows in enumerate(valid)]
    chosen = [0, 0, 2, 2][:count]
    scaled = not gather
    driver = EXPERTS.format(
        module=module,
        kernel=kernel,
        tile=tile,
        cluster=cluster,
        options=options,
        more=more,
        scales="scales: cute.Tensor, " if scaled else "",
        passed="scales, " if scaled else "",
    )
    case = EXPERTS_CASE.format(
        m=tile[0] * count,
        n=n,
        width=n // 2 if half else n,
        results=tokens or tile[0] * count,
        rows_a=100 if gather else "M",
        out=out,
        tiles=count,
        chosen=chosen,
        limits=limits,
        rows=rows,
        names="Scales, " if scaled else "",
        magnitude=magnitude,
        declared="  Scales: {dtype: f32, shape: [100, 2], role: input}\n" if scaled else "",
    )
    reference = EXPERTS_REFERENCE.format(rows=rows, chosen=chosen, limits=limits, tile=tile[0], body=body)
    return ExternalCase("flashinfer", driver, case, {"reference.py": reference})


def experts_results(tile: tuple[int, int], fused: bool = True, **fields: Any) -> ExternalCase:
    """The second GEMM, whose results are added up by token."""
    body = "out[token, :, 0] = expert @ a[row]"
    if fused:
        body = "out[token // 2, :, 0] += s[token // 2, token % 2] * (expert @ a[row])"
    return experts(
        "contiguous_grouped_gemm_finalize_fusion",
        "Sm90ContiguousGroupedGemmFinalizeFusionKernel",
        tile,
        body,
        # Sums in memory are rounded to its type.
        "512 * np.max(A) * np.max(B) * K * (1 + np.max(Scales))",
        options=f"use_fused_finalize={fused}",
        tokens=100 if fused else 200,
        **fields,
    )


def experts_inputs(tile: tuple[int, int], function: str, body: str, **fields: Any) -> ExternalCase:
    """The first GEMM, which gathers its rows, with an activation."""
    body = f"x = expert @ a[token // 2]\n            {body}"
    return experts(
        "contiguous_gather_grouped_gemm_act_fusion",
        "Sm90ContiguousGatherGroupedGemmActFusionKernel",
        tile,
        body,
        "(1 + np.max(A) * np.max(B) * K) ** 2",
        options=f"activation_type=ActivationType.{function}.value",
        more=", ActivationType",
        gather=True,
        out="bf16",
        **fields,
    )


# --- the gated delta rule

DELTA = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flashinfer.gdn_kernels.delta_rule_dsl.delta_rule_sm90 import _FullyFusedDeltaRuleSm90


@cute.jit
def delta(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, alpha: cute.Tensor, beta: cute.Tensor,
    state: cute.Tensor, first: cute.Tensor, maps: cute.Tensor, starts: cute.Tensor, scale: cutlass.Float32,
    stream: cuda.CUstream,
):
    kernel = _FullyFusedDeltaRuleSm90({with_alpha}, {with_beta}, {with_first}, False, q.element_type)
    one = cutlass.Int32(1)
    kernel(
        q, k, v, o, {alpha}, {beta}, state, {first}, None, None, None, maps, starts, scale, one, one, one, one,
        cutlass.Int32(2), one, cutlass.Int32(0), 2, stream,
    )
"""
DELTA_CASE = """
version: 1
kernel: driver.py
entry: delta
include_dirs: ["{{root}}"]
sizes: {{S: 150, D: 128}}
dsl:
  call: [Q, K, V, O, Alpha, Beta, State, First, maps, Starts, {{runtime: 0.0883883, type: f32}}, stream]
tensors:
  Q: {{dtype: {dtype}, shape: [S, D, 1], strides: [D, 1, D], role: input}}
  # Of length 1, or the state grows with every row.
  K: {{dtype: {dtype}, shape: [D, S, 1], strides: [1, D, D], role: scratch, fill: {keys}}}
  V: {{dtype: {dtype}, shape: [D, S, 1], strides: [1, D, D], role: input}}
  O: {{dtype: {dtype}, shape: [D, S, 1], strides: [1, D, D], role: output}}
  Alpha: {{dtype: f32, shape: [S], role: scratch, fill: {decay}}}
  Beta: {{dtype: f32, shape: [S], role: scratch, fill: 0.75}}
  State: {{dtype: f32, shape: [2, 1, D, D], role: output}}
  First: {{dtype: f32, shape: [2, 1, D, D], role: input}}
  maps: {{dtype: u8, shape: [256], role: scratch, fill: 0}}
  Starts: {{dtype: s64, shape: [3], role: scratch, fill: [0, 70, S]}}
reduction: D
reference: {{python: "reference.py:delta"}}
magnitude: >-
  {{'O': 4096 * np.max(Q) * (np.max(V) + np.max(First)) + np.zeros((D, S, 1)),
  'State': 4096 * (np.max(V) + np.max(First)) + np.zeros((2, 1, D, D))}}
accumulate: f32
exact: false
families: [normal, uniform]
"""
DELTA_KEYS = """import numpy as np


def keys():
    i, d = np.indices((150, 128))
    return np.where((i * i * 29 + d * d * 31 + i * d * 17 + i * 3 + d * 7) % 101 < 50, -1, 1) * 0.08837890625
"""
DELTA_REFERENCE = """

def delta(inputs, sizes):
    q, k, v = inputs["Q"][..., 0], keys(), inputs["V"][..., 0].T
    out, states = np.zeros(v.shape), []
    for part, (start, end) in enumerate([(0, 70), (70, 150)]):
        state = inputs["First"][part, 0].copy() if {first} else np.zeros((128, 128))
        for i in range(start, end):
            state *= 1 - (i % 5) / 16 if {alpha} else 1
            state += (0.75 if {beta} else 1) * np.outer(v[i] - state @ k[i], k[i])
            out[i] = 0.0883883 * (state @ q[i])
        states.append(state[None])
    return {{"O": out.T[..., None], "State": np.stack(states)}}
"""


def keys() -> list[float]:
    """As the reference has them, in the order of the tensor."""
    scope: dict[str, Any] = {}
    exec(DELTA_KEYS, scope)
    return [float(x) for x in scope["keys"]().T.ravel()]


def delta_rule(alpha: bool = True, beta: bool = True, first: bool = True, dtype: str = "bf16") -> ExternalCase:
    used = {"alpha": alpha, "beta": beta, "first": first}
    passed = {name: name if given else None for name, given in used.items()}
    with_ = {f"with_{name}": given for name, given in used.items()}
    case = DELTA_CASE.format(dtype=dtype, keys=keys(), decay=[1 - i % 5 / 16 for i in range(150)])
    reference = DELTA_KEYS + DELTA_REFERENCE.format(**used)
    return ExternalCase("flashinfer", DELTA.format(**passed, **with_), case, {"reference.py": reference})


DELTA_INVERSE = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flashinfer.gdn_kernels.delta_rule_dsl.delta_rule_cp_sm90 import CPDeltaRuleTPrecomputeSm90


@cute.jit
def inverse(k: cute.Tensor, beta: cute.Tensor, t: cute.Tensor, starts: cute.Tensor, stream: cuda.CUstream):
    one, two = cutlass.Int32(1), cutlass.Int32(2)
    kernel = CPDeltaRuleTPrecomputeSm90(k.element_type)
    kernel(k, beta, t, starts, one, one, cutlass.Int32(4), two, two, stream)
"""
DELTA_INVERSE_CASE = """
version: 1
kernel: driver.py
entry: inverse
include_dirs: ["{{root}}"]
sizes: {{S: 150, D: 128}}
dsl:
  call: [K, Beta, T, Starts, stream]
tensors:
  K: {{dtype: bf16, shape: [D, S, 1], strides: [1, D, D], role: scratch, fill: {keys}}}
  Beta: {{dtype: f32, shape: [S], role: input}}
  T: {{dtype: bf16, shape: [4 * 64 * 64], role: output, fill: 0}}
  Starts: {{dtype: s64, shape: [3], role: scratch, fill: [0, 70, S]}}
reduction: D
reference: {{python: "reference.py:inverse"}}
# The inverse is made in 16 bits.
magnitude: "{{'T': 8192 + np.zeros(4 * 64 * 64)}}"
accumulate: f32
exact: false
families: [uniform]
"""
DELTA_INVERSE_REFERENCE = """

def inverse(inputs, sizes):
    out = np.zeros((4, 64, 64))
    for block, (start, end) in enumerate([(0, 64), (64, 70), (70, 134), (134, 150)]):
        k, beta, n = keys()[start:end], inputs["Beta"][start:end], end - start
        lower = np.tril(beta[:, None] * (k @ k.T), -1)
        out[block, :n, :n] = -(np.linalg.inv(np.eye(n) + lower) * beta).T
    return {"T": out.ravel()}
"""


def delta_inverse() -> ExternalCase:
    return ExternalCase(
        "flashinfer",
        DELTA_INVERSE,
        DELTA_INVERSE_CASE.format(keys=keys()),
        {"reference.py": DELTA_KEYS + DELTA_INVERSE_REFERENCE},
    )


SQUARES = "out[row, :, 0] = np.maximum(x, 0) ** 2"
FLASHINFER: dict[str, ExternalCase] = {
    "experts-results": experts_results((128, 128)),
    "experts-results-wide": experts_results((128, 256), out="bf16"),
    "experts-results-apart": experts_results((64, 128), fused=False, out="bf16"),
    "experts-results-cluster": experts_results((128, 128), cluster=(1, 2), out="bf16"),
    "experts-swiglu": experts_inputs(
        (128, 128), "Swiglu", """up, gate = x.reshape(-1, 2, 32).swapaxes(0, 1).reshape(2, -1)
            out[row, :, 0] = up * gate / (1 + np.exp(-gate))""", half=True,
    ),
    "experts-squares": experts_inputs((64, 64), "Relu2", SQUARES),
    "experts-cluster": experts_inputs((128, 128), "Relu2", SQUARES, cluster=(2, 1)),
    "delta-rule": delta_rule(),
    "delta-rule-inverse": delta_inverse(),
    "delta-rule-plain": delta_rule(alpha=False, beta=False, first=False, dtype="f16"),
}  # fmt: skip
