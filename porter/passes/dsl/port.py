# SPDX-License-Identifier: Apache-2.0
"""The port of a CuTe DSL file with the modules that it imports: names that come from the support module, and the frame
of every kernel that may multiply. All or nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of, has_errors
from porter.lang.cute_dsl import SUPPORT, DslFile, Placed, parse_dsl
from porter.lang.dsl_imports import import_edits, support_import
from porter.lang.dsl_modules import Closure, Module, close
from porter.lang.text import Edit, EditGroup, apply_groups
from porter.model.dsl import names
from porter.model.dsl.names import hopper_only, within
from porter.model.dsl.reach import framed_kernels
from porter.passes.dsl import outputs
from porter.passes.dsl.frame import frame_edits
from porter.passes.dsl.renames import NameRules, Renamed, rename, reworded
from porter.rules.engine import Planned, Selection, pass_groups
from porter.rules.load import load_rules
from porter.rules.rule import Region, Rule

FRAME_RULE = "PTR500"
IMPORT_RULE = "PTR501"

_MULTIPLIES = ("cutlass.cute.gemm", "cutlass.cute.mma_atom_call", "cutlass.cute.algorithm.gemm",
               "cutlass.cute.atom.mma_atom_call")  # fmt: skip
_PTX = re.compile(r"wgmma\.(?:mma_async|fence|commit_group|wait_group)[\w.]*\.sync")
_MLIR = re.compile(r"cutlass\._mlir\.(?:[\w.]*\.)?(?:wgmma_\w+|\w*[sS][mM]90\w*)")


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
    installed packages. `scaffold` are files that stand for a package's `__init__.py` wherever the port does not lie
    among the originals."""

    sources: DslSources
    files: dict[str, bytes]
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    build_files: dict[str, bytes] = field(default_factory=dict)
    scaffold: dict[str, bytes] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


def port_python(
    path: Path,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    rule_directories: Sequence[str] = (),
    search: Sequence[Path] = (),
) -> DslPortResult:
    """Port a Python file and the modules that it imports; nothing is changed if something in them cannot be ported.
    Modules are looked for beside the file, in `search`, and where the interpreter looks.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE; RULE_FILE, RULE_DUPLICATE.
    """
    closure = close(path, search)
    own = {m.path: m.file for m in closure.modules.values() if m.own}
    sources = DslSources(closure.root.path, own)
    unchanged = DslPortResult(sources, sources.sources())
    port = _Port(closure, load_rules(rule_directories), Selection(tuple(select) or None, tuple(ignore)))
    unchanged.diagnostics += port.refusals
    if port.refusals or not port.hopper:
        return unchanged
    planned = port.plan()
    unchanged.diagnostics += planned.diagnostics
    if has_errors(planned.diagnostics) or not planned.groups:
        return unchanged
    files, scaffold, said = outputs.written(
        closure, port.places, port.patched, apply_groups(port.originals(), planned.groups)
    )
    unchanged.diagnostics += said
    if has_errors(said):
        return unchanged
    diagnostics = [*planned.diagnostics, *said]
    left = [] if select or ignore else _left(files)
    if left:
        unchanged.diagnostics += left
        return unchanged
    kernels = [k.name for found in port.frames.values() for k in found]
    groups = [g for group in planned.groups if (g := _within(group, own)) is not None]
    return DslPortResult(sources, files, groups, diagnostics, kernels, {}, scaffold)


class _Port:
    """What is decided about a closure. `hopper`: modules with names that only Hopper has; `native`: modules with MMAs
    of Blackwell, which stay; `places`: where the modules of the port go."""

    def __init__(self, closure: Closure, rules: Sequence[Rule], selection: Selection) -> None:
        self.closure, self.rules, self.selection = closure, rules, selection
        self.open = [m for m in closure.modules.values() if not m.ported]
        self.names = {m.name: set(self._names(m)) for m in self.open}
        self.hopper = {n for n, found in self.names.items() if any(map(hopper_only, found))}
        self.native = {n for n, found in self.names.items() if self._is_native(found)}
        self.refusals = list(self._refusals())
        self.frames: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self.places: dict[str, str] = {}
        self.patched: set[str] = set()

    def _names(self, module: Module) -> Iterator[str]:
        """Names that a module uses or hands on, as they are called where they were made."""
        if not module.mentions(b"warpgroup", b"tcgen05", b"gemm", b"mma_atom_call", b"make_trivial_tiled_mma", b"wgmma",
                               b"90"):  # fmt: skip
            return
        file, canonical = module.file, self.closure.canonical
        used = set()
        for reference in file.all_references:
            if reference.binding is not None:
                used.add(reference.binding.local)
            yield canonical(reference.name)
        for statement in file.import_statements:
            for alias in statement.names:
                origin = file.origin(statement) if isinstance(statement, ast.ImportFrom) else ""
                target = f"{origin}.{alias.name}".lstrip(".")
                local = alias.asname or alias.name
                if target != names.WARPGROUP or (local not in used and self._handed_on(module, local)):
                    yield target

    def _handed_on(self, module: Module, local: str) -> bool:
        """Whether another module takes a name from this one."""
        name = f"{module.name}.{local}"
        for other in self.open:
            if module.name not in other.imported:
                continue
            for statement in other.file.import_statements:
                named = isinstance(statement, ast.ImportFrom) and other.file.origin(statement) == module.name
                if named and any(alias.name in (local, "*") for alias in statement.names):
                    return True
            if any(within(r.name, name) for r in other.file.all_references):
                return True
        return False

    @staticmethod
    def _is_native(found: set[str]) -> bool:
        return any(within(n, names.TCGEN05) for n in found) and not any(within(n, names.WARPGROUP) for n in found)

    def _refusals(self) -> Iterator[Diagnostic]:
        """Places that no change of names can port: MMAs that are written as PTX or as operations of MLIR."""
        for module in self.open:
            if module.name in self.native or not module.mentions(b"wgmma", b"SM90", b"sm90"):
                continue
            file = module.file
            for node in file.strings if b"wgmma" in file.source else ():
                found = _PTX.search(str(node.value))
                if found is not None:
                    yield _construct(file, node, found.group(), "an MMA of Hopper as inline PTX")
            for reference in file.all_references:
                name = self.closure.canonical(reference.name)
                if _MLIR.match(name):
                    yield _construct(file, reference.chain.node, name, "an operation of MLIR that only Hopper has")

    def plan(self) -> Planned:
        multiplying = self.hopper | {
            n for n, found in self.names.items() if n not in self.native and found & set(_MULTIPLIES)
        }
        self.frames = framed_kernels(self.closure, multiplying, self.native)
        said: list[Diagnostic] = []
        edits: dict[str, dict[str, list[Edit]]] = {}
        for module in self.open:
            found = self._edited(module, said)
            if found:
                edits[module.name] = found
        self.patched = set(edits)
        self._place(self.patched)
        for name in self.places:
            for rule, more in self._redirected(self.closure.modules[name]).items():
                edits.setdefault(name, {}).setdefault(rule, []).extend(more)
        together: dict[str, list[Edit]] = {}
        for found in edits.values():
            for rule, more in found.items():
                together.setdefault(rule, []).extend(more)
        planned = pass_groups(self.rules, together, self.selection)
        groups = [*planned.groups, *self._reworded(planned.groups)] if planned.groups else []
        placed = [_placed(group, self._paths()) for group in groups]
        return Planned(placed, [*said, *planned.diagnostics])

    def _paths(self) -> dict[str, str]:
        return {m.path: self.places.get(m.name, m.path) for m in self.closure.modules.values()}

    def originals(self) -> dict[str, bytes]:
        """The modules' sources by the path that each has in the port."""
        own = {m.path: m.file.source for m in self.closure.modules.values() if m.own}
        return {**own, **{path: self.closure.modules[n].file.source for n, path in self.places.items()}}

    def _name_rules(self, module: Module) -> NameRules:
        hopper, native = module.name in self.hopper, module.name in self.native
        rules = tuple(r for r in self.rules if r.region is Region.NAME and r.replace and r.reads(module.path))

        def stays(name: str) -> bool:
            return native or (not hopper and any(within(name, n) for n in names.HOPPER_ONLY))

        return NameRules(rules, stays)

    def _edited(self, module: Module, said: list[Diagnostic]) -> dict[str, list[Edit]]:
        """Edits by rule of what the module itself says."""
        file, rules, renamed = module.file, self._name_rules(module), Renamed()
        frames = self.frames.get(module.name, [])
        if module.name not in self.names or not (self.names[module.name] or frames):
            return {}
        support = _fresh(file)
        rename(file, rules, self.closure.canonical, support, renamed)
        said += [_construct(file, c.node, ".".join([c.base.id, *c.attributes]), "a name inside an f-string whose place "
                            "Python does not tell") for c in renamed.misplaced]  # fmt: skip
        edits = renamed.edits
        for kernel in frames:
            edits.setdefault(FRAME_RULE, []).extend(frame_edits(file, kernel, support))
        needs = [e for found in edits.values() for e in found if support.encode() in e.replacement]
        imports: list[Edit] = []
        if needs:
            imports.append(support_import(file, SUPPORT, support, min(e.span.start for e in needs)))

        def move(name: str) -> str | None:
            found = rules.find(name)
            return found[1] if found is not None else None

        for statement in file.import_statements:
            imports += import_edits(file, statement, move)
        if imports:
            edits.setdefault(IMPORT_RULE, []).extend(imports)
        return edits

    def _place(self, edited: set[str]) -> None:
        """Modules of installed packages that change, or that import one that does, are copied."""
        modules = self.closure.modules
        copied = {n for n in edited if not modules[n].own}
        copied = {n for n in self.closure.spread(copied) if not modules[n].own and not modules[n].ported}
        for name in sorted(copied):
            self.places[name] = str(outputs.place_of(self.closure, modules[name]))
        for name in sorted(n for n, m in modules.items() if m.own):
            self.places.setdefault(name, modules[name].path)

    def _redirected(self, module: Module) -> dict[str, list[Edit]]:
        """Edits of imports and chains that name modules which were copied."""
        file = module.file
        if module.ported or not (module.imported or not module.own):
            return {}

        def move(name: str) -> str | None:
            parts = name.split(".")
            for i in range(len(parts), 0, -1):
                found = self.closure.modules.get(".".join(parts[:i]))
                if found is None:
                    continue
                if not found.own and found.name in self.places:
                    return ".".join([outputs.copied_name(found.name), *parts[i:]])
                break
            return None

        def absolute(name: str) -> str | None:
            return move(name) or name

        edits: list[Edit] = []
        for statement in file.import_statements:
            relative = isinstance(statement, ast.ImportFrom) and statement.level > 0 and not module.own
            edits += import_edits(file, statement, absolute if relative else move)
        renamed = Renamed()
        for reference in file.all_references:
            binding = reference.binding
            alias = binding.alias if binding is not None else None
            if isinstance(binding and binding.statement, ast.Import) and alias is not None and alias.asname is None:
                new = move(reference.name) if "." in alias.name else None
                if new is not None:
                    renamed.add(file, IMPORT_RULE, reference.chain, new)
        edits += renamed.edits.get(IMPORT_RULE, [])
        return {IMPORT_RULE: edits} if edits else {}

    def _reworded(self, groups: Sequence[EditGroup]) -> list[EditGroup]:
        regions = (Region.STRING, Region.COMMENT, Region.CODE)
        found: dict[str, list[Edit]] = {}
        for name in self.places:
            module = self.closure.modules[name]
            if name not in self.patched:
                continue
            rules = [
                r for r in self.rules
                if r.region in regions and r.replace is not None and r.reads(module.path) and self.selection.takes(r.id)
            ]  # fmt: skip
            taken = [e.span for g in groups for e in g.edits if e.path == module.path and len(e.span)]
            for rule, edits in reworded(module.file, rules, taken).items():
                found.setdefault(rule, []).extend(edits)
        return pass_groups(self.rules, found, Selection()).groups


def _placed(group: EditGroup, paths: dict[str, str]) -> EditGroup:
    return replace(group, edits=tuple(replace(e, path=paths[e.path]) for e in group.edits))


def _within(group: EditGroup, paths: Container[str]) -> EditGroup | None:
    """The edits of files that exist already: copies are new as a whole."""
    edits = tuple(e for e in group.edits if e.path in paths)
    return replace(group, edits=edits) if edits else None


def _fresh(file: DslFile) -> str:
    """The local name of the support module: one that nothing else in the file has."""
    taken = set(re.findall(rb"\w+", file.source))
    number, name = 1, SUPPORT
    while name.encode() in taken:
        number += 1
        name = f"{SUPPORT}{number}"
    return name


def _construct(file: DslFile, node: Placed, name: str, what: str) -> Diagnostic:
    return Diagnostic(Code.DSL_CONSTRUCT, file.location(file.span(node)), {"name": name, "what": what})


def _left(files: dict[str, bytes]) -> list[Diagnostic]:
    """Files of the port that are no Python any more."""
    found = []
    for path, text in files.items():
        if path.endswith(".py"):
            try:
                parse_dsl(path, text)
            except PorterError as error:
                what = f"the port of it is no valid Python ({error.diagnostic.values.get('problem')})"
                found.append(Diagnostic(Code.DSL_CONSTRUCT, Location(path), {"name": path, "what": what}))
    return found
