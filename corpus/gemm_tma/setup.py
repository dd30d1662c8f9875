# SPDX-License-Identifier: Apache-2.0
"""Torch extension: `pip install .`, then `from gemm_tma import gemm`."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="gemm_tma",
    ext_modules=[
        CUDAExtension(
            name="gemm_tma",
            sources=["bindings.cpp", "gemm_tma.cu"],
            extra_compile_args={
                "cxx": ["-O3"],
                "nvcc": ["-O3", "-std=c++17", "-lineinfo", "-gencode", "arch=compute_90a,code=sm_90a"],
            },
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
