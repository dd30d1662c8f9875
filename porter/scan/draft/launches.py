# SPDX-License-Identifier: Apache-2.0
"""The launch of a kernel that a draft is made from: the one of its host code that says most, or the kernel alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from porter.model.block_size import threads_of
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.scan.draft import classes as cls
from porter.scan.draft import numbers as nums
from porter.scan.draft.host import HOPPER, Host
from porter.scan.draft.numbers import Num
from porter.scan.draft.values import KernelName, LaunchFacts, MapValue, Record, Scope, Word

_PLACED = re.compile(r"(\w+)\s*=\s*[^;=]*?blockIdx\s*\.\s*([xyz])\s*\*\s*\(?\s*([\w:]+)")
_WORD = re.compile(r"\w+")
_LAUNCHES = re.compile(r"<<<|\w*[lL]aunch\w*[kK]ernel")
_CLUSTER = re.compile(r"__cluster_dims__\s*\(([^()]*)\)")


Known = tuple[LaunchFacts, Host, bool]
"""What is known of a launch, who read it, and whether host code says it."""


def best_launch(program: Program, kernel: Function, major: int = HOPPER) -> Known:
    """What is known of a kernel's launch on a device of compute capability `major`, and whether host code says it."""
    host = Host(program, kernel, major)
    found = [
        (_unknown(facts), function.name == "main", index, facts)
        for index, (function, facts) in enumerate(_launches(program, kernel, host))
    ]
    if found:
        return min(found, key=lambda f: f[:3])[3], host, True
    return _alone(program, kernel, host), host, False


def launches_apart(program: Program, kernel: Function, asked: Iterable[Sequence[str]] = ()) -> list[Known]:
    """The launches of a kernel that host code makes, one for each set of template arguments: of those that the sources
    have, and of those that are `asked` for, which only callers of the host code know."""
    host = Host(program, kernel)
    found: dict[tuple[str, ...], LaunchFacts] = {}
    while more := [facts for _, facts in _launches(program, kernel, host)]:
        best = min(more, key=_unknown)
        found[best.kernel.template] = best
        host.passed_over.add(best.kernel.template)
    for template in map(tuple, asked):
        if template not in found and (facts := _as_asked(program, kernel, template)) is not None:
            found[template] = facts
    return [(facts, host, True) for facts in found.values()]


def _as_asked(program: Program, kernel: Function, template: tuple[str, ...]) -> LaunchFacts | None:
    """The launch of a kernel with these template arguments, by a function that hands its own ones on."""
    for function in _launching(program):
        host = Host(program, kernel)
        while (facts := host.launch_of(function)) is not None:
            names = facts.kernel.template
            if len(names) == len(template):
                pairs = zip(names, template, strict=True)
                host.given = {name: text for name, text in pairs if name in function.template_params}
                made = host.launch_of(function)
                if made is not None and made.kernel.template == template and len(made.arguments) == len(kernel.params):
                    return made
            host.given = {}
            host.passed_over.add(names)
    return None


def all_launches(program: Program, kernel: Function, major: int = HOPPER) -> list[LaunchFacts]:
    """The first launch of a kernel of each function that comes to one."""
    return [facts for _, facts in _launches(program, kernel, Host(program, kernel, major))]


def _launches(program: Program, kernel: Function, host: Host) -> Iterator[tuple[Function, LaunchFacts]]:
    for function in _launching(program):
        facts = host.launch_of(function) if function is not kernel else None
        if facts is not None and len(facts.arguments) == len(kernel.params):
            yield function, facts


def _launching(program: Program) -> list[Function]:
    """Functions whose text has a launch, or the name of one that has."""
    functions = [f for f in program.functions if f.style in (Style.HOST, Style.METHOD, Style.DEVICE)]
    words = {id(f): set(_WORD.findall(f.text(f.body))) for f in functions}
    found = {id(f): f for f in functions if _LAUNCHES.search(f.text(f.body))}
    names, before = {f.name for f in found.values()}, 0
    while len(names) > before:
        before = len(names)
        found |= {id(f): f for f in functions if words[id(f)] & names}
        names = {f.name for f in found.values()}
    return [f for f in functions if id(f) in found]


def _unknown(facts: LaunchFacts) -> int:
    """How many values of a launch are not known."""
    values: list[Any] = [facts.grid, facts.block, facts.dynamic_smem, *facts.arguments]
    open_template = sum(not re.search(r"\d|::|<", t) and t[:1].isupper() and len(t) < 12 for t in facts.kernel.template)
    return sum(_is_open(v) for v in values) + open_template


def _is_open(value: Any) -> bool:
    if isinstance(value, MapValue):
        inside = [x for v in value.fields.values() for x in (v if isinstance(v, list) else [v])]
        return not value.fields or any(isinstance(x, Word) and "CU_TENSOR_MAP" not in x.text for x in inside)
    return value is None or isinstance(value, Word)


def _alone(program: Program, kernel: Function, host: Host) -> LaunchFacts:
    """What a kernel's own text says: its parameters, blocks by what `blockIdx` is multiplied with."""
    scope = Scope(function=kernel)
    arguments = [host.parameter(p.node, p.name, scope) for p in kernel.params]
    threads = threads_of(program, kernel)
    node = cls.expression(threads) if threads else None
    block = host.value(node, scope) if node is not None else None
    return LaunchFacts(
        KernelName(kernel.name), None, (block, nums.const(1), nums.const(1)) if isinstance(block, Num) else None, None,
        None, arguments,
    )  # fmt: skip


def cluster_of(kernel: Function) -> tuple[Num, ...] | None:
    """The cluster that a kernel's attribute states."""
    head = kernel.file.source[kernel.node.start_byte : kernel.body.start_byte].decode("utf-8", "replace")
    match = _CLUSTER.search(head)
    if match is None:
        return None
    values = [int(p) if p.strip().isdigit() else 0 for p in match.group(1).split(",")]
    return (*(nums.const(v) for v in values), *(nums.const(1),) * 3)[:3] if all(values) else None


def placed_tiles(kernel: Function, host: Host, scope: Scope) -> dict[str, tuple[str, int]]:
    """By axis of the grid: the variable that a block's first row or column is in, and the elements of a tile."""
    text = kernel.text(kernel.body)
    found: dict[str, tuple[str, int]] = {}
    for name, axis, unit in _PLACED.findall(text):
        node = cls.expression(unit)
        value = host.value(node, scope) if node is not None else None
        if isinstance(value, Num) and isinstance(value.known, int):
            found.setdefault(axis, (name, value.known))
    return found


def struct_types(record: Record, host: Host) -> dict[str, str]:
    """Number types of the members of a struct."""
    template = host.classes.find(cls.template_id(record.kind)[0])
    return {f[0]: host.resolve(f[1], None) for f in cls.fields(template)} if template is not None else {}
