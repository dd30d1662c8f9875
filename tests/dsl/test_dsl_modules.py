# SPDX-License-Identifier: Apache-2.0
"""The modules that a kernel imports: which are ported, which are copied, and that a port can be imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.lang.cute_dsl import SUPPORT
from porter.passes.dsl.outputs import support_module
from porter.passes.dsl.port import DslPortResult, port_python

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import cutlass\nimport cutlass.cute as cute\nfrom cutlass.cute.nvgpu.warpgroup import fence\n"
KERNEL = "@cute.kernel\ndef kernel():\n    fence()\n"
MMA = HEAD + "def multiply():\n    fence()\n"


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def port(root: Path, *search: Path) -> dict[str, str]:
    """Files of the port below the root's directory that are not as they were."""
    result = port_python(root, search=search)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return changed(result, root.parent)


def changed(result: DslPortResult, below: Path) -> dict[str, str]:
    old = result.sources.sources()
    new = {p: t.decode() for p, t in result.files.items() if old.get(p) != t}
    return {str(Path(p).relative_to(below)): t for p, t in new.items()}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installed package: `pkg.mma` multiplies, `pkg.use` calls it, `pkg.plain` has nothing to do with it."""
    return project(tmp_path / "site", {
        "pkg/__init__.py": "import cutlass\nfrom .mma import multiply\n",
        "pkg/mma.py": MMA + "from . import plain\n",
        "pkg/use.py": "from .mma import multiply\nfrom .plain import size\n",
        "pkg/plain.py": "size = 1\n",
        "pkg/deep/__init__.py": "",
        "pkg/deep/more.py": "from ..mma import multiply\nfrom ..plain import size as s\nfrom .. import plain, use\n",
        "pkg/top.py": "import pkg.mma\nimport pkg.plain\nx = pkg.mma.multiply, pkg.plain.size\n",
        "pkg/named.py": "import pkg.mma as m\nimport pkg.plain as p\nx = m.multiply, p.size\n",
        "alone.py": MMA,
        "unrelated/__init__.py": "import cutlass\n",
    })  # fmt: skip


DRIVERS = {
    "a name of a module": (
        "from pkg.mma import multiply\n", "from pkg_sm100.mma import multiply\n", {"mma.py"}
    ),
    "a module": ("from pkg import mma\n", "from pkg_sm100 import mma\n", {"mma.py"}),
    "two modules": (
        "from pkg import mma, plain  # both\n", "from pkg import plain  # both\nfrom pkg_sm100 import mma\n", {"mma.py"}
    ),
    "a module with a name": ("import pkg.mma as m\n", "import pkg_sm100.mma as m\n", {"mma.py"}),
    "a module in full": ("import pkg.mma\npkg.mma.multiply()\n", "import pkg_sm100.mma\npkg_sm100.mma.multiply()\n",
                         {"mma.py"}),
    "two modules in full": (
        "import pkg.mma\nimport pkg.plain\nx = pkg.mma.multiply, pkg.plain.size\n",
        "import pkg_sm100.mma, pkg\nimport pkg.plain\nx = pkg_sm100.mma.multiply, pkg.plain.size\n",
        {"mma.py"},
    ),
    "a module that imports one": ("import pkg.use as u\n", "import pkg_sm100.use as u\n", {"mma.py", "use.py"}),
    "a module below": (
        "from pkg.deep.more import plain\n", "from pkg_sm100.deep.more import plain\n",
        {"mma.py", "use.py", "deep/more.py", "deep/__init__.py"},
    ),
    "a name of the package": (
        "from pkg import multiply as m\n", "from pkg_sm100 import multiply as m\n", {"mma.py"}
    ),
    "a file": ("import alone\nalone.multiply()\n", "import alone_sm100 as alone\nalone.multiply()\n", None),
    "all of a file": ("from alone import *\n", "from alone_sm100 import *\n", None),
    "in a function": (
        "def f():\n    from pkg.use import size\n", "def f():\n    from pkg_sm100.use import size\n",
        {"mma.py", "use.py"},
    ),
    "for the checker of types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.mma import multiply\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg_sm100.mma import multiply\n",
        {"mma.py"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRIVERS)
def test_modules_of_an_installed_package_are_copied(tmp_path: Path, site: Path, name: str) -> None:
    before, after, copied = DRIVERS[name]
    root = project(tmp_path / "own", {"driver.py": before}) / "driver.py"
    files = port(root, site)
    assert files["driver.py"] == after
    expected = {f"pkg_sm100/{c}" for c in copied | {"__init__.py"}} if copied is not None else {"alone_sm100.py"}
    assert set(files) == {"driver.py", f"{SUPPORT}.py"} | expected
    assert files[f"{SUPPORT}.py"].encode() == support_module()


def test_imports_of_copies_are_absolute(tmp_path: Path, site: Path) -> None:
    root = project(tmp_path / "own", {"driver.py": "import pkg.deep.more, pkg.top, pkg.named\n"}) / "driver.py"
    files = port(root, site)
    assert "from porter_dsl import fence\n" in files["pkg_sm100/mma.py"]
    assert files["pkg_sm100/mma.py"].endswith("from pkg import plain\n")
    assert files["pkg_sm100/use.py"] == "from pkg_sm100.mma import multiply\nfrom pkg.plain import size\n"
    assert files["pkg_sm100/deep/more.py"] == (
        "from pkg_sm100.mma import multiply\nfrom pkg.plain import size as s\n"
        "from pkg import plain\nfrom pkg_sm100 import use\n"
    )
    assert "x = pkg_sm100.mma.multiply, pkg.plain.size\n" in files["pkg_sm100/top.py"]
    assert files["pkg_sm100/named.py"] == "import pkg_sm100.mma as m\nimport pkg.plain as p\nx = m.multiply, p.size\n"


def test_the_project_s_own_modules_keep_their_names(tmp_path: Path) -> None:
    folder = project(tmp_path, {
        "kernel.py": HEAD + "import helper\nfrom sub import other\n" + KERNEL,
        "helper.py": MMA + "import plain\n",
        "plain.py": "x = 1\n",
        "sub/__init__.py": "",
        "sub/other.py": "from helper import multiply\n",
        "unused.py": MMA,
    })  # fmt: skip
    result = port_python(folder / "kernel.py")
    assert set(changed(result, folder)) == {"kernel.py", "helper.py", "porter_dsl.py"}
    kept = {"plain.py", "sub/other.py"}
    assert {str(Path(p).relative_to(folder)) for p in result.files} >= kept | set(changed(result, folder))
    assert str(folder / "unused.py") not in result.files
    assert [d.code.id for d in result.diagnostics] == ["PT2552"]


@pytest.mark.parametrize("package", ["regular", "namespace", "relative"])
def test_a_root_in_a_package(tmp_path: Path, package: str) -> None:
    imports = "from .helper import multiply\n" if package != "namespace" else "from top.sub.helper import multiply\n"
    files = {"top/sub/kernel.py": HEAD + imports + KERNEL, "top/sub/helper.py": MMA}
    if package == "regular":
        files |= {"top/__init__.py": "from .sub import kernel\n", "top/sub/__init__.py": "'''Nothing.'''\n"}
    folder = project(tmp_path, files)
    result = port_python(folder / "top/sub/kernel.py")
    # without an `__init__.py`, a relative import needs one package alone
    support = "top/porter_dsl.py" if package == "relative" else "porter_dsl.py"
    assert set(changed(result, folder)) == {"top/sub/kernel.py", "top/sub/helper.py", support}
    if package == "regular":
        assert {str(Path(p).relative_to(folder)) for p in result.scaffold} == {"top/__init__.py", "top/sub/__init__.py"}
        assert b"extend_path" in result.scaffold[str(folder / "top/__init__.py")]
        assert b"Nothing" in result.scaffold[str(folder / "top/sub/__init__.py")]


def test_a_name_that_a_module_hands_on_is_edited_where_it_is_made(tmp_path: Path) -> None:
    folder = project(tmp_path, {
        "names.py": "import cutlass.cute as cute\nfrom cutlass.cute.nvgpu import warpgroup\n",
        "kernel.py": "from names import cute, warpgroup as wg\nwg.fence()\ncute.gemm(1)\n"
                     "cute.nvgpu.warpgroup.fence()\n",
        "starred.py": "from names import *\nwarpgroup.fence()\ncute.gemm(1)\n",
    })  # fmt: skip
    files = port(folder / "kernel.py")
    assert files["names.py"] == "import cutlass.cute as cute\nimport porter_dsl as warpgroup\n"
    assert files["kernel.py"].endswith(
        "from names import cute, warpgroup as wg\nwg.fence()\nporter_dsl.gemm(1)\nporter_dsl.fence()\n"
    )
    assert port(folder / "starred.py")["starred.py"].endswith("warpgroup.fence()\nporter_dsl.gemm(1)\n")


def test_packages_that_do_not_use_cutlass_are_not_followed(tmp_path: Path) -> None:
    site = project(tmp_path / "site", {"big/__init__.py": "from .x import *\n", "big/x.py": "warpgroup = 1\n"})
    root = project(tmp_path / "own", {"kernel.py": HEAD + "import big\n" + KERNEL}) / "kernel.py"
    assert set(port(root, site)) == {"kernel.py", "porter_dsl.py"}


def run_cli(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*words])
    return done.exit_code, done.output


def test_the_written_port_can_be_imported(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    root = project(tmp_path / "own", {"driver.py": "import helper\nfrom pkg.deep.more import multiply\n",
                                      "helper.py": MMA}) / "driver.py"  # fmt: skip
    out = tmp_path / "out"
    code, text = run_cli("port", str(root), "-o", str(out), "--no-compile")
    assert code == 0, text
    # stands for the package, which needs a moment to be imported
    fakes = project(tmp_path / "fakes", {
        "cutlass/__init__.py": "", "cutlass/cute/__init__.py": "", "cutlass/cute/nvgpu/__init__.py": "",
        "cutlass/cute/nvgpu/warpgroup.py": "fence = 1\n",
    })  # fmt: skip
    (out / "porter_dsl.py").write_text("fence = 2\n")
    program = "import driver as d; print(d.multiply.__module__, d.helper.fence, d.multiply.__globals__['fence'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=out, capture_output=True, text=True, check=False,
                          env={"PYTHONPATH": f"{fakes}:{site}"})  # fmt: skip
    assert done.stdout == "pkg_sm100.mma 2 2\n", done.stderr


def test_apply_changes_the_project_alone_and_a_second_run_nothing(tmp_path: Path, site: Path) -> None:
    root = project(tmp_path / "own", {"driver.py": "import helper\nfrom pkg.use import multiply\n",
                                      "helper.py": MMA}) / "driver.py"  # fmt: skip
    before = {p: p.read_bytes() for p in site.rglob("*.py")}
    words = ("port", str(root), "--apply", "--allow-dirty", "--no-compile", "-I", str(site))
    code, text = run_cli(*words)
    assert code == 0, text
    assert {p: p.read_bytes() for p in site.rglob("*.py")} == before
    written = {str(p.relative_to(root.parent)): p.read_bytes() for p in root.parent.rglob("*.py")}
    assert set(written) == {
        "driver.py", "helper.py", "porter_dsl.py", "pkg_sm100/__init__.py", "pkg_sm100/mma.py", "pkg_sm100/use.py",
    }  # fmt: skip
    code, text = run_cli(*words)
    assert code == 0, text
    assert "nothing to port" in text
    assert {str(p.relative_to(root.parent)): p.read_bytes() for p in root.parent.rglob("*.py")} == written


def test_a_file_in_the_support_module_s_place_is_not_overwritten(tmp_path: Path) -> None:
    root = project(tmp_path, {"kernel.py": HEAD + KERNEL, "porter_dsl.py": "mine = 1\n"}) / "kernel.py"
    result = port_python(root)
    assert [d.code.id for d in result.diagnostics] == ["PT2052"]
    assert int(result.exit_code) == 3
    assert not result.groups
    (tmp_path / "porter_dsl.py").write_bytes(support_module())
    assert int(port_python(root).exit_code) == 0


def test_roots_share_what_they_import(tmp_path: Path) -> None:
    folder = project(tmp_path / "own", {
        "a.py": HEAD + "import helper\n" + KERNEL, "b.py": HEAD + "import helper\n" + KERNEL, "helper.py": MMA,
    })  # fmt: skip
    out = tmp_path / "out"
    code, text = run_cli("port", str(folder / "a.py"), str(folder / "b.py"), "-o", str(out), "--no-compile")
    assert code == 0, text
    assert {p.name for p in out.iterdir()} == {"a.py", "b.py", "helper.py", "porter_dsl.py"}


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, {"own/kernel.py": HEAD + "import helper\n" + KERNEL, "own/helper.py": MMA})
    monkeypatch.chdir(tmp_path)
    assert set(port_python(Path("own/kernel.py")).files) == {"own/kernel.py", "own/helper.py", "own/porter_dsl.py"}
    monkeypatch.chdir(tmp_path / "own")
    assert set(port_python(Path("kernel.py")).files) == {"kernel.py", "helper.py", "porter_dsl.py"}


@pytest.mark.parametrize(("inside", "name"), [("pkg", "k.py"), ("pkg/sub", "../k.py"), (".", "pkg/../pkg/k.py")])
def test_the_support_module_lies_where_the_package_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, name: str
) -> None:
    empty = {"pkg/__init__.py": "", "pkg/sub/__init__.py": ""}
    project(tmp_path, {"pkg/k.py": HEAD + "from .helper import multiply\n" + KERNEL, "pkg/helper.py": MMA, **empty})
    monkeypatch.chdir(tmp_path / inside)
    code, text = run_cli("port", name, "-o", str(tmp_path / "out"), "--no-compile")
    assert code == 0, text
    assert (tmp_path / "out" / f"{SUPPORT}.py").is_file()
    assert f"import {SUPPORT}" in (tmp_path / "out" / "pkg" / "k.py").read_text()


def test_a_module_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    root = project(tmp_path, {"kernel.py": HEAD + "import bad\n" + KERNEL, "bad.py": "def (:\n"}) / "kernel.py"
    assert set(port(root)) == {"kernel.py", "porter_dsl.py"}


def test_plan_and_json_name_the_files_that_a_port_adds(tmp_path: Path) -> None:
    root = project(tmp_path, {"kernel.py": HEAD + KERNEL}) / "kernel.py"
    code, text = run_cli("plan", str(root))
    assert code == 0
    assert "porter_dsl.py" in text.replace("\n", "")


def test_apply_beside_committed_files(tmp_path: Path, site: Path) -> None:
    root = project(tmp_path / "own", {"driver.py": "from pkg.mma import multiply\n"}) / "driver.py"
    git = ["git", "-C", str(root.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    words = ("port", str(root), "--apply", "--no-compile", "-I", str(site))
    (root.parent / "pkg_sm100").mkdir()
    (root.parent / "pkg_sm100" / "mma.py").write_text("mine = 1\n")
    code, text = run_cli(*words)
    assert code == 2, text
    assert (root.parent / "pkg_sm100" / "mma.py").read_text() == "mine = 1\n"
    (root.parent / "pkg_sm100" / "mma.py").unlink()
    (root.parent / "pkg_sm100").rmdir()
    code, text = run_cli(*words)
    assert code == 0, text
    assert (root.parent / "pkg_sm100" / "mma.py").is_file()


def test_the_support_module_is_as_a_linter_wants_it(tmp_path: Path) -> None:
    """Its parts name what stands in others: the whole has nothing that is unknown or without use."""
    path = tmp_path / "porter_dsl.py"
    path.write_bytes(support_module())
    for command in (["check", "--no-cache", "--config"], ["format", "--check", "--no-cache", "--config"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(ROOT / "pyproject.toml"), str(path)], capture_output=True
        )
        assert done.returncode == 0, done.stdout


def test_parts_of_the_support_module_are_a_package_that_mypy_reads() -> None:
    """All of it is checked, and all but the lines that make it a package is in the module."""
    folder = ROOT / "mappings" / "emit" / "porter_dsl"
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert folder.relative_to(ROOT).as_posix() in read
    whole = support_module().decode()
    parts = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert whole.startswith(parts.pop("head.py"))
    assert "\n# ---" not in parts.pop("__init__.py")
    for text in parts.values():
        lines, _, body = text.partition("\n# --- ")
        assert body
        assert "# --- " + body in whole
        assert all(line.startswith(("#", '"""', "from ", "import ", "    ", ")")) for line in lines.split("\n") if line)
    assert "\nfrom ." not in whole
