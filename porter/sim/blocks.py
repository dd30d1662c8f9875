# SPDX-License-Identifier: Apache-2.0
"""The blocks of a program: straight lines of instructions, how they follow each other, what lives between them.

A block ends where control may leave it, and it begins anew before an instruction that the threads of a warp execute
together or that may have to wait: such an instruction *leads* its block, so that its threads can stay there until it
may go on.
"""

from __future__ import annotations

from porter.ptx import ast
from porter.ptx.table import UNKNOWN, Completion, Decoded
from porter.sim.program import EXIT, BasicBlock, Program

_OF_PAIRS = ("tcgen05.dealloc", "tcgen05.relinquish_alloc_permit")
_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap", "brkpt"))


def leading(ins: Decoded) -> str:
    """How an instruction leads its block: not at all (""), executed by all threads of the warp, or those of its
    member mask, together ("warp"), by the four warps of a warpgroup ("group"), or such that it may have to wait."""
    form, given = ins.form, ins.modifiers
    if form.awaits is Completion.MBARRIER_TX or form.name == "tcgen05.alloc" or given.get("action") == "inc":
        return "wait"
    if form.name in _OF_PAIRS and given["cta_group"][-1] == "2":
        return "wait"
    if form.issue == "cta":
        return "wait" if "red" in given else ""
    if form.issue == "warpgroup":
        return "group" if form.completion is Completion.WGMMA_GROUP else "warp"
    return "warp" if form.issue == "warp" else ""


def _ends_block(ins: Decoded) -> bool:
    if ins.parts[0] in ("barrier", "bar"):
        return not {"warp", "arrive", "red"} & ins.modifiers.keys()
    return ins.parts[0] in _ENDS


def split(program: Program) -> None:
    """Divide the code into blocks and link them."""
    code = program.code
    targets = {at for at in program.labels.values() if at < len(code)}
    starts = {0, *targets}
    for i, ins in enumerate(code):
        if leading(ins):
            starts.add(i)
        if _ends_block(ins):
            starts.add(i + 1)
    order = sorted(s for s in starts if s < len(code))
    for number, start in enumerate(order):
        end = order[number + 1] if number + 1 < len(order) else len(code)
        program.blocks.append(BasicBlock(number, start, end, leading(code[start]), start in targets))
        program.block_at[start] = number
    for b in program.blocks:
        last = code[b.end - 1]
        following = b.number + 1 if b.number + 1 < len(program.blocks) else EXIT
        head = last.parts[0]
        if head in ("bra", "brx") and last.form is UNKNOWN:
            raise ValueError(f"a branch that cannot be followed: {last.opcode} (PTX line {last.line})")
        if head == "bra":
            name = last["target"]
            assert isinstance(name, ast.Sym)
            if name.name not in program.labels:
                raise ValueError(f"branch to unknown label {name.name} (PTX line {last.line})")
            target = program.block_of_label(name.name)
            b.succ = (target,) if last.guard is None else (target, following)
        elif head == "brx":
            table = last["targets"]
            assert isinstance(table, ast.Sym)
            if any(t not in program.labels for t in program.tables.get(table.name, ("",))):
                raise ValueError(f"branch to an unknown label of {table.name} (PTX line {last.line})")
            b.succ = tuple(program.block_of_label(t) for t in program.tables[table.name])
            if last.guard is not None:
                b.succ += (following,)
        elif head in ("ret", "exit", "trap"):
            b.succ = (EXIT,) if last.guard is None else (EXIT, following)
        else:
            b.succ = (following,)


def liveness(program: Program) -> None:
    """Registers live into and out of each block, a bit for each of those that live beyond a block at all."""
    gen: list[set[str]] = []
    kill: list[set[str]] = []
    for b in program.blocks:
        g: set[str] = set()
        k: set[str] = set()
        for ins in program.code[b.start : b.end]:
            g.update(u for u in ins.uses if u not in k)
            k.update(ins.writes)
        gen.append(g)
        kill.append(k)
    program.live_names = tuple(sorted(set().union(*gen)))
    bit = {name: 1 << i for i, name in enumerate(program.live_names)}
    # A function has registers of its own: those of a caller live past the call, not through the function.
    following: list[tuple[int, ...]] = []
    preds: list[list[int]] = [[] for _ in program.blocks]
    for b in program.blocks:
        after = program.calls.get(b.end - 1)
        succ = b.succ if after is None else (*b.succ, program.block_of_label(after))
        following.append(() if b.end - 1 in program.backs else tuple(s for s in succ if s != EXIT))
        for s in following[-1]:
            preds[s].append(b.number)
        b.live_in = sum(bit[name] for name in gen[b.number])
    kept = [~sum(bit.get(name, 0) for name in killed) for killed in kill]
    work = list(range(len(gen)))
    queued = [True] * len(gen)
    while work:
        n = work.pop()
        queued[n] = False
        b, out = program.blocks[n], 0
        for s in following[n]:
            out |= program.blocks[s].live_in
        b.live_out = out
        new = b.live_in | (out & kept[n])
        if new != b.live_in:
            b.live_in = new
            for q in preds[n]:
                if not queued[q]:
                    queued[q] = True
                    work.append(q)
