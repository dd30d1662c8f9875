# SPDX-License-Identifier: Apache-2.0
"""The constructs of one file: inline PTX, names of libraries, guards and flags, and what each becomes."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.asm import AsmStatement, asm_in_macro, asm_statements, macro_definitions, unread_asm
from porter.lang.coverage import reading_findings
from porter.lang.cuda import CudaFile, enclosing, find, find_around, function_specifiers, location, parse_cuda
from porter.lang.cute_dsl import parse_dsl
from porter.lang.embedded import Embedded
from porter.lang.forms import without_other_form
from porter.lang.lexical import blanked
from porter.lang.masking import NO_MACROS, MacroUses
from porter.lang.sources import SourceSet, read_source
from porter.lang.text import LineIndex, Span
from porter.passes.build_files import text_rules
from porter.passes.dsl.renames import NameRules
from porter.passes.tiled.port import CUTE, HEADER
from porter.ptx.arch import SM100A
from porter.ptx.ast import Instruction
from porter.ptx.table import UnknownInstruction, check, opcode_modifiers
from porter.rules.load import load_rules, names_of
from porter.rules.match import matches, python_matches, text_matches
from porter.rules.rule import UNCHANGED, Region, Rule, When
from porter.scan.kernels import KernelSummary
from porter.scan.levels import Effort

SOURCE_TARGET = "sm_90a"
TARGET = SM100A.name
_BEFORE_HOPPER = "sm_80"

_MARKS = (b"wgmma", b"WGMMA", b"GMMA", b"SM90", b"Sm90", b"sm_90", b"warpgroup", b"KernelTma", b"TopKSoftmax")
"""Words that every construct of a library that is not ported holds; a file without any is not searched."""


@dataclass(frozen=True)
class Construct:
    """One kind of thing in a file.

    `kind`: `ptx` (an instruction), `library` (a name of a library), `guard`, `host`, `build` (architecture tests
    and flags), `dsl` (a name of CuTe DSL). `status`: `hopper` (for the source only: has to be ported), `beside`
    (changed with a kernel that is ported), `both` (on source and target), `unknown` (the instruction table does
    not have it, or it was not read). `since_hopper`: older architectures do not have it. `forms` counts the
    shapes and types of `wgmma.mma_async`, and the sizes of a family of MMA atoms. `rule` is the ID of the rule that it
    is known by, if one is.
    """

    name: str
    status: str
    places: tuple[Location, ...]
    kind: str = "ptx"
    becomes: str = ""
    since_hopper: bool = False
    forms: tuple[tuple[str, int], ...] = ()
    rule: str = ""

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def first(self) -> Location:
        return self.places[0]


@dataclass(frozen=True)
class FileInventory:
    """One file. `coverage` is the share of its non-blank bytes that was parsed, `unread` what was not.
    `has_wgmma`: the word wgmma stands in it, whether or not it could be read."""

    path: str
    lines: int
    nbytes: int
    coverage: float
    kernels: tuple[str, ...]
    constructs: tuple[Construct, ...]
    unread: tuple[Location, ...]
    notes: tuple[str, ...] = ()
    kind: str = "cuda"
    has_wgmma: bool = False
    effort: Effort = field(default_factory=Effort)
    summaries: tuple[KernelSummary, ...] = ()
    defines: frozenset[str] = frozenset()
    """Functions that are defined here, among those whose name a library has too."""

    @property
    def hopper_only(self) -> int:
        return sum(c.count for c in self.constructs if c.status == "hopper")

    @property
    def library(self) -> bool:
        """Whether constructs of a library are all that is Hopper-only here."""
        return {c.kind for c in self.constructs if c.status == "hopper"} == {"library"}

    @property
    def needs_port(self) -> bool:
        return self.hopper_only > 0 or self.has_wgmma


@functools.cache
def library_rules(directories: tuple[str, ...] = ()) -> tuple[Rule, ...]:
    """Rules that name constructs of libraries which are not ported."""
    rules = (r for r in load_rules(directories) if r.language == "cuda")
    return tuple(r for r in rules if r.report is not None and r.pattern is not None)


@functools.cache
def _beside_rules(directories: tuple[str, ...]) -> tuple[Rule, ...]:
    regions = (Region.DIRECTIVE, Region.CODE, Region.STRING)
    return tuple(
        r
        for r in load_rules(directories)
        if r.pattern is not None and r.replace is not None and r.when is When.PORTED and r.region in regions
        if r.language == "cuda"
    )


@functools.cache
def _text_rules(directories: tuple[str, ...]) -> tuple[Rule, ...]:
    rules = text_rules(load_rules(directories))
    return tuple(r for r in rules if r.pattern is not None and r.replace is not None)


@functools.cache
def _becomes(rule_id: str) -> str:
    return next((r.becomes for r in load_rules() if r.id == rule_id), "")


_PASS_OF_PTX = {
    "wgmma.mma_async": "PTR110",
    "wgmma.fence": "PTR120",
    "wgmma.commit_group": "PTR120",
    "wgmma.wait_group": "PTR120",
}


def cuda_inventory(
    path: str,
    source: bytes,
    target: str = TARGET,
    macros: MacroUses = NO_MACROS,
    rules: tuple[str, ...] = (),
) -> tuple[FileInventory, list[Diagnostic]]:
    """The inventory of one CUDA source, and what of it was not understood (PT1xxx). `rules`: directories of rules
    beside Porter's own."""
    file = without_other_form(parse_cuda(path, source, macros))
    found = source_inventory(file, target, rules)
    said: list[Diagnostic] = []
    if found.unread:
        said = [d for d in reading_findings(SourceSet(path, {path: file})) if d.code is not Code.UNRESOLVED_INCLUDE]
    return found, said


def embedded_inventory(
    path: Path, source: bytes, strings: Sequence[Embedded], target: str = TARGET, rules: tuple[str, ...] = ()
) -> tuple[FileInventory, list[Diagnostic]]:
    """The inventory of the CUDA sources in a file's strings; coverage is that of the strings."""
    text = bytearray(blanked(source))
    for string in strings:
        text[string.span.start : string.span.end] = string.shadow[string.span.start : string.span.end]
    found, said = cuda_inventory(path.as_posix(), bytes(text), target, rules=rules)
    return replace(found, lines=_line_count(source), nbytes=len(source)), said


def source_inventory(file: CudaFile, target: str = TARGET, rules: tuple[str, ...] = ()) -> FileInventory:
    """The inventory of one parsed CUDA source."""
    statements: list[AsmStatement] = []
    unread = [file.location(where) for where in file.unparsed]
    notes = []
    if b"asm" in file.source:
        statements += asm_statements(file)
        for macro in macro_definitions(file):
            statements += asm_in_macro(file, macro)
        unread += [file.location(where) for where in unread_asm(file)]
    for statement in statements:
        if statement.ptx is None:
            unread.append(statement.where)
            notes.append(f"{statement.where}: inline PTX not read: {statement.ptx_error}")
    constructs = [*_instructions(statements, target), *_unread_wgmma(file, statements)]
    defines: set[str] = set()
    if rules or any(mark in file.source for mark in _MARKS):
        constructs += _from_rules(file, _left_in(file, library_rules(rules)), "hopper", "library", defines)
        constructs += _from_rules(file, _beside_rules(rules), "beside", "host", defines)
    return FileInventory(
        path=file.path,
        lines=_line_count(file.source),
        nbytes=len(file.source),
        coverage=file.coverage,
        kernels=tuple(_kernels(file)),
        constructs=tuple(constructs),
        unread=tuple(unread),
        notes=tuple(notes),
        has_wgmma=any(c.name.startswith("wgmma") for c in constructs),
        defines=frozenset(defines),
    )


def _left_in(file: CudaFile, rules: Iterable[Rule]) -> list[Rule]:
    """The rules without those on what stays in a port."""
    is_port = PurePath(file.path).name == HEADER or any(
        PurePath(name).name == HEADER for name, _, _ in file.lexed.includes()
    )
    return [rule for rule in rules if not is_port or rule.library != CUTE]


def _line_count(source: bytes) -> int:
    return source.count(b"\n") + (not source.endswith(b"\n"))


def _kernels(file: CudaFile) -> Iterator[str]:
    """Names of the `__global__` functions that are defined here, in order."""
    if b"__global__" not in file.source and not any(
        word == b"__global__" and name.encode() in file.source for name, word in file.macros.specifiers.items()
    ):
        return
    words = [name.encode() for name, word in file.macros.specifiers.items() if word == b"__global__"]
    # a name that no definition tells may stand for it as well: `specifier_of`
    said = re.compile(b"|".join([b"__global__", b"GLOBAL", b"KERNEL", *words]))
    places = [match.start() for match in said.finditer(file.lexed.plain)]
    for node in find_around(file.root, "function_definition", places):
        declarator = node.child_by_field_name("declarator")
        if declarator is None or "__global__" not in function_specifiers(file, node):
            continue
        for function in find(declarator, "function_declarator"):
            name = function.child_by_field_name("declarator")
            if name is not None:
                yield file.text(name)
                break


def _family(instruction: Instruction) -> str:
    """The name that people know an instruction by: without types and shapes."""
    parts = instruction.parts
    if parts[0] == "wgmma":
        return ".".join(parts[:3] if parts[1:3] == ("mma_async", "sp") else parts[:2])
    kept = [parts[0]]
    for part in parts[1:]:
        if part[:1].isdigit() or "::" in part or part in _TYPE_LIKE:
            break
        kept.append(part)
    return ".".join(kept)


_TYPE_LIKE = frozenset(
    {"b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f32",
     "f64", "bf16", "pred", "x1", "x2", "x4", "m8n8", "v2", "v4", "rn", "aligned"}
)  # fmt: skip
_SHAPE = re.compile(r"m64n\d+k\d+")


def _form(instruction: Instruction) -> str:
    """`m64n128k16.f32.bf16.bf16` of an MMA: its shape and what follows."""
    parts = instruction.parts
    at = next((i for i, part in enumerate(parts) if _SHAPE.fullmatch(part)), None)
    return ".".join(parts[at:]) if at is not None else ""


def _instructions(statements: Iterable[AsmStatement], target: str) -> list[Construct]:
    places: dict[tuple[str, str], list[Location]] = {}
    first: dict[tuple[str, str], Instruction] = {}
    forms: dict[tuple[str, str], Counter[str]] = {}
    for statement in statements:
        for instruction in statement.ptx.instructions() if statement.ptx else ():
            key = (_family(instruction), _status(instruction, target))
            places.setdefault(key, []).append(statement.where)
            first.setdefault(key, instruction)
            if key[0].startswith("wgmma.mma_async"):
                forms.setdefault(key, Counter())[_form(instruction)] += 1
    order = {"hopper": 0, "unknown": 1, "both": 2}
    return [
        Construct(
            name=name,
            status=status,
            places=tuple(places[name, status]),
            becomes=_becomes(_PASS_OF_PTX[name]) if name in _PASS_OF_PTX else UNCHANGED if status == "both" else "",
            since_hopper=status != "unknown" and _since_hopper(first[name, status]),
            forms=tuple(sorted(forms.get((name, status), Counter()).items())),
            rule=_PASS_OF_PTX.get(name, ""),
        )
        for name, status in sorted(places, key=lambda k: (order[k[1]], k[0]))
    ]


@functools.lru_cache(65536)
def _status(instruction: Instruction, target: str) -> str:
    if opcode_modifiers(instruction.opcode) is None:
        return "unknown"
    try:
        if check(instruction, target) is None:
            return "both"
        return "hopper" if check(instruction, SOURCE_TARGET) is None else "unknown"
    except UnknownInstruction:
        return "hopper" if instruction.parts[0] == "wgmma" else "unknown"


def _since_hopper(instruction: Instruction) -> bool:
    try:
        return check(instruction, _BEFORE_HOPPER) is not None
    except UnknownInstruction:
        return False


_WGMMA_TEXT = re.compile(rb"wgmma\s*\.\s*(?:mma_async|fence|commit_group|wait_group)")


def _unread_wgmma(file: CudaFile, statements: Iterable[AsmStatement]) -> list[Construct]:
    """wgmma outside of every asm statement that was read: in strings, and in text that does not parse."""
    if b"wgmma" not in file.source:
        return []
    read = sorted((s.span.start, s.span.end) for s in statements if s.ptx is not None)
    places, at = [], 0
    for match in _WGMMA_TEXT.finditer(file.source):
        while at < len(read) and read[at][1] <= match.start():
            at += 1
        if (at < len(read) and read[at][0] <= match.start()) or _is_comment(file, match.start()):
            continue
        places.append(location(file, Span(match.start(), match.end())))
    return [Construct("wgmma in text that was not read", "hopper", tuple(places))] if places else []


def _is_comment(file: CudaFile, offset: int) -> bool:
    node = file.root.descendant_for_byte_range(offset, offset + 1)
    if node is not None and (node.type == "comment" or enclosing(node, "comment") is not None):
        return True
    line = file.source[file.source.rfind(b"\n", 0, offset) + 1 : offset]
    return b"//" in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line)


_TEMPLATE = re.compile(r"\s*[(<].*", re.DOTALL)


def without_own(file: FileInventory, defined: Collection[str]) -> FileInventory:
    """The inventory without constructs of libraries whose names are the sources' own functions."""
    kept = tuple(c for c in file.constructs if c.kind != "library" or re.split(r"\W", c.name)[0] not in defined)
    return file if kept == file.constructs else replace(file, constructs=kept)


def _from_rules(
    file: CudaFile,
    rules: Iterable[Rule],
    status: str,
    kind: str,
    defines: set[str],
) -> list[Construct]:
    """What the patterns of rules match, by the name matched; names that the file itself defines go to `defines`."""
    places: dict[tuple[str, str], list[Location]] = {}
    of_rule: dict[str, Rule] = {}
    forms: dict[tuple[str, str], Counter[str]] = {}
    for rule in rules:
        assert rule.pattern is not None
        for match in matches(rule, file):
            if kind == "library" and _is_qualified_own(file, match.span):
                continue
            if kind == "library" and _is_defined(file, match.span):
                defines.add(re.split(r"\W", match.text)[0])
                continue
            name, size = _of_family(rule.pattern, match.text)
            key = (_TEMPLATE.sub("", name) if kind == "library" else name.strip(), rule.id)
            places.setdefault(key, []).append(location(file, match.span))
            if size:
                forms.setdefault(key, Counter())[size] += 1
            of_rule[rule.id] = rule
    return [
        Construct(
            name,
            "both" if status == "hopper" and of_rule[rule_id].becomes == UNCHANGED else status,
            tuple(places[name, rule_id]),
            "guard" if of_rule[rule_id].region is Region.DIRECTIVE else kind,
            of_rule[rule_id].becomes,
            status == "hopper",
            tuple(sorted(forms.get((name, rule_id), Counter()).items())),
            rule_id,
        )
        for name, rule_id in sorted(places)
    ]


_SIZE = re.compile(r"\d+(?:x\d+)+")


def _of_family(pattern: re.Pattern[str], text: str) -> tuple[str, str]:
    """The name of the family that something is of, and its size: groups of one letter are extents, in whose place the
    name has the letter. The size is empty, and the name the text, if a pattern has none."""
    found = pattern.search(text)
    sizes = {name: found.span(name) for name in sorted(pattern.groupindex) if len(name) == 1} if found else {}
    if found is None or not sizes:
        return text, ""
    name = text
    for letter, (start, end) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        name = name[:start] + letter.upper() + name[end:]
    size = _SIZE.search(text)
    return name, size[0] if size is not None else ""


_LIBRARY_NAMESPACES = frozenset({"cute", "cutlass", "arch", "kittens"})
_QUALIFIERS = re.compile(rb"((?:\w+\s*::\s*)+)$")


def _is_qualified_own(file: CudaFile, where: Span) -> bool:
    """Whether a function with a library's name is called by another namespace's."""
    if not file.source[where.start : where.start + 1].islower():
        return False
    qualifiers = _QUALIFIERS.search(file.source, max(0, where.start - 80), where.start)
    return qualifiers is not None and qualifiers.group(1).split(b"::")[0].strip().decode() not in _LIBRARY_NAMESPACES


def _is_defined(file: CudaFile, where: Span) -> bool:
    """Whether a function with a library's name is defined here, outside of the library's namespaces."""
    if not file.source[where.start : where.start + 1].islower():
        return False
    node = file.root.descendant_for_byte_range(where.start, where.start + 1)
    declarator = enclosing(node, "function_declarator") if node is not None else None
    if declarator is None or enclosing(declarator, "function_definition") is None:
        return False
    named = declarator.child_by_field_name("declarator")
    if named is None or named.start_byte != where.start:
        return False
    outer = enclosing(declarator, "namespace_definition")
    while outer is not None:
        title = outer.child_by_field_name("name")
        if title is not None and set(file.text(title).split("::")) & _LIBRARY_NAMESPACES:
            return False
        outer = enclosing(outer, "namespace_definition")
    return True


def build_inventory(path: Path, rules: tuple[str, ...] = ()) -> FileInventory | None:
    """Architecture flags of a build file; None if there are none, or it is no text."""
    try:
        source = read_file(path)
    except PorterError:
        return None
    index = LineIndex(source)
    places: dict[tuple[str, str, str], list[Location]] = {}
    for rule in _text_rules(rules):
        for match in text_matches(rule, str(path), source):
            where = index.location(str(path), match.span)
            places.setdefault((match.text.strip(), rule.becomes, rule.id), []).append(where)
    if not places:
        return None
    constructs = tuple(
        Construct(name, "beside", tuple(found), "build", becomes, rule=rule)
        for (name, becomes, rule), found in sorted(places.items())
    )
    return build_file(path.as_posix(), source, constructs)


def build_file(path: str, source: bytes, constructs: tuple[Construct, ...] = ()) -> FileInventory:
    """The inventory of a build file, of which nothing is unread."""
    return FileInventory(path, _line_count(source), len(source), 1.0, (), constructs, (), kind="build")


def dsl_inventory(path: Path, rules: tuple[str, ...] = ()) -> FileInventory:
    """A CuTe DSL file: the names that it takes from the cutlass package, and MMAs in inline PTX.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE.
    """
    known = load_rules(rules)
    names = names_of(known)
    file = parse_dsl(str(path), read_source(path), dialect=names.dialect, excerpt=True)
    places: dict[tuple[str, str], list[Location]] = {}
    for span, name in file.named_places():
        key = (name, "hopper" if names.hopper_only(name) else "both")
        places.setdefault(key, []).append(file.location(span))
    order = {"hopper": 0, "both": 1}
    constructs = [
        Construct(name, status, tuple(places[name, status]), "dsl", _dsl_becomes(name, status, known))
        for name, status in sorted(places, key=lambda k: (order[k[1]], k[0]))
    ]  # fmt: skip
    texts = [m for r in known if r.refusal is not None for m in python_matches(r, file)]
    if texts:
        where = tuple(file.location(m.span) for m in texts)
        constructs.insert(0, Construct("wgmma as inline PTX", "hopper", where))
    return FileInventory(
        path=path.as_posix(),
        lines=_line_count(file.source),
        nbytes=len(file.source),
        coverage=1.0,
        kernels=tuple(k.name.value for k in file.decorated(lambda name: names.is_a(name, "kernel"))),
        constructs=tuple(constructs),
        unread=(),
        kind="dsl",
    )


def _dsl_becomes(name: str, status: str, rules: Sequence[Rule]) -> str:
    """What the rule on a name says."""
    found = NameRules(tuple(r for r in rules if r.replace is not None)).matching(name, False)
    return found[0][0].becomes if found and status == "hopper" else UNCHANGED
