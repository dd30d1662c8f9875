# SPDX-License-Identifier: Apache-2.0
"""PT4xxx, from PT4101: hazards that the checking simulator finds."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, warning

HAZARD_TENSOR_MEMORY = error(
    "PT4101",
    ExitCode.DIFFERENT,
    "Tensor Memory hazard {id}: {what}",
    "tcgen05.mma, cp, ld and st are asynchronous, and few pairs of them keep an order by themselves. Two of "
    "them touch the same cells, and nothing orders the second after the first has completed.",
    "Add the instruction named as the missing edge.",
)
HAZARD_TENSOR_LIFETIME = error(
    "PT4102",
    ExitCode.DIFFERENT,
    "Tensor Memory life cycle hazard {id}: {what}",
    "Columns may be used only between the allocation, once it is known, and the deallocation, which has to "
    "come after all accesses of all warps.",
    "Add the instruction named as the missing edge.",
)
HAZARD_OPERAND = error(
    "PT4103",
    ExitCode.DIFFERENT,
    "operand hazard {id}: {what}",
    "Tensor cores and bulk copies reach shared memory through the asynchronous proxy. Ordinary stores need a "
    "proxy fence to be seen there, and completion has to be waited for before a buffer is used again.",
    "Add the instruction named as the missing edge.",
)
HAZARD_SHARED_MEMORY = error(
    "PT4104",
    ExitCode.DIFFERENT,
    "shared memory hazard {id}: {what}",
    "Warps run in any order between barriers, and shared memory holds garbage when a block begins.",
    "Add a barrier, or initialize the memory.",
)
HAZARD_MBARRIER = error(
    "PT4105",
    ExitCode.DIFFERENT,
    "mbarrier hazard {id}: {what}",
    "An mbarrier may be used by other threads, and by asynchronous operations, only after its initialization "
    "has been fenced and a barrier passed.",
    "Add fence.mbarrier_init.release.cluster and a barrier after mbarrier.init.",
)
HAZARD_ISSUE = error(
    "PT4106",
    ExitCode.DIFFERENT,
    "issue hazard {id}: {what}",
    "Asynchronous operations belong to the thread that issues them and to the memory of blocks that run.",
    "See the rule of the hazard.",
)
HAZARD_REGISTERS = error(
    "PT4107",
    ExitCode.DIFFERENT,
    "register hazard {id}: {what}",
    "The registers of a wgmma belong to the tensor core until a wgmma.wait_group covers it.",
    "Add or move the wgmma.wait_group.",
)
HAZARD_GLOBAL_MEMORY = error(
    "PT4108",
    ExitCode.DIFFERENT,
    "global memory hazard {id}: {what}",
    "Blocks run in any order, and threads see each other's stores to global memory only through a release and an "
    "acquire whose scopes take in both; bulk copies reach it through the asynchronous proxy.",
    "Add the instruction named as the missing edge.",
)
HAZARD_INHERITED = warning(
    "PT4110",
    "hazard {id}, {what}: also in the original ({place})",
    "The original has the same hazard between the same accesses: nothing orders them there either. It is counted "
    "apart, and says nothing about the port.",
    "Mend the original; `porter hazards --only original` has the report, with the instruction that is missing.",
)
HAZARD_PROVED = error(
    "PT4114",
    ExitCode.DIFFERENT,
    "hazard {id} on the PTX of {case}'s {program}: {what}",
    "The proof of synchronization looks at every schedule of what the compiler made of the kernel, without a run, and "
    "finds this wrong at the size that is named. Of a port it is said where the original has nothing like it in the "
    "same place.",
    "`porter hazards --prove` has the report; add what is missing between the two places.",
)
UNEQUAL_PROVED = error(
    "PT4115",
    ExitCode.DIFFERENT,
    "on PTX the port of {case} does not leave what the original does: {what}",
    "What the compiler made of both is followed with numbers for sizes and indices and with terms for all data. A byte "
    "of the output is made of other data, or by other operations or in another order, and a run, where there can be "
    "one, shows other bits, if not with the inputs that were asked for.",
    "Both places are named; `porter equal` compares again. A port that adds in another order on purpose has "
    "`compare: bound` in its case.",
)
HAZARD_NOT_MENDED = warning(
    "PT4111",
    "hazard {id} of the original, {what}, is not mended: {reason}",
    "`--mend` offers an instruction only where its place is plain and the simulator then finds the hazard gone.",
    "Mend the original by hand; `porter hazards --only original` has the report.",
)
BLOCK_ENDS_EARLY = warning(
    "PT4112",
    "blocks of {kernel} may end while others of their cluster still need them: no cluster barrier behind `{what}`"
    "{obstacle}",
    "The compiled kernel arrives on mbarriers of another block of its cluster, or accesses its shared memory, and its "
    "threads can end without a cluster barrier behind that. What comes to a block that has ended ends the kernel: "
    "originals have that as well, and a port whose blocks end at other times meets it sooner. Porter writes the "
    "barrier itself, as an edit group of its own that `--no-mend` leaves out, where no thread can hang by it: "
    "in kernels with no arrival pending at their end, and no barrier that counts threads that have ended.",
    "Let all threads of all blocks meet at a cluster barrier as the kernel's last statement (barrier.cluster.arrive, "
    "barrier.cluster.wait), or wait for all arrivals before a block ends.",
)
STORE_NOT_READY = warning(
    "PT4113",
    "a bulk store of {kernel} may read shared memory that other warps have not written yet",
    "One thread issues the copy behind stores of several warps, and no barrier stands between. Warps of the original "
    "come out of their wgmma together, and seldom show it; those of a port load their sums from Tensor Memory one by "
    "one. Porter writes the barrier of a warpgroup itself, as an edit group of its own that `--no-mend` leaves out, "
    "where the whole warpgroup comes to the place.",
    "Let the warps meet at a barrier (bar.sync) behind fence.proxy.async, ahead of the thread that issues the store.",
)
