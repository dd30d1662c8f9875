# SPDX-License-Identifier: Apache-2.0
"""When a program's build is taken from the cache. The compiler is the host's, which is fast, behind nvcc's options."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from porter.build.cache import Cache
from porter.build.program import build_program
from porter.build.toolchain import Toolkit, find_host_compiler
from porter.diagnostics import PorterError

NVCC = """#!/bin/sh
echo "$@" >> {log}
case " $* " in *" -c "*)
    for word; do
        case "$word" in -I*|-D*) options="$options $word";; esac
        case "$previous" in -MF) rule=$word;; -o) made=$word;; esac
        previous=$word
    done
    g++ -x c++ -c $options -MD -MF "$rule" -MT "$made" -o "$made" "$previous" ;;
*)
    for word; do case "$previous" in -o) echo built > "$word";; esac; previous=$word; done ;;
esac
"""


@dataclasses.dataclass
class Project:
    """A source with two headers, one included by the other, and what is compiled of it."""

    folder: Path
    toolkit: Toolkit
    cache: Cache
    log: Path

    def build(self, arch: str = "sm_90a", **options: object) -> list[str]:
        """The compiler calls of one more build."""
        before = self.log.read_text() if self.log.exists() else ""
        first, second = self.folder / "first", self.folder / "second"
        values: dict[str, Any] = {"include_dirs": [first, second], **options}
        build_program(
            self.folder / "p.cu", arch, self.folder / "p", toolkit=self.toolkit, cache=self.cache,
            **values,
        )  # fmt: skip
        after = self.log.read_text() if self.log.exists() else ""
        return after[len(before) :].splitlines()


@pytest.fixture
def project(toolkit: Toolkit, cache: Cache, tmp_path: Path) -> Project:
    try:
        find_host_compiler()
    except PorterError as error:
        pytest.skip(str(error))
    for name, text in {
        "p.cu": '#include "outer.h"\n#include <found.h>\nint main() { return INNER + FOUND; }\n',
        "outer.h": '#pragma once\n#include "inner.h"\n',
        "inner.h": "#define INNER 1\n",
        "unrelated.h": "#define UNRELATED 1\n",
        "first/empty": "",
        "second/found.h": "#define FOUND 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(NVCC.format(log=tmp_path / "log"))
    nvcc.chmod(0o755)
    return Project(tmp_path, dataclasses.replace(toolkit, nvcc=nvcc), cache, tmp_path / "log")


def edit(name: str, text: str) -> Callable[[Project], dict[str, object]]:
    def change(project: Project) -> dict[str, object]:
        (project.folder / name).write_text(text)
        return {}

    return change


def touched(project: Project) -> dict[str, object]:
    later = time.time() + 60
    for path in (*project.folder.glob("*.h"), project.folder / "p.cu"):
        os.utime(path, (later, later))
    return {}


def copied_anew(project: Project) -> dict[str, object]:
    shutil.copytree(project.folder / "second", project.folder / "kept")
    shutil.rmtree(project.folder / "second")
    shutil.copytree(project.folder / "kept", project.folder / "second")
    return {}


def damaged(project: Project) -> dict[str, object]:
    for path in project.cache.root.rglob("*"):
        if path.is_file() and "manifest" not in path.parts:
            path.write_bytes(b"?" + path.read_bytes()[1:])
    return {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda project: {}, id="nothing"),
        pytest.param(touched, id="times"),
        pytest.param(copied_anew, id="the same headers once more"),
        pytest.param(edit("unrelated.h", "#define UNRELATED 2\n"), id="a header that is not read"),
        pytest.param(edit("first/other.h", "int other;\n"), id="a header of another name"),
        pytest.param(edit("second/p.h", "int other;\n"), id="a header of another name found last"),
    ],
)
def test_no_compiler_runs_where_no_content_changed(
    project: Project, change: Callable[[Project], dict[str, object]]
) -> None:
    assert len(project.build()) == 2
    assert project.build(**change(project)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edit("p.cu", "int main() { return 0; }\n"), id="the source"),
        pytest.param(edit("outer.h", "#define INNER 3\n"), id="a header"),
        pytest.param(edit("inner.h", "#define INNER 4\n"), id="a header of a header"),
        pytest.param(edit("second/found.h", "#define FOUND 5\n"), id="a header of a search directory"),
        pytest.param(edit("first/found.h", "#define FOUND 6\n"), id="a new header found first"),
        pytest.param(lambda project: {"defines": ["MORE=1"]}, id="a macro"),
        pytest.param(lambda project: {"flags": ["-Xptxas=-O1"]}, id="an option"),
        pytest.param(lambda project: {"arch": "sm_100a"}, id="the architecture"),
        pytest.param(lambda project: {"std": "c++20"}, id="the language"),
        pytest.param(lambda project: {"lineinfo": False}, id="line information"),
        pytest.param(damaged, id="a damaged cache"),
    ],
)
def test_a_change_that_counts_is_compiled(project: Project, change: Callable[[Project], dict[str, object]]) -> None:
    project.build()
    assert any(" -c " in call for call in project.build(**change(project)))


@pytest.mark.parametrize("name", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CPATH"])
def test_the_compilers_environment_counts(project: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    project.build()
    monkeypatch.setenv(name, str(project.folder / "second"))
    assert project.build() != []


def test_another_compiler_counts(project: Project) -> None:
    project.build()
    newer = dataclasses.replace(project, toolkit=dataclasses.replace(project.toolkit, build="V99.9"))
    assert newer.build() != []


def test_a_library_links_anew_and_compiles_nothing(project: Project) -> None:
    project.build()
    (call,) = project.build(libraries=["m"])
    assert " -c " not in call


def test_results_stay_for_what_comes_back(project: Project) -> None:
    project.build()
    edit("inner.h", "#define INNER 7\n")(project)
    assert project.build() != []
    edit("inner.h", "#define INNER 1\n")(project)
    assert project.build() == []
