# SPDX-License-Identifier: Apache-2.0
"""What a program does with MMAs of libraries: tiled ones, and atoms that it calls itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.model.empty_calls import is_register_fence_call
from porter.model.facts import (
    AtomMma,
    Commit,
    CopyWait,
    Doubt,
    Fence,
    ProxyFence,
    TiledMma,
    Wait,
    Zero,
)
from porter.model.functions import Call, Function, Style
from porter.model.library_calls import unread_macros
from porter.model.names.index import CLASSES
from porter.model.program import Program, Refusal
from porter.model.recognition import Answer
from porter.model.tiled.accumulators import Multiply, Search, Synchronization, Tiled
from porter.model.tiled.atoms import find_arrays, read_atoms
from porter.model.tiled.own import take_own
from porter.model.tiled.tensors import Tensors

SYNCHRONIZES = (Fence, Commit, Wait)
_ASKED = (TiledMma, *SYNCHRONIZES)


def find_tiled(program: Program) -> Tiled | None:
    """Everything of the kind; None if nothing multiplies so."""
    if not program.mentions((TiledMma, AtomMma)):
        return None
    tiled = Tiled(program, Tensors(program))
    answers = [(c, program.facts.answer(c)) for f in program.functions for c in f.calls]
    own = [s.function for s in program.statements]
    of_warpgroups = _meeting(program, [*own, *(c.caller for c, a in answers if _synchronizes(a))])
    for call, answer in answers:
        if isinstance(answer.fact, TiledMma) and of_warpgroups(call.caller):
            tiled.multiplies.append(_multiply(call, answer))
            assert answer.recognizer is not None
            tiled.libraries.add(answer.recognizer.library)
    read_atoms(tiled, answers)
    _refuse_macros(tiled, of_warpgroups)
    for call, answer in answers if not tiled.multiplies else ():
        if isinstance(answer.fact, Doubt) and answer.fact.kind is TiledMma and of_warpgroups(call.caller):
            tiled.refuse(call.caller, call.node, answer.fact.what, Code.WGMMA_FORM)
    if not tiled.multiplies and not tiled.atoms and not tiled.refusals:
        return None
    _read_synchronizations(tiled, answers)
    for function in [c.caller for c in tiled.calls]:
        if function.style is Style.MACRO:
            tiled.refuse(function, function.body, f"macro `{function.name}` issues MMAs of a library", Code.WGMMA_FORM)
    tiled.active = program.reaching([c.caller for c in tiled.calls])
    for function in program.functions:
        if id(function) in tiled.active and _stands_in_another(function):
            what = f"`{function.name}` stands inside another function: a brace is missing, or one is too many"
            tiled.refuse(function, function.node, what, Code.WGMMA_FORM)
    find_arrays(tiled)
    Search(tiled).run()
    return tiled


def _refuse_macros(tiled: Tiled, of_warpgroups: Callable[[Function], bool]) -> None:
    """MMAs of warpgroups, and what opens, closes or waits for their batches, in the text of macros."""
    program = tiled.program
    read = {f.name for f in program.functions if f.style is Style.MACRO}
    found = list(unread_macros(program.sources, program.facts, read, SYNCHRONIZES))
    macros = {one.name for one in found}
    for one in unread_macros(program.sources, program.facts, read | macros, (TiledMma,)):
        names = [name for name in program.macros.by_name if one.name in (name, *program.macros.words(name))]
        uses = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
        users = (f for f in program.functions if uses.search(f.text(f.body)) and f.style is not Style.HOST)
        if any(of_warpgroups(f) for f in users):
            found.append(one)
    for one in found:
        tiled.refusals.append(Refusal(None, one.path, one.at.start, one.at.end, one.what, Code.WGMMA_FORM))


def _stands_in_another(function: Function) -> bool:
    """Whether a function is read as a part of another one's body, which C++ does not have outside of classes."""
    if function.style in (Style.LAMBDA, Style.MACRO):
        return False
    node = function.node.parent
    while node is not None and node.type not in CLASSES:
        if node.type in ("function_definition", "lambda_expression"):
            return True
        node = node.parent
    return False


def _read_synchronizations(tiled: Tiled, answers: Sequence[tuple[Call, Answer]]) -> None:
    """Calls that open, close or wait for batches, clear accumulators or pin their registers."""
    program = tiled.program
    tiled.synchronizations, tiled.emptied = take_own(program)
    fenced: set[int] = set()
    for call, answer in answers:
        if isinstance(answer.fact, SYNCHRONIZES):
            tiled.synchronizations.append(Synchronization(call, answer.fact))
        elif isinstance(answer.fact, CopyWait):
            tiled.copy_waits.append(call)
        elif isinstance(answer.fact, ProxyFence):
            fenced.add(id(call.caller))
        elif isinstance(answer.fact, Zero) or is_register_fence_call(program, call):
            tiled.unread.add((id(call.caller.file), call.node.id))
        elif isinstance(answer.fact, Doubt) and answer.fact.kind in _ASKED:
            tiled.refuse(call.caller, call.node, answer.fact.what, Code.WGMMA_FORM)
    tiled.copy_waits = [c for c in tiled.copy_waits if id(c.caller) not in fenced]
    for one in tiled.synchronizations:
        if isinstance(one.fact, Wait) and not one.fact.pending:
            what = "how many batches a wait leaves pending is not said where it is called"
            tiled.refuse(one.call.caller, one.call.node, what, Code.BATCH_NOT_FOLLOWED)


def synchronizing(program: Program) -> list[Call]:
    """Calls of a library that open, close or wait for batches of MMAs, and those that may be one."""
    return [c for f in program.functions for c in f.calls if _synchronizes(program.facts.answer(c))]


def _synchronizes(answer: Answer) -> bool:
    fact = answer.fact
    return isinstance(fact, SYNCHRONIZES) or (isinstance(fact, Doubt) and fact.kind in SYNCHRONIZES)


def _meeting(program: Program, synchronizing: Sequence[Function]) -> Callable[[Function], bool]:
    """Whether a function is part of device code that opens, closes or waits for batches of MMAs. Other tiled MMAs are
    those of single warps, whose results are there when the call returns."""
    beside = program.reaching(synchronizing)
    device = {id(f) for f in program.functions if f.style is not Style.HOST}
    return lambda function: bool(program.reaching([function]) & beside & device)


def _multiply(call: Call, answer: Answer) -> Multiply:
    def operand(name: str) -> Node:
        assert answer.recognizer is not None
        span = answer.captures[answer.recognizer.place_of(name)][1]
        found = next((n for a in call.args for n in walk(a) if call.caller.span(n) == span), None)
        return found if found is not None else call.node

    return Multiply(call, operand("mma"), operand("a"), operand("b"), operand("d"))
