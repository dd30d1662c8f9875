# SPDX-License-Identifier: Apache-2.0
"""Which copies fill what MMAs read as A, and as B."""

from __future__ import annotations

import re
from collections.abc import Sequence

from porter.model.pipeline.frames import Wording
from porter.model.pipeline.operations import Operation
from porter.model.program import Program


def feeds(program: Program, multiplies: Sequence[Operation], copy: Operation, operand: str) -> bool:
    """Whether MMAs read as A, or as B, what a copy fills. `operand`: `a` or `b`."""
    base = re.match(r"[A-Za-z_][\w.>-]*", copy.to)
    if base is None:
        return False
    word = re.compile(rf"(?<![\w.]){re.escape(base[0])}(?![\w.])")
    texts = [_operand(program, o, operand) for o in multiplies]
    return bool(texts) and all(word.search(t) for t in texts)


def _operand(program: Program, operation: Operation, operand: str) -> str:
    """The descriptor of an operand, in the kernel's words."""
    site = operation.sites[-1]
    for statement in site.frame.function.asm:
        if statement.node.id != site.node.id or statement.ptx is None:
            continue
        steps = [s for p in program.statements if p.statement is statement for s in p.steps]
        texts = [getattr(s, operand, "") for s in steps if hasattr(s, "scale_d")]
        nodes = [o.expr_node for o in statement.operands if texts and " ".join(o.expr.split()) == texts[0]]
        if nodes and nodes[0] is not None:
            return Wording(program, objects=True).words(site.frame, nodes[0])
    return ""
