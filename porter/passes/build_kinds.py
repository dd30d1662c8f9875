# SPDX-License-Identifier: Apache-2.0
"""Which files say how sources are compiled, and what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

KINDS: Mapping[str, tuple[str, ...]] = {
    "make": ("Makefile", "makefile", "GNUmakefile", "*.mk", "Makefile.*"),
    "cmake": ("CMakeLists.txt", "*.cmake", "*.cmake.in", "CMakeLists.txt.in"),
    "presets": ("CMakePresets.json", "CMakeUserPresets.json"),
    "python": (
        "setup.py", "setup_*.py", "noxfile.py", "tasks.py", "build.py", "conanfile.py", "*_build.py", "build_*.py",
        "jit*.py", "*_jit.py", "SConstruct",
    ),
    "package": ("pyproject.toml", "setup.cfg", "meta.yaml", "tox.ini"),
    "shell": ("*.sh", "*.bash", "justfile", "Justfile"),
    "docker": (
        "Dockerfile", "Dockerfile.*", "*.dockerfile", "*.Dockerfile", "Containerfile", "docker-compose.y*ml",
        "compose.y*ml", "docker-bake.hcl",
    ),
    "workflow": (
        ".gitlab-ci.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", ".travis.yml", "Jenkinsfile", "action.y*ml",
        "*/.github/workflows/*.y*ml", "*/.circleci/*.y*ml", "*/.buildkite/*.y*ml",
    ),
    "meson": ("meson.build", "meson_options.txt", "meson.options"),
    "bazel": ("BUILD", "BUILD.bazel", "*.bzl", ".bazelrc", "WORKSPACE"),
}  # fmt: skip
"""Names of files that say how sources are compiled, by what reads them."""


def kind_of(path: str) -> str | None:
    """What reads a file of this name, None if it is no build file."""
    name = Path(path).name
    full = "/" + Path(path).as_posix().lstrip("/")
    for kind, patterns in KINDS.items():
        if any(fnmatch(full if "/" in p else name, p) for p in patterns):
            return kind
    return None
