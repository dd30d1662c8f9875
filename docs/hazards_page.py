# SPDX-License-Identifier: Apache-2.0
"""The page on hazards: what the checker does, and the kinds that it reports."""

from __future__ import annotations

from porter.sim.check.catalog import KINDS

HAZARDS_HEAD = """# Hazards

`porter hazards` runs a kernel in the checking simulator and reports accesses that nothing orders: races of
threads with asynchronous operations, which a test on a GPU shows once in a thousand runs. They are found from
happens-before, so also where the values of the run are right, and whatever the schedule.

```
porter hazards corpus/gemm_coop/gemm_coop.cu        # original and port, with the case beside the kernel
porter hazards kernel.ptx --grid 4 --block 128 --arg f16[4096]=normal --arg f32[4096]
porter hazards program.cu --arch sm_100a -I include -- 512 512 128
```

Each report has the two accesses with their source lines, the place in memory, the missing edge and the
instruction that would supply it. One cause is one report: pairs of one kind with one first access, or with one second
access and one remedy, are put together, and lines of one inlined call stand on one line. `--format json` has every
pair, and the `causes` with the pairs of each; `--sarif FILE` has a result for each cause.

A run's verdict is `clean`, `review` (exit code 0), `incomplete` (6) or `error` (5). At `--level strict`, the
default for what Porter emits, every hazard is an error. At `--level practice`, the default for code it is
given, it is one to review if only the letter of the PTX ISA forbids it and code in circulation relies on it:
a missing `tcgen05.fence`, a proxy fence before an MMA or after an initialization where a barrier is there, a
`tcgen05.ld` without `wait::ld` whose registers have all been used, copies of a block's own shared memory that
are in flight when it ends, a bulk store that all lanes of a warp make alike.

With `--seeds N` a kernel is run under N random schedules; each report then says with which seed it comes again.
`--jobs N` makes the runs - of original and port, at each size, with each seed - in N processes, and finds the same. A
whole program runs with one seed after the other; its launches depend on what the host does between them.

One run stays in one process. Clusters that share no written global memory could be simulated in parallel, but whether
they do is known only when all have run. A tile counter, a flag or an atomic in the epilogue is enough to share it, and
then all would have to run again. It would gain little: an instruction is executed for all blocks at a time, and half of
the blocks take more than half of the time. In seconds on
one core, with 8 and 16 blocks: 1.4 and 1.9 for the block-scaled GEMM of `tests/foreign`, 0.36 and 0.46 for its
attention.

`porter verify` compares values and, for a port, looks for hazards in the same runs, with the first input family of each
size; `--no-hazards` leaves them out. What only some order of the warps shows in the values it looks for with a random
schedule, for ports of CuTe DSL kernels always with the late, the eager and two random ones. `--schedule lagging` also
holds warps back that could go on ([simulator.md](simulator.md)).

`porter mutate` leaves out or weakens every synchronizing instruction of a port in turn and shows which mutants
are reported; [mutation.md](mutation.md) has the result for every port of the corpus.

## Inherited or introduced

A port keeps the user's code, with its mistakes. So the original is checked too, also where only the port is asked
for, and each hazard of the port is one of two:

* **Also in the original**: the original has the same hazard. It is listed separately, with its place in the original,
  and does not change the exit code.
  Next to its port the original's own hazards set none either; `--only original` judges the original.
* **Introduced**: everything else. It is an error at every level, for the original was right without it.

A hazard is inherited if the original has one

* of the same kind, in the same direction, between accesses of the same sort;
* on the same lines, reached through the same lines by inlining. Lines are the same if the port left them byte for
  byte alone, which comparing each file of the port with the original's shows;
* whose accesses lack everything that the port's lack. Where a pair of lines is met a thousand times, all count: if
  one of them lacks a barrier where the others lack a fence, the barrier has to be missing in the original as well.

Never inherited are accesses of Tensor Memory, of which an original has none, and accesses on lines that the port
wrote or changed. One access changes its lines in every port: `wgmma` reading shared memory becomes `tcgen05.mma`
reading it. The ruling for that one:

* Where the proxy fence after the threads' own stores of the operand lacks (H16), it is inherited if the `tcgen05.mma`
  stands on the line of that `wgmma` or in its place: Hopper asks for the fence just the same.
* Where the wait for the copy that brings the operand lacks (H17, H25), likewise; but not where one of the warpgroup's
  warps waits: four warps meet at a `wgmma`, which orders them in practice, and none at a `tcgen05.mma`.
* Where the storing threads are not synchronized with the issue (H16), it is not: one thread issues for the warpgroup,
  and to order that is the port's task.
* A read of what was never written (U1) is not: which bytes an MMA reads is in the descriptor that the port makes.
* An operand overwritten before the MMA has completed (H18, H19) is not: a `wgmma.wait_group` that never was cannot be
  told from a commit or wait that the port lost.
* An operand overwritten by threads that are not synchronized with those who have waited for the MMA (H18, H19) is, if
  the original lacks that behind its `wgmma.wait_group`, all of the issuing warpgroup have waited in the port as well,
  and its wait stands for that one. A wait of some warps, or at another statement, is the port's mistake.

Where the original has a hazard of the kind in the same place and the port's is not inherited all the same, the
report says what the original lacks there, and what the port lacks beyond that.

Ports of CuTe DSL kernels are held to the same. There a place is the line of the Python code that was being traced:
the kernel's, or that of a module that it imports and the port has in a copy; what `porter_dsl.py` emits on its own
lines has no counterpart. Operations without a place carry the line of the decorated host function in column 0, which
counts for none. Without line information one place cannot be told from another: only what the letter of the ISA alone
forbids is inherited there, each from one of the original's.

What a race hides stays hidden: where nothing orders two accesses, it does not show
whether a proxy fence is missing between them too; a port that orders them, and lacks no more than that fence, inherits
the hazard. Mend the original and check again.

## What ports mend

One hazard of originals is mended in every port, because blocks of a port end at other times than those of its original
did, and what was luck becomes a crash: blocks of a cluster that end while others still arrive on their mbarriers, send
copies to them or access their shared memory (H26). The compiled original says which kernels those are: a remote
access, and a way to the end without a cluster barrier behind it. One that waits for all arrivals behind its last load,
as `producer_tail` of CUTLASS does, has none. The mend is an object in front of Tensor Memory's, whose destructor is
`barrier.cluster.arrive` and `barrier.cluster.wait`: every thread comes to it last and once, whichever way it leaves,
and threads that have ended do not count. It is an edit group of its own, PT4112, with the safety *review*; `--no-mend`
leaves it out. Where threads could hang by it, it is not made, and what is missing is named (PT4112): an arrival at a
cluster barrier is pending at the end, or a barrier counts all threads of the block and some may have ended by then.
Where nothing is compiled (`--no-compile`, templates without arguments) nothing is known and nothing is added; ports of
CuTe DSL kernels are compiled with their case's arguments, and named only.

`porter port --mend` also offers what a run of the kernel's case shows, as edit groups with the safety *review*: a proxy
fence behind the writing statement, a barrier ahead of the one that issues the copy or overwrites an operand, in the
next turn of a loop, too, and the barrier between blocks where the compiled original did not show that it lacks. An
instruction is offered only if the simulator then finds the hazard gone from original and port and no new one. What it
cannot place is named (PT4111).

## What is modelled

Threads of a warp count as one towards other warps; among each other they race over shared and global memory, and only
`bar.warp.sync`, barriers and memory fences order them, not `shfl`, `vote` or the instructions that a warp
executes together (code written for lockstep relies on these: to review at practice level). The same holds where
one lane arrives on an mbarrier, or issues a copy, for a warp whose other lanes use the memory too. Shared memory is
followed by 2-byte granules, Tensor Memory by columns and groups of 16 lanes, global memory by 4 bytes or what is
smaller of the accesses to it. An asynchronous operation reads and writes between its issue and what proves its
completion: an mbarrier phase, a commit, a wait of its thread.

`mbarrier.test_wait` and `mbarrier.try_wait` may return false at any time before the phase is complete. A loop around
them that only the phase or a trap ends is a wait. Code that does not loop has to be right when the answer is false. So
the schedules `late` and `random` answer false there, even if the phase is complete, unless the warp has learned so in
another way. They do it up to 256 times in each warp, in 8 places of its run: code that tries more often counts as code
that waits.

Blocks see each other's work in global memory through flags: `release` and `acquire` accesses, atomics, relaxed
or volatile accesses with fences, each with its scope, also by way of a third block, and over the waves in which
the simulator runs a large grid. Flags in shared memory count alike. Atomics and bulk reductions do not race with
each other. Bulk copies reach global memory through the asynchronous proxy, and tensor maps through one of their
own. Of the warps that read a place of global memory the last 64 are remembered.

Blocks that share an SM share its columns, and `tcgen05.alloc` "blocks if the requested amount of Tensor Memory is not
available" (9.7.16.7.1) until a neighbour frees some. That is no mistake by itself - two blocks of 512 columns take
turns - but one that waits for another block, which waits in its allocation for the first one's columns, hangs (PT4020;
[simulator.md](simulator.md#blocks-that-share-an-sm) says which blocks share one). Columns that the block has not
allocated, and more than 512 in one block, are found.

A `fence.release.sync_restrict::shared::cta` tells only of accesses to the shared memory of its own block, and a
`fence.acquire.sync_restrict::shared::cluster` learns only of those to the cluster's (9.7.13.4), whichever memory the
flag is in.

Another block's shared memory is accessed once that block is known to run: after a cluster barrier, or something else
that comes from it (H32). Not looked for: what lanes of a warp store to one place of shared memory with one instruction;
and a `bar.warp.sync` of some lanes counts for global memory as one of all lanes.

A kernel that takes over the work of blocks that have not started (`clusterlaunchcontrol`) begins with a third of its
grid, so that there is some to take over. A request by a block that has seen one fail ends the run (PT4018); the
coordinates of a failed one are those of no block.

Operations of a block pair (`.cta_group::2`) use the Tensor Memory of both blocks, and its allocation needs both: that
the peer runs when one allocates, and that the peer has allocated and is done when one deallocates, has to follow from
synchronization. Deallocating and relinquishing wait for the peer as late as legal (schedules `late` and `random`), so
an order that only sometimes hangs is reported as a deadlock.

A grid that is launched before its prerequisite ends (programmatic dependent launch) must not touch that grid's memory
ahead of `griddepcontrol.wait`. In programs that is looked for in a launch with programmatic stream serialization, if
nothing comes between it and the launch before in its stream and the host waits for nothing; from Python, `simulate`
takes the launch before as `prerequisite`. Where that grid triggers nobody, practice has it reviewed (ruling
[implicit-trigger](rulings.md#implicit-trigger-a-dependent-grid-that-does-not-wait-for-one-that-triggers-nobody)).
A launch file has one launch. A multimem address stands for places in one
machine's memory, which `GlobalMemory.multicast` binds; each of them is followed.

## Kinds

Made from `porter/sim/check/catalog.py` by `make docs`.
"""


def hazards_page() -> str:
    """The kinds of hazards by the diagnostic they are reported under."""
    lines = [HAZARDS_HEAD, "| kind | diagnostic | hazard | what has to stand between | source |"]
    lines.append("|------|------------|--------|---------------------------|--------|")
    for kind in KINDS.values():
        lines.append(f"| {kind.id} | {kind.code.id} | {kind.title} | {kind.rule} | {kind.source} |")
    return "\n".join(lines) + "\n"
