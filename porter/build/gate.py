# SPDX-License-Identifier: Apache-2.0
"""The compile gate: what Porter emits is compiled for sm_100a, its original for sm_90a, and both are compared."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product

from porter.build.cache import Cache
from porter.build.entry import demangle, function_name
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.ptxas import Assembled, Resources, assemble
from porter.build.table import ResourceRow, metrics
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Diagnostic, PorterError

MACHINE = (Code.COMPILER_TIMEOUT, Code.TOOL_MISSING, Code.NO_HOST_COMPILER, Code.NO_TOOLKIT, Code.NO_DSL)
"""What a machine lacks, which says nothing about a source."""

_DSL_KERNEL = "kernel_cutlass_"
"""How CuTe DSL's names of kernels begin."""

_UNNAMED = (Code.ENTRY_NOT_FOUND, Code.ENTRY_AMBIGUOUS)


@dataclass(frozen=True)
class Module:
    """One compiled side: `stood_in` are the includes of absent host libraries."""

    ptx: str = field(repr=False)
    assembled: Assembled = field(repr=False)
    stood_in: tuple[str, ...] = ()

    @property
    def resources(self) -> Mapping[str, Resources]:
        return self.assembled.resources


@dataclass(frozen=True)
class Gated:
    """What the gate says about one file that was ported: `status` is `compiled`, `refused` (the port is), or `not
    compiled`, with the reason. `stood_in` are the includes of absent host libraries, `unmade` the kernels of which
    nothing was compiled, `unchanged` the mangled names of those of which both have the same PTX."""

    path: str
    status: str
    reason: str = ""
    rows: tuple[ResourceRow, ...] = ()
    stood_in: tuple[str, ...] = ()
    unmade: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


Compile = Callable[[], Module]


@dataclass(frozen=True)
class Pair:
    """One translation unit of an original and of its port. `plain` is the pair to compile where the original has no
    kernel of the name that a case gives, `kept` the port compiled as the original is, where it keeps its form."""

    before: Compile
    after: Compile
    plain: Pair | None = None
    kept: Compile | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of one pair: a `PorterError` on the side that was refused."""

    before: Module | PorterError
    after: Module | PorterError
    kept: Module | PorterError | None = None


@dataclass(frozen=True)
class Kernels:
    """Kernels of an outcome: one row each, the names of those that lost their Tensor Core instructions, and the mangled
    names of those of which both have the same PTX."""

    rows: tuple[ResourceRow, ...]
    emptied: tuple[str, ...]
    unchanged: tuple[str, ...]


def nvcc_pair(
    before: CompileRequest, after: CompileRequest, toolkit: Toolkit, cache: Cache | None = None, keeps: bool = False
) -> Pair:
    """Compilations with nvcc. Without a kernel's name everything is compiled that the files instantiate. `keeps`: the
    port has the original's form too."""

    def compiled(request: CompileRequest) -> Module:
        ptx = compile_ptx(request, toolkit, cache)
        name = request.source.stem
        try:
            done = assemble(toolkit, ptx.ptx, request.arch, name=name, cache=cache)
        except PorterError as error:
            own = _UNRESOLVED in str(error.diagnostic.values.get("text", "")) and _declared(ptx.ptx)
            if not own or (request is not before and not own <= _declared(compile_ptx(before, toolkit, cache).ptx)):
                raise
            # other translation units have what it names, as with nvcc -rdc=true
            done = assemble(toolkit, ptx.ptx, request.arch, name=name, flags=("--compile-only",), cache=cache)
        return Module(ptx.ptx, done, ptx.stood_in)

    plain = None
    if before.entry is not None:
        bare = [replace(request, entry=None, template_args=()) for request in (before, after)]
        plain = nvcc_pair(bare[0], bare[1], toolkit, cache, keeps)
    kept = replace(after, arch=before.arch)
    return Pair(lambda: compiled(before), lambda: compiled(after), plain, (lambda: compiled(kept)) if keeps else None)


_UNRESOLVED = "Unresolved extern"
"""What ptxas says of a name that no other module is linked for."""
_EXTERN = re.compile(
    r"^\s*\.extern\s+(?:\.func\s+(?:\([^()]*\)\s*)?([\w$]+)|\.global\b[^;]*?([\w$]+)(?:\[[^;]*)?;)", re.MULTILINE
)


def _declared(ptx: str) -> frozenset[str]:
    """Functions and variables that a module takes from others."""
    return frozenset(one or other for one, other in _EXTERN.findall(ptx))


_NOT_CODE = re.compile(r"//.*|^\s*\.(?:loc|file)\b.*|^\s*\.section\b[^{]*\{[^}]*\}", re.MULTILINE)
_OF_A_FILE = re.compile(r"(_GLOBAL__N__|_INTERNAL_|__nv_static_)\w*?_cu_[0-9a-f]{8}(?:_\d+)?")


def same_code(one: str, other: str) -> bool:
    """Whether two texts of PTX differ in nothing but comments, places in the source and the names that nvcc makes of a
    file's path."""
    return _code(one) == _code(other)


def _code(ptx: str) -> list[str]:
    lines = _OF_A_FILE.sub(r"\1", _NOT_CODE.sub("", ptx)).splitlines()
    return [line.strip() for line in lines if line.strip()]


def run_pairs(
    pairs: Sequence[Pair], jobs: int | None = None, tell: Callable[[int, int], None] | None = None
) -> list[Outcome]:
    """Compile all sides, at most `jobs` at once (default: as many as there are cores). `tell` gets how many of how
    many are done."""
    done = 0
    lock = threading.Lock()
    total = sum(2 + (p.kept is not None) for p in pairs)

    def side(work: Compile) -> Module | PorterError:
        nonlocal done
        try:
            return work()
        except PorterError as error:
            return error
        finally:
            with lock:
                done += 1
                if tell is not None:
                    tell(done, total)

    with ThreadPoolExecutor(max_workers=jobs or available_cores()) as pool:
        running: list[list[Future[Module | PorterError]]] = [
            [pool.submit(side, work) for work in (p.before, p.after, p.kept) if work is not None] for p in pairs
        ]
        outcomes = [Outcome(*(one.result() for one in sides)) for sides in running]
    for i, (pair, outcome) in enumerate(zip(pairs, outcomes, strict=True)):
        unnamed = isinstance(outcome.before, PorterError) and outcome.before.diagnostic.code in _UNNAMED
        if unnamed and pair.plain is not None:
            outcomes[i] = run_pairs([pair.plain], jobs)[0]
    return outcomes


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def kernels(before: Module, after: Module, before_arch: str, after_arch: str) -> Kernels:
    """The kernels of both modules side by side: by their mangled names, or by their own names where there are as many
    of them on both sides."""
    partner = _partners(before.resources, after.resources)
    rows: list[ResourceRow] = []
    emptied: list[str] = []
    for name, resources in before.resources.items():
        other = partner.get(name)
        rows.append(
            ResourceRow(
                kernel=demangle(name),
                before_arch=before_arch,
                after_arch=after_arch,
                metrics=metrics(resources, after.resources[other] if other else None),
                before_warnings=before.assembled.warnings,
                after_warnings=after.assembled.warnings,
                entries=(name, other),
            )
        )
        kept = other is not None and _has_mma(after.ptx, other, "tcgen05.mma")
        if _has_mma(before.ptx, name, "wgmma.mma_async") and not kept:
            emptied.append(demangle(name))
    unchanged = tuple(
        name for name, other in partner.items()
        if (name == other and _same_entry(before, after, name)) or (_is_idle(before, name) and _is_idle(after, other))
    )  # fmt: skip
    return Kernels(tuple(rows), tuple(emptied), unchanged)


def spills(row: ResourceRow) -> bool:
    """Whether the port spills where the original does not."""
    moved = [row.metric(name) for name in ("spill_stores", "spill_loads")]
    return not any(m.before for m in moved) and any(m.after for m in moved)


def _partners(before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    left, right = list(before), list(after)
    partner = {name: name for name in left if name in right}
    by_function: dict[str, tuple[list[str], list[str]]] = {}
    for number, names in enumerate((left, right)):
        for name in (n for n in names if n not in partner):
            by_function.setdefault(function_name(name), ([], []))[number].append(name)
    for ours, theirs in by_function.values():
        if len(ours) == len(theirs):
            partner |= _alike(ours, theirs)
    right = [n for n in right if n not in partner.values()]
    # CuTe DSL's names hold the module's, which is another one where a package was copied.
    alone = [n for n in left if n not in partner]
    if len(alone) == 1 == len(right) and all(n.startswith(_DSL_KERNEL) for n in (*alone, *right)):
        partner[alone[0]] = right.pop()
    return partner


def _alike(before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """Instantiations of one template, as many on both sides, whose arguments hold types that a port changes: each with
    the one that has most of its words, where several have as many in their order."""
    words = {name: Counter(re.findall(r"\w+", demangle(name))) for name in {*before, *after}}

    def unlike(pair: tuple[int, int]) -> tuple[int, int, int]:
        one, other = before[pair[0]], after[pair[1]]
        return -(words[one] & words[other]).total(), abs(pair[0] - pair[1]), pair[0]

    partner: dict[str, str] = {}
    for i, j in sorted(product(range(len(before)), range(len(after))), key=unlike):
        if before[i] not in partner and after[j] not in partner.values():
            partner[before[i]] = after[j]
    return partner


_HEAD = re.compile(r"^\s*\.(?:version|target|address_size)\b.*$", re.MULTILINE)


def _same_entry(one: Module, other: Module, entry: str) -> bool:
    """Whether both have the same PTX of a kernel that calls nothing, and the same variables of the module."""
    heads = [_code(_HEAD.sub("", _FUNCTION.split(side.ptx, maxsplit=1)[0])) for side in (one, other)]
    bodies = [_body(side.ptx, entry) for side in (one, other)]
    return heads[0] == heads[1] and "call" not in bodies[0] and same_code(*bodies)


def _is_idle(side: Module, entry: str) -> bool:
    """Whether a kernel does nothing: libraries have some, to ask for attributes of code."""
    _, begins, body = _body(side.ptx, entry).partition("{")
    return bool(begins) and set(re.findall(r"^\s*(?:@\S+\s+)?([a-z][\w.:]*)", body, re.MULTILINE)) <= {"ret"}


_FUNCTION = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.(?:entry|func)\b", re.MULTILINE)


def _body(ptx: str, entry: str) -> str:
    """The text of a kernel in a module, empty if it has none."""
    start = re.search(rf"\.entry\s+{re.escape(entry)}\b", ptx)
    if start is None:
        return ""
    end = _FUNCTION.search(ptx, start.end())
    return ptx[start.end() : end.start() if end else len(ptx)]


def _has_mma(ptx: str, entry: str, instruction: str) -> bool:
    """Whether a kernel has an instruction, itself or in a function of the module that it may call."""
    body = _body(ptx, entry)
    return instruction in body or ("call" in body and instruction in ptx)
