# SPDX-License-Identifier: Apache-2.0
"""Places in shared memory as the source calls them: `full[2]`, `storage.empty[0]`, `tile+0x400`."""

from __future__ import annotations

from porter.facts.launched import Launched
from porter.ptx.ast import VarDecl
from porter.ptx.barriers import MBARRIER_BYTES
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.symbols import local_name


class SharedNames:
    """Names of places in the shared memory of a cluster's blocks."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._inits: dict[int, int] = {}
        """By address of an mbarrier the instruction that has initialized it."""
        self._names: dict[int, str] = {}

    def initialized(self, address: int, at: int) -> None:
        """An instruction initializes an mbarrier. How many there are may be a part of names."""
        self._inits[address] = at
        self._names.clear()

    def mbarrier(self, address: int) -> str:
        name = self._names.get(address)
        if name is None:
            name = self._names[address] = f"mbarrier {self._barrier(address)}{self._of_block(address)}"
        return name

    def place(self, address: int) -> str:
        if address & ~(MBARRIER_BYTES - 1) in self._inits:
            return self.mbarrier(address & ~(MBARRIER_BYTES - 1))
        return f"{self._in_variable(address)}{self._of_block(address)}"

    def _of_block(self, address: int) -> str:
        return f" of block {address >> RANK_SHIFT}" if self._launched.geometry.ranks > 1 else ""

    def _barrier(self, address: int) -> str:
        """By the expression in the kernel that is initialized, by its variable, by an expression in a function that
        is called, by the variable that it lies in: whichever tells first."""
        called, is_own = self._called(address)
        if called and is_own:
            return called
        variable = self._variable(address)
        if variable is not None and not variable[1].extern and self._holds_only_barriers(address, *variable):
            name = local_name(variable[1].name)
            return (
                name
                if variable[1].size == MBARRIER_BYTES
                else f"{name}[{(_offset(address) - variable[0]) // MBARRIER_BYTES}]"
            )
        return called or self._in_variable(address)

    def _called(self, address: int) -> tuple[str, bool]:
        """By the source's expression, and whether the kernel itself has it."""
        found = self._initialized(address)
        if found is None:
            return "", False
        name, outer = found
        alike = [other for other in sorted(self._inits)
                 if other >> RANK_SHIFT == address >> RANK_SHIFT and self._initialized(other) == found]  # fmt: skip
        number = alike.index(address)
        for brackets in ("[]", "()"):
            if brackets in name:
                name = name.replace(brackets, brackets[0] + str(number) + brackets[1], 1)
                break
        else:
            name += f"[{number}]" if len(alike) > 1 else ""
        others = {self._initialized(other) for other in self._inits}
        if sum(other is not None and other[0] == found[0] for other in others) > 1:
            name += f" ({outer[-1][0].rpartition('/')[2]}:{outer[-1][1]})"
        return name, len(outer) == 1

    def _initialized(self, address: int) -> tuple[str, tuple[tuple[str, int], ...]] | None:
        """The outermost expression, and the places from there outwards."""
        flow = self._launched.flow
        places = flow.places(self._inits[address]) if address in self._inits else []
        for number in reversed(range(len(places))):
            name = flow.initialized(places[number])
            if name is not None:
                return name, tuple((p.file, p.line) for p in places[number].outwards())
        return None

    def _in_variable(self, address: int) -> str:
        found = self._variable(address)
        if found is None:
            return f"shared+{_offset(address):#x}"
        start, variable = found
        return f"{local_name(variable.name)}+{_offset(address) - start:#x}"

    def _variable(self, address: int) -> tuple[int, VarDecl] | None:
        """The variable that an address lies in, and where it begins."""
        offset = _offset(address)
        below = [(start, v) for v, start in self._launched.shared_variables if start <= offset]
        start, variable = max(below, key=lambda found: found[0], default=(0, None))
        return (
            (start, variable) if variable is not None and (variable.extern or offset < start + variable.size) else None
        )

    def _holds_only_barriers(self, address: int, start: int, variable: VarDecl) -> bool:
        first = (address >> RANK_SHIFT << RANK_SHIFT) + start
        is_all = all(first + at in self._inits for at in range(0, variable.size, MBARRIER_BYTES))
        return is_all or variable.type in ("b64", "u64")


def _offset(address: int) -> int:
    return address & OFFSET_MASK
