# SPDX-License-Identifier: Apache-2.0
"""quack's GEMM with other epilogues and other operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from external_case import ExternalCase

QUACK_FUSED = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
{imports}
from quack.tile_scheduler import TileSchedulerOptions
from quack.varlen_utils import VarlenArguments

{made}


@cute.jit
def gemm(
{parameters}    stream: cuda.CUstream,
):
    kernel = Kernel(cutlass.Float32, a.element_type, {tile}, (1, 1, 1){options})
{setting}    arguments = kernel.EpilogueArguments({arguments})
    kernel(a, b, d, {c}, arguments, TileSchedulerOptions({schedule}), {lengths}, stream)
"""
QUACK_FUSED_CASE = """
version: 1
kernel: driver.py
entry: gemm
include_dirs: ["{{root}}"]
sizes: {sizes}
dsl:
  dynamic: {dynamic}
  call: [{names}, stream]
tensors:
{tensors}reduction: K
reference: {{python: "reference.py:gemm"}}
magnitude: >-
  {magnitude}
exact: false
families: [normal, uniform]
"""
FUSED_REFERENCE = """import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope_of_gelu(x):
    z = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + z) + 0.5 * x * (1 - z * z) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


def gemm(inputs, sizes):
    a, b = inputs["A"], inputs["B"]
    {body}
"""
MADE = "Kernel = {epilogue}._mint({operands}, 9, {paired}, {packed}, (), RoundingMode.RN, (), {add})"


def quack_fused(
    tensors: Mapping[str, str],
    body: str,
    magnitude: str,
    imports: str,
    made: str,
    arguments: str = "",
    tile: tuple[int, int] = (128, 128),
    options: str = "",
    setting: str = "",
    c: str = "None",
    lengths: str = "None",
    dynamic: bool = False,
    sizes: str = "{M: 256, N: 256, K: 192}",
    schedule: str = "cutlass.Int32(2)",
) -> ExternalCase:
    """`tensors` are the arguments by name; `c` is one of them in lower case."""
    driver = QUACK_FUSED.format(
        imports=imports,
        made=made,
        tile=tile,
        options=options,
        setting=setting,
        arguments=arguments,
        c=c,
        lengths=lengths,
        schedule=schedule,
        parameters="".join(f"    {name.lower()}: cute.Tensor,\n" for name in tensors),
    )
    case = QUACK_FUSED_CASE.format(
        sizes=sizes,
        dynamic=str(dynamic).lower(),
        names=", ".join(tensors),
        magnitude=magnitude,
        tensors="".join(f"  {name}: {{{text}}}\n" for name, text in tensors.items()),
    )
    return ExternalCase("quack", driver, case, {"reference.py": FUSED_REFERENCE.format(body=body)})


def quack_library(
    epilogue: str,
    operands: tuple[tuple[str, str], ...] = (),
    paired: bool = False,
    packed: bool = False,
    add: bool = False,
    **fields: Any,
) -> ExternalCase:
    """A kernel with one of quack's epilogues."""
    function = epilogue.partition("(")[0]
    imports = f"from quack.epilogue.library import {function}\nfrom quack.rounding import RoundingMode"
    made = MADE.format(epilogue=epilogue, operands=operands, paired=paired, packed=packed, add=add)
    return quack_fused(imports=imports, made=made, **fields)


def quack_default(**fields: Any) -> ExternalCase:
    return quack_fused(
        imports="from quack.gemm_default_epi import GemmDefaultSm90", made="Kernel = GemmDefaultSm90", **fields
    )


INPUTS = {
    "A": "dtype: bf16, shape: [1, M, K], role: input",
    "B": "dtype: bf16, shape: [1, N, K], role: input",
}
OUTPUT = {"D": "dtype: bf16, shape: [1, M, N], role: output"}
PRODUCT = "np.einsum('lmk,lnk->lmn', A, B)"
PLAIN = "np.einsum('lmk,lnk->lmn', a, b)"
SEQUENCES = {
    "A": "dtype: bf16, shape: [M, K], role: input",
    "B": "dtype: bf16, shape: [2, N, K], role: input",
    "D": "dtype: bf16, shape: [M, N], role: output",
}
ROWS = [(7 * i + 3) % 200 for i in range(300)]
"""Of A, for each row of D."""

QUACK: dict[str, ExternalCase] = {
    "quack-epilogue": quack_default(
        tensors={
            **INPUTS, "C": "dtype: bf16, shape: [1, M, N], role: input", **OUTPUT,
            "Row": "dtype: f32, shape: [1, N], role: input", "Column": "dtype: f32, shape: [1, M], role: input",
        },
        c="c", tile=(128, 192), sizes="{M: 256, N: 384, K: 192}",
        arguments="alpha=cutlass.Float32(0.5), beta=cutlass.Float32(2.0), mRowVecBroadcast=row,"
        " mColVecBroadcast=column",
        body=f"""return {{
        "D": 0.5 * {PLAIN} + 2 * inputs["C"] + inputs["Row"][:, None] + inputs["Column"][..., None]
    }}""",
        magnitude=f"{{'D': {PRODUCT} + 2 * C + Row[:, None] + Column[..., None]}}",
    ),
    "quack-lengths": quack_default(
        tensors={**SEQUENCES, "Starts": "dtype: s32, shape: [3], role: scratch, fill: [0, 100, M]"},
        lengths="VarlenArguments(mCuSeqlensM=starts)", dynamic=True, sizes="{M: 300, N: 256, K: 192}",
        body="""return {"D": np.concatenate([a[:100] @ b[0].T, a[100:] @ b[1].T])}""",
        magnitude="{'D': np.einsum('mk,lnk->mn', A, B)}",
    ),
    "quack-gather": quack_default(
        tensors={
            **SEQUENCES, "A": "dtype: bf16, shape: [200, K], role: input",
            "Starts": "dtype: s32, shape: [3], role: scratch, fill: [0, 100, M]",
            "Rows": f"dtype: s32, shape: [M], role: scratch, fill: {ROWS}",
        },
        options=", gather_A=True", lengths="VarlenArguments(mCuSeqlensM=starts, mAIdx=rows)", dynamic=True,
        sizes="{M: 300, N: 256, K: 192}",
        body="""a = a[(7 * np.arange(300) + 3) % 200]
    return {"D": np.concatenate([a[:100] @ b[0].T, a[100:] @ b[1].T])}""",
        magnitude="{'D': np.max(A) * np.sum(np.max(B, axis=0), axis=-1) + np.zeros((M, N))}",
    ),
    "quack-lengths-of-sums": quack_default(
        tensors={
            "A": "dtype: bf16, shape: [M, K], strides: [1, M], role: input",
            "B": "dtype: bf16, shape: [N, K], strides: [1, N], role: input",
            "D": "dtype: bf16, shape: [2, M, N], role: output",
            "Starts": "dtype: s32, shape: [3], role: scratch, fill: [0, 100, K]",
        },
        lengths="VarlenArguments(mCuSeqlensK=starts)", dynamic=True, sizes="{M: 256, N: 128, K: 300}",
        body="""return {"D": np.stack([a[:, :100] @ b[:, :100].T, a[:, 100:] @ b[:, 100:].T])}""",
        magnitude="{'D': A @ np.transpose(B) + np.zeros((2, M, N))}",
    ),
    "quack-splits": quack_default(
        tensors={
            **INPUTS, **OUTPUT,
            "Turns": "dtype: s32, shape: [2, 2, 1], role: scratch, fill: 0",
            "Sums": "dtype: f32, shape: [128 * 128, 2, 2, 1], strides: [1, 32768, 16384, 65536],"
            " role: scratch, fill: 0",
        },
        options=", split_k=2", arguments="split_k_semaphore=turns, split_k_workspace=sums",
        sizes="{M: 256, N: 256, K: 384}", body=f"""return {{"D": {PLAIN}}}""", magnitude=f"{{'D': {PRODUCT}}}",
    ),
    "quack-queue": quack_default(
        tensors={**INPUTS, **OUTPUT, "Next": "dtype: s32, shape: [1], role: scratch, fill: 0"},
        schedule="cutlass.Int32(2), tile_count_semaphore=next.iterator",
        body=f"""return {{"D": {PLAIN}}}""", magnitude=f"{{'D': {PRODUCT}}}",
    ),
    "quack-transform": quack_fused(
        imports="from quack.gemm_default_epi import GemmDefaultSm90\n"
        "from quack.operand_transform.frontend import a_transform",
        made="Kernel = GemmDefaultSm90\n\n\n@a_transform(vec_size=2)\ndef squared(x):\n    return x * x",
        tensors={**INPUTS, **OUTPUT}, options=", transform_a=squared",
        # Squares are rounded to the operands' type.
        body="""return {"D": np.einsum('lmk,lnk->lmn', a * a, b)}""",
        magnitude="{'D': 8192 * np.einsum('lmk,lnk->lmn', A * A, B)}",
    ),
    "quack-symmetric": quack_fused(
        imports="from quack.gemm_symmetric import GemmSymmetricSm90", made="Kernel = GemmSymmetricSm90",
        tensors={
            "A": "dtype: bf16, shape: [1, M, K], role: input",
            "B": "dtype: bf16, shape: [1, M, K], role: input",
            "D": "dtype: bf16, shape: [1, M, M], role: output, fill: 0",
            "Mirrored": "dtype: bf16, shape: [1, M, M], strides: [M * M, 1, M], role: output, fill: 0",
        },
        arguments="mirrored", sizes="{M: 384, K: 192}",
        body=f"""full = {PLAIN}
    tile = np.arange(sizes["M"]) // 128
    lower = tile[:, None] >= tile
    return {{"D": np.where(lower, full, 0), "Mirrored": np.where(lower & ~lower.T, full, 0)}}""",
        magnitude=f"{{'D': {PRODUCT}, 'Mirrored': {PRODUCT}}}",
    ),
    "quack-gelu": quack_library(
        "linear_act_mod('gelu_tanh_approx', gated=False, has_c=True, has_rowvec=True, has_colvec=False)",
        (("c", "c"), ("mRowVecBroadcast", "row")),
        tensors={
            **INPUTS, **OUTPUT, "C": "dtype: bf16, shape: [1, M, N], role: input",
            "Row": "dtype: f32, shape: [1, N], role: input", "Act": "dtype: bf16, shape: [1, M, N], role: output",
        },
        c="c", arguments="mAuxOut=act, mRowVecBroadcast=row",
        body=f"""x = {PLAIN} + inputs["C"] + inputs["Row"][:, None]
    return {{"D": x, "Act": gelu(x)}}""",
        magnitude=f"{{'D': {PRODUCT} + C + Row[:, None], 'Act': 4096 * ({PRODUCT} + C + Row[:, None])}}",
    ),
    "quack-gelu-pingpong": quack_library(
        "linear_act_mod('gelu_tanh_approx', gated=False, has_c=False, has_rowvec=False, has_colvec=False)",
        tensors={**INPUTS, **OUTPUT, "Act": "dtype: bf16, shape: [1, M, N], role: output"},
        tile=(64, 128), options=", pingpong=True", arguments="mAuxOut=act",
        body=f"""x = {PLAIN}
    return {{"D": x, "Act": gelu(x)}}""",
        magnitude=f"{{'D': {PRODUCT}, 'Act': 4096 * {PRODUCT}}}",
    ),
    "quack-swiglu": quack_library(
        "linear_act_mod('swiglu', gated=True, has_c=False, has_rowvec=False, has_colvec=False)", paired=True,
        tensors={**INPUTS, **OUTPUT, "Act": "dtype: bf16, shape: [1, M, N // 2], role: output"},
        arguments="mAuxOut=act",
        body=f"""x = {PLAIN}
    gate, up = x[..., ::2], x[..., 1::2]
    return {{"D": x, "Act": gate * sigmoid(gate) * up}}""",
        magnitude=f"{{'D': {PRODUCT}, 'Act': 64 + 64 * {PRODUCT}[..., ::2] * {PRODUCT}[..., 1::2]}}",
    ),
    "quack-gelu-backward": quack_library(
        "dact_mod('gelu_tanh_approx')", (("c", "c"),),
        tensors={
            **INPUTS, **OUTPUT, "C": "dtype: bf16, shape: [1, M, N], role: input",
            "Act": "dtype: bf16, shape: [1, M, N], role: output",
        },
        c="c", arguments="mAuxOut=act",
        body=f"""c = inputs["C"]
    return {{"D": {PLAIN} * slope_of_gelu(c), "Act": gelu(c)}}""",
        magnitude=f"{{'D': 4096 * (1 + C) * {PRODUCT}, 'Act': 4096 + 4096 * C}}",
    ),
    "quack-swiglu-backward": quack_library(
        "dgated_mod('swiglu', has_scale=False, has_reduce=False)", (("c", "c"),), packed=True,
        tensors={
            **INPUTS, "D": "dtype: bf16, shape: [1, M, 2 * N], role: output",
            "C": "dtype: bf16, shape: [1, M, 2 * N], role: input",
            "Act": "dtype: bf16, shape: [1, M, N], role: output",
        },
        c="c", arguments="mAuxOut=act",
        setting="    kernel.cd_packed, kernel.implicit_dtype = 'n', c.element_type\n",
        body=f"""c, x = inputs["C"], {PLAIN}
    gate, up = c[..., ::2], c[..., 1::2]
    slope = sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
    found = np.stack([x * up * slope, x * gate * sigmoid(gate)], axis=-1)
    return {{"D": found.reshape(c.shape), "Act": gate * sigmoid(gate) * up}}""",
        magnitude=f"{{'D': 64 * (1 + np.max(C)) ** 2 * np.repeat({PRODUCT}, 2, axis=-1),"
        " 'Act': 64 * (1 + np.max(C)) ** 2 + np.zeros((1, M, N))}",
    ),
    "quack-added": quack_library(
        "rms_fused", (("weight", "row"),), add=True,
        tensors={
            **INPUTS, "D": "dtype: f32, shape: [1, M, N], role: output, fill: 1",
            "Weight": "dtype: f32, shape: [1, N], role: input",
            "Premult": "dtype: bf16, shape: [1, M, N], role: output",
            "Squares": "dtype: f32, shape: [1, M, N // 128], role: output",
        },
        arguments="weight=weight, premult=premult, sqsum=squares",
        body=f"""x = {PLAIN}
    squares = (x * x).reshape(*x.shape[:2], -1, 128).sum(axis=-1)
    return {{"D": 1 + x * inputs["Weight"][:, None], "Premult": x, "Squares": squares}}""",
        magnitude=f"{{'D': 1 + {PRODUCT} * Weight[:, None], 'Premult': {PRODUCT},"
        f" 'Squares': 256 * np.max({PRODUCT}) ** 2 + np.zeros((1, M, N // 128))}}",
    ),
}  # fmt: skip
