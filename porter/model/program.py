# SPDX-License-Identifier: Apache-2.0
"""The kernel model of a source set: functions, who calls whom, and which of them use the tensor core."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from porter.diagnostics import Code, Location
from porter.lang.asm import AsmStatement
from porter.lang.cuda import CudaFile, find
from porter.lang.macros import Macros
from porter.lang.sources import SourceSet
from porter.model.constants import Constants, macro_texts, visible
from porter.model.entries import mark_entries
from porter.model.facts import TENSOR_CORE, Doubt, Entry, Fact, Mma, Problem, Refused
from porter.model.function_reader import declarations_of, functions_of, uses_of_object_macros
from porter.model.functions import Call, Function, Style
from porter.model.leaves import Reading, disagreement, emptied
from porter.model.library_calls import called_steps, unread_macros
from porter.model.names.resolver import CALL_OPERATOR, Names
from porter.model.names.values import Values
from porter.model.recognition import Answer, Facts, Recognizer, Vocabulary
from porter.model.scopes import LOOPS
from porter.model.tensor_core import MmaStep, Sparse, Step, SyncStep, Unsupported, tensor_core_steps
from porter.ptx.smem_desc import bits_beside_fields

_WITH_BODY = ("if_statement", "else_clause", *LOOPS)

PACK = "parameter_pack_expansion"
"""Node type of `args...` in a call."""


_BESIDE_FIELDS = re.compile(rf"<<\s*(?:{'|'.join(map(str, bits_beside_fields('sm_90')))})\b".encode())
_VOLATILE = re.compile(rb"(?P<asm>\b(?:asm|__asm|__asm__)\s+)?\bvolatile\b")


@dataclass(eq=False)
class TensorCoreStatement:
    """An asm statement with wgmma in it, or a call that stands for one, and what it does. `answer` is what a rule says
    of a call."""

    function: Function
    statement: AsmStatement
    steps: list[MmaStep | SyncStep]
    answer: Answer | None = None


@dataclass(eq=False)
class Refusal:
    """A wgmma statement or accumulator that cannot be ported, where, and why."""

    function: Function | None
    path: str
    start: int
    end: int
    what: str
    code: Code = Code.WGMMA_FORM
    values: dict[str, str] = field(default_factory=dict)
    """What the code's text names beside `what`."""
    where: Location | None = None
    """The place of the rule, if that is what is wrong."""


@dataclass(eq=False)
class Program:
    """Everything the rules and passes read. Built once per source set."""

    sources: SourceSet
    functions: list[Function]
    vocabulary: Vocabulary = field(repr=False)
    statements: list[TensorCoreStatement] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    forward: list[Function] = field(default_factory=list, repr=False)
    """Functions declared without a body."""
    _calls_by_name: dict[str, list[Call]] = field(default_factory=dict, repr=False)
    _odd_calls: list[Call] = field(default_factory=list, repr=False)
    """Calls whose name is no function's."""
    _renamed_calls: list[Call] = field(default_factory=list, repr=False)
    """Those of them whose name is a macro."""
    _callers: dict[int, list[Call]] = field(default_factory=dict, repr=False)
    _visible: dict[int, Constants] = field(default_factory=dict, repr=False)
    _spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict, repr=False)
    _spans_of: tuple[int, int] = (0, 0)
    """The list of `statements` that `_spans` was made of, and how long it was."""
    calls_that_use: dict[int, tuple[set[int], list[tuple[int, int]]]] = field(default_factory=dict, repr=False)
    """By id of a function: ids of functions, and the bytes of its calls of those."""
    leaf_calls: set[int] = field(default_factory=set, repr=False)
    """ids of the nodes of calls that a rule speaks for although the function's body is at hand."""
    leaf_bodies: list[Function] = field(default_factory=list, repr=False)
    """Functions whose body is at hand, and of which a rule says what they do."""
    emptied: dict[int, Recognizer | None] = field(default_factory=dict, repr=False)
    """ids of the functions that only such calls come to, with what recognized those: the port has no use for their
    bodies. None where they are to be kept."""

    @cached_property
    def names(self) -> Names:
        """What names mean, as C++ resolves them."""
        complete = not self.sources.unresolved
        return Names(self.sources.files, self.functions, self.forward, self._constants_at, complete)

    @cached_property
    def facts(self) -> Facts:
        """What calls and names of libraries are."""
        return Facts(self.names, self.vocabulary, self.value)

    def value(self, function: Function, text: str) -> int | None:
        """What a constant expression in a function comes to, None if that is not known."""
        return self.constants_in(function).evaluate(text)

    @cached_property
    def values(self) -> Values:
        """What names of constants mean."""
        return Values(self.names.lookup, macro_texts(self.sources.files.values()))

    @property
    def constants(self) -> Constants:
        """What names mean at file scope."""
        return self.values.within(self.names.index.top)

    def _constants_at(self, function: Function | None) -> Constants:
        return self.constants if function is None else self.constants_in(function)

    @property
    def kernels(self) -> list[Function]:
        return [f for f in self.functions if f.style is Style.KERNEL]

    def constants_in(self, function: Function) -> Constants:
        """What names mean inside a function."""
        if id(function) not in self._visible:
            outer = self.constants_around(function) if function.parent is None else self.constants_in(function.parent)
            self._visible[id(function)] = visible(outer, function)
        return self._visible[id(function)]

    def constants_around(self, function: Function) -> Constants:
        """What names mean in a function, apart from those of its own constants, variables and parameters."""
        end = function.body.children[-1] if function.body.children else function.body
        return self.values.at(self.names.lookup.site(function, end))

    def targets(self, call: Call) -> list[Function]:
        """Functions with a body that a call may reach: exactly one where the sources tell."""
        return [] if call.node.id in self.leaf_calls else list(self.names.resolve(call).targets)

    def declarations(self, function: Function) -> list[Function]:
        """Declarations without a body that this definition completes or specializes."""
        return self.names.declarations(function)

    def callers(self, function: Function) -> list[Call]:
        """The calls that may reach a function."""
        known = self._callers.get(id(function))
        if known is None:
            found = [c for c in self._calls_of(function) if function in self.targets(c)]
            known = self._callers[id(function)] = found
        return known

    def calls_named(self, name: str) -> list[Call]:
        """The calls that have a name, whatever they reach."""
        return self._calls_by_name.get(name, [])

    def _calls_of(self, function: Function) -> list[Call]:
        """Calls whose text may mean a function."""
        if function.name == CALL_OPERATOR:
            # the call names an object or a class
            return [c for f in self.functions for c in f.calls]
        # a lambda that is called where it is written has a call without a name
        same = self.calls_named(function.name) if function.name or function.style is Style.LAMBDA else []
        return same + (
            self._odd_callers.get(id(function), []) if function.style is Style.METHOD else self._renamed_calls
        )

    @cached_property
    def _odd_callers(self) -> dict[int, list[Call]]:
        """Calls whose name is no function's, by the ids of the functions that they may reach."""
        found: dict[int, list[Call]] = {}
        for call in self._odd_calls:
            for reached in {id(f) for f in self.names.resolve(call).targets}:
                found.setdefault(reached, []).append(call)
        return found

    def steps_in(self, function: Function) -> list[TensorCoreStatement]:
        return [s for s in self.statements if s.function is function]

    def _coming_to(self, function: Function) -> list[Function]:
        """The functions that call a function, or hand it to something that does. A launch is no call."""
        if function.style is Style.KERNEL:
            return []
        found = [call.caller for call in self.callers(function)]
        if function.style is Style.LAMBDA and function.parent is not None:
            # who makes it hands it to something that calls it
            found.append(function.parent)
        return found

    def reaching(self, seeds: Iterable[Function]) -> set[int]:
        """ids of the functions that call one of `seeds`, directly or not, and of the seeds. A launch is no call."""
        found: set[int] = set()
        work = list(seeds)
        while work:
            function = work.pop()
            if id(function) not in found:
                found.add(id(function))
                work += self._coming_to(function)
        return found

    def reached(self, kernels: Iterable[Function], seeds: Iterable[Function]) -> set[int]:
        """ids of `kernels` and of the functions that they come to, among `seeds` and what is `reaching` those."""
        ids = self.reaching(seeds)
        called: dict[int, list[Function]] = {}
        for function in self.functions:
            if id(function) in ids:
                for caller in self._coming_to(function):
                    called.setdefault(id(caller), []).append(function)
        found: set[int] = set()
        work = list(kernels)
        while work:
            function = work.pop()
            if id(function) not in found:
                found.add(id(function))
                work += called.get(id(function), ())
        return found

    def uses_tensor_core(self) -> set[int]:
        return self.reaching(s.function for s in self.statements)

    def statement_spans(self, file: CudaFile) -> list[tuple[int, int]]:
        """Bytes of the nodes of a file's `statements`, sorted, without those in bodies of macros."""
        of = (id(self.statements), len(self.statements))
        if self._spans_of != of:
            self._spans_of, self._spans = of, {}
            for statement in self.statements:
                if statement.function.shift == 0:
                    node = statement.statement.node
                    self._spans.setdefault(id(statement.function.file), []).append((node.start_byte, node.end_byte))
            for spans in self._spans.values():
                spans.sort()
        return self._spans.get(id(file), [])

    @cached_property
    def calls_by_node(self) -> dict[int, list[Call]]:
        """Calls by the node that they are, of whichever function."""
        found: dict[int, list[Call]] = {}
        for function in self.functions:
            for call in function.calls:
                found.setdefault(call.node.id, []).append(call)
        return found

    @cached_property
    def macros(self) -> Macros:
        """Every macro of the sources."""
        return Macros.of(m for file in self.sources.files.values() for m in file.lexed.macros())

    def macro_bodies(self, name: str) -> list[str]:
        """The texts that a macro with parameters stands for, one for each of its definitions."""
        found = self.macros.by_name.get(name, ())
        return [m.joined.decode("utf-8", "replace") for m in found if m.params is not None]

    def mentions(self, kinds: tuple[type[Fact], ...]) -> bool:
        """Whether a word that a call of one of these kinds may have for a name stands in the sources."""
        words = self.vocabulary.naming(kinds)
        if not words:
            return False
        pattern = re.compile(rb"\b(?:%s)\b" % b"|".join(re.escape(w.encode()) for w in sorted(words)))
        return any(pattern.search(file.source) for file in self.sources.files.values())

    @property
    def has_volatile(self) -> bool:
        """Whether anything but asm is volatile."""
        return any(not match["asm"] for f in self.sources.files.values() for match in _VOLATILE.finditer(f.lexed.code))

    @property
    def shifts_beside_fields(self) -> bool:
        """Whether something is shifted to where a descriptor of wgmma has no field, in its 64 bits or in a half."""
        return any(_BESIDE_FIELDS.search(f.lexed.code) for f in self.sources.files.values())

    def unused(self, name: str) -> str:
        """A name that the sources have not, which begins so."""
        return name if name not in self.identifiers() else self.unused(name + "_")

    def identifiers(self) -> set[str]:
        """Every word in the set's files: what a new name must not be."""
        words: set[str] = set()
        for file in self.sources.files.values():
            words.update(w.decode() for w in set(re.findall(rb"[A-Za-z_]\w*", file.source)))
        return words


def build_program(sources: SourceSet, vocabulary: Vocabulary) -> Program:
    """Read the model off parsed sources and what rules say of libraries. Never fails: what is not understood is in
    `refusals`."""
    functions = [f for file in sources.files.values() for f in functions_of(file, sources.string_macros)]
    uses_of_object_macros(functions)
    program = Program(sources, functions, vocabulary)
    program.forward = [d for file in sources.files.values() for d in declarations_of(file)]
    known = {f.name for f in functions}
    macros = program.names.lookup.macros
    for function in functions:
        for call in function.calls:
            program._calls_by_name.setdefault(call.name, []).append(call)
            if call.name not in known:
                program._odd_calls.append(call)
                if call.name in macros:
                    program._renamed_calls.append(call)
    for function in functions:
        for statement in function.asm:
            try:
                steps = tensor_core_steps(function, statement)
            except Unsupported as reason:
                code, at = Code.SPARSE_WGMMA if isinstance(reason, Sparse) else Code.WGMMA_FORM, statement.span
                program.refusals.append(Refusal(function, statement.path, at.start, at.end, str(reason), code))
                continue
            if steps:
                program.statements.append(TensorCoreStatement(function, statement, steps))
    if program.mentions((Entry,)):
        mark_entries(functions, program.names, vocabulary)
    _read_calls(program)
    program.refusals += _bodies_unread(program)
    return program


def _read_calls(program: Program) -> None:
    """The instructions that calls of libraries stand for. A call that may be one and is not understood is refused."""
    own = any("wgmma.mma_async" in s.template for f in program.functions for s in f.asm)
    if not own and not program.mentions((Mma, Refused)):
        return
    answers = [(call, program.facts.answer(call)) for function in program.functions for call in function.calls]
    multiplies = own or any(
        (a.fact.kind if isinstance(a.fact, Doubt) else type(a.fact)) is Mma for _, a in answers if a.fact is not None
    )
    leaves: dict[int, Recognizer | None] = {}
    for call, answer in answers:
        fact = answer.fact
        if isinstance(fact, Refused):
            _refuse(program, call, fact.what, Code.RULE_REFUSED, {"advice": fact.advice, "rule": _rule_of(answer)})
        elif not multiplies:
            continue
        elif isinstance(fact, Doubt) and fact.kind in (*TENSOR_CORE, Refused):
            broken = fact.problem in (Problem.TIED, Problem.DISAGREES)
            where = answer.attempts[0].recognizer.where if broken and answer.attempts else None
            _refuse(program, call, fact.what, _CODES[fact.problem], {"rule": fact.rule}, where)
        elif isinstance(fact, TENSOR_CORE):
            try:
                statement, steps = called_steps(call, answer, program.value)
            except Unsupported as reason:
                _refuse(program, call, str(reason), Code.RULE_NEAR_MISS, {"rule": _rule_of(answer)})
                continue
            called = program.names.resolve(call).targets
            if called and _leaf(program, call, answer):
                continue
            kept = answer.recognizer is not None and answer.recognizer.definition == "keep"
            leaves |= dict.fromkeys(map(id, called), None if kept else answer.recognizer)
            program.leaf_bodies += called
            program.statements.append(TensorCoreStatement(call.caller, statement, steps, answer))
    if leaves:
        program._callers.clear()
        program.emptied = emptied(program.functions, program.callers, leaves)
        program.statements = [s for s in program.statements if id(s.function) not in program.emptied]
        program.refusals = [r for r in program.refusals if id(r.function) not in program.emptied]
    if multiplies:
        read = {f.name for f in program.functions if f.style is Style.MACRO}
        for one in unread_macros(program.sources, program.facts, read):
            program.refusals.append(Refusal(None, one.path, one.at.start, one.at.end, one.what))


def _leaf(program: Program, call: Call, answer: Answer) -> str:
    """Take a call for what a rule says of it; why not, if the body that is at hand says otherwise."""
    recognizer = answer.recognizer
    assert recognizer is not None
    wrong = (
        disagreement(Reading(program.names, program.value), call, answer) if recognizer.definition == "check" else ""
    )
    if wrong:
        _refuse(program, call, wrong, Code.RULE_DISAGREES, {"rule": recognizer.rule}, recognizer.where)
    else:
        program.leaf_calls.add(call.node.id)
    return wrong


_CODES = {
    Problem.NEAR: Code.RULE_NEAR_MISS,
    Problem.UNSURE: Code.WGMMA_FORM,
    Problem.TIED: Code.RULE_CONFLICT,
    Problem.DISAGREES: Code.RULE_DISAGREES,
}


def _rule_of(answer: Answer) -> str:
    return answer.recognizer.rule if answer.recognizer is not None else ""


def _refuse(
    program: Program, call: Call, what: str, code: Code, values: dict[str, str], where: Location | None = None
) -> None:
    at = call.caller.span(call.node)
    path = call.caller.file.path
    program.refusals.append(Refusal(call.caller, path, at.start, at.end, what, code, values, where))


def _bodies_unread(program: Program) -> Iterator[Refusal]:
    """A branch or loop without braces whose body the preprocessor chooses: the grammar sees none."""
    uses = program.uses_tensor_core()
    for function in program.functions:
        if id(function) not in uses:
            continue
        for node in find(function.body, "expression_statement"):
            above = node.parent
            if node.start_byte == node.end_byte and above is not None and above.type in _WITH_BODY:
                at = function.span(above)
                what = "a branch or loop without braces whose body the preprocessor chooses"
                yield Refusal(function, function.file.path, at.start, at.end, what)


def needs_warpgroup(statement: TensorCoreStatement) -> bool:
    """Whether the statement's port needs the state of the warpgroup: it commits, waits, or stores an operand."""
    return any(
        s.kind in (Step.COMMIT, Step.WAIT) or (isinstance(s, MmaStep) and bool(s.a_registers)) for s in statement.steps
    )
