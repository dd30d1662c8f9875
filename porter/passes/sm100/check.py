# SPDX-License-Identifier: Apache-2.0
"""All checks of code for SM100: sources of every kind, PTX and build files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from porter.diagnostics import Code, Diagnostic, Location
from porter.diagnostics.reading import read_file
from porter.lang.coverage import missing_includes
from porter.lang.cute_dsl import parse_dsl
from porter.lang.lexical import lexed
from porter.lang.sources import CUDA_ENDINGS, SourceSet, is_python, load_sources, read_source
from porter.lang.text import LineIndex
from porter.passes.sm100.conditions import Macros
from porter.passes.sm100.cuda import Checked, cuda_findings, learn_callers, learn_tcgen05
from porter.passes.sm100.instructions import ptx_findings
from porter.passes.sm100.issue import learn_issuers, uncounted
from porter.passes.sm100.python import python_findings
from porter.passes.sm100.signs import advice_rules, signs_in, stated_findings
from porter.passes.sm100.waits import Own
from porter.passes.tiled.port import HEADER
from porter.ptx.arch import SM100A, PortTarget
from porter.rules.load import load_rules, names_of
from porter.rules.match import Match, text_matches
from porter.rules.rule import UNCHANGED, Rule

PTX_ENDING = ".ptx"


def sm100_findings(
    path: Path,
    include_dirs: Sequence[Path] = (),
    rules: tuple[str, ...] = (),
    builds: Iterable[Path] = (),
    target: PortTarget = SM100A,
    macros: Macros | None = None,
) -> list[Diagnostic]:
    """What is found in a source with its local headers, in PTX or in a build file, in the order of its text. `builds`
    are the build files that decide how a source is compiled, `target` the chip that it is for, `macros` what the
    compiler's command line defines.

    Raises:
        PorterError: what reading the file raises.
    """
    known = load_rules(rules)
    advice = advice_rules(known)
    if path.suffix.lower() == PTX_ENDING:
        found = ptx_findings(str(path), read_source(path).decode("utf-8", "replace"), target)
    elif path.suffix.lower() in CUDA_ENDINGS:
        found = _cuda(load_sources(path, include_dirs), advice, known, _asserts(advice, builds), target, macros)
    else:
        found, names = _text(path, advice), names_of(known)
        if is_python(path):
            found += python_findings(parse_dsl(str(path), read_source(path), dialect=names.dialect), advice, names)
    return sorted(found, key=lambda d: _order(d.where))


def _order(where: Location | None) -> tuple[str, int, int]:
    return (where.path, where.line, where.column) if where is not None else ("", 0, 0)


def _cuda(
    sources: SourceSet,
    advice: Sequence[Rule],
    known: Sequence[Rule],
    asserts: bool | None,
    target: PortTarget,
    macros: Macros | None,
) -> list[Diagnostic]:
    ported = any(PurePath(path).name == HEADER for path in sources.files)
    # Where the header of ports stands, CuTe's types of Hopper say who has which element.
    hopper = [r for r in known if r.report is not None and r.becomes != UNCHANGED and not ported]
    own_files = [file for path, file in sources.files.items() if PurePath(path).name != HEADER]
    files = [Checked(file, advice, hopper, target, macros) for file in own_files]
    own = Own(frozenset().union(*(checked.defined for checked in files)))
    for checked in files:
        own.learn(checked.file, checked.statements, checked.of("wait"))
        learn_tcgen05(checked, own)
    learn_callers(files, own)
    texts = [(checked.file, checked.statements) for checked in files]
    learn_issuers(texts, own)
    found = [d for checked in files for d in cuda_findings(checked, own, asserts)]
    return [*_as_far_as_read(found, sources), *uncounted(texts)]


def _as_far_as_read(found: Sequence[Diagnostic], sources: SourceSet) -> list[Diagnostic]:
    """What is found, but where headers of the project are missing: a wait may stand in a function of theirs."""
    missing = missing_includes(sources)
    unwaited = [d for d in found if d.code is Code.T2R_UNWAITED]
    return [*missing, *(d for d in found if d not in unwaited)] if missing and unwaited else list(found)


def _asserts(advice: Sequence[Rule], builds: Iterable[Path]) -> bool | None:
    """Whether builds keep assertions: none of the build files that there are says otherwise."""
    files = [(str(path), read_file(path)) for path in builds]
    rules = [r for r in advice if r.advice is not None and r.advice.sign == "no_assertions"]
    return not any(any(text_matches(r, path, text)) for r in rules for path, text in files) if files else None


def _text(path: Path, advice: Sequence[Rule]) -> list[Diagnostic]:
    """Build files, and options in Python; comments of Makefiles and CMake count as text."""
    source = read_file(path)
    index = LineIndex(source)

    def place(match: Match) -> Location:
        return index.location(str(path), match.span)

    signs = signs_in(advice, lambda rule: text_matches(rule, str(path), source))
    return list(stated_findings(signs.get("finding", []), lexed(source).source_text, place))
