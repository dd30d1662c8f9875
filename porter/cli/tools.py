# SPDX-License-Identifier: Apache-2.0
"""What `porter mcp` offers: each tool is a command with `--format json`, in its own process, with a time budget."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.diagnostics import Code, PorterError
from porter.report import json as report_json
from porter.verify.case import cases_if_any

_MOST_SECONDS = 3600.0
_OF_VERDICT = 0.75
"""The share of its time after which a verification begins no new input family, and a comparison no new size."""

_OF_PROOF = 0.3
"""The share of its time that the proof of each of two programs may take."""
_MOST_PROOF = 10.0


@dataclass(frozen=True)
class Tools:
    """`root`: paths lead from there, and none leads out. `seconds`: the budget of a call that names none."""

    root: Path
    seconds: float
    toolkit: Path | None = None

    instructions = (
        "Porter ports NVIDIA Hopper (SM90a) kernels to Blackwell (SM100a) and proves the port without a GPU. In this "
        "order: scan what is there, plan, port into a directory, verify the port with the kernel's case, hazards. A "
        "result is a JSON document; exit_code 0 is good, 3 is what cannot be ported, 5 a difference or hazard, 6 no "
        "verdict. 6 is never a success: give more seconds. explain has the long text of every ID."
    )

    @property
    def all(self) -> Sequence[Callable[..., dict[str, Any]]]:
        able = (self.scan, self.plan, self.port, self.verify, self.equal, self.hazards, self.explain, self.map)
        return [_answered(tool) for tool in able]

    def scan(self, paths: list[str], seconds: float | None = None) -> dict[str, Any]:
        """List kernels and Hopper constructs of files or directories, what each becomes, and how much work it is."""
        return self._run("scan", ["--", *self._paths(paths)], seconds)

    def plan(self, paths: list[str], seconds: float | None = None) -> dict[str, Any]:
        """What a port would decide for each kernel: Tensor Memory, barriers, batches, and what is refused and why."""
        return self._run("plan", ["--", *self._paths(paths)], seconds)

    def port(self, paths: list[str], output: str, seconds: float | None = None) -> dict[str, Any]:
        """Port files or directories to SM100a into the directory `output`; originals stay. The result has the diff, and
        each edit with its rule, reason and safety label. A case beside a kernel is run, which may bring M=128 MMAs, for
        half of `seconds` at most."""
        half = ["--seconds", f"{self._budget(seconds) / 2:g}", *self._proof(seconds)]
        return self._run("port", ["-o", *self._paths([output]), *half, "--", *self._paths(paths)], seconds)

    def verify(
        self, kernel: str, port: str | None = None, families: list[str] | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        """Run original and port of a kernel that has a case.yaml beside it on the same inputs, compare both with the
        reference, and look for hazards. Without `port` Porter makes one. `families`: input families, default all."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--families", ",".join(families)] if families else []
        (path,) = self._paths([kernel])
        if not port and cases_if_any(self.root / path):
            # what proves the port is cut short, not the verdict on it
            words += ["--seconds", f"{self._budget(seconds) * _OF_VERDICT:g}"]
        words += self._proof(seconds)
        return self._run("verify", [*words, "--", path], seconds)

    def equal(self, kernel: str, port: str | None = None, seconds: float | None = None) -> dict[str, Any]:
        """Whether a kernel that has a case.yaml beside it and its port leave the same, told from the PTX of both,
        without a run: each byte of the output has to be made of the same data by the same operations, at the sizes of
        the case. Without `port` Porter makes one (docs/equality.md)."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--seconds", f"{self._budget(seconds) * _OF_VERDICT:g}"]
        return self._run("equal", [*words, "--", *self._paths([kernel])], seconds)

    def hazards(
        self,
        path: str,
        port: str | None = None,
        level: str | None = None,
        prove: bool = False,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Look for missing waits, fences, barriers and commits in a kernel with a case, and its port. Causes group the
        pairs of accesses; each names both places, the missing edge and the instruction that supplies it. `level` is
        `strict` or `practice`. `prove`: without a run, for every schedule and all turns (docs/proving.md)."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--level", level] if level else []
        words += ["--prove", "--seconds", f"{self._budget(seconds) * _OF_PROOF:g}"] if prove else []
        return self._run("hazards", [*words, "--", *self._paths([path])], seconds)

    def explain(self, id: str) -> dict[str, Any]:
        """The long text of a diagnostic (PT2010), a rule (PTR110), a hazard (H14) or `exit-codes`."""
        return self._run("explain", ["--", id], None)

    def map(self, word: str) -> dict[str, Any]:
        """What an instruction or a name of a library becomes on SM100a, under which conditions, by which rule."""
        return self._run("map", ["--", word], None)

    def _paths(self, given: Sequence[str]) -> list[str]:
        """Paths as the command gets them. Raises BAD_OPTION for one that leads out of the root."""
        for path in given:
            if not (self.root / path).resolve().is_relative_to(self.root):
                problem = f"{path} leads out of {self.root}"
                raise PorterError(Code.BAD_OPTION, option="path", problem=problem)
        return [str((self.root / path).resolve().relative_to(self.root)) for path in given]

    def _budget(self, seconds: float | None) -> float:
        return min(max(seconds or self.seconds, 1.0), _MOST_SECONDS)

    def _proof(self, seconds: float | None) -> list[str]:
        """What each program's proof may take beside other checks."""
        return ["--prove-seconds", f"{min(_MOST_PROOF, self._budget(seconds) * _OF_PROOF / 4):g}"]

    def _run(self, name: str, words: Sequence[str], seconds: float | None) -> dict[str, Any]:
        budget = self._budget(seconds)
        toolkit = ["--toolkit", str(self.toolkit)] if self.toolkit else []
        asked = [sys.executable, "-m", "porter", "--format", "json", *toolkit, name, *words]
        try:
            done = subprocess.run(
                asked, cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=budget
            )
        except subprocess.TimeoutExpired:
            return _no_document(name, f"not done in {budget:g} seconds: give more, or ask for less")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            return _no_document(name, said)
        return found


def _answered(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A tool whose errors are answers, which servers would keep to themselves."""

    @functools.wraps(tool)
    def answer(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return tool(*args, **kwargs)
        except (OSError, ValueError) as error:
            # no path and no argument of a program has a NUL byte, or is as long as that
            wrong = PorterError(Code.BAD_OPTION, option=tool.__name__, problem=str(error))
            return report_json.error(list(wrong.diagnostics), wrong.exit_code)
        except PorterError as error:
            return report_json.error(list(error.diagnostics), error.exit_code)

    return answer


def _no_document(name: str, why: str) -> dict[str, Any]:
    """For a command that gave no result: no verdict."""
    return {"kind": name, "exit_code": 6, "status": "incomplete", "why": why}
