# SPDX-License-Identifier: Apache-2.0
"""SM100 programs built to run on a Hopper GPU: nvcc's own steps, with the PTX lowered on its way to ptxas.

`nvcc --dryrun` says what nvcc would run. Those commands are run one by one; of the ones that handle code for
SM100, ptxas gets the lowered PTX, and fatbinary and nvlink the architecture of Hopper. What is linked also
gets a host part that prepares the emulation before each launch.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from porter.build.run import failure, run
from porter.build.toolchain import Toolkit, find_host_compiler
from porter.diagnostics import Code, PorterError
from porter.hopper import LIBRARY_SOURCE, TRAPS, Site, lower
from porter.hopper.library import paste
from porter.hopper.lower import TARGET
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.verify.gpu.emulation import library_ptx

HOST_SOURCE = LIBRARY_SOURCE.parent / "host.cpp"
WRAPPED = (
    "__cudaLaunchKernel",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaGetDeviceProperties",
    "cudaDeviceGetAttribute",
)
"""Functions of the CUDA runtime that the program's calls of are sent to the host part."""

_BLACKWELL = re.compile(r"\b(?:sm|compute)_100[af]?\b")
_ARCH = re.compile(r"(?:--gpu-architecture|-arch)(?:=|$)")


@dataclass
class Built:
    """What was done: the commands run, the places in lowered code, and what had to be left out."""

    commands: list[str] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    lowered: int = 0


def build_program(arguments: Sequence[str], toolkit: Toolkit, mode: str = "deferred") -> Built:
    """Run nvcc with `arguments`, so that code for SM100 runs on Hopper.

    Raises:
        PorterError: NVCC_ERROR; PTXAS_ERROR; LINK_ERROR; CANNOT_EMULATE; PTX_UNREADABLE.
    """
    # nvcc looks for its libraries in lib64, which the packages from PyPI do not have.
    planned = run([toolkit.nvcc, "--dryrun", *_explicit(arguments), "-L", toolkit.lib_dir])
    if planned.status != 0:
        raise failure(Code.NVCC_ERROR, planned.log, path=" ".join(arguments), arch="sm_100a")
    with tempfile.TemporaryDirectory(prefix="porter-nvcc-") as name:
        steps = _Steps(toolkit, Path(name), mode)
        for line in planned.log.splitlines():
            if line.startswith("#$ "):
                steps.step(line[3:])
        return steps.built


def _explicit(arguments: Sequence[str]) -> list[str]:
    """The arguments with `-arch=sm_100a`, which also asks for other code, as code for SM100 alone."""
    result: list[str] = []
    words = iter(arguments)
    for word in words:
        if _ARCH.match(word):
            arch = word.partition("=")[2] or next(words, "")
            if _BLACKWELL.fullmatch(arch):
                number = arch.partition("_")[2]
                result.append(f"-gencode=arch=compute_{number},code=sm_{number}")
                continue
            word = f"-arch={arch}"
        result.append(word)
    return result


class _Steps:
    """Runs the commands of a dry run in order, in their environment."""

    def __init__(self, toolkit: Toolkit, directory: Path, mode: str) -> None:
        self.toolkit, self.directory, self.mode = toolkit, directory, mode
        self.environment: dict[str, str] = dict(os.environ)
        self.built = Built()

    def step(self, line: str) -> None:
        variable = re.match(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)$", line)
        if variable is not None:
            self.environment[variable.group(1)] = _expand(variable.group(2), self.environment)
            return
        words = shlex.split(_expand(line, self.environment))
        if not words:
            return
        tool = Path(words[0]).name
        if tool == "ptxas" and any(_BLACKWELL.search(w) for w in words[1:] if "arch" in w):
            if "-o" not in words:
                return  # A check of PTX that is lowered elsewhere.
            words = self._ptxas(words)
        elif tool in ("fatbinary", "nvlink"):
            words = [_for_hopper(w) for w in words]
        elif "-Wl,--start-group" in words:
            words = self._link(words)
        self._run(words, tool)

    def _run(self, words: Sequence[str], tool: str) -> None:
        self.built.commands.append(shlex.join(words))
        done = subprocess.run(
            words, capture_output=True, env=self.environment, text=True, errors="replace", check=False
        )
        if done.returncode != 0 and tool != "rm":
            code = Code.PTXAS_ERROR if tool == "ptxas" else Code.NVCC_ERROR
            raise failure(code, done.stdout + done.stderr, path=tool, arch=TARGET)

    def _ptxas(self, words: list[str]) -> list[str]:
        source = next(Path(w) for w in words if w.endswith(".ptx"))
        try:
            module = parse_module(source.read_text(encoding="utf-8", errors="surrogateescape"))
        except PtxSyntaxError as error:
            raise PorterError(Code.PTX_UNREADABLE, path=str(source), problem=error.message) from None
        result = [_BLACKWELL.sub(TARGET, w) if "arch" in w else w for w in words]
        lowered = lower(module, len(self.built.sites))
        text = paste(lowered.ptx, library_ptx(self.toolkit)) if lowered.sites else lowered.ptx
        self.built.sites += lowered.sites
        self.built.lowered += bool(lowered.sites)
        target = self.directory / source.name
        target.write_text(text, encoding="utf-8", errors="surrogateescape")
        return [str(target) if w == str(source) else w for w in result]

    def _link(self, words: list[str]) -> list[str]:
        texts = self.directory / "texts.inc"
        texts.write_text(_texts(self.built.sites), encoding="utf-8")
        part = self.directory / "porter_host.o"
        self._run(
            [
                str(find_host_compiler().path), "-O2", "-fPIC", "-c", f"-I{self.toolkit.include_dir}",
                f'-DPORTER_TEXTS="{texts}"', f'-DPORTER_DEFAULT_MODE="{self.mode}"', str(HOST_SOURCE), "-o", str(part),
            ],
            "g++",
        )  # fmt: skip
        at = words.index("-Wl,--start-group") + 1
        return [*words[:at], str(part), *words[at:], *(f"-Wl,--wrap={name}" for name in WRAPPED)]


def _expand(text: str, values: Mapping[str, str]) -> str:
    """Shell variables in a line of the dry run."""
    return re.sub(r"\$(\w+)", lambda m: values.get(m.group(1), ""), text).strip()


def _for_hopper(word: str) -> str:
    if word.startswith("--image3=kind=elf,sm=100"):
        return re.sub(r"sm=100[af]?", "sm=90a", word)
    if word.startswith(("--arch=", "-arch=")):
        return _BLACKWELL.sub(TARGET, word)
    return word


def _texts(sites: Sequence[Site]) -> str:
    """The table that the host part finds its words in, as a raw string literal."""
    lines = [f"code {number} {trap.text}" for number, trap in TRAPS.items()]
    for site in sites:
        place = f" ({site.loc.file}:{site.loc.line})" if site.loc is not None else ""
        lines.append(f"site {site.number} {site.kernel}: {site.opcode}{place}")
    # Compilers limit the length of one literal; adjacent ones are joined.
    pieces = ["\n".join(lines[i : i + 100]) for i in range(0, len(lines), 100)]
    return "".join(f'R"PORTER(\n{piece}\n)PORTER"\n' for piece in pieces)
