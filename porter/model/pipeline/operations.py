# SPDX-License-Identifier: Apache-2.0
"""Everything that a kernel does with mbarriers, bulk copies and MMAs, itself or through callees, in the order of its
text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.diagnostics import Location
from porter.lang.asm import AsmStatement
from porter.lang.text import Span
from porter.model.facts import Doubt, Mbarrier, Mma, Pipeline, TiledMma
from porter.model.functions import Call, Function, Style
from porter.model.pipeline.elements import Elements
from porter.model.pipeline.frames import Frame, Wording
from porter.model.program import Program
from porter.ptx.ast import Imm, Mem, Operand, Placeholder, Reg, Vec
from porter.ptx.table import Decoded, items
from porter.ptx.table import find as decode
from porter.ptx.wgmma import WgmmaOp

Read = Callable[[Frame, Node], str]
"""What an expression of a function is called in the kernel."""

_DEEPEST = 10
_MOST = 4000
"""Calls that are followed in one kernel."""

UNKNOWN = "?"
FULL, EMPTY = "full", "empty"
"""What the mbarriers of a pipeline's stages are called, as members of the object."""
_WORDS = ("mbarrier", "cp.async.bulk", "wgmma.mma_async", "setmaxnreg", "tcgen05.commit")
_ARRIVALS = ("arrive", "arrive_drop")
_WAITS = ("test_wait", "try_wait")
_LIBRARY = {"init": "init", "arrive": "arrive", "expect": "arrive_tx", "wait": "wait", "copy": "copy"}
_PIPELINE = {
    "acquire": (("wait", EMPTY), ("arrive_tx", FULL)),
    "ask": (("ask", EMPTY),),
    "tail": (("wait", EMPTY),),
    "fetch": (("wait", FULL),),
    "look": (("ask", FULL),),
    "release": (("arrive", EMPTY),),
    "full": (),
}
"""What calls of a pipeline do with the mbarriers of its stages."""
_BY_LIBRARIES = (Mbarrier, Pipeline, TiledMma)


@dataclass(frozen=True)
class Site:
    """A statement or call of a function on the way from the kernel, and the frame that it stands in."""

    frame: Frame
    node: Node

    @property
    def asm(self) -> AsmStatement | None:
        """The asm statement that stands there, if its PTX can be read."""
        return next((s for s in self.frame.function.asm if s.node.id == self.node.id and s.ptx is not None), None)

    def only(self, *opcode: str) -> Decoded | None:
        """The one instruction of the asm statement whose opcode begins so."""
        ptx = self.asm.ptx if self.asm is not None else None
        found = [i for i in ptx.instructions() if i.parts[: len(opcode)] == opcode] if ptx is not None else []
        return decode(found[0]) if len(found) == 1 else None

    def expression(self, operand: Operand | None) -> Node | None:
        """What an operand of the asm statement's PTX stands for."""
        if self.asm is None or not isinstance(operand, Placeholder):
            return None
        return self.asm.operand(operand.index).expr_node


@dataclass(frozen=True)
class Operation:
    """One instruction, or call of a library that stands for one, with its operands in the kernel's words; `?` stands
    for what they do not say.

    `kind`: `init`, `arrive`, `arrive_tx` (an arrival that expects bytes), `expect_tx`, `wait`, `ask` (without waiting),
    `copy` (completes on the mbarrier), `store` (a bulk copy to global memory), `mma`, `registers` (setmaxnreg) or
    `remap` (an mbarrier ends, or is not one of this CTA).
    `sites` are the places on the way, the kernel's first. `remote`: of another CTA's mbarrier.
    """

    kind: str
    sites: tuple[Site, ...] = field(repr=False)
    barrier: str = ""
    count: str = ""
    bytes: str = ""
    phase: str = ""
    by_parity: bool = True
    remote: bool = False
    map: str = ""
    to: str = ""
    coords: tuple[str, ...] = ()
    multicast: bool = False
    multiplies: WgmmaOp | None = None
    a_registers: bool = False

    @property
    def where(self) -> Location:
        """The place in the kernel."""
        return location(self.sites[0])

    @property
    def inner(self) -> Location:
        """The place of the instruction itself."""
        return location(self.sites[-1])


def location(site: Site) -> Location:
    function = site.frame.function
    at = function.span(site.node)
    return function.file.location(Span(at.start, at.start))


@dataclass
class Walk:
    """What was found, and calls that were not followed."""

    operations: list[Operation] = field(default_factory=list)
    too_deep: list[Call] = field(default_factory=list)
    steps: int = 0


def operations_of(program: Program, kernel: Function, libraries: bool = False) -> Walk:
    """The operations of a kernel. `libraries`: pipelines and tiled MMAs of libraries are followed, too, and calls that
    may be one of these are unread."""
    walk = Walk()
    _Reader(program, walk, libraries).body(Frame(kernel), ())
    return walk


class _Reader:
    def __init__(self, program: Program, walk: Walk, libraries: bool) -> None:
        self.program, self.walk, self.wording, self.libraries = program, walk, Wording(program), libraries
        self.elements = Elements(program, self.wording)
        self._relevant = self._coming_to_any()
        self._names = {f.name for f in program.functions if id(f) in self._relevant}

    def _coming_to_any(self) -> set[int]:
        """ids of functions that have one of the operations in them, or below."""
        seeds = [f for f in self.program.functions if any(_matters(s) for s in f.asm)]
        seeds += [f for f in self.program.functions if any(self._may_be_one(c) for c in f.calls)]
        seeds += [s.function for s in self.program.statements]
        if self.libraries:
            # a lambda that a library runs is a part of what it stands in
            inner = [f for f in self.program.functions if f.style is Style.LAMBDA]
            before = -1
            while before < len(seeds):
                before, found = len(seeds), self.program.reaching(seeds)
                seeds += [
                    f.parent for f in inner if id(f) in found and f.parent is not None and id(f.parent) not in found
                ]
        return self.program.reaching(seeds)

    def _macro_words(self, name: str) -> set[str]:
        return set(re.findall(r"[A-Za-z_]\w*", self.program.macros.text(name)))

    def _fact(self, call: Call) -> Mbarrier | Mma | None:
        if call.name not in self.program.vocabulary:
            return None
        fact = self.program.facts.of_call(call)
        return fact if isinstance(fact, Mbarrier | Mma) else None

    def _may_be_one(self, call: Call) -> bool:
        if self._fact(call) is not None:
            return True
        if not self.libraries or call.name not in self.program.vocabulary:
            return False
        fact = self.program.facts.of_call(call)
        return issubclass(fact.kind, _BY_LIBRARIES) if isinstance(fact, Doubt) else isinstance(fact, _BY_LIBRARIES)

    def _of_libraries(self, frame: Frame, call: Call, sites: tuple[Site, ...]) -> list[Operation] | None:
        """What a call of a library is whose meaning may depend on who calls the function that it stands in; None of
        another call."""
        if not self._may_be_one(call) or self.program.targets(call):
            return None
        fact: object = self.program.facts.of_call(call)
        if isinstance(fact, Doubt):
            fact = self._handed_in(frame, call)
        if isinstance(fact, Mbarrier):
            return [self._library(frame, call, fact, sites)]
        if isinstance(fact, TiledMma):
            return [Operation("mma", sites)]
        if isinstance(fact, Pipeline):
            held = _held(call)
            of = self.wording.object(frame, held) if held is not None else UNKNOWN
            return [Operation(kind, sites, f"{of}.{name}[]", count="1", by_parity=False)
                    for kind, name in _PIPELINE[fact.op]]  # fmt: skip
        return [Operation("unread", sites)] if isinstance(fact, Doubt) else []

    def _handed_in(self, frame: Frame, call: Call) -> object:
        """What a method of an object is, by the class that the object has where it is declared."""
        node, outer = _held(call), frame
        while node is not None and outer.outer is not None:
            name = outer.function.text(node)
            if node.type != "identifier" or name not in outer.bound:
                break
            node, outer = outer.bound[name], outer.outer
            if outer.outer is None or outer.function.text(node) not in outer.bound:
                break
        if node is None or outer is frame:
            return self.program.facts.of_call(call)
        return self.program.facts.of_object(call, outer.function, node)

    def body(self, frame: Frame, above: tuple[Site, ...]) -> None:
        function = frame.function
        if id(function) not in self._relevant:
            return
        parts: list[tuple[int, AsmStatement | Call | Function]] = [
            (s.node.start_byte, s) for s in function.asm if _matters(s)
        ]
        parts += [(c.node.start_byte, c) for c in function.calls]
        parts += [(f.node.start_byte, f) for f in self._run_here(function)]
        for _, part in sorted(parts, key=lambda p: p[0]):
            sites = (*above, Site(frame, part.node))
            if isinstance(part, AsmStatement):
                self.walk.operations += self._instructions(frame, part, sites)
            elif isinstance(part, Function):
                self.body(Frame(part, frame, None, {}, frame.templates, frame.receiver), sites)
            else:
                self._call(frame, part, sites)

    def _run_here(self, function: Function) -> Iterator[Function]:
        """Lambdas that are handed to a function of a library, which runs them."""
        if self.libraries:
            for inner in self.program.functions:
                if inner.parent is function and inner.style is Style.LAMBDA and not self.program.callers(inner):
                    yield inner

    def _call(self, frame: Frame, call: Call, sites: tuple[Site, ...]) -> None:
        if self.libraries and (found := self._of_libraries(frame, call, sites)) is not None:
            self.walk.operations += found
            return
        fact = self._fact(call)
        if isinstance(fact, Mma):
            self.walk.operations.append(Operation("mma", sites, multiplies=fact.op))
            return
        if fact is not None:
            self.walk.operations.append(self._library(frame, call, fact, sites))
            return
        targets = self.program.targets(call)
        if not targets and call.name in self.program.macros.by_name and self._names & self._macro_words(call.name):
            self.walk.operations.append(Operation("unread", sites))
        for target in targets:
            if id(target) not in self._relevant:
                continue
            if frame.depth >= _DEEPEST or self.walk.steps >= _MOST or _recursive(frame, target):
                self.walk.too_deep.append(call)
                continue
            self.walk.steps += 1
            if target.style is Style.LAMBDA:
                inner = Frame(target, frame, call, dict(zip((p.name for p in target.params), call.args, strict=False)),
                              frame.templates, frame.receiver)  # fmt: skip
            else:
                inner = self.wording.enter(frame, call, target)
            self.body(inner, sites)

    def _library(self, frame: Frame, call: Call, fact: Mbarrier, sites: tuple[Site, ...]) -> Operation:
        held = _held(call)
        nodes = [n for a in (*call.args, *([held] if held is not None else [])) for n in (a, *a.named_children)]

        def words(text: str, objects: bool = False) -> str:
            node = next((n for n in nodes if frame.function.text(n) == text), None)
            if node is None:
                return " ".join(text.split())
            return self.wording.object(frame, node) if objects else self.wording.words(frame, node)

        coords = tuple(part.strip() for part in fact.coords.split(",")) if fact.coords else ()
        return Operation(
            _LIBRARY.get(fact.op, fact.op), sites, words(fact.bar, True), words(fact.count), words(fact.bytes),
            words(fact.parity or fact.phase), bool(fact.parity), False, words(fact.map, True), words(fact.to, True),
            tuple(words(c) for c in coords),
        )  # fmt: skip

    def _instructions(self, frame: Frame, statement: AsmStatement, sites: tuple[Site, ...]) -> Iterator[Operation]:
        if statement.ptx is None:
            yield Operation("unread", sites)
            return
        written: dict[str, Decoded] = {}
        for instruction in statement.ptx.instructions():
            found = decode(instruction)
            if found is None:
                if instruction.parts[0] in ("mbarrier", "cp"):
                    yield Operation("unread", sites)
                continue
            operation = self._instruction(found, sites)
            if operation is not None:
                yield self._filled(frame, statement, found, operation, written)
            for register in found.writes:
                written[register] = found

    def _instruction(self, found: Decoded, sites: tuple[Site, ...]) -> Operation | None:
        """What an instruction is, without operands."""
        match found.parts[0], (*found.parts, "")[1]:
            case "wgmma", "mma_async":
                return Operation(
                    "mma", sites, multiplies=WgmmaOp.of(found.modifiers), a_registers=isinstance(found.get("a"), Vec)
                )
            case "setmaxnreg", direction:
                return Operation("registers", sites, phase=direction)
            case "mbarrier", "init":
                return Operation("init", sites)
            case "mbarrier", "inval":
                return Operation("remap", sites)
            case "mbarrier", verb if verb in _ARRIVALS:
                return Operation("arrive_tx" if "expect_tx" in found.parts else "arrive", sites)
            case "tcgen05", "commit":
                return Operation("arrive", sites)
            case "mbarrier", "expect_tx":
                return Operation("expect_tx", sites)
            case "mbarrier", verb if verb in _WAITS:
                return Operation("wait", sites, by_parity="parity" in found.parts)
            case "cp", "async" if "bulk" in found.parts and found.get("mbar") is not None:
                return Operation("copy", sites, multicast="multicast::cluster" in found.parts)
            case "cp", "async" if "mbarrier" in found.parts:
                return Operation("arrive", sites)
            case "cp", "async" if "bulk" in found.parts and "global" in found.parts:
                return Operation("store", sites)
        return None

    def _filled(
        self, frame: Frame, statement: AsmStatement, found: Decoded, operation: Operation, written: dict[str, Decoded]
    ) -> Operation:
        def word(name: str) -> str:
            operand = found.get(name)
            return "" if operand is None else self._word(frame, statement, operand, written)[0]

        def place(name: str, read: Read = self.wording.object) -> tuple[str, bool]:
            operand = found.get(name)
            if operand is None:
                return "", False
            return self._word(frame, statement, operand, written, read=read)

        barrier, remote = place("mbar", self.elements.of)
        coords = found.get("coords")
        count = word("count") if operation.kind != "registers" else word("n") or word("count")
        return replace(
            operation,
            barrier=barrier,
            remote=remote,
            count=count or ("1" if operation.kind in ("arrive", "arrive_tx") else ""),
            bytes=word("tx") or word("size"),
            phase=operation.phase or (word("parity") or word("state") if operation.kind == "wait" else ""),
            map=place("map")[0],
            to=place("dst")[0] if operation.kind == "copy" else "",
            coords=tuple(self._word(frame, statement, c, written)[0] for c in items(coords)) if coords else (),
        )

    def _word(
        self,
        frame: Frame,
        statement: AsmStatement,
        operand: Operand,
        written: dict[str, Decoded],
        depth: int = 0,
        read: Read | None = None,
    ) -> tuple[str, bool]:
        """An operand in the kernel's words, and whether it is an address in another CTA."""
        if isinstance(operand, Mem):
            offset = f" + {operand.offset}" if operand.offset else ""
            text, remote = self._word(frame, statement, operand.base, written, depth, read)
            return text + offset, remote
        if isinstance(operand, Placeholder):
            bound = statement.operand(operand.index)
            if bound.expr_node is None:
                return bound.expr, False
            return (read or self.wording.words)(frame, bound.expr_node), False
        if isinstance(operand, Imm):
            return str(operand.value), False
        if isinstance(operand, Reg) and operand.name in written and depth < _DEEPEST:
            source = written[operand.name]
            inner = [o for name, (_, o) in source.rows.items() if name not in ("d", "rd", "dst")]
            first = next((o for o in source.operands[1:]), inner[0] if inner else None)
            if first is not None and source.parts[0] in ("mapa", "cvta", "mov", "cvt"):
                text, remote = self._word(frame, statement, first, written, depth + 1, read)
                return text, remote or source.parts[0] == "mapa"
        return UNKNOWN, False


def _held(call: Call) -> Node | None:
    """The object whose method is called."""
    called = call.node.child_by_field_name("function")
    return called.child_by_field_name("argument") if called is not None else None


def _matters(statement: AsmStatement) -> bool:
    return any(word in statement.template for word in _WORDS)


def _recursive(frame: Frame, target: Function) -> bool:
    return any(f.function is target for f in frame.chain)
