# SPDX-License-Identifier: Apache-2.0
"""Building with the real compilers: toolkits, nvcc, ptxas, whole programs, a cache of what they made."""

from porter.build.cache import Cache
from porter.build.nvcc import CompiledPtx, CompileRequest, compile_ptx
from porter.build.program import Program, build_program
from porter.build.ptxas import Assembled, Resources, assemble
from porter.build.table import ResourceRow, compare
from porter.build.toolchain import Toolkit, find_toolkit, search_toolkits

__all__ = [
    "Assembled",
    "Cache",
    "CompileRequest",
    "CompiledPtx",
    "Program",
    "ResourceRow",
    "Resources",
    "Toolkit",
    "assemble",
    "build_program",
    "compare",
    "compile_ptx",
    "find_toolkit",
    "search_toolkits",
]
