# SPDX-License-Identifier: Apache-2.0
"""Ports compared with their originals on PTX, beside other checks: every kernel of every file that a port changes, as
the cases beside it launch it, else as its host code says, else as its own main() does."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from porter.build.cache import Cache, digest
from porter.build.entry import function_name, kernel_name
from porter.build.gate import Gated
from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.build.trust import is_granted
from porter.cli.building import make_builder
from porter.cli.context import Session
from porter.cli.launched import launches_in_host_code
from porter.cli.mains import compared_by_main, programs_of
from porter.cli.porting import plan_in
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.diagnostics.spread import spread
from porter.passes.ported import Ported, PortedRoot
from porter.report import equality as report_equality
from porter.report import proofs as report_proofs
from porter.report.exits import gate_exit
from porter.verify.budget import digest_of
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.case_program import Program
from porter.verify.equality import Equality
from porter.verify.gate import GateOptions
from porter.verify.problem import bind
from porter.verify.proved import CaseProofs, prove_case
from porter.verify.proving import Sizes, listed

_PACKAGE = Path(__file__).resolve().parents[1]
_NAMED = 4
"""Kernels that a line names."""


@dataclass(frozen=True)
class Told:
    """A comparison as other processes and later runs hand it on, without the programs themselves. `entries`: mangled
    names of the original's kernels that were looked at; `equality`: its status, empty where nothing was compared."""

    case: str
    body: dict[str, Any]
    lines: tuple[str, ...] = ()
    wrong: tuple[Diagnostic, ...] = ()
    entries: tuple[str, ...] = ()
    equality: str = ""
    extent: str = ""
    """For which sizes."""
    left_out: str = ""
    """The first of those that were asked for and not looked at."""
    as_original: str = ""
    """What is said where both leave the same in one schedule, and nothing but hazards of the original, of which the
    port has at most the same ones, keeps it from being known for all."""

    @property
    def kernel(self) -> str:
        return kernel_name(self.entries[0]) if self.entries else self.case


class As(NamedTuple):
    """The errors of a port that brings hazards in, and of one that leaves something else."""

    hazard: Code
    differs: Code


TO_WRITE = As(Code.PORT_HAZARD, Code.PORT_UNEQUAL)
"""Of a port that is to be written."""
THERE = As(Code.HAZARD_PROVED, Code.UNEQUAL_PROVED)
"""Of one that is there, or is looked at alone."""


@dataclass(frozen=True)
class Subject:
    """A file that is ported: `plan_of` gives the port as a case, or its own host code, launches it, None where there is
    none; `entries` are the mangled names of the kernels that the compiler made of the original, `unmade` the names of
    those of which it made nothing. `cases`: None for those beside it."""

    path: Path
    plan_of: Callable[[Case | None], PortPlan | None]
    entries: Sequence[str]
    unmade: Sequence[str] = ()
    cases: Sequence[Case] | None = None


class _Work(NamedTuple):
    case: Case
    plan: PortPlan
    sizes: Sequence[Sizes]


class Comparing:
    """Compares what programs leave, `seconds` for each proof and each comparison, several at once. `options`: how the
    compile gate compiles; `for_all`: also for all of the sizes that turns follow; `beyond`: also at those at which
    turns or blocks do what they do at none of the others."""

    def __init__(
        self, session: Session, seconds: float, options: GateOptions, said: As = TO_WRITE,
        sizes_of: Callable[[Case], Sequence[Sequence[Sizes]]] | None = None, for_all: bool = False,
        beyond: bool = False,
    ) -> None:  # fmt: skip
        self._session, self._seconds, self._options, self._said = session, seconds, options, said
        self._sizes_of, self._for_all, self._beyond = sizes_of or first_sizes, for_all, beyond
        self._builder: ToolkitBuilder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)

    def compare(self, subjects: Sequence[Subject]) -> list[Told]:
        """What is known of each kernel of some files. One that nobody launches is not known to be equal."""
        found: list[Told] = []
        left = {subject.path: list(dict.fromkeys(subject.entries)) for subject in subjects}
        with tempfile.TemporaryDirectory(prefix="porter-") as spare:
            for cases_of in (_beside, partial(self._in_host_code, Path(spare))):
                works = [(s, w) for s in subjects for w in self._works(s, cases_of(s, left[s.path]))]
                told = self._each([w for _, w in works])
                for (subject, _), one in zip(works, told, strict=True):
                    left[subject.path] = [e for e in left[subject.path] if e not in one.entries]
                found += told
        for subject in subjects:
            of_main = self._of_main(subject, left[subject.path])
            launched = {entry for one in of_main for entry in one.entries}
            left[subject.path] = [e for e in left[subject.path] if e not in launched]
            found += of_main
        found += [self._unlaunched(s, left[s.path]) for s in subjects if left[s.path]]
        return [*found, *(self._unmade(s) for s in subjects if s.unmade)]

    def _works(self, subject: Subject, cases: Sequence[Case]) -> Iterator[_Work]:
        for case in cases:
            plan = subject.plan_of(case)
            if plan is not None:
                yield from (_Work(case, plan, sizes) for sizes in self._sizes_of(case))

    def _each(self, works: Sequence[_Work]) -> list[Told]:
        jobs = self._options.jobs or os.cpu_count() or 1
        with self._session.progress() as tell:
            show = None
            if tell is not None and works:
                status, names = tell, ", ".join(dict.fromkeys(w.case.name for w in works))

                def show(done: int, total: int) -> None:
                    status(f"comparing on PTX: {done} of {total} done ({names})")

                show(0, len(works))
            return spread(self._told, works, jobs, show, chunk=1)

    def _told(self, work: _Work) -> Told:
        """The comparison of one case, which is made once for the same programs. One that went beyond the sizes that are
        asked for, and found both equal, stands for others."""
        store, made_of = Cache.default(), self._made_of(work)
        asked = self._seconds, self._for_all, self._beyond, self._said, work.sizes
        key = made_of and digest([made_of.encode(), repr(asked).encode()])
        for one in (key, made_of if not self._for_all else None):
            if one is not None and (known := store.get(one)) is not None:
                earlier: Told = pickle.loads(known)
                return earlier
        case, plan, sizes = work
        for_all = self._for_all
        proofs = prove_case(case, plan, self._builder, sizes, self._seconds, for_all, for_all, self._beyond)
        found = told(proofs, case, self._said, sizes)
        if key is not None and made_of is not None and found.entries:
            store.put(key, pickle.dumps(found))
            if self._beyond and found.equality == "equal" and not found.wrong and not found.left_out:
                store.put(made_of, pickle.dumps(found))
        return found

    def _made_of(self, work: _Work) -> str | None:
        """What tells programs and their launches from others; None for what is not kept."""
        case, plan, sizes = work
        if case.dsl is not None or case.recorded is not None:
            return None
        first = next((s for s in case.all_sizes() if s in sizes), sizes[0])
        programs = [Program(case, self._builder), Program(case, self._builder, plan)]
        try:
            built = [program.at(first) for program in programs]
            sources = [case.kernel.read_bytes(), *(data for _, data in sorted(plan.files.items()))]
        except (PorterError, OSError):
            # what is wrong is told where it is compared
            return None
        words = [_own_digest(), digest(sources), f"{plan.reorders}"]
        words += [repr((problem.arguments, problem.tensor_maps, problem.launch)) for _, problem in built]
        return digest_of(case, [kernel for kernel, _ in built], words)

    def _in_host_code(self, spare: Path, subject: Subject, left: Sequence[str]) -> list[Case]:
        """Launches that the text of host code says, of kernels that no case launches."""
        if not left or subject.path.suffix == ".py":
            return []
        with suppress(PorterError):
            cases = launches_in_host_code(self._session, subject.path, self._options, spare)
            return [case for case in cases if any(case.entry.rsplit("::", 1)[-1] == function_name(e) for e in left)]
        return []

    def _of_main(self, subject: Subject, left: Sequence[str]) -> list[Told]:
        """What is known by launches of the file's own main(), where it may run."""
        plan = subject.plan_of(None) if left and is_granted() else None
        if plan is None:
            return []
        found = list[Told]()
        with suppress(PorterError):
            programs = programs_of(self._session, subject.path, plan, self._options, self._seconds)
            if programs is None:
                return []
            store, words = Cache.default(), [_own_digest(), programs.made_of, *sorted(left)]
            key = digest(word.encode() for word in words)
            if (known := store.get(key)) is not None:
                earlier: list[Told] = pickle.loads(known)
                return earlier
            for proofs in compared_by_main(programs, left):
                found.append(told(proofs, subject.path.name, self._said))
            if found and all(one.equality == "equal" and not one.wrong for one in found):
                store.put(key, pickle.dumps(found))
        return found

    def _unlaunched(self, subject: Subject, left: Sequence[str]) -> Told:
        names = _named([kernel_name(e) for e in left])
        why = f"no case and no host code that is understood says how {names} {'are' if left[1:] else 'is'} launched"
        next_ = f"`porter case new {subject.path}`" + ("" if is_granted() else ", or `--trust` to run its main()")
        return untold(subject.path.name, f"{why}; next: {next_}")

    def _unmade(self, subject: Subject) -> Told:
        next_ = "`--instantiate`, or a case with its template arguments"
        return untold(subject.path.name, f"nothing instantiates {_named(subject.unmade)}; next: {next_}")


def _named(kernels: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in kernels[:_NAMED]) + (", and others" if kernels[_NAMED:] else "")


def compared_ports(
    session: Session, ported: Ported, gated: Sequence[Gated], options: GateOptions, seconds: float
) -> list[Told]:
    """What is proved of the kernels of files that a port changed, and that the compile gate let pass."""
    if not seconds or gate_exit(gated) is not ExitCode.OK:
        return []
    by_path = {g.path: g for g in gated}
    subjects = []
    for root in ported.changed_roots:
        made = by_path.get(root.path, Gated(root.path, ""))
        names = [row.entries[0] for row in made.rows]
        entries = [n for n in names if n and n not in made.unchanged and not ported.leaves(function_name(n))]
        unmade = [name for name in made.unmade if not ported.leaves(name)]
        subjects.append(Subject(Path(root.path), partial(_plan_of, session, ported, root), entries, unmade))
    return Comparing(session, seconds, options).compare(subjects)


def _plan_of(session: Session, ported: Ported, root: PortedRoot, case: Case | None) -> PortPlan | None:
    """Of a port that is written what a root is compiled with, as where steps of it are judged: what is known of that is
    found again. A program may have files of other roots."""
    plan = plan_in(session, ported, case)
    if case is None or plan is None:
        return plan
    own = ported.of_root(root)
    return replace(plan, files={path: text for path, text in plan.files.items() if path in own})


def unproved(gated: Iterable[Gated], compared: Iterable[Told]) -> list[Diagnostic]:
    """What is said of ports that were compiled, without blocks that may end too early where the synchronization of the
    kernel was proved with what it leaves: who waits for whom across blocks is known there."""
    told = list(compared)
    open_ones = {function_name(e) for one in told for e in one.entries if one.equality != "equal"}
    proved = {function_name(e) for one in told for e in one.entries} - open_ones

    def is_known(said: Diagnostic) -> bool:
        name = re.match(r"(?:void )?(?:\w+::)*(\w+)", str(said.values.get("kernel", "")))
        return said.code is Code.BLOCK_ENDS_EARLY and name is not None and name[1] in proved

    return [said for one in gated for said in one.diagnostics if not is_known(said)]


def wrong_in(compared: Sequence[Told]) -> list[Diagnostic]:
    return [d for one in compared for d in one.wrong]


def lines_of(compared: Sequence[Told]) -> list[str]:
    return [line for one in compared for line in one.lines]


def told(found: CaseProofs, case: Case | str, said: As, sizes: Sequence[Sizes] = ()) -> Told:
    name, equality = case if isinstance(case, str) else case.name, found.equality
    return Told(
        name,
        report_proofs.case_body(found),
        tuple(report_proofs.brief(found, name)),
        tuple(report_proofs.wrong(found, said.hazard, said.differs)),
        () if found.original is None else (found.original.entry,),
        "" if equality is None else equality.status,
        "" if equality is None else report_equality.extent(equality),
        "" if equality is None else _left_out(equality, sizes),
        equality.why if equality is not None and equality.as_original else "",
    )


def untold(name: str, why: str) -> Told:
    """Of a file of which nothing was compared."""
    return told(CaseProofs(None, None, untried=why), name, TO_WRITE)


def _left_out(equality: Equality, sizes: Sequence[Sizes]) -> str:
    """The first of some sizes that was not looked at, and is none of those that are known with it."""
    looked_at = [s for s in sizes if listed(s) in equality.looked_at]
    counts = {count.name: count for count in equality.counts}

    def is_known(one: Sizes) -> bool:
        changed = ({n for n in one if one[n] != other[n]} for other in looked_at)
        return any(all(n in counts and counts[n].takes(one[n], names) for n in names) for names in changed)

    return next((listed(s) for s in sizes if not is_known(s)), "")


def _beside(subject: Subject, left: Sequence[str]) -> list[Case]:
    """A case that cannot be read, or does not fit, is the business of `porter verify`. Code that nobody trusts is not
    run for one."""
    if subject.cases is not None:
        return list(subject.cases)
    found: list[Case] = []
    with suppress(PorterError):
        for path in cases_if_any(subject.path):
            with suppress(PorterError):
                case = load_case(path).on(subject.path)
                if case.dsl is None or is_granted():
                    found.append(case)
    return found


def first_sizes(case: Case) -> list[list[Sizes]]:
    """The default size of a case, and the first other one for each kernel that is compiled otherwise."""
    return [sizes[:1] for sizes in instantiations(case)]


def instantiations(case: Case) -> list[list[Sizes]]:
    """The sizes of a case, apart for each kernel that is compiled for them, the default one first."""
    found: dict[object, list[Sizes]] = {}
    for sizes in case.all_sizes():
        key: object = None
        with suppress(PorterError):
            problem = bind(case, sizes)
            key = problem.template, tuple(sorted(problem.defines.items()))
        found.setdefault(key, []).append(sizes)
    return list(found.values())


@cache
def _own_digest() -> str:
    """Of the code that proves, compares and tells."""
    parts = [_PACKAGE / name for name in ("equal", "facts", "ptx", "report", "sync", "verify")]
    return digest(path.read_bytes() for part in parts for path in sorted(part.rglob("*.py")))
