# SPDX-License-Identifier: Apache-2.0
"""st.async and red.async: stores to shared memory of the cluster that complete on an mbarrier there (PTX ISA
9.7.9.12, 9.7.13.7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.table import Decoded
from porter.sim.bulk_operands import AsyncStoreForm, AsyncStoreOperands
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import WIDTH_OF, kind_of
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.reduction import combine
from porter.sim.results import Stop
from porter.sim.threads import Signal

Array = npt.NDArray[Any]


@runtime
def store_async(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: AsyncStoreForm, operands: AsyncStoreOperands
) -> None:
    for store in operands.threads(M, at, idx, n, mask, form):
        nbytes = store.data.nbytes
        owner, offset = store.target()
        signal = store.signal()
        effect = None
        if M.observer is not None:
            # A store may go to the own block if there are others, a reduction may not.
            if owner == store.by.cta and (form.how or M.cluster_size == 1):
                M.observer.tolerates("A3", at, np.array([store.by.warp]))
            effect = store.by.copy_in([owner], [signal], offset, nbytes, reduces=bool(form.how), stored=True)
            M.observer.issues(effect)
        if offset % nbytes:
            what = f"shared address {offset:#x} is not a multiple of {nbytes}"
            raise Stop(Code.SIM_MISALIGNED, what, at, store.by.warp, store.by.lane)

        def land(owner: int = owner, offset: int = offset, data: Array = store.data, signal: Signal = signal) -> None:
            place = M.smem[owner, offset : offset + data.nbytes].view(data.dtype)
            if form.how:
                place[:] = combine(place.copy(), data, None, form.how, form.kind)
            else:
                place[:] = data
            M.mbar.complete_tx(signal[0], signal[1], data.nbytes)

        M.engine.issue(Operation(at, store.by.warp, land, keys=[("mbar", *signal)], effect=effect))


@emits("st.async", "red.async")
def _store_async(cg: Context, ins: Decoded) -> None:
    type_name = ins.type("b")
    item = WIDTH_OF[kind_of(type_name)] // 8
    values = cg.tuple_of(ins["b"], f"u{item * 8}")
    form = AsyncStoreForm(item, ins.modifiers.get("op", ""), type_name)
    operands = f"AsyncStoreOperands({cg.get('a')}, {values}, {cg.get('mbar')})"
    cg.line(cg.call("store_async", cg.constant("form", form), operands))
