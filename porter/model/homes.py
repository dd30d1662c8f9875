# SPDX-License-Identifier: Apache-2.0
"""Homes of accumulators: where registers are declared, and so how they are named and what a tile in Tensor Memory in
their place is called, where it is declared and how many columns it takes. A kind of home is one class here; nothing
else asks which one it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.constants import Constants
from porter.model.functions import Function, array_extents
from porter.model.members import MemberField
from porter.model.program import Program
from porter.model.registers import Element, is_zero
from porter.model.scopes import Variable, resolve

_VALUES = {"float2": 2, "float4": 4, "int2": 2, "int4": 4, "uint2": 2, "uint4": 4}
"""32-bit values of CUDA's vector types."""
_SINGLE = frozenset(("float", "int", "unsigned", "unsigned int", "int32_t", "uint32_t"))
"""Types of one such value."""

Key = tuple[int, int, str]
"""`Variable.key`."""
Beside = Callable[[str], str]
"""Gives the name of the tile beside registers of a name."""


@dataclass(frozen=True)
class TileSize:
    """Tensor Memory columns of one tile: the largest N, `certain` if templates choose no other. `packed`: a register
    holds two f16."""

    columns: int
    certain: bool
    packed: bool

    @property
    def share(self) -> str:
        """What turns bytes of a thread's registers into columns."""
        return "" if self.packed else " / 2"


@dataclass(frozen=True)
class TilePlace:
    """What the declaration of a tile is made of: its name and type, the warpgroup's state, the first column as an
    expression. `by_reference`: the tile takes part in the bookkeeping of registers that are kept true."""

    tile: str
    type_name: str
    braces: tuple[str, str]
    warpgroup: str
    first_column: str
    size: TileSize
    by_reference: bool

    def placed(self, columns: str) -> str:
        return f"{self.warpgroup}.place({self.tile}, {self.first_column}, {columns});"

    @property
    def address(self) -> str:
        return f"{self.warpgroup}.tmem" + ("" if self.first_column == "0" else f" + {self.first_column}")


@dataclass(eq=False)
class Home:
    """An array of registers, or of tiles of registers that its first `depth` extents select. It may be a member `path`
    (`.reg`) of the variable; then the extents of an array of objects come first."""

    variable: Variable
    depth: int = 0
    path: str = ""
    type_extents: list[str] = field(default_factory=list)
    """Extents of that member, `hidden` if they are named in the class only; without a path those of the type, which is
    an alias of an array's."""
    hidden: bool = False

    @property
    def field_name(self) -> str:
        """Name of the field by which methods of the variable's class use the registers; empty if none do."""
        return ""

    @property
    def owner(self) -> str:
        """The class that has that field."""
        return ""

    @property
    def is_separate(self) -> bool:
        """Whether the registers are variables of their own."""
        return False

    # --- naming

    @property
    def function(self) -> Function:
        return self.variable.function

    @property
    def name(self) -> str:
        return self.variable.name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variables that are registers."""
        return (self.name,)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Keys of these variables."""
        return (self.variable.key,)

    @property
    def title(self) -> str:
        """What a report calls it."""
        return self.name + self.path

    def is_named_by(self, function: Function, element: Element) -> bool:
        """Whether an expression of a function means registers of this home."""
        if element.path != self.path or element.name not in self.names:
            # another member of the same object, say
            return False
        variable = resolve(function, element.root, element.name)
        return variable is not None and variable.key == self.variable.key

    def namers(self, program: Program) -> list[Function]:
        """Functions whose statements may name the registers: the declaring one stands for its lambdas too."""
        return [self.function]

    def has_method(self, function: Function) -> bool:
        """Whether a function is a method that may use the registers by `field_name`."""
        return False

    def is_set_by(self, constructor: Function) -> bool:
        """Whether a constructor of the variable's class names the registers."""
        member = re.escape(self.path.rpartition(".")[2])
        return re.search(rf"\b{member}\b", constructor.text(constructor.body)) is not None

    # --- shape

    @property
    def _declared_extents(self) -> list[str]:
        declarator = self.variable.declarator
        return [self.function.text(n) for n in array_extents(declarator)] if declarator is not None else []

    @property
    def object_extents(self) -> list[str]:
        """Extents of an array of objects that hold accumulators; empty for arrays of registers."""
        return self._declared_extents if self.path else []

    @property
    def extents(self) -> list[str]:
        """Texts of the declared extents, outermost first; those of an array of objects come first."""
        return self._declared_extents + self.type_extents

    @property
    def rank(self) -> int:
        return len(self.extents)

    def is_register(self, subscripts: tuple[str, ...]) -> bool:
        """Whether that many subscripts select a single register."""
        return len(subscripts) >= max(1, self.rank)

    def registers_of(self, subscripts: list[str]) -> str:
        """The expression for the registers that the outermost subscripts select: `acc[i].d[j]`."""
        cut = len(self.object_extents)
        outer, inner = ("".join(f"[{s}]" for s in part) for part in (subscripts[:cut], subscripts[cut:]))
        return f"{self.name}{outer}{self.path}{inner}"

    @property
    def type_name(self) -> str:
        """Text of the type in the declaration."""
        declaration = self.variable.declaration
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        return self.function.text(kind) if kind is not None else ""

    @property
    def class_type(self) -> str:
        """Text of the declared type if that is a class that holds the registers."""
        return self.type_name if self.path else ""

    @property
    def holder_type(self) -> str:
        """The type of the object that has the registers for a member; empty if none has."""
        if not self.path:
            return ""
        inner = self.path.rpartition(".")[0]
        if not inner and self.type_name != "auto":
            return self.type_name
        return f"decltype({self.name}{'[0]' * len(self.object_extents)}{inner})"

    @property
    def tile_extents(self) -> list[str]:
        """Extents of the array of tiles, as constant expressions behind the declaration."""
        texts = self.extents[: self.depth]
        for axis in range(len(self.object_extents), len(texts) if self.hidden else 0):
            whole = self.registers_of(["0"] * axis)
            texts[axis] = f"sizeof({whole}) / sizeof({self.registers_of(['0'] * (axis + 1))})"
        return texts

    @property
    def has_tile_array(self) -> bool:
        return self.depth > 0

    def may_hold(self, registers: int, constants: Constants) -> bool:
        """Whether a tile can have that many registers, as far as numbers of elements are known."""
        known = [constants.evaluate(e) for e in self.extents[self.depth :]]
        if not self.extents or self.hidden or None in known:
            return True
        of_type = 1 if self.type_name in _SINGLE else _VALUES.get(self.type_name)
        each = (1, 2, 4) if self.path or of_type is None else (of_type,)
        return any(prod(n for n in known if n is not None) * values == registers for values in each)

    def register_count(self, registers: int) -> str:
        """How many registers a thread has for a tile, as a constant expression behind the declaration."""
        return f"sizeof({self.name}{'[0]' * self.depth}) / 4" if self.extents else str(registers)

    # --- columns

    def tile_columns(self, size: TileSize) -> str:
        """Columns of one tile: N, two for each 32-bit value of a thread, as a constant expression behind the
        declaration."""
        if not self.extents:
            return str(size.columns)
        return f"sizeof({self.registers_of(['0'] * self.depth)}){size.share}"

    def all_columns(self, size: TileSize) -> str:
        """Columns of all tiles, likewise."""
        if not self.extents:
            return str(size.columns)
        rank = len(self.object_extents)
        objects = f"sizeof({self.name}) / sizeof({self.name}{'[0]' * rank}) * " if rank else ""
        return f"{objects}sizeof({self.registers_of(['0'] * rank)}){size.share}"

    def class_columns(self, size: TileSize) -> str:
        """Columns of all tiles by the size of the class, where only that says how many registers there are."""
        if not self.class_type or self.class_type == "auto" or not (self.hidden or not size.certain):
            return ""
        count = "".join(f"({e}) * " for e in self.object_extents)
        member = self.path.replace(".", "::") if self.hidden and self.path.count(".") == 1 else ""
        return f"{count}sizeof({self.class_type}{member}){size.share}"

    def column_factors(self, size: TileSize) -> list[str] | None:
        """Columns of all tiles: expressions in the declaring function whose product they are. None if it names none."""
        if not self.extents or (self.depth == 0 and size.certain):
            return [str(size.columns)]
        if self.object_extents:
            return [str(size.columns), *self.extents[: self.depth]]
        if self.hidden or self.type_name == "auto":
            return None
        values = 1 if self.type_name in _SINGLE or self.path else _VALUES.get(self.type_name)
        of_type = str(values * (4 if size.packed else 2)) if values else f"sizeof({self.type_name}){size.share}"
        return [of_type, *self.extents]

    # --- the declaration

    def end_of_declaration(self) -> Node:
        """The statement behind which all registers are declared."""
        assert self.variable.declaration is not None
        return self.variable.declaration

    def initializer(self) -> tuple[Node, Node] | None:
        """What the declaration gives the registers and nothing else: the nodes of the declarator and of the value."""
        declarator = self.variable.declarator
        value = declarator.child_by_field_name("value") if declarator is not None else None
        inner = declarator.child_by_field_name("declarator") if declarator is not None else None
        # a class may hold more than the registers
        return (inner, value) if inner is not None and value is not None and not self.path else None

    def _gives_zeros(self) -> bool:
        declarator = self.variable.declarator
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if value is None or value.type != "initializer_list":
            return False
        return all(is_zero(self.function.text(n)) for n in walk(value) if n.child_count == 0 and n.is_named)

    def is_cleared_where_declared(self) -> bool:
        return self.variable.declaration is not None and self._gives_zeros()

    def is_set_where_declared(self) -> bool:
        """Whether the declaration gives the registers values other than zeros."""
        declarator = self.variable.declarator
        if declarator is None or self.variable.declaration is None or self._gives_zeros():
            return False
        return declarator.type == "init_declarator" and declarator.child_by_field_name("value") is not None

    def are_all(self, names: set[str]) -> bool:
        """Whether assignments to variables of these names change all registers."""
        return False

    # --- the tile

    def tile(self, beside: Beside) -> str:
        """Name of the tile, or of the array of tiles, in the declaring function; equal for equal names of the
        registers, so that a macro may mention it."""
        return beside(self.name)

    def tile_in(self, function: Function, beside: Beside) -> str:
        """The same in a function that may use the registers by `field_name`."""
        return self.tile(beside)

    def declaration(self, place: TilePlace) -> list[str]:
        """Statements behind the declaration that declare the tile and give it its columns."""
        declared = f"{place.type_name} {place.tile}"
        if self.depth:
            extents = "".join(f"[{e}]" for e in self.tile_extents)
            return [f"{declared}{extents};", place.placed(self.tile_columns(place.size))]
        if place.by_reference:
            return [f"{declared};", place.placed(self.tile_columns(place.size))]
        address = place.address if place.first_column == "0" else f"uint32_t({place.address})"
        return [f"{declared}{place.braces[0]}{address}{place.braces[1]};"]

    def cleared(self, tile: str, subscripts: tuple[str, ...], clear: str) -> str:
        """The statement that clears the tiles that the subscripts select; `clear` is the helper for an array."""
        name = tile + "".join(f"[{s}]" for s in subscripts)
        return f"{clear}({name});" if self.depth > len(subscripts) else f"{name}.clear();"

    def moved(self, operation: str, helper: str, tile: str) -> str:
        """The statement that moves all tiles by an `operation` (`load`) that `helper` implements."""
        return self._each(lambda i: f"{helper}({self.registers_of(i)}, {tile}{''.join(f'[{s}]' for s in i)});")

    def indices(self) -> list[str]:
        """Names for loops over objects: none that stands in them for something else."""
        words = set(re.findall(r"\w+", " ".join([self.name, *self.object_extents])))
        return [n for n in ("i", "j", "k", *(f"i{number}" for number in range(len(words) + 3))) if n not in words]

    def _each(self, statement: Callable[[list[str]], str]) -> str:
        """The statement for every object of an array of them."""
        names = self.indices()[: len(self.object_extents)]
        loops = [f"for (uint32_t {n} = 0; {n} < {e}; ++{n})" for n, e in zip(names, self.object_extents, strict=True)]
        if not loops:
            return statement(names)
        lines = []
        for depth, loop in enumerate(loops):
            pad = "    " * depth
            lines += [f"{pad}#pragma unroll", pad + loop + (" {" if depth < len(loops) - 1 else f" {statement(names)}")]
        lines += ["    " * depth + "}" for depth in reversed(range(len(loops) - 1))]
        return "\n".join(lines)


@dataclass(eq=False)
class Scalars(Home):
    """Registers that are separate variables `variables`, the first of which is `variable`."""

    variables: tuple[Variable, ...] = ()

    @property
    def is_separate(self) -> bool:
        return True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(v.key for v in self.variables)

    @property
    def extents(self) -> list[str]:
        return []

    def is_register(self, subscripts: tuple[str, ...]) -> bool:
        return True

    def is_named_by(self, function: Function, element: Element) -> bool:
        if element.path or element.name not in self.names:
            return False
        variable = resolve(function, element.root, element.name)
        return variable is not None and variable.key in self.keys

    def end_of_declaration(self) -> Node:
        """They may be declared over several statements."""
        found = [v.declaration for v in self.variables if v.declaration is not None]
        return max(found, key=lambda n: n.start_byte)

    def initializer(self) -> None:
        return None

    def _values(self) -> list[Node]:
        """What the first declaration gives."""
        declaration = self.variable.declaration
        parts = [c for c in declaration.named_children if c.type == "init_declarator"] if declaration else []
        return [v for c in parts if (v := c.child_by_field_name("value")) is not None]

    def _gives_zeros(self) -> bool:
        values = self._values()
        return len(values) >= len(self.variables) and all(is_zero(self.function.text(v)) for v in values)

    def is_set_where_declared(self) -> bool:
        return not self._gives_zeros() and any(not is_zero(self.function.text(v)) for v in self._values())

    def are_all(self, names: set[str]) -> bool:
        return names == set(self.names)

    def tile(self, beside: Beside) -> str:
        return beside(without_number(self.name))

    def moved(self, operation: str, helper: str, tile: str) -> str:
        rows = [", ".join(self.names[i : i + 16]) for i in range(0, len(self.names), 16)]
        head = f"{helper}_each({tile}, "
        if len(rows) == 1:
            return f"{head}{rows[0]});"
        return f"{head[:-1]}\n" + ",\n".join(f"    {row}" for row in rows) + ");"


@dataclass(eq=False)
class Member(Home):
    """Registers that are the field `member` of the object `variable`, or of each of an array of objects; methods of the
    object's class use them."""

    member: MemberField = field(kw_only=True)

    @property
    def field_name(self) -> str:
        return self.member.name

    @property
    def owner(self) -> str:
        return self.member.owner

    def is_named_by(self, function: Function, element: Element) -> bool:
        if element.path or element.name != self.member.name:
            return False
        return resolve(function, element.root, element.name) is None

    def namers(self, program: Program) -> list[Function]:
        return [f for f in program.functions if self.has_method(f)]

    def has_method(self, function: Function) -> bool:
        return self.member.is_in_class_of(function)

    @property
    def object_extents(self) -> list[str]:
        return self._declared_extents

    @property
    def extents(self) -> list[str]:
        return self._declared_extents + self.member.extents

    @property
    def class_type(self) -> str:
        return self.type_name

    @property
    def has_tile_array(self) -> bool:
        # each object has its own
        return False

    def is_cleared_where_declared(self) -> bool:
        # the declaration makes the object
        return False

    def tile(self, beside: Beside) -> str:
        return f"{self.name}.{beside(self.member.stem)}"

    def tile_in(self, function: Function, beside: Beside) -> str:
        return self.member.tile_in(function, beside)

    def declaration(self, place: TilePlace) -> list[str]:
        if self.object_extents:
            i = self.indices()[0]
            tile = f"{self.name}[{i}].{place.tile.rpartition('.')[2]}"
            line = f"{tile}.address = {place.address} + {i} * {place.size.columns};"
            return ["#pragma unroll", f"for (uint32_t {i} = 0; {i} < {self.object_extents[0]}; ++{i}) {line}"]
        if place.by_reference:
            return [place.placed(str(place.size.columns))]
        return [f"{place.tile}.address = {place.address};"]

    def cleared(self, tile: str, subscripts: tuple[str, ...], clear: str) -> str:
        return f"{tile}.clear();"

    def moved(self, operation: str, helper: str, tile: str) -> str:
        call = f".{operation}_{self.member.stem}();"
        return self._each(lambda i: self.name + "".join(f"[{s}]" for s in i) + call)


def without_number(name: str) -> str:
    """What names of registers that are counted (`d00`, `d_0`) begin with."""
    return re.sub(r"_?0+$", "", name) or name
