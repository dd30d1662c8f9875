# SPDX-License-Identifier: Apache-2.0
"""Build and packaging files of a project: what in them is for Hopper alone is rewritten where it is understood, and
listed where it is not.

Options and lists of architectures that stand as text are rules of `mappings/`; here is what needs more than one place:
options that take the architecture from a variable, and Python that asks for the device's compute capability.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.text import Edit, EditGroup, LineIndex, Safety, Span, apply_groups
from porter.rules.engine import Selection, build_file_groups
from porter.rules.rule import Region, Rule

FAMILY = "build files"
"""Rules of this name are for every build file."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "make": ("Makefile", "makefile", "GNUmakefile", "*.mk", "Makefile.*"),
    "cmake": ("CMakeLists.txt", "*.cmake"),
    "presets": ("CMakePresets.json", "CMakeUserPresets.json"),
    "python": ("setup.py", "noxfile.py", "build.py", "conanfile.py", "*_build.py", "build_*.py", "jit*.py", "*_jit.py"),
    "package": ("pyproject.toml", "setup.cfg", "meta.yaml", "tox.ini"),
    "shell": ("*.sh", "*.bash", "justfile", "Justfile"),
    "docker": ("Dockerfile", "Dockerfile.*", "*.dockerfile", "*.Dockerfile", "docker-compose.yml"),
    "workflow": (".gitlab-ci.yml", "azure-pipelines.yml", "*/.github/workflows/*.y*ml", "*/.circleci/*.yml"),
    "meson": ("meson.build", "meson_options.txt", "meson.options"),
    "bazel": ("BUILD", "BUILD.bazel", "*.bzl", ".bazelrc", "WORKSPACE"),
}
"""Names of files that say how sources are compiled, by what reads them."""

_PASSED_OVER = frozenset(
    {".git", ".venv", "venv", "node_modules", "__pycache__", "third_party", "3rdparty", "site-packages"}
)


def kind_of(path: str) -> str | None:
    """What reads a file of this name, None if it is no build file."""
    name = Path(path).name
    full = "/" + Path(path).as_posix().lstrip("/")
    for kind, patterns in KINDS.items():
        if any(fnmatch(full if "/" in p else name, p) for p in patterns):
            return kind
    return None


def build_files_below(directory: Path) -> list[Path]:
    """The build files of a tree, by name; not those of packages and tools that lie in it."""
    found = []
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(f for f in folders if f not in _PASSED_OVER)
        found += [Path(place, name) for name in sorted(names) if kind_of(str(Path(place, name))) is not None]
    return found


def build_files_beside(source: Path, rules: Sequence[Rule]) -> list[Path]:
    """The build files in a source's directory, and others that some rule reads."""
    text_rules = [r for r in rules if r.region is Region.TEXT and r.language != "cuda"]
    beside = sorted(p for p in source.parent.iterdir() if p.is_file() and p != source)
    return [p for p in beside if kind_of(str(p)) is not None or any(r.reads(str(p)) for r in text_rules)]


@dataclass(eq=False)
class BuildFiles:
    """The files that change, with the edits, and what was left over."""

    files: dict[str, bytes] = field(default_factory=dict)
    groups: list[EditGroup] = field(default_factory=list)
    left: list[Diagnostic] = field(default_factory=list)


def port_build_files(
    files: Mapping[str, bytes], rules: Sequence[Rule], selection: Selection, keep_hopper: bool = False
) -> BuildFiles:
    """Port build files by path. With `keep_hopper` what is built for Hopper is built for both chips."""
    result = BuildFiles()
    for path, source in sorted(files.items()):
        if b"\0" in source:
            continue
        groups = _both(path, source) if keep_hopper else _groups(path, source, rules, selection)
        ported = apply_groups({path: source}, groups)[path]
        if ported != source:
            result.files[path] = ported
            result.groups += groups
        kept = [(s.start, s.end) for g in groups for e in g.edits for s in [e.span]] if keep_hopper else []
        result.left += _left_over(path, source if keep_hopper else ported, kept)
    return result


def _groups(path: str, source: bytes, rules: Sequence[Rule], selection: Selection) -> list[EditGroup]:
    text_rules = [r if r.library != FAMILY else replace(r, files=("*",)) for r in rules if r.region is Region.TEXT]
    own = [g for g in (_variables(path, source), _capabilities(path, source, keep=False)) if g is not None]
    own = [g for g in own if selection.takes(g.rule)]
    taken = [e.span for g in own for e in g.edits]
    groups = build_file_groups(text_rules, {path: source}, selection)
    kept = []
    for group in groups:
        edits = tuple(e for e in group.edits if not any(e.span.overlaps(t) for t in taken))
        if edits:
            kept.append(EditGroup(group.rule, group.title, group.safety, edits, group.reason, group.references))
    return own + kept


# Options that take the architecture from a variable ---------------------------------------------------

_VARIABLE = r"\$\(\w+\)|\$\{\w+\}|\$\w+|\{\w+\}"
_NUMBERED = re.compile(rf"(?:-arch|--gpu-architecture)(=|\s+)sm_({_VARIABLE})")
_NAMED = re.compile(rf"(?:-arch|--gpu-architecture)(=|\s+)({_VARIABLE})(?![\w.(\[])")

_COMPUTE: Mapping[str, Callable[[str], str]] = {
    "make": lambda v: f"$(subst sm_,compute_,{v})",
    "shell": lambda v: f"compute_${{{v.strip('${}')}#sm_}}",
    "docker": lambda v: f"compute_${{{v.strip('${}')}#sm_}}",
    "workflow": lambda v: f"compute_${{{v.strip('${}')}#sm_}}",
    "python": lambda v: f"{{{v.strip('{}')}.replace('sm_', 'compute_')}}",
}
"""The virtual architecture of a variable that holds a real one such as sm_100a."""


def _variables(path: str, source: bytes) -> EditGroup | None:
    """`-arch=$(ARCH)` where the file gives ARCH Hopper's architecture: nvcc takes -arch for one more target than it
    names, which has no tcgen05."""
    text, kind = source.decode("latin-1"), kind_of(path) or ""
    edits = []
    for match in _NUMBERED.finditer(text):
        if _holds(text, match[2], r"90a"):
            new = f"-gencode{match[1]}arch=compute_{match[2]},code=sm_{match[2]}"
            edits.append(Edit(path, Span(match.start(), match.end()), new.encode("latin-1")))
    for match in _NAMED.finditer(text):
        made = _COMPUTE.get(kind)
        in_string = kind != "python" or _is_format(text, match.start())
        if made is not None and in_string and _holds(text, match[2], r"sm_90a"):
            new = f"-gencode{match[1]}arch={made(match[2])},code={match[2]}"
            edits.append(Edit(path, Span(match.start(), match.end()), new.encode("latin-1")))
    if not edits:
        return None
    return EditGroup(
        "PTR227",
        "Architecture option with a variable",
        Safety.REVIEW,
        tuple(edits),
        "nvcc compiles for the generic architecture too when it is given -arch=sm_100a; tcgen05 does not exist there.",
        ("nvcc, Options for steering GPU code generation",),
    )


def _holds(text: str, variable: str, value: str) -> bool:
    """Whether a file gives a variable this value somewhere."""
    name = re.escape(variable.strip("$(){}"))
    return re.search(rf"\b{name}\b[\"']?\s*(?:[?:+]?=|\s)\s*[\"']?{value}\b", text) is not None


def _is_format(text: str, at: int) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return re.search(r"\b[fF][rR]?[\"'][^\"']*$", line) is not None


# Python that asks for the compute capability ----------------------------------------------------------


def _capabilities(path: str, source: bytes, keep: bool) -> EditGroup | None:
    """Comparisons that admit Hopper admit the port's chip, or with `keep` both."""
    if kind_of(path) != "python" or (b"capability" not in source and b".major" not in source):
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    starts = LineIndex(source)
    edits = []
    for node, value in _comparisons(tree):
        first, last = _offset(starts, node.comparators[0]), _end(starts, node.comparators[0])
        equal = isinstance(node.ops[0], ast.Eq)
        new = repr(_PORTED[value])
        if keep:
            between = source[_end(starts, node.left) : first]
            operator = re.search(rb"==|!=", between)
            assert operator is not None
            first = _end(starts, node.left) + operator.start()
            between = between[operator.end() :]
            new = f"{'in' if equal else 'not in'}{between.decode() or ' '}({value!r}, {new})"
            if source[first - 1 : first] not in b" \t)":
                new = " " + new
        edits.append(Edit(path, Span(first, last), new.encode()))
    if not edits:
        return None
    return EditGroup(
        "PTR228",
        "Compute capability in build code",
        Safety.REVIEW,
        tuple(edits),
        "sm_100a is compute capability 10.0. The comparison is taken to admit the GPU that the kernels are for.",
        ("CUDA C++ Programming Guide, Compute Capabilities",),
    )


_PORTED: Mapping[object, object] = {(9, 0): (10, 0), 9: 10, 90: 100}


def _comparisons(tree: ast.Module) -> Iterator[tuple[ast.Compare, object]]:
    """Comparisons for equality of a capability with Hopper's."""
    kinds = _Capabilities(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            continue
        wanted = kinds.of(node.left)
        try:
            value = ast.literal_eval(node.comparators[0])
        except (ValueError, TypeError):
            continue
        if wanted is not None and (value == wanted) and type(value) is type(wanted):
            yield node, value


class _Capabilities:
    """What expressions of a module hold of a capability, told by Hopper's value of it: (9, 0), 9 or 90."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, object] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        found = self.of(value)
        if isinstance(target, ast.Name):
            if found is None:
                self.names.pop(target.id, None)
            else:
                self.names[target.id] = found
        elif isinstance(target, ast.Tuple) and found == (9, 0) and target.elts and isinstance(target.elts[0], ast.Name):
            self.names[target.elts[0].id] = 9

    def of(self, node: ast.expr) -> object:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return (9, 0) if name == "get_device_capability" else None
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            return 9 if self.of(node.value) == (9, 0) else None
        if isinstance(node, ast.Attribute):
            return 9 if node.attr == "major" else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.BinOp):
            ten = node.left.right
            scaled = isinstance(node.left.op, ast.Mult) and isinstance(ten, ast.Constant) and ten.value == 10
            return 90 if scaled and self.of(node.left.left) == 9 else None
        return None


def _offset(lines: LineIndex, node: ast.expr) -> int:
    return lines.line_start(node.lineno) + node.col_offset


def _end(lines: LineIndex, node: ast.expr) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return lines.line_start(node.end_lineno) + node.end_col_offset


# Both chips -------------------------------------------------------------------------------------------

_OPTION = re.compile(
    r"(?P<q>[\"']?)(?P<name>-gencode|--generate-code)(?P<sep>=|[ \t]+|[\"'][ \t]*,[ \t]*[\"'])"
    r"(?P<value>arch=compute_90a,code=(?:\[[^\]\n]*\]|\"[\w,]+\"|[\w,]+))(?P<end>[\"']?)"
)
_SHORT = re.compile(r"(?P<q>[\"']?)(?:-arch|--gpu-architecture)(?P<sep>=|[ \t]+)sm_90a\b(?P<end>[\"']?)")
_CMAKE_LIST = re.compile(
    r"(?P<head>(?:\b|(?<=-D))(?:(?:CMAKE_)?CUDA_ARCHITECTURES\b(?::STRING)?|CUDAARCHS\b))"
    r"(?P<mid>[\"':=\s]*(?:\d+[\w-]*[;\s]+)*)90a(?P<kind>-real|-virtual)?\b"
)
_TORCH_LIST = re.compile(r"(?P<head>\bTORCH_CUDA_ARCH_LIST\b)(?P<mid>[^\n]*?[\s\"';:=])9\.0a(?P<kind>\+PTX)?(?![\w.])")


def _both(path: str, source: bytes) -> list[EditGroup]:
    """Edits that build for both chips what is built for Hopper."""
    text, kind = source.decode("latin-1"), kind_of(path) or ""
    edits: list[Edit] = []

    def put(start: int, end: int, new: str) -> None:
        if not any(e.span.overlaps(Span(start, end)) for e in edits):
            edits.append(Edit(path, Span(start, end), new.encode("latin-1")))

    for match in _OPTION.finditer(text):
        added = _added_option(text, match, kind)
        if added is not None and not _has_both(text, match):
            put(match.end(), match.end(), added)
    for match in _SHORT.finditer(text):
        if not match["q"] or match["q"] == match["end"]:
            glue = f"{match['q']}, {match['q']}" if match["q"] else " "
            if match["q"] and kind not in ("python", "bazel", "meson"):
                continue
            options = [f"-gencode{match['sep']}arch=compute_{a},code=sm_{a}" for a in ("90a", "100a")]
            put(match.start(), match.end(), match["q"] + glue.join(options) + match["end"])
    for match in (*_CMAKE_LIST.finditer(text), *_TORCH_LIST.finditer(text)):
        one, other = ("90a", "100a") if match.re is _CMAKE_LIST else ("9.0a", "10.0a")
        rest = text[match.end() : text.find("\n", match.end()) if "\n" in text[match.end() :] else len(text)]
        if re.search(rf"(?<![\w.]){re.escape(other)}\b", rest + match["mid"]):
            continue
        listed = _listed(text, match, one + (match["kind"] or ""), other + (match["kind"] or ""), kind)
        if listed is not None:
            put(*listed)
    capabilities = _capabilities(path, source, keep=True)
    found = [] if capabilities is None else [capabilities]
    if edits:
        reason = "Each object holds code for both architectures; the driver takes the one of the device."
        group = EditGroup("PTR231", "Architecture options of both chips", Safety.REVIEW, tuple(edits), reason,
                          ("nvcc, Options for steering GPU code generation",))  # fmt: skip
        found.append(group)
    return found


def _has_both(text: str, match: re.Match[str]) -> bool:
    """Whether the options that follow on the same line name the other chip already."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : (text.find("\n", match.end()) + 1 or len(text) + 1) - 1]
    return "compute_100a" in line


def _added_option(text: str, match: re.Match[str], kind: str) -> str | None:
    """The option for the other chip as it stands behind this one; None if how a list is written is not known."""
    value = match["value"].replace("90a", "100a")
    quote = match["q"]
    if kind == "cmake" and re.search(
        r"\$<[^\n>]*:[^\n]*$", text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    ):
        return None
    if quote and match["end"] == quote:
        again = f"{quote}{match['name']}{match['sep']}{value}{quote}"
        return f", {again}" if kind in ("python", "bazel", "meson") else f" {again}"
    if match["sep"][-1] in "\"'":
        return None
    # an option among others of one text
    ending = match["end"]
    return None if ending else f" {match['name']}{match['sep']}{value}"


def _listed(text: str, match: re.Match[str], one: str, other: str, kind: str) -> tuple[int, int, str] | None:
    """Where a list of architectures takes in the other one: start, end and what stands there."""
    end = match.end()
    start = end - len(one)
    before, after = text[start - 1 : start], text[end : end + 1]
    if before in "\"'" and before == after and kind == "python" and "[" in match["mid"]:
        return end + 1, end + 1, f", {before}{other}{before}"
    opened = len(re.findall(r"[\"']", text[text.rfind("\n", 0, start) + 1 : start])) % 2 == 1
    if opened or before == ";" or after == ";":
        return end, end, f";{other}"
    if kind == "cmake":
        return end, end, f" {other}"
    if before in "=: \t" and kind in ("shell", "make", "workflow", "package"):
        return start, end, f'"{one};{other}"'
    return (end, end, f";{other}") if kind in ("docker", "presets") else None


# What is left -----------------------------------------------------------------------------------------

_NAMES_HOPPER = re.compile(r"(?:sm|compute|lto)_90a\b|(?<![\w#.])90a\b|(?<![\w.])9\.0a\b")
_ASKS = re.compile(
    r"(?<!>)(?<!>=)(?<!> )(?<!>= )[(\[]\s*9\s*,\s*0\s*[)\]]"
    r"|(?:==|!=|<=|-eq|-ne|\bEQUAL|\bIS)\s*[\"']?(?:9|90|9\.0)\b(?![.\w])"
    r"|\bifn?eq\b[^\n]*(?<![\w.])90?(?![\w.])|\b(?:STREQUAL|MATCHES|VERSION_EQUAL)\s+\"?\^?\(?9\\*\.?0"
)
_ADMITS = re.compile(r"100a\b|(?<![\w.])10\.0a?\b|\b10\s*,\s*0\b|(?<![\w.])100?(?![\w.])")
"""What stands for Blackwell on a line that names Hopper."""
_COMPOSED = re.compile(r"(?:sm|compute)_(?:\$\(\w+\)|\$\{\w+\}|\{\w*\}|%[ds])a\b|[\"']\s*\+\s*\w+\s*\+\s*[\"']a\b")
_OF_ARCHITECTURES = re.compile(r"(?i)arch|capab|major|gencode|compute|\bcc\b|\bsm\b")
_COMMENT = re.compile(r"(^|\s)#.*")

_ADVICE: Mapping[str, str] = {
    "names": "give it sm_100a (100a, 10.0a) as well, as nvcc's option -gencode arch=compute_100a,code=sm_100a",
    "asks": "admit compute capability 10.0 too",
    "composed": "add 100 to the architectures that get the suffix `a`",
}


def _left_over(path: str, source: bytes, kept: Iterable[tuple[int, int]] = ()) -> Iterator[Diagnostic]:
    """Places that are for Hopper and that nothing was made of. `kept` are edits beside which Hopper's text stays."""
    text = source.decode("latin-1")
    composes = _COMPOSED.search(text) is not None
    covered = [
        (text.rfind("\n", 0, start) + 1, text.find("\n", end) if "\n" in text[end:] else len(text))
        for start, end in kept
    ]
    at = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        start, at = at, at + len(line)
        if any(a <= start < b or start <= a < at for a, b in covered):
            continue
        code = line if kind_of(path) == "presets" else _COMMENT.sub("", line)
        if _ADMITS.search(code):
            continue
        if _NAMES_HOPPER.search(code):
            what = "names"
        elif _OF_ARCHITECTURES.search(code) and _ASKS.search(code):
            what = "asks"
        elif composes and _OF_ARCHITECTURES.search(code) and re.search(r"(?<![\w.])90(?![\w.])", code):
            what = "composed"
        else:
            continue
        values = {"text": line.strip()[:100], "advice": _ADVICE[what]}
        yield Diagnostic(Code.BUILD_FILE_LEFT, Location(path, number), values)
