# SPDX-License-Identifier: Apache-2.0
"""Macros of CUTLASS's names that the sources define themselves: definition and use stay of one name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import GEMM, port_files, port_text

GUARD = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900\n"
HEAD, KERNEL = GEMM.split("__global__", 1)
DEFINED = [
    (f"{GUARD}#define {{0}} 1\n#endif\n", "#if defined({0})"),
    (f"{GUARD}#define {{0}}\n#endif\n", "#ifdef {0}"),
    ("#if !defined({0}) && __CUDA_ARCH__ >= 900\n#define {0} 1\n#endif\n", "#if defined({0})"),
    ("#ifndef {0}\n#define {0} 1\n#endif\n", "#if {0}"),
    (f"{GUARD}#  define {{0}} 1\n#endif\n", "#if defined {0} && 1"),
    (f"{GUARD}#define {{0}} 1\n#else\n#define {{0}} 0\n#endif\n", "#if {0}"),
    ("#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#define {0} 1\n#endif\n", "#if defined({0})"),
    (f"{GUARD}#define \\\n    {{0}} 1\n#endif\n", "#if defined({0})"),
    (f"{GUARD}#define {{0}} 1\n#endif\n#ifdef {{0}}\n#define OURS 1\n#endif\n", "#ifdef OURS"),
    (f"{GUARD}#undef {{0}}\n#define {{0}} 1\n#endif\n", "#if !defined({0})\n#else"),
]
NAMES = ["CUTLASS_ARCH_MMA_SM90_ENABLED", "CUTLASS_ARCH_MMA_SM90A_ENABLED", "CUTE_ARCH_MMA_SM90A_ENABLED"]


def _conditions(text: str) -> list[str]:
    return re.findall(r"(?:CUTLASS|CUTE)_ARCH_\w+", text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("definition", "use"), DEFINED)
def test_a_macro_of_the_sources_keeps_its_name(definition: str, use: str, name: str, tmp_path: Path) -> None:
    source = f"{definition}{HEAD}{use}\n__global__{KERNEL}#endif\n".replace("{0}", name)
    result = port_text(tmp_path, source)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert set(_conditions(result.files[result.sources.root].decode())) == {name}


@pytest.mark.parametrize("name", NAMES)
def test_of_a_header_as_well(name: str, tmp_path: Path) -> None:
    files = {
        "kernel.cu": f'#include "config.h"\n{HEAD}#ifdef {name}\n__global__{KERNEL}#endif\n',
        "config.h": f"#pragma once\n{GUARD}#define {name} 1\n#endif\n",
    }
    result = port_files(tmp_path, files)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert set(_conditions("".join(t.decode() for t in result.files.values()))) == {name}


@pytest.mark.parametrize("name", NAMES)
def test_one_of_the_library_is_replaced(name: str, tmp_path: Path) -> None:
    result = port_text(tmp_path, f"{HEAD}#ifdef {name}\n__global__{KERNEL}#endif\n")
    assert name not in result.files[result.sources.root].decode()
