# SPDX-License-Identifier: Apache-2.0
"""The compile gate of a port: from the files that were ported to what is compiled, and what is said about it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from porter.build.closure import left_beside
from porter.build.dsl import IMPORTED, dsl_untested
from porter.build.entry import function_name, kernel_names, kernel_place
from porter.build.gate import MACHINE, Gated, Module, Outcome, Pair, kernels, nvcc_pair, run_pairs, same_code, spills
from porter.build.host_headers import host_headers_note
from porter.build.layout import Layout
from porter.build.nvcc import CompileRequest
from porter.build.ptxas import assemble
from porter.build.run import missing_header_hint
from porter.build.table import ResourceRow, require_shared_memory
from porter.build.toolchain import Toolkit, find_toolkit
from porter.build.tree import Tree, write_tree
from porter.build.trust import require_trust
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.project.include_dirs import outside_directories
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, compile_request
from porter.verify.case import cases_of, load_case
from porter.verify.depot import depots
from porter.verify.dsl import compile_case
from porter.verify.line_map import nearest_line, placed_in_original
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.room import Side, crowded, with_rooms

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Unit:
    """One file that was ported, with its headers; `new` are all files of the port. `kind` is `cuda`, `dsl` or `strings`
    (Python that holds CUDA sources). `strings` gives the device code of the sources in its strings before and after,
    `written` the plain text of the CUDA files that the port changed. `whole`: no kernel was left, so that the port has
    to have all. `keeps_hopper`: the port has the original's form too. `include_dirs`: where its headers were found.
    `hint`: what host code calls of `porter.verify.room.HINTS`."""

    path: str
    kind: Literal["cuda", "dsl", "strings"]
    new: Mapping[str, bytes] = field(repr=False)
    strings: Callable[[], tuple[Sequence[bytes], Sequence[bytes]]]
    written: Sequence[str] = ()
    whole: bool = True
    keeps_hopper: bool = False
    include_dirs: tuple[Path, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class GateOptions:
    """How to compile: what originals need, the toolkit (None: the first that is found), and how many compilations run
    at once (None: one a core), and the chip of ports. `named` says what is to be said of the PTX of a port, at places
    of its files."""

    include_dirs: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    toolkit: Path | None = None
    jobs: int | None = None
    target: str = PORT_ARCH
    named: Callable[[str], Iterable[Diagnostic]] | None = None
    instantiate: tuple[str, ...] = ()
    """Template-ids of kernels that only callers instantiate."""
    written: frozenset[str] | None = None
    """Of the port's files, by their originals' paths, those that are written; None: all, over the originals."""
    layout: Layout | None = None
    """How they lie where they are written, which is how they are compiled."""


@dataclass
class _Launched:
    """The launches of a kernel that a case names, by the function's name, and of its port, each by its architecture;
    nothing where there is no case. They are known when the kernel has been compiled."""

    entry: str = ""
    launches: dict[str, LaunchValues] = field(default_factory=dict)

    def side(self, module: Module, arch: str) -> Side:
        """A module with what is known of its launches."""
        launch = self.launches.get(arch)
        own = self.entry.partition("<")[0].rsplit("::", 1)[-1]
        named = [name for name in module.resources if own in (name, function_name(name)) or len(module.resources) == 1]
        return Side(module.ptx, arch, module.resources, {} if launch is None else dict.fromkeys(named, launch))


@dataclass
class _Work:
    """What is compiled of one unit: pairs with the trees that their ports lie in and their launches, and why anything
    is left out."""

    unit: Unit
    options: GateOptions
    pairs: list[tuple[Pair, Tree, _Launched]] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def compile_units(units: Sequence[Unit], options: GateOptions, tell: Tell | None = None) -> list[Gated]:
    """Compile every unit, and its original.

    Raises:
        PorterError: BAD_TOOLKIT for a toolkit that is given and none.
    """
    if not units:
        return []
    try:
        found = find_toolkit(options.toolkit)
    except PorterError as error:
        if error.diagnostic.code is not Code.NO_TOOLKIT:
            raise
        return [_left_out(u.path, error.diagnostic.message) for u in units]
    with tempfile.TemporaryDirectory(prefix="porter-") as spare:
        works = [_work(unit, options, found, Path(spare)) for unit in units]
        outcomes = iter(run_pairs([p for w in works for p, *_ in w.pairs], options.jobs, tell))
        judged = [_judged(w, [next(outcomes) for _ in w.pairs]) for w in works]
    made = {function_name(n) for _, names in judged for n in names}
    return [_with_unmade(gated, unit, made) for unit, (gated, _) in zip(units, judged, strict=True)]


def _left_out(path: str, reason: str) -> Gated:
    note = Diagnostic(Code.NOT_COMPILED, None, {"path": path, "reason": reason})
    return Gated(path, "not compiled", reason, diagnostics=(note,))


# --- what is compiled


def _work(unit: Unit, options: GateOptions, toolkit: Toolkit, spare: Path) -> _Work:
    work = _Work(unit, options)
    path = Path(unit.path)
    try:
        if unit.kind == "cuda":
            searched = [*options.include_dirs, *unit.include_dirs, *outside_directories(path)]
            options = replace(options, include_dirs=tuple(dict.fromkeys(searched)))
            written = {p: data for p, data in unit.new.items() if options.written is None or p in options.written}
            tree = write_tree(written, options.include_dirs, spare, options.layout)
            for request, launched in _requests(path, options):
                work.pairs.append((_cuda_pair(request, path, tree, toolkit, work), tree, launched))
        if unit.kind == "dsl":
            _dsl(work, path, write_tree(unit.new, (), spare), toolkit)
        else:
            _embedded(work, options, toolkit, spare)
    except PorterError as error:
        said = error.diagnostic.message
        work.left_out.append(f"{said} (--trust)" if error.diagnostic.code is Code.NOT_TRUSTED else said)
    except OSError as error:
        work.left_out.append(f"cannot write the port for the compiler: {error.strerror or error}")
    return work


def requests(path: Path, options: GateOptions) -> list[CompileRequest]:
    """The original as its cases name its kernels, else as it is."""
    return [request for request, _ in _requests(path, options)]


def _requests(path: Path, options: GateOptions) -> list[tuple[CompileRequest, _Launched]]:
    """The original as its cases name its kernels, with the first one's launch of each, else as it is."""
    found: dict[CompileRequest, _Launched] = {}
    for p in _problems(path):
        if p.case.dsl is None:
            launches = dict.fromkeys((ORIGINAL_ARCH, options.target), p.launch)
            found.setdefault(compile_request(p, path, ORIGINAL_ARCH), _Launched(p.case.entry, launches))
    return [
        (
            replace(
                r,
                include_dirs=(*options.include_dirs, *r.include_dirs),
                defines=(*options.defines, *r.defines),
                flags=options.flags,
            ),
            launched,
        )
        for r, launched in (found or {r: _Launched() for r in _instantiating(path, options.instantiate)}).items()
    ]


def _instantiating(path: Path, asked: Sequence[str]) -> list[CompileRequest]:
    """A file as it is, and with each of the instantiations that are asked for and that it may have."""
    found = [CompileRequest(path, ORIGINAL_ARCH)]
    text = read_file(path).decode("utf-8", "replace")
    for wanted in asked:
        name, _, arguments = wanted.rstrip("> ").partition("<")
        if arguments and re.search(rf"\b{re.escape(name.rsplit('::', 1)[-1].strip())}\b", text):
            found.append(CompileRequest(path, ORIGINAL_ARCH, name.strip(), (arguments,)))
    return found


def _problems(path: Path) -> list[Problem]:
    """The cases beside a file that can be read; one that cannot is the business of `porter verify`."""
    problems = []
    with suppress(PorterError):
        for case_path in cases_of(path):
            with suppress(PorterError):
                case = load_case(case_path)
                if case.recorded is None:
                    problems.append(bind(case))
    return problems


def _cuda_pair(request: CompileRequest, path: Path, tree: Tree, toolkit: Toolkit, work: _Work) -> Pair:
    after = request_in_tree(request, path, tree, work.options.target)
    return nvcc_pair(request, after, toolkit, keeps=work.unit.keeps_hopper)


def request_in_tree(request: CompileRequest, path: Path, tree: Tree, arch: str) -> CompileRequest:
    """The same for the file of a tree that stands for `path`, for another chip."""
    include_dirs = tree.include_dirs(request.include_dirs)
    beside = left_beside(path, request.include_dirs, tree.has)
    return replace(request, source=tree.place(path), arch=arch, include_dirs=include_dirs, quote_dirs=beside)


def _embedded(work: _Work, options: GateOptions, toolkit: Toolkit, spare: Path) -> None:
    """Sources in strings, each as the device code that it holds. Those that the port left alone are not compiled."""
    before, after = work.unit.strings()
    if len(before) != len(after):
        work.left_out.append("its strings hold another number of sources than the original's")
        return
    for left, right in zip(before, after, strict=True):
        if left != right:
            trees = [write_tree({work.unit.path: text}, (), spare) for text in (left, right)]
            old, new = (
                CompileRequest(
                    tree.place(Path(work.unit.path)),
                    arch,
                    include_dirs=options.include_dirs,
                    defines=options.defines,
                    flags=options.flags,
                )
                for tree, arch in zip(trees, (ORIGINAL_ARCH, options.target), strict=True)
            )
            work.pairs.append((nvcc_pair(old, new, toolkit, keeps=work.unit.keeps_hopper), trees[1], _Launched()))


def _dsl(work: _Work, path: Path, tree: Tree, toolkit: Toolkit) -> None:
    """CuTe DSL makes code for the arguments of a call only, which a case has."""
    problems = [p for p in _problems(path) if p.case.dsl is not None]
    if not problems:
        work.left_out.append("no case beside it says how its CuTe DSL kernel is called")
    else:
        require_trust(path, IMPORTED)
    with suppress(PorterError):  # that there is no DSL is said where it is used
        work.notes += [note for note in [dsl_untested()] if note is not None]
    for problem in problems:
        launched = _Launched()
        before = _dsl_side(problem, path, ORIGINAL_ARCH, toolkit, launched)
        after = _dsl_side(problem, tree.place(path), work.options.target, toolkit, launched, path)
        work.pairs.append((Pair(before, after), tree, launched))


def _dsl_side(
    problem: Problem, source: Path, arch: str, toolkit: Toolkit, launched: _Launched, original: Path | None = None
) -> Callable[[], Module]:
    def compiled() -> Module:
        try:
            made, recorded = compile_case(problem, source, arch)
        except PorterError as error:
            raise placed_in_original(error, original or source, source, problem.case.include_dirs) from None
        assembled = assemble(toolkit, made.ptx, arch, name=source.stem)
        require_shared_memory(assembled.resources, made.dynamic_smem, arch, source)
        launched.launches[arch] = recorded.launch
        return Module(made.ptx, assembled)

    return compiled


# --- what is said


def _judged(work: _Work, outcomes: Sequence[Outcome]) -> tuple[Gated, list[str]]:
    """The verdict on one unit, and the mangled names of its kernels."""
    path = work.unit.path
    said: list[Diagnostic] = list(work.notes)
    rows: list[ResourceRow] = []
    names: list[str] = []
    unchanged: list[str] = []
    stood_in: list[str] = []
    reasons = list(work.left_out)
    refused = False
    for (_, tree, launched), outcome in zip(work.pairs, outcomes, strict=True):
        if isinstance(outcome.before, PorterError):
            said.append(_original_refused(path, outcome.before))
            reasons.append(f"the original does not compile here: {_text(outcome.before)}")
            continue
        stood_in += outcome.before.stood_in
        if isinstance(outcome.after, PorterError):
            if outcome.after.diagnostic.code in MACHINE:
                reasons.append(outcome.after.diagnostic.message)
                continue
            refused = True
            said += _refused(path, outcome.after, tree, work.options.target)
            continue
        if isinstance(outcome.kept, PorterError) and outcome.kept.diagnostic.code not in MACHINE:
            refused = True
            said += _refused(path, outcome.kept, tree, work.options.target)
            continue
        if isinstance(outcome.kept, Module) and not same_code(outcome.before.ptx, outcome.kept.ptx):
            refused = True
            said.append(Diagnostic(Code.HOPPER_FORM_CHANGED, Location(path), {"path": path}))
        if work.options.named is not None:
            said += [_in_original(d, tree) for d in work.options.named(outcome.after.ptx)]
        compiled = kernels(outcome.before, outcome.after, ORIGINAL_ARCH, work.options.target)
        names += outcome.before.resources
        unchanged += compiled.unchanged
        found = with_rooms(
            compiled.rows,
            launched.side(outcome.before, ORIGINAL_ARCH),
            launched.side(outcome.after, work.options.target),
            work.unit.hint,
        )
        rows += [r for r in found if r not in rows]
        said += [_spill(path, r) for r in found if spills(r)]
        said += [*depots(found, path), *crowded(found, path)]
        if compiled.emptied and work.unit.whole:
            refused = True
            values = {"path": path, "arch": work.options.target, "kernel": compiled.emptied[0]}
            said.append(Diagnostic(Code.PORT_WITHOUT_MMA, kernel_place(path, compiled.emptied[0]), values))
    said += [Diagnostic(Code.NOT_COMPILED, Location(path), {"path": path, "reason": r}) for r in work.left_out]
    said += host_headers_note(path, stood_in)
    status = "refused" if refused else "not compiled" if reasons else "compiled"
    gated = Gated(
        path, status, "; ".join(dict.fromkeys(reasons)), tuple(rows), tuple(dict.fromkeys(stood_in)),
        unchanged=tuple(unchanged), diagnostics=tuple(d for i, d in enumerate(said) if d not in said[:i]),
    )  # fmt: skip
    return gated, names


def _with_unmade(gated: Gated, unit: Unit, made: set[str]) -> Gated:
    """With the kernels that are written in changed files of the unit and of which no compilation made anything."""
    if gated.status != "compiled":
        return gated
    written = [k for text in unit.written for k in kernel_names(text)]
    unmade = tuple(dict.fromkeys(k for k in written if k not in made))
    if not unmade:
        return gated
    values = {"path": gated.path, "kernels": ", ".join(unmade)}
    note = Diagnostic(Code.NOT_INSTANTIATED, kernel_place(gated.path, unmade[0]), values)
    return replace(gated, unmade=unmade, diagnostics=(*gated.diagnostics, note))


def _text(error: PorterError) -> str:
    return str(error.diagnostic.values.get("text") or error.diagnostic.message)


def _original_refused(path: str, error: PorterError) -> Diagnostic:
    values = {"path": path, "text": _text(error)}
    hint = missing_header_hint(_text(error))
    return Diagnostic(Code.ORIGINAL_DOES_NOT_COMPILE, error.diagnostic.where, values, hint)


HEADER = "cute_sm100.hpp"
"""The header beside ports that asks the compiler about types; its other name is `porter.passes.tiled.port.HEADER`."""
ASSERTED = re.compile(
    r'static assertion failed with "(?P<what>[^"]*)"(?:(?!error:)[\s\S])*?'
    r"(?:\[with kNeeded=(?P<needed>\d+), kThere=(?P<there>\d+)\]|\n\s*\n|\Z)"
)
"""What a static assertion of the header beside ports says, and with which numbers."""

INSTANTIATED = re.compile(r'" at line (?P<line>\d+) of (?P<path>\S+)')
"""A line that instantiates what a compiler complains of."""


def _refused(path: str, error: PorterError, tree: Tree, target: str) -> list[Diagnostic]:
    if error.diagnostic.code is Code.DSL_OBSTACLE:
        return list(error.diagnostics)
    where = error.diagnostic.where
    if where is not None:
        where = replace(where, path=tree.original_names(where.path))
    asserted = (
        ASSERTED.search(error.diagnostic.detail) if where is not None and Path(where.path).name == HEADER else None
    )
    if asserted is not None:
        numbers = f": {asserted['needed']}, and there are {asserted['there']}" if asserted["needed"] else ""
        said = error.diagnostic.detail[asserted.start() :].split("\n\n")[0]
        at = instantiated(said, tree)
        return [Diagnostic(Code.PORT_DOES_NOT_FIT, at, {"path": path, "what": asserted["what"] + numbers})]
    values = {"path": path, "arch": target, "text": tree.original_names(_text(error))}
    return [Diagnostic(Code.PORT_DOES_NOT_COMPILE, where, values, tree.original_names(error.diagnostic.detail))]


def _in_original(said: Diagnostic, tree: Tree) -> Diagnostic:
    """A message at a place of the port as one at the original's."""
    if said.where is None:
        return said
    original = tree.original_names(said.where.path)
    with suppress(OSError):
        line = nearest_line(Path(said.where.path), Path(original), said.where.line or 0)
        return replace(said, where=Location(original, line))
    return replace(said, where=Location(original))


def instantiated(said: str, tree: Tree) -> Location | None:
    """The innermost line of an original that the compiler came from to a header of ports, as it says; None if none."""
    for place in INSTANTIATED.finditer(said):
        made, line = place["path"], int(place["line"])
        original = tree.original_names(made)
        if original != made and Path(made).name != HEADER:
            with suppress(OSError):
                return Location(original, nearest_line(Path(made), Path(original), line))
    return None


def _spill(path: str, row: ResourceRow) -> Diagnostic:
    values = {
        "kernel": row.kernel,
        "stores": row.metric("spill_stores").after,
        "loads": row.metric("spill_loads").after,
        "before": row.metric("registers").before,
        "after": row.metric("registers").after,
    }
    return Diagnostic(Code.PORT_SPILLS, kernel_place(path, row.kernel), values)
