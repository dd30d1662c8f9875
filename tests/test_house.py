# SPDX-License-Identifier: Apache-2.0
"""The rules of the house: who may import whom, how long a file may be, how diagnostics are numbered."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from porter.diagnostics import EXIT_CODE_TEXT, Code, ExitCode, Severity

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "porter"

MAX_LINES = 700
MAX_FUNCTION = 60

# What each part may import besides itself. `diagnostics` is open to all but `ptx`.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "ptx": frozenset(),
    "diagnostics": frozenset(),
    "project": frozenset(),
    "lang": frozenset({"project", "ptx"}),
    "model": frozenset({"lang", "ptx"}),
    "rules": frozenset({"passes", "model", "lang", "ptx"}),
    "passes": frozenset({"steps", "rules", "model", "lang", "ptx"}),
    "steps": frozenset({"passes", "rules", "model", "lang", "facts", "ptx"}),
    "build": frozenset({"ptx"}),
    "sim": frozenset({"ptx"}),
    "hopper": frozenset({"ptx"}),
    "facts": frozenset({"ptx"}),
    "sync": frozenset({"facts", "ptx"}),
    "equal": frozenset({"facts", "sim", "sync", "ptx"}),
    "grade": frozenset({"facts", "ptx"}),
    "verify": frozenset({"build", "sim", "hopper", "equal", "sync", "facts", "project", "ptx"}),
    "scan": frozenset({"passes", "rules", "model", "lang", "project", "ptx"}),
    "report": frozenset(
        {"grade", "verify", "build", "sim", "sync", "facts", "hopper", "passes", "rules", "model", "lang", "ptx"}
    ),
    "tune": frozenset({"steps", "passes", "grade", "verify", "build", "scan", "rules", "lang", "facts", "ptx"}),
    "cli": frozenset({"tune", "report", "grade", "scan", "verify", "build", "passes", "rules", "lang", "project"}),
}
# Parts that must not see each other even through a third one.
NEVER_REACHES = [("lang", "sim"), ("sim", "lang"), ("sim", "model"), ("passes", "sim"), ("ptx", "lang")]


def part_of(module: str) -> str | None:
    """`porter.lang.cuda` -> `lang`; the top package and foreign modules -> None."""
    names = module.split(".")
    return names[1] if names[0] == "porter" and len(names) > 1 else None


def imported_modules(tree: ast.AST, package: list[str]) -> Iterator[tuple[str, int]]:
    """Every module that `tree` imports, anywhere in it, lazily or not, with its line.

    `package` is the path of the package that holds the file, for relative imports. `from porter import x` and
    `from .. import x` count as an import of `porter.x`, and so does `import_module` with a literal name.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "porter":
                yield from ((f"porter.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno
        elif isinstance(node, ast.Call) and imports_by_call(node):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, node.lineno


def imports_by_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return bool(node.args) and name in {"import_module", "__import__"}


def importing_nodes(source: str, path: str) -> ast.Module:
    """What of a file imports anything: a tree that is walked again and again, where the whole file's takes long."""
    nodes = ast.walk(ast.parse(source, path))
    kept = [
        node
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Call) and imports_by_call(node))
    ]
    statements: list[ast.stmt] = [n if isinstance(n, ast.stmt) else ast.Expr(n) for n in kept]
    return ast.Module(statements, [])


@functools.cache
def importing_files() -> dict[Path, ast.Module]:
    """The files of the package with their `importing_nodes`."""
    return {path: importing_nodes(path.read_text("utf-8"), relative(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def forbidden_imports(tree: ast.AST, path: str) -> list[str]:
    """Imports that break the rules in `tree`, the file at `path`."""
    *package, name = Path(path).with_suffix("").parts
    part = package[1] if len(package) > 1 else name
    if part == "__init__":
        part = "diagnostics"  # The top package is a leaf as well.
    elif part == "__main__":
        part = "cli"
    allowed = MAY_IMPORT[part] | {part} | (frozenset() if part == "ptx" else {"diagnostics"})
    return [
        f"{path}:{line}: {part} imports {target}"
        for module, line in imported_modules(tree, package)
        if (target := part_of(module)) is not None and target not in allowed and not is_top_level_name(target)
    ]


def is_top_level_name(name: str) -> bool:
    """`from porter import __version__` names an attribute, not a part."""
    return name.startswith("__")


def python_files() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.py")])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_part_is_under_the_import_rules() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    parts |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert parts <= set(MAY_IMPORT)


def test_imports_look_only_the_way_they_may() -> None:
    broken = [line for path, tree in importing_files().items() for line in forbidden_imports(tree, relative(path))]
    assert not broken, "\n".join(broken)


BY_HAND = frozenset({"ast", "_ast", "tokenize", "token", "symtable", "lib2to3"})
"""Modules that read Python without libcst."""
REFERENCE_LANGUAGE = frozenset({"porter/verify/expr.py", "porter/verify/further.py", "porter/verify/references.py"})
"""What reads the expressions of cases, which are no Python file."""


def read_by_hand(tree: ast.AST, path: str) -> list[str]:
    """Imports with which the file at `path` reads Python without libcst."""
    found = imported_modules(tree, list(Path(path).parts[:-1]))
    named = [(module, line) for module, line in found if module.partition(".")[0] in BY_HAND]
    return [f"{path}:{line}: {module}" for module, line in named if path not in REFERENCE_LANGUAGE]


def test_python_is_read_by_libcst() -> None:
    broken = [line for path, tree in importing_files().items() for line in read_by_hand(tree, relative(path))]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "source",
    ["import ast", "from ast import parse", "def f():\n    import os, tokenize as t", "from lib2to3 import pytree",
     "import importlib\nimportlib.import_module('ast')", "__import__('symtable')"],
)  # fmt: skip
def test_reading_python_by_hand_is_seen(source: str) -> None:
    path = "porter/lang/python.py"
    assert read_by_hand(importing_nodes(source, path), path)
    assert not read_by_hand(importing_nodes("from porter.ptx import ast\nfrom .ast import f", path), path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("porter/ptx/ast.py", "from porter.diagnostics import Code"),
        ("porter/ptx/ast.py", "from ..lang import text"),
        ("porter/lang/cuda.py", "def f():\n    import porter.sim.core"),
        ("porter/sim/core.py", "from porter import lang"),
        ("porter/sim/datapath/mma.py", "from ...lang.text import Span"),
        ("porter/verify/runner.py", "from porter.passes.port import port_sources"),
        ("porter/report/terminal.py", "import importlib\nimportlib.import_module('porter.cli.main')"),
        ("porter/diagnostics/codes.py", "from porter.ptx import ast"),
    ],
)
def test_a_forbidden_import_is_seen(path: str, source: str) -> None:
    assert forbidden_imports(importing_nodes(source, path), path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("porter/sim/datapath/mma.py", "from ..machine import Machine\nfrom porter.ptx import arch"),
        ("porter/cli/port.py", "from porter.passes.port import port_sources\nfrom porter import __version__"),
        ("porter/lang/cuda.py", "from .text import Span\nfrom porter.diagnostics import Code"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert not forbidden_imports(importing_nodes(source, path), path)


def imports_between_parts() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {part: set() for part in MAY_IMPORT}
    for path, tree in importing_files().items():
        *package, name = path.relative_to(ROOT).with_suffix("").parts
        part = package[1] if len(package) > 1 else name
        for module, _ in imported_modules(tree, package):
            target = part_of(module)
            if part in edges and target in edges and target != part:
                edges[part].add(target)
    return edges


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for target in edges[todo.pop()] - seen:
            seen.add(target)
            todo.append(target)
    return seen


def test_parts_import_in_no_circle() -> None:
    edges = imports_between_parts()
    assert not [part for part in edges if part in reachable(edges, part)]


def test_parts_that_must_not_know_each_other() -> None:
    edges = imports_between_parts()
    assert not [(a, b) for a, b in NEVER_REACHES if b in reachable(edges, a)]


def test_verification_knows_no_exit_codes() -> None:
    """But for the one that tells a build that failed from what else is raised."""
    users = [relative(p) for p in sorted((PACKAGE / "verify").rglob("*.py")) if "ExitCode" in p.read_text("utf-8")]
    assert users == ["porter/verify/runner.py"]


# --- Modules


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        names = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def module_imports(tree: ast.AST, package: list[str], known: Iterable[str]) -> set[str]:
    """Modules among the `known` ones that `tree` imports anywhere: in functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                found.add(inner if inner in known else module)
        elif isinstance(node, ast.Import | ast.Call):
            found |= {module for module, _ in imported_modules(node, package)}
    return found.intersection(known)


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules each of which reaches all others."""
    below = {module: reachable(edges, module) for module in edges}
    found: list[set[str]] = []
    for module in sorted(edges):
        if module in below[module] and not any(module in circle for circle in found):
            found.append({other for other in below[module] if module in below[other]})
    return found


def test_modules_import_in_no_circle() -> None:
    known = modules()
    edges = {}
    for module, path in known.items():
        package = list(path.parent.relative_to(ROOT).parts)
        edges[module] = module_imports(importing_files()[path], package, known) - {module}
    assert not circles(edges)


@pytest.mark.parametrize(
    "source",
    [
        "from porter.sim.machine import Machine",
        "from porter.sim import machine",
        "from . import machine",
        "import porter.sim.machine",
        "def f():\n    from porter.sim.machine import Machine",
        "if TYPE_CHECKING:\n    from .machine import Machine",
        "importlib.import_module('porter.sim.machine')",
    ],
)
def test_an_import_of_a_module_is_seen(source: str) -> None:
    known = {"porter.sim", "porter.sim.machine", "porter.sim.engine"}
    assert "porter.sim.machine" in module_imports(ast.parse(source), ["porter", "sim"], known)


def test_a_circle_is_seen() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e", "a"}}
    assert circles(edges) == [{"a", "b", "c"}, {"e", "f"}]


FACTS = {
    r"\b227\b|\b232_?448\b|\bBANKS = |THREADS = 1024|\bthreads > 1024": "porter/ptx/arch.py",
    r"\b0xFFFFFF\b|\b0xFF000000\b": "porter/ptx/shared_window.py",
    r"\b32, 64, 128, 256, 512\b|32\|64\|128\|256\|512|\b128, 512$": "porter/ptx/tmem.py",
}
"""How facts of the ISA read where they are written out, and the only place for each."""


def test_facts_of_the_isa_stand_once() -> None:
    found = [
        f"{relative(path)}: {hit[0]} belongs to {home}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for fact, home in FACTS.items()
        if relative(path) != home and (hit := re.search(fact, path.read_text("utf-8"), re.MULTILINE))
    ]
    assert not found, "\n".join(found)


def test_files_stay_short() -> None:
    lengths = {relative(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert not {path: lines for path, lines in lengths.items() if lines > MAX_LINES}


def long_functions(source: str) -> set[str]:
    """Names of the functions with more lines than a function may have."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {n.name for n in nodes if (n.end_lineno or n.lineno) - n.lineno >= MAX_FUNCTION}


def test_functions_stay_short() -> None:
    found = {relative(path): long_functions(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert not {path: names for path, names in found.items() if names}


def test_a_long_function_is_seen() -> None:
    body = "\n".join("    pass" for _ in range(MAX_FUNCTION - 1))
    assert not long_functions(f"def f():\n{body}")
    assert long_functions(f"def f():\n    def g():\n{body.replace('    ', '        ')}\n        pass") == {"f", "g"}


def test_commands_decide_no_exit_codes() -> None:
    """They hand on what `porter.report.exits` makes of results; what they name themselves is success."""
    named = {
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted((PACKAGE / "cli").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ExitCode" and node.attr != "OK"
    }
    assert not named


def test_files_start_with_the_licence() -> None:
    marker = "# SPDX-License-Identifier: Apache-2.0"
    missing = [relative(p) for p in python_files() if not p.read_text("utf-8").startswith(marker)]
    assert not missing


def test_test_files_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


# --- Diagnostics


def diagnostic_blocks() -> dict[str, str]:
    """Member name -> digit of the `PTnxxx` heading of the module that holds its texts."""
    blocks: dict[str, str] = {}
    for path in (PACKAGE / "diagnostics").glob("*.py"):
        text = path.read_text("utf-8")
        if heading := re.search(r'^"""PT(\d)xxx', text, re.MULTILINE):
            members = re.findall(r"^([A-Z][A-Z0-9_]*) = (?:error|warning|note)\(", text, re.MULTILINE)
            blocks |= dict.fromkeys(members, heading[1])
    return blocks


RETIRED_IDS = {"PT2051", "PT2550", "PT2551", "PT5906"}
"""Once in use, and not to be given to anything else."""


def test_retired_ids_stay_retired() -> None:
    assert not {code.id for code in Code} & RETIRED_IDS


def test_diagnostic_ids_are_unique() -> None:
    # Members with equal values would be aliases, which iteration skips.
    assert len(Code.__members__) == len(list(Code))
    ids = [code.id for code in Code]
    assert sorted(ids) == sorted(set(ids))


def test_diagnostic_ids_stand_in_their_block() -> None:
    blocks = diagnostic_blocks()
    assert set(blocks) == set(Code.__members__)
    wrong = [code.id for code in Code if not re.fullmatch(rf"PT{blocks[code.name]}\d{{3}}", code.id)]
    assert not wrong


def test_diagnostics_say_what_why_and_what_next() -> None:
    for code in Code:
        info = code.value
        assert info.title, code.id
        assert not info.title.endswith("."), f"{code.id}: a title is a clause, without a full stop"
        assert info.detail.endswith("."), code.id
        assert info.next_step.endswith("."), code.id
        assert re.sub(r"\{[a-z_]+\}", "", info.title).count("{") == 0, f"{code.id}: fields are plain names"
        assert (info.severity is Severity.ERROR) == (info.exit_code is not ExitCode.OK), code.id


def test_every_exit_code_has_a_text() -> None:
    assert set(EXIT_CODE_TEXT) == set(ExitCode)
