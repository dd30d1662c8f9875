# SPDX-License-Identifier: Apache-2.0
"""Build and packaging files: what is for Hopper is rewritten, for both chips on request, or listed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM

from porter.cli.main import main
from porter.diagnostics import Code, ExitCode
from porter.passes.build_files import build_files_below, port_build_files
from porter.rules.engine import Selection
from porter.rules.load import load_rules

CAPABILITY = "torch.cuda.get_device_capability()"
GENCODE = "-gencode arch=compute_{0},code=sm_{0}"

# (file, the original, the port, the port for both chips); None: the line is listed
REWRITTEN = [
    ("Makefile", "F = -gencode arch=compute_90a,code=sm_90a\n", "F = -gencode arch=compute_100a,code=sm_100a\n",
     "F = -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100a,code=sm_100a\n"),
    ("Makefile", "F = -arch=sm_90a\n", "F = -gencode=arch=compute_100a,code=sm_100a\n",
     "F = -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_100a,code=sm_100a\n"),
    ("Makefile", "ARCH = sm_90a\nF = -arch=$(ARCH)\n",
     "ARCH = sm_100a\nF = -gencode=arch=$(subst sm_,compute_,$(ARCH)),code=$(ARCH)\n",
     "ARCH = sm_90a sm_100a\n"
     "F = $(foreach arch,$(ARCH),-gencode=arch=compute_$(subst sm_,,$(arch)),code=sm_$(subst sm_,,$(arch)))\n"),
    ("Makefile", "ARCH ?= 90a\nF = -arch sm_$(ARCH)\n",
     "ARCH ?= 100a\nF = -gencode arch=compute_$(ARCH),code=sm_$(ARCH)\n",
     "ARCH ?= 90a 100a\nF = $(foreach arch,$(ARCH),-gencode arch=compute_$(arch),code=sm_$(arch))\n"),
    ("build.sh", "ARCH=sm_90a\nnvcc -arch=$ARCH k.cu\n",
     "ARCH=sm_100a\nnvcc -gencode=arch=compute_${ARCH#sm_},code=$ARCH k.cu\n",
     'ARCH="sm_90a sm_100a"\n'
     'nvcc $(for arch in $ARCH; do echo "-gencode=arch=compute_${arch#sm_},code=sm_${arch#sm_}"; done) k.cu\n'),
    ("build.sh", "cmake -DCMAKE_CUDA_ARCHITECTURES=90a .\n", "cmake -DCMAKE_CUDA_ARCHITECTURES=100a .\n",
     'cmake -DCMAKE_CUDA_ARCHITECTURES="90a;100a" .\n'),
    ("build.sh", "export TORCH_CUDA_ARCH_LIST=9.0a\n", "export TORCH_CUDA_ARCH_LIST=10.0a\n",
     'export TORCH_CUDA_ARCH_LIST="9.0a;10.0a"\n'),
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 90a)\n", "set(CMAKE_CUDA_ARCHITECTURES 100a)\n",
     "set(CMAKE_CUDA_ARCHITECTURES 90a 100a)\n"),
    ("CMakeLists.txt", 'set(CMAKE_CUDA_ARCHITECTURES "80;90a")\n', 'set(CMAKE_CUDA_ARCHITECTURES "80;100a")\n',
     'set(CMAKE_CUDA_ARCHITECTURES "80;90a;100a")\n'),
    ("CMakeLists.txt", "set_target_properties(k PROPERTIES CUDA_ARCHITECTURES 90a-real)\n",
     "set_target_properties(k PROPERTIES CUDA_ARCHITECTURES 100a-real)\n",
     'set_target_properties(k PROPERTIES CUDA_ARCHITECTURES "90a-real;100a-real")\n'),
    ("CMakeLists.txt", "foreach(arch 80 90a)\n", "foreach(arch 80 100a)\n",
     "foreach(arch 80 90a 100a)\n"),
    ("arch.cmake", 'cuda_archs_loose_intersection(A "9.0a" "${CUDA_ARCHS}")\n',
     'cuda_archs_loose_intersection(A "10.0a" "${CUDA_ARCHS}")\n',
     'cuda_archs_loose_intersection(A "9.0a;10.0a" "${CUDA_ARCHS}")\n'),
    ("CMakePresets.json", '{"CMAKE_CUDA_ARCHITECTURES": "90a"}\n', '{"CMAKE_CUDA_ARCHITECTURES": "100a"}\n',
     '{"CMAKE_CUDA_ARCHITECTURES": "90a;100a"}\n'),
    ("setup.py", 'f = ["-gencode=arch=compute_90a,code=sm_90a"]\n', 'f = ["-gencode=arch=compute_100a,code=sm_100a"]\n',
     'f = ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_100a,code=sm_100a"]\n'),
    ("setup.py", 'f = ["-gencode", "arch=compute_90a,code=sm_90a"]\n',
     'f = ["-gencode", "arch=compute_100a,code=sm_100a"]\n',
     'f = ["-gencode", "arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_100a,code=sm_100a"]\n'),
    ("setup.py", 'os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"\n', 'os.environ["TORCH_CUDA_ARCH_LIST"] = "10.0a"\n',
     'os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a;10.0a"\n'),
    ("setup.py", f"ok = {CAPABILITY} == (9, 0)\n", f"ok = {CAPABILITY} == (10, 0)\n",
     f"ok = {CAPABILITY} in ((9, 0), (10, 0))\n"),
    ("setup.py", f"assert {CAPABILITY}[0] != 9\n", f"assert {CAPABILITY}[0] != 10\n",
     f"assert {CAPABILITY}[0] not in (9, 10)\n"),
    ("setup.py", f"major, minor = {CAPABILITY}\nif major==9: pass\n",
     f"major, minor = {CAPABILITY}\nif major==10: pass\n",
     f"major, minor = {CAPABILITY}\nif major in (9, 10): pass\n"),
    ("setup.py", f"cc = {CAPABILITY}\nn = cc[0] * 10 + cc[1]\nif (n) == (90): pass\n",
     f"cc = {CAPABILITY}\nn = cc[0] * 10 + cc[1]\nif (n) == (100): pass\n",
     f"cc = {CAPABILITY}\nn = cc[0] * 10 + cc[1]\nif (n) in ((90, 100)): pass\n"),
    ("setup.py", "if torch.cuda.get_device_properties(0).major == 9: pass\n",
     "if torch.cuda.get_device_properties(0).major == 10: pass\n",
     "if torch.cuda.get_device_properties(0).major in (9, 10): pass\n"),
    ("jit.py", 'a = "sm_90a"\nf = f"-arch={a}"\n',
     "a = \"sm_100a\"\nf = f\"-gencode=arch={a.replace('sm_', 'compute_')},code={a}\"\n", None),
    ("Dockerfile", "ENV TORCH_CUDA_ARCH_LIST=9.0a\n", "ENV TORCH_CUDA_ARCH_LIST=10.0a\n",
     "ENV TORCH_CUDA_ARCH_LIST=9.0a;10.0a\n"),
    (".gitlab-ci.yml", "  TORCH_CUDA_ARCH_LIST: '9.0a'\n", "  TORCH_CUDA_ARCH_LIST: '10.0a'\n",
     "  TORCH_CUDA_ARCH_LIST: '9.0a;10.0a'\n"),
    (".github/workflows/ci.yml", "    CUDAARCHS: 90a\n", "    CUDAARCHS: 100a\n", '    CUDAARCHS: "90a;100a"\n'),
    ("meson.build", "args = ['-gencode=arch=compute_90a,code=sm_90a']\n",
     "args = ['-gencode=arch=compute_100a,code=sm_100a']\n",
     "args = ['-gencode=arch=compute_90a,code=sm_90a', '-gencode=arch=compute_100a,code=sm_100a']\n"),
    ("BUILD.bazel", 'copts = ["-gencode=arch=compute_90a,code=sm_90a"],\n',
     'copts = ["-gencode=arch=compute_100a,code=sm_100a"],\n',
     'copts = ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_100a,code=sm_100a"],\n'),
    ("pyproject.toml", 'cmake.args = ["-DCMAKE_CUDA_ARCHITECTURES=90a"]\n',
     'cmake.args = ["-DCMAKE_CUDA_ARCHITECTURES=100a"]\n',
     'cmake.args = ["-DCMAKE_CUDA_ARCHITECTURES=90a;100a"]\n'),
]  # fmt: skip

ASKED = "import torch\n\nmajor, minor = torch.cuda.get_device_capability()\n"
LISTED = [
    ("setup.py", "flags = {(9, 0): HOPPER}[capability]\n"),
    ("setup.py", "if cc in [(9, 0)]: pass  # capability\n"),
    ("op.py", f"{ASKED}if 9 == major: run()\n"),
    ("op.py", f"{ASKED}if major > 9: raise RuntimeError\n"),
    ("op.py", f"{ASKED}if not major <= 9 or other: raise RuntimeError\n"),
    ("op.py", f"{ASKED}if major >= 9 and major < 10: run()\n"),
    ("op.py", f"{ASKED}if 9 <= major < 10: run()\n"),
    ("op.py", f"{ASKED}if major in range(9, 10): run()\n"),
    ("op.py", f"{ASKED}if (major, minor) >= (12, 0) or torch.cuda.get_device_capability() < (9, 1): run()\n"),
    ("op.py", f"{ASKED}match major:\n    case 9:\n        run()\n"),
    ("op.py", f"{ASKED}match major:\n    case 8 | 9:\n        run()\n    case _:\n        stop()\n"),
    ("op.py", f"{ASKED}kernel = {{8: old, 9: new}}[major]\n"),
    ("op.py", f"{ASKED}sm = major * 10 + minor\nKERNELS = {{80: old, 90: new}}\nKERNELS[sm]()\n"),
    ("setup.py", 'for arch in (80, 90):\n    f += [f"-gencode=arch=compute_{arch}a,code=sm_{arch}a"]\n'),
    ("CMakeLists.txt", "if(CUDA_ARCH EQUAL 90)\n"),
    ("CMakeLists.txt", 'if(CUDA_ARCHS MATCHES "9.0")\n'),
    ("Makefile", "ifeq ($(ARCH), 90)\nendif\n"),
    ("build.sh", 'if [ "$arch" -eq 90 ]; then\n'),
    ("Makefile", "ifeq ($(ARCH_MAJOR), 9)\n\tx == 9 arch\nendif\n"),
    ("build.sh", 'sm=90; nvcc -gencode "arch=compute_${sm}a,code=sm_${sm}a"\n'),
]

UNTOUCHED = [
    ("op.py", f"{ASKED}if major >= 9: run()\n"),
    ("op.py", f"{ASKED}if major == 9 or major == 10: run()\n"),
    ("op.py", f"{ASKED}match major:\n    case 9 | 10:\n        run()\n"),
    ("op.py", f"{ASKED}kernel = {{8: old, 9: new, 10: new}}[major]\n"),
    ("op.py", f"{ASKED}if major < 8 or not ready: stop()\n"),
    ("setup.py", 'version = "9.0"\nrequires = ["cuda==9.0", "torch>=2.9.0"]\n'),
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 80 90)\nset(X 0x90a)\nproject(k VERSION 9.0.1)\n"),
    ("setup.py", f"ok = {CAPABILITY} >= (9, 0)\nif size == 9: pass\n"),
    ("Makefile", "# built with -arch=sm90 once\nCOLOR = \\#90a\n"),
    ("pyproject.toml", 'requires = ["setuptools>=90"]\n'),
]


def _written_down() -> Iterator[tuple[str, str, str, list[int], str, list[int]]]:
    """The cases of build_files.txt: a name, a text, what becomes of it for Blackwell and for both chips ("" if it stays
    as it is), and which lines of it are listed."""
    for case in Path(__file__).with_name("build_files.txt").read_text().split("### ")[1:]:
        head, text = case.split("\n", 1)
        before, port, both = re.split(r"^--- (?=port|both)", text, flags=re.MULTILINE)
        made = [part.split("\n", 1) for part in (port, both)]
        yield (
            head,
            before,
            *(  # type: ignore[misc]
                field for said, after in made for field in (after, [int(n) for n in re.findall(r"\d+", said)])
            ),
        )


@pytest.mark.parametrize(("name", "before", "port", "port_left", "both", "both_left"), list(_written_down()))
def test_written_down(name: str, before: str, port: str, port_left: list[int], both: str, both_left: list[int]) -> None:
    for keep, after, lines in ((False, port, port_left), (True, both, both_left)):
        found = port_build_files({name: before.encode()}, load_rules(), Selection(), keep)
        assert found.files.get(name, b"").decode() == after
        assert [d.where.line for d in found.left if d.where is not None] == lines
        assert before != after


def built(name: str, text: str, keep: bool = False) -> tuple[str, list[Code]]:
    found = port_build_files({name: text.encode()}, load_rules(), Selection(), keep)
    return found.files.get(name, text.encode()).decode(), [d.code for d in found.left]


@pytest.mark.parametrize(("name", "before", "after", "both"), REWRITTEN)
def test_rewritten(name: str, before: str, after: str, both: str | None) -> None:
    assert built(name, before) == (after, [])
    made, left = built(name, before, keep=True)
    if both is None:
        assert left
        assert set(left) == {Code.BUILD_FILE_LEFT}
    else:
        assert (made, left) == (both, [])
        assert built(name, both, keep=True) == (both, [])


@pytest.mark.parametrize(("name", "text"), LISTED)
@pytest.mark.parametrize("keep", [False, True])
def test_listed(name: str, text: str, keep: bool) -> None:
    made, left = built(name, text, keep)
    assert made == text
    assert left
    assert set(left) == {Code.BUILD_FILE_LEFT}


def test_a_table_whose_values_are_ported_and_whose_keys_are_not() -> None:
    made, left = built("op.py", ASKED + 'name = {8: "sm_80", 9: "sm_90a"}[major]\n')
    assert made.endswith('{8: "sm_80", 9: "sm_100a"}[major]\n')
    assert left == [Code.BUILD_FILE_LEFT]


@pytest.mark.parametrize(("name", "text"), UNTOUCHED)
@pytest.mark.parametrize("keep", [False, True])
def test_untouched(name: str, text: str, keep: bool) -> None:
    assert built(name, text, keep) == (text, [])


def test_a_tree_s_build_files_are_found(tmp_path: Path) -> None:
    for name in (
        "Makefile",
        "csrc/CMakeLists.txt",
        ".github/workflows/ci.yml",
        "third_party/x/setup.py",
        "a/case.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(p.relative_to(tmp_path)) for p in build_files_below(tmp_path)]
    assert found == ["Makefile", ".github/workflows/ci.yml", "csrc/CMakeLists.txt"]


@pytest.mark.parametrize("option", [[], ["--keep-hopper"]])
def test_a_tree_with_what_is_left_over(option: list[str], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "csrc").mkdir(parents=True)
    (tree / "csrc" / "kernel.cu").write_text(GEMM)
    setup = f'import torch\nif {CAPABILITY} == (9, 0):\n    f = ["-gencode=arch=compute_90a,code=sm_90a"]\n'
    (tree / "setup.py").write_text(setup)
    command = ["port", str(tree), "-o", str(tmp_path / "port"), "--no-compile", *option]
    outcome = CliRunner().invoke(main, command)
    assert outcome.exit_code == ExitCode.OK, outcome.output
    ported = (tmp_path / "port" / "setup.py").read_text()
    assert "(10, 0)" in ported
    assert ("compute_90a" in ported) is bool(option)
    assert "compute_100a" in ported
    (tree / "setup.py").write_text(setup + "flags = {(9, 0): f}[torch.cuda.get_device_capability()]\n")
    outcome = CliRunner().invoke(main, command)
    assert outcome.exit_code == ExitCode.UNPORTED
    assert f"{tree}/setup.py:4" in outcome.output
    assert "PT2058" in outcome.output


def test_python_of_a_package_is_a_build_file_if_it_asks_for_the_gpu(tmp_path: Path) -> None:
    texts = {
        "pkg/__init__.py": f"import torch\nassert {CAPABILITY} == (9, 0)\n",
        "pkg/flags.py": 'FLAGS = ["-gencode=arch=compute_90a,code=sm_90a"]\n',
        "pkg/kernel.py": f"import cutlass\nassert {CAPABILITY} == (9, 0)\n",
        "pkg/other.py": "print('nothing here')\n",
        "build/CMakeCache.txt": "",
        "build/CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 90a)\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [p.name for p in build_files_below(tmp_path)] == ["__init__.py", "flags.py"]


def test_sources_beside_a_ported_one_are_no_build_files(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(GEMM)
    other = 'const char* kOption = "-arch=sm_90a";\n'
    (tmp_path / "other.cpp").write_text(other)
    command = ["port", str(tmp_path / "kernel.cu"), "-o", str(tmp_path / "port"), "--no-compile"]
    outcome = CliRunner().invoke(main, command)
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert not (tmp_path / "port" / "other.cpp").exists()


def test_a_variable_that_another_file_sets() -> None:
    files = {"config.mk": b"ARCH ?= sm_90a\n", "Makefile": b"include config.mk\nF = -arch=$(ARCH)\n",
             "CMakeLists.txt": b'set(F "-arch=${ARCH}")\n'}  # fmt: skip
    found = port_build_files(files, load_rules(), Selection())
    assert found.files["config.mk"] == b"ARCH ?= sm_100a\n"
    assert found.files["Makefile"].endswith(b"F = -gencode=arch=$(subst sm_,compute_,$(ARCH)),code=$(ARCH)\n")
    assert [str(d.where) for d in found.left] == ["CMakeLists.txt:1"]
    both = port_build_files(files, load_rules(), Selection(), keep_hopper=True)
    assert not both.files
    assert {str(d.where) for d in both.left} == {"config.mk:1", "Makefile:2", "CMakeLists.txt:1"}
