# SPDX-License-Identifier: Apache-2.0
"""PT4xxx: simulator."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error

SIM_UNKNOWN_INSTRUCTION = error(
    "PT4001",
    ExitCode.INCONCLUSIVE,
    "the simulator does not model: {what}",
    "The kernel reached an instruction, or a form of one, that the simulator does not execute, so there is no verdict.",
    "Report the instruction, or run on a GPU backend.",
)
SIM_BUDGET = error(
    "PT4002",
    ExitCode.INCONCLUSIVE,
    "budget exhausted: {what}",
    "The kernel was stopped before its end, so there is no verdict.",
    "Choose a smaller problem size, or raise the budget.",
)
SIM_DEADLOCK = error(
    "PT4003",
    ExitCode.DIFFERENT,
    "deadlock: {what}",
    "No thread can go on and no asynchronous operation is left that could release one.",
    "Look at the barriers named: their phase, the arrivals they still wait for, and who should arrive.",
)
SIM_OUT_OF_BOUNDS = error(
    "PT4004",
    ExitCode.DIFFERENT,
    "{what}",
    "The address lies outside every allocation, or outside the block's shared or local memory.",
    "Check the address arithmetic, and the sizes given in the case.",
)
SIM_MISALIGNED = error(
    "PT4005",
    ExitCode.DIFFERENT,
    "{what}",
    "A GPU traps on an access whose address is no multiple of its size.",
    "Align the buffer, or use a narrower access.",
)
SIM_TMEM_ALLOCATION = error(
    "PT4006",
    ExitCode.DIFFERENT,
    "Tensor Memory allocation: {what}",
    "Columns are allocated in powers of two from 32 to 512 by one converged warp, and freed exactly once.",
    "Check tcgen05.alloc, relinquish_alloc_permit and dealloc on every path.",
)
SIM_TMEM_UNALLOCATED = error(
    "PT4007",
    ExitCode.DIFFERENT,
    "Tensor Memory not allocated: {what}",
    "A tcgen05 operation touches columns that the block does not hold.",
    "Allocate enough columns, and free them only after the last access.",
)
SIM_TMEM_LEAK = error(
    "PT4008",
    ExitCode.DIFFERENT,
    "Tensor Memory not freed: {what}",
    "Everything allocated must be deallocated before the kernel ends; otherwise later kernels block.",
    "Add tcgen05.dealloc on every path out of the kernel.",
)
SIM_TMEM_ACCESS = error(
    "PT4009",
    ExitCode.DIFFERENT,
    "Tensor Memory access: {what}",
    "A warp reaches only the lane quarter of its rank modulo 4, and each layout has its lane alignment.",
    "Check the lane field (bits 31 to 16) of the Tensor Memory address.",
)
SIM_MBARRIER = error(
    "PT4010",
    ExitCode.DIFFERENT,
    "mbarrier: {what}",
    "An mbarrier must be initialized before use, and its counts stay within their range.",
    "Check mbarrier.init, its arrival count, and the fence and barrier after it.",
)
SIM_DESCRIPTOR = error(
    "PT4011",
    ExitCode.DIFFERENT,
    "tensor core operation: {what}",
    "A matrix or instruction descriptor, or an operand address, is not legal for the instruction.",
    "Check how the descriptor is built.",
)
SIM_TRAP = error(
    "PT4012",
    ExitCode.DIFFERENT,
    "the kernel trapped: {what}",
    "The kernel executed trap, or a device-side assertion failed.",
    "Look at the condition that the kernel tests.",
)
SIM_LAUNCH = error(
    "PT4013",
    ExitCode.USAGE,
    "launch refused: {what}",
    "The kernel or its launch configuration is not one that a GPU would accept.",
    "Check entry name, grid, block, cluster, shared memory and parameters.",
)
SIM_COLLECTIVE = error(
    "PT4014",
    ExitCode.DIFFERENT,
    "collective instruction in divergent code: {what}",
    "All threads of the warp, or all warps of the warpgroup, must execute this instruction together.",
    "Move the instruction out of the divergent branch.",
)
SIM_TENSOR_MAP = error(
    "PT4015",
    ExitCode.DIFFERENT,
    "tensor map: {what}",
    "The 128 bytes at the address are no tensor map, or the copy does not fit it.",
    "Check the tensor map given in the case, and the address of the parameter.",
)
SIM_BARRIER = error(
    "PT4016",
    ExitCode.DIFFERENT,
    "barrier: {what}",
    "Named barriers are numbered 0 to 15, and their thread count is a multiple of the warp size.",
    "Check the barrier number and count.",
)
SIM_REGISTERS = error(
    "PT4017",
    ExitCode.DIFFERENT,
    "setmaxnreg: {what}",
    "setmaxnreg takes multiples of 8 from 24 to 256; inc needs a count no lower than the warp has, dec no higher.",
    "Correct the count, or the registers that the kernel is launched with.",
)
SIM_LAUNCH_CONTROL = error(
    "PT4018",
    ExitCode.DIFFERENT,
    "clusterlaunchcontrol: {what}",
    "A block that has seen a request fail must not make another: no cluster is left that could be taken over "
    "(PTX ISA 9.7.13.17).",
    "Leave the loop over work when query_cancel.is_canceled says false.",
)
SIM_BRANCH = error(
    "PT4019",
    ExitCode.DIFFERENT,
    "brx.idx: {what}",
    "A thread branches by an index that is not below the number of targets: where it goes is undefined "
    "(PTX ISA 9.7.12.4). A negative index is one of billions.",
    "Check the range of the index ahead of the branch. In CUDA C++ it is a switch whose default was said to be "
    "unreachable.",
)
SIM_TMEM_WAIT = error(
    "PT4020",
    ExitCode.DIFFERENT,
    "deadlock: no Tensor Memory in tcgen05.alloc: {what}",
    "The blocks on a multiprocessor (SM) share its 512 columns, and tcgen05.alloc waits until there are enough. Here "
    "those who hold them wait for the block that has none: at a barrier of the grid, or for a flag of its. How many "
    "blocks share an SM follows from registers, shared memory and threads; CUDA's occupancy functions and its check of "
    "a cooperative launch do not count columns.",
    "Allocate fewer columns, or free them ahead of the wait; give up the right to allocate "
    "(tcgen05.relinquish_alloc_permit) behind the last allocation; or let fewer blocks share an SM: by launch bounds, "
    "more shared memory, or a smaller grid.",
)
