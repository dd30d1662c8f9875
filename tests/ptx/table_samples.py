# SPDX-License-Identifier: Apache-2.0
"""Samples of instructions in a module for ptxas."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from instructions.samples import HEAD, REGISTERS, instructions, opcodes

__all__ = ["REGISTERS", "Batch", "find_ptxas", "instructions", "opcodes"]


def find_ptxas() -> Path | None:
    """ptxas of the installed `nvidia` compiler package."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in Path(folder).glob("*/bin/ptxas"):
            return found
    return None


class Batch:
    """Instructions in one module, a kernel for each, so that each can be refused by itself."""

    def __init__(self, target: str, version: str = "9.0") -> None:
        self.lines = (HEAD.format(version=version, target=target)).split("\n")
        self.target = target
        old = tuple(map(int, version.split("."))) < (8, 3)
        self.registers = REGISTERS.replace(".reg .b128 %q<99>;", "") if old else REGISTERS
        self.texts: list[str] = []
        self._at: dict[int, int] = {}

    def add(self, texts: Sequence[str]) -> None:
        """A kernel that holds these instructions."""
        self.lines.append(f".entry k{len(self.texts)}(.param .align 8 .b8 parameter[64]) {{")
        self.lines.extend(self.registers.strip().split("\n"))
        for text in texts:
            self.lines.append(text)
            self._at[len(self.lines)] = len(self.texts)
            self.texts.append(text)
        self.lines += ["END: ret;", "}"]

    def refused(self, ptxas: Path) -> dict[str, str]:
        """The instructions that ptxas refuses, each with its message."""
        # The last line is wrong on purpose: ptxas then reports every error and generates no code.
        source = "\n".join([*self.lines, ".entry last() { no_such_instruction; }"])
        run = subprocess.run(
            [ptxas, f"-arch={self.target}", "-", "-o", "/dev/null"],
            input=source,
            capture_output=True,
            text=True,
        )
        found: dict[str, str] = {}
        for line, message in re.findall(r"line (\d+); error\s*:\s*(.*)", run.stderr):
            index = self._at.get(int(line))
            if index is not None:
                found[self.texts[index]] = message
            else:
                assert int(line) == len(self.lines) + 1, (line, message, self.lines[int(line) - 1])
        assert "no_such_instruction" in run.stderr, run.stderr[:2000]
        return found
