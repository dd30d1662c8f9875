# SPDX-License-Identifier: Apache-2.0
"""`porter plan`: what a port would do to each kernel, and why, without writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.text import Text

from porter.cli.candidates import body as body_of_candidate
from porter.cli.candidates import candidates
from porter.cli.candidates import text as text_of_candidates
from porter.cli.context import Session, command
from porter.cli.inputs import processes, require_directories
from porter.cli.nearby import looked_in
from porter.cli.porting import asking, look, port_options
from porter.diagnostics import Code, Diagnostic, ExitCode, worst_exit
from porter.passes.dsl.port import DslPortResult
from porter.passes.full_rate.asked import SAME
from porter.passes.partial import LeftKernel
from porter.passes.plan import KernelPlan
from porter.passes.planned import NativePlan, native_plans
from porter.passes.port import PortOptions, PortResult
from porter.passes.ported import PortedRoot, Result, port_each, roots
from porter.report import grade as report_grade
from porter.report import json as report_json
from porter.report import native as report_native
from porter.report import pipeline as report_pipeline
from porter.report.tables import bare_table
from porter.rules.load import load_rules
from porter.scan.kernels import KernelSummary, includes_first, kernel_summaries
from porter.scan.pipeline import KernelPipeline, pipelines
from porter.scan.staging import most_stages_of
from porter.tune.automatic import of_file, one_each
from porter.tune.full_rate import unproved
from porter.tune.styles import AUTO, NATIVE
from porter.tune.verifying import ON_PTX, as_given
from porter.verify.proof import outlook


@command
def plan(
    session: Session, paths: tuple[Path, ...], include_dirs: tuple[Path, ...], pipeline: bool, steps: bool,
    jobs: int | None,
) -> ExitCode:  # fmt: skip
    require_directories("-I", include_dirs)
    include_dirs, nearby = looked_in(paths, include_dirs)
    options = asking(session, port_options(session))
    plans: list[KernelPlan] = []
    left: list[LeftKernel] = []
    summaries: list[KernelSummary] = []
    diagnostics: list[Diagnostic] = list(nearby)
    code = ExitCode.OK
    python: list[tuple[str, DslPortResult]] = []
    facts: list[KernelPipeline] = []
    native: list[NativePlan] = []
    made = list(_ported(session, paths, options, include_dirs, jobs))
    for given in as_given([(root, r.plans) for root, r in made if not isinstance(r, DslPortResult)]):
        plans = _with_those_of(plans, [_asked(session, p) for p in given.plans])
        diagnostics += _of_style(session, given.said)
    for root, result in made:
        if isinstance(result, DslPortResult):
            python.append((str(root), result))
        if isinstance(result, PortResult):
            rules = load_rules(options.rule_directories)
            summaries += kernel_summaries(result, rules)
            known = pipelines(root, rules, include_dirs) if pipeline or session.style == NATIVE else []
            facts += known if pipeline else []
            room = {one.pipeline.kernel: most_stages_of(one) for one in known}
            native += native_plans(result, options, room, rules) if session.style == NATIVE else []
        diagnostics += [d for d in includes_first(_said(session, root, result)) if d not in diagnostics]
        left += [k for k in getattr(result, "left", ()) if k not in left]
        code = worst_exit([code, ExitCode(result.exit_code)])
    if not (plans or left or python or summaries or diagnostics != nearby or facts or native):
        diagnostics += [Diagnostic(Code.NOTHING_TO_PORT, None, {"path": str(path)}) for path in paths]
    attempts, said = candidates(session, paths, include_dirs) if steps else ([], [])
    diagnostics += [d for d in said if d not in diagnostics]
    gates = {path: _gate(session, path, ported, diagnostics) for path, ported in python}
    session.report(diagnostics)
    _show_kernels(session, plans, summaries)
    for kernel in left:
        _show_left(session, kernel)
    for path, ported in python:
        _show_python(session, path, ported, gates[path])
    session.show(*(part for known in facts for part in report_pipeline.text(known)))
    session.show(*(part for one in native for part in report_native.text(one)))
    session.show(*(text_of_candidates(attempts) if steps else ()))
    body = {
        "kernels": [asdict(p) | {"ceiling": _ceiling(p)} for p in plans],
        "summaries": [asdict(s) for s in summaries],
        "left": [asdict(k) for k in left],
        "files": [_python_body(path, ported, gates[path]) for path, ported in python],
        "diagnostics": report_json.diagnostics(diagnostics),
        **({"pipelines": [report_pipeline.body(p) for p in facts]} if pipeline else {}),
        **({"candidates": [body_of_candidate(one) for one in attempts]} if steps else {}),
        **({"native": [report_native.body(n) for n in native]} if session.style == NATIVE else {}),
    }
    session.write_json(report_json.document("plan", code, body))
    return code


def _show_kernels(session: Session, plans: Sequence[KernelPlan], summaries: Sequence[KernelSummary]) -> None:
    used = {(s.kernel, s.path): s for s in summaries}
    for one in plans:
        _show(session, one, used.pop((one.kernel, one.path), None))
    for summary in used.values():
        _show_stopped(session, summary)


def _said(session: Session, root: Path, result: Result) -> Sequence[Diagnostic]:
    if session.style != AUTO:
        return result.diagnostics
    return one_each(result.diagnostics, [PortedRoot(str(root), tuple(result.files))], session.verbosity > 0)


def _ported(
    session: Session, paths: tuple[Path, ...], options: PortOptions, include_dirs: tuple[Path, ...], jobs: int | None
) -> Iterator[tuple[Path, Result]]:
    """What becomes of each file, agreed on the headers that files share."""
    count = processes(jobs, paths)
    with session.counting() as counted:
        tell = partial(counted, "planning") if counted is not None else None
        chosen = roots(paths, options.rule_directories, include_dirs)
        made = port_each(chosen, options, include_dirs, look, count, tell)
    for file in made:
        if file.error is not None:
            raise file.error
        assert file.result is not None
        yield file.root, file.result


_FULL_RATE = "128: one MMA for two tiles of 64 rows, if `porter port` finds all of this; else 64"


_OWN_WORDS = "those of a block's tile, in Blackwell's own words, if `porter port` finds all of this; else 64"


def _of_style(session: Session, said: Sequence[Diagnostic]) -> list[Diagnostic]:
    """What is said of M=128 MMAs that nothing could be run for."""
    asked = session.style == AUTO
    return [of_file(d) if asked and d.code is Code.FULL_RATE_UNPROVED else d for d in said]


_NO_SLOWER = "by the grade it is no slower than with M=64"


def _asked(session: Session, one: KernelPlan) -> KernelPlan:
    """A plan with what the style asks of M=128 MMAs beside the run."""
    asks = session.style == AUTO and one.has_full_rate and not any(what.startswith(ON_PTX) for what in one.gate)
    return replace(one, gate=(*one.gate, _NO_SLOWER)) if asks else one


def _with_those_of(plans: Sequence[KernelPlan], more: Sequence[KernelPlan]) -> list[KernelPlan]:
    """A header is shown once, for all files that include it, with what has to be shown for one of them."""
    found = {replace(one, gate=()): one.gate for one in plans}
    for one in more:
        plan = replace(one, gate=())
        found[plan] = tuple(dict.fromkeys((*found.get(plan, ()), *one.gate)))
    return [replace(plan, gate=gate) for plan, gate in found.items()]


def _gate(session: Session, path: str, ported: DslPortResult, diagnostics: list[Diagnostic]) -> list[str]:
    """What a run has to show of a CuTe DSL file in Blackwell's own words; nothing where it is not."""
    if not ported.idiomatic:
        return []
    found = outlook(Path(path), ported.kernels, dsl=True)
    if found.missing:
        diagnostics += _of_style(session, [unproved(path, found.missing)])
        return []
    return [SAME, *found.asks, *([_NO_SLOWER] if session.style == AUTO else [])]


def _python_body(path: str, ported: DslPortResult, gate: list[str]) -> dict[str, object]:
    return {"path": path, "rules": sorted({g.rule for g in ported.groups}), "gate": gate}


def _show_python(session: Session, path: str, ported: DslPortResult, gate: list[str]) -> None:
    """A CuTe DSL file: the rules that apply, and how often, and the files that the port adds. `gate`: what
    has to be shown of one in Blackwell's own words."""
    session.show(Text(path, "bold"))
    for label, text in [("MMA rows", _OWN_WORDS), *(("to be shown", what) for what in gate)] if gate else []:
        session.show(Text.assemble("  ", (label.ljust(15), "cyan"), text))
    table = bare_table("rule", "edits", "safety", "what")
    for rule in sorted({g.rule for g in ported.groups}):
        groups = [g for g in ported.groups if g.rule == rule]
        table.add_row(rule, str(sum(len(g.edits) for g in groups)), groups[0].safety.value, groups[0].title)
    for added in sorted(set(ported.files) - set(ported.sources.files)):
        session.show(Text(f"  adds {added}"))
    session.show(table if ported.groups else Text("  nothing to port, or nothing that can be: see the messages"))


def _show_left(session: Session, left: LeftKernel) -> None:
    session.show(Text.assemble((left.kernel, "bold"), f"  {left.path}:{left.line}"))
    session.show(Text.assemble("  ", ("not ported".ljust(15), "cyan"), "as it is for sm_90a, a trap elsewhere"))
    for label, texts in (("because", left.why), ("named by", left.launches)):
        for text in texts:
            session.show(Text.assemble("  ", (label.ljust(15), "cyan"), text))


def _show_stopped(session: Session, summary: KernelSummary) -> None:
    """A kernel in CuTe C++ that is not ported."""
    session.show(Text.assemble((summary.kernel, "bold"), f"  {summary.path}:{summary.line}"))
    for label, texts in (("uses", (", ".join(summary.uses),)), ("blocked by", summary.blocks)):
        for text in texts:
            session.show(Text.assemble("  ", (label.ljust(15), "cyan"), text))


def _ceiling(one: KernelPlan) -> float | None:
    """The share of the nominal rate that the MMAs of a port allow; None where a library's types say their N."""
    widths = [a.columns for a in one.accumulators if isinstance(a.columns, int)]
    return report_grade.ceiling(widths, one.mma_rows) if widths else None


def _show(session: Session, one: KernelPlan, summary: KernelSummary | None) -> None:
    first = one.first_warpgroup
    who = f"{one.warpgroups} that run MMAs" + (f", from warpgroup {first} on" if first else "")
    session.show(Text.assemble((one.kernel, "bold"), f"  {one.path}:{one.line}"))
    facts = [
        *([("uses", ", ".join(summary.uses))] if summary is not None else []),
        ("threads", one.threads),
        ("warpgroups", who),
        ("Tensor Memory", f"{one.columns} columns a warpgroup; two warpgroups share columns"),
        *([("MMA rows", _FULL_RATE)] if one.mma_rows == 128 else []),
        *(("to be shown", what) for what in one.gate),
        ("MMA batches", f"{one.in_flight} in flight, one completion barrier each"),
        *([("named barriers", f"{one.barrier} and downwards, one a warpgroup")] if one.barrier else []),
        *([("grade", report_grade.ceiling_line(bound, one.mma_rows))] if (bound := _ceiling(one)) is not None else []),
        *(("note", note) for note in one.notes),
    ]
    for label, text in facts:
        session.show(Text.assemble("  ", (label.ljust(15), "cyan"), text))
    table = bare_table("accumulator", "in", "tiles", "N", "cleared at", "loaded at", "stored at", "because")
    for a in one.accumulators:
        lines = [", ".join(map(str, numbers)) or "-" for numbers in (a.cleared, a.loaded, a.stored)]
        table.add_row(a.name, a.function, a.tiles, str(a.columns), *lines, f"{a.element}, {a.residency}")
    session.show(table)
