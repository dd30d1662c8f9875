# SPDX-License-Identifier: Apache-2.0
"""What memory instructions say about order: semantics, scope and strength (PTX ISA 8.2 to 8.7).

A *strong* operation is a `.relaxed`, `.acquire`, `.release`, `.acq_rel` or `.volatile` access, an atomic, or a
fence. Two strong operations of which each one's scope takes in the other's thread are *morally strong* and do
not race. A release makes what came before it known to an acquire that sees its value, directly or through a
chain of atomics (PTX ISA 8.7 and 8.8); each side of it may also be a fence and a relaxed operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from porter.ptx import ast


class Scope(IntEnum):
    """Who may see a strong operation, narrowest first."""

    CTA = 0
    CLUSTER = 1
    GPU = 2
    SYS = 3

    @property
    def suffix(self) -> str:
        return "." + self.name.lower()


_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CLUSTER, "gpu": Scope.GPU, "sys": Scope.SYS,
           "gl": Scope.GPU}  # fmt: skip
_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "weak", "mmio")
_ATOMICS = frozenset(("atom", "red"))


@dataclass(frozen=True)
class MemoryOrder:
    """`acquires` and `releases` by itself; `scope` counts only if `strong`. `constant`: read through the
    non-coherent path (`ld.global.nc`), which no fence concerns (PTX ISA 8.1). `reads`: an atomic is a read operation;
    a reduction, which returns nothing, is none, so that no fence makes an acquire of it (PTX ISA 8.4)."""

    strong: bool = False
    scope: Scope = Scope.CTA
    acquires: bool = False
    releases: bool = False
    constant: bool = False
    reads: bool = True


def scope_of(parts: tuple[str, ...], default: Scope) -> Scope:
    """The scope among an opcode's parts."""
    return next((_SCOPES[p] for p in parts[1:] if p in _SCOPES), default)


def memory_order(ins: ast.Instruction) -> MemoryOrder:
    """Of a load, store, atomic or reduction.

    An atomic without semantics is relaxed, without a scope it is of `.gpu` scope (PTX ISA 9.7.13.5), multimem.red
    of `.sys` scope (9.7.9.14); volatile accesses are relaxed ones of `.sys` scope (PTX ISA 8.4).
    """
    p = ins.parts
    reduces = p[:2] == ("multimem", "red")
    atomic = p[0] in _ATOMICS or reduces
    semantics = next((x for x in p[1:] if x in _SEMANTICS), "relaxed" if atomic else "weak")
    if semantics == "weak":
        return MemoryOrder(constant="nc" in p)
    scope = scope_of(p, Scope.GPU if atomic and not reduces else Scope.SYS)
    reads = p[0] != "red" and not reduces
    acquires = semantics in ("acquire", "acq_rel") and reads
    return MemoryOrder(True, scope, acquires, semantics in ("release", "acq_rel"), reads=reads)


def fence_scope(ins: ast.Instruction) -> Scope | None:
    """The scope of a memory fence; None for instructions that are none, or only of a proxy (PTX ISA 9.7.13.4)."""
    p = ins.parts
    if p[0] == "membar":
        return None if "proxy" in p else scope_of(p, Scope.SYS)
    if p[0] != "fence" or p[1] in ("proxy", "mbarrier_init"):
        return None
    return scope_of(p, Scope.SYS)


def fence_sides(ins: ast.Instruction) -> tuple[bool, bool]:
    """Whether a memory fence acquires, and whether it releases: of `fence.acquire` and `fence.release` only one is so
    (PTX ISA 8.8)."""
    return "release" not in ins.parts, "acquire" not in ins.parts


def fences_shared_alone(ins: ast.Instruction) -> bool:
    """Whether a memory fence concerns shared memory alone: a release that of the thread's own block, an acquire that of
    the cluster (PTX ISA 9.7.13.4)."""
    return any(p.startswith("sync_restrict") for p in ins.parts)


def mbarrier_scope(ins: ast.Instruction) -> Scope:
    """The scope of an mbarrier arrive, test or wait; `.cta` if it names none (PTX ISA 9.7.13.15)."""
    return scope_of(ins.parts, Scope.CTA)


def fenced_spaces(ins: ast.Instruction) -> tuple[bool, bool]:
    """Whether a `fence.proxy.async` concerns shared memory, and whether global memory (PTX ISA 9.7.13.4)."""
    named = [p.removeprefix("sync_restrict::") for p in ins.parts[2:]]
    named = [p for p in named if p.startswith(("shared", "global"))]
    if not named:
        return True, True
    return any(p.startswith("shared") for p in named), any(p.startswith("global") for p in named)


def fences_own_block(ins: ast.Instruction) -> bool:
    """Whether a `fence.proxy.async` of shared memory concerns that of the thread's own block alone: "limited only to
    operations performed on objects in the state space specified", `.shared::cta` (PTX ISA 9.7.13.4)."""
    return any(p.endswith("shared::cta") for p in ins.parts[2:])


def fences_for_itself(ins: ast.Instruction) -> bool:
    """Whether a `fence.proxy.async` concerns only what its thread does afterwards: an acquire of what others have
    released. All others concern also what it publishes (PTX ISA 9.7.13.4)."""
    return "acquire" in ins.parts
