# SPDX-License-Identifier: Apache-2.0
"""The port of a CuTe DSL file: rules for names, passes for structure, all or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of, has_errors
from porter.lang.cute_dsl import DslFile, only, parse_dsl, read_dsl, walk
from porter.lang.text import Edit, EditGroup, Span, apply_groups, merged
from porter.model.dsl import names
from porter.model.dsl.gemm import find_gemm
from porter.model.dsl.groups import find_groups, in_groups
from porter.model.dsl.helpers import find_helper
from porter.model.dsl.promotion import find_promotion
from porter.model.dsl.scope import Scope, Unrecognized
from porter.passes.dsl import epilogue, host, mainloop, mirrored, promotion, storage
from porter.passes.dsl.context import IMPORT_RULE, UNUSED_RULE, DslContext, KernelContext
from porter.passes.dsl.edits import FileEdits
from porter.rules.engine import Selection, pass_groups
from porter.rules.load import load_rules
from porter.rules.rule import Region, Rule, When


@dataclass(frozen=True)
class DslSources:
    """A Python file as a set of sources."""

    root: str
    files: dict[str, DslFile]

    def sources(self) -> dict[str, bytes]:
        return {path: file.source for path, file in self.files.items()}


@dataclass(eq=False)
class DslPortResult:
    """As `porter.passes.port.PortResult`."""

    sources: DslSources
    files: dict[str, bytes]
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    build_files: dict[str, bytes] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_of(self.diagnostics)


def port_python(
    path: Path, select: Sequence[str] = (), ignore: Sequence[str] = (), rule_directories: Sequence[str] = ()
) -> DslPortResult:
    """Port a Python file; nothing is changed if something Hopper-only in it cannot be ported.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE; RULE_FILE, RULE_DUPLICATE.
    """
    file = read_dsl(path)
    selection = Selection(tuple(select) or None, tuple(ignore))
    rules = load_rules(rule_directories)
    sources = DslSources(file.path, {file.path: file})
    unchanged = DslPortResult(sources, sources.sources())
    if not _uses_warpgroup_mma(file):
        if _uses_tcgen05(file):
            return unchanged
        unchanged.diagnostics += _library_users(file)
        return unchanged
    grouped = in_groups(file)
    kept = mirrored.KEPT if grouped else frozenset()
    edits, diagnostics, kernels = port_groups(file) if grouped else port_kernels(file)
    planned = pass_groups(rules, edits, selection)
    diagnostics += planned.diagnostics
    groups = planned.groups
    named = [*_renamed(rules, file, groups, selection, bool(groups), kept),
             *_reworded(rules, file, groups, selection, bool(groups))]  # fmt: skip
    if select and not groups and not named:
        return unchanged
    if has_errors(diagnostics):
        unchanged.diagnostics += diagnostics
        return unchanged
    # Names may sit in text that moved in; their edits come after the insertions at the same place.
    groups = groups + named
    files = apply_groups(sources.sources(), groups)
    left = [] if select or ignore else _left(file.path, files[file.path], kept)
    if left:
        unchanged.diagnostics += diagnostics + left
        return unchanged
    return DslPortResult(sources, files, groups, diagnostics, kernels)


def _uses_warpgroup_mma(file: DslFile) -> bool:
    wanted = (names.TILED_MMA, names.FENCE, names.COMMIT, names.WAIT, names.ACCUMULATE)
    return any(name in wanted or name.startswith(names.WARPGROUP + ".Mma") for _, name in file.references())


def _uses_tcgen05(file: DslFile) -> bool:
    return any(name.startswith(names.TCGEN05 + ".") for _, name in file.references())


def _library_users(file: DslFile) -> list[Diagnostic]:
    """A file without MMAs of its own may still hold helpers for Hopper: those are named."""
    pipeline = names.PIPELINE + ".PipelineTmaAsync"
    return _unported(file, {name: node for node, name in file.references() if name.startswith(pipeline)})


def port_kernels(file: DslFile) -> tuple[dict[str, list[Edit]], list[Diagnostic], list[str]]:
    """Edits by rule ID, diagnostics, and the names of the ported kernels."""
    context = DslContext(file, FileEdits(file))
    ported: list[str] = []
    kernels = [k for k in file.kernels if Scope(file, k).calls_of(names.GEMM)]
    if not kernels and len(file.kernels) == 1 and _issues_by_helper(file):
        kernels = file.kernels
    if len(kernels) != 1:
        return {}, [_no_single_kernel(file, kernels)], []
    kernel = kernels[0]
    name = kernel.name.value
    try:
        gemm = find_gemm(file, kernel)
        found = find_promotion(gemm)
        rewrite(KernelContext(context, gemm, found))
    except Unrecognized as refused:
        return {}, [_refusal(file, name, refused.what, refused.node)], []
    ported.append(name)
    _imports(context)
    threads = f"{gemm.threads} threads read the accumulator"
    note = Diagnostic(
        Code.DSL_MMA_WARPS, file.location(file.span(kernel.name)), {"kernel": name, "threads": threads}
    )
    notes = [note]
    if found is not None and found.compensates:
        sums = {"kernel": name, "total": found.total, "partial": found.partial}
        notes.append(Diagnostic(Code.DSL_PROMOTION, file.location(file.span(found.definition)), sums))
    return context.edits.finish(), notes, ported


def _issues_by_helper(file: DslFile) -> bool:
    try:
        return find_helper(file, file.kernels[0]) is not None
    except Unrecognized:
        # find_gemm says why.
        return True


def port_groups(file: DslFile) -> tuple[dict[str, list[Edit]], list[Diagnostic], list[str]]:
    """As `port_kernels`, for accumulators in registers that several MMAs share."""
    context, kernel = DslContext(file, FileEdits(file)), file.kernels[0]
    name = kernel.name.value
    try:
        mirrored.rewrite_groups(context, find_groups(file))
    except Unrecognized as refused:
        return {}, [_refusal(file, name, refused.what, refused.node)], []
    _imports(context)
    threads = "its warpgroup holds their accumulators in registers between them"
    note = Diagnostic(
        Code.DSL_MMA_WARPS, file.location(file.span(kernel.name)), {"kernel": name, "threads": threads}
    )
    return context.edits.finish(), [note], [name]


def _no_single_kernel(file: DslFile, kernels: Sequence[cst.FunctionDef]) -> Diagnostic:
    called = ", ".join(k.name.value for k in kernels or file.kernels) or "(none)"
    if kernels:
        return _refusal(file, called, f"{len(kernels)} kernels of this file issue MMAs; one is ported", kernels[1])
    parts = (names.GEMM, names.FENCE, names.COMMIT, names.WAIT, names.TILED_MMA)
    node = next((n for part in parts for n, name in file.references() if name == part), file.module)
    around = file.parent(node)
    while around is not None and not isinstance(around, cst.FunctionDef):
        around = file.parent(around)
    where = f"in the helper `{around.name.value}`" if around is not None else "in another module"
    return _refusal(file, called, f"its MMAs are issued {where}, not in the kernel itself", node)


def rewrite(k: KernelContext) -> None:
    """Run the passes.

    Raises:
        Unrecognized: a statement that the port does not know.
    """
    host.rewrite_host(k)
    if k.promotion is None:
        mainloop.rewrite_mainloop(k)
    else:
        promotion.rewrite_promotion(k, k.promotion)
    storage.rewrite_pipelines(k)
    epilogue.rewrite_epilogue(k, k.promotion)
    k.edits.drop_unused(UNUSED_RULE, k.gemm.kernel)
    for name, use in k.edits.lost(k.gemm.kernel):
        raise Unrecognized(f"`{name}` is still used here, but what defined it is gone", use)


def _refusal(file: DslFile, kernel: str, what: str, node: cst.CSTNode) -> Diagnostic:
    span = Span(0, 0) if node is file.module else file.span(node)
    return Diagnostic(Code.DSL_STRUCTURE, file.location(span), {"kernel": kernel, "what": what})


def _imports(context: DslContext) -> None:
    """New imports stand behind the file's own ones of the package; one that nothing uses any more is replaced."""
    if not context.requested:
        return
    file = context.file
    lines = [s for s in file.module.body if _imports_package(file, s)]
    unused = [s for s in lines if _only_helpers(context, s)]
    text = "\n".join(sorted(context.requested.values(), key=lambda line: line.startswith("from")))
    if unused:
        context.edits.replace_lines(IMPORT_RULE, unused[0], text)
    else:
        context.edits.insert_after(IMPORT_RULE, lines[-1], text)


def _imports_package(file: DslFile, statement: cst.CSTNode) -> bool:
    small = only(statement)
    return isinstance(small, (cst.Import, cst.ImportFrom)) and "cutlass" in file.text(statement)


def _only_helpers(context: DslContext, statement: cst.CSTNode) -> bool:
    """An import of hopper_helpers whose names are all gone, or replaced by rules for names."""
    file = context.file
    small = only(statement)
    if not isinstance(small, cst.Import) or len(small.names) != 1 or small.names[0].asname is None:
        return False
    alias = file.text(small.names[0].asname.name)
    if file.imports.get(alias) != names.HELPERS:
        return False
    for node, name in file.references():
        if name.startswith(names.HELPERS + ".") and not context.edits.removed(node):
            kept = name in names.SHARED_LAYOUTS
            if kept:
                return False
    return True


def _renamed(
    rules: Sequence[Rule],
    file: DslFile,
    taken: Sequence[EditGroup],
    selection: Selection,
    ported: bool,
    kept: AbstractSet[str],
) -> list[EditGroup]:
    """One group for each rule on qualified names; those in `kept` stay."""
    claimed = [e.span for g in taken for e in g.edits if len(e.span)]
    found = []
    for rule in rules:
        if rule.region is not Region.NAME or rule.pattern is None or rule.replace is None:
            continue
        if not selection.takes(rule.id) or not rule.reads(file.path) or (rule.when is When.PORTED and not ported):
            continue
        edits = []
        for node, text, name in _named(file):
            match = rule.pattern.fullmatch(name)
            span = file.span(node)
            if match is None or name in kept or any(c.overlaps(span) for c in claimed):
                continue
            claimed.append(span)
            edits.append(Edit(file.path, span, _local(file, text, name, match.expand(rule.replace)).encode()))
        if edits:
            found.append(EditGroup(rule.id, rule.title, rule.safety, tuple(edits), rule.reason, rule.references))
    return found


def _named(file: DslFile) -> list[tuple[cst.BaseExpression, str, str]]:
    """References to the package, and methods `.name` of other values, as node, text and name."""
    found = [(node, file.text(node), name) for node, name in file.references()]
    for node in walk(file.module):
        if isinstance(node, cst.Attribute) and file.qualified(node) is None:
            found.append((node.attr, node.attr.value, "." + node.attr.value))
    return found


def _local(file: DslFile, text: str, old: str, new: str) -> str:
    """A new qualified name as the file would write it: with the alias of the old one where that still fits."""
    if new.startswith("."):
        return new[1:]
    alias = text.split(".", 1)[0]
    base = file.imports.get(alias, "")
    if new.startswith(base + ".") and not names.hopper_only(base + "."):
        return alias + new[len(base) :]
    shorts = {"cutlass.utils.blackwell_helpers": "sm100_utils", "cutlass.cute.nvgpu.tcgen05": "tcgen05"}
    for module, short in shorts.items():
        if new.startswith(module + "."):
            return short + new[len(module) :]
    return new


def _reworded(
    rules: Sequence[Rule], file: DslFile, taken: Sequence[EditGroup], selection: Selection, ported: bool
) -> list[EditGroup]:
    """One group for each rule on the contents of strings, of comments, or on the code between them."""
    claimed = [e.span for g in taken for e in g.edits if len(e.span)]
    regions = _regions(file)
    found = []
    for rule in rules:
        if rule.region not in regions or rule.pattern is None or rule.replace is None or not rule.reads(file.path):
            continue
        if not selection.takes(rule.id) or (rule.when is When.PORTED and not ported):
            continue
        edits = []
        for span in regions[rule.region]:
            text = file.source[span.start : span.end].decode("utf-8")
            for match in re.finditer(rule.pattern, text):
                start = span.start + len(text[: match.start()].encode())
                place = Span(start, start + len(match.group().encode()))
                new = match.expand(rule.replace)
                if new == match.group() or any(c.overlaps(place) for c in claimed):
                    continue
                claimed.append(place)
                edits.append(Edit(file.path, place, new.encode()))
        if edits:
            found.append(EditGroup(rule.id, rule.title, rule.safety, tuple(edits), rule.reason, rule.references))
    return found


def _regions(file: DslFile) -> dict[Region, list[Span]]:
    """Strings, comments, and the code between them."""
    strings, comments = [], []
    for node in walk(file.module):
        if isinstance(node, (cst.SimpleString, cst.FormattedStringText)):
            strings.append(file.span(node))
        elif isinstance(node, cst.Comment):
            comments.append(file.span(node))
    code, at = [], 0
    for span in merged([*strings, *comments, Span(len(file.source), len(file.source))]):
        code.append(Span(at, span.start))
        at = span.end
    return {Region.STRING: strings, Region.COMMENT: comments, Region.CODE: code}


def _left(path: str, ported: bytes, kept: AbstractSet[str]) -> list[Diagnostic]:
    """Names that only Hopper has and that no rule or pass took away."""
    try:
        file = parse_dsl(path, ported)
    except PorterError as error:
        what = f"the port of it is no valid Python ({error.diagnostic.values.get('problem')})"
        return [Diagnostic(Code.DSL_STRUCTURE, Location(path), {"kernel": path, "what": what})]
    return _unported(file, {n: node for node, n in file.references() if names.hopper_only(n) and n not in kept})


def _unported(file: DslFile, found: dict[str, cst.BaseExpression]) -> list[Diagnostic]:
    return [
        Diagnostic(
            Code.DSL_CONSTRUCT,
            file.location(file.span(node)),
            {"name": name, "what": "Hopper only, and in no place that the port knows"},
        )
        for name, node in found.items()
    ]


