# SPDX-License-Identifier: Apache-2.0
"""PT7xxx: what `porter check` finds."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, warning

HOPPER_LEFT = error(
    "PT7001",
    ExitCode.FINDINGS,
    "{name} is Hopper's own{times}",
    "sm_100a does not have it: the code does not compile for that target, or takes another way there.",
    "Port the kernel (`porter port`), or guard the code by `#if defined(__CUDA_ARCH_FEAT_SM90_ALL)`.",
)
T2R_NARROW = warning(
    "PT7002",
    "{name} loads {registers}{times}",
    "A load of Tensor Memory moves as many columns as its repetition says. With x1 a tile of 128x256 takes 256 loads "
    "in place of 8, each with an address of its own.",
    "Use x16 to x64 and one wait for the batch.",
)
T2R_WIDE = warning(
    "PT7003",
    "{name} loads {registers} at once{times}",
    "All of them are written back before the first can be used, and a kernel of 128 registers a thread spills.",
    "Use x16 to x64 and work on one batch while the next one is loaded.",
)
T2R_REGISTERS = error(
    "PT7004",
    ExitCode.FINDINGS,
    "{name} loads {registers}, and a thread has {budget}: {bound}",
    "The registers of one load are all live at its end; beyond the budget of the kernel they spill to local memory.",
    "Use a smaller repetition, or give the kernel more registers (launch bounds, setmaxnreg).",
)
T2R_ASSERTS = warning(
    "PT7005",
    "{what}: {advice}",
    "With assertions each load of a CuTe copy checks its address: a branch, and a call with its return address, "
    "between loads (256 calls and 6152 instructions in place of 704 for a tile of 128x256 by x1).",
    "Build with -DNDEBUG.",
)
T2R_UNWAITED = warning(
    "PT7006",
    "what {name} loads is used before it is waited for",
    "tcgen05.ld is asynchronous: its registers are defined after tcgen05.wait::ld (PTX ISA 9.0 §9.7.16.8.5).",
    "Put tcgen05.wait::ld (CuTe: cutlass::arch::fence_view_async_tmem_load(), CuTe DSL: "
    "cute.arch.fence_view_async_tmem_load()) between the loads of a batch and their first use.",
)
SM100_LEFT_OUT = error(
    "PT7007",
    ExitCode.FINDINGS,
    "`{condition}` does not hold on {target}, so this code is left out there",
    "The condition admits Hopper and not SM100; a kernel whose body it guards is empty, and nothing says so.",
    "Test `defined(__CUDA_ARCH_FEAT_SM100_ALL)` for SM100's own instructions, `__CUDA_ARCH__ >= 900` for what both "
    "have.",
)
SM100_ADMITS_HOPPER = warning(
    "PT7008",
    "`{condition}` also holds on {targets}, which {have} no tcgen05",
    "The condition is wider than the code: a build for those targets fails, or takes a way that is not for it.",
    "Test `defined(__CUDA_ARCH_FEAT_SM100_ALL)`.",
)
SWITCH_LOST = error(
    "PT7009",
    ExitCode.FINDINGS,
    "{what}: {advice}",
    "Switches of libraries have the architecture in their names. One that is not set for SM100 turns its code into "
    "nothing, without a message.",
    "Set the switch that the library has for SM100.",
)
PLAIN_TARGET = error(
    "PT7010",
    ExitCode.FINDINGS,
    "{what}: {advice}",
    "tcgen05 and setmaxnreg are of the architecture-specific targets (PTX ISA 9.0 §11.1.2); binaries for sm_90a do not "
    "run on SM100.",
    "Compile for sm_100a.",
)
TMEM_KEPT = warning(
    "PT7011",
    "Tensor Memory is allocated here, and freed nowhere that was read",
    "Columns that a kernel has at its end are lost to the SM: the next block that allocates waits for ever.",
    "Free them by tcgen05.dealloc of the allocating warp on every way out.",
)
KEEP_UNUSED = warning(
    "PT7012",
    "`porter: keep {id}` keeps nothing here",
    "The comment asks for a finding or an edit to be left out that there is not: the code has changed, the ID is "
    "misspelt, or the comment stands on another line than the first of the statement.",
    "Remove the comment, or move it to the line of the finding or above it.",
)
SM100_REFUSED = error(
    "PT7013",
    ExitCode.FINDINGS,
    "`{name}` is no instruction of {target}: {why}",
    "ptxas refuses the form: it is of no version of the PTX ISA (9.7.16), or of other targets. Listings that go around "
    "have such forms.",
    "Write the form that the message names.",
)
HOPPER_PTX = error(
    "PT7014",
    ExitCode.FINDINGS,
    "{name} is Hopper's own{times}",
    "The PTX was compiled for sm_90a. Porter ports sources: registers of accumulators in PTX have no names and no "
    "types that a port could keep.",
    "Port the source that the PTX was compiled from (`porter port`), and compile that for sm_100a.",
)
MMA_BY_ALL = warning(
    "PT7015",
    "every thread of {kernel} issues {name}",
    "A tcgen05.mma is issued by one thread; each further one multiplies and adds once more (PTX ISA 9.0 9.7.16.5).",
    "Issue it under `elect.sync`, or under a condition that one thread of the block meets.",
)
TMA_UNCOUNTED = warning(
    "PT7016",
    "a copy completes bytes on an mbarrier, and nothing that was read expects bytes",
    "A phase that no bytes are expected in ends with its arrivals, before the copy has written: what is read then is "
    "what was there before.",
    "Arrive by mbarrier.arrive.expect_tx with the bytes of the copies of the phase.",
)
DESCRIPTOR_VERSION = warning(
    "PT7017",
    "{what}: {advice}",
    "A matrix descriptor of SM100 has 0b001 in bits 46-48 and its swizzle in bits 61-63 (PTX ISA 9.0 9.7.16.4.1); one "
    "of Hopper is illegal there. `porter explain 0x4000004000010840` shows both.",
    "Set bit 46, and encode the swizzle as SM100 does.",
)
