# SPDX-License-Identifier: Apache-2.0
"""PT3xxx: build."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note, warning

NO_TOOLKIT = error(
    "PT3001",
    ExitCode.USAGE,
    "no CUDA compiler found",
    "Building and verifying need nvcc and ptxas of CUDA 12.8 or later. Porter looks at --toolkit, "
    "CUDA_HOME, CUDA_PATH, PATH and the CUDA packages of this Python, in this order.",
    "Run pip install 'porter-sm100[cuda]', or pass --toolkit DIR. `porter doctor` shows what was looked at.",
)
BAD_TOOLKIT = error(
    "PT3002",
    ExitCode.USAGE,
    "{path} is no usable CUDA toolkit: {reason}",
    "A toolkit is a directory with bin/nvcc, bin/ptxas and include/cuda_runtime.h, of CUDA 12.8 or later.",
    "Pass another directory, or leave --toolkit out to let Porter look for one.",
)
NO_HOST_COMPILER = error(
    "PT3003",
    ExitCode.USAGE,
    "no C++ compiler for the host found",
    "nvcc needs a host compiler even for device code. Porter looks at NVCC_CCBIN, CXX, and for g++, clang++ "
    "and c++ on PATH.",
    "Install g++ or clang++, or set CXX.",
)
NVCC_ERROR = error(
    "PT3004",
    ExitCode.BUILD_FAILED,
    "nvcc refused {path} for {arch}: {text}",
    "The compiler's whole output follows.",
    "Mend the source. If it is a port by Porter, report it with the original.",
)
PTXAS_ERROR = error(
    "PT3005",
    ExitCode.BUILD_FAILED,
    "ptxas refused the PTX for {arch}: {text}",
    "The line is one of the PTX text. Instructions of another architecture are refused here.",
    "Check that the source was compiled for the architecture that it is written for.",
)
ENTRY_NOT_FOUND = error(
    "PT3006",
    ExitCode.USAGE,
    "{path} has no kernel {entry}",
    "The name is that of a __global__ function with its namespaces, and template arguments are given apart.",
    "Use one of the names that are listed.",
)
ENTRY_AMBIGUOUS = error(
    "PT3007",
    ExitCode.USAGE,
    "{entry} names several kernels of {path}",
    "None of several kernels is named, or they are overloads, several instantiations, or lie in different namespaces.",
    "Name one of those that are listed, with its namespaces and all template arguments: `--entry NAME`, or the "
    "`entry` of a case.",
)
LINK_ERROR = error(
    "PT3008",
    ExitCode.BUILD_FAILED,
    "{path} could not be linked: {text}",
    "The host linker refused the program. Its whole output follows.",
    "Add the missing source files or libraries.",
)
PTXAS_WARNING = warning(
    "PT3009",
    "ptxas: {text}",
    "The assembler accepted the kernel but says that it will run slower, or otherwise than written.",
    "Read the message; for a port, compare with what the original got.",
)
TOOL_MISSING = error(
    "PT3010",
    ExitCode.USAGE,
    "{tool} cannot be used: {place}",
    "A program or library of the toolkit is missing or cannot be started.",
    "Complete the toolkit, or choose another with --toolkit.",
)
COMPILER_TIMEOUT = error(
    "PT3011",
    ExitCode.BUILD_FAILED,
    "{tool} did not finish in {seconds} seconds",
    "The compiler was stopped.",
    "Reduce the number of template instantiations in the file.",
)
PORT_DOES_NOT_COMPILE = error(
    "PT3012",
    ExitCode.BUILD_FAILED,
    "the port of {path} does not compile for {arch}: {text}",
    "The compiler takes the original and refuses what Porter made of it: an error of Porter's own. Nothing was "
    "written. The place is one of the port.",
    "Report it with the original. `porter port --no-compile` shows the port as it is.",
)
ORIGINAL_DOES_NOT_COMPILE = note(
    "PT3013",
    "{path} was not compiled: the original does not compile here: {text}",
    "Where the compiler refuses the original, it says nothing about the port. The port is written all the same.",
    "Give what it needs with -I, -D and --nvcc-flag, or build the port with the project's own build.",
)
PORT_SPILLS = warning(
    "PT3014",
    "kernel {kernel} spills as a port: {stores} bytes of stores and {loads} of loads; the original does not "
    "({before} registers, the port {after})",
    "Registers that do not fit go to local memory, which is slow. The results are the same.",
    "Compare with `porter build`; allow more registers in __launch_bounds__ or setmaxnreg.",
)
NOT_COMPILED = note(
    "PT3015",
    "{path} was not compiled: {reason}",
    "What Porter emits is compiled for sm_100a where that can be done here; this was not.",
    "Build the port with the project's own build.",
)
HOST_HEADERS = note(
    "PT3016",
    "{path}: headers that are not installed were stood in for: {headers}",
    "Only device code counts here, so headers of host libraries are replaced by declarations of the names that the "
    "source uses.",
    "Nothing needs to be done. Give their directories with -I to compile against the real ones.",
)
NOT_INSTANTIATED = note(
    "PT3017",
    "{path}: no code was made for {kernels}",
    "A template that nothing instantiates is only checked for its syntax. Launches in the same file, explicit "
    "instantiations and a case beside it count.",
    "Port the file that launches it, name its template arguments (`--instantiate`), or write a case that does.",
)
HOPPER_FORM_CHANGED = error(
    "PT3054",
    ExitCode.BUILD_FAILED,
    "{path}: compiled for sm_90a it is not the original's code",
    "A port for both chips keeps the original as one of its branches. Its PTX for sm_90a differs from the original's, "
    "in more than comments and places in the source.",
    "If the file was edited, compare its Hopper branches with the original; else report it.",
)
PORT_WITHOUT_MMA = error(
    "PT3018",
    ExitCode.BUILD_FAILED,
    "the port of {path} compiles to nothing for {arch}: kernel {kernel} has no tcgen05 where its original has wgmma",
    "The code is behind a condition that is true for sm_90a only, such as one on __CUDA_ARCH__. Nothing was written.",
    "Widen the condition to include sm_100a, then port the file.",
)
PORT_LOCAL_MEMORY = warning(
    "PT3019",
    "kernel {kernel} keeps {after} bytes a thread of arrays in local memory as a port; the original {before}",
    "An array that is indexed at run time or whose address is taken cannot stay in registers: each access goes through "
    "memory, which is slow. The results are the same.",
    "Unroll the loops that index it, so that each index is a constant; then compare again with `porter build`.",
)
INCLUDE_OPTIONS = note(
    "PT3021",
    "what was written below {path} needs these options, in this order, lest originals are taken for it: {options}",
    "The output lies as the originals do, but leaves out headers that stay as they are. Directories of the output come "
    "in front of the originals': in the other order a compiler takes an original for the port of it, and says nothing.",
    "Give these to nvcc in this order, from this directory. `--whole` also writes the headers that stay as they are.",
)
ORIGINAL_INCLUDED = error(
    "PT3022",
    ExitCode.UNPORTED,
    "{path} includes {header} by a name that leads to the original wherever the port lies: `{name}`",
    "The header is ported too; what is written elsewhere than the originals would be compiled with it as it was.",
    "Name the header by a path relative to the file or to a directory given with -I; or port in place, with --apply.",
)
OTHER_CHIP = error(
    "PT3020",
    ExitCode.BUILD_FAILED,
    "{path} is written for another chip than {arch}, which has no {text}",
    "ptxas refused nothing but instructions that this chip has not: wgmma is Hopper's (sm_90a), tcgen05 is Blackwell's "
    "(sm_100a). Programs are compiled for sm_90a where no other chip is named.",
    "Name the chip that the program is written for: `--arch sm_100a` for a port, `--arch sm_90a` for its original.",
)
NO_DSL = error(
    "PT3050",
    ExitCode.USAGE,
    "CuTe DSL is not installed: {problem}",
    "Compiling a .py kernel needs NVIDIA's package nvidia-cutlass-dsl in the Python that runs Porter.",
    "Run pip install nvidia-cutlass-dsl. Porter brings it along where NVIDIA has wheels: CPython on Linux, on x86-64 "
    "and ARM.",
)
DSL_ERROR = error(
    "PT3051",
    ExitCode.BUILD_FAILED,
    "CuTe DSL refused {path} for {arch}: {problem}",
    "The package raised an error while it built the kernel with the arguments of the case.",
    "Read the message; the case's `dsl` section says how the kernel is constructed and called.",
)
DSL_UNTESTED = note(
    "PT3052",
    "CuTe DSL {version} is installed; Porter is tested with {oldest} to {newest}",
    "Ports call the package's compiler, and what it takes and gives changes between versions.",
    "Install a tested version, or look closely at what `porter verify` says.",
)
SHARED_MEMORY_EXCEEDED = error(
    "PT3053",
    ExitCode.BUILD_FAILED,
    "kernel {kernel} takes {bytes} bytes of shared memory for {arch}, and a block may have {limit}",
    "Static shared memory, which is part of the compiled kernel, and dynamic shared memory, which its host code asks "
    "for, come out of the same bytes.",
    "Take fewer stages or a smaller tile.",
)
FEWER_BLOCKS = warning(
    "PT3055",
    "{kernel}: by its {by} {after} of the port's CTAs share an SM, {before} of the original's, and {why}",
    "CTAs that wait for each other all have to be on the chip at one time. CUDA's occupancy functions and its check of "
    "a cooperative launch count registers, shared memory, threads and named barriers, but no columns of Tensor Memory: "
    "a CTA that gets none waits in tcgen05.alloc for those that wait for it, and the kernel hangs. What the others "
    "have no room for, a cooperative launch refuses.",
    "Launch no more CTAs for each SM than the port has room for; or let the occupancy functions see it: more dynamic "
    "shared memory lets fewer share an SM. A smaller tile takes fewer columns.",
)
PORT_HAZARD = error(
    "PT3056",
    ExitCode.BUILD_FAILED,
    "the port of {case} is not written: hazard {id} on its PTX, {what}",
    "The proof of synchronization looks at every schedule of what the compiler made of the port, without a run, and "
    "finds this wrong at a size of its case. The original has nothing like it in the same place, so that the port "
    "brings it in: a defect of Porter.",
    "Report it with the source. `--prove-seconds 0` writes the port nevertheless; nobody should run it.",
)
PORT_UNEQUAL = error(
    "PT3057",
    ExitCode.BUILD_FAILED,
    "the port of {case} is not written: on PTX it does not leave what the original does: {what}",
    "What the compiler made of both is followed with numbers for sizes and indices and with terms for all data, at a "
    "size of its case. A byte of the output is made of other data, or by other operations or in another order, and a "
    "run, where there can be one, shows other bits: a defect of Porter.",
    "Report it with the source. `--prove-seconds 0` writes the port nevertheless; `porter equal` has the places.",
)
