# SPDX-License-Identifier: Apache-2.0
"""Which registers follow a counter, and which operands must not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from porter.facts.flow import Flow
from porter.ptx import ast, table
from porter.ptx.tensormap import SIZING_FIELDS
from porter.sync.sequences import reaching, whole

_SYNCHRONIZING = frozenset(
    ("mbarrier", "cp", "tcgen05", "wgmma", "st", "ld", "bar", "barrier", "atom", "red", "stmatrix", "ldmatrix",
     "clusterlaunchcontrol", "multimem", "setmaxnreg", "tensormap", "fence")
)  # fmt: skip
_COPIES = frozenset(("mov", "cvt", "cvta", "selp"))
_NARROW = frozenset(("b8", "u8", "s8", "b16", "u16", "s16"))
"""Types in which a size has no room."""
_FAR = frozenset(("global", "param", "const"))
_HINTS = frozenset(("policy", "hint"))


def that_must_repeat(flow: Flow, at: int, following: Following) -> Iterator[ast.Operand]:
    """Operands that follow a counter, of an instruction that must do the same in each period."""
    ins = flow.code.code[at]
    if ins.parts[0] == "setp":
        for operand in ins.operands[1:]:
            if any(following.is_uneven(at, name) for name in _named(flow, at, operand)):
                yield operand
    elif ins.parts[0] in _SYNCHRONIZING:
        for operand in _synchronizing_operands(flow, at):
            # a token says behind which phase, however many there have been
            names = (_named(flow, at, operand) & flow.uses[at]) - tokens(flow)
            if any(following.kind(at, name) is not None for name in names):
                yield operand


def that_synchronize(flow: Flow, at: int) -> set[str]:
    """Registers of an instruction that must repeat if they follow a counter."""
    if flow.code.code[at].parts[0] not in _SYNCHRONIZING:
        return set()
    return set[str]().union(*(_named(flow, at, operand) for operand in _synchronizing_operands(flow, at)))


def _synchronizing_operands(flow: Flow, at: int) -> Iterator[ast.Operand]:
    """Those but data, and where in global memory it lies."""
    decoded = flow.decoded[at]
    if decoded is None:
        # no run comes to it
        return
    if decoded.parts[:2] == ("tensormap", "replace"):
        yield decoded["map"]
        if not SIZING_FIELDS.isdisjoint(decoded.parts):
            yield decoded["value"]
        return
    memory = [(row.name, operand) for row, operand in decoded.bound if row.kind == "memory"]
    near = [operand for name, operand in memory if decoded.space(name).partition("::")[0] not in _FAR]
    yield from near
    if decoded.parts[0] == "st" and not near and flow.changes_maps:
        # it may be a part of a tensor map
        yield from table.items(decoded["b"])
    if decoded.parts[0] not in ("ld", "st") and (near or not memory):
        yield from (operand for row, operand in decoded.bound if row.kind != "memory" and row.name not in _HINTS)


def kept_in(flow: Flow, at: int) -> str:
    """Which memory an instruction accesses whose numbers are followed: `shared`, that threads may share, or `local`."""
    decoded = flow.decoded[at]
    memory = [row.name for row, _ in decoded.bound if row.kind == "memory"] if decoded is not None else []
    spaces = {decoded.space(name).partition("::")[0] for name in memory} - _FAR if decoded is not None else set()
    return "" if not spaces else "local" if spaces == {"local"} else "shared"


_STORES = frozenset(("st", "atom", "red"))


@lru_cache(maxsize=64)
def tokens(flow: Flow) -> frozenset[str]:
    """Registers that only ever hold what mbarrier.arrive gives."""
    arrives = [ins.parts[:2] == ("mbarrier", "arrive") for ins in flow.code.code]
    given = {name for at, names in enumerate(flow.writes) if arrives[at] for name in names}
    return frozenset(given.difference(*(names for at, names in enumerate(flow.writes) if not arrives[at])))


def _named(flow: Flow, at: int, operand: ast.Operand) -> set[str]:
    """The register whose value an operand is; coordinates of a copy may be anything."""
    if isinstance(operand, ast.Reg):
        return {flow.code.renamed(at, operand.name)}
    return _named(flow, at, operand.base) if isinstance(operand, ast.Mem) else set()


class Shape(IntEnum):
    """How a register follows a counter; the worst counts."""

    EVEN = 0
    """A number more for each turn: the counter, times two to the power `shift`."""
    HIGH = 1
    """Bits of the counter, or not these, at `shift` from where they are in it."""
    OTHER = 2


@dataclass(frozen=True)
class Followed:
    """`reach`: low bits below it have been seen together with all else that repeats, as `reached` says. `shift` is None
    where it is not known."""

    shape: Shape
    reach: int
    shift: int | None = 0

    def joined(self, other: Followed) -> Followed:
        shift = self.shift if self.shift == other.shift else None
        return Followed(max(self.shape, other.shape), min(self.reach, other.reach), shift)


def reached(step: int, periods: int) -> int:
    """The power of two below which bits of a counter that moves by `step` in each of so many periods have met all that
    repeats with the period: they take as many periods as the lowest bit of the step leaves of them."""
    return (step & -step) * periods


Settled = Callable[[int, Followed, Mapping[str, Followed]], Followed | None]
"""What an instruction gives, given what its kind says of it, and what follows so far; None if that repeats."""


class Following:
    """The registers that follow counters through instructions, `kinds` at first. What takes only a counter's low bits
    repeats, and follows none, if the runs have seen all of its values in all places of the period. `settled` is asked
    about what does neither follow evenly nor repeat by its kind. `sources`: the instructions that give registers what
    follows at first, where it is not known at the head of a loop."""

    def __init__(
        self, flow: Flow, body: Iterable[int], kinds: Mapping[str, Followed], settled: Settled | None = None,
        sources: Mapping[str, Iterable[int]] | None = None,
    ) -> None:  # fmt: skip
        self.flow, self._settled = flow, settled
        self.kinds = dict(kinds)
        self._sources = None if sources is None else {name: set(places) for name, places in sources.items()}
        places = [at for at in body if flow.writes[at]]
        changed = True
        while changed:
            changed = False
            for at in places:
                found = self._result(at)
                for name in flow.writes[at] if found is not None else ():
                    assert found is not None
                    if self._sources is not None and at not in (places_of := self._sources.setdefault(name, set())):
                        places_of.add(at)
                        changed = True
                    known = self.kinds.get(name)
                    joined = found if known is None else known.joined(found)
                    if joined != known:
                        self.kinds[name] = joined
                        changed = True

    def stored(self, body: Iterable[int]) -> Iterator[int]:
        """The instructions that leave in memory what follows."""
        for at in body:
            decoded = self.flow.decoded[at]
            if decoded is not None and decoded.parts[0] in _STORES and kept_in(self.flow, at):
                values = [one for name in ("b", "c") if name in decoded for one in table.items(decoded[name])]
                names = (name for value in values for name in _named(self.flow, at, value))
                if any(self.kind(at, name) is not None for name in names):
                    yield at

    def kind(self, at: int, name: str) -> Followed | None:
        """How what an instruction finds in a register follows; None if it does not."""
        found = self.kinds.get(name)
        if found is None or self._sources is None:
            return found
        met = reaching(self.flow, whole(self.flow), at, name) & self._sources.get(name, set())
        return found if met else None

    def is_uneven(self, at: int, name: str) -> bool:
        found = self.kind(at, name)
        return found is not None and found.shape is not Shape.EVEN

    def _result(self, at: int) -> Followed | None:
        """How what an instruction writes follows the counters; None if it does not."""
        ins = self.flow.code.code[at]
        head = ins.parts[0]
        if head == "ld" and "param" in ins.parts:
            # one of several parameters
            followed = [kind for name in _named(self.flow, at, ins.operands[1]) if (kind := self.kind(at, name))]
            return Followed(Shape.OTHER, followed[0].reach, None) if followed else None
        if head in ("setp", "bra", *_SYNCHRONIZING):
            return None
        given = ins.operands[1:3] if head == "selp" else ins.operands[1:]
        names = (self.flow.code.register(at, item) for o in given for item in table.items(o))
        followed = [kind for name in names if name is not None and (kind := self.kind(at, name)) is not None]
        if not followed:
            return None
        found = followed[0]
        for other in followed[1:]:
            found = found.joined(other)
        number = next((int(o.value) for o in reversed(given) if isinstance(o, ast.Imm) and not o.is_float), None)
        changed = self._changed(head, ins.parts, found, len(followed), number)
        if any(isinstance(o, ast.Vec) for o in ins.operands):
            # a part of a number, or one that is put together
            changed = Followed(Shape.OTHER, found.reach, None)
        if self._settled is None or changed is None or changed.shape is Shape.EVEN or head in _COPIES:
            return changed
        return self._settled(at, changed, self.kinds)

    @staticmethod
    def _changed(head: str, parts: tuple[str, ...], found: Followed, count: int, number: int | None) -> Followed | None:
        other = Followed(Shape.OTHER, found.reach, None)
        if head == "cvt" and not _NARROW.isdisjoint(parts):
            # low bits alone
            return Followed(Shape.HIGH, found.reach, found.shift) if parts[-1][0] != "s" else other
        if head in _COPIES:
            return found
        if found.shape is Shape.OTHER:
            return other
        # sums and multiples of counters move evenly as well
        shift = found.shift if found.shift is not None or found.shape is not Shape.EVEN else 0
        if head == "and" and number is not None and shift is not None:
            span = 1 << (number >> shift if shift >= 0 else number << -shift).bit_length()
            return None if number >= 0 and span < found.reach else other
        if head == "shr" and number is not None and found.shift is not None:
            return Followed(Shape.HIGH, found.reach, found.shift - number)
        if head == "not" or (head in ("xor", "or") and count == 1 and number is not None):
            # each bit as it is or as it is not: what low bits repeat still do
            return Followed(Shape.EVEN if head == "not" and found.shape is Shape.EVEN else Shape.HIGH, found.reach,
                            found.shift)  # fmt: skip
        if found.shape is Shape.HIGH:
            return other
        if head in ("add", "sub", "neg"):
            return found if count == 1 else Followed(Shape.EVEN, found.reach, None)
        if head == "shl" and number is not None:
            return Followed(Shape.EVEN, found.reach, found.shift + number if found.shift is not None else None)
        if head in ("mul", "mad") and "hi" not in parts and count == 1 and parts[-1] not in _NARROW:
            return Followed(Shape.EVEN, found.reach, None)
        return other
