# SPDX-License-Identifier: Apache-2.0
"""Options of nvcc that take their architecture out of a list are named, whatever the list is written in."""

from __future__ import annotations

import time

import pytest

from porter.diagnostics import Code
from porter.passes.build_files import port_build_files
from porter.rules.engine import Selection
from porter.rules.load import load_rules

WORKFLOW = "jobs:\n  b:\n    strategy:\n      matrix:\n        sm: {}\n    steps:\n      - run: nvcc -arch={} x.cu\n"
LISTS = {
    "a loop of a shell": ("b.sh", "for a in sm_80 sm_90a; do\n  nvcc -arch=$a k.cu\ndone\n", 2),
    "an array of a shell": ("b.sh", 'ARCHS=(sm_80 sm_90a)\nfor a in "${ARCHS[@]}"; do nvcc -arch "$a" k.cu; done\n', 2),
    "numbers": ("b.sh", "for a in 80 90a; do\n  nvcc -arch=sm_${a} k.cu\ndone\n", 2),
    "a call in make": ("Makefile", "A = sm_80 sm_90a\ndefine r\nk: k.cu\n\tnvcc -arch=$(1) k.cu\nendef\n", 4),
    "a pattern in make": ("Makefile", "k-%: ; nvcc -arch=sm_$* k.cu\nall: k-80 k-90a\n", 1),
    "a pattern behind an underscore": ("Makefile", "k_%: ; nvcc -arch=sm_$* k.cu\nall: k_80 k_90a\n", 1),
    "a loop of CMake": (
        "CMakeLists.txt",
        "foreach(a sm_80 sm_90a)\n  add_compile_options(-arch=${a})\nendforeach()\n",
        2,
    ),
    "a list of CMake": (
        "CMakeLists.txt",
        "set(AS sm_80 sm_90a)\nforeach(a ${AS})\n  add_compile_options(-arch=${a})\nendforeach()\n",
        3,
    ),
    "a loop of Python": ("setup.py", 'for a in ["sm_80", "sm_90a"]:\n    flags.append(f"-arch={a}")\n', 2),
    "a comprehension": ("setup.py", 'AS = ("80", "90a")\nflags = ["-arch=sm_" + a for a in AS]\n', 2),
    "a loop of meson": ("meson.build", "foreach a : ['sm_80', 'sm_90a']\n  args += '-arch=' + a\nendforeach\n", 2),
    "a matrix": (".github/workflows/ci.yml", WORKFLOW.format('["sm_80", "sm_90a"]', "${{ matrix.sm }}"), 7),
    "a matrix of numbers": (".github/workflows/ci.yml", WORKFLOW.format("[80, 90a]", "sm_${{ matrix.sm }}"), 7),
    "a comprehension of Bazel": ("BUILD", 'x = [k(copts = ["-arch=" + a]) for a in ["sm_80", "sm_90a"]]\n', 1),
}
OTHERS = {
    "a tool of one target": ("b.sh", "for a in sm_80 sm_90a; do ptxas -arch=$a k.ptx; done\n"),
    "pairs": ("b.sh", "for a in 80 90a; do nvcc -gencode=arch=compute_$a,code=sm_$a k.cu; done\n"),
    "a variable of another chip": ("b.sh", "ARCH=sm_80\nLIST='80;90a'\nnvcc -arch=$ARCH k.cu\n"),
    "a list in a comment": ("b.sh", "# once for sm_90a too\nfor a in sm_80 sm_86; do nvcc -arch=$a k.cu; done\n"),
    "names of files": ("Makefile", "k.90a.o: k.cu\n\tnvcc -arch=$(ARCH) k.cu\n"),
}


def left(name: str, text: str, keep: bool) -> list[int]:
    made = port_build_files({name: text.encode()}, load_rules(()), Selection(), keep)
    assert {d.code for d in made.left} <= {Code.BUILD_FILE_LEFT}
    return [d.where.line for d in made.left if d.where is not None]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_an_option_that_a_list_fills_is_left_and_named(name: str, keep: bool) -> None:
    path, text, line = LISTS[name]
    assert line in left(path, text, keep)
    # of a list without Hopper nothing is said
    assert left(path, text.replace("90a", "89"), keep) == []


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name: str) -> None:
    assert left(*OTHERS[name], False) == []


def test_many_lines_take_no_time_and_large_files_are_named_as_one() -> None:
    begin = time.process_time()
    assert len(left("b.sh", "for a in sm_90a; do nvcc -arch=$a x.cu; done\n" * 4000, False)) == 4000
    assert time.process_time() - begin < 10
    assert left("b.sh", "nvcc -arch=sm_90a x.cu\n" * 50_000, False) == [1]
    assert left("b.sh", "nvcc -arch=sm_80 x.cu\n" * 50_000, False) == []
