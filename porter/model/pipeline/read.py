# SPDX-License-Identifier: Apache-2.0
"""The facts of a kernel's pipeline, put together from its operations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.block_size import threads_of
from porter.model.constant_expressions import size_of
from porter.model.constants import Constants, visible
from porter.model.functions import Function, Style, array_extents, declared_name
from porter.model.kernels import SHARED
from porter.model.pipeline.facts import (
    Arrival,
    Barrier,
    Copy,
    Definition,
    Number,
    Pipeline,
    Product,
    Ring,
    Role,
    Unknown,
    Waiting,
)
from porter.model.pipeline.frames import Frame, Wording, first_value, place_of
from porter.model.pipeline.operations import UNKNOWN, Operation, Site, Walk, operations_of
from porter.model.pipeline.rings import flips, names_in, split_index, texts_for, turn_of
from porter.model.pipeline.who import Runners, Who
from porter.model.program import Program
from porter.model.scopes import LOOPS, resolve
from porter.model.thread_values import ThreadValues
from porter.model.threads import Threads
from porter.ptx.arch import Limits

_ARRIVING = ("arrive", "arrive_tx")


def pipeline_of(
    program: Program, kernel: Function, threads: int | None = None, given: Mapping[str, str] | None = None
) -> Pipeline:
    """What is known of a kernel's pipeline. `threads` of a block and `given`, what its template's parameters stand for,
    are what a launch says; without them the kernel's own text has to."""
    return _Reading(program, kernel, threads, given or {}).pipeline()


class _Reading:
    def __init__(self, program: Program, kernel: Function, threads: int | None, given: Mapping[str, str]) -> None:
        self.program, self.kernel = program, kernel
        self.constants: Constants = visible(program.constants_around(kernel), kernel, given)
        bound = threads_of(program, kernel)
        self.threads = threads or (self.constants.evaluate(bound) if bound is not None else None)
        self.walk: Walk = operations_of(program, kernel)
        self.who = Who(program, min(self.threads or Limits.threads_per_block, Limits.threads_per_block))
        self.unknown: list[Unknown] = []
        self._runs: dict[int, Runners] = {}

    def pipeline(self) -> Pipeline:
        operations = self.walk.operations
        if self.threads is None:
            self._miss("how many threads a block has", self._place(self.kernel, self.kernel.body))
        for call in self.walk.too_deep:
            self._miss(f"what `{call.name}` does, calls nest too deep", self._place(call.caller, call.node))
        for operation in operations:
            if operation.kind == "unread":
                self._miss("what is done with mbarriers or copies here", _at(operation))
        names = list(dict.fromkeys(split_index(o.barrier)[0] for o in operations if o.barrier))
        barriers = tuple(self._barrier(name) for name in names)
        return Pipeline(
            kernel=self.kernel.name,
            where=self._place(self.kernel, self.kernel.body),
            threads=self.threads,
            barriers=barriers,
            copies=tuple(self._copies()),
            rings=tuple(ring for name in names if (ring := self._ring(name)) is not None),
            roles=tuple(self._roles()),
            products=tuple(dict.fromkeys(self._products())),
            identity=tuple(self._identity()),
            offsets=tuple(self._offsets()),
            unknown=tuple(dict.fromkeys(self.unknown)),
        )

    # --- Values

    def number(self, text: str) -> Number | None:
        if not text:
            return None
        plain = text if self.threads is None else re.sub(r"\bblockDim\.x\b", str(self.threads), text)
        plain = re.sub(r"\bsizeof\s*\(([\w:\s]+)\)", self._size, plain)
        return Number(text, None if UNKNOWN in text else self.constants.evaluate(plain))

    def _size(self, match: re.Match[str]) -> str:
        """The size of a type, as a number where the type is a plain one."""
        names = self.program.names
        kind = names.declared.from_text(match[1], names.lookup.site(self.kernel, self.kernel.body))
        size = size_of(kind.name.split()) if kind.is_plain else None
        return match[0] if size is None else str(size)

    def _miss(self, what: str, where: str) -> None:
        self.unknown.append(Unknown(what, where))

    def _place(self, function: Function, node: Node) -> str:
        at = function.span(node)
        found = function.file.location(Span(at.start, at.start))
        return f"{found.path}:{found.line}"

    def runs(self, operation: Operation) -> Runners:
        if id(operation) not in self._runs:
            found = self._runs[id(operation)] = self.who.runs(operation.sites)
            if found.threads is None:
                self._miss(f"which threads `{found.unknown}` lets through", _at(operation))
            elif self.threads is None:
                found = self._runs[id(operation)] = Runners(None, "the size of the block")
        return self._runs[id(operation)]

    # --- Barriers

    def _of(self, name: str, *kinds: str) -> list[Operation]:
        return [o for o in self.walk.operations if o.kind in kinds and split_index(o.barrier)[0] == name]

    def _barrier(self, name: str) -> Barrier:
        inits, arriving = self._of(name, "init"), self._of(name, *_ARRIVING)
        if not inits:
            self._miss(f"where mbarrier {name} begins, and with what count", _at(self._of_any(name)))
        counts = tuple(dict.fromkeys(n for o in inits if (n := self.number(o.count)) is not None))
        for count in counts:
            if count.value is None:
                self._miss(f"what `{count.text}` comes to, the count of {name}", _at(inits[0]))
        extent, storage = self._declared(name)
        if self._shares_array(name):
            extent = None
        return Barrier(
            name, extent, storage, counts, tuple(map(_at, inits)),
            tuple(self._arrival(o) for o in arriving),
            tuple(self._waiting(o) for o in self._of(name, "wait")),
            self._arriving(arriving),
        )  # fmt: skip

    def _of_any(self, name: str) -> Operation:
        return next(o for o in self.walk.operations if split_index(o.barrier)[0] == name)

    def _arrival(self, operation: Operation) -> Arrival:
        count = self.number(operation.count or "1")
        assert count is not None
        bytes_ = self.number(operation.bytes) if operation.kind == "arrive_tx" else None
        return Arrival(self.runs(operation).count, count, bytes_, operation.remote, _at(operation))

    def _arriving(self, arriving: Sequence[Operation]) -> int | None:
        """Arrivals in a phase if each thread that arrives anywhere does so once."""
        counts: dict[int, int] = {}
        for operation in arriving:
            runs, count = self.runs(operation).threads, self.number(operation.count or "1")
            if runs is None or count is None or count.value is None:
                return None
            for thread in runs:
                if counts.setdefault(thread, count.value) != count.value:
                    return None
        return sum(counts.values()) if arriving else None

    def _waiting(self, operation: Operation) -> Waiting:
        index = split_index(operation.barrier)[1]
        return Waiting(
            self.runs(operation).count, operation.by_parity, operation.phase, index,
            tuple(reversed(list(self._loops(operation)))), _at(operation),
        )  # fmt: skip

    def _loops(self, operation: Operation) -> Iterator[str]:
        """Loops around an operation, the innermost first: not that in which an instruction is tried again."""
        sites = operation.sites
        for site in reversed(sites[:-1] if len(sites) > 1 else sites):
            yield from (_header(site.frame.function, loop) for loop in _loops_around(site) if not _tries(site, loop))

    def _declared(self, name: str) -> tuple[Number | None, str]:
        """How many mbarriers a name is, and the memory that they are in."""
        word = re.findall(r"[A-Za-z_]\w*", name.split("[")[0].split("(")[0])
        if not word:
            return None, "unknown"
        for declaration in find(self.kernel.body, "declaration"):
            text = self.kernel.text(declaration)
            for declarator in declaration.children_by_field_name("declarator"):
                named = declared_name(declarator)
                if named is None or self.kernel.text(named) != word[0] or SHARED not in text:
                    continue
                storage = "dynamic shared" if "extern" in text else "static shared"
                extents = array_extents(declarator)
                if len(word) == 1:
                    return (self.number(self.kernel.text(extents[0])) if extents else Number("1", 1)), storage
                return self._member_extent(word[-1]), storage
        return self._member_extent(word[-1]) if len(word) > 1 else None, self._storage(word[0])

    def _shares_array(self, name: str) -> bool:
        """Whether another mbarrier is told apart from this one by an offset in the same array."""
        names = {split_index(o.barrier)[0] for o in self.walk.operations if o.barrier}
        word = re.match(r"\w+", name)
        parts = [n for n in names if word is not None and re.match(rf"{word[0]}\b(?!\[|\.|->)", n)]
        return len(parts) > 1

    def _storage(self, name: str) -> str:
        """The memory of an object that is reached by a pointer or reference."""
        wording = Wording(self.program)
        for declarator in find(self.kernel.body, "init_declarator"):
            named, value = declared_name(declarator), declarator.child_by_field_name("value")
            if named is None or value is None or self.kernel.text(named) != name:
                continue
            words = set(names_in(wording.object(Frame(self.kernel), value)))
            for declaration in find(self.kernel.body, "declaration"):
                text = self.kernel.text(declaration)
                if SHARED in text and words & set(re.findall(r"\w+", text)):
                    return "dynamic shared" if "extern" in text else "static shared"
        return "unknown"

    def _member_extent(self, member: str) -> Number | None:
        """The extent of a member that only one class of the sources has."""
        found = []
        for file in self.program.sources.files.values():
            for field in find(file.root, "field_declaration"):
                for declarator in field.children_by_field_name("declarator"):
                    named = declared_name(declarator)
                    if named is not None and file.text(named) == member:
                        found.append([file.text(e) for e in array_extents(declarator)])
        if len(found) != 1:
            return None
        return self.number(found[0][0]) if found[0] else Number("1", 1)

    # --- Copies, rings, roles

    def _copies(self) -> Iterator[Copy]:
        for o in self.walk.operations:
            if o.kind == "copy":
                name = split_index(o.barrier)[0]
                expecting = [_all_loops(a) for a in self._of(name, "arrive_tx")]
                repeated = not any(_all_loops(o) <= loops for loops in expecting)
                inner = f"{o.inner.path}:{o.inner.line}"
                yield Copy(o.map, o.to, o.coords, name, o.multicast, repeated, self.runs(o).count, inner, _at(o))

    def _ring(self, name: str) -> Ring | None:
        waits = [o for o in self._of(name, "wait") if split_index(o.barrier)[1] or o.phase]
        if not waits:
            return None
        index = split_index(waits[0].barrier)[1]
        turn = turn_of(index, self._texts(index)) if index and not index.isdigit() else None
        if index and turn is None and not index.isdigit():
            self._miss(f"how `{index}` goes on, the index of {name}", _at(waits[0]))
        phase = waits[0].phase
        texts = [t for n in names_in(phase) for t in self._texts(n)]
        turned = "" if not waits[0].by_parity or phase.isdigit() else flips(phase, texts)
        if waits[0].by_parity and not turned and not phase.isdigit():
            self._miss(f"how `{phase}` turns, the phase of {name}", _at(waits[0]))
        said = turned if waits[0].by_parity else "by token"
        stages = self.number(turn.stages) if turn else None
        if stages is not None and stages.value is None:
            self._miss(f"what `{stages.text}` comes to, the stages of {name}", _at(waits[0]))
        return Ring(name, index, stages, turn.text if turn else "", said or phase)

    def _texts(self, name: str) -> list[tuple[str, str]]:
        return [*texts_for(name, self.kernel, self._called()), *self._methods(name)]

    def _methods(self, name: str) -> Iterator[tuple[str, str]]:
        """Methods of the class of the variable that a member is of, operators among them."""
        base, _, member = name.replace("->", ".").rpartition(".")
        kinds = {
            re.sub(r"<.*", "", self.kernel.text(kind)).split("::")[-1]
            for declaration in find(self.kernel.body, "declaration")
            if (kind := declaration.child_by_field_name("type")) is not None
            for declarator in declaration.children_by_field_name("declarator")
            if (named := declared_name(declarator)) is not None and self.kernel.text(named) == base
        }
        for function in self.program.functions:
            if function.style is Style.METHOD and function.class_name in kinds:
                yield function.text(function.body), member

    def _called(self) -> Iterator[tuple[Function, dict[str, str]]]:
        """Functions that the kernel calls, with what their parameters stand for."""
        wording = Wording(self.program)
        frame = Frame(self.kernel)
        for function in [self.kernel, *(f for f in self.program.functions if f.parent is self.kernel)]:
            for call in function.calls:
                for target in self.program.targets(call):
                    inner = wording.enter(frame, call, target)
                    given = {n: place_of(function.text(a)) for n, a in inner.bound.items()}
                    yield target, given | ({"this": inner.receiver} if inner.receiver else {})

    def _roles(self) -> Iterator[Role]:
        for name, kind in (("producer", "copy"), ("mma", "mma"), ("epilogue", "store")):
            own = [o for o in self.walk.operations if o.kind == kind]
            if not own:
                continue
            runs = [self.runs(o).threads for o in own]
            known = [r for r in runs if r is not None]
            union = Runners(frozenset().union(*known) if len(known) == len(runs) else None)
            warps = None if union.warps is None else tuple(sorted(union.warps))
            places = tuple(dict.fromkeys(map(_at, own)))
            yield Role(name, warps, union.count, self._registers(union.threads), places)

    def _products(self) -> Iterator[Product]:
        for o in self.walk.operations:
            if o.multiplies is not None:
                op = o.multiplies
                yield Product(op.n, op.k, op.a_type.value, op.d_type.value, o.a_registers)

    def _registers(self, threads: frozenset[int] | None) -> Number | None:
        for o in self.walk.operations:
            if o.kind == "registers" and threads is not None:
                runs = self.runs(o).threads
                if runs is not None and threads <= runs:
                    return self._local_number(o)
        return None

    def _local_number(self, operation: Operation) -> Number | None:
        """The count of an operation, which may be a constant of the block that it stands in."""
        found = self.number(operation.count)
        if found is None or found.value is not None or not found.text.isidentifier():
            return found
        variable = resolve(self.kernel, operation.sites[0].node, found.text)
        value = first_value(variable) if variable is not None else None
        inner = self.number(self.kernel.text(value)) if value is not None else None
        return found if inner is None else Number(found.text, inner.value)

    # --- Definitions

    def _identity(self) -> Iterator[Definition]:
        """Variables that are known in each thread, by its index alone."""
        threads, values = Threads(self.program), ThreadValues(self.program, self.who.threads)
        for named, value in self._variables():
            if threads.differ(self.kernel, value) and values.of(self.kernel, value) is not None:
                text = " ".join(self.kernel.text(value).split())
                yield Definition(self.kernel.text(named), text, self._place(self.kernel, named))

    def _variables(self) -> Iterator[tuple[Node, Node]]:
        for declarator in find(self.kernel.body, "init_declarator"):
            named, value = declared_name(declarator), declarator.child_by_field_name("value")
            if named is not None and value is not None and value.type not in ("initializer_list", "lambda_expression"):
                yield named, value

    def _offsets(self) -> Iterator[Definition]:
        """Variables that coordinates of copies are made of, and what those are made of."""
        wanted = [n for o in self.walk.operations for c in o.coords for n in names_in(c)]
        values = {self.kernel.text(n): (n, v) for n, v in self._variables()}
        done: set[str] = set()
        while wanted:
            name = wanted.pop(0).split(".")[0]
            if name in done or name not in values:
                continue
            done.add(name)
            named, value = values[name]
            text = " ".join(self.kernel.text(value).split())
            yield Definition(name, text, self._place(self.kernel, named))
            wanted += names_in(text)


def _at(operation: Operation) -> str:
    return f"{operation.where.path}:{operation.where.line}"


def _loops_around(site: Site) -> Iterator[Node]:
    """The loops of a site's function that hold it, the innermost first."""
    node, body = site.node, site.frame.function.body
    while node.parent is not None and node.id != body.id:
        node = node.parent
        if node.type in LOOPS and node.type != "do_statement":
            yield node


def _all_loops(operation: Operation) -> set[int]:
    """ids of the loops that an operation is in, on the whole way to it."""
    return {loop.id for site in operation.sites for loop in _loops_around(site)}


def _tries(site: Site, loop: Node) -> bool:
    """Whether a loop goes on until what stands at a site has come true."""
    condition = loop.child_by_field_name("condition")
    if condition is None:
        return False
    if condition.start_byte <= site.node.start_byte < condition.end_byte:
        return True
    asm = next((s for s in site.frame.function.asm if s.node.id == site.node.id), None)
    words = set(re.findall(r"\w+", site.frame.function.text(condition)))
    return asm is not None and any(o.is_output and o.expr.strip() in words for o in asm.operands)


def _header(function: Function, loop: Node) -> str:
    """A loop without its body."""
    body = loop.child_by_field_name("body")
    end = body.start_byte if body is not None else loop.end_byte
    text = function.file.text(Span(loop.start_byte + function.shift, end + function.shift))
    return " ".join(text.split())
