# SPDX-License-Identifier: Apache-2.0
"""Control flow, the stack and the rest: PTX ISA 9.0, sections 9.7.12, 9.7.17 and 9.7.19."""

from __future__ import annotations

from porter.ptx.forms.grammar import Form, form

_SETMAXNREG = "sm_90a@8.0 sm_100a@8.6 sm_101a@8.6 sm_120a@8.7 sm_100f@8.8 sm_101f@8.8 sm_120f@8.8 sm_110f@9.0"

FORMS: tuple[Form, ...] = (
    form("bra.uni?", "target:label", "9.7.12.3"),
    form("brx.idx.uni?", "index:u32, targets:label", "9.7.12.4"),
    form("call.uni?", "=results:list?, target:callee, arguments:list?, candidates:label?", "9.7.12.5"),
    form("ret.uni?", "", "9.7.12.6"),
    form("exit", "", "9.7.12.7"),
    form("stacksave.<type:u32|u64>", "=d:type", "9.7.17.1", "sm_52@7.3"),
    form("stackrestore.<type:u32|u64>", "a:type", "9.7.17.2", "sm_52@7.3"),
    form("alloca.<type:u32|u64>", "=ptr:type, size:type, align:imm?", "9.7.17.3", "sm_52@7.3"),
    form("brkpt", "", "9.7.19.1"),
    form("nanosleep.u32", "t:u32", "9.7.19.2", "sm_70@6.3"),
    form("pmevent", "event:imm(0..15)", "9.7.19.3"),
    form("pmevent.mask", "mask:imm", "9.7.19.3"),
    form("trap", "", "9.7.19.4"),
    form(
        "setmaxnreg.<action:inc|dec>.sync.aligned.u32",
        "count:imm(24|32|40|48|56|64|72|80|88|96|104|112|120|128|136|144|152|160|168|176|184|192|200|208|216|224|232"
        "|240|248|256)",
        "9.7.19.5",
        _SETMAXNREG,
        issue="warpgroup",
    ),
)
