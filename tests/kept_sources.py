# SPDX-License-Identifier: Apache-2.0
"""Sources that tests write, in directories named by their contents: a compiler's result is kept with the path of its
source, so that what lies in a temporary directory is compiled in every run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from porter.build.cache import default_directory


def kept(files: Mapping[str, bytes | str]) -> Path:
    """The directory that holds these files, by relative path, and nothing else."""
    data = {name: text.encode() if isinstance(text, str) else text for name, text in sorted(files.items())}
    digest = hashlib.sha256()
    for name, content in data.items():
        digest.update(b"%d %d " % (len(name.encode()), len(content)) + name.encode() + content)
    directory = default_directory() / "tests" / digest.hexdigest()[:24]
    for name, content in data.items():
        path = directory / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            written = path.with_name(f".{os.getpid()}-{path.name}")
            written.write_bytes(content)
            os.replace(written, path)
    return directory


def kept_folder(folder: Path) -> Path:
    """A copy of a folder, which nobody may change."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.parent.name != "__pycache__"]
    return kept({p.relative_to(folder).as_posix(): p.read_bytes() for p in files})
