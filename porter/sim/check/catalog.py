# SPDX-License-Identifier: Apache-2.0
"""The kinds of hazards, with the rule that each one breaks.

A kind is an *error* when no reading of the PTX ISA allows it, and *strict* when the ISA asks for an
instruction that code in circulation leaves out (NVIDIA's CuTe headers emit no `tcgen05.fence` at all).
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.diagnostics import Code


@dataclass(frozen=True)
class HazardKind:
    """`rule` is what has to stand between the two accesses; `source` is where the ISA says so."""

    id: str
    code: Code
    title: str
    rule: str
    source: str


def _kinds(code: Code, *rows: tuple[str, str, str, str]) -> dict[str, HazardKind]:
    return {id: HazardKind(id, code, title, rule, source) for id, title, rule, source in rows}


KINDS: dict[str, HazardKind] = {
    **_kinds(
        Code.HAZARD_TENSOR_MEMORY,
        ("H1", "tcgen05.ld of cells that a tcgen05.mma writes",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.4.2"),
        ("H2", "tcgen05.st to cells that a tcgen05.mma uses",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.4.2"),
        ("H3", "tcgen05.mma overwriting cells that a tcgen05.ld reads",
         "wait::ld, fence::before_thread_sync, a barrier, fence::after_thread_sync", "PTX ISA 9.7.16.8.5"),
        ("H4", "tcgen05.mma using cells that a tcgen05.st writes",
         "wait::st, fence::before_thread_sync, a barrier, fence::after_thread_sync", "PTX ISA 9.7.16.8.5"),
        ("H5", "tcgen05 access to cells that a tcgen05.st writes", "wait::st", "PTX ISA 9.7.16.6.4.2"),
        ("H6", "tcgen05.st to cells that a tcgen05.ld reads", "wait::ld", "PTX ISA 9.7.16.6.4.5"),
        ("H7", "two tcgen05.mma with different accumulators or shapes on the same cells",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.2"),
        ("H8", "tcgen05.mma of two threads on one accumulator",
         "fence::before_thread_sync, a barrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.2"),
        ("H9", "tcgen05.mma of one thread using cells that another thread's tcgen05.cp or tcgen05.shift writes",
         "fence::before_thread_sync, a barrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.4.3"),
        ("H10", "tcgen05.cp overwriting cells that a tcgen05 operation still uses",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.2"),
        ("H11", "tcgen05 access to cells that a tcgen05.cp writes",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.2"),
        ("H13", "tcgen05 access to cells that a tcgen05.shift moves",
         "commit, wait on its mbarrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.2"),
        ("H12", "two tcgen05.cp to the same cells", "commit, wait on its mbarrier", "PTX ISA 9.7.16.6.2"),
        ("H31", "result of a tcgen05.ld used before tcgen05.wait::ld", "wait::ld", "PTX ISA 9.7.16.6.4.5"),
        ("A2", "Tensor Memory address with a lane beyond 127", "the lane within the block's own Tensor Memory",
         "PTX ISA 9.7.16.1"),
        ("A4", "tcgen05.ld or tcgen05.st whose address names lanes of another warp",
         "(warp % 4 * 32) << 16 added to the address", "PTX ISA 9.7.16.8.1"),
        ("U2", "read of Tensor Memory that was never written", "a store or an MMA that does not accumulate",
         "PTX ISA 9.7.16.1"),
    ),
    **_kinds(
        Code.HAZARD_TENSOR_LIFETIME,
        ("H14", "tcgen05.dealloc of columns still in use",
         "completion of every access, fence::before_thread_sync, a barrier, fence::after_thread_sync",
         "PTX ISA 9.7.16.7"),
        ("H15", "use of what tcgen05.alloc gives before it is published",
         "a barrier, fence::after_thread_sync", "PTX ISA 9.7.16.6.1, 9.7.16.6.3, 9.7.16.7"),
        ("L1", "tcgen05.alloc of a pair while the peer block may not have been launched",
         "synchronization with the peer block before the allocation", "PTX ISA 9.7.16.7.1"),
        ("L2", "tcgen05.dealloc of a pair without synchronization with the peer block",
         "a barrier of the pair after both allocations and all accesses", "PTX ISA 9.7.16.5, 9.7.16.7.1"),
        ("L3", "tcgen05.relinquish_alloc_permit that an allocation may come after",
         "a barrier between tcgen05.alloc and tcgen05.relinquish_alloc_permit", "PTX ISA 9.7.16.7.1"),
        ("L4", "tcgen05.alloc of more columns than the block's allocation before",
         "allocations in an order in which they do not grow", "PTX ISA 9.7.16.7.1"),
    ),
    **_kinds(
        Code.HAZARD_OPERAND,
        ("H16", "tensor core operand written by threads", "fence.proxy.async by the writers, then a barrier",
         "PTX ISA 9.7.16.6.5"),
        ("H17", "data of an asynchronous copy used before it has landed", "a wait on the mbarrier of the copy",
         "PTX ISA 9.7.9.25.2"),
        ("H18", "asynchronous copy into an operand that the tensor core still reads",
         "completion of the MMA, made known to the issuer of the copy", "PTX ISA 9.7.16.10"),
        ("H19", "store into an operand that the tensor core still reads",
         "completion of the MMA, made known to the storing thread", "PTX ISA 9.7.16.10"),
        ("H20", "asynchronous copy into shared memory that threads use",
         "an arrival after the use; strictly also fence.proxy.async before it", "PTX ISA 9.7.9.25.2"),
        ("H25", "operand in the peer block's shared memory used before it has landed",
         "a wait that counts the peer's bytes too", "PTX ISA 9.7.16.5"),
        ("H27", "shared memory of a bulk store not ready, or reused too early",
         "fence.proxy.async and a barrier before; bulk wait_group.read and a barrier after",
         "PTX ISA 9.7.9.25.2"),
    ),
    **_kinds(
        Code.HAZARD_SHARED_MEMORY,
        ("G1", "shared memory accessed by several warps without synchronization", "a barrier",
         "PTX ISA 8.10"),
        ("G8", "shared memory accessed by several lanes of a warp without synchronization",
         "bar.warp.sync (__syncwarp), or a barrier", "PTX ISA 9.7.13.2"),
        ("U1", "read of shared memory that was never written", "a store or a copy before", "PTX ISA 5.1.7"),
    ),
    **_kinds(
        Code.HAZARD_GLOBAL_MEMORY,
        ("G2", "global memory accessed by several warps without synchronization",
         "a release and an acquire that see each other, or a barrier within the block", "PTX ISA 8.10"),
        ("G10", "global memory accessed by several lanes of a warp without synchronization",
         "bar.warp.sync (__syncwarp), or a barrier; one lane that stores", "PTX ISA 9.7.13.2"),
        ("G3", "synchronization whose scope leaves out one of the threads",
         "a scope on both sides that takes in both threads", "PTX ISA 8.5"),
        ("G4", "asynchronous copy of global memory that threads access",
         "fence.proxy.async after the threads' accesses, and synchronization", "PTX ISA 8.4, 9.7.9.25.2"),
        ("G5", "global memory that an asynchronous copy still uses",
         "completion of the copy: wait_group, or its mbarrier", "PTX ISA 9.7.9.25.2"),
        ("G6", "tensor map used while its changes are not visible to the copy, or changed while a copy uses it",
         "fence.proxy.tensormap release by the writer, acquire in the thread that issues the copy",
         "PTX ISA 9.7.13.4"),
        ("G9", "memory of a prerequisite grid accessed before griddepcontrol.wait", "griddepcontrol.wait",
         "PTX ISA 9.7.13.13"),
        ("G7", "non-coherent load of memory that the kernel writes", "an ordinary load", "PTX ISA 8.1"),
    ),
    **_kinds(
        Code.HAZARD_MBARRIER,
        ("H21", "mbarrier used before its initialization is known",
         "fence.mbarrier_init (or fence.proxy.async) and a barrier", "PTX ISA 9.7.13.15"),
        ("H24", "arrivals of one instruction counted in two phases of an mbarrier",
         "an arrival count that is the number of arrivals of a phase", "PTX ISA 9.7.13.15"),
        ("H33", "wait on an mbarrier whose next phase may end before the wait has seen the last one",
         "an arrival in the next phase that comes after the wait", "PTX ISA 9.7.13.15.16"),
        ("M1", "mbarrier synchronization between blocks with a scope that leaves one of them out",
         "the scope .cluster on arrive and wait", "PTX ISA 9.7.13.15"),
        ("M2", "mbarrier.init on a location that holds an mbarrier", "mbarrier.inval, after all uses",
         "PTX ISA 9.7.13.15"),
        ("M3", "mbarrier.inval while the mbarrier is in use", "completion of all uses, and a barrier",
         "PTX ISA 9.7.13.15"),
        ("M4", "shared memory of an mbarrier overwritten", "mbarrier.inval, or another address",
         "PTX ISA 9.7.13.15"),
    ),
    **_kinds(
        Code.HAZARD_ISSUE,
        ("A1", "shared address as the generic address of a tcgen05.commit's mbarrier",
         "a generic address, or .shared::cluster on the instruction", "PTX ISA 9.7.16.12.1"),
        ("A3", "red.async in the thread's own block, or st.async in a cluster of one block",
         "another block of the cluster; an ordinary access in the own block", "PTX ISA 9.7.9.12, 9.7.13.7"),
        ("B1", "barrier that a warp's threads do not execute together",
         "one barrier instruction that all threads of the warp execute", "PTX ISA 9.7.13.1, 9.7.13.3"),
        ("B2", "arrival at a barrier that may still be in the phase before",
         "synchronization with a thread that has passed that phase, or a barrier of its own", "PTX ISA 9.7.13.1"),
        ("H22", "tcgen05.commit by a thread that has issued nothing",
         "commit in the thread that issued the operations", "PTX ISA 9.7.16.12"),
        ("H23", "tcgen05.mma issued by several threads", "elect one thread", "PTX ISA 9.7.16.10"),
        ("H26", "block ends while another block's operation still uses its memory",
         "a cluster barrier or a wait before the exit", "PTX ISA 9.7.16.5"),
        ("H32", "access to shared memory of another block that may not have started",
         "synchronization with the block before the access", "CUDA C++ Programming Guide, distributed shared memory"),
        ("X1", "block ends while asynchronous operations use its shared memory", "a wait before the exit",
         "PTX ISA 9.7.9.25"),
    ),
    **_kinds(
        Code.HAZARD_REGISTERS,
        ("H29", "wgmma registers touched without wgmma.wait_group before, or wgmma.fence after",
         "wgmma.wait_group before the access, wgmma.fence between it and the next wgmma",
         "PTX ISA 9.7.15.7.1, 9.7.15.7.3"),
        ("R1", "setmaxnreg that differs among the warps of a warpgroup, or comes before they have met",
         "the same setmaxnreg in all warps of the warpgroup, which synchronize before the next", "PTX ISA 9.7.19.5"),
        ("H30", "source registers of a tcgen05.st overwritten while the store is under way", "wait::st",
         "PTX ISA 9.7.16.6.4.2"),
    ),
}  # fmt: skip
