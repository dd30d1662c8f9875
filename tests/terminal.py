# SPDX-License-Identifier: Apache-2.0
"""`porter review` on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_QUESTION = re.compile(r"((?:Accept|Refuse) [^\[\n]*) \[y,n[^\]]*\]\?")


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, folder: Path, *args: str, editor: str = "true") -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "EDITOR": editor, "TERM": "dumb", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "porter", "review", "--no-compile", *args]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, close_fds=True
        )
        os.close(slave)
        self.text = ""

    def expect(self, text: str) -> None:
        """Read until the text stands there."""
        start, end = len(self.text), time.monotonic() + 60
        while text not in self.text[start:]:
            assert time.monotonic() < end, f"no {text!r} in {self.text[start:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 65536).decode()

    def next_question(self) -> str | None:
        """Read until something is asked: the question without its answers; None at the end."""
        start, end = len(self.text), time.monotonic() + 120
        while (asked := _QUESTION.search(self.text, start)) is None:
            assert time.monotonic() < end, f"no question in {self.text[start:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode()
                except OSError:
                    return None
            elif self.process.poll() is not None:
                return None
        return asked[1]

    def send(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def end(self) -> int:
        while select.select([self.master], [], [], 0.2)[0] or self.process.poll() is None:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode()
        os.close(self.master)
        return self.process.wait(30)
