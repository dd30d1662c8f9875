# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/terminal.svg, what the tool says on a terminal: `python docs/terminal_picture.py`."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
WIDTH, LINES = 112, 40
COMMANDS = (
    "porter port gemm_tma/gemm_tma.cu -o ported",
    "porter verify gemm_tma/gemm_tma.cu --port ported/gemm_tma.cu",
)
_STATUS = re.compile(r"\x1b\[\?25[lh]|\r|\x1b\[2K|\x1b\[1A|\x1b\[A")
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def said(command: str, folder: Path) -> str:
    """What a command writes on a terminal, colours included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, WIDTH, 0, 0))
    words = [sys.executable, "-m", *command.split()]
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    # messages and progress go elsewhere; results are the picture's
    running = subprocess.Popen(words, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    found = b""
    with suppress(OSError):  # the other end is closed
        while data := os.read(ours, 65536):
            found += data
    running.wait()
    os.close(ours)
    return _STATUS.sub("", found.decode())


def picture() -> str:
    """The picture as SVG, which asks nobody for a font."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "corpus" / "gemm_tma", folder / "gemm_tma")
        for command in COMMANDS:
            console.print(Text("$ ", "bold green") + Text(command, "bold"))
            console.print(Text.from_ansi(said(command, folder)))
    return _FONTS.sub("", console.export_svg(title="porter", theme=MONOKAI, unique_id="porter"))


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
