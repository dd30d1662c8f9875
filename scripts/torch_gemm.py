# SPDX-License-Identifier: Apache-2.0
"""A corpus kernel inside a PyTorch extension, as a program to capture from. Needs PyTorch, nvcc and a Hopper GPU.

python scripts/torch_gemm.py            # builds the extension, and runs it
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.utils.cpp_extension import load_inline  # type: ignore[import-not-found,unused-ignore]

KERNEL = Path(__file__).resolve().parents[1] / "corpus" / "gemm_ws" / "gemm_ws.cu"
CUDA = f"""
#include "{KERNEL}"
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {{
    auto c = torch::empty({{a.size(0), b.size(0)}}, a.options().dtype(torch::kFloat));
    run_gemm_ws(a.size(0), b.size(0), a.size(1), static_cast<bf16*>(a.data_ptr()), static_cast<bf16*>(b.data_ptr()),
                c.data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
    return c;
}}
"""


def main() -> int:
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a+PTX")
    built = load_inline(
        "porter_gemm_ws", ["torch::Tensor gemm(torch::Tensor a, torch::Tensor b);"], [CUDA], functions=["gemm"],
        extra_cuda_cflags=["-O3"], extra_ldflags=["-lcuda"],
    )  # fmt: skip
    torch.manual_seed(0)
    a, b = (torch.randn(256, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        c = built.gemm(a, b)
    wrong = (c - a.float() @ b.float().T).abs().max().item()
    print(f"extension: largest difference from PyTorch's product {wrong:.3g}")
    return 0 if wrong < 1e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
