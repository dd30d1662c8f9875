# SPDX-License-Identifier: Apache-2.0
"""What a kernel multiplies whose registers keep the layout that Hopper's tiled MMAs give them: its tiled MMAs, its
sums, and A from registers, with what the compiler says of their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, declared_name, outermost
from porter.model.scopes import LOOPS, Variable, resolve
from porter.model.tiled.accumulators import Handle, Multiply, Origin
from porter.model.tiled.tensors import initializer
from porter.passes.idiom.places import Place
from porter.passes.idiom.text import cpp
from porter.passes.idiom.types import Answers, Question
from porter.passes.native.sites import Left
from porter.passes.tiled.lifetimes import together
from porter.passes.tiled.names import Names

_SLICE = re.compile(r"(\w+)\s*\.\s*get_(?:thread_)?slice\s*\(.*\)\Z", re.DOTALL)
_MADE_OF_B = re.compile(r"\.\s*(?:partition_fragment|make_fragment)_B\s*\(")
_TYPES = ("", "F16", "BF16", "TF32", "E4M3", "E5M2", "F32")
"""Numbers of types, as the question has them."""
_MAJORS = ("", "K", "MN")
_ROWS, _WIDEST = 64, 256


@dataclass(frozen=True)
class Tile:
    """What an instantiation says of a sum: MMAs of 64 rows along M and N for a warpgroup, columns that all warpgroups
    have of one MMA, threads, warpgroups along M and N, whether registers follow each other as the MMA has them; types
    and majors of operands by number, 0 for one that is none of those known, or A in registers."""

    m_tiles: int
    n_tiles: int
    columns: int
    threads: int
    m_groups: int
    n_groups: int
    is_plain: int
    a: int
    b: int
    d: int
    from_a: int
    from_b: int

    @property
    def width(self) -> int:
        """Columns of Tensor Memory."""
        return self.columns // self.n_groups * -(-self.m_tiles * self.n_tiles // 2) if self.tiles > 1 else self.own

    @property
    def is_joined(self) -> bool:
        """Whether MMAs along N, whose registers follow each other, are one of SM100."""
        alone = self.m_groups == 1 and self.from_a
        fits = self.columns * self.n_tiles <= _WIDEST
        return self.m_tiles == 1 and self.n_tiles > 1 and self.n_groups == 1 and not alone and fits

    @property
    def tiles(self) -> int:
        return 1 if self.is_joined else self.m_tiles * self.n_tiles

    @property
    def own(self) -> int:
        """Columns of an MMA."""
        return self.columns * self.n_tiles if self.is_joined else self.columns // self.n_groups


@dataclass(eq=False)
class Mma:
    """A tiled MMA of the kernel, with names of that of SM100 beside it and of the warpgroup's part."""

    name: str
    declaration: Node | None = field(repr=False)
    umma: str = ""
    cta: str = ""
    sums: list[Sum] = field(default_factory=list)

    @property
    def every(self) -> frozenset[Tile]:
        return frozenset(t for s in self.sums for t in s.every)

    @property
    def reads_registers(self) -> bool:
        return any(not t.from_a for t in self.every)


@dataclass(eq=False)
class Sum:
    """An accumulator: a tensor in Tensor Memory beside the registers."""

    handle: Handle
    mma: Mma
    multiplies: list[Multiply]
    names: dict[str, str] = field(default_factory=dict)
    every: frozenset[Tile] = frozenset()
    column: int = 0
    is_stored: bool = False
    like: Sum | None = None
    """One whose tensor in Tensor Memory it has, too."""

    @property
    def width(self) -> int:
        return max(t.width for t in self.every)

    @property
    def is_handed(self) -> bool:
        """Whether a caller of the function has the registers."""
        return self.handle.origin is Origin.PARAM


@dataclass(eq=False)
class Operand:
    """A from registers: a tensor of the kernel's, and one in Tensor Memory."""

    key: tuple[int, int, str]
    name: str
    function: Function
    declaration: Node = field(repr=False)
    mma: Mma
    by: Variable | None = None
    """The tensor that it is multiplied by, which has as many steps of k in all instantiations."""
    names: dict[str, str] = field(default_factory=dict)
    every: Answers = frozenset()
    column: int = 0

    def depth(self, answer: tuple[int, ...]) -> int:
        """Elements of k: a warpgroup has two rows of 64 in each register's place."""
        return answer[0] * 2

    @property
    def width(self) -> int:
        return max(self.depth(a) for a in self.every) * self.bits // 32

    @property
    def bits(self) -> int:
        return max({1: 16, 2: 16, 3: 32, 4: 8, 5: 8}[t.a] for t in self.mma.every)


@dataclass(eq=False)
class Fragments:
    """Of one function.

    Raises:
        Left: what is multiplied is not known by names of the function.
    """

    place: Place
    mmas: dict[str, Mma] = field(default_factory=dict)
    sums: list[Sum] = field(default_factory=list)
    operands: dict[tuple[int, int, str], Operand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.site, self.function = self.place.site, self.place.function
        self._problems: list[tuple[Multiply, Left]] = []
        """MMAs that cannot be followed, which the compiler may make nothing of."""
        self._asked: dict[tuple[int, int, str], Operand] = {}
        for multiply in self.place.multiplies:
            try:
                self._add(multiply)
            except Left as problem:
                self._problems.append((multiply, problem))

    def _add(self, multiply: Multiply) -> None:
        site, caller = self.site, multiply.call.caller
        mma = self._mma(caller, multiply.mma)
        handle = site.tiled.handle_of(caller, multiply.d)
        if handle is None or outermost(handle.function) is not self.function or handle.origin is Origin.VIEW:
            raise self.place.left(multiply.d, "sums by the name of their registers", caller)
        candidates = list(self._candidates(multiply, mma))
        known = next((s for s in self.sums if s.handle is handle and s.mma is mma), None)
        if known is None:
            self.sums.append(Sum(handle, mma, [multiply]))
        else:
            known.multiplies.append(multiply)
        self._asked |= {o.key: o for o in candidates if o.key not in self._asked}

    def _mma(self, caller: Function, node: Node) -> Mma:
        text = caller.text(node)
        variable = resolve(caller, node, text) if node.type == "identifier" else None
        if variable is None or (variable.declaration is None and variable.param is None):
            raise self.place.left(node, "a tiled MMA by a name of the function that multiplies", caller)
        known = self.mmas.get(text, Mma(text, variable.declaration))
        if known.declaration != variable.declaration or variable.function is not self.function:
            raise self.place.left(node, f"one tiled MMA `{text}`, outside of lambdas", caller)
        return self.mmas.setdefault(text, known)

    def _name(self) -> None:
        """Names of what stands beside the tiled MMAs, sums and operands."""
        site = self.site
        for text, mma in self.mmas.items():
            own = re.sub(r"mma", "umma", text, count=1) if "mma" in text else f"{text}_umma"
            rest = re.sub(r"(?:tiled_?)?mma_?", "", text).strip("_")
            mma.umma, mma.cta = site.name(own), site.name(f"cta_{rest}" if rest else "cta_mma")
        for one in self.sums:
            if one.like is None:
                one.names = self._names(one.handle.name)
        for one in self.sums:
            one.names = one.like.names if one.like is not None else one.names
        for operand in self.operands.values():
            operand.names = self._names(operand.name, store=True)

    def _names(self, register: str, store: bool = False) -> dict[str, str]:
        match = re.fullmatch(r"t(\w)r(\w+)", register)
        short = match[2] if match is not None else register
        tensor = f"t{match[1]}t{match[2]}" if match is not None else f"tmem_{register}"
        words = {"store": f"store_{short}", "r2t": f"r2t_{short}"}
        words |= {} if store else {"load": f"load_{short}", "t2r": f"t2r_{short}"}
        fresh = {word: self.site.fresh(name) for word, name in words.items()}
        is_first = register == self.site.handle.name and not self.site.is_named
        self.site.is_named |= is_first
        return {**fresh, "tensor": self.site.tensor if is_first else self.site.fresh(tensor)}

    def operand(self, multiply: Multiply) -> Operand | None:
        """What an MMA has A in, if that is registers."""
        variable = self._variable(multiply.call.caller, multiply.a)
        return self.operands.get(variable.key) if variable is not None else None

    def _variable(self, function: Function, node: Node) -> Variable | None:
        first = next(find(node, "identifier"), None)
        return resolve(function, first, function.text(first)) if first is not None else None

    # --- what the compiler says

    def ask(self) -> list[Question]:
        """What the compiler is asked of its types."""
        return [*(self._of_sum(s) for s in self.sums), *(self._of_operand(o) for o in self._asked.values()),
                *(self._of_choice(m) for m in self._choosing)]  # fmt: skip

    @property
    def _choosing(self) -> list[Multiply]:
        return [m for m in self.place.multiplies if self._chosen(m) is not None]

    def _chosen(self, multiply: Multiply) -> tuple[str, Node, Node] | None:
        """The condition under which A is the first of two tensors, and both."""
        caller = multiply.call.caller
        call = self.site.tiled.tensors.call(caller, multiply.a) if multiply.a.type == "call_expression" else None
        is_choice = call is not None and self.site.program.vocabulary.spellings.are("choosing_function", call.name)
        if call is None or not is_choice or len(call.template_args) != 1 or len(call.args) != 2:
            return None
        return call.template_args[0], call.args[0], call.args[1]

    def _of_choice(self, multiply: Multiply) -> Question:
        chosen, caller = self._chosen(multiply), multiply.call.caller
        assert chosen is not None
        statement = multiply.call.node
        while statement.parent is not None and statement.parent.type != "compound_statement":
            statement = statement.parent
        at = caller.span(statement).start
        return Question(caller.file.path, at, "question_of_number", {"number": f"bool({chosen[0]})"})

    def take(self, found: Sequence[Answers], warpgroups: Answers, is_live: Callable[[Function, Node], bool]) -> None:
        """Raises Left if the answers are not as the copies of registers have it."""
        choosing, sums = self._choosing, len(self.sums)
        choices = found[sums + len(self._asked) :]
        self.place.multiplies = [m for m in self.place.multiplies if is_live(m.call.caller, m.call.node)]
        for multiply, problem in self._problems:
            if multiply in self.place.multiplies:
                raise problem
        for multiply, answers in zip(choosing, choices, strict=True):
            self._choose(multiply, answers)
        for one, answers in zip(self.sums, found, strict=False):
            one.multiplies = [m for m in one.multiplies if m in self.place.multiplies]
            one.every = frozenset(Tile(*numbers) for numbers in answers)
            if one.multiplies and not answers:
                raise self._left_of(one, "an instantiation that the compiler makes")
        self.sums = [s for s in self.sums if s.multiplies]
        for one in self.sums:
            if any(other.handle is one.handle and other is not one for other in self.sums):
                raise self._left_of(one, f"one tiled MMA that adds to `{one.handle.name}`")
            one.mma.sums.append(one)
        self.mmas = {name: mma for name, mma in self.mmas.items() if mma.sums}
        for mma in self.mmas.values():
            if any(True for _ in _loops(mma.declaration)):
                raise self.place.left(
                    mma.declaration or self.function.body, "a tiled MMA that is declared outside of loops"
                )
            self._check(mma, {n for (n,) in warpgroups})
        read = {v.key for m in self.place.multiplies if (v := self._variable(m.call.caller, m.a)) is not None}
        for operand, answers in zip(self._asked.values(), found[sums:], strict=False):
            if operand.mma.reads_registers and operand.key in read:
                operand.every = answers
                self._check_operand(operand)
                self.operands[operand.key] = operand

    def _choose(self, multiply: Multiply, answers: Answers) -> None:
        chosen = self._chosen(multiply)
        if multiply not in self.place.multiplies or chosen is None:
            return
        if len(answers) != 1:
            raise self.place.left(multiply.a, "which tensor all instantiations take", multiply.call.caller)
        multiply.a = chosen[1] if next(iter(answers)) == (1,) else chosen[2]

    def _left_of(self, one: Sum, what: str) -> Left:
        return self.place.left(one.handle.declaration, what, one.handle.function)

    def _of_sum(self, one: Sum) -> Question:
        function, mma = one.handle.function, one.mma.name
        member = {m: cpp("member_of_mma", mma=mma, member=m) for m in
                  ("ValTypeA", "ValTypeB", "ValTypeC", "FrgTypeA", "FrgTypeB")}  # fmt: skip
        values = {
            f"type_{k}": cpp("code_of_type", type=member[f"ValType{m}"]) for k, m in zip("abd", "ABC", strict=True)
        }
        values |= {
            f"from_{k}": cpp("code_of_source", type=member[f"FrgType{m}"]) for k, m in zip("ab", "AB", strict=True)
        }
        at = function.span(one.handle.declaration).end
        if one.is_handed:
            declared = one.mma.declaration
            at = function.span(declared).end if declared is not None else function.span(function.body).start + 1
        return Question(function.file.path, at, "question_of_fragment", {"mma": mma, "sum": one.handle.name, **values})

    def _candidates(self, multiply: Multiply, mma: Mma) -> Iterator[Operand]:
        """What may be A from registers, by the variable that has all of it."""
        chosen = self._chosen(multiply)
        for node in chosen[1:] if chosen is not None else (multiply.a,):
            variable = self._variable(multiply.call.caller, node)
            if variable is None or variable.declaration is None:
                what = "an operand by a name of the function that multiplies"
                raise self.place.left(multiply.a, what, multiply.call.caller)
            by = self._variable(multiply.call.caller, multiply.b)
            made = initializer(by) if by is not None else None
            if by is not None and (
                made is None
                or not _MADE_OF_B.search(by.function.text(made))
                or not self._means(by, variable.function, variable.declaration)
            ):
                by = None
            yield Operand(variable.key, variable.name, variable.function, variable.declaration, mma, by)

    def _of_operand(self, operand: Operand) -> Question:
        function = operand.function
        at = function.span(operand.declaration).end
        values = {"operand": operand.name, "mma": operand.mma.name}
        steps = cpp("has_steps_of", by=operand.by.name, **values) if operand.by is not None else "0"
        return Question(function.file.path, at, "question_of_operand", {"operand": operand.name, "steps": steps})

    def _means(self, variable: Variable, function: Function, at: Node) -> bool:
        """Whether a variable's name is its own at a place of a function."""
        there = resolve(function, at, variable.name)
        return there is not None and there.key == variable.key

    def _check(self, mma: Mma, warpgroups: set[int]) -> None:
        site, where = self.site, mma.declaration or mma.sums[0].handle.declaration
        for t in mma.every:
            if not t.is_plain:
                raise self.place.left(
                    where, f"registers of `{mma.name}` in the order of its MMAs, without a permutation"
                )
            if t.m_groups * t.n_groups not in warpgroups:
                count = ", ".join(map(str, sorted(warpgroups)))
                what = f"{count} warpgroups as `{mma.name}` has: it has {t.m_groups * t.n_groups}"
                raise self.place.left(where, what)
            if not (t.a and t.b and t.from_b) or _TYPES[t.d] != "F32":
                raise self.place.left(where, f"operands of `{mma.name}` of 8, 16 or 32 bits, and sums of 32 bits")
            if t.tiles > 1 and not t.from_a:
                raise self.place.left(where, f"one tile of 64 rows for A from registers: there are {t.tiles}")
            if 3 in (t.a, t.b) or max(t.a, t.b) > 3:
                majors = {t.from_a or 1, t.from_b}
                if majors != {1}:
                    raise self.place.left(where, f"operands of `{mma.name}` with k first")
        if len({(t.from_a, t.from_b) for t in mma.every}) > 1:
            raise self.place.left(where, f"majors of `{mma.name}` that all instantiations have")
        if len({(t.a > 3, t.a == 3) for t in mma.every}) > 1:
            raise self.place.left(where, f"types of operands of `{mma.name}` of one kind of MMA")
        texts = (f.lexed.plain_text for f in site.program.sources.files.values())
        if any(re.search(r"\bScaleIn\s*::\s*Neg\b", text) for text in texts):
            raise self.place.left(where, "operands of MMAs with their own sign")

    def _check_operand(self, operand: Operand) -> None:
        for _, rank, m_tiles, is_plain, _ in operand.every:
            if rank != 3 or m_tiles != 1 or not is_plain:
                raise self.place.left(
                    operand.declaration, f"`{operand.name}` as the registers of one tile, in their order"
                )

    def settle(self, names: Names) -> None:
        """Columns of Tensor Memory, those of the widest instantiation. Sums that are not alive together share them."""
        column = 0
        own: list[Sum] = []
        for one in self.sums:
            one.like = next((o for o in own if self._gives_way(names, o, one)), None)
            if one.like is not None:
                one.column = one.like.column
                one.like.every |= one.every
                continue
            own.append(one)
            one.column = column
            column += one.width
        for operand in self.operands.values():
            operand.column = column
            column += operand.width
        self.columns = column
        self._name()

    def _gives_way(self, names: Names, first: Sum, second: Sum) -> bool:
        """Whether one tensor in Tensor Memory can be that of both."""
        if (
            first.mma is not second.mma
            or first.is_handed
            or second.is_handed
            or self.shape(first) != self.shape(second)
        ):
            return False
        sharing = [s.handle for s in self.sums if s is first or s.like is first]
        return not any(_together(names, handle, second.handle) for handle in sharing)

    @property
    def fills_lanes(self) -> bool:
        """Whether tiles of a warpgroup have all lanes of its columns, of which one of 64 rows has a half."""
        return any(t.tiles > 1 for s in self.sums for t in s.every)

    @property
    def groups(self) -> int:
        """Warpgroups that multiply, of the largest instantiation."""
        return max(t.m_groups * t.n_groups for m in self.mmas.values() for t in m.every)

    # --- text

    def beside(self, mma: Mma, first: int) -> str:
        """The tiled MMA of SM100 for the same tiles."""
        c, every = self.site.c, mma.every
        kinds = {k: {getattr(t, k) for t in every} for k in ("a", "b", "d", "own", "m_groups", "n_groups")}
        one = next(iter(every))

        def named(kind: str, member: str) -> str:
            if len(kinds[kind]) > 1:
                return cpp("type_of_mma", mma=mma.name, member=member)
            name = _TYPES[next(iter(kinds[kind]))]
            return "float" if name == "F32" else c + cpp(f"type_{name}")

        def counted(kind: str, mode: int) -> str:
            if len(kinds[kind]) > 1:
                return f"{c}Int<{cpp('groups_of_mma', c=c, mma=mma.name, mode=mode)}>"
            return f"{c}_{next(iter(kinds[kind]))}"

        layout = ""
        if kinds["m_groups"] | kinds["n_groups"] != {1}:
            layout = cpp("layout_of_groups", c=c, m=counted("m_groups", 1), n=counted("n_groups", 2))
        width = str(one.own) if len(kinds["own"]) == 1 else self._width(mma)
        index = cpp("index_of_group", first=f" - {first}" if first else "") if layout else f"{c}_0{{}}"
        return cpp(
            "mma_beside",
            self.site.unit,
            c=c,
            described=one.a > 3 and bool(one.from_a),
            umma=mma.umma,
            cta=mma.cta,
            a=named("a", "ValTypeA"),
            b=named("b", "ValTypeB"),
            d=named("d", "ValTypeC"),
            n=width,
            major_a=_MAJORS[one.from_a or 1],
            major_b=_MAJORS[one.from_b],
            kind="F8F6F4" if one.a > 3 else "TF32" if one.a == 3 else "F16BF16",
            operands="SS" if one.from_a else "TS",
            layout=layout,
            index=index,
        )

    def _width(self, mma: Mma) -> str:
        """Columns of an MMA in all instantiations: Hopper's, or those of the tile where several of Hopper's are one."""
        c, named = self.site.c, {self._own_shape(s) for s in mma.sums}
        if all(t.n_groups == 1 and not t.is_joined for t in mma.every):
            return cpp("width_of_mma", c=c, mma=mma.name)
        if len(named) == 1 and "" not in named and all(t.n_groups == 1 and t.tiles == 1 for t in mma.every):
            return cpp("width_of_tile", c=c, tile=named.pop())
        where = mma.sums[0].handle.declaration
        raise self.place.left(where, f"columns of `{mma.name}` that all instantiations have")

    def shape(self, one: Sum) -> str:
        """The tile of a sum, as the kernel has it where that means the same everywhere in it, or by numbers."""
        if own := self._own_shape(one):
            return own
        site = self.site
        tiles = {(t.m_tiles * t.m_groups * _ROWS, t.n_tiles * t.columns) for t in one.every}
        if len(tiles) == 1:
            rows, columns = tiles.pop()
            return cpp("shape_of_numbers", c=site.c, rows=rows, columns=columns)
        texts = {m: self._count(one, m, mode) for mode, m in ((1, "m_tiles"), (2, "n_tiles"))}
        return cpp("shape_of_tile", c=site.c, umma=one.mma.umma, **texts)

    def _count(self, one: Sum, member: str, mode: int) -> str:
        """By how many MMAs a tile is larger than one, along a mode: a number, or how many the registers that a function
        is handed have."""
        c, counts = self.site.c, {1 if t.is_joined else getattr(t, member) for t in one.every}
        if counts == {1}:
            return ""
        if len(counts) == 1:
            return f" * {c}_{counts.pop()}{{}}"
        if not one.is_handed or any(t.is_joined for t in one.every):
            raise self.place.left(one.handle.declaration, "a tile that all instantiations have")
        return cpp("count_of_tiles", c=c, mode=mode, registers=one.handle.name)

    def _own_shape(self, one: Sum) -> str:
        """The tile of a sum in words of the kernel that mean the same everywhere in it; empty where it has none."""
        function, value = self.function, one.handle.value
        arguments = value.child_by_field_name("arguments") if value is not None else None
        given = arguments.named_children if arguments is not None else []
        if len(given) == 2 and function.text(given[0]) == one.mma.name:
            names = (*find(given[1], "identifier"), *find(given[1], "type_identifier"))
            if all(resolve(function, n, function.text(n)) is None and not self._is_inner(n) for n in names):
                return function.text(given[1])
        return ""

    def _is_inner(self, name: Node) -> bool:
        """Whether a name is that of a type which a block in the kernel declares."""
        function = self.function
        aliases = (n for n in find(function.body, "alias_declaration") if n.parent != function.body)
        named = (n.child_by_field_name("name") for n in aliases)
        return function.text(name) in {function.text(n) for n in named if n is not None}

    def shape_of_operand(self, operand: Operand, at: Node) -> str:
        """The tile of an operand, for a statement in front of one."""
        depths = {operand.depth(a) for a in operand.every}
        rows = {t.m_groups * _ROWS for t in operand.mma.every}
        if len(depths) == 1 and len(rows) == 1:
            return cpp("shape_of_numbers", c=self.site.c, rows=rows.pop(), columns=depths.pop())
        has_steps = all(steps for *_, steps in operand.every)
        if operand.by is not None and has_steps and self._means(operand.by, self.function, at):
            return cpp("shape_by_steps", c=self.site.c, umma=operand.mma.umma, by=operand.by.name)
        raise self.place.left(operand.declaration, f"a tile of `{operand.name}` that all instantiations have")


def _together(names: Names, one: Handle, other: Handle) -> bool:
    """Whether two accumulators may be alive at the same time."""
    first, second = sorted((one, other), key=lambda h: h.declaration.start_byte)
    return together(names, first, second)


def repeated(width: int, step: int, most: int) -> int:
    """By how many one instruction moves more than its smallest one: a power of two that divides the columns."""
    times = width // step
    return min(times & -times, most)


def _loops(node: Node | None) -> Iterator[Node]:
    current = node.parent if node is not None else None
    while current is not None:
        if current.type in LOOPS:
            yield current
        current = current.parent


def slices_of(fragments: Fragments) -> dict[str, Mma]:
    """Threads' parts of the tiled MMAs, by name."""
    function, found = fragments.function, {}
    for declarator in find(function.body, "init_declarator"):
        name, value = declared_name(declarator), declarator.child_by_field_name("value")
        match = _SLICE.fullmatch(function.text(value)) if value is not None else None
        if name is not None and match is not None and match[1] in fragments.mmas:
            found[function.text(name)] = fragments.mmas[match[1]]
    return found


def slice_of(fragments: Fragments, node: Node) -> Mma | None:
    """The tiled MMA that an expression is a thread's part of."""
    text = fragments.function.text(node)
    match = _SLICE.fullmatch(text)
    if match is not None:
        return fragments.mmas.get(match[1])
    return slices_of(fragments).get(text)


def left_alone(fragments: Fragments, node: Node) -> Left:
    return fragments.place.left(node, f"how `{fragments.function.text(node)[:40]}` describes shared memory")
