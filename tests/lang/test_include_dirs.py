# SPDX-License-Identifier: Apache-2.0
"""Where headers are, by what build files say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from porter.lang.sources import load_sources
from porter.project.include_dirs import stated_directories

SETUP = "from setuptools import setup\n{}setup(ext_modules=[CUDAExtension('x', ['csrc/k.cu'], include_dirs={})])\n"
CMAKE = "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES CUDA)\n"
STATED: dict[str, dict[str, str]] = {
    "cmake: include_directories": {"CMakeLists.txt": CMAKE + "include_directories(include)\n"},
    "cmake: of a target": {"CMakeLists.txt": CMAKE + "target_include_directories(k PRIVATE include)\n"},
    "cmake: with words between": {
        "CMakeLists.txt": "target_include_directories(k SYSTEM\n ${CMAKE_CURRENT_LIST_DIR}/include # ours\n  )\n"
    },
    "cmake: for building and for installing": {
        "CMakeLists.txt": CMAKE
        + 'target_include_directories(k INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"\n'
        + "    $<INSTALL_INTERFACE:include2>)\n"
    },
    "cmake: a variable": {
        "CMakeLists.txt": "set(OURS ${CMAKE_SOURCE_DIR}/include /opt/none)\ninclude_directories(${OURS})\n"
    },
    "cmake: below the top": {"CMakeLists.txt": CMAKE, "csrc/CMakeLists.txt": "include_directories(../include)\n"},
    "cmake: the top's variable below": {
        "CMakeLists.txt": CMAKE,
        "csrc/CMakeLists.txt": "INCLUDE_DIRECTORIES(AFTER ${CMAKE_SOURCE_DIR}/include)\n",
    },
    "setup.py: a list": {"setup.py": SETUP.format("", "['include']")},
    "setup.py: beside the script": {
        "setup.py": SETUP.format(
            "import os\nhere = os.path.dirname(os.path.abspath(__file__))\n", "[os.path.join(here, 'include')]"
        )
    },
    "setup.py: a path": {
        "setup.py": SETUP.format(
            "from pathlib import Path\nROOT = Path(__file__).parent.resolve()\n", "[str(ROOT / 'include'), torch()]"
        )
    },
    "setup.py: an f-string and a sum": {
        "setup.py": SETUP.format("root = '.'\nours = [f'{root}/include']\n", "ours + cpp_extension.include_paths()")
    },
    "setup.py: a name of its own": {"setup.py": "include_dirs = []\ninclude_dirs.append('include')\nsetup()\n"},
    "setup.py: added to": {"setup.py": "include_dirs = get()\ninclude_dirs += ['include']\nsetup()\n"},
}  # fmt: skip
NOT_STATED: dict[str, dict[str, str]] = {
    "a comment of cmake": {
        "CMakeLists.txt": CMAKE + "# include_directories(include)\n#[[ include_directories(include) ]]\n"
    },
    "a directory that is not there": {"CMakeLists.txt": CMAKE + "include_directories(headers)\n"},
    "out of the project": {"CMakeLists.txt": CMAKE + "include_directories(/usr/include ../..)\n"},
    "a variable that is not known": {"CMakeLists.txt": CMAKE + "include_directories(${OURS}/include)\n"},
    "a script that does not parse": {"setup.py": "include_dirs = ['include'\n"},
    "a database that is none": {"compile_commands.json": "{"},
    "a database of other shapes": {"compile_commands.json": '[1, {"file": 2}, {"file": "csrc/k.cu", "command": "\'"}]'},
    "another file of the database": {
        "compile_commands.json": json.dumps([{"directory": ".", "file": "other.cu", "command": "nvcc -Iinclude"}])
    },
    "what a script runs": {"setup.py": SETUP.format("", "[subprocess.check_output('echo include')]")},
    "names that go round": {"setup.py": SETUP.format("a = b\nb = a\n", "[a]")},
}


def project(root: Path, files: dict[str, str]) -> Path:
    """`csrc/k.cu` with a header in `include`."""
    for name, text in {"csrc/k.cu": '#include "ops.impl"\n', "include/ops.impl": "struct Ops {};\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".git").mkdir()
    return root / "csrc" / "k.cu"


@pytest.mark.parametrize("name", STATED)
def test_build_files_state_where_headers_are(tmp_path: Path, name: str) -> None:
    source = project(tmp_path, STATED[name])
    assert stated_directories(source) == (tmp_path / "include",)
    assert str(tmp_path / "include" / "ops.impl") in load_sources(source).files


@pytest.mark.parametrize("name", NOT_STATED)
def test_what_is_not_said_is_not_guessed(tmp_path: Path, name: str) -> None:
    assert stated_directories(project(tmp_path, NOT_STATED[name])) == ()


@pytest.mark.parametrize(
    "flags",
    [
        "-Iinclude",
        "-I include",
        "-isystem include",
        "-isystem=include",
        "-iquote include",
        "-I../p/include",
        "-Xcompiler -O3 -Iinclude",
    ],
)
@pytest.mark.parametrize("where", ["", "build"])
def test_a_compilation_database(tmp_path: Path, flags: str, where: str) -> None:
    root = tmp_path / "p"
    source = project(root, {})
    (root / where).mkdir(exist_ok=True)
    entry = {"directory": str(root), "file": "csrc/k.cu"}
    command = f"nvcc {flags} -c csrc/k.cu"
    for form in ({"command": command}, {"arguments": command.split()}):
        (root / where / "compile_commands.json").write_text(json.dumps([entry | form]))
        assert stated_directories(source) == (root / "include",)
        (root / where / "compile_commands.json").unlink()


def test_directories_are_written_as_the_source_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, STATED["cmake: include_directories"])
    monkeypatch.chdir(tmp_path)
    assert stated_directories(Path("csrc/k.cu")) == (Path("include"),)
    assert set(load_sources(Path("csrc/k.cu")).files) == {"csrc/k.cu", "include/ops.impl"}
    monkeypatch.chdir(tmp_path / "csrc")
    assert stated_directories(Path("k.cu")) == (Path(os.pardir, "include"),)


def test_a_link_out_of_the_project_is_none_of_its_directories(tmp_path: Path) -> None:
    source = project(tmp_path / "p", {"CMakeLists.txt": "include_directories(linked)\n"})
    (tmp_path / "secret").mkdir()
    (tmp_path / "p" / "linked").symlink_to(tmp_path / "secret")
    assert stated_directories(source) == ()
