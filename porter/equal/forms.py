# SPDX-License-Identifier: Apache-2.0
"""Integers that follow from the sizes of a launch and the indices of blocks, as sums of products with integer
coefficients: a normal form beside the words of bytes, so that two of them are equal for all sizes or are told apart.

A form stands for a number modulo two to the power of its width, whatever sums and products of that width have wrapped.
A number of 32 bits that becomes one of 64 remains the same sum only where it has not wrapped: that is noted as a
`Bound`, and it is asked of sums without a negative part alone, so that it holds up to some sizes and not beyond.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.equal.words import Words, constant, extended, is_number, joined, number_in, spread, stirred, word, words_of
from porter.facts.events import NotUnderstood
from porter.facts.integers import operation
from porter.facts.launched import GLOBAL
from porter.facts.operands import OF_GRID
from porter.facts.values import bits
from porter.ptx.arch import LARGEST_GRID, WARP
from porter.ptx.bits import signed, unsigned

Monomial = tuple[int, ...]
"""The words of what is multiplied; none stands for one."""
Terms = tuple[tuple[Monomial, int], ...]
LARGEST_SIZE = (1 << 23) - 1
"""The largest size, and index of a block, for which something is said."""
_LARGEST_PARAMETER = (1 << 32) - 1
_PARAMETER = "parameter "
_REGION = 44
"""Bits of an address of global memory that is a number; above them stands which sum of symbols is added to it."""
_MOST_REGIONS = 1 << 14
_MOST_TERMS = 64
_MOST_KEPT = 1 << 14
_RING = frozenset(("add", "sub", "neg", "mul", "mad", "shl"))
"""Sums and products, which keep lines, modulo two to the power of their width."""
_SUMMED = _RING | {"cvt", "shr", "and", "or", "xor"}
"""Of which there are sums that are no numbers."""
_WIDTHS = {"u32": 32, "s32": 32, "b32": 32, "u64": 64, "s64": 64, "b64": 64}


class Form(NamedTuple):
    """A sum, by ascending monomials, with coefficients as signed numbers of `width` bits."""

    width: int
    terms: Terms

    @property
    def number(self) -> int:
        """What is added to the products."""
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    @property
    def products(self) -> Terms:
        return self.terms if not self.terms or self.terms[0][0] else self.terms[1:]


class Bound(NamedTuple):
    """That a sum is less than `limit`."""

    terms: Terms
    limit: int


@dataclass
class Noted:
    """What an execution asks of sums: `bounds` that they have to keep, and, with `steady`, what instructions take that
    do more than add, by warp, instruction, lane and operand. No sum of one may be another one in another turn, or for
    another size: what is shown of some turns would say nothing of the next ones."""

    bounds: set[Bound] = field(default_factory=set)
    steady: dict[tuple[object, int, int, int], object] | None = None
    place: tuple[object, int] = (None, 0)
    """The warp and the instruction."""
    _moving: set[tuple[object, int, int, int]] = field(default_factory=set)
    _newest: dict[tuple[object, int], object] = field(default_factory=dict)
    """By warp and instruction what it has taken last."""

    def note(self, key: object, sums: Sums) -> None:
        """What an instruction asks that makes sums of what `key` tells."""
        if sums.bounds:
            self.bounds |= sums.bounds
        if self.steady is None or self._newest.get(self.place) == key:
            return
        self._newest[self.place] = key
        for lane, of_lane in sums.taken:
            self.take(lane, of_lane)
        for lane, factors in sums.factors:
            self.multiply(lane, factors)

    def take(self, lane: int, key: object) -> None:
        """Raises NotUnderstood: it was another one."""
        assert self.steady is not None
        if self.steady.setdefault((*self.place, lane, 0), key) != key:
            self._refuse()

    def multiply(self, lane: int, factors: Sequence[object]) -> None:
        """Of two factors one may be another line in each turn. Raises NotUnderstood: both are."""
        assert self.steady is not None
        for number, key in enumerate(factors):
            place = (*self.place, lane, number)
            if self.steady.setdefault(place, key) != key:
                self._moving.add(place)
                if (*self.place, lane, 1 - number) in self._moving:
                    self._refuse()

    def _refuse(self) -> None:
        raise NotUnderstood("a sum of symbols that is more than added to, and moves", self.place[1])


class _Result(NamedTuple):
    row: Words
    bounds: tuple[Bound, ...]
    is_number: bool = False


class Sums(NamedTuple):
    """What an instruction makes [32, bytes] in those of its `lanes` in which that is a sum, of all of them where it
    `is_all`; what is asked of these, and by lane what it takes that does more than add, and what it multiplies."""

    data: Words
    lanes: npt.NDArray[np.intp]
    is_all: bool
    bounds: frozenset[Bound]
    taken: tuple[tuple[int, object], ...]
    factors: tuple[tuple[int, tuple[object, ...]], ...]


class NoFormError(Exception):
    """What an instruction gives is no sum, as far as is known."""


class Forms:
    """The forms of two programs that are compared. `symbols`: names of sizes and of indices of blocks. What sums are
    made of others is the same in each comparison, and so is taken from an earlier one."""

    def __init__(self, earlier: Forms | None = None) -> None:
        self.symbols: dict[int, str] = {} if earlier is None else earlier.symbols
        self._forms: dict[bytes, Form] = {} if earlier is None else earlier._forms
        """By the words of four or eight bytes."""
        self._rows: dict[Form, Words] = {} if earlier is None else earlier._rows
        self._results: dict[object, _Result | None] = {} if earlier is None else earlier._results
        self._sums: dict[object, Sums] = {} if earlier is None else earlier._sums
        """By instruction, lanes and operands: sizes and turns come to the same again and again."""
        self._regions: dict[object, int] = {}
        self._places: dict[tuple[bytes, int], int | None] = {}
        self._by_lane: dict[object, dict[int, int] | None] = {}
        self.boxes: dict[object, Any] = {}
        """Of copies by tensor maps the newest ones."""

    @staticmethod
    def parameter(values: Sequence[int]) -> str:
        """The name of a parameter that is no size, by what it is for some of them."""
        return f"{_PARAMETER}{', '.join(map(str, values))}"

    def symbol(self, name: str, multiple: int = 1, more: int = 0) -> Words:
        """The four bytes of a symbol, or of a sum of a multiple of it and a number."""
        atom = int(word(f"symbol {name}"))
        self.symbols[atom] = name
        return self.row(_reduced({(atom,): multiple, (): more}, 32))

    def shown(self, terms: Terms) -> str:
        """A sum as text."""
        parts = []
        for monomial, factor in terms:
            names = [self.symbols.get(atom, "?") for atom in monomial]
            parts.append(" * ".join([*names, *([str(factor)] if factor != 1 or not names else [])]))
        return " + ".join(parts) or "0"

    def shown_bounds(self, bounds: Collection[Bound]) -> str:
        """Those that others do not follow from."""
        least = sorted(bound for bound in bounds if not implied(bound, [b for b in bounds if b != bound]))
        return ", ".join(f"{self.shown(bound.terms)} < {bound.limit}" for bound in least)

    # Bytes and forms ----------------------------------------------------------------------------------

    def row(self, form: Form) -> Words:
        """The bytes of a form."""
        found = self._rows.get(form)
        if found is None:
            found = self._rows[form] = self._made(form)
            self._forms.setdefault(found.tobytes(), form)
        return found

    def _made(self, form: Form) -> Words:
        size = form.width // 8
        if not form.products:
            return constant(form.number, size)[0]
        moved = self._in_bytes(form, size)
        if moved is not None:
            return moved
        of_all, of_upper = _names(form.width, form.products)
        if form.width == 32 or not self._is_of_symbols(form):
            return spread(stirred(of_all, form.number), size)
        low = self.row(_reduced(dict(form.terms), 32))
        return np.concatenate((low, spread(stirred(of_upper, form.number), 4)))

    def _in_bytes(self, form: Form, size: int) -> Words | None:
        """The bytes of what puts unknowns into bytes of their own, as shifts by whole bytes do and what packs them."""
        unknowns = list[tuple[int, Words]]()
        for monomial, factor in form.products:
            place = (factor.bit_length() - 1) // 8
            if factor != 1 << 8 * place or len(monomial) > 1 or monomial[0] in self.symbols:
                return None
            unknown = self._rows.get(Form(form.width, ((monomial, 1),)))
            if unknown is None:
                return None
            unknowns.append((place, unknown))
        found = np.frombuffer(unsigned(form.number, form.width).to_bytes(size, "little"), np.uint8).astype(np.uint64)
        for place, unknown in unknowns:
            put = np.concatenate((np.zeros(place, np.uint64), unknown[: size - place]))
            if bool(((found != 0) & (put != 0)).any()):
                return None
            found |= put
        return found

    def of(self, row: Words) -> Form:
        """The form of four or eight bytes; what is made in another way is an unknown of its own."""
        key = row.tobytes()
        found = self._forms.get(key)
        if found is None:
            width = 8 * len(row)
            if bool(is_number(row).all()):
                found = _reduced({(): number_in(row)}, width)
            else:
                found = Form(width, (((int(joined(row)),), 1),))
                self._rows.setdefault(found, row)
            self._forms[key] = found
        return found

    def which_of_symbols(self, rows: Words) -> list[bool]:
        """Of each of some rows of bytes whether it is a sum of symbols, and no number."""
        held, size = rows.tobytes(), rows.itemsize * rows.shape[1]
        forms = (self._forms.get(held[start : start + size]) for start in range(0, len(held), size))
        return [form is not None and bool(form.products) and self._is_of_symbols(form) for form in forms]

    def _is_of_symbols(self, form: Form) -> bool:
        return all(atom in self.symbols for monomial, _ in form.terms for atom in monomial)

    def _is_pure(self, form: Form) -> bool:
        """Whether it is of symbols alone, without a negative part."""
        return self._is_of_symbols(form) and all(factor > 0 for _, factor in form.terms)

    # Instructions -------------------------------------------------------------------------------------

    def computed(
        self, parts: tuple[str, ...], given: Sequence[Words], size: int, lanes: int, noted: Noted
    ) -> Sums:  # fmt: skip
        """What an integer instruction makes of operands [32, bytes], where that is a sum."""
        held = [data.tobytes() for data in given]
        key = (parts, size, lanes, *held)
        found = self._sums.get(key)
        if found is None:
            _make_room(self._sums)
            found = self._sums[key] = self._computed_in(parts, given, held, size, bits(lanes))
        noted.note(key, found)
        return found

    def _computed_in(
        self, parts: tuple[str, ...], given: Sequence[Words], held: Sequence[bytes], size: int, lanes: Sequence[int]
    ) -> Sums:  # fmt: skip
        """`held`: what is given as bytes."""
        of_lanes = [(data, of_data, len(of_data) // WARP) for data, of_data in zip(given, held, strict=True)]
        numbers = np.logical_and.reduce([is_number(data).all(axis=1) for data in given])
        found: dict[int, Words] = {}
        bounds: set[Bound] = set()
        taken, factors = list[tuple[int, object]](), list[tuple[int, tuple[object, ...]]]()
        keeps = parts[0] in _RING and "wide" not in parts
        for lane in lanes if parts[0] in _SUMMED else [lane for lane in lanes if numbers[lane]]:
            key = (parts, *(of_data[lane * row : (lane + 1) * row] for _, of_data, row in of_lanes))
            if key not in self._results:
                rows = [data[lane] for data, *_ in of_lanes]
                self._results[key] = self._result(parts, rows, size, bool(numbers[lane]))
            result = self._results[key]
            if result is not None:
                found[lane] = result.row
                bounds.update(result.bounds)
                if not keeps and not result.is_number:
                    taken.append((lane, key))
                elif parts[0] in ("mul", "mad") and not result.is_number:
                    factors.append((lane, key[1:3]))
        data, index = np.zeros((WARP, size), np.uint64), np.fromiter(found, np.intp)
        for lane, row in found.items():
            data[lane] = row
        data.setflags(write=False)
        return Sums(data, index, len(found) == len(lanes), frozenset(bounds), tuple(taken), tuple(factors))

    def _result(self, parts: tuple[str, ...], rows: list[Words], size: int, are_numbers: bool) -> _Result | None:
        if are_numbers:
            # behind a branch on data
            function = operation(parts)
            number = function(*map(number_in, rows)) if function is not None else None
            return None if number is None else _Result(constant(number, size)[0], (), is_number=True)
        if not all(len(row) in (4, 8) for row in rows):
            return None
        bounds: list[Bound] = []
        try:
            form = self._computed(parts, rows, bounds)
        except NoFormError:
            return None
        return _Result(self.row(form), tuple(bounds)) if len(form.terms) <= _MOST_TERMS else None

    def _computed(self, parts: tuple[str, ...], rows: list[Words], bounds: list[Bound]) -> Form:
        head, kind = parts[0], parts[-1]
        width = _WIDTHS.get(kind, 0)
        if not width:
            raise NoFormError
        if head == "cvt":
            if len(parts) != 3 or (_WIDTHS.get(parts[1]), width) != (64, 32):
                raise NoFormError
            return self._widened(rows[0], kind, bounds)
        if head in ("mul", "mad") and "wide" in parts:
            one, other = (self._widened(row, kind, bounds) for row in rows[:2])
            return _sum(_product(one, other), self.of(rows[2])) if head == "mad" else _product(one, other)
        forms = [self.of(row) for row in rows]
        match head:
            case "add":
                return _sum(forms[0], forms[1])
            case "sub":
                return _sum(forms[0], _scaled(forms[1], -1))
            case "neg":
                return _scaled(forms[0], -1)
            case "mul" if "lo" in parts:
                return _product(*forms)
            case "mad" if "lo" in parts:
                return _sum(_product(forms[0], forms[1]), forms[2])
            case "shl":
                return _scaled(forms[0], 1 << _number(forms[1])) if _number(forms[1]) < width else _reduced({}, width)
            case "shr":
                return self._shifted(forms[0], _number(forms[1]), kind, bounds)
            case "and" | "or" | "xor":
                return _by_bits(head, *(forms if not forms[1].products else forms[::-1]))
        raise NoFormError

    def _widened(self, row: Words, kind: str, bounds: list[Bound]) -> Form:
        """A number of 32 bits as one of 64."""
        form = self.of(row)
        limit = 1 << (31 if kind[0] == "s" else 32)
        if not form.products:
            number = unsigned(form.number, 32)
            return _reduced({(): signed(number, 32) if kind[0] == "s" else number}, 64)
        if self._is_pure(form):
            self._bound(form, limit, bounds)
            return Form(64, form.terms)
        zeros = np.zeros(4, np.uint64)
        return self.of(extended(row) if kind[0] == "s" else np.concatenate((row, zeros)))

    def _bound(self, form: Form, limit: int, bounds: list[Bound]) -> None:
        most = sum(factor * prod(self._largest(atom) for atom in monomial) for monomial, factor in form.terms)
        if most >= limit:
            bounds.append(Bound(form.terms, limit))

    def _largest(self, atom: int) -> int:
        """The largest number that a symbol may be."""
        of, _, axis = self.symbols[atom].partition(".")
        if of.startswith(_PARAMETER):
            return _LARGEST_PARAMETER
        return LARGEST_GRID if of in OF_GRID and axis in ("y", "z") else LARGEST_SIZE

    def _shifted(self, form: Form, count: int, kind: str, bounds: list[Bound]) -> Form:
        if count >= form.width or not self._is_pure(form) or any(f % (1 << count) for _, f in form.products):
            raise NoFormError
        self._bound(form, 1 << (form.width - (kind[0] == "s")), bounds)
        return _reduced({monomial: factor >> count for monomial, factor in form.terms}, form.width)

    # Addresses ----------------------------------------------------------------------------------------

    def addresses(self, data: Words, offset: int, lanes: int) -> dict[int, int] | None:
        """By lane addresses of global memory [32, 8 bytes] as numbers that stand for their sums; None where one is
        none."""
        key = data.tobytes(), offset, lanes
        if key not in self._by_lane:
            _make_room(self._by_lane)
            found = {lane: place for lane in bits(lanes) if (place := self._address_in(data[lane], offset)) is not None}
            self._by_lane[key] = found if len(found) == len(bits(lanes)) else None
        return self._by_lane[key]

    def _address_in(self, row: Words, offset: int) -> int | None:
        key = row.tobytes(), offset
        if key not in self._places:
            self._places[key] = self._address(self.of(row), offset)
        return self._places[key]

    def _address(self, form: Form, offset: int) -> int | None:
        number = form.number + offset
        if not GLOBAL <= number < GLOBAL + (1 << 42):
            return None
        if not form.products:
            return number
        return int(self.coded(np.array(number), form.products))

    def coded(self, addresses: npt.NDArray[np.int64], key: object) -> npt.NDArray[np.int64]:
        """Addresses of what a key tells from all that has another one.

        Raises:
            NotUnderstood: there are too many of these.
        """
        region = self._regions.setdefault(key, len(self._regions) + 1)
        if region >= _MOST_REGIONS:
            raise NotUnderstood("more sums of symbols than are told apart")
        return addresses + np.int64(region << _REGION)


@lru_cache(maxsize=1 << 14)
def _names(width: int, products: Terms) -> tuple[int, int]:
    """Of all sums with these products."""
    return words_of(f"sum {width} {products}")


def _make_room(kept: dict[object, Any]) -> None:
    if len(kept) >= _MOST_KEPT:
        kept.clear()


def without_region(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers in addresses."""
    return addresses & ~np.int64((_MOST_REGIONS - 1) << _REGION)


def implied(bound: Bound, known: Iterable[Bound]) -> bool:
    """Whether a bound follows from others: from one whose products are nowhere less, and add up to a multiple of what
    divides all of them."""
    own = dict(bound.terms)
    number = own.pop((), 0)
    for terms, limit in known:
        products = dict(terms)
        room = limit - 1 - products.pop((), 0)
        if all(products.get(monomial, 0) >= factor for monomial, factor in own.items()):
            step = gcd(*products.values()) or 1
            if room // step * step + number < bound.limit:
                return True
    return False


def _reduced(terms: Mapping[Monomial, int], width: int) -> Form:
    reduced = ((monomial, signed(unsigned(factor, width), width)) for monomial, factor in terms.items())
    return Form(width, tuple(sorted((monomial, factor) for monomial, factor in reduced if factor)))


def _sum(one: Form, other: Form) -> Form:
    if not other.products:
        one, other = other, one
    if not one.products:
        number = signed(unsigned(one.number + other.number, other.width), other.width)
        return Form(other.width, (((), number), *other.products) if number else other.products)
    found: dict[Monomial, int] = {}
    for monomial, factor in (*one.terms, *other.terms):
        found[monomial] = found.get(monomial, 0) + factor
    return _reduced(found, one.width)


def _scaled(form: Form, factor: int) -> Form:
    return _reduced({monomial: own * factor for monomial, own in form.terms}, form.width)


def _product(one: Form, other: Form) -> Form:
    found: dict[Monomial, int] = {}
    if len(one.terms) * len(other.terms) > _MOST_TERMS:
        raise NoFormError
    for first, factor in one.terms:
        for second, another in other.terms:
            monomial = tuple(sorted(first + second))
            found[monomial] = found.get(monomial, 0) + factor * another
    return _reduced(found, one.width)


def _number(form: Form) -> int:
    if form.products:
        raise NoFormError
    return unsigned(form.number, 32)


def _by_bits(head: str, form: Form, other: Form) -> Form:
    """Logic with a number whose bits lie below those that products may have."""
    mask = unsigned(other.number, form.width)
    lowest = min((factor & -factor for _, factor in form.products), default=1)
    own = unsigned(form.number, form.width) & (lowest - 1)
    if other.products:
        raise NoFormError
    if head == "and" and mask < lowest:
        return _reduced({(): own & mask}, form.width)
    if head == "and" and unsigned(~mask, form.width) < lowest:
        return _sum(form, _reduced({(): (own & mask) - own}, form.width))
    if head == "and" or mask >= lowest:
        raise NoFormError
    return _sum(form, _reduced({(): (own | mask if head == "or" else own ^ mask) - own}, form.width))
