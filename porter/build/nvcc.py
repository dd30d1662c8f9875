# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to PTX with nvcc: one kernel of a file, its template arguments chosen, cached by content."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.build.cache import Cache, digest
from porter.build.entry import (
    demangle,
    entries,
    kernel_names,
    matching,
    named,
    opened_namespaces,
    probe_text,
    take_probe,
)
from porter.build.host_headers import HostHeaders, host_headers
from porter.build.ptxas import Resources, assemble, refusal
from porter.build.run import CompilerMessage, failure, messages, run
from porter.build.toolchain import HostCompiler, Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, PorterError

DEFAULT_FLAGS = ("-DNDEBUG", "-O3", "--expt-relaxed-constexpr")
_UNIT = "porter_unit.cu"
_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Options and directories that nvcc and its host compiler take besides their command."""


@dataclass(frozen=True)
class CompileRequest:
    """What to compile.

    `entry` is the kernel's C++ name, with its namespaces or, where that is not ambiguous, without;
    `template_args` are C++ texts. Without `entry` the file is compiled as it is, with whatever kernels it
    instantiates itself. `defines` are `NAME` or `NAME=VALUE`. `quote_dirs` are searched for quoted includes only, in
    front of `include_dirs`.
    `assemble` runs ptxas too, for the resources.
    """

    source: Path
    arch: str
    entry: str | None = None
    template_args: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    lineinfo: bool = True
    std: str = "c++17"
    assemble: bool = False
    quote_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class CompiledPtx:
    """`entry` is the mangled name of the requested kernel (of the only one, if none was asked for; else
    None), `entries` all kernels of the module. `warnings` are those of nvcc, `ptxas_warnings` of ptxas.
    `stood_in` are the includes of host libraries that are not installed (`porter.build.host_headers`)."""

    ptx: str = field(repr=False)
    entry: str | None
    entries: tuple[str, ...]
    arch: str
    log: str = field(repr=False)
    warnings: tuple[CompilerMessage, ...] = ()
    resources: Resources | None = None
    ptxas_warnings: tuple[str, ...] = ()
    stood_in: tuple[str, ...] = ()

    @property
    def display_name(self) -> str:
        return demangle(self.entry) if self.entry else ""


def compile_ptx(request: CompileRequest, toolkit: Toolkit | None = None, cache: Cache | None = None) -> CompiledPtx:
    """Compile one kernel to PTX. Without `toolkit` the first of `search_toolkits` is used, without `cache`
    the user's.

    Raises:
        PorterError: FILE_NOT_FOUND; NO_TOOLKIT, NO_HOST_COMPILER; NVCC_ERROR with the place and text of the
            first error; PTXAS_ERROR likewise; ENTRY_NOT_FOUND, ENTRY_AMBIGUOUS.
    """
    if not request.source.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(request.source))
    toolkit = toolkit or find_toolkit()
    cache = cache or Cache.default()
    found, entry = _entry(request, toolkit, cache)
    ptx = found.ptx
    result = CompiledPtx(
        ptx=ptx,
        entry=entry,
        entries=entries(ptx),
        arch=request.arch,
        log=found.log,
        warnings=tuple(m for m in messages(found.log) if m.kind == "warning"),
        stood_in=found.stood_in,
    )
    if request.assemble:
        done = assemble(toolkit, ptx, request.arch, name=request.source.stem, cache=cache)
        result = replace(
            result,
            resources=done.resources.get(entry) if entry else None,
            ptxas_warnings=done.warnings,
        )
    return result


@dataclass(frozen=True)
class _Unit:
    """What nvcc made of one translation unit: PTX without the probe, and the name of the probe variable."""

    ptx: str
    log: str
    probe: str | None
    stood_in: tuple[str, ...]


def _entry(request: CompileRequest, toolkit: Toolkit, cache: Cache) -> tuple[_Unit, str | None]:
    """The unit of a request, and its mangled entry."""
    if request.entry is None:
        unit = _compile(request, "", toolkit, cache)
        present = entries(unit.ptx)
        return unit, present[0] if len(present) == 1 else None
    kernel = request.entry
    if request.template_args:
        kernel += f"<{', '.join(request.template_args)}>"
    result, refused = _first_accepted(request, kernel, toolkit, cache)
    if result is None:
        if request.template_args:
            raise _not_found(request, (), refused)
        return _by_name(request, refused, toolkit, cache)
    present = entries(result.ptx)
    found = matching(result.probe, present) if result.probe else []
    if len(found) == 1:
        return result, found[0]
    if not found:
        raise _not_found(request, present, result.log)
    raise PorterError(
        Code.ENTRY_AMBIGUOUS,
        path=str(request.source),
        entry=kernel,
        detail="\n".join(demangle(name) for name in found),
    )


def _first_accepted(request: CompileRequest, kernel: str, toolkit: Toolkit, cache: Cache) -> tuple[_Unit | None, str]:
    """The compilation of the first reading of the name that nvcc takes, and the log of the first refusal."""
    # Without arguments it may still be a template that has defaults for all.
    readings = [kernel] if request.template_args else [kernel, f"{kernel}<>"]
    refused: list[str] = []
    opened = opened_namespaces(request.source.read_text(encoding="utf-8", errors="replace"))
    for looked_up_in in [(), tuple(opened)] if opened else [()]:
        for reading in readings:
            try:
                unit = probe_text(reading, looked_up_in)
                return _compile(request, unit, toolkit, cache), ""
            except _ProbeRefused as refusal:
                refused.append(refusal.log)
    return None, refused[0]


def _by_name(request: CompileRequest, refused: str, toolkit: Toolkit, cache: Cache) -> tuple[_Unit, str | None]:
    """Find the kernel among those that the file instantiates itself, whatever its namespace."""
    assert request.entry is not None
    unit = _compile(request, "", toolkit, cache)
    present = entries(unit.ptx)
    found = named(present, request.entry)
    if len(found) == 1:
        return unit, found[0]
    if not found:
        raise _not_found(request, present, refused)
    raise PorterError(
        Code.ENTRY_AMBIGUOUS,
        path=str(request.source),
        entry=request.entry,
        detail="\n".join(demangle(name) for name in found),
    )


def _not_found(request: CompileRequest, present: Sequence[str], log: str) -> PorterError:
    written = kernel_names(request.source.read_text(encoding="utf-8", errors="replace"))
    candidates = [demangle(name) for name in present] or written
    kernel = request.entry or ""
    if request.template_args:
        kernel += f"<{', '.join(request.template_args)}>"
    listed = "".join(f"\n  {name}" for name in candidates) or " none"
    return PorterError(
        Code.ENTRY_NOT_FOUND,
        path=str(request.source),
        entry=kernel,
        detail=f"Kernels in this file:{listed}\n{log}".strip(),
    )


class _ProbeRefused(Exception):
    """nvcc refused nothing but the line that names the kernel."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def _compile(request: CompileRequest, probe_unit: str, toolkit: Toolkit, cache: Cache) -> _Unit:
    made = translate(request, [f"-arch={request.arch}", "-ptx"], "unit.ptx", toolkit, cache, unit=probe_unit)
    ptx, probe = take_probe(made.text)
    return _Unit(ptx, made.log, probe, made.stood_in)


@dataclass(frozen=True)
class Translated:
    """What nvcc wrote, what it said, and the includes of absent host libraries."""

    text: str
    log: str
    stood_in: tuple[str, ...]


def translate(
    request: CompileRequest,
    how: Sequence[str],
    product: str,
    toolkit: Toolkit,
    cache: Cache,
    unit: str = "",
    keep: Callable[[str], str] = str,
    kept: Sequence[str] = (),
) -> Translated:
    """Have nvcc make `product` of a file, with `unit` behind it, as the options `how` say. Of what it writes `keep`
    takes what is cached, which `kept` tells.

    Raises:
        PorterError: NO_HOST_COMPILER; BAD_OPTION; NVCC_ERROR, PTXAS_ERROR.
    """
    source = request.source.absolute()
    unit = f'#include "{source.as_posix()}"\n' + unit
    options = common_flags(request.std, request.include_dirs, request.defines, request.flags, request.lineinfo)
    for directory in request.quote_dirs:
        _require_plain("-iquote", str(directory))
        options += ["-Xcompiler", "-iquote", "-Xcompiler", str(directory.absolute())]
    absent = host_headers(source, request.include_dirs, request.quote_dirs)
    flags = [*how, *options, *absent.flags]
    host = find_host_compiler()
    command = digest(["nvcc 2", *compilers(toolkit, host), *flags, *kept, "", unit, *absent.texts])
    key = cache.lookup(command)
    stored = cache.get(key) if key else None
    if stored is None:
        text, log, files = _run_nvcc(toolkit, flags, unit, str(host.path), request, source, absent, product)
        text = keep(text)
        stood_in = absent.used(files)
        files = [f for f in files if absent.FOLDER not in f.parts]
        own = [d.absolute() for d in (source.parent, *request.quote_dirs, *request.include_dirs)]
        searched = [*own, toolkit.include_dir]
        key = cache.remember(command, files, absent=shadowing(files, searched, stood_in))
        data = {"ptx": text, "log": log, "stood_in": stood_in}
        cache.put(key, json.dumps(data).encode("utf-8", "surrogateescape"))
    else:
        data = json.loads(stored)
        text, log, stood_in = data["ptx"], data["log"], tuple(data["stood_in"])
    return Translated(text, log, stood_in)


def _require_plain(option: str, text: str) -> None:
    if re.search(r"[`$]", text):
        raise PorterError(Code.BAD_OPTION, option=option, problem=f"nvcc would have a shell expand `{text}`")


def common_flags(
    std: str, include_dirs: Sequence[Path], defines: Sequence[str], flags: Sequence[str], lineinfo: bool
) -> list[str]:
    """Options that every compilation takes, in a fixed order.

    Raises:
        PorterError: BAD_OPTION for a macro that nvcc would have a shell expand: it starts its tools through one.
    """
    for option, text in (*(("-D", d) for d in defines), *(("-I", str(d)) for d in include_dirs)):
        _require_plain(option, text)
    result = [f"-std={std}", *DEFAULT_FLAGS]
    if lineinfo:
        result.append("-lineinfo")
    result += [f"-D{define}" for define in defines]
    result += [f"-I{directory.absolute()}" for directory in include_dirs]
    return result + list(flags)


def _run_nvcc(
    toolkit: Toolkit,
    flags: list[str],
    unit: str,
    host: str,
    request: CompileRequest,
    source: Path,
    absent: HostHeaders,
    product: str,
) -> tuple[str, str, list[Path]]:
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        directory = Path(name)
        absent.write(directory)
        links = _Links(directory)
        if '"' in str(source.parent):
            unit = unit.replace(source.as_posix(), f"{links.of(str(source.parent))}/{source.name}", 1)
        (directory / _UNIT).write_text(unit, encoding="utf-8", errors="surrogateescape")
        done = run(
            [
                toolkit.nvcc,
                *map(links.in_option, flags),
                "-ccbin",
                host,
                # -MD of nvcc itself would preprocess once more, for the host
                "-Xcompiler",
                "-MD,-MF,unit.d",
                "-o",
                product,
                _UNIT,
            ],
            cwd=directory,
        )
        # People know the file by the path they gave.
        log = links.undone(done.log).replace(str(source), str(request.source))
        if done.status != 0:
            errors = [m for m in messages(log) if m.kind == "error"]
            if errors and all(m.where is not None and Path(m.where.path).name == _UNIT for m in errors):
                raise _ProbeRefused(log)
            if errors and errors[0].where is not None and errors[0].where.path == "unit.ptx":
                # nvcc has ptxas look at inline assembly; the text is still there.
                text = links.undone((directory / "unit.ptx").read_text(encoding="utf-8", errors="surrogateescape"))
                raise refusal(log, text.replace(str(source), str(request.source)), request.arch)
            raise failure(Code.NVCC_ERROR, log, path=str(request.source), arch=request.arch)
        files = dependencies((directory / "unit.d").read_text(encoding="utf-8", errors="surrogateescape"))
        files = [Path(links.undone(str(file))) for file in files]
        text = links.undone((directory / product).read_text(encoding="utf-8", errors="surrogateescape"))
    return text, log, [f for f in files if f.name != _UNIT]


class _Links:
    """Directories by other names: nvcc takes a comma for the end of an option, and its shell quotes for quotes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._links: dict[str, str] = {}

    def of(self, directory: str) -> str:
        if directory not in self._links:
            link = self._directory / f"porter_link_{len(self._links)}_"
            link.symlink_to(directory)
            self._links[directory] = str(link)
        return self._links[directory]

    def in_option(self, option: str) -> str:
        """An option with the directory in it, if it has one, as nvcc takes it."""
        head = "-I" if option.startswith("-I") else ""
        directory = option.removeprefix(head)
        return head + self.of(directory) if directory.startswith("/") and re.search("[\"',]", directory) else option

    def undone(self, text: str) -> str:
        """A text of the compiler with the directories' own names."""
        for directory, link in self._links.items():
            text = text.replace(link, directory)
        return text


def compilers(toolkit: Toolkit, host: HostCompiler) -> list[str]:
    """What makes a compilation besides its command: the compilers, and the environment that they look at."""
    environment = [f"{name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ]
    return [toolkit.build, str(toolkit.nvcc), str(host.path), host.version, *environment]


def shadowing(files: Iterable[Path], searched: Sequence[Path], stood_in: Iterable[str]) -> list[Path]:
    """Files that are not there and that a compilation would read if they were, in place of one of `files`, which it
    read from `searched` in this order, or of a header that was stood in for."""
    found = {directory / name for directory in searched for name in stood_in}
    for file in files:
        for i, directory in enumerate(searched):
            if file.is_relative_to(directory):
                found.update(earlier / file.relative_to(directory) for earlier in searched[:i])
    return sorted(path for path in found if not path.exists())


def dependencies(rule: str) -> list[Path]:
    """The files in a make rule as nvcc writes it."""
    joined = re.sub(r"\\\r?\n", " ", rule)
    _, _, listed = joined.partition(" : ") if " : " in joined else joined.partition(":")
    return [Path(word.replace("\\ ", " ")) for word in re.findall(r"(?:\\ |\S)+", listed)]
