# SPDX-License-Identifier: Apache-2.0
"""Proofs of synchronization as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from porter.build.entry import kernel_name
from porter.diagnostics import Code as DiagnosticCode
from porter.diagnostics import Diagnostic, ExitCode, Location, worst_exit
from porter.facts.code import Code
from porter.facts.events import WarpName
from porter.facts.values import ALL
from porter.report import equality as report_equality
from porter.report import json as report_json
from porter.report.places import instruction, own_place_of, place_of
from porter.sim.check.catalog import KINDS
from porter.sync.deadlocks import Waiting
from porter.sync.findings import Finding, by_cause
from porter.verify.proved import CaseProofs, wrong_in
from porter.verify.proving import Count, Pair, Proof

_EXIT = {"proved": ExitCode.OK, "hazard": ExitCode.DIFFERENT, "unknown": ExitCode.INCONCLUSIVE}
_OWN = {
    "deadlock": "nothing moves any more",
    "phase": "an arrival may be counted in the phase before its own",
    "bytes": "a phase of an mbarrier that does not get the bytes it expects",
    "count": "a phase of an mbarrier with more arrivals than its count",
    "columns": "columns of Tensor Memory that are not allocated, or not freed",
    "register": "an instruction that others wait for, and a register that nothing has written",
    "registers": "setmaxnreg with a count that the warp cannot have",
    "multicast": "a multicast to a block that is not there",
    "mask": "a collective instruction by lanes that their member mask leaves out",
    "aligned": "an address that is no multiple of what its access needs",
    "outside": "an access beyond the end of memory",
}
"""Titles of what the catalog of hazards has no ID of."""


def proofs_exit(proofs: Sequence[Proof], errors: Sequence[Diagnostic]) -> ExitCode:
    """DIFFERENT for a hazard, INCONCLUSIVE for what is not understood; nothing at all is no verdict."""
    codes = [*(_EXIT[p.status] for p in proofs), *(e.code.value.exit_code for e in errors)]
    return worst_exit(codes) if codes else ExitCode.INCONCLUSIVE


def text(proofs: Sequence[Proof]) -> Iterator[str]:
    """What is wrong in each program, then a line for each."""
    for proof in proofs:
        code = proof.flow.code
        for finding in _by_cause(proof):
            yield from _finding(code, proof, finding)
        yield from (f"    {line}" for line in _deadlock(code, proof.checked.waiting))
    for proof in proofs:
        yield f"{proof.case} {proof.program} ({kernel_name(proof.entry)}): {_verdict(proof)}"
        yield from (f"    {line}" for line in _details(proof))


def brief(found: CaseProofs, name: str = "") -> Iterator[str]:
    """A line for each program of a case, and for what both leave. `name`: of what nothing could be looked at."""
    if found.untried:
        of = f" of {name}" if name else ""
        yield f"synchronization and output{of}: not known: {found.untried}"
    for proof in found.all:
        wrong = found.introduced if proof is found.port else wrong_in(proof)
        yield f"synchronization of {proof.case} {proof.program}: {_in_brief(proof, wrong)}"
    if found.inherited:
        kinds = ", ".join(sorted({f.kind for f in found.inherited}))
        yield f"synchronization: of the port's hazards the original has in the same place: {kinds}"
    if found.equality is not None:
        yield report_equality.brief(found.equality)


def _in_brief(proof: Proof, wrong: Sequence[Finding]) -> str:
    if proof.status == "unknown":
        return f"not known: {proof.checked.unknown} at {place_of(proof.flow.code, proof.checked.unknown_at)}"
    kinds = ", ".join(sorted({f.kind for f in wrong}))
    if kinds:
        return f"hazards {kinds} at {proof.at} (`porter hazards --prove`)"
    turns = [f"{c.name} for all" if c.is_all else f"{c.name} to {c.upto}" for c in proof.counts if c.step]
    return f"proved on PTX at {'; '.join(proof.sizes)}" + (f", {', '.join(turns)}" if turns else "")


def wrong(found: CaseProofs, hazard: DiagnosticCode, differs: DiagnosticCode) -> Iterator[Diagnostic]:
    """What is wrong with a port: an error for each kind of hazard that it brings in, with the first pair of places, and
    one where it leaves something else than its original."""
    yield from introduced(found, hazard)
    if found.equality is not None and found.differs:
        yield report_equality.different(found.equality, differs)


def introduced(found: CaseProofs, as_code: DiagnosticCode) -> Iterator[Diagnostic]:
    """An error for each kind of hazard that a program has, or a port brings in, with the first pair of places."""
    if found.port is None:
        return
    code, proof = found.port.flow.code, found.port
    times: Counter[str] = Counter()
    for one in found.introduced:
        times[one.kind] += one.pairs
    for finding in {f.kind: f for f in reversed(found.introduced)}.values():
        loc = code.code[finding.second].loc if finding.second is not None else None
        values = {"id": finding.kind, "case": proof.case, "program": proof.program, "what": _title(finding)}
        _, *lines = _finding(code, proof, finding)
        waiting = _deadlock(code, proof.checked.waiting) if finding.kind == "deadlock" else ()
        several = [f"{times[finding.kind]} pairs of accesses"] if times[finding.kind] > 1 else []
        detail = "\n".join([f"at {proof.at}", *map(str.strip, [*lines, *waiting]), *several])
        yield Diagnostic(as_code, None if loc is None else Location(loc.file, loc.line), values, detail)


_MOST_WAITING = 8
_MOST_PLACES = 4


def _deadlock(code: Code, waiting: Sequence[Waiting]) -> Iterator[str]:
    """Who waits for what, the starved one first."""
    for one in waiting[:_MOST_WAITING]:
        yield one.awaited + (f"; it comes behind {' and '.join(one.behind)}" if one.behind else "")
        if one.cause:
            yield f"    likely cause, {one.cause}: {one.why}"
        yield from (
            f"    {place.what}: {code.code[place.at].opcode} at {own_place_of(code, place.at)}"
            for place in one.places[:_MOST_PLACES]
        )
        yield from (f"    waited for at {own_place_of(code, at)} by {who}" for at, who in _by_place(one).items())
    if len(waiting) > _MOST_WAITING:
        yield f"and {len(waiting) - _MOST_WAITING} more"


def _by_place(one: Waiting) -> dict[int, str]:
    """The warps that wait, by the instruction at which they do."""
    found: dict[int, dict[WarpName, int]] = {}
    for blocked in one.by:
        lanes = found.setdefault(blocked.at, {})
        lanes[blocked.warp] = lanes.get(blocked.warp, 0) | blocked.lanes
    return {at: ", ".join(_warps(lanes)) for at, lanes in found.items()}


def _warps(lanes: dict[WarpName, int]) -> Iterator[str]:
    """Those with their lanes; those in a row that have the same ones as one."""
    rows = [(w.rank, mask, w.warp - index, w.warp) for index, (w, mask) in enumerate(sorted(lanes.items()))]
    for (rank, mask, _), row in groupby(rows, key=lambda row: row[:3]):
        numbers = [warp for *_, warp in row]
        some = f"warps {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"warp {numbers[0]}"
        yield f"block {rank} {some}{_lanes(mask)}"


def _lanes(mask: int) -> str:
    """Which lanes of a warp, unless it is all."""
    if mask == ALL:
        return ""
    return f" lane {mask.bit_length() - 1}" if mask.bit_count() == 1 else f" ({mask.bit_count()} lanes)"


def _verdict(proof: Proof) -> str:
    checked = proof.checked
    if proof.status == "unknown":
        return f"unknown: {checked.unknown} at {place_of(proof.flow.code, checked.unknown_at)} ({proof.at})"
    if proof.status == "hazard":
        count = sum(f.level != "review" for f in _by_cause(proof))
        return f"hazard: {count} at {proof.at}"
    reviews = len(_by_cause(proof))
    return f"proved{f', {reviews} to review' if reviews else ''}, {proof.seconds:.1f} s"


def _details(proof: Proof) -> Iterator[str]:
    if proof.status != "proved":
        return
    yield f"at {'; '.join(proof.sizes)}"
    yield from (_counted(proof.flow.code, count) for count in proof.counts)
    varied = [count.name for count in proof.counts if count.step]
    yield from map(_paired, proof.pairs)
    if len(varied) > 1 and not _is_whole(proof, varied):
        alone = f"{' and '.join(varied)} each by itself, with the others as in the case"
        yield f"else {alone}" if proof.pairs else f"{alone}: not together"
    for assumed in sorted(proof.assumed):
        yield f"assumed: {assumed}"


def _is_whole(proof: Proof, varied: Sequence[str]) -> bool:
    """Whether the sizes are known together, and not only in pairs."""
    return len(varied) == 2 and len(proof.pairs) == 1 and not proof.pairs[0].why


def _paired(pair: Pair) -> str:
    first, second = pair.names
    if not pair.why:
        return f"{first} and {second}: all of both together"
    return f"{first} and {second}: together up to {first}={pair.upto}, not all: {pair.why}"


def _counted(code: Code, count: Count) -> str:
    if not count.step:
        return f"{count.name}: {count.why or 'has no part in it'}"
    at = f" at {count.at}" if count.at else ""
    if count.is_all:
        assert count.lasso is not None
        return (
            f"{count.name}: all multiples of {count.step}{at} (they repeat with a period of {count.lasso.period}; "
            f"{count.runs} looked at)"
        )
    found = count.lasso
    is_there = found is not None and found.at is not None and found.why_not == count.why
    where = f", at {place_of(code, found.at)}" if found is not None and is_there else ""
    return f"{count.name}: multiples of {count.step}{at} up to {count.upto}, not all: {count.why}{where}"


def _finding(code: Code, proof: Proof, finding: Finding) -> Iterator[str]:
    known = KINDS.get(finding.kind)
    yield f"{finding.level} {finding.kind}: {_title(finding)}"
    yield f"    {finding.text}"
    if finding.first is not None:
        yield f"    first:  {instruction(code, finding.first)}"
    if finding.second is not None:
        yield f"    {'second' if finding.first is not None else 'at'}: {instruction(code, finding.second)}"
    turn = _turn(proof, finding)
    if finding.pairs > 1 or turn is not None:
        times = f"{finding.pairs} times" if finding.pairs > 1 else "once"
        yield f"    {times}" + ("" if turn is None else f", the first in turn {turn} of those that execute it")
    if known is not None:
        yield f"    rule: {known.rule} ({known.source})"


def _by_cause(proof: Proof) -> list[Finding]:
    """A finding for each cause: turns that are unrolled have the same places in the source."""
    code = proof.flow.code.code

    def place(at: int | None) -> object:
        return None if at is None else code[at].loc or at

    return by_cause(proof.checked.findings, place)


def _turn(proof: Proof, finding: Finding) -> int | None:
    """The turn of the second instruction's loop, among those that execute it, in which it goes wrong first; None if it
    is in none."""
    return finding.turn if finding.second in proof.flow.innermost else None


def _title(finding: Finding) -> str:
    known = KINDS.get(finding.kind)
    return known.title if known is not None else _OWN.get(finding.kind, finding.kind)


def document(proofs: Sequence[Proof], errors: Sequence[Diagnostic]) -> dict[str, Any]:
    body = {
        "proofs": [proof_body(p) for p in proofs],
        "diagnostics": [report_json.diagnostic(e) for e in errors],
    }
    return report_json.document("prove", proofs_exit(proofs, errors), body)


def case_body(found: CaseProofs) -> dict[str, Any]:
    return {
        "programs": [proof_body(p) for p in found.all],
        "introduced": [f.kind for f in found.introduced],
        "inherited": [f.kind for f in found.inherited],
        "equality": None if found.equality is None else report_equality.body_of(found.equality),
        "untried": found.untried or None,
    }


def proof_body(proof: Proof) -> dict[str, Any]:
    code = proof.flow.code
    return {
        "name": proof.case,
        "program": proof.program,
        "kernel": proof.entry,
        "status": proof.status,
        "at": proof.at,
        "sizes": list(proof.sizes),
        "counts": [
            {
                "name": c.name,
                "all": c.is_all,
                "step": c.step,
                "upto": c.upto,
                "period": c.lasso.period if c.lasso is not None else None,
                "why": c.why,
                "at": c.at,
            }
            for c in proof.counts
        ],
        "together": [{"names": list(p.names), "all": not p.why, "upto": p.upto, "why": p.why} for p in proof.pairs],
        "findings": [
            {
                "id": f.kind,
                "level": f.level,
                "text": f.text,
                "first": place_of(code, f.first) if f.first is not None else None,
                "second": place_of(code, f.second) if f.second is not None else None,
                "pairs": f.pairs,
                "turn": _turn(proof, f),
            }
            for f in _by_cause(proof)
        ],
        "waiting": [_waiting(code, one) for one in proof.checked.waiting],
        "unknown": proof.checked.unknown,
        "assumed": sorted(proof.assumed),
        "seconds": round(proof.seconds, 2),
    }


def _waiting(code: Code, one: Waiting) -> dict[str, Any]:
    return {
        "barrier": one.name,
        "state": one.awaited,
        "behind": list(one.behind),
        "cause": one.cause or None,
        "why": one.why,
        "places": [{"what": place.what, "place": place_of(code, place.at)} for place in one.places],
        "by": [{"warp": str(b.warp), "lanes": f"{b.lanes:#010x}", "place": place_of(code, b.at)} for b in one.by],
    }
