# SPDX-License-Identifier: Apache-2.0
import os

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a")

if torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0):
    raise RuntimeError("this extension needs a Hopper GPU")

setup(
    name="linear_relu",
    version="0.1",
    ext_modules=[
        CUDAExtension(
            "linear_relu",
            sources=["csrc/op.cpp", "csrc/kernel.cu"],
            extra_compile_args={
                "cxx": ["-O3"],
                "nvcc": ["-O3", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a"],
            },
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
