# SPDX-License-Identifier: Apache-2.0
"""The header with a port's helpers: where it lies, what it is called, who includes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kernels import GEMM, SYNC, compiles, port_files, port_text, wrapper

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.main import main
from porter.diagnostics import Code, ExitCode
from porter.passes.header import NAME
from porter.passes.helpers import Placement
from porter.passes.port import PortResult
from porter.verify.builder import PORT_ARCH

DEEP = GEMM.replace("wait<0>();\n    }\n", "wait<1>();\n    }\n    wait<0>();\n")
INCLUDE = f'#include "{NAME}"\n'


def porter(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def names(result: PortResult) -> set[str]:
    return {Path(p).name for p in result.files}


def one(result: PortResult) -> str:
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]
    return result.files[result.sources.root].decode()


def test_header_and_helpers_in_the_source_are_compiled_to_the_same(tmp_path: Path) -> None:
    text = GEMM.replace("#include <cstdint>\n", "")
    given = {"kernel.cu": f"// A kernel.\n{text}".replace("uint64_t", "unsigned long long")}
    made = port_files(tmp_path / "in", given)
    inline = port_files(tmp_path / "in", given, placement=Placement(inline=True))
    assert one(made).startswith(f"// A kernel.\n\n{INCLUDE}")
    assert "namespace tcgen05 {" not in one(made)
    assert one(inline).startswith("// A kernel.\n\n#include <cstdint>\n\n// ---- Tensor Memory")
    assert names(inline) == {"kernel.cu"}
    header = made.files[str(tmp_path / "in" / NAME)].decode()
    assert header.startswith("#pragma once\n")
    assert header.endswith(
        one(inline)[one(inline).index("// ---- ") :].split("}  // namespace tcgen05\n")[0] + "}  // namespace tcgen05\n"
    )
    assert compiles(made, tmp_path / "in", tmp_path / "a") == compiles(inline, tmp_path / "in", tmp_path / "b")


def test_line_ends_are_those_of_the_source(tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM.replace("\n", "\r\n"))
    for data in result.files.values():
        assert data.count(b"\n") == data.count(b"\r\n") > 0


@pytest.mark.parametrize("there", ["file", "directory", "broken link", "included from elsewhere", "another case"])
def test_a_name_that_is_taken_is_left_alone(tmp_path: Path, there: str) -> None:
    folder, text = tmp_path / "in", GEMM
    (folder / "other").mkdir(parents=True)
    if there == "file":
        (folder / NAME).write_text("// Somebody's.\n")
    elif there == "directory":
        (folder / NAME).mkdir()
    elif there == "broken link":
        (folder / NAME).symlink_to("nowhere")
    else:
        name = NAME if there == "included from elsewhere" else NAME.upper()
        (folder / "other" / name).write_text("#pragma once\n")
        text = f'#include "other/{name}"\n' + text
    result = port_files(folder, {"kernel.cu": text})
    assert '#include "kernel_tcgen05.cuh"\n' in one(result)
    assert str(folder / NAME) not in result.files
    compiles(result, folder, tmp_path / "out")


def test_names_run_on_and_run_out(tmp_path: Path) -> None:
    for name in (NAME, f"kernel_{NAME}"):
        (tmp_path / name).write_text("taken\n")
    assert '#include "kernel_tcgen05_2.cuh"\n' in one(port_text(tmp_path, GEMM))
    for n in range(2, 10):
        (tmp_path / f"kernel_tcgen05_{n}.cuh").write_text("taken\n")
    (tmp_path / "kernel.cu").write_text(GEMM)
    outcome = porter("port", tmp_path / "kernel.cu", "--no-compile")
    assert outcome.exit_code == ExitCode.USAGE
    assert "PT0004" in outcome.output


def test_files_that_need_the_same_share_it_and_others_get_their_own(tmp_path: Path) -> None:
    folder, alike, mixed = tmp_path / "in", tmp_path / "alike", tmp_path / "mixed"
    folder.mkdir()
    for name, text in (("a.cu", GEMM), ("b.cu", GEMM), ("c.cu", DEEP)):
        (folder / name).write_text(text)
    assert porter("port", folder / "a.cu", folder / "b.cu", "-o", alike, "--no-compile").exit_code == ExitCode.OK
    assert {p.name for p in alike.iterdir()} == {"a.cu", "b.cu", NAME}
    outcome = porter("port", folder, "-o", mixed)
    assert outcome.exit_code == ExitCode.OK, outcome.output
    written = {p.name for p in mixed.iterdir()}
    assert written == {"a.cu", "b.cu", "c.cu", "a_tcgen05.cuh", "b_tcgen05.cuh", "c_tcgen05.cuh"}
    assert "kRing = 2;" in (mixed / "c_tcgen05.cuh").read_text()
    assert "kRing = 1;" in (mixed / "a_tcgen05.cuh").read_text()
    assert (mixed / "a.cu").read_text() == (alike / "a.cu").read_text().replace(NAME, f"a_{NAME}")


def test_a_tree_is_ported_in_turns(tmp_path: Path) -> None:
    for name, text in (("a.cu", GEMM), ("b.cu", GEMM), ("c.cu", DEEP)):
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "-A"], check=True)
    subprocess.run(
        ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"], check=True
    )
    first = porter("port", tmp_path / "a.cu", "--apply", "--no-compile")
    assert first.exit_code == ExitCode.OK, first.output
    assert f"wrote {tmp_path / NAME}" in first.output
    header = (tmp_path / NAME).read_bytes()
    second = porter("port", tmp_path / "b.cu", "--apply", "--no-compile")
    assert second.exit_code == ExitCode.OK, second.output
    assert NAME not in second.output
    third = porter("port", tmp_path / "c.cu", "--apply", "--no-compile")
    assert third.exit_code == ExitCode.OK, third.output
    assert (tmp_path / NAME).read_bytes() == header
    assert f'#include "c_{NAME}"' in (tmp_path / "c.cu").read_text()
    again = porter("port", tmp_path, "--check")
    assert again.exit_code == ExitCode.OK, again.output
    for name in "abc":
        compile_ptx(CompileRequest(tmp_path / f"{name}.cu", PORT_ARCH, lineinfo=False))


SPLIT = {
    "src/kernel.cu": '#include "../lib/sync.cuh"\n#include "../lib/mma.cuh"\n'
    + GEMM.replace(SYNC, "").replace(wrapper(16), "").replace("#include <cstdint>\n", ""),
    "lib/sync.cuh": "#pragma once\n#include <cstdint>\n" + SYNC,
    "lib/mma.cuh": "#pragma once\n#include <cstdint>\n" + wrapper(16),
}


def written(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "src" / "kernel.cu"


def test_headers_that_do_not_include_each_other_include_it(tmp_path: Path) -> None:
    outcome = porter("port", written(tmp_path, SPLIT), "-o", tmp_path / "out")
    assert outcome.exit_code == ExitCode.OK, outcome.output
    made = {p.relative_to(tmp_path / "out").as_posix(): p.read_text() for p in (tmp_path / "out").rglob("*.cu*")}
    assert made.keys() == {*SPLIT, f"src/{NAME}"}
    assert INCLUDE in made["src/kernel.cu"]
    for header in ("sync", "mma"):
        assert f'#include "../src/{NAME}"\n' in made[f"lib/{header}.cuh"]
        alone = tmp_path / "out" / "lib" / f"{header}.cu"
        alone.write_text(f'#include "{header}.cuh"\n')
        compile_ptx(CompileRequest(alone, PORT_ARCH, lineinfo=False))


def test_a_header_inside_a_namespace_does_not_include_it(tmp_path: Path) -> None:
    root = SPLIT["src/kernel.cu"].replace('#include "../lib/mma.cuh"', 'namespace ops {\n#include "../lib/mma.cuh"\n}')
    root = root.replace("__global__", "using ops::mma;\n__global__")
    files = {**SPLIT, "src/kernel.cu": "#include <cstdint>\n" + root}
    files["lib/mma.cuh"] = wrapper(16)
    outcome = porter("port", written(tmp_path, files), "-o", tmp_path / "out")
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert NAME not in (tmp_path / "out/lib/mma.cuh").read_text()
    assert NAME in (tmp_path / "out/lib/sync.cuh").read_text()


def test_no_header_with_the_option(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(GEMM)
    outcome = porter("port", path, "--no-helper", "-o", tmp_path / "out")
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["kernel.cu"]
    text = (tmp_path / "out" / "kernel.cu").read_text()
    assert text.count("namespace tcgen05 {") == 1
    assert NAME not in text


def test_no_header_where_its_rule_is_off(tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM, ignore=("PTR160",))
    assert names(result) == {"kernel.cu"}


@pytest.mark.parametrize("inline", [True, False])
def test_what_is_new_beside_the_helpers_of_a_port_is_refused(tmp_path: Path, inline: bool) -> None:
    made = port_files(tmp_path, {"kernel.cu": GEMM}, placement=Placement(inline=inline))
    for path, data in made.files.items():
        Path(path).write_bytes(data)
    new = GEMM.replace("#include <cstdint>\n", "").replace(" kernel(", " second(")
    again = port_text(tmp_path, one(made) + "namespace other {\n" + new + "}\n")
    assert [d.code for d in again.diagnostics if d.severity.value == "error"] == [Code.HELPERS_THERE]
    where = next(d.where for d in again.diagnostics if d.code is Code.HELPERS_THERE)
    assert where is not None
    assert Path(where.path).name == ("kernel.cu" if inline else NAME)
    assert not again.changed
