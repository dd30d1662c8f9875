# SPDX-License-Identifier: Apache-2.0
"""Tensor copies of a CTA pair: `cp.async.bulk.tensor` with `.cta_group::2`.

With the qualifier the bytes that go to a CTA count on the mbarrier of the even or the odd CTA of its pair, as
the mbarrier's address says (PTX ISA 9.0 §9.7.9.25.5.2). Hopper's TMA signals the CTA that the bytes go to.
A copy to CTAs whose own mbarrier is meant stays as it is; for the others it completes on an mbarrier of the
library in each of them, from where threads that poll pass the bytes on.
"""

from __future__ import annotations

from porter.hopper.emit import Sequel, instruction
from porter.hopper.tensor_memory import NotEmulated
from porter.ptx.ast import (
    Block,
    Guard,
    Imm,
    Instruction,
    Mem,
    Module,
    Operand,
    Reg,
    RegDecl,
    SpecialReg,
    Statement,
    Sym,
    VarDecl,
)
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT


def is_used(module: Module) -> bool:
    """Whether CTAs of the module work in pairs."""

    def used(body: tuple[Statement, ...]) -> bool:
        for statement in body:
            if isinstance(statement, Instruction) and "cta_group::2" in statement.parts:
                return True
            if isinstance(statement, Block) and used(statement.body):
                return True
        return False

    return any(used(f.body) for f in module.functions if f.body is not None)


def begin(body: tuple[Statement, ...], sequel: Sequel) -> tuple[Statement, ...]:
    """A kernel's body that first prepares the mbarriers of the library."""
    sequel.call("porter_pair_begin", [])
    at = next((i for i, s in enumerate(body) if not isinstance(s, (RegDecl, VarDecl))), len(body))
    return (*body[:at], sequel.block(None), *body[at:])


def copy(found: Instruction, sequel: Sequel, site: Imm) -> None:
    """Append what takes the place of a tensor copy to shared memory with `.cta_group::2`.

    Raises:
        NotEmulated: it is not in tiled mode.
    """
    special = [p for p in found.parts if p.startswith(("im2col", "tile::"))]
    if special:
        raise NotEmulated(f"copies of a CTA pair with .{special[0]} are not emulated")
    multicast = "multicast::cluster" in found.parts
    parts = ["shared::cluster" if p == "shared::cta" else p for p in found.parts if p != "cta_group::2"]
    if not multicast:
        parts.insert(parts.index("mbarrier::complete_tx::bytes") + 1, "multicast::cluster")
    to, source, barrier, *rest = found.operands
    if not isinstance(source, Mem):
        raise NotEmulated("a tensor copy without coordinates is not emulated")
    own = sequel.value(SpecialReg("cluster_ctarank"), "b32")
    there, signal = sequel.address(to, "b32"), sequel.address(barrier, "b32")
    mask = sequel.temporary("b32")
    if multicast:
        sequel.add("cvt.u32.u16", mask, rest.pop(0))
    else:
        rank = sequel.temporary("b32")
        sequel.add("shr.u32", rank, there, Imm(RANK_SHIFT))
        one = sequel.temporary("b32")
        sequel.add("mov.u32", one, Imm(1))
        sequel.add("shl.b32", mask, one, rank)
    direct = sequel.call("porter_pair_direct", [("b32", signal), ("b32", mask)], "b32")
    others = sequel.temporary("b32")
    assert direct is not None
    sequel.add("xor.b32", others, mask, direct)

    def emit(targets: Reg, completes_on: Operand) -> None:
        """The same copy by multicast, of which all addresses are offsets in the issuing CTA."""
        narrow = sequel.temporary("b16")
        sequel.add("cvt.u16.u32", narrow, targets)
        operands = [Mem(_at_home(sequel, there, own)), source, Mem(completes_on), narrow, *rest]
        sequel.body.append(instruction(".".join(parts), *operands))

    for targets in (direct, others):
        none, over = sequel.temporary("pred"), sequel.label()
        sequel.add("setp.eq.u32", none, targets, Imm(0))
        sequel.add("bra", Sym(over), guard=Guard(none))
        if targets is direct:
            emit(targets, _at_home(sequel, signal, own))
        else:
            tensor_map = sequel.address(Mem(source.base, source.offset), "b64")
            arguments = [("b32", signal), ("b32", targets), ("b64", tensor_map), ("b32", site)]
            landed = sequel.call("porter_pair_copy", arguments, "b32")
            assert landed is not None
            emit(targets, landed)
        sequel.place(over)


def _at_home(sequel: Sequel, address: Operand, rank: Operand) -> Reg:
    """The address of the same offset in the issuing CTA."""
    offset, result = sequel.temporary("b32"), sequel.temporary("b32")
    sequel.add("and.b32", offset, address, Imm(OFFSET_MASK))
    sequel.add("mapa.shared::cluster.u32", result, offset, rank)
    return result
