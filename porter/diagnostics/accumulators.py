# SPDX-License-Identifier: Apache-2.0
"""PT2xxx: why an accumulator is not ported, one ID a cause."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error

_MIRROR = (
    "The registers of an accumulator become a mirror of a Tensor Memory tile, which needs every use of them to be "
)


ACCUMULATOR_DECLARED = error(
    "PT2002",
    ExitCode.UNPORTED,
    "how an accumulator is declared is not understood: {what}",
    "The tile in Tensor Memory is declared beside the registers. MMAs are followed back to there: to an array, "
    "scalars, a member, or a tensor of registers that one function declares.",
    "Declare the registers in the function that owns them, in a statement of their own, without other values than "
    "zeros; hand them on as arguments.",
)
ACCUMULATOR_REFERENCE = error(
    "PT2020",
    ExitCode.UNPORTED,
    "an accumulator is reached through a pointer or reference that is not followed: {what}",
    _MIRROR + "found. What a pointer or reference stands for may change from one use to the next.",
    "Name the registers themselves where the MMA is called, or hand them to a function as an argument.",
)
ACCUMULATOR_COPIED = error(
    "PT2021",
    ExitCode.UNPORTED,
    "an accumulator is copied as a whole: {what}",
    "A copy has registers of its own, and no tile in Tensor Memory.",
    "Take a reference instead of the copy: in the parameter, the capture or the declaration. Where a copy is wanted, "
    "copy element by element into registers that no MMA adds to.",
)
ACCUMULATOR_SHAPE = error(
    "PT2022",
    ExitCode.UNPORTED,
    "registers are not those of one kind of tile: {what}",
    "A tile has one type and one size, and a variable that holds several is an array of tiles of the same kind.",
    "Give each tile an array of its own, with as many registers as its MMAs have, and hand on whole tiles.",
)
ACCUMULATOR_IN_FLIGHT = error(
    "PT2023",
    ExitCode.UNPORTED,
    "registers are used while MMAs may still write them: {what}",
    "No wait covers the batch on the way here. On Hopper that is a race; on sm_100a the registers would be those of "
    "an earlier batch.",
    "Wait for the batch first: a `wgmma.wait_group` in front of this statement that leaves fewer groups pending.",
)
ACCUMULATOR_UNFENCED = error(
    "PT2024",
    ExitCode.UNPORTED,
    "a wgmma.fence is missing: {what}",
    "Threads use registers, and an MMA that writes them follows. PTX asks for a `wgmma.fence` in between, and the "
    "port's warps meet there.",
    "Put `wgmma.fence.sync.aligned` behind the last use of the registers, in front of the batch.",
)
ACCUMULATOR_MOVES = error(
    "PT2025",
    ExitCode.UNPORTED,
    "registers cannot be moved where they would have to be: {what}",
    "They go to Tensor Memory in front of an MMA and come back behind a wait, in statements of their own, where "
    "all threads of a warpgroup come by.",
    "Give the wait or MMA that is underlined a statement of its own, and what uses the registers another one; a "
    "function that uses them takes a reference to their array.",
)
CALL_NOT_FOLLOWED = error(
    "PT2026",
    ExitCode.UNPORTED,
    "a call around MMAs is not followed: {what}",
    "What issues MMAs or waits for them is handed tiles and the state of its warpgroup, so all its calls have to be "
    "seen.",
    "Call the function by its name in the body of another one, with the accumulator as an argument of its own.",
)
MACRO_NOT_FOLLOWED = error(
    "PT2027",
    ExitCode.UNPORTED,
    "a macro around MMAs or accumulators is not followed: {what}",
    "The text of the function is not what is compiled there, and an edit in it may be repeated or left out.",
    "Write out what the macro stands for at this place, or make it a function.",
)
THREADS_LEAVE = error(
    "PT2028",
    ExitCode.UNPORTED,
    "threads leave the kernel before Tensor Memory is freed: {what}",
    "One warp frees Tensor Memory at the kernel's end, with all its lanes and behind all other warps.",
    "Let these threads return at the kernel's end, or in a `return` of the kernel itself that whole warps come to.",
)
COLUMNS_UNKNOWN = error(
    "PT2029",
    ExitCode.UNPORTED,
    "the columns of accumulators are not known: {what}",
    "Columns are allocated at the top of the kernel. What the extents of its accumulators depend on has to be "
    "visible there.",
    "Make the extents and the type of the MMA template parameters, or constants and types at file or class scope.",
)
BLOCK_SIZE_UNKNOWN = error(
    "PT2034",
    ExitCode.UNPORTED,
    "how many threads a block of {what} has is not known",
    "Columns are shared out among the warpgroups of a block, so their number is needed.",
    "Write `__launch_bounds__` with the threads of a block at the kernel that is underlined.",
)
BATCH_NOT_FOLLOWED = error(
    "PT2035",
    ExitCode.UNPORTED,
    "a batch of MMAs is not followed: {what}",
    "A batch opens with a fence, ends with a commit, and is waited for. Each of the three goes by the accumulators and "
    "operands of the batch, which have to be in sight there and the same throughout.",
    "Open, fill and commit the batch in one function, and declare what it uses in front of it.",
)
OBJECT_NOT_FOLLOWED = error(
    "PT2036",
    ExitCode.UNPORTED,
    "an object that holds an accumulator is not followed: {what}",
    "Where a class has the registers as a member, its tile is a member beside them. Every object of the class, and all "
    "that methods do with the registers, has to be seen.",
    "Declare the object as a local variable of the kernel, do not copy it, and use the registers in its methods or "
    "behind the last MMA.",
)
OUTSIDE_OF_KERNELS = error(
    "PT2037",
    ExitCode.UNPORTED,
    "an accumulator is declared where no Tensor Memory can be handed to: {what}",
    "A kernel allocates Tensor Memory and hands columns to the functions that declare accumulators.",
    "Declare it in the kernel, and hand it to this function as a reference.",
)
STORAGE_TAKEN = error(
    "PT2038",
    ExitCode.UNPORTED,
    "the port's mbarriers have no place in the kernel's shared memory: {what}",
    "With --shared-storage the mbarriers of the port become members of the kernel's own structure in shared memory.",
    "Leave --shared-storage away, so that they are declared by themselves, or change the structure as is said above.",
)
