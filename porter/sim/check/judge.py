# SPDX-License-Identifier: Apache-2.0
"""The rules: is the second of two accesses to the same place ordered after the first, and if not, what is
missing (PTX ISA 9.7.16.6, 9.7.9.25, 8.10)."""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.memory_order import Scope
from porter.ptx.tensor_order import HAZARDS, PIPELINED, PIPELINED_IN_PRACTICE
from porter.sim.check.clocks import EXACT, EXEC, ORDER, PARKED, TENSOR, Clocks
from porter.sim.check.global_shadow import GlobalAccess
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access

_BEFORE = "tcgen05.fence::before_thread_sync after the first access, ahead of the synchronization"
_AFTER = "tcgen05.fence::after_thread_sync between the synchronization and the second access"
_PROXY = "fence.proxy.async between the threads' accesses and the synchronization", "fence.proxy.async"
_OTHER_BLOCK = (
    "fence.proxy.async that takes in the other block's shared memory, which that of .shared::cta does not",
    "fence.proxy.async.shared::cluster, or the fence by a thread of that block behind the synchronization",
)


@dataclass
class Batch:
    """What a commit closed: where its mbarrier is, the warps of the warpgroup that issued it, and where one of them has
    last waited."""

    place: str
    warpgroup: range
    waited: int | None = None


@dataclass(frozen=True)
class Verdict:
    """An ordering that is missing. `ruling`: only the letter of the ISA asks for it, and that one tolerates it in
    practice; `doubtful`: the ISA does not say, so that it is to review at strict level and passed over in practice."""

    id: str
    missing: str
    remedy: str
    ruling: Ruling | None = None
    doubtful: bool = False


def race_name(old: Access | GlobalAccess | None, new: Access | GlobalAccess) -> str:
    """Empty where it is no matter of data."""
    if old is None or new.kind in ("dealloc", "use of the mbarrier", "setmaxnreg") or old.kind == "alloc":
        return ""
    if new.kind == "register":
        return "RAW"
    return {(True, True): "WAW", (True, False): "RAW", (False, True): "WAR"}[old.write, new.write]


# Tensor Memory ------------------------------------------------------------------------------------------


def judge_tensor(clocks: Clocks, old: Access, new: Access) -> Verdict | None:
    """Accesses to the same Tensor Memory cells; `new.kind` is ld, st, mma, cp, shift or dealloc."""
    warp = new.warp
    if old.kind == "alloc":
        if not clocks.knows(warp, EXEC, old.done):
            return Verdict("H15", "synchronization with the warp that allocates", "bar.sync after tcgen05.alloc")
        # tcgen05.dealloc is synchronous like tcgen05.alloc; the others may overtake the synchronization.
        if old.warp == warp or new.kind == "dealloc" or clocks.knows(warp, TENSOR, old.done):
            return None
        return Verdict("H15", _AFTER, "tcgen05.fence::after_thread_sync", Ruling.THREAD_SYNC_FENCE)
    keeps = _keeps_order(old, new)
    if keeps and (old.warp, old.lane) == (new.warp, new.lane):
        return None
    id = "H14" if new.kind == "dealloc" else HAZARDS[old.kind, new.kind]
    if id == "H7" and keeps:
        id = "H8"
    by_issue = [*old.done, old.issue] if keeps else old.done
    own = old.warp == warp
    if own and old.kind in ("ld", "st") and old.done:
        return None
    if not clocks.knows(warp, EXEC, by_issue):
        same_thread = (old.warp, old.lane) == (new.warp, new.lane)
        # The tensor core takes MMAs in the order of their issue: one may overwrite what an earlier one reads.
        overwrites = same_thread and old.kind == new.kind == "mma" and not old.write
        ruling = Ruling.TENSOR_PIPELINE if overwrites or (old.kind, new.kind) in PIPELINED_IN_PRACTICE else None
        return Verdict(id, *_tensor_edge(clocks, old, new, keeps), ruling)
    if clocks.knows(warp, TENSOR, by_issue):
        return None
    if clocks.knows(warp, PARKED, by_issue):
        return Verdict(id, _AFTER, "tcgen05.fence::after_thread_sync", Ruling.THREAD_SYNC_FENCE)
    return Verdict(id, _BEFORE, "tcgen05.fence::before_thread_sync", Ruling.THREAD_SYNC_FENCE)


def _keeps_order(old: Access, new: Access) -> bool:
    """Pairs that stay in order without completion (facts: PTX ISA 9.7.16.6.2)."""
    if old.kind == "mma" and new.kind == "mma":
        return old.pair is not None and old.pair == new.pair
    return (old.kind, new.kind) in PIPELINED


def _tensor_edge(clocks: Clocks, old: Access, new: Access, keeps: bool) -> tuple[str, str]:
    if old.kind in ("ld", "st") and not old.done:
        wait = f"tcgen05.wait::{old.kind}"
        return f"{wait} by the warp of the first access", f"{wait}.sync.aligned"
    if old.kind in ("ld", "st") or keeps:
        return "synchronization between the two warps", "bar.sync, or an mbarrier arrive and wait"
    return _completion(clocks, old)


_COMMITS = {
    "wgmma": ("wgmma.commit_group", "warp"),
    "store": ("cp.async.bulk.commit_group", "thread"),
    "cp.async": ("cp.async.commit_group", "thread"),
}
"""What makes groups of operations whose completion nothing else tells, and whose groups they are."""


def _completion(clocks: Clocks, old: Access) -> tuple[str, str]:
    """Completion of an MMA or copy that a commit has to report."""
    batch = old.notes.get("committed")
    if batch is None:
        return "a tcgen05.commit after the first access, by the same thread", "tcgen05.commit"
    return f"a wait on the mbarrier that the commit arrives on ({batch.place})", "mbarrier.try_wait"


def waited_at(old: Access | GlobalAccess | None) -> int | None:
    """The instruction at which the warpgroup that issued an MMA has last waited for it."""
    if not isinstance(old, Access):
        return None
    batch = old.notes.get("committed")
    found: int | None = old.notes.get("waited") if batch is None else batch.waited
    return found


def waits_for_group(old: Access | GlobalAccess, wait: str, missing: str) -> tuple[str, str]:
    """What is missing for the completion of what completes with its group, and what supplies it: a wait or, for what is
    in no group, the commit, without which no wait is for it."""
    if old.grouped:
        return missing, wait
    commit, who = _COMMITS.get(old.kind, _COMMITS["store"])
    return f"a {commit} after the first access and ahead of the wait, by the same {who}", commit


def before_the_end(clocks: Clocks, old: Access) -> str:
    """What would have waited for an operation before its block ends."""
    if old.kind in ("mma", "cp", "shift"):
        return f"{_completion(clocks, old)[1]}, and a wait on its mbarrier"
    if old.kind in _COMMITS and not old.grouped and "sent" not in old.notes:
        return f"{_COMMITS[old.kind][0]}, and a wait for the group"
    waits = {
        "wgmma": "wgmma.wait_group",
        "store": "mbarrier.try_wait" if "sent" in old.notes else "cp.async.bulk.wait_group",
        "copy": "mbarrier.try_wait",
        "reduction": "mbarrier.try_wait",
    }
    return waits.get(old.kind, "barrier.cluster, or a wait on the operation's mbarrier")


AFTER_WAIT_GROUP = "synchronization after the wgmma.wait_group"
AFTER_COMMIT = "synchronization after the wait on the commit's mbarrier"
"""What other threads lack where all of the issuer's warpgroup have waited."""


# Shared memory ------------------------------------------------------------------------------------------

_TENSOR_CORE = frozenset(("mma", "cp", "wgmma"))


def judge_shared(
    clocks: Clocks, old: Access, new: Access, peer: bool, same_block: bool = True, block: int = 0
) -> Verdict | None:
    """Accesses to the same bytes of the shared memory of the `block` with this rank. `peer`: of a block other than the
    new access's own; `same_block`: by threads of one block."""
    warp = new.warp
    if old.kind == new.kind == "reduction":
        # Each is one relaxed access.
        return None
    if old.proxy == "generic":
        if new.proxy == "generic":
            if clocks.knows(warp, ORDER, old.done):
                return None if _all_lanes(clocks, old, new) else Verdict("G1", *_LANES, Ruling.ONE_LANE)
            if old.scope is not None and new.scope is not None:
                return _strong(old.scope, new.scope, same_block)
            if old.kind == "cp.async":
                return _after_async(clocks, old, new, peer)
            if old.item == new.item == 1:
                # Neighbouring bytes of one granule.
                return None
            id = "H15" if old.kind == "alloc" else "G1"
            remedy = "bar.sync, or an mbarrier arrive and wait" if same_block else "barrier.cluster.arrive and .wait"
            flag = (old.scope is None) != (new.scope is None)
            ruling = Ruling.SHARED_FLAG if flag else None
            if old.kind == "alloc" and clocks.knows(warp, EXEC, old.done):
                ruling = Ruling.ALLOCATED_WORD
            return Verdict(id, "synchronization between the two warps", remedy, ruling)
        return _generic_then_async(clocks, old, new, block)
    if clocks.knows(warp, ORDER, old.done):
        return None
    return _after_async(clocks, old, new, peer)


_LANES = "synchronization of the first access's warp before one of its lanes arrives", "bar.warp.sync"


def _all_lanes(clocks: Clocks, old: Access, new: Access) -> bool:
    """Whether also the lanes other than those that arrived are known to be done."""
    return old.warp == new.warp or clocks.knows(new.warp, EXACT, old.done)


def _strong(one: Scope, other: Scope, same_block: bool) -> Verdict | None:
    """Strong accesses do not race if each one's scope takes in the other's thread."""
    needed, scope = Scope.CTA if same_block else Scope.CLUSTER, min(one, other)
    if needed <= scope:
        return None
    missing = f"a scope that takes in both threads: {needed.suffix}, not {scope.suffix}"
    return Verdict("G3", missing, f"the scope {needed.suffix} on both")


def _generic_then_async(clocks: Clocks, old: Access, new: Access, block: int) -> Verdict | None:
    warp = new.warp
    if new.kind == "store":
        id = "H27"
    elif new.kind in _TENSOR_CORE:
        id = "H16"
    else:
        id = "H20"
    known = clocks.knows(warp, ORDER, old.done)
    if not known and old.kind == "cp.async":
        return _after_async(clocks, old, new, False)
    if not known:
        remedy = "fence.proxy.async, then bar.sync or an mbarrier arrive and wait" if old.write else "mbarrier.arrive"
        return Verdict(id, "synchronization of the threads' accesses with the issue", remedy)
    if not _all_lanes(clocks, old, new):
        return Verdict(id, *_LANES, Ruling.ONE_LANE)
    if clocks.fenced_for(warp, old.done, block):
        return None
    edge = _OTHER_BLOCK if clocks.fenced_in_a_block(warp, old.done) else _PROXY
    if new.notes.get("stored"):
        return Verdict(id, *edge, Ruling.STORE_ASYNC, doubtful=True)
    # NVIDIA's tutorials have only the barrier between stores and the MMA; nobody omits the fence of a bulk store.
    return Verdict(id, *edge, None if id == "H27" else Ruling.PROXY_FENCE)


def _after_async(clocks: Clocks, old: Access, new: Access, peer: bool) -> Verdict:
    if old.kind in ("mma", "cp", "shift"):
        id = "H18" if new.proxy == "async" else "H19"
        batch = old.notes.get("committed")
        if batch is not None and all(clocks.knows(warp, EXEC, old.done) for warp in batch.warpgroup):
            return Verdict(id, AFTER_COMMIT, "mbarrier.arrive, or bar.sync")
        return Verdict(id, *_completion(clocks, old))
    if old.kind == "wgmma":
        id = "H18" if new.proxy == "async" else "H19"
        if not old.done:
            missing = "a wgmma.wait_group that covers the first access"
            return Verdict(id, *waits_for_group(old, "wgmma.wait_group", missing))
        return Verdict(id, AFTER_WAIT_GROUP, "mbarrier.arrive, or bar.sync")
    if old.kind == "store" and "sent" not in old.notes:
        if not old.done:
            missing = "a bulk wait_group.read by the thread of the first access"
            return Verdict("H27", *waits_for_group(old, "cp.async.bulk.wait_group.read", missing))
        return Verdict("H27", "synchronization after the bulk wait_group", "bar.sync")
    if old.kind == "cp.async":
        if not old.done:
            missing = "a wait for the copy by the thread that issued it"
            return Verdict("H17", *waits_for_group(old, "cp.async.wait_group", missing))
        return Verdict("H17", "synchronization after the wait for the copy", "bar.sync")
    barrier = old.notes.get("signals")
    where = f" ({barrier})" if barrier else ""
    id = "H27" if old.kind == "store" else "H25" if peer and new.kind in _TENSOR_CORE else "H17"
    return Verdict(id, f"a wait on the mbarrier that the copy completes on{where}", "mbarrier.try_wait")
