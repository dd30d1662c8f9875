# SPDX-License-Identifier: Apache-2.0
"""Loads by TMA say that what they bring is read again, so that L2 keeps it: a step as others add one."""

from __future__ import annotations

import re

from porter.lang.text import Span
from porter.passes.native.sites import Changes, Left
from porter.passes.native.taking import Taking
from porter.steps.step import Step

RULE = "ACME100"
_LOAD = re.compile(r"(cp\.async\.bulk\.tensor\.[^;]*?mbarrier::complete_tx::bytes(?:\.multicast::cluster)?)([^;]*);")
_KEPT = "0x14f0000000000000ull"
"""The policy evict_last, as createpolicy.fractional makes it for all of what is loaded."""


def _write(taking: Taking) -> None:
    changes, found = Changes(taking.port, RULE), 0
    for function in taking.port.program.functions:
        for statement in function.asm:
            source = function.file.source[statement.span.start : statement.span.end].decode()
            load = _LOAD.search(source)
            if load is None or ".L2::cache_hint" in source or statement.macro is not None:
                continue
            hinted = f"{load[1]}.L2::cache_hint{load[2]}, %{len(statement.operands)};"
            last = statement.inputs[-1].expr_node
            assert last is not None
            end = function.span(last).end + 1 - statement.span.start
            text = source[: load.start()] + hinted + source[load.end() : end] + f', "l"({_KEPT})' + source[end:]
            changes.replace(function, Span(statement.span.start, statement.span.end), text)
            found += 1
    if not found:
        kernel = taking.kernels[0].function
        raise Left(kernel, kernel.span(kernel.body), "loads by TMA in asm statements of their own")
    changes.make()


STEP = Step("l2-hint", RULE, _write, follows=("registers",))
