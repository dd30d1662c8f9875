# SPDX-License-Identifier: Apache-2.0
"""Syntax of PTX: what the module parser and the inline-asm parser both produce."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Reg:
    """A register, `%r1`, or a name declared by `.reg` in an asm scope (`p`, `addr`). `name` as written."""

    name: str


@dataclass(frozen=True)
class SpecialReg:
    """`%tid.x`, `%clock64`, `%cluster_ctarank`: `name` without the percent sign, component included."""

    name: str


@dataclass(frozen=True)
class Imm:
    """An integer or float constant. Floats (`0f3F800000`, `0d…`, `1.5`) carry `is_float`; value is a Python
    number, and `bits` the exact bit pattern of a `0f`/`0d` literal."""

    value: int | float
    is_float: bool = False
    bits: int | None = None


@dataclass(frozen=True)
class Sym:
    """A variable, function or label name used as an operand; `table+8` has an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Placeholder:
    """`%0`, `%1`, … of an inline-asm template (never in a module)."""

    index: int


@dataclass(frozen=True)
class Mem:
    """`[base+offset]`; several bases for `[tensorMap, {x, y}]`: then `parts` holds the rest.

    `displacement` is a further addend that is only a number once a template is filled in: `[%0+%1]`.
    """

    base: Operand
    offset: int = 0
    parts: tuple[Operand, ...] = ()
    displacement: Placeholder | None = None


@dataclass(frozen=True)
class Vec:
    """`{a, b, c}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`d|p` (shfl, setp, elect): `second` is the predicate part. `_` is `Sym("_")`."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Neg:
    """`!p` or `-r`."""

    op: str
    operand: Operand


Operand: TypeAlias = "Reg | SpecialReg | Imm | Sym | Placeholder | Mem | Vec | Pair | Neg"


@dataclass(frozen=True)
class Guard:
    """`@p` or `@!p`; the operand is a Reg or, in asm templates, a Placeholder."""

    operand: Operand
    negated: bool = False


@dataclass(frozen=True)
class SourceLoc:
    """From `.loc`: the CUDA source line an instruction came from (`-lineinfo`)."""

    file: str
    line: int
    column: int = 0
    inlined_at: SourceLoc | None = None

    def outwards(self) -> Iterator[SourceLoc]:
        """This place, and the ones that it was inlined into, the kernel's own last."""
        loc: SourceLoc | None = self
        while loc is not None:
            yield loc
            loc = loc.inlined_at


@dataclass(frozen=True)
class Instruction:
    """One instruction: `opcode` is the dotted text without spaces, e.g. `tcgen05.mma.cta_group::1.kind::f16`.

    `parts` is the opcode split at dots (`::` stays inside a part). `line` is the 1-based line in the PTX text
    (in asm templates: of the template), `loc` the CUDA source position if the module has line information.
    The parenthesised lists of `call (ret), fn, (args), proto` are `Vec` operands.
    """

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    line: int = 0
    loc: SourceLoc | None = None
    text: str = ""


@dataclass(frozen=True)
class Label:
    name: str
    line: int = 0


@dataclass(frozen=True)
class RegDecl:
    """`.reg .b32 %r<12>;` gives name `%r`, count 12; `.reg .pred p, q;` gives two decls with count None."""

    type: str
    name: str
    count: int | None = None


@dataclass(frozen=True)
class VarDecl:
    """`.shared .align 128 .b8 smem[1024];` `size` is the total in bytes, 0 for `[]` of an extern.

    `initial` holds one item per element, row by row. Addresses are text: `name`, `generic(name)+8`,
    `name+-4`, or one byte of them, `0xFF00(name)`. A `0f`/`0d` literal is the integer of its bits.
    `linkage` is `visible`, `weak`, `common` or empty.
    """

    space: str
    name: str
    type: str
    size: int
    align: int
    extern: bool = False
    initial: tuple[int | float | str, ...] = ()
    vector: int = 1
    linkage: str = ""


@dataclass(frozen=True)
class BranchTargets:
    """`.branchtargets L1, L2;` or `.calltargets` / `.callprototype` named by `name`.

    `items` are the labels or functions; of a prototype the texts of its return list (may be absent), its
    placeholder name and its parameter list.
    """

    kind: str
    name: str
    items: tuple[str, ...]


Statement: TypeAlias = "Instruction | Label | RegDecl | VarDecl | BranchTargets | Block"


@dataclass(frozen=True)
class Block:
    """A `{ … }` scope: register and variable names declared inside shadow outer ones."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Param:
    """A kernel or function parameter: `size` in bytes, `align` in bytes.

    `space` is `param`, or `reg` for functions of the old register convention. A `.ptr` parameter has
    `is_pointer`, the state space it points into (empty: generic) and the alignment of what it points to.
    """

    name: str
    type: str
    size: int
    align: int
    is_pointer: bool = False
    space: str = "param"
    pointer_space: str = ""
    pointer_align: int = 0


@dataclass(frozen=True)
class Function:
    """An `.entry` or `.func`. `directives` maps e.g. `maxntid` to (384, 1, 1), `explicitcluster` to ()."""

    name: str
    is_entry: bool
    params: tuple[Param, ...]
    returns: tuple[Param, ...]
    body: tuple[Statement, ...] | None
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    linkage: str = ""
    line: int = 0


@dataclass(frozen=True)
class Module:
    """A PTX module. `version` like (9, 0), `target` like `sm_100a` (first of `.target`)."""

    version: tuple[int, int]
    target: str
    address_size: int
    variables: tuple[VarDecl, ...]
    functions: tuple[Function, ...]
    files: dict[int, str] = field(default_factory=dict)

    def entries(self) -> tuple[Function, ...]:
        return tuple(f for f in self.functions if f.is_entry)

    def function(self, name: str) -> Function:
        """Raises KeyError if there is no function of this name with a body."""
        for f in self.functions:
            if f.name == name and f.body is not None:
                return f
        raise KeyError(name)


def flattened(body: Iterable[Statement]) -> tuple[Instruction, ...]:
    """All instructions, scopes flattened, in order."""
    found: list[Instruction] = []
    for s in body:
        if isinstance(s, Instruction):
            found.append(s)
        elif isinstance(s, Block):
            found += flattened(s.body)
    return tuple(found)


@dataclass(frozen=True)
class Template:
    """A parsed inline-asm template: statements whose operands may be Placeholders."""

    body: tuple[Statement, ...]

    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions, scopes flattened, in order."""
        return flattened(self.body)
