# SPDX-License-Identifier: Apache-2.0
"""What `-o` writes: includes lead to the port's own files, with the options that are named and with no others."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from porter.build.run import run
from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.cli.main import main
from porter.diagnostics import ExitCode

OPS = """#pragma once
__device__ inline void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ inline void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
"""
KERNEL = """__global__ void k(float* c, unsigned long long a, unsigned long long b) {
    float d[4] = {0.f, 0.f, 0.f, 0.f};
    fence();
    mma(d, a, b);
    commit();
    wait();
    for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i];
}
"""
OTHER = re.sub(r"\b(fence|commit|wait|mma)\(", r"other_\1(", OPS)
SAME = "#pragma once\n#define SAME 1\n"
USE = 'static_assert(SAME == 1, "the header beside the kernel");\n'


def k(*includes: str) -> str:
    return "".join(f"#include {name}\n" for name in includes) + KERNEL


@dataclass(frozen=True)
class Variant:
    """A project (`-> x` is a link), what `port` is given, where the kernel's port is, and what is read of the originals
    all the same."""

    files: dict[str, str]
    given: str
    port: str
    left: tuple[str, ...] = ()


VARIANTS: dict[str, Variant] = {
    "nothing named from above": Variant({"src/k.cu": k('"o.h"'), "src/o.h": OPS}, "src/k.cu -I .", "k.cu"),
    "the project's root": Variant({"src/a/k.cu": k('"src/u/o.h"'), "src/u/o.h": OPS}, "src/a/k.cu -I .", "src/a/k.cu"),
    "in angle brackets": Variant({"src/a/k.cu": k("<src/u/o.h>"), "src/u/o.h": OPS}, "src/a/k.cu -I .", "src/a/k.cu"),
    "an absolute -I": Variant({"src/a/k.cu": k('"src/u/o.h"'), "src/u/o.h": OPS}, "src/a/k.cu -I {here}", "src/a/k.cu"),
    "a root above the working directory": Variant(
        {"work/x": "", "src/k.cu": k('"inc/o.h"'), "inc/o.h": OPS}, "../src/k.cu -I ..", "src/k.cu"
    ),
    "two directories, one in the other": Variant(
        {"p/src/a/k.cu": k('"src/u/o.h"', '"v/same.h"') + USE, "p/src/u/o.h": OPS, "p/src/v/same.h": SAME},
        "p/src/a/k.cu -I p -I p/src",
        "src/a/k.cu",
        ("p/src/v/same.h",),
    ),
    "a directory is given": Variant({"src/a/k.cu": k('"src/u/o.h"'), "src/u/o.h": OPS}, ". -I .", "src/a/k.cu"),
    "a directory whose files lie deeper": Variant({"src/a/k.cu": k('"o.h"'), "src/a/o.h": OPS}, ".", "src/a/k.cu"),
    "several files": Variant(
        {"a/k.cu": k('"u/o.h"'), "b/j.cu": k('"u/o.h"').replace(" k(", " j("), "u/o.h": OPS},
        "a/k.cu b/j.cu -I .",
        "b/j.cu",
    ),
    "a quoted header found through -I": Variant({"k.cu": k('"o.h"'), "inc/o.h": OPS}, "k.cu -I inc", "k.cu"),
    "an umbrella header": Variant(
        {"k.cu": k('"all.h"'), "inc/all.h": '#pragma once\n#include "o.h"\n', "inc/o.h": OPS}, "k.cu -I inc", "k.cu"
    ),
    "an umbrella that names from the root": Variant(
        {"src/k.cu": k('"l/all.h"'), "inc/l/all.h": '#pragma once\n#include "l/d/o.h"\n', "inc/l/d/o.h": OPS},
        "src/k.cu -I inc",
        "src/k.cu",
    ),
    "what stays as it is, beside the kernel": Variant(
        {"src/k.cu": k('"same.h"', '"o.h"') + USE, "src/same.h": SAME, "inc/o.h": OPS, "inc/same.h": "#error other\n"},
        "src/k.cu -I inc",
        "src/k.cu",
        ("src/same.h",),
    ),
    "a header of the system beside the kernel": Variant(
        {
            "src/k.cu": '#include <float.h>\n#include "same.h"\n'
            + USE
            + "static_assert(FLT_RADIX);\n"
            + OPS[13:]
            + KERNEL,
            "src/same.h": SAME,
            "src/float.h": "#error own\n",
        },
        "src/k.cu",
        "k.cu",
        ("src/same.h",),
    ),
    "the original of another header has the name": Variant(
        {
            "src/k.cu": k('"b/b.h"', '"o.h"') + USE,
            "src/b/b.h": '#pragma once\n#include "same.h"\n#include "o.h"\n',
            "src/b/same.h": SAME,
            "src/b/o.h": OTHER,
            "inc/o.h": OPS,
        },
        "src/k.cu -I inc",
        "src/k.cu",
    ),
    "the order of -I": Variant(
        {
            "src/k.cu": k('"a.h"', '"x/o.h"') + USE,
            "one/a.h": SAME,
            "two/a.h": OTHER,
            "two/x/o.h": OPS.replace("once", 'once\n#include "../a.h"'),
        },
        "src/k.cu -I one -I two",
        "src/k.cu",
        ("one/a.h",),
    ),
    "a path with ..": Variant({"s/a/k.cu": k('"../u/o.h"'), "s/u/o.h": OPS}, "s/a/k.cu", "a/k.cu"),
    ".. through a directory of which nothing is written": Variant(
        {"s/a/k.cu": k('"../x/../u/o.h"'), "s/u/o.h": OPS, "s/x/readme": ""}, "s/a/k.cu", "a/k.cu"
    ),
    ".. from -I": Variant({"s/k.cu": k('"../u/o.h"'), "s/v/u/o.h": OPS, "s/v/x/readme": ""}, "s/k.cu -I s/v/x", "k.cu"),
    "a link to a directory": Variant(
        {"src/k.cu": k('"p/o.h"'), "lib/u/o.h": OPS, "inc/p": "-> ../lib/u"}, "src/k.cu -I inc", "src/k.cu"
    ),
    "a link to a header": Variant(
        {"src/k.cu": k('"p/o.h"'), "lib/u/o.h": OPS, "inc/p/o.h": "-> ../../lib/u/o.h"}, "src/k.cu -I inc", "src/k.cu"
    ),
    "a header by two names": Variant(
        {"src/k.cu": k('"p/o.h"', '"../lib/u/o.h"'), "lib/u/o.h": OPS, "inc/p": "-> ../lib/u"},
        "src/k.cu -I inc",
        "src/k.cu",
    ),
    "-I is a link": Variant({"src/k.cu": k('"o.h"'), "lib/o.h": OPS, "inc": "-> lib"}, "src/k.cu -I inc", "src/k.cu"),
    "the kernel is a link": Variant(
        {"src/k.cu": "-> ../shared/k.cu", "shared/k.cu": k('"o.h"'), "src/o.h": OPS}, "src/k.cu", "src/k.cu"
    ),
    "a macro names the header": Variant(
        {"src/k.cu": '#define O "src/u/o.h"\n' + k("O"), "src/u/o.h": OPS}, "src/k.cu -I .", "src/k.cu"
    ),
    "compile_commands.json": Variant(
        {
            "src/k.cu": k('"o.h"', '"gen.h"') + USE,
            "build/gen/gen.h": SAME,
            "inc/o.h": OPS,
            "compile_commands.json": '[{"directory": ".", "file": "src/k.cu", "arguments": ["-Ibuild/gen", "-Iinc"]}]',
        },
        "src/k.cu",
        "src/k.cu",
        ("build/gen/gen.h",),
    ),
    "setup.py": Variant(
        {
            "c/a/k.cu": k('"c/u/o.h"'),
            "c/u/o.h": OPS,
            "setup.py": 'import setuptools\nsetuptools.setup(include_dirs=["."])\n',
        },
        "c/a/k.cu",
        "c/a/k.cu",
    ),
    "CMakeLists.txt": Variant(
        {"s/k.cu": k("<p/o.h>"), "i/p/o.h": OPS, "CMakeLists.txt": "target_include_directories(k PRIVATE i)\n"},
        "s/k.cu",
        "s/k.cu",
    ),
}


def make(folder: Path, files: dict[str, str]) -> Path:
    """A project, and the directory to work in."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text.removeprefix("-> "))
        else:
            path.write_text(text)
    (folder / ".git").mkdir()
    return folder / "work" if (folder / "work").is_dir() else folder


def port(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["port", "--style", "compat", *arguments])


def options_said(done: Result) -> list[str]:
    said = re.search(r"PT3021\]: .*: (.*)", done.stderr)
    return shlex.split(said[1]) if said else []


def project_files(listed: str, folder: Path) -> set[str]:
    paths = (Path(word).resolve() for word in re.findall(r"[^\s\\]+", listed.partition(":")[2]))
    return {str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder)}


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_includes_lead_to_the_port(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, folder = VARIANTS[name], tmp_path / "project"
    monkeypatch.chdir(make(folder, variant.files))
    done = port(*variant.given.format(here=folder).split(), "--no-compile", "-o", "OUT")
    assert done.exit_code == ExitCode.OK, done.output
    options = [word for word in options_said(done) if word != "-Xcompiler"]
    source = Path("OUT", variant.port)
    listed = subprocess.run(
        [find_host_compiler().path, "-M", "-x", "c++", *options, source], capture_output=True, text=True, check=True
    )
    read = project_files(listed.stdout, folder)
    out = str(Path("OUT").resolve().relative_to(folder))
    assert {path for path in read if not path.startswith(out)} == set(variant.left)
    texts = [(folder / path).read_text() for path in read]
    assert sum("tcgen05.mma" in text for text in texts) == 1
    assert not any("wgmma.mma_async" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_what_was_written_compiles_where_it_was_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, folder = VARIANTS[name], tmp_path / "project"
    monkeypatch.chdir(make(folder, variant.files))
    done = port(*variant.given.format(here=folder).split(), "-o", "OUT")
    assert done.exit_code == ExitCode.OK, done.output
    target = ["-std=c++17", "-gencode", "arch=compute_100a,code=sm_100a", "-c", "-o", str(tmp_path / "k.o")]
    result = run([find_toolkit().nvcc, *target, *options_said(done), str(Path("OUT", variant.port))], cwd=Path.cwd())
    assert result.status == 0, result.log


def test_the_gate_takes_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS["an umbrella header"]
    monkeypatch.chdir(make(tmp_path / "project", variant.files))
    for given in (("-o", "OUT"), ()):
        done = port(*variant.given.split(), *given)
        assert done.exit_code == ExitCode.OK, done.output
        assert "PT3012" not in done.output
    assert "PT3021" not in done.output


@pytest.mark.parametrize("name", ["the project's root", "an umbrella header"])
def test_other_commands_compile_the_same_port(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS[name]
    monkeypatch.chdir(make(tmp_path / "project", variant.files))
    done = CliRunner().invoke(main, ["build", *variant.given.split()])
    assert done.exit_code == ExitCode.OK, done.output


def test_an_absolute_name_leads_to_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    monkeypatch.chdir(make(folder, {"src/k.cu": k(f'"{folder}/src/o.h"'), "src/o.h": OPS}))
    done = port("src/k.cu", "-o", "OUT")
    assert done.exit_code == ExitCode.UNPORTED, done.output
    assert "PT3022" in done.output
    assert not Path("OUT").exists()
    assert port("src/k.cu", "--apply", "--allow-dirty").exit_code == ExitCode.OK
    assert "tcgen05" in Path("src/o.h").read_text()
