# SPDX-License-Identifier: Apache-2.0
"""The rules for global memory: is the second of two accesses ordered after the first (PTX ISA 8, 9.7.9.25)."""

from __future__ import annotations

from dataclasses import replace

from porter.ptx.memory_order import Scope
from porter.sim.check.clocks import CARRIED, GLOBAL, ORDER
from porter.sim.check.flags import FlagUser
from porter.sim.check.global_shadow import GlobalAccess, GlobalState
from porter.sim.check.judge import Verdict, waits_for_group
from porter.sim.check.rulings import Ruling

_WAIT_FOR_GRIDS = "griddepcontrol.wait before the access"
_PROXY = "fence.proxy.async between the threads' accesses and the synchronization"


class GlobalJudge:
    """Of accesses whose shadow is `state`."""

    def __init__(self, users: FlagUser, state: GlobalState) -> None:
        self.users = users
        self.state = state
        self.clocks = users.clocks
        self.imports = users.imports
        # Whether what only practice takes for ordered counts.
        self._lenient = False

    def knows(self, warp: int, view: int, old: GlobalAccess) -> bool:
        cluster = old.wave.cluster(old.warp)
        if self._lenient and self.users.lenient.knows(warp, view, cluster, old.done):
            return True
        if cluster == self.imports.cluster(warp):
            return self.clocks.knows(warp, view, old.done)
        return self.imports.knows(warp, view, cluster, old.done)

    def judge(self, old: GlobalAccess, new: GlobalAccess, same_value: bool = False) -> Verdict | None:
        """`same_value`: both write what is there already."""
        verdict = self._judge(old, new, same_value)
        if verdict is None or verdict.ruling is not None or not self.users.lenient.versions:
            return verdict
        self._lenient = True
        milder = self._judge(old, new, same_value)
        self._lenient = False
        return Verdict(verdict.id, *_OWN_FENCE, Ruling.FENCE_BEFORE_BARRIER) if milder is None else milder

    def _judge(self, old: GlobalAccess, new: GlobalAccess, same_value: bool) -> Verdict | None:
        if old.wave.grid != new.wave.grid:
            return self._between_grids(old, new)
        if old.proxy == "generic" and new.proxy == "generic":
            return self._generic(old, new, same_value)
        if new.proxy == "tensormap":
            return self._tensor_map(old, new)
        if old.proxy == "generic":
            return self._generic_then_async(old, new)
        if (old.atomic and new.atomic) or self.knows(new.warp, ORDER, old):
            return None
        if old.proxy == "tensormap":
            missing = "completion of the copy that uses the map, ahead of the change"
            settled = self.knows(new.warp, ORDER, replace(old, done=old.settled))
            return Verdict("G6", missing, _WAITS, Ruling.MAP_IN_FLIGHT if settled else None)
        return self._after_async(old, new)

    # Grids --------------------------------------------------------------------------------------------

    def wait_for_grids(self, warp: int) -> None:
        """griddepcontrol.wait: all of the prerequisite grids is over, whatever proved it there."""
        self.clocks.state[warp, :CARRIED, self.clocks.component("grids")] = 1

    def _between_grids(self, old: GlobalAccess, new: GlobalAccess) -> Verdict | None:
        """The prerequisite grid's access, and one of the grid that depends on it."""
        if self.clocks.knows(new.warp, ORDER, [(self.clocks.component("grids"), 1)]):
            return None
        if old.order.strong and new.order.strong and min(old.order.scope, new.order.scope) >= Scope.GPU:
            return None
        if not self.state.follows_end:
            return Verdict("G9", _WAIT_FOR_GRIDS, "griddepcontrol.wait")
        if old.wave.grid + 1 < new.wave.grid:
            return None
        return Verdict("G9", _WAIT_FOR_GRIDS, "griddepcontrol.wait", Ruling.IMPLICIT_TRIGGER)

    # Threads ------------------------------------------------------------------------------------------

    def _generic(self, old: GlobalAccess, new: GlobalAccess, same_value: bool) -> Verdict | None:
        needed = self.users.needed(new.warp, old.wave.block(old.warp))
        if old.order.strong and new.order.strong:
            scope = min(old.order.scope, new.order.scope)
            if needed <= scope or self.knows(new.warp, ORDER, old):
                return None
            missing = f"a scope that takes in both threads: {needed.suffix}, not {scope.suffix}"
            return Verdict("G3", missing, f"the scope {needed.suffix} on both")
        if self.knows(new.warp, ORDER, old):
            if new.order.constant and old.write:
                return Verdict(
                    "G7", "a coherent load of what this kernel writes", "ld.global without .nc", Ruling.READ_ONLY_LOAD
                )
            return None
        if old.kind == "cp.async":
            return self._after_async(old, new)
        narrow = self._too_narrow(old, new)
        if narrow is not None:
            return narrow
        # A flag that one side reads or writes with an ordinary access, or that all set to the same value.
        benign = old.order.strong != new.order.strong or same_value
        return Verdict("G2", *_synchronization(needed), Ruling.BENIGN_RACE if benign else None)

    def _too_narrow(self, old: GlobalAccess, new: GlobalAccess) -> Verdict | None:
        """A release that would have told the block, had its scope or the acquire's been wide enough."""
        cluster = old.wave.cluster(old.warp)
        first = new.warp // self.users.per_block * self.users.per_block
        for known, needed in self.users.missed(first, self.users.per_block):
            rows = known.get(cluster)
            if rows is not None and any(c < rows.shape[1] and rows[ORDER, c] >= v for c, v in old.done):
                missing = f"a scope of the flag's release and acquire that takes in both threads: {needed.suffix}"
                return Verdict("G3", missing, f"the scope {needed.suffix} on release and acquire, fences included")
        return None

    # Bulk copies --------------------------------------------------------------------------------------

    def _generic_then_async(self, old: GlobalAccess, new: GlobalAccess) -> Verdict | None:
        if old.atomic and new.atomic:
            return None
        if not self.knows(new.warp, ORDER, old):
            needed = self.users.needed(new.warp, old.wave.block(old.warp))
            missing, remedy = _synchronization(needed)
            return Verdict("G4", missing, f"fence.proxy.async, then {remedy}")
        if self.knows(new.warp, GLOBAL, old):
            return None
        # What threads only read needs the fence by the letter alone.
        return Verdict("G4", _PROXY, "fence.proxy.async", None if old.write else Ruling.PROXY_FENCE)

    def _after_async(self, old: GlobalAccess, new: GlobalAccess) -> Verdict:
        if old.done:
            needed = self.users.needed(new.warp, old.wave.block(old.warp))
            if old.kind == "copy":
                return Verdict("G5", f"a wait on the mbarrier of the copy{old.signals}", "mbarrier.try_wait")
            missing, remedy = _synchronization(needed)
            return Verdict("G5", f"{missing}, after the wait for the copy", remedy)
        if old.kind == "copy":
            return Verdict("G5", f"a wait on the mbarrier of the copy{old.signals}", "mbarrier.try_wait")
        if old.kind == "cp.async":
            missing = "a wait for the copy by the thread that issued it"
            return Verdict("G5", *waits_for_group(old, "cp.async.wait_group", missing))
        if old.operands is not None and old.operands == new.operands and not (old.atomic or new.atomic):
            # CuTe DSL lets a whole warp store a tile that one thread should: the same bytes from the same place.
            return Verdict("G5", "one thread that stores for the warp", "elect.sync", Ruling.SAME_BYTES)
        missing = "a bulk wait_group (without .read) by the thread of the first access"
        return Verdict("G5", *waits_for_group(old, "cp.async.bulk.wait_group", missing))

    def _tensor_map(self, old: GlobalAccess, new: GlobalAccess) -> Verdict | None:
        if not self.knows(new.warp, ORDER, old):
            needed = self.users.needed(new.warp, old.wave.block(old.warp))
            missing, remedy = _synchronization(needed)
            return Verdict("G6", missing, remedy)
        for cluster, event in old.mapped or ():
            if cluster == self.imports.cluster(new.warp):
                fenced = self.clocks.knows(new.warp, ORDER, [event])
            else:
                fenced = self.imports.knows(new.warp, ORDER, cluster, [event])
            if fenced:
                return self._released(old)
        missing = "fence.proxy.tensormap::generic.acquire of the map after the synchronization"
        return Verdict("G6", missing, "fence.proxy.tensormap::generic.acquire.gpu [map], 128")

    def _released(self, old: GlobalAccess) -> Verdict | None:
        """The writer's side of the tensor map proxy; in practice the acquire is enough."""
        if self.state.released.get(old.actor, 0) >= old.done[0][1]:
            return None
        missing = "fence.proxy.tensormap::generic.release after the change, ahead of the synchronization"
        return Verdict("G6", missing, "fence.proxy.tensormap::generic.release.gpu", Ruling.TENSORMAP_RELEASE)


_WAITS = "mbarrier.try_wait, or cp.async.bulk.wait_group.read for a store"
_OWN_FENCE = (
    "fences of the atomic's thread: behind the barrier ahead of the atomic, and behind the atomic",
    "__threadfence (fence.acq_rel.gpu) next to the atomic, in its thread",
)


def _synchronization(needed: Scope) -> tuple[str, str]:
    """The missing edge and what supplies it, between threads that a scope takes in."""
    if needed is Scope.CTA:
        return "synchronization between the two warps", "bar.sync, or an mbarrier arrive and wait"
    if needed is Scope.CLUSTER:
        return "synchronization between the two blocks of the cluster", "barrier.cluster.arrive and .wait"
    return (
        "synchronization between the two blocks",
        "fence.acq_rel.gpu and an atomic (or st.release.gpu) after the first, ld.acquire.gpu of it before the second",
    )
