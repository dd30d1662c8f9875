# SPDX-License-Identifier: Apache-2.0
"""`wgmma.mma_async` becomes a tcgen05.mma that one thread issues, with an instruction descriptor of its own."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from porter.lang.cuda import enclosing
from porter.model.facts import Mma
from porter.model.functions import Function, Style
from porter.model.program import TensorCoreStatement
from porter.model.recognition import Emitter
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep, without_cast
from porter.passes.context import PortContext, qualified
from porter.passes.emit import lines
from porter.passes.emitting import emitted
from porter.passes.helpers import type_constant
from porter.ptx.wgmma import umma_kind

RULE = "PTR110"

_LINE = 110


def rewrite(
    context: PortContext, statement: TensorCoreStatement, step: MmaStep, named: bool
) -> tuple[Emitter | None, list[str]]:
    """The emitter and the lines that replace one MMA. `named`: the descriptor gets a constant of its own."""
    function, op = statement.function, step.op
    kind = umma_kind(op.a_type)
    indent = context.indent(function, statement.statement.span)
    scale = _plain(context, function, step.scale_d) or "1"
    scale = "true" if scale == "1" else "false" if scale == "0" else scale
    bound = {
        "tile": tile_expression(context, function, step),
        "a": step.a,
        "b": step.b,
        "d": "".join([step.d.name, *(f"[{s}]" for s in step.d.prefix)]),
        "operand_a": ", ".join(step.a_registers or (step.a,)),
        "accumulate": scale,
        "kind": kind.value,
        "shape": f"m64n{op.n}k{op.k}",
        "types": ".".join(t.value for t in (op.d_type, op.a_type, op.b_type)),
        "scale_d": step.scale_d,
        "negate_a": step.negate_a,
        "negate_b": step.negate_b,
        "transpose_a": step.transpose_a,
        "transpose_b": step.transpose_b,
        "indent": indent,
    }
    descriptor = _descriptor(context, function, step)
    facets = {
        "a_from": "registers" if step.a_registers else "smem",
        "accumulate": "always" if scale == "true" else "given",
        **{name: str(bound[name]) for name in ("kind", "shape", "types")},
    }
    bound["idesc"] = "idesc" if named else descriptor
    emitter, text = emitted(context, statement, Mma, bound, facets)
    if emitter is None or emitter.is_user:
        return emitter, [text]
    _request_helpers(context, step)
    named_lines = [_wrap(lines("descriptor", value=descriptor), indent)] if named else []
    return emitter, [*named_lines, _wrap(text, indent)]


def _request_helpers(context: PortContext, step: MmaStep) -> None:
    op, kind = step.op, umma_kind(step.op.a_type)
    (context.helpers.register_kinds if step.a_registers else context.helpers.kinds).add(kind)
    context.helpers.operands |= {(kind, op.a_type), (kind, op.b_type)}
    context.helpers.accumulators.add(op.d_type)
    context.helpers.saturate |= op.satfinite


def _descriptor(context: PortContext, function: Function, step: MmaStep) -> str:
    """The instruction descriptor as an expression."""
    op = step.op
    immediates = (step.negate_a, step.negate_b, step.transpose_a, step.transpose_b)
    negate_a, negate_b, transpose_a, transpose_b = (_plain(context, function, i) for i in immediates)
    flags = [_negated(negate_a), _negated(negate_b), _set(transpose_a), _set(transpose_b)]
    if op.satfinite:
        flags.append("true")
    while flags and flags[-1] == "false":
        flags.pop()
    arguments = [
        qualified(type_constant("Accumulate", op.d_type)),
        qualified(type_constant("Operand", op.a_type)),
        qualified(type_constant("Operand", op.b_type)),
        str(op.n),
        *flags,
    ]
    return f"{qualified('instruction_descriptor')}({', '.join(arguments)})"


def tile_expression(context: PortContext, function: Function, step: MmaStep) -> str:
    """The `Accumulator` that a step's D registers have become, as named in the function."""
    subscripts = "".join(f"[{s}]" for s in step.d.prefix)
    if function.style is Style.MACRO:
        if function.param(step.d.name) is not None:
            return step.d.name + subscripts
        owner = next((a for a in context.accumulators.accumulators if any(s is step for _, s in a.steps)), None)
        return (context.names.tile(owner) if owner is not None else step.d.name) + subscripts
    for member, member_step in context.accumulators.member_steps:
        if member_step is step:
            return context.member_tile(member, function)
    variable = resolve(function, step.d.root, step.d.name)
    if variable is not None and variable.param is not None:
        carried = [p for p in context.accumulators.params_of(variable.function) if id(p) in context.kept_params]
        kept = next((p for p in carried if any(q.name == step.d.name for q in p.params)), None)
        if kept is not None:
            return context.names.kept_tile(kept) + subscripts
        name = context.names.scalar_param(step.d.name) if step.d.is_scalars else step.d.name
        return name + subscripts
    accumulator = context.accumulators.held_by(variable)
    if accumulator is not None:
        return context.names.tile(accumulator) + subscripts[: _tile_length(accumulator.home.depth, step)]
    return step.d.name + subscripts


def _tile_length(depth: int, step: MmaStep) -> int:
    return sum(len(s) + 2 for s in step.d.prefix[:depth])


def _wrap(line: str, indent: str) -> str:
    """A long call broken behind its opening parenthesis, and before its last call argument if it must."""
    if len(indent) + len(line) <= _LINE:
        return line
    head, _, tail = line.partition("(")
    call, format_code = qualified("instruction_descriptor("), qualified("kOperand")
    if len(indent) + 4 + len(tail) > _LINE and f", {call}" in tail:
        first, _, rest = tail.partition(f", {call}")
        return f"{head}(\n{indent}    {first},\n{indent}    {call}{rest}"
    if len(indent) + 4 + len(tail) > _LINE and f", {format_code}" in tail:
        # the formats on one line, shape and flags on the next
        at = tail.index(", ", tail.rindex(format_code)) + 1
        return f"{head}(\n{indent}    {tail[:at]}\n{indent}    {tail[at + 1 :]}"
    return f"{head}(\n{indent}    {tail}"


@lru_cache(maxsize=16)
def _says_idesc(source: bytes) -> bool:
    return b"idesc" in source


def mmas_in_blocks(function: Function) -> Counter[int]:
    """How many MMAs each block of a function has, by its id, without those of the blocks in it."""
    found: Counter[int] = Counter()
    for statement in function.asm:
        if count := statement.template.count("wgmma.mma_async"):
            block = enclosing(statement.node, "compound_statement")
            if block is not None:
                found[block.id] += count
    return found


def can_name(statement: TensorCoreStatement, blocks: Counter[int]) -> bool:
    """Whether a constant `idesc` may be declared in front: one MMA in the statement's block, no macro. `blocks` are
    the `mmas_in_blocks` of its function."""
    function = statement.function
    if function.style is Style.MACRO or _says_idesc(function.file.source):
        return False
    block = enclosing(statement.statement.node, "compound_statement")
    parent = statement.statement.node.parent
    if block is None or parent is None or parent.parent is None or parent.parent.id != block.id:
        return False
    return blocks[block.id] == 1


def _plain(context: PortContext, function: Function, text: str | None) -> str | None:
    """An immediate as a number if it is known, else without the cast around an integer template parameter."""
    if text is None:
        return None
    inner = without_cast(text)
    if inner in function.template_params:
        return inner
    known = context.program.constants_in(function)
    value = known.evaluate(inner) if "::" in inner or not inner.isidentifier() else None
    return str(value) if value is not None else text


def _negated(text: str | None) -> str:
    if text is None or text.strip() == "1":
        return "false"
    return "true" if text.strip() == "-1" else f"{_wrapped(text)} == -1"


def _set(text: str | None) -> str:
    if text is None or text.strip() == "0":
        return "false"
    return "true" if text.strip() == "1" else f"{_wrapped(text)} != 0"


def _wrapped(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"
