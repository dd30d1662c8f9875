# SPDX-License-Identifier: Apache-2.0
"""Torch extension with the forward kernel: `pip install .`."""

import os

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a")

setup(
    name="attention_fwd",
    version="0.1.0",
    ext_modules=[
        CUDAExtension(
            "attention_fwd",
            ["attention_fwd.cu", "bindings.cpp"],
            extra_compile_args={"cxx": ["-O3", "-std=c++17"], "nvcc": ["-O3", "-std=c++17"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
