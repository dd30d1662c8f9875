# SPDX-License-Identifier: Apache-2.0
"""The distribution: what it is called, what it needs, and that a wheel of it works where there is no repository."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import porter
from porter.build.packages import require_package
from porter.diagnostics import Code, PorterError
from porter.verify.program.fatbin import KIND_PTX, Image

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
_ASKED = re.compile(r"pip install\s+(?:-e\s+)?['\"]?(porter[\w.-]*)?(?:\[([\w,]+)\])?")


def test_the_name_is_not_the_strangers() -> None:
    assert PROJECT["name"] == porter.__distribution__ != "porter"
    assert PROJECT["scripts"] == {"porter": "porter.cli.main:main"}


def told() -> list[tuple[str, str, str]]:
    """(file, distribution, extras) of what texts tell people to install of Porter."""
    found = []
    for path in [*ROOT.glob("porter/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "action.yml"]:
        for match in _ASKED.finditer(path.read_text("utf-8")):
            if match[1] is not None:
                found.append((path.name, match[1], match[2] or ""))
    return found


def test_people_are_told_to_install_what_there_is() -> None:
    assert told()
    for file, name, extras in told():
        assert name == porter.__distribution__, file
        assert set(extras.split(",")) - {""} <= EXTRAS, file


def test_a_package_that_pip_left_out_is_named() -> None:
    program = "import sys; sys.modules['libcst'] = None; from porter.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "scan", "."], capture_output=True, text=True)
    assert done.returncode == int(Code.PACKAGE_MISSING.value.exit_code), done.stderr
    assert "porter scan needs the package libcst, which is not installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_pythons_that_are_named_are_those_that_are_allowed() -> None:
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={named[0]}"


GONE = (
    "ast.Num", "ast.Str", "ast.NameConstant", "ast.Ellipsis", "pkgutil.find_loader", "pkgutil.get_loader", ".utcnow(",
    ".utcfromtimestamp(", "ByteString", "codecs.open(", "getdefaultlocale", "event_loop_policy", "child_watcher",
    "URLopener", "importlib.abc.Resource", "importlib.abc.Traversable", "sqlite3.version", "pty.master_open",
    "import imp\n", "distutils", "import asyncore", "import pipes", "import cgi", "import crypt", "import imghdr",
    "multiprocessing.Pool(", "multiprocessing.Process(",
)  # fmt: skip
"""What Python 3.12 to 3.14 took away, changed under the same name, or warns that a later one will take away."""
OURS = [path for part in ("porter", "mappings", "docs", "scripts") for path in (ROOT / part).rglob("*.py")]


def used_of_older_pythons(text: str) -> list[str]:
    """Such names, archives unpacked without a filter, and jumps out of `finally`."""
    found = [name for name in GONE if name in text]
    if "extractall(" in text:
        found += re.findall(r"\bextractall\((?![^)]*filter=)", text)
    if "finally:" in text:
        tries = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Try))
        jumps = (n for t in tries for step in t.finalbody for n in ast.walk(step))
        found += [type(n).__name__ for n in jumps if isinstance(n, ast.Return | ast.Break | ast.Continue)]
    return found


def test_nothing_is_used_that_newer_pythons_take_away() -> None:
    assert {p.name: used for p in OURS if (used := used_of_older_pythons(p.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    try:\n        g()\n    finally:\n        return 1\n",
        "for x in y:\n    try:\n        g()\n    finally:\n        break\n",
        "isinstance(n, ast.Num)\n", "now = datetime.datetime.utcnow()\n", "import imp\n", "import distutils\n",
        "from typing import ByteString\n", "tar.extractall(path)\n", "multiprocessing.Pool(2)\n",
        "asyncio.get_event_loop_policy()\n", "pkgutil.find_loader('x')\n",
    ],
)  # fmt: skip
def test_what_newer_pythons_take_away_is_seen(text: str) -> None:
    assert used_of_older_pythons(text)


@pytest.mark.parametrize(("flag", "package"), [(0x2000, "lz4"), (0x8000, "zstandard")])
def test_a_compressed_image_names_the_extra_that_it_needs(
    flag: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str, *args: Any) -> Any:
        raise ImportError(name)

    image = Image(KIND_PTX, 90, flag, b"\xff\xff", 10)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        _ = image.data
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(PorterError) as raised:
        _ = Image(KIND_PTX, 90, flag, b"", 1).target
    assert raised.value.diagnostic.code is Code.PACKAGE_MISSING
    assert f"{package} (pip install 'porter-sm100[binaries]')" in raised.value.diagnostic.message


def test_a_package_that_is_there_is_given() -> None:
    assert require_package("json", "none", "a test").loads("1") == 1


def test_the_newest_version_of_the_changelog_is_the_packages() -> None:
    """While no version is released there is none in it, and then the tag `vX.Y.Z` is what this says."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]?", text, re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+\.\d+", porter.__version__)
    if released:
        assert released[0] == porter.__version__
    else:
        assert "No version is released." in text
    assert released == sorted(released, key=lambda v: tuple(map(int, v.split("."))), reverse=True)


def interpreters() -> dict[str, str]:
    """The other versions of Python that the package says it runs on, where they are installed."""
    stated = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in stated:
        places = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))]
        usable = [p for p in places if p is not None and version != own and _starts(p)]
        if usable:
            found[version] = usable[0]
    return found


def _starts(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_other_versions_of_python_make_the_same_port(tmp_path: Path) -> None:
    others = interpreters()
    if not others:
        pytest.skip("no other version of Python is installed")
    pip = ["-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "-w", tmp_path / "dist", ROOT], check=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    shutil.copytree(ROOT / "corpus" / "gemm_ws", tmp_path / "gemm")
    asked = ["-m", "porter", "port", "gemm/gemm_ws.cu", "--no-compile", "--no-config"]
    wanted = subprocess.run(
        [sys.executable, *asked], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    for version, python in others.items():
        folder = tmp_path / version
        subprocess.run([python, "-m", "venv", folder], check=True)
        own = folder / "bin" / "python"
        subprocess.run([own, *pip, "install", wheel], check=True)
        compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path / "pycache")}
        subprocess.run([own, "-W", "error", "-m", "compileall", "-q", ROOT / "porter"], check=True, env=compiled)
        made = subprocess.run([own, *asked], cwd=tmp_path, env={}, capture_output=True, check=True)
        assert made.stdout == wanted.stdout, version


@pytest.mark.slow
def test_a_wheel_scans_ports_and_verifies_outside_the_repository(tmp_path: Path) -> None:
    """In an environment of its own, with no CUDA but PyPI's."""

    def run(*words: str | Path, code: int = 0) -> str:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        asked = [str(word) for word in words]
        done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "dist", ROOT], check=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.startswith(f"porter_sm100-{porter.__version__}-py3-none-any")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    own = tmp_path / "env" / "bin"
    subprocess.run([own / "python", *pip[1:], "install", f"{wheel}[cuda]"], check=True)
    shutil.copytree(ROOT / "corpus" / "gemm_ws", tmp_path / "gemm")
    assert porter.__version__ in run(own / "porter", "--version")
    assert "wgmma.mma_async" in run(own / "porter", "scan", "gemm/gemm_ws.cu")
    run(own / "porter", "port", "gemm/gemm_ws.cu", "-o", "out")
    assert "tcgen05" in (tmp_path / "out" / "gemm_ws.cu").read_text()
    verdict = run(own / "porter", "verify", "gemm/gemm_ws.cu", "--port", "out/gemm_ws.cu", "--families", "integers")
    assert "verdict: clean" in verdict
    assert "PTR110" in run(own / "porter", "report", "gemm/gemm_ws.cu", "--no-run", "--format", "markdown")
