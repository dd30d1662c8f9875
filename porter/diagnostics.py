# SPDX-License-Identifier: Apache-2.0
"""Every message Porter can give a user: one enum of stable IDs, each with what, why and the next step.

IDs are never reused. The first digit names the part that speaks:

======  =====================================================
PT0xxx  command line, files, configuration
PT1xxx  front ends: reading and parsing source
PT2xxx  porting: constructs left alone, stated assumptions
PT25xx  downgrades: the port does more work or less at a time
PT3xxx  build: toolchains and compilers
PT4xxx  simulator
PT5xxx  verification
PT6xxx  rules
======  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What a command's exit status says (`porter explain exit-codes`)."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    UNPORTED = 3
    BUILD_FAILED = 4
    DIFFERENT = 5
    INCONCLUSIVE = 6


EXIT_CODE_TEXT: dict[ExitCode, str] = {
    ExitCode.OK: "nothing to do, or all good",
    ExitCode.FINDINGS: "findings, or a non-empty diff under `port --check`",
    ExitCode.USAGE: "bad input, bad usage, or an internal error",
    ExitCode.UNPORTED: "ported, but constructs were left that Porter cannot port yet",
    ExitCode.BUILD_FAILED: "a compiler refused the original or the port",
    ExitCode.DIFFERENT: "results differ, or a hazard was found",
    ExitCode.INCONCLUSIVE: "no verdict: an unmodelled instruction, or an exhausted budget",
}


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class CodeInfo:
    """One diagnostic: `title` is a `str.format` template, `detail` and `next_step` are plain text."""

    id: str
    severity: Severity
    exit_code: ExitCode
    title: str
    detail: str
    next_step: str


def _e(id: str, exit_code: ExitCode, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.ERROR, exit_code, title, detail, next_step)


def _w(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.WARNING, ExitCode.OK, title, detail, next_step)


def _n(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.NOTE, ExitCode.OK, title, detail, next_step)


class Code(Enum):
    """All diagnostics. Add new ones at the end of their block."""

    # --- PT0xxx: command line, files, configuration
    FILE_NOT_FOUND = _e(
        "PT0001",
        ExitCode.USAGE,
        "no such file or directory: {path}",
        "The path given on the command line, or named by a case file, does not exist.",
        "Check the spelling and the working directory.",
    )
    NOT_TEXT = _e(
        "PT0002",
        ExitCode.USAGE,
        "{path} is not a text file",
        "The file holds NUL bytes, so it is no source that Porter can read.",
        "Pass CUDA C++ (.cu, .cuh, .h, .hpp) or CuTe DSL Python (.py) source.",
    )
    UNKNOWN_SOURCE_KIND = _e(
        "PT0003",
        ExitCode.USAGE,
        "{path}: not a kind of source that Porter reads",
        "Porter tells source kinds apart by their file name ending.",
        "Rename the file, or pass one of .cu, .cuh, .h, .hpp, .cpp, .inl, .py.",
    )
    WOULD_OVERWRITE = _e(
        "PT0004",
        ExitCode.USAGE,
        "refusing to write {path}: {reason}",
        "Porter writes whole files atomically and never over work that is not committed.",
        "Commit or stash the file, choose another -o directory, or pass --allow-dirty.",
    )
    BAD_OPTION = _e(
        "PT0005",
        ExitCode.USAGE,
        "{option}: {problem}",
        "An option's value does not have the form that the option asks for, or two options exclude each "
        "other.",
        "See `porter COMMAND --help` for the form of each option.",
    )
    UNKNOWN_ID = _e(
        "PT0006",
        ExitCode.USAGE,
        "nothing is called {name}",
        "`porter explain` knows diagnostic IDs such as PT0001, rule IDs, and the word exit-codes.",
        "Copy the ID from the message in question, or run `porter explain --list`.",
    )
    NOTHING_TO_PORT = _n(
        "PT0007",
        "{path}: nothing to port",
        "The file holds no construct that exists on Hopper only.",
        "Nothing needs to be done: the source compiles for both architectures as it is.",
    )
    WRITE_FAILED = _e(
        "PT0008",
        ExitCode.USAGE,
        "cannot write {path}: {reason}",
        "The operating system refused to write a result. No file of this run was changed.",
        "Check permissions and free space, or choose another -o directory.",
    )
    NO_SOURCES = _e(
        "PT0009",
        ExitCode.USAGE,
        "{path}: no source that Porter reads in this directory",
        "A directory stands for the CUDA and CuTe DSL sources below it; there are none.",
        "Pass a directory that holds .cu, .cuh, .h, .hpp, .cpp, .inl or .py files.",
    )
    NO_KERNEL = _e(
        "PT0010",
        ExitCode.USAGE,
        "{path}: no GPU kernel in this file",
        "Python sources are read for functions marked @cute.kernel of NVIDIA's CuTe DSL; there is none here.",
        "Pass the file that defines the kernel.",
    )
    CUTE_DSL_KERNEL = _e(
        "PT0011",
        ExitCode.UNPORTED,
        "{path}: CuTe DSL kernels are not ported yet ({kernels})",
        "Porter ports CUDA C++ with inline PTX; kernels written in CuTe DSL are recognized, not translated.",
        "Nothing was written. Port this kernel by hand.",
    )
    INTERNAL = _e(
        "PT0099",
        ExitCode.USAGE,
        "internal error: {what}",
        "Porter met a state that its authors did not foresee. Nothing was written.",
        "Re-run with -v for the traceback and report it with the input file.",
    )

    # --- PT1xxx: front ends
    UNREADABLE_SOURCE = _e(
        "PT1001",
        ExitCode.USAGE,
        "cannot read {path}: {reason}",
        "The file exists but the system refused to hand out its contents.",
        "Check its permissions.",
    )
    UNPARSED_REGION = _w(
        "PT1002",
        "{count} bytes here were not understood as C++",
        "The grammar does not cover this text, most often because of a macro whose definition is in no file "
        "that Porter read. Nothing in it was analysed or changed.",
        "Read the region by hand, or make the header that defines its macros reachable with -I.",
    )
    UNREAD_ASM = _e(
        "PT1003",
        ExitCode.UNPORTED,
        "asm statement that could not be read",
        "The word asm stands here in code, but what follows was not understood as an asm statement.",
        "Simplify the macros around the statement, or port it by hand.",
    )
    UNREAD_PTX = _e(
        "PT1004",
        ExitCode.UNPORTED,
        "inline PTX that could not be read: {reason}",
        "The template of this asm statement is not PTX as the PTX ISA writes it, or parts of it are macros "
        "whose text Porter does not know.",
        "Write the template out as string literals, or port the statement by hand.",
    )
    UNRESOLVED_INCLUDE = _n(
        "PT1005",
        'local header "{name}" was not found',
        "A quoted #include names a file that is neither next to the including file nor in an include "
        "directory. Hopper code in it is not ported with this file.",
        "Pass its directory with -I, or port the header separately.",
    )

    # --- PT2xxx: porting
    WGMMA_FORM = _e(
        "PT2001",
        ExitCode.UNPORTED,
        "wgmma is not ported here: {what}",
        "The compat port translates dense wgmma with both operands in shared memory and 32-bit accumulators, "
        "in asm statements that it can read whole.",
        "Nothing was written. Port this statement by hand, or bring it into a supported form.",
    )
    ACCUMULATOR_USE = _e(
        "PT2002",
        ExitCode.UNPORTED,
        "accumulator not ported: {what}",
        "The registers of an accumulator become a mirror of a Tensor Memory tile. That needs every use of "
        "them to be understood.",
        "Nothing was written. See `porter explain PT2002` for the uses that are understood: arrays or scalars "
        "declared in one function, passed to wrappers, zeroed as a whole, read after the last wait.",
    )
    LIBRARY_CONSTRUCT = _e(
        "PT2003",
        ExitCode.UNPORTED,
        "{name} is not ported yet ({library})",
        "The file uses a Hopper-only construct of a library whose port is not built yet.",
        "Nothing was written. `porter scan` lists what the construct becomes on sm_100a.",
    )
    TMEM_TOO_LARGE = _e(
        "PT2005",
        ExitCode.UNPORTED,
        "the accumulators of {kernel} need {columns} Tensor Memory columns, an SM has 512",
        "Every m64nN tile takes N columns in half of the lanes; two warpgroups share columns.",
        "Nothing was written. Use a smaller tile.",
    )
    NOT_ANALYSED = _e(
        "PT2006",
        ExitCode.UNPORTED,
        "wgmma in text that is not analysed: {what}",
        "Source in string literals, in regions that do not parse, or built by macro concatenation is not read.",
        "Nothing was written. Move the instruction into an asm statement of its own.",
    )
    NO_KERNEL_REACHES = _w(
        "PT2007",
        "no kernel in these files uses {name}",
        "The wrapper was ported, but where Tensor Memory is allocated could not be decided without its kernel.",
        "Port the file that holds the kernel; its local includes are followed.",
    )
    BARRIER_IDS = _w(
        "PT2008",
        "a named barrier has an id that is not a constant: {kernel}",
        "The port synchronizes each warpgroup on a named barrier of its own, counted down from 15.",
        "Check that the kernel does not use those ids.",
    )
    WARPGROUPS_UNKNOWN = _w(
        "PT2009",
        "the block size of {kernel} is not known; room for {count} warpgroups is set aside",
        "Neither `__launch_bounds__` nor a launch with constant block size was found.",
        "Add `__launch_bounds__`, then port again.",
    )
    RULE_IGNORED = _e(
        "PT2010",
        ExitCode.UNPORTED,
        "rule {rule} is switched off, and the rest of the port needs it",
        "The edits of a kernel's port mean something only together.",
        "Select the rule, or leave the whole kernel out.",
    )
    TMEM_SIZE_UNKNOWN = _w(
        "PT2501",
        "{kernel} allocates {columns} Tensor Memory columns: how many it needs is not known where it allocates",
        "The extents of an accumulator depend on names that are not visible at the top of the kernel.",
        "Fewer CTAs fit on an SM than might. Make the tile extents template parameters or file-scope constants.",
    )
    EXTRA_BARRIER = _n(
        "PT2502",
        "each MMA batch of {kernel} starts with a warpgroup barrier",
        "On Hopper each warp waited for its own operands; on sm_100a one thread issues for all four warps and "
        "must come after everything they did.",
        "Correct as it is. The native style gives the MMA a warp of its own, which needs no such barrier.",
    )
    HALF_RATE = _n(
        "PT2503",
        "{kernel} issues M=64 MMAs, which run at half the rate of M=128",
        "The compat style keeps the row ownership of Hopper warpgroups, which M=64 tiles preserve exactly.",
        "Correct as it is. The native style merges tiles to M=128.",
    )
    SHARED_MEMORY_GROWS = _n(
        "PT2504",
        "{kernel} takes {bytes} more bytes of static shared memory",
        "The completion mbarriers and the Tensor Memory address live there; where dynamic shared memory "
        "follows, the size keeps its 1024-byte alignment.",
        "Check that static and dynamic shared memory together stay within 227 KiB.",
    )

    # --- PT3xxx: build
    NO_TOOLKIT = _e(
        "PT3001",
        ExitCode.USAGE,
        "no CUDA compiler found",
        "Building and verifying need nvcc and ptxas of CUDA 12.8 or later. Porter looks at --toolkit, "
        "CUDA_HOME, CUDA_PATH, PATH and the CUDA packages of this Python, in this order.",
        "Run pip install 'porter[cuda]', or pass --toolkit DIR. `porter doctor` shows what was looked at.",
    )
    BAD_TOOLKIT = _e(
        "PT3002",
        ExitCode.USAGE,
        "{path} is no usable CUDA toolkit: {reason}",
        "A toolkit is a directory with bin/nvcc, bin/ptxas and include/cuda_runtime.h, of CUDA 12.8 or later.",
        "Pass another directory, or leave --toolkit out to let Porter look for one.",
    )
    NO_HOST_COMPILER = _e(
        "PT3003",
        ExitCode.USAGE,
        "no C++ compiler for the host found",
        "nvcc needs a host compiler even for device code. Porter looks at NVCC_CCBIN, CXX, and for g++, clang++ "
        "and c++ on PATH.",
        "Install g++ or clang++, or set CXX.",
    )
    NVCC_ERROR = _e(
        "PT3004",
        ExitCode.BUILD_FAILED,
        "nvcc refused {path} for {arch}: {text}",
        "The compiler's whole output follows.",
        "Mend the source. If it is a port by Porter, report it with the original.",
    )
    PTXAS_ERROR = _e(
        "PT3005",
        ExitCode.BUILD_FAILED,
        "ptxas refused the PTX for {arch}: {text}",
        "The line is one of the PTX text. Instructions of another architecture are refused here.",
        "Check that the source was compiled for the architecture that it is written for.",
    )
    ENTRY_NOT_FOUND = _e(
        "PT3006",
        ExitCode.USAGE,
        "{path} has no kernel {entry}",
        "The name is that of a __global__ function with its namespaces, and template arguments are given apart.",
        "Use one of the names that are listed.",
    )
    ENTRY_AMBIGUOUS = _e(
        "PT3007",
        ExitCode.USAGE,
        "{entry} names several kernels of {path}",
        "The kernels are overloads, several instantiations, or lie in different namespaces.",
        "Give the namespaces and all template arguments.",
    )
    LINK_ERROR = _e(
        "PT3008",
        ExitCode.BUILD_FAILED,
        "{path} could not be linked: {text}",
        "The host linker refused the program. Its whole output follows.",
        "Add the missing source files or libraries.",
    )
    PTXAS_WARNING = _w(
        "PT3009",
        "ptxas: {text}",
        "The assembler accepted the kernel but says that it will run slower, or otherwise than written.",
        "Read the message; for a port, compare with what the original got.",
    )
    TOOL_MISSING = _e(
        "PT3010",
        ExitCode.USAGE,
        "{tool} cannot be used: {place}",
        "A program or library of the toolkit is missing or cannot be started.",
        "Complete the toolkit, or choose another with --toolkit.",
    )
    COMPILER_TIMEOUT = _e(
        "PT3011",
        ExitCode.BUILD_FAILED,
        "{tool} did not finish in {seconds} seconds",
        "The compiler was stopped.",
        "Reduce the number of template instantiations in the file.",
    )

    # --- PT4xxx: simulator
    SIM_UNKNOWN_INSTRUCTION = _e(
        "PT4001",
        ExitCode.INCONCLUSIVE,
        "the simulator does not model: {what}",
        "The kernel reached an instruction, or a form of one, that the simulator does not execute, so there is no verdict.",
        "Report the instruction, or run on a GPU backend.",
    )
    SIM_BUDGET = _e(
        "PT4002",
        ExitCode.INCONCLUSIVE,
        "budget exhausted: {what}",
        "The kernel was stopped before its end, so there is no verdict.",
        "Choose a smaller problem size, or raise the budget.",
    )
    SIM_DEADLOCK = _e(
        "PT4003",
        ExitCode.DIFFERENT,
        "deadlock: {what}",
        "No thread can go on and no asynchronous operation is left that could release one.",
        "Look at the barriers named: their phase, the arrivals they still wait for, and who should arrive.",
    )
    SIM_OUT_OF_BOUNDS = _e(
        "PT4004",
        ExitCode.DIFFERENT,
        "{what}",
        "The address lies outside every allocation, or outside the block's shared or local memory.",
        "Check the address arithmetic, and the sizes given in the case.",
    )
    SIM_MISALIGNED = _e(
        "PT4005",
        ExitCode.DIFFERENT,
        "{what}",
        "A GPU traps on an access whose address is no multiple of its size.",
        "Align the buffer, or use a narrower access.",
    )
    SIM_TMEM_ALLOCATION = _e(
        "PT4006",
        ExitCode.DIFFERENT,
        "Tensor Memory allocation: {what}",
        "Columns are allocated in powers of two from 32 to 512 by one converged warp, and freed exactly once.",
        "Check tcgen05.alloc, relinquish_alloc_permit and dealloc on every path.",
    )
    SIM_TMEM_UNALLOCATED = _e(
        "PT4007",
        ExitCode.DIFFERENT,
        "Tensor Memory not allocated: {what}",
        "A tcgen05 operation touches columns that the block does not hold.",
        "Allocate enough columns, and free them only after the last access.",
    )
    SIM_TMEM_LEAK = _e(
        "PT4008",
        ExitCode.DIFFERENT,
        "Tensor Memory not freed: {what}",
        "Everything allocated must be deallocated before the kernel ends; otherwise later kernels block.",
        "Add tcgen05.dealloc on every path out of the kernel.",
    )
    SIM_TMEM_ACCESS = _e(
        "PT4009",
        ExitCode.DIFFERENT,
        "Tensor Memory access: {what}",
        "A warp reaches only the lane quarter of its rank modulo 4, and each layout has its lane alignment.",
        "Check the lane field (bits 31 to 16) of the Tensor Memory address.",
    )
    SIM_MBARRIER = _e(
        "PT4010",
        ExitCode.DIFFERENT,
        "mbarrier: {what}",
        "An mbarrier must be initialized before use, and its counts stay within their range.",
        "Check mbarrier.init, its arrival count, and the fence and barrier after it.",
    )
    SIM_DESCRIPTOR = _e(
        "PT4011",
        ExitCode.DIFFERENT,
        "tensor core operation: {what}",
        "A matrix or instruction descriptor, or an operand address, is not legal for the instruction.",
        "Check how the descriptor is built.",
    )
    SIM_TRAP = _e(
        "PT4012",
        ExitCode.DIFFERENT,
        "the kernel trapped: {what}",
        "The kernel executed trap, or a device-side assertion failed.",
        "Look at the condition that the kernel tests.",
    )
    SIM_LAUNCH = _e(
        "PT4013",
        ExitCode.USAGE,
        "launch refused: {what}",
        "The kernel or its launch configuration is not one that a GPU would accept.",
        "Check entry name, grid, block, cluster, shared memory and parameters.",
    )
    SIM_COLLECTIVE = _e(
        "PT4014",
        ExitCode.DIFFERENT,
        "collective instruction in divergent code: {what}",
        "All threads of the warp, or all warps of the warpgroup, must execute this instruction together.",
        "Move the instruction out of the divergent branch.",
    )
    SIM_TENSOR_MAP = _e(
        "PT4015",
        ExitCode.DIFFERENT,
        "tensor map: {what}",
        "The 128 bytes at the address are no tensor map, or the copy does not fit it.",
        "Check the tensor map given in the case, and the address of the parameter.",
    )
    SIM_BARRIER = _e(
        "PT4016",
        ExitCode.DIFFERENT,
        "barrier: {what}",
        "Named barriers are numbered 0 to 15, and their thread count is a multiple of the warp size.",
        "Check the barrier number and count.",
    )

    # --- PT5xxx: verification
    CASE_NOT_FOUND = _e(
        "PT5001",
        ExitCode.USAGE,
        "no case found for {path}",
        "A case (case.yaml) says how to run a kernel: its entry, sizes, tensors, launch and reference. "
        "Porter looks "
        "beside the kernel for case.yaml or <name>.case.yaml that names the file as its kernel.",
        "Write a case.yaml beside the kernel, or name one with --case.",
    )
    CASE_NOT_YAML = _e(
        "PT5002",
        ExitCode.USAGE,
        "{path} is not YAML: {problem}",
        "The case file could not be read as a YAML mapping.",
        "Correct the syntax at the place given.",
    )
    CASE_FIELD = _e(
        "PT5003",
        ExitCode.USAGE,
        "case field {field}: {problem}",
        "A field of the case is missing, unknown, or of the wrong form.",
        "Compare with the schema porter/verify/case.schema.json.",
    )
    CASE_EXPRESSION = _e(
        "PT5004",
        ExitCode.USAGE,
        "case field {field}: cannot evaluate `{expression}`: {problem}",
        "Expressions may use the case's sizes and constants, + - * / // % **, comparisons, min, max, "
        "ceil_div and "
        "align_up. Division with / must come out even.",
        "Correct the expression, or choose sizes that it divides.",
    )
    CASE_DOES_NOT_FIT = _e(
        "PT5005",
        ExitCode.USAGE,
        "case field {field}: {problem}",
        "Shapes, strides, boxes or launch values of the case cannot be meant together.",
        "Make the field agree with the sizes, tensors and launch of the case.",
    )
    CASE_REFERENCE = _e(
        "PT5006",
        ExitCode.USAGE,
        "case reference: {problem}",
        "The reference must give one array per output tensor, in the output's shape, from the float64 "
        "inputs.",
        "Correct the reference expression or function.",
    )
    CASE_PARAMETERS = _e(
        "PT5007",
        ExitCode.USAGE,
        "case field params: {problem}",
        "The arguments that the case lists are not those that the compiled kernel takes.",
        "List the kernel's parameters in order, with the sizes that the kernel declares.",
    )
    UNKNOWN_FAMILY = _e(
        "PT5008",
        ExitCode.USAGE,
        "no input family {name}; there are: {known}",
        "Inputs come in families, each made to show one kind of mistake.",
        "Choose from the list, or `all`.",
    )
    BACKEND_UNAVAILABLE = _e(
        "PT5009",
        ExitCode.INCONCLUSIVE,
        "backend {name} is not available: {reason}",
        "The machine lacks what this backend needs to run kernels.",
        "Use --backend sim, which needs no GPU.",
    )
    PTX_UNREADABLE = _e(
        "PT5010",
        ExitCode.USAGE,
        "{path}: not PTX that Porter can read: {problem}",
        "The parser for PTX modules met text that it does not know.",
        "Pass PTX as nvcc or CuTe DSL emit it; report the line if it is.",
    )
    ORIGINAL_DIFFERS = _e(
        "PT5020",
        ExitCode.DIFFERENT,
        "{tensor}: the original differs from the reference in {count} of {total} elements",
        "The kernel that was given does not compute what the case's reference computes, so nothing can be "
        "said "
        "about a port of it.",
        "Check the case (layout, launch, reference) first, then the kernel.",
    )
    PORT_DIFFERS = _e(
        "PT5021",
        ExitCode.DIFFERENT,
        "{tensor}: the port differs from the reference in {count} of {total} elements",
        "The original agrees with the reference on the same inputs, the port does not.",
        "Look at the first bad element: its place in the tile names the warp, register and TMEM column "
        "concerned.",
    )
    PORT_BITS_DIFFER = _e(
        "PT5022",
        ExitCode.DIFFERENT,
        "{tensor}: port and original agree with the reference but differ in the bits of {count} of "
        "{total} elements",
        "With the order of K kept, both architectures compute the same bits for these types; other bits mean "
        "another order, another rounding, or another epilogue.",
        "If the port is meant to change the order, set `compare: bound` in the case.",
    )
    CONTROL_PASSED = _e(
        "PT5023",
        ExitCode.DIFFERENT,
        "{tensor}: the comparison cannot tell: a {control} output would have passed",
        "Before each verdict wrong outputs are compared like right ones. One that passes shows that this "
        "input "
        "family at this size proves nothing.",
        "Use another size, family or reference for this case.",
    )
    STRAY_WRITE = _e(
        "PT5024",
        ExitCode.DIFFERENT,
        "the {program} wrote outside {tensor}: {where}",
        "Each tensor lies between guard bytes, and gaps between its rows are filled with a pattern. A run "
        "changed "
        "some of them.",
        "Check bounds predicates and the box and strides of the tensor map.",
    )
    INPUT_CHANGED = _e(
        "PT5025",
        ExitCode.DIFFERENT,
        "the {program} changed its input {tensor}: {where}",
        "A tensor with role input has other bytes after the run.",
        "Give the tensor the role inout if this is meant.",
    )
    RUN_FAILED = _e(
        "PT5026",
        ExitCode.DIFFERENT,
        "the {program} did not finish: {reason}",
        "The run ended before the kernel did. The finding says where.",
        "Correct what the finding names.",
    )
    RUN_INCOMPLETE = _e(
        "PT5027",
        ExitCode.INCONCLUSIVE,
        "no verdict on the {program}: {reason}",
        "The simulator met an instruction that it does not model, or its budget ran out.",
        "Raise the budget with --budget, use smaller sizes, or another backend.",
    )
    PORT_INCOMPLETE = _e(
        "PT5028",
        ExitCode.UNPORTED,
        "{path}: not run, because constructs were left that Porter cannot port",
        "A port that still holds Hopper-only constructs cannot run on Blackwell.",
        "See the diagnostics of `porter port` for what was left, or pass a finished port with --port.",
    )

    RUNTIME_NOT_BUILT = _e(
        "PT5901",
        ExitCode.BUILD_FAILED,
        "cannot build the stand-in for the CUDA runtime: {reason}",
        "A program's own main() runs against a small library that answers for the CUDA runtime. It is built once "
        "with the host's C++ compiler and the toolkit's headers.",
        "Install a C++ compiler (g++) and a CUDA toolkit with its headers; `porter doctor` shows what is found.",
    )
    PROGRAM_NOT_CONNECTED = _e(
        "PT5902",
        ExitCode.INCONCLUSIVE,
        "{program} ended (status {status}) without asking for the CUDA runtime",
        "Only a program that loads libcudart as a shared library can be run on the simulator; one that links it "
        "statically asks the driver instead.",
        "Build it with `nvcc -cudart shared`, and check that it starts at all.",
    )
    PROGRAM_NO_PTX = _e(
        "PT5903",
        ExitCode.INCONCLUSIVE,
        "no PTX for kernel {kernel}: {reason}",
        "The simulator runs PTX. A program carries it uncompressed only if it was built so.",
        "Build with `-gencode arch=compute_100a,code=compute_100a -no-compress` (or compute_90a).",
    )
    PROGRAM_UNANSWERED = _e(
        "PT5904",
        ExitCode.INCONCLUSIVE,
        "the program calls {function}, which the CUDA runtime stand-in does not answer",
        "The stand-in answers what is needed to allocate, copy, and launch; a call beyond that ends the program "
        "rather than giving it a made-up answer.",
        "Take the call out of the program, or run its kernel from a case file.",
    )
    PROGRAM_TIMEOUT = _e(
        "PT5905",
        ExitCode.INCONCLUSIVE,
        "{program} asked nothing of the simulator for {seconds} s and was ended",
        "The program's host code runs at full speed; one that stays silent this long hangs, or computes a large "
        "reference on the host.",
        "Use a smaller problem size, or a longer time limit.",
    )

    # --- PT6xxx: rules
    RULE_FILE = _e(
        "PT6001",
        ExitCode.USAGE,
        "broken rule file: {problem}",
        "Rule files are YAML and follow `rule.schema.json`.",
        "Mend the place that is named; an editor with the schema shows what is allowed there.",
    )
    RULE_DUPLICATE = _e(
        "PT6002",
        ExitCode.USAGE,
        "rule {rule} is defined twice, here and in {other}",
        "A rule ID names one rule for good.",
        "Give the new rule an ID of its own.",
    )

    @property
    def id(self) -> str:
        return self.value.id

    @classmethod
    def by_id(cls, id: str) -> Code | None:
        """The code with this ID (case-insensitive), or None."""
        return next((code for code in cls if code.value.id == id.upper()), None)


@dataclass(frozen=True)
class Location:
    """A place in a file: 1-based line and column of the first character, 0-based byte offsets."""

    path: str
    line: int = 0
    column: int = 0
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.path
        return f"{self.path}:{self.line}:{self.column}" if self.column else f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user: a code, where it applies, and the values its title names."""

    code: Code
    where: Location | None = None
    values: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def severity(self) -> Severity:
        return self.code.value.severity

    @property
    def message(self) -> str:
        return self.code.value.title.format(**self.values)

    def __str__(self) -> str:
        head = f"{self.where}: " if self.where else ""
        return f"{head}{self.severity.value}[{self.code.id}]: {self.message}"


class PorterError(Exception):
    """A diagnostic that ends what was being done. The command line turns it into its exit code."""

    def __init__(self, code: Code, where: Location | None = None, detail: str = "", **values: Any) -> None:
        self.diagnostic = Diagnostic(code, where, values, detail)
        super().__init__(str(self.diagnostic))

    @property
    def exit_code(self) -> ExitCode:
        return self.diagnostic.code.value.exit_code
