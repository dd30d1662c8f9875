# SPDX-License-Identifier: Apache-2.0
"""Trees whose headers lie in one directory that nobody names, and submodules that were not fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from porter.cli.main import main

KERNEL = (Path(__file__).parents[2] / "corpus" / "gemm_f16acc" / "gemm_f16acc.cu").read_text()
ONE = '#include "ops/kernel.cuh"\n'


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(command: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    more = ("--no-compile",) if command == "port" else ()
    outcome = CliRunner().invoke(main, ["--format", "json", command, str(folder), *more, *options])
    return outcome.exit_code, json.loads(outcome.stdout)


def ids(document: dict[str, Any]) -> list[str]:
    return [d["id"] for d in document["diagnostics"]]


PLACES = {
    "include, beside the sources": ("csrc/all.cu", "include/ops/kernel.cuh", ONE),
    "the project's own directory": ("csrc/all.cu", "ops/kernel.cuh", ONE),
    "src": ("test/all.cu", "src/ops/kernel.cuh", ONE),
    "above, of angles": ("a/b/all.cu", "a/ops/kernel.cuh", "#include <ops/kernel.cuh>\n"),
    "without a directory in its name": ("csrc/all.cu", "include/kernel.cuh", '#include "kernel.cuh"\n'),
}


@pytest.mark.parametrize("command", ["port", "plan"])
@pytest.mark.parametrize("name", PLACES)
def test_the_only_directory_is_taken(tmp_path: Path, name: str, command: str) -> None:
    source, header, text = PLACES[name]
    code, document = run(command, tree(tmp_path, {source: text, header: KERNEL}))
    assert code == 0, document
    assert "PT1010" in ids(document)
    assert not {"PT1005", "PT1007"} & set(ids(document))
    if command == "port":
        assert any(f["changed"] and f["path"].endswith(Path(header).name) for f in document["files"])


NOT_TAKEN = {
    "two have it": {"csrc/all.cu": ONE, "include/ops/kernel.cuh": KERNEL, "other/ops/kernel.cuh": KERNEL},
    "none of a build has it": {"csrc/all.cu": ONE, "elsewhere/deep/ops/kernel.cuh": KERNEL},
    "nobody has it": {"csrc/all.cu": ONE},
    "it goes up": {"csrc/all.cu": '#include "../ops/kernel.cuh"\n', "include/kernel.cuh": KERNEL},
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_in_doubt_is_asked_for(tmp_path: Path, name: str) -> None:
    code, document = run("port", tree(tmp_path, NOT_TAKEN[name]))
    assert code == 3, document
    assert "PT1005" in ids(document)
    assert "PT1010" not in ids(document)


def test_what_is_found_anyway_is_not_said(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"csrc/all.cu": ONE, "csrc/ops/kernel.cuh": KERNEL})
    code, document = run("port", folder)
    assert (code, "PT1010" in ids(document)) == (0, False)
    folder = tree(tmp_path / "two", {"csrc/all.cu": ONE, "include/ops/kernel.cuh": KERNEL})
    code, document = run("port", folder, "-I", str(folder / "include"))
    assert (code, "PT1010" in ids(document)) == (0, False)


def test_a_file_that_is_refused_does_not_hold_back_others(tmp_path: Path) -> None:
    refused = KERNEL.replace('"wgmma.mma', '"@p wgmma.mma')
    assert refused != KERNEL
    folder = tree(tmp_path / "in", {"bad/bad.cu": refused, "good/good.cu": KERNEL})
    code, document = run("port", folder, "-o", str(tmp_path / "out"))
    assert code == 3
    assert [Path(p).name for p in document["written"] if p.endswith(".cu")] == ["good.cu"]


MODULES = '[submodule "{0}"]\n\tpath = {0}\n\turl = https://example.com/x.git\n'


@pytest.mark.parametrize("where", [".", "src"])
def test_an_empty_submodule_is_named(tmp_path: Path, where: str) -> None:
    folder = tree(tmp_path, {".gitmodules": MODULES.format("third_party/lib") + MODULES.format("there"),
                             "src/k.cu": KERNEL, "there/file": "x"})  # fmt: skip
    (folder / "third_party" / "lib").mkdir(parents=True)
    document = run("port", folder / where)[1]
    found = [d for d in document["diagnostics"] if d["id"] == "PT1011"]
    assert ["third_party/lib" in json.dumps(d) for d in found] == [True]
    assert "git submodule update --init third_party/lib" in json.dumps(found)


@pytest.mark.parametrize(
    "text", ["", "[", "[submodule]\npath\n", '[submodule "a"]\n\turl = x\n', MODULES.format("../up")]
)
def test_other_texts_of_that_name_say_nothing(tmp_path: Path, text: str) -> None:
    assert "PT1011" not in ids(run("port", tree(tmp_path, {".gitmodules": text, "k.cu": KERNEL}))[1])
