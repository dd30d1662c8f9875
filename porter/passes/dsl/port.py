# SPDX-License-Identifier: Apache-2.0
"""The port of a CuTe DSL file with the modules that it imports: names that come from the support module, and the frame
of every kernel that may multiply. All or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import libcst as cst

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, exit_code_of, has_errors
from porter.lang.cute_dsl import SUPPORT, DslFile, Function
from porter.lang.dsl_imports import chain_edits, import_edits, support_import
from porter.lang.dsl_modules import Closure, Module, close
from porter.lang.python import problem_of
from porter.lang.text import Edit, EditGroup, apply_groups
from porter.model.dsl.reach import framed_kernels, kernels_of
from porter.model.spellings import Spellings
from porter.passes.build_asks import handed_out, lines_for_hopper
from porter.passes.build_files import notes_of
from porter.passes.clashes import clashes
from porter.passes.dsl import outputs
from porter.passes.dsl.frame import frame_edits
from porter.passes.dsl.refusals import refused
from porter.passes.dsl.renames import LocalNames, NameRules, RuleEdit, conflicts, renamed, reworded
from porter.passes.dsl.unread import modules_not_found, nothing_read
from porter.passes.idiom_dsl.facts import Traces
from porter.passes.idiom_dsl.imports import RULE as NAMES
from porter.passes.idiom_dsl.names import ALL_OBSERVED
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.keeping import Kept
from porter.passes.native.step import steps_for
from porter.passes.python_flow import Given
from porter.passes.targets import retargeted
from porter.ptx.arch import SM100A, PortTarget
from porter.rules.engine import Planned, Selection, pass_groups
from porter.rules.load import load_rules, names_of
from porter.rules.recognize import spellings
from porter.rules.rule import Region, Rule
from porter.steps.step import Step

FRAME_RULE = "PTR500"
IMPORT_RULE = "PTR501"


@dataclass(frozen=True)
class DslSources:
    """A Python file with the modules of its project that it imports."""

    root: str
    files: dict[str, DslFile]

    def sources(self) -> dict[str, bytes]:
        return {path: file.source for path, file in self.files.items()}


@dataclass(eq=False)
class DslPortResult:
    """As `porter.passes.port.PortResult`. `files` holds new ones too: the support module, and copies of modules of
    installed packages. `scaffold` are files that stand for a package's `__init__.py`
    wherever the port does not lie among the originals."""

    sources: DslSources
    files: dict[str, bytes]
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    idiomatic: bool = False
    """Whether it is in Blackwell's own words, with no support module."""
    absent: tuple[str, ...] = ()
    """Names that the installed DSL lacks for that."""
    native: tuple[str, ...] = ()
    """Steps that its kernels have then."""
    build_files: dict[str, bytes] = field(default_factory=dict)
    scaffold: dict[str, bytes] = field(default_factory=dict)
    left_over: list[Diagnostic] = field(default_factory=list)
    """Places that ask for a chip and were not understood."""

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


def port_python(
    path: Path,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    rule_directories: Sequence[str] = (),
    search: Sequence[Path] = (),
    target: PortTarget = SM100A,
    traces: Traces | None = None,
    steps: Sequence[str] = (),
) -> DslPortResult:
    """Port a Python file and the modules that it imports; nothing is changed if something in them cannot be ported.
    Modules are looked for beside the file, in `search`, and where the interpreter looks. `traces` of the original are
    asked for a port in Blackwell's own words, which comes first; it has those of the `steps` that its kernels may have.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE; RULE_FILE, RULE_DUPLICATE.
    """
    rules = load_rules(rule_directories)
    closure = close(path, names_of(rules).dialect, search)
    own = {m.path: m.file for m in closure.modules.values() if m.own}
    sources = DslSources(closure.root.path, own)
    result = DslPortResult(sources, sources.sources())
    port = _Port(closure, rules, Selection(tuple(select) or None, tuple(ignore)))
    result.diagnostics += port.refusals()
    missing = modules_not_found(closure, names_of(rules)) if not select else []
    if result.diagnostics or not port.hopper:
        result.diagnostics += missing
        if missing and not port.native:
            result.diagnostics.append(nothing_read(closure.root.path, missing))
        return result
    result.diagnostics += missing
    taken = [s for s in steps_for("dsl") if s.name in steps]
    own_words = port.in_own_words(traces, result, taken) if traces is not None else None
    planned = own_words or port.plan()
    result.diagnostics += planned.diagnostics
    if has_errors(planned.diagnostics) or not planned.groups:
        return result
    groups = retargeted(planned.groups, port.originals(), target, rules)
    if clash := clashes(port.originals(), groups):
        result.diagnostics += clash
        return result
    ported = apply_groups(port.originals(), groups)
    files, scaffold, said = ported, dict[str, bytes](), list[Diagnostic]()
    if own_words is None:
        files, scaffold, said = outputs.written(closure, port.places, port.patched, ported)
    if not select and not ignore and not has_errors(said):
        said += _left(files)
    said += _lacking(target, rules, sources.root)
    result.diagnostics += said
    if not has_errors(said):
        result.files, result.scaffold = files, scaffold
        result.groups = [g for group in groups if (g := _within(group, own)) is not None]
        if own_words is None:
            result.kernels = [k.name.value for found in port.frames.values() for k in found]
        result.idiomatic = own_words is not None
        if not select:
            _check_chips(result, spellings(rules), target)
    return result


def _lacking(target: PortTarget, rules: Sequence[Rule], root: str) -> list[Diagnostic]:
    """What is said of a chip for which nothing can be compiled."""
    if target.name in next(r.chips for r in rules if r.id == FRAME_RULE):
        return []
    why = "CuTe DSL hands out no PTX for it, so that its ports could be neither compiled nor run here"
    return [Diagnostic(Code.TARGET_LACKS, Location(root), {"target": target.name, "why": why})]


def _check_chips(result: DslPortResult, said: Spellings, target: PortTarget) -> None:
    """What the modules of the project ask of the device, held against their ports."""
    files = list(result.sources.files.values())
    functions = handed_out((file.source for file in files), said)
    for file in files:
        _check_chips_of(file, result, said, target, functions)


def _check_chips_of(
    file: DslFile, result: DslPortResult, said: Spellings, target: PortTarget, functions: Given
) -> None:
    """The same of one module."""
    edits = [e for g in result.groups for e in g.edits if e.path == file.path]
    edited = {file.source.count(b"\n", 0, e.span.start) + 1 for e in edits}
    lines = file.source.decode("utf-8", "replace").splitlines()
    for line in sorted(lines_for_hopper(file.source, edited, said, target, functions)):
        where, values = Location(file.path, line), {"text": lines[line - 1].strip()[:100]}
        result.left_over.append(Diagnostic(Code.CHIP_CHECK_LEFT, where, values))
    result.diagnostics += notes_of(file.path, result.files[file.path], result.left_over, said, False, target)


class _Port:
    """What is decided about a closure. `near`: modules in which names that rules are for are written down, or that
    import from such; `hopper`: modules with names that only Hopper has; `native`: modules with MMAs of Blackwell, which
    stay; `frames`: kernels that get a frame, by module; `patched`: modules of which more changes than where imports
    lead; `places`: where the modules of the port go."""

    def __init__(self, closure: Closure, rules: Sequence[Rule], selection: Selection) -> None:
        self.closure, self.rules, self.selection = closure, rules, selection
        self.known = names_of(rules)
        steps = self.known.dialect.steps
        self.near = closure.spread({m.name for m in closure.modules.values() if m.mentions(*steps)})
        self.names = {m.name: set(self._names(m)) for m in closure.open}
        self.hopper = {n for n, found in self.names.items() if any(map(self.known.hopper_only, found))}
        self.native = {n for n, found in self.names.items() if self._is_native(found)}
        self.frames: dict[str, list[Function]] = {}
        self.patched: set[str] = set()
        self.places: dict[str, str] = {}

    def _names(self, module: Module) -> Iterator[str]:
        """Names that a module uses or hands on, as they are called where they were made."""
        if module.name not in self.near:
            return
        references = module.file.all_references
        yield from (self.closure.canonical(r.name) for r in references)
        used = {r.binding.local for r in references if r.binding is not None}
        for name, local in module.file.imported():
            if not self.known.is_a(name, "module") or (local not in used and self.closure.hands_on(module, local)):
                yield name

    def _is_native(self, found: set[str]) -> bool:
        return any(self.known.is_a(n, "blackwell") for n in found) and not any(map(self.known.of_hopper, found))

    def refusals(self) -> Iterator[Diagnostic]:
        """Places that rules refuse, as no change of names can port them: names, and texts of strings."""
        for module in self.closure.open:
            if module.name not in self.native:
                rules = [
                    r for r in self.rules if r.refusal is not None and r.language == "python" and r.reads(module.path)
                ]
                yield from refused(module.file, rules, self.closure.canonical)

    def plan(self) -> Planned:
        """The groups of the whole port, with the paths that its modules have there. Decides `frames`, `patched` and
        `places`."""
        gemms = {
            n
            for n, found in self.names.items()
            if n not in self.native and any(self.known.is_a(name, "multiply") for name in found)
        }
        self.frames = framed_kernels(self.closure, self.known, self.hopper | gemms, self.native)
        edits: list[RuleEdit] = []
        said: list[Diagnostic] = []
        for module in self.closure.open:
            found = self._edits(module, said)
            edits += found
            if found:
                self.patched.add(module.name)
        self._place()
        for module in self.closure.open:
            if module.name in self.places:
                edits += ((IMPORT_RULE, edit) for edit in self._redirected(module))
        texts = {m.file.path: m.file.source for m in self.closure.open}
        planned = pass_groups(self.rules, _by_rule(edits), self.selection, texts)
        said += Kept(texts).refused(planned.groups)
        groups = [*planned.groups, *self._reworded(planned.groups)] if planned.groups else []
        paths = {self.closure.modules[n].path: path for n, path in self.places.items()}
        return Planned([_placed(group, paths) for group in groups], [*said, *planned.diagnostics])

    def in_own_words(self, traces: Traces, result: DslPortResult, steps: Sequence[Step]) -> Planned | None:
        """The groups of a port in Blackwell's own words, with those of the `steps` that there can be; None, with the
        reason in `result`, where it cannot be one."""
        modules = [self.closure.modules[name] for name in sorted(self.hopper - self.native)]
        module = modules[0]
        if len(modules) > 1 or not module.own:
            found = Idiomatic(what=f"names of Hopper in {modules[-1].path}", rule=NAMES)
        elif self.selection != Selection():
            found = Idiomatic(what="rules that are chosen or left out one by one")
        else:
            said = traces(Path(self.closure.root.path), ALL_OBSERVED)
            found = (
                Idiomatic(what=said)
                if isinstance(said, str)
                else idiomatic(module.path, module.file.source, said, steps)
            )
        if found.what:
            names = ", ".join(k.name.value for k in kernels_of(self.closure, module, self.known)) or module.path
            where = Location(module.path, found.line) if found.line else Location(module.path)
            what = f"{found.what} ({found.rule})" if found.rule else found.what
            result.diagnostics.append(Diagnostic(Code.IDIOM_LEFT, where, {"kernel": names, "what": what}))
            return None
        self.places = {name: one.path for name, one in self.closure.modules.items() if one.own}
        self.patched = {module.name}
        result.kernels, result.absent, result.native = list(found.kernels), tuple(found.absent), tuple(found.steps)
        result.diagnostics += (
            Diagnostic(Code.NATIVE_LEFT, Location(module.path, line), {"kernel": kernel, "step": step, "what": what})
            for kernel, step, what, line in found.without
        )
        texts = {module.path: module.file.source}
        planned = pass_groups(self.rules, _by_rule(found.edits), self.selection, texts)
        kept = Kept(texts).refused(planned.groups)
        return Planned([*planned.groups, *self._reworded(planned.groups)], [*kept, *planned.diagnostics])

    def originals(self) -> dict[str, bytes]:
        """The modules' sources by the path that each has in the port."""
        return {path: self.closure.modules[name].file.source for name, path in self.places.items()}

    def _name_rules(self, module: Module) -> NameRules:
        """Modules with MMAs of Blackwell keep all names, modules that only share names with Hopper keep those."""
        native = module.name in self.native
        rules = tuple(
            r for r in self.rules if r.names and r.replace is not None and r.reads(module.path) and not native
        )
        return NameRules(rules, _nothing if module.name in self.hopper else self.known.of_hopper)

    def _edits(self, module: Module, said: list[Diagnostic]) -> list[RuleEdit]:
        """Edits of what the module itself says. Names that cannot be edited are added to `said`."""
        file, rules, frames = module.file, self._name_rules(module), self.frames.get(module.name, [])
        if not self.names[module.name] and not frames:
            return []
        local = LocalNames(file, lambda name: rules.find(name) is None)
        edits: list[RuleEdit] = []
        for found in renamed(file, rules, self.closure.canonical, local):
            if isinstance(found, Diagnostic):
                said.append(found)
            else:
                edits.append(found)
        support = local.of(SUPPORT) if frames else ""
        edits += ((FRAME_RULE, edit) for kernel in frames for edit in frame_edits(file, kernel, support))
        said += conflicts(file, edits, self.rules)
        for name, known in local.new.items():
            needs = [edit.span.start for _, edit in edits if known.encode() in edit.replacement]
            edits.append((IMPORT_RULE, support_import(file, name, known, min(needs))))

        def move(name: str) -> str | None:
            found = rules.find(name)
            return found.text if found is not None else None

        for statement in file.import_statements:
            edits += ((IMPORT_RULE, edit) for edit in import_edits(file, statement, move))
        return edits

    def _place(self) -> None:
        """Modules of installed packages that change, or that import one that does, are copied."""
        modules = self.closure.modules
        copied = self.closure.spread({n for n in self.patched if not modules[n].own})
        for module in sorted(self.closure.open, key=lambda m: m.name):
            if module.name in copied and not module.own:
                self.places[module.name] = str(outputs.place_of(self.closure, module))
        self.places |= {name: modules[name].path for name in sorted(modules) if modules[name].own}

    def _redirected(self, module: Module) -> Iterator[Edit]:
        """Edits of imports and chains that name modules which were copied. A copy names the modules that stay where
        they are in full."""

        def move(name: str) -> str | None:
            home = self.closure.home(name)
            copied = home is not None and not home.own and home.name in self.places
            return outputs.copied_name(name) if copied else None

        if not module.imported and module.own:
            return
        for statement in module.file.import_statements:
            relative = not module.own and isinstance(statement, cst.ImportFrom) and len(statement.relative) > 0
            yield from import_edits(module.file, statement, (lambda name: move(name) or name) if relative else move)
        yield from chain_edits(module.file, move)

    def _reworded(self, groups: Sequence[EditGroup]) -> list[EditGroup]:
        """Groups of the rules on the texts of modules that change, beside what `groups` edit already."""
        regions = (Region.STRING, Region.COMMENT, Region.CODE)
        rules = [r for r in self.rules if r.region in regions and r.replace is not None and self.selection.takes(r.id)]
        edits: list[RuleEdit] = []
        for name in [n for n in self.places if n in self.patched]:
            file = self.closure.modules[name].file
            taken = [e.span for g in groups for e in g.edits if e.path == file.path and len(e.span)]
            edits += reworded(file, rules, taken)
        return pass_groups(self.rules, _by_rule(edits), Selection()).groups


def _nothing(name: str) -> bool:
    return False


def _by_rule(edits: Iterable[RuleEdit]) -> dict[str, list[Edit]]:
    found: dict[str, list[Edit]] = defaultdict(list)
    for rule, edit in edits:
        found[rule].append(edit)
    return found


def _placed(group: EditGroup, paths: dict[str, str]) -> EditGroup:
    return replace(group, edits=tuple(replace(e, path=paths[e.path]) for e in group.edits))


def _within(group: EditGroup, paths: Container[str]) -> EditGroup | None:
    """The edits of files that exist already: copies are new as a whole."""
    edits = tuple(e for e in group.edits if e.path in paths)
    return replace(group, edits=edits) if edits else None


def _left(files: dict[str, bytes]) -> list[Diagnostic]:
    """Files of the port that are no Python any more."""
    found = []
    for path, text in files.items():
        if path.endswith(".py") and (problem := problem_of(text)):
            what = f"the port of it is no valid Python ({problem})"
            found.append(Diagnostic(Code.DSL_CONSTRUCT, Location(path), {"name": path, "what": what}))
    return found
