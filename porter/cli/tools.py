# SPDX-License-Identifier: Apache-2.0
"""What `porter mcp` offers: each tool is a command with `--format json`, in its own process, with a time budget."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.build.trust import VARIABLE
from porter.diagnostics import Code, Location, PorterError
from porter.lang.sources import is_python
from porter.report import json as report_json
from porter.report.answers import answer, edit_groups
from porter.scan.draft.new import has_main
from porter.verify.case import cases_if_any

_MOST_SECONDS = 3600.0
_OF_VERDICT = 0.75
"""The share of its time after which a verification begins no new input family, and a comparison no new size."""

_OF_PROOF = 0.3
"""The share of its time that the proof of each of two programs may take."""
_MOST_PROOF = 10.0
_FOLDER = ".porter"
"""Where documents are kept to go on from, below the root."""
_DIGITS = 12


@dataclass(frozen=True)
class Tools:
    """`root`: paths lead from there, and none leads out. `seconds`: the budget of a call that names none. `trusted`:
    code that the sources bring along may run, as with `--trust`."""

    root: Path
    seconds: float
    toolkit: Path | None = None
    trusted: bool = False

    instructions = (
        "Porter ports NVIDIA Hopper (SM90a) kernels to Blackwell (SM100a) and proves the port without a GPU. In this "
        "order: scan what is there, case_new (drafts how to run it), plan, port into a directory, verify, hazards; "
        "review and grade say more of a port. exit_code 0 is good, 3 is what cannot be ported, 5 a difference or "
        "hazard, 6 no verdict. 6 is never a success: give more seconds, or resume. Answers are short; causes name what "
        "to fix first, and full=true gives the whole document. explain has the long text of every ID."
    )

    @property
    def all(self) -> Sequence[Callable[..., dict[str, Any]]]:
        return [*self.reading, *self.writing]

    @property
    def reading(self) -> Sequence[Callable[..., dict[str, Any]]]:
        """Tools that change no file of the project."""
        able = (self.scan, self.plan, self.verify, self.equal, self.hazards, self.grade, self.review, self.explain,
                self.map)  # fmt: skip
        return [_answered(tool) for tool in able]

    @property
    def writing(self) -> Sequence[Callable[..., dict[str, Any]]]:
        """Tools that write files, and replace none."""
        return [_answered(tool) for tool in (self.case_new, self.port)]

    def scan(self, paths: list[str], full: bool = False, seconds: float | None = None) -> dict[str, Any]:
        """List kernels and Hopper constructs of files or directories, and how much work a port is."""
        return self._run("scan", ["--", *self._paths(paths)], seconds, full)

    def plan(self, paths: list[str], full: bool = False, seconds: float | None = None) -> dict[str, Any]:
        """What a port would decide for each kernel: Tensor Memory, barriers, batches, and what is refused and why."""
        return self._run("plan", ["--", *self._paths(paths)], seconds, full)

    def case_new(self, kernel: str, entry: str | None = None, seconds: float | None = None) -> dict[str, Any]:
        """Write a draft of case.yaml beside a kernel: how to run it, with a reference. Check the lines that are
        guesses; verify says whether the reference is right (PT5020)."""
        words = ["--entry", entry] if entry else []
        words += [] if self.trusted else ["--no-run"]
        return self._run("case new", [*words, "--", *self._paths([kernel])], seconds)

    def port(
        self, paths: list[str], output: str, diff: bool = False, full: bool = False, seconds: float | None = None
    ) -> dict[str, Any]:
        """Port files or directories to SM100a into the directory `output`; originals stay. `diff`: with the diff of the
        sources. A case beside a kernel is run, which may bring M=128 MMAs, for half of `seconds` at most."""
        half = ["--seconds", f"{self._budget(seconds) / 2:g}", *self._proof(seconds)]
        return self._run("port", ["-o", *self._paths([output]), *half, "--", *self._paths(paths)], seconds, full, diff)

    def review(self, paths: list[str], rule: str | None = None, seconds: float | None = None) -> dict[str, Any]:
        """What a port of files changes and why, by rule, without writing it. `rule`: the texts of one rule's edits."""
        words = ["--seconds", f"{self._budget(seconds) / 2:g}", "--prove-seconds", "0"]
        return self._run("port", [*words, "--", *self._paths(paths)], seconds, brief=lambda d: edit_groups(d, rule))

    def verify(
        self,
        kernel: str,
        port: str | None = None,
        families: list[str] | None = None,
        resume: str | None = None,
        full: bool = False,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Run original and port of a kernel that has a case.yaml beside it on the same inputs, compare both with the
        reference, and look for hazards. Without `port` Porter makes one. `families`: input families, default all.
        `resume`: what an answer that ran out of time says, to go on from there."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--families", ",".join(families)] if families else []
        words += ["--resume", *self._paths([resume])] if resume else []
        (path,) = self._paths([kernel])
        self._require_no_program(path)
        if not port and cases_if_any(self.root / path):
            # what proves the port is cut short, not the verdict on it
            words += ["--seconds", f"{self._budget(seconds) * _OF_VERDICT:g}"]
        words += self._proof(seconds)
        return self._run("verify", [*words, *(["--full"] if full else []), "--", path], seconds, full)

    def equal(
        self, kernel: str, port: str | None = None, full: bool = False, seconds: float | None = None
    ) -> dict[str, Any]:
        """Whether a kernel that has a case.yaml beside it and its port leave the same, told from the PTX of both,
        without a run: each byte of the output has to be made of the same data by the same operations, at the sizes of
        the case. Without `port` Porter makes one (docs/equality.md)."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--seconds", f"{self._budget(seconds) * _OF_VERDICT:g}"]
        return self._run("equal", [*words, "--", *self._paths([kernel])], seconds, full)

    def hazards(
        self,
        path: str,
        port: str | None = None,
        level: str | None = None,
        prove: bool = False,
        full: bool = False,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Look for missing waits, fences, barriers and commits in a kernel with a case, and its port. Each cause names
        both places, the missing edge and the instruction that supplies it. `level` is `strict` or `practice`. `prove`:
        without a run, for every schedule and all turns (docs/proving.md)."""
        words = ["--port", *self._paths([port])] if port else []
        words += ["--level", level] if level else []
        words += ["--prove", "--seconds", f"{self._budget(seconds) * _OF_PROOF:g}"] if prove else []
        (given,) = self._paths([path])
        self._require_no_program(given)
        return self._run("hazards", [*words, "--", given], seconds, full)

    def grade(
        self,
        kernel: str,
        port: str | None = None,
        problem: str = "4096x4096x4096",
        full: bool = False,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """How near to its chip's nominal rate a kernel with a case and its port would come, and what holds them there.
        `problem`: MxNxK. The order and the limiting part can be trusted, rates cannot."""
        words = ["--port", *self._paths([port])] if port else []
        (path,) = self._paths([kernel])
        self._require_no_program(path)
        return self._run("grade", [*words, "--problem", problem, "--", path], seconds, full)

    def explain(self, id: str, full: bool = False) -> dict[str, Any]:
        """The long text of a diagnostic (PT2010), a rule (PTR110), a hazard (H14) or `exit-codes`."""
        return self._run("explain", ["--", id], None, full)

    def map(self, word: str, full: bool = False) -> dict[str, Any]:
        """What an instruction or a name of a library becomes on SM100a, under which conditions, by which rule."""
        return self._run("map", ["--", word], None, full)

    def _require_no_program(self, path: str) -> None:
        """A program with its own main() would be run, with the rights of the server. Raises NOT_TRUSTED."""
        found = self.root / path
        if self.trusted or not found.is_file() or found.suffix in (".yaml", ".ptx", ".json") or cases_if_any(found):
            return
        if is_python(found) or not has_main(found):
            return
        values = {"path": path, "what": "it has a main() of its own, which would be run"}
        raise PorterError(Code.NOT_TRUSTED, Location(path), **values)

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

    def _run(
        self,
        name: str,
        words: Sequence[str],
        seconds: float | None,
        full: bool = False,
        diff: bool = False,
        brief: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        budget = self._budget(seconds)
        toolkit = ["--toolkit", str(self.toolkit)] if self.toolkit else []
        asked = [sys.executable, "-m", "porter", "--format", "json", *toolkit, *name.split(), *words]
        environment = {**os.environ, **({VARIABLE: "1"} if self.trusted else {})}
        try:
            done = subprocess.run(
                asked,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=budget,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return _no_document(name, f"not done in {budget:g} seconds: give more, or ask for less")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            return _no_document(name, said)
        if full or found.get("kind", "error") == "error":
            return found
        if brief is not None and found["kind"] == "port":
            return brief(found)
        return {**answer(found, diff), **self._kept(found)}

    def _kept(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Where a document is kept that a later call can go on from: the name to give as `resume`."""
        spent = any(cause["id"] == Code.TIME_SPENT.id for cause in document.get("causes", ()))
        if document["kind"] != "verify" or not spent:
            return {}
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:_DIGITS]
        place = self.root / _FOLDER / f"verify-{digest}.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(report_json.dumps(document), "utf-8")
        return {"resume": str(place.relative_to(self.root))}


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
