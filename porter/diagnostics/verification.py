# SPDX-License-Identifier: Apache-2.0
"""PT5xxx: verification."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note, warning

CASE_NOT_FOUND = error(
    "PT5001",
    ExitCode.USAGE,
    "no case found for {path}",
    "A case (case.yaml) says how to run a kernel: its entry, sizes, tensors, launch and reference. "
    "Porter looks "
    "beside the kernel for case.yaml or <name>.case.yaml that names the file as its kernel.",
    "`porter case new KERNEL` writes a draft of one beside the kernel; or name one with --case.",
)
CASE_NOT_YAML = error(
    "PT5002",
    ExitCode.USAGE,
    "{path} is not YAML: {problem}",
    "The case file could not be read as a YAML mapping.",
    "Correct the syntax at the place given.",
)
CASE_FIELD = error(
    "PT5003",
    ExitCode.USAGE,
    "field {field}: {problem}",
    "A field of the case, or of the launch file, is missing, unknown, or of the wrong form.",
    "Compare with the schema porter/verify/case.schema.json, or launch.schema.json beside it.",
)
CASE_EXPRESSION = error(
    "PT5004",
    ExitCode.USAGE,
    "field {field}: cannot evaluate `{expression}`: {problem}",
    "Expressions may use the case's sizes and constants, + - * / // % **, comparisons, min, max, "
    "ceil_div and "
    "align_up. Division with / must come out even.",
    "Correct the expression, or choose sizes that it divides.",
)
CASE_DOES_NOT_FIT = error(
    "PT5005",
    ExitCode.USAGE,
    "field {field}: {problem}",
    "Shapes, strides, boxes or launch values of the case cannot be meant together.",
    "Make the field agree with the sizes, tensors and launch of the case.",
)
CASE_REFERENCE = error(
    "PT5006",
    ExitCode.USAGE,
    "case reference: {problem}",
    "The reference must give one array per output tensor, in the output's shape, from the float64 inputs.",
    "Correct the reference expression or function.",
)
CASE_PARAMETERS = error(
    "PT5007",
    ExitCode.USAGE,
    "field params: {problem}",
    "The arguments that the case lists are not those that the compiled kernel takes.",
    "List the kernel's parameters in order, with the sizes that the kernel declares; `porter case new KERNEL -o "
    "draft.case.yaml` reads them from the sources.",
)
UNKNOWN_FAMILY = error(
    "PT5008",
    ExitCode.USAGE,
    "no input family {name}; there are: {known}",
    "Inputs come in families, each made to show one kind of mistake.",
    "Choose from the list, or `all`.",
)
BACKEND_UNAVAILABLE = error(
    "PT5009",
    ExitCode.INCONCLUSIVE,
    "backend {name} is not available: {reason}",
    "The machine lacks what this backend needs to run kernels.",
    "Use --backend sim, which needs no GPU.",
)
PTX_UNREADABLE = error(
    "PT5010",
    ExitCode.USAGE,
    "{path}: not PTX that Porter can read: {problem}",
    "The parser for PTX modules met text that it does not know.",
    "Pass PTX as nvcc or CuTe DSL emit it; report the line if it is.",
)
PORT_LAUNCH = error(
    "PT5011",
    ExitCode.USAGE,
    "{field} does not fit the port: {problem}",
    "The port was compiled for another launch than the one it would get. A port runs with the launch of the case, "
    "and with what the section `port` of the case changes of it.",
    "State what the port changes (block, cluster, grid, shared memory, tensor maps) in the section `port` of the case, "
    "see docs/cases.md.",
)
ORIGINAL_DIFFERS = error(
    "PT5020",
    ExitCode.DIFFERENT,
    "{tensor}: the original differs from the reference in {count} of {total} elements",
    "The kernel that was given does not compute what the case's reference computes, so nothing can be "
    "said "
    "about a port of it.",
    "Check the case (layout, launch, reference) first, then the kernel.",
)
PORT_DIFFERS = error(
    "PT5021",
    ExitCode.DIFFERENT,
    "{tensor}: the port differs from the reference in {count} of {total} elements",
    "The original agrees with the reference on the same inputs, the port does not.",
    "Look at the first bad element: its place in the tile names the warp, register and TMEM column concerned.",
)
PORT_BITS_DIFFER = error(
    "PT5022",
    ExitCode.DIFFERENT,
    "{tensor}: port and original agree with the reference but differ in the bits of {count} of {total} elements",
    "With the order of K kept, both architectures compute the same bits for these types; other bits mean "
    "another order, another rounding, or another epilogue.",
    "If the port is meant to change the order, set `compare: bound` in the case.",
)
CONTROL_PASSED = error(
    "PT5023",
    ExitCode.DIFFERENT,
    "{tensor}: the comparison cannot tell: a {control} output would have passed",
    "Before each verdict wrong outputs are compared like right ones. One that passes shows that this "
    "input "
    "family at this size proves nothing.",
    "Use another size, family or reference for this case.",
)
STRAY_WRITE = error(
    "PT5024",
    ExitCode.DIFFERENT,
    "the {program} wrote outside {tensor}: {where}",
    "Each tensor lies between guard bytes, and gaps between its rows are filled with a pattern. A run "
    "changed "
    "some of them.",
    "Check bounds predicates and the box and strides of the tensor map.",
)
INPUT_CHANGED = error(
    "PT5025",
    ExitCode.DIFFERENT,
    "the {program} changed its input {tensor}: {where}",
    "A tensor with role input has other bytes after the run.",
    "Give the tensor the role inout if this is meant.",
)
RUN_FAILED = error(
    "PT5026",
    ExitCode.DIFFERENT,
    "the {program} did not finish: {reason}",
    "The run ended before the kernel did. The finding says where.",
    "Correct what the finding names.",
)
RUN_INCOMPLETE = error(
    "PT5027",
    ExitCode.INCONCLUSIVE,
    "no verdict on the {program}: {reason}",
    "The simulator met an instruction that it does not model, or its budget ran out.",
    "Raise the budget with --budget, use smaller sizes, or another backend.",
)
PORT_INCOMPLETE = error(
    "PT5028",
    ExitCode.UNPORTED,
    "{path}: there is no port, because constructs are left that Porter cannot port",
    "A port that still holds Hopper-only constructs neither compiles for Blackwell nor runs there.",
    "See the diagnostics of `porter port` for what was left, or pass a finished port with --port.",
)
ORIGINAL_RACES = warning(
    "PT5029",
    "the original's values depend on the schedule: {reason} under the {schedule} schedule",
    "With the same inputs and another order of asynchronous operations and warps, one that hardware may take too, the "
    "original gives other values. That is a race of the original, and nothing that its port could be blamed for.",
    "`porter hazards --only original` names the accesses that race and the instruction that is missing.",
)
SECOND_LAUNCH = error(
    "PT5030",
    ExitCode.DIFFERENT,
    "in a second launch on what the first one left: {reason}",
    "Original and port were launched once more: inputs and outputs were set anew, variables of the module and scratch "
    "tensors kept what the first launch left in them. The original is right in both launches, the port in the first "
    "alone: it leaves a counter, a flag or a lock otherwise than it finds it, or otherwise than the original does.",
    "Look at what the port adds or leaves out among writes to `__device__` variables and workspaces: whoever uses them "
    "last has to leave them as the next launch needs them.",
)

RUNTIME_NOT_BUILT = error(
    "PT5901",
    ExitCode.BUILD_FAILED,
    "cannot build the stand-in for the CUDA runtime: {reason}",
    "A program's own main() runs against a small library that answers for the CUDA runtime. It is built once "
    "with the host's C++ compiler and the toolkit's headers.",
    "Install a C++ compiler (g++) and a CUDA toolkit with its headers; `porter doctor` shows what is found.",
)
PROGRAM_NOT_CONNECTED = error(
    "PT5902",
    ExitCode.INCONCLUSIVE,
    "{program} ended (status {status}) without asking for the CUDA runtime",
    "Only a program that loads libcudart as a shared library can be run on the simulator; one that links it "
    "statically asks the driver instead.",
    "Build it with `nvcc -cudart shared`, and check that it starts at all.",
)
PROGRAM_NO_PTX = error(
    "PT5903",
    ExitCode.INCONCLUSIVE,
    "no PTX for kernel {kernel}: {reason}",
    "The simulator runs PTX. A program carries it only if it was built so.",
    "Build with `-gencode arch=compute_100a,code=compute_100a` (or compute_90a).",
)
PROGRAM_UNANSWERED = error(
    "PT5904",
    ExitCode.INCONCLUSIVE,
    "the program calls {function}, which the CUDA runtime stand-in does not answer",
    "The stand-in answers what is needed to allocate, copy, and launch; a call beyond that ends the program "
    "rather than giving it a made-up answer.",
    "Take the call out of the program, or run its kernel from a case file.",
)
PROGRAM_TIMEOUT = error(
    "PT5905",
    ExitCode.INCONCLUSIVE,
    "{program} asked nothing of the simulator for {seconds} s and was ended",
    "The program's host code runs at full speed; one that stays silent this long hangs, or computes a large "
    "reference on the host.",
    "Use a smaller problem size, or a longer time limit.",
)

PROGRAM_RETURNED = error(
    "PT5910",
    ExitCode.DIFFERENT,
    "the program {ended}",
    "A program that runs to its end and has nothing to complain of returns 0. What it printed last stands below.",
    "See what the program checks: `porter run` shows all that it prints.",
)
KERNEL_NOT_LOOKED_AT = error(
    "PT5911",
    ExitCode.INCONCLUSIVE,
    "{kernel} may begin while {earlier} runs, which `--kernel` leaves out",
    "A launch with programmatic stream serialization overlaps the one before it, and hazards between them are found "
    "only where both are looked at.",
    "Name both: --kernel may be given more than once.",
)
PROGRAMS_UNLIKE = error(
    "PT5907",
    ExitCode.DIFFERENT,
    "original and port do not run alike: {what}",
    "The n-th launch of the port is held against the n-th of the original, on allocations made in the same order.",
    "Keep launches and allocations of the host code as they are, or verify the kernels one by one (porter capture).",
)
NOTHING_WRITTEN = error(
    "PT5908",
    ExitCode.INCONCLUSIVE,
    "none of {count} launches of the original changed memory, so there is nothing to compare",
    "Outputs that nobody wrote are alike in every program.",
    "Give the program arguments with which its kernels do their work.",
)
PROGRAM_BYTES_DIFFER = error(
    "PT5909",
    ExitCode.DIFFERENT,
    "{what}: {count} of {total} bytes differ between original and port",
    "Original and port ran with their own main(), and after this launch memory holds other bits.",
    "Look at the first launch that differs; later ones may only read what it wrote.",
)
CANNOT_EMULATE = error(
    "PT5040",
    ExitCode.INCONCLUSIVE,
    "cannot emulate {opcode} on Hopper: {reason}",
    "A port runs on a Hopper GPU by rewriting its PTX. This instruction has no counterpart there, and the "
    "emulation has none for it yet.",
    "Use --backend sim, or --backend gpu on a Blackwell machine.",
)
GPU_ERROR = error(
    "PT5041",
    ExitCode.DIFFERENT,
    "the GPU reported {error}",
    "The kernel was ended by the driver. The context is lost; the run's process was started anew.",
    "Run it with --backend sim, which names the access and its source line.",
)
GPU_TIMEOUT = error(
    "PT5042",
    ExitCode.DIFFERENT,
    "the kernel did not end within {seconds} s",
    "A kernel that hangs usually waits for a barrier that nobody completes. Its process was ended.",
    "Run it with --backend sim, which reports the deadlock; or raise --gpu-timeout.",
)
GPU_OUT_OF_MEMORY = error(
    "PT5043",
    ExitCode.INCONCLUSIVE,
    "the GPU has no {size} bytes left for {what}",
    "The tensors, and for an emulated port its Tensor Memory (322 KiB a CTA), are allocated on the GPU.",
    "Use smaller sizes, or a GPU that nobody else uses.",
)
GPU_PROCESS_ENDED = error(
    "PT5044",
    ExitCode.INCONCLUSIVE,
    "the process that talks to the GPU ended (status {status})",
    "Kernels run in a process of their own, so that a broken context does not reach Porter.",
    "See its output below; run again.",
)
GPU_REFUSED = error(
    "PT5045",
    ExitCode.INCONCLUSIVE,
    "the driver refused {what}: {error}",
    "The kernel was not run.",
    "Check the launch values of the case against the limits of the GPU.",
)
RECORD_UNREADABLE = error(
    "PT5050",
    ExitCode.USAGE,
    "{path} is no record that can be used: {problem}",
    "A record holds runs of originals with checksums of all its parts, so that a damaged one is not compared with.",
    "Make it again with `porter record`.",
)
RECORD_MISMATCH = error(
    "PT5051",
    ExitCode.USAGE,
    "{path} was recorded from another version of {kernel}",
    "The kernel's file has changed since its outputs were recorded.",
    "Record it again, or compare the version that was recorded.",
)
RECORD_MISSING = error(
    "PT5052",
    ExitCode.INCONCLUSIVE,
    "{path} holds no run of {case} with these inputs",
    "Inputs come from the family, the seed, the sizes and the case; with other ones there is nothing to compare with.",
    "Choose the sizes, families and seed of the record, or record these.",
)
KIT_RUN = error(
    "PT5055",
    ExitCode.DIFFERENT,
    "{run} does not end well on the simulator: {reason}",
    "A kit says of every run what it should give, which is what the simulator computes in the hardware's arithmetic.",
    "Run `porter verify` on the kernel first.",
)
KIT_CASE = error(
    "PT5056",
    ExitCode.USAGE,
    "{case} cannot be put into a kit: {reason}",
    "A kit's launches are made anew on another machine, by a launcher that knows tiled tensor maps.",
    "Give another case; a captured one is verified with --backend gpu, where Porter is installed.",
)
KIT_CHIP_LEFT = note(
    "PT5073",
    "the kit has no port of {kernel} for {chip}: {why}",
    "Every kit also has ports for chips that nobody asked for, so that whoever has one can run it. Chips with tcgen05 "
    "differ in a few instructions.",
    "Nothing is to be done: runs for other chips are packed. Where it is asked for, as with `--to sm_103a`, a chip "
    "that lacks instructions is an error.",
)
KIT_LAUNCHER = error(
    "PT5057",
    ExitCode.BUILD_FAILED,
    "cannot build the launcher of kits: {reason}",
    "It is built once with the host's C++ compiler and the toolkit's headers.",
    "Install a C++ compiler (g++) and a CUDA toolkit with its headers; `porter doctor` shows what is found.",
)
NO_PTX_IN_FILE = error(
    "PT5053",
    ExitCode.INCONCLUSIVE,
    "no PTX in {path}: {reason}",
    "The simulator runs PTX. It is looked for in text, fat binaries, objects, libraries and executables.",
    "Have the compiler keep it: -gencode arch=compute_100a,code=compute_100a for nvcc, CUTE_DSL_KEEP_PTX=1 for CuTe "
    "DSL, the `ptx` of a compiled kernel in Triton.",
)
LAUNCH_DIFFERS = error(
    "PT5054",
    ExitCode.DIFFERENT,
    "{tensor}: {count} of {total} elements are not as the launch file expects",
    "After the launch the tensor holds other bits than the file that `expected` names.",
    "Check the arguments and contents first; tensor cores add as the hardware does with --arithmetic exact.",
)
CAPTURE_NO_PTX = error(
    "PT5060",
    ExitCode.INCONCLUSIVE,
    "there is no PTX of {kernel}",
    "The program that was captured carries the kernel as a binary only, which a GPU can run and the simulator cannot.",
    "Name the kernel's CUDA C++ source with --source, or build the program with PTX in it: "
    "-gencode arch=compute_90a,code=[sm_90a,compute_90a].",
)
CAPTURE_NO_CUPTI = error(
    "PT5061",
    ExitCode.INCONCLUSIVE,
    "CUPTI is not installed",
    "Launches of a program on a GPU are seen through CUPTI, NVIDIA's profiling interface, a part of the CUDA toolkit.",
    "pip install nvidia-cuda-cupti, or name the folder of libcupti.so in CUPTI_LIBRARY_DIR.",
)
CAPTURE_NOT_BUILT = error(
    "PT5062",
    ExitCode.BUILD_FAILED,
    "cannot build the library that records launches: {reason}",
    "It is loaded into the program, and built once with the host's C++ compiler and the toolkit's headers.",
    "Install a C++ compiler (g++) and a CUDA toolkit with its headers; `porter doctor` shows what is found.",
)
CAPTURE_NOTHING = error(
    "PT5063",
    ExitCode.INCONCLUSIVE,
    "no launch of {program} was captured: {reason}",
    "A case is made of each launch that changes memory, in every process that the program starts.",
    "See what the program wrote; check --kernel; on a machine without a GPU use --backend sim.",
)
DRAFT_NOT_RUN = warning(
    "PT5069",
    "{program} was not run, so the draft is held against no launch: {reason}",
    "The kernel's file is a program by itself. Where it runs, what its first launch shows is no guess.",
    "Give what it is compiled with (-I, -D, --flag) and its arguments, or --no-run.",
)
DRAFT_OBJECTS = warning(
    "PT5070",
    "what {count} parameters of {kernel} hold is not known: {names}",
    "Objects such as CuTe's layouts, copies and tensor map atoms are made by the library's own code, which no draft "
    "follows; what they hold is in the bytes of a launch.",
    "Make a case of a launch instead: `porter case new KERNEL --program PROGRAM -- ARGUMENTS` runs a program on the "
    "simulator, `porter capture -o DIR -- PROGRAM` on a GPU.",
)
DRAFT_RECORDED = note(
    "PT5071",
    "the case of {kernel} is the launch of {program}: a draft of it would have {count} guesses",
    "Objects of a library, such as CuTe's copies and layouts, stand in the bytes of the launch. The case has its "
    "inputs and what the kernel made of them, and no other sizes.",
    "For other sizes run the program with other arguments.",
)
CAPTURE_LEFT_OUT = warning(
    "PT5064",
    "a launch of {kernel} was left out: {reason}",
    "Only launches whose whole memory can be recorded become cases.",
    "Choose launches with --kernel and --limit, raise --max-bytes, or use smaller sizes.",
)
CAPTURE_NO_SOURCE = error(
    "PT5065",
    ExitCode.USAGE,
    "{path} names no source to make a port of",
    "The kernel of a captured case is PTX or a binary; ports are made of CUDA C++.",
    "Add `source: FILE` to the case, or give --source FILE to `porter capture` or `porter verify`.",
)
GRADE_UNKNOWN = error(
    "PT5066",
    ExitCode.INCONCLUSIVE,
    "{kernel} is not graded; not known: {facts}",
    "A grade needs the shape of the MMAs, the bytes and number of stages and which warp loads. Porter reads them from "
    "the PTX and from a launch: a case, a launch file, or a run of the program.",
    "Give a case or --launch FILE, or state what is missing with --what-if, such as stages=4.",
)
GRADE_NO_CHANGE = note(
    "PT5072",
    "{kernel} is not graded with --what-if {change}: {why}",
    "An option that changes a kernel is asked of the original and of its port. Some changes only one of the two chips, "
    "or one of the two kernels, allows.",
    "Nothing is to be done: the other kernel is graded with it.",
)
GRADE_RECORD = error(
    "PT5067",
    ExitCode.USAGE,
    "{path} has no clocks to calibrate with: {problem}",
    "The model's constants are fitted to clocks of kernels that `porter kit` packs for GPUs the model knows.",
    "Give the record.txt of a kit that was made with --timing and run on such a GPU.",
)
GRADE_CALIBRATION = error(
    "PT5068",
    ExitCode.USAGE,
    "{path} is no calibration: {problem}",
    "A calibration holds the model's constants for one GPU, as `porter grade --calibrate` writes them.",
    "Make it again from the record.",
)
TIME_SPENT = error(
    "PT5090",
    ExitCode.INCONCLUSIVE,
    "not run: the {seconds} seconds of --seconds were spent",
    "No new input family, and no new case of `hazards` and `mutate`, is begun when the time is over. What was not run "
    "has no verdict.",
    "Give more time, or go on from what there is: `--format json verify ... --resume verify.json`, "
    "the same of `hazards` and `mutate`; also `mutate --record DIR`.",
)
