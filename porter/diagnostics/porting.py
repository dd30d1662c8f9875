# SPDX-License-Identifier: Apache-2.0
"""PT2xxx: porting."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note, warning

WGMMA_FORM = error(
    "PT2001",
    ExitCode.UNPORTED,
    "wgmma is not ported here: {what}",
    "The compat port translates dense wgmma of every type but b1, with operand A in shared memory or in "
    "registers, in asm statements that it can read whole.",
    "Write it as one asm statement: a template of literals, no predicate, and for D the registers of one array in "
    "order. What has no such form is ported by hand; `porter map wgmma` shows what to.",
)
LIBRARY_CONSTRUCT = error(
    "PT2003",
    ExitCode.UNPORTED,
    "{name} is not ported yet ({library})",
    "The file uses a Hopper-only construct of a library whose port is not built yet.",
    "`porter scan` lists what the construct becomes on sm_100a.",
)
BUILDER_FORM = error(
    "PT2017",
    ExitCode.UNPORTED,
    "a collective builder is not ported: {what}",
    "Builders of CUTLASS are asked for arch::Sm100 with the schedules and tiles that it has there. That needs every "
    "place of Hopper's tags to be understood.",
    "Write there what it is for sm_100a; if a template of your own takes the tag, give its header with -I.",
)
TMEM_TOO_LARGE = error(
    "PT2005",
    ExitCode.UNPORTED,
    "the accumulators of {kernel} need {columns} Tensor Memory columns, an SM has 512",
    "Every m64nN tile takes N columns in half of the lanes; two warpgroups share columns.",
    "Take a smaller N, or fewer tiles at a time.",
)
PORT_DOES_NOT_FIT = error(
    "PT2018",
    ExitCode.UNPORTED,
    "the port of {path} is refused: {what}",
    "A port of CuTe C++ brings a header along that asks the compiler what only it knows: the types of tiled MMAs and "
    "of tensors, and so their sizes. Nothing was written.",
    "Do what the message says, take a smaller tile, or port this kernel by hand.",
)
NOT_ANALYSED = error(
    "PT2006",
    ExitCode.UNPORTED,
    "wgmma in text that is not analysed: {what}",
    "Source in string literals, in regions that do not parse, or built by macro concatenation is not read.",
    "Move the instruction into an asm statement of its own.",
)
NO_KERNEL_REACHES = warning(
    "PT2007",
    "no kernel in these files uses {name}",
    "The wrapper was ported, but where Tensor Memory is allocated could not be decided without its kernel.",
    "Port the file that holds the kernel; its local includes are followed.",
)
MMA_NOT_SEEN = error(
    "PT2060",
    ExitCode.UNPORTED,
    "MMAs are committed, none of the sources issues one, and {name} was not read",
    "It is handed an array, and may issue them: a function or macro of a header that was not found, or of another file "
    "that is compiled together with this one. It would be left as it is, and nobody would wait for it.",
    "Name the directory of the header with -I, or port the files together.",
)
TARGET_LACKS = error(
    "PT2061",
    ExitCode.UNPORTED,
    "{target} does not have all instructions: {why}",
    "The chips with tcgen05 differ in a few instructions: sm_103a has no MMAs of 8-bit integers (PTX ISA 9.7.16). What "
    "sm_100a has was looked up for the chip that --to names.",
    "Port for sm_100a, or keep the kernel from this chip.",
)
BARRIER_IDS = warning(
    "PT2008",
    "a named barrier has an id that is not a constant: {kernel}",
    "The port synchronizes each warpgroup on a named barrier of its own, counted down from 15.",
    "Check that the kernel does not use those ids.",
)
BARRIERS_TAKEN = error(
    "PT2016",
    ExitCode.UNPORTED,
    "no named barriers are left for the warpgroups of {kernel}",
    "A CTA has 16 of them. The port synchronizes each warpgroup on one of its own, whose ids follow each other.",
    "Use fewer ids in the kernel, or ids that leave as many next to each other as it has warpgroups.",
)
WARPGROUPS_UNKNOWN = warning(
    "PT2009",
    "the block size of {kernel} is not known; room for {count} warpgroups is set aside",
    "Neither `__launch_bounds__` nor a launch gives it as a constant expression of names, numbers and + - * /.",
    "Write `__launch_bounds__` with such an expression, then port again.",
)
RULE_IGNORED = error(
    "PT2010",
    ExitCode.UNPORTED,
    "rule {rule} is switched off, and the rest of the port needs it",
    "The edits of a kernel's port mean something only together.",
    "Take the rule out of --ignore or into --select, or leave out all rules of the kernel's port.",
)
SPARSE_WGMMA = error(
    "PT2011",
    ExitCode.UNPORTED,
    "sparse wgmma is not ported",
    "The threads hold the metadata of wgmma.mma_async.sp in a register each, with a selector in the instruction. "
    "tcgen05.mma.sp reads it from Tensor Memory, all rows in one layout of its own.",
    "Port the dense form: expand A with the zeros that the metadata leaves out. Or write "
    "tcgen05.mma.sp by hand and bring the metadata to Tensor Memory with tcgen05.cp (PTX ISA, sparse matrices of "
    "tcgen05.mma).",
)
BINARY_WGMMA = error(
    "PT2012",
    ExitCode.UNPORTED,
    "wgmma of b1 operands is not ported",
    "No kind of tcgen05.mma multiplies single bits.",
    "Use mma.sync.m16n8k256 with .and.popc, which sm_100a still has, or expand the bits to "
    "8-bit integers and port wgmma.s32.u8.u8, with eight times the operand bytes.",
)
KERNEL_LEFT = error(
    "PT2013",
    ExitCode.UNPORTED,
    "kernel `{kernel}` was not ported: it stays as it is for sm_90a and traps elsewhere ({codes}){launches}",
    "Something on the way of this kernel is not ported, and other kernels of the file are. Its body, and those of "
    "functions that only it calls, are kept byte for byte under `#if defined(__CUDA_ARCH_FEAT_SM90_ALL)`; a build for "
    "sm_100a has a trap in their place. Functions that ported kernels need too are there in both forms. The ported "
    "kernels are for sm_100a only, so a build for both architectures takes sm_90a from the original file.",
    "Do not launch it on Blackwell: choose another kernel where the host code names it. Or port it by hand: remove "
    "what is named above and port the original file again.",
)
SHARED_HEADER = error(
    "PT2015",
    ExitCode.UNPORTED,
    "{path} would have to become one text for {one} and another for {other}",
    "A file that several others include is ported once for all of them. Here their kernels use it in ways that ask for "
    "different texts. None of the files that share it was changed.",
    "Give each of the two its own copy of what differs, or port them one at a time, each with -o into its own "
    "directory.",
)
EDITS_CLASH = error(
    "PT2063",
    ExitCode.UNPORTED,
    "`{text}` would have to become two texts: {first} and {second} both change it",
    "One piece of source stands for several uses here, as the body of a macro does, or two rules are about the same "
    "text. Nothing was changed.",
    "Write the text out once for each use. If a rule of your own is about it, make the rule ask for less text.",
)
COLUMNS_UNNAMED = error(
    "PT2070",
    ExitCode.UNPORTED,
    "where `{other}` is declared nothing says how many Tensor Memory columns `{name}` takes",
    "The two may be live at once, so that one lies behind the other. The extents of the one in front depend on names "
    "that mean something else there, or nothing.",
    "Make its extents template parameters or constants that are declared in front of both.",
)
NAMESPACE_TAKEN = error(
    "PT2071",
    ExitCode.UNPORTED,
    "the sources have a name `{name}`, which is that of the namespace that the port brings along",
    "Names of the port would be looked up in it.",
    "Give it another name.",
)
TMEM_SIZE_UNKNOWN = warning(
    "PT2501",
    "{kernel} allocates {columns} Tensor Memory columns: how many it needs is not known where it allocates",
    "The extents of an accumulator depend on names that are not visible at the top of the kernel.",
    "Fewer CTAs fit on an SM than might. Make the tile extents template parameters or file-scope constants.",
)
REGISTERS_KEPT_TRUE = note(
    "PT2505",
    "`{name}` moves at every wait and MMA: {why}",
    "Where every access to the registers is understood, loads and stores stand at the accesses. Else the registers are "
    "kept true outside of batches in flight: they go to Tensor Memory before each MMA, unless it is newer, and come "
    "back behind each wait. That is right whatever the code does with them, and costs moves that may be unnecessary; "
    "a loop that names nothing through which the registers can be reached has none.",
    "Nothing has to be done. For speed, access the registers by name and subscript, outside of macros and references.",
)
EXTRA_BARRIER = note(
    "PT2502",
    "each MMA batch of {kernel} starts with a warpgroup barrier",
    "On Hopper each warp waited for its own operands; on sm_100a one thread issues for all four warps and "
    "must come after everything they did.",
    "Correct as it is. The native style gives the MMA a warp of its own, which needs no such barrier.",
)
HALF_RATE = note(
    "PT2503",
    "{kernel} issues M=64 MMAs, which run at half the rate of M=128",
    "The compat style keeps the row ownership of Hopper warpgroups, which M=64 tiles preserve exactly.",
    "Correct as it is. `--style auto` merges tiles to M=128 where a case verifies that (docs/full_rate.md).",
)
FULL_RATE_LEFT = warning(
    "PT2510",
    "{kernel} stays at M=64: {what}",
    "With the styles `auto` and `full-rate` one M=128 MMA does the work of two m64 tiles. That takes facts about the "
    "kernel which its text has to tell; the one that is named is not known. The port is that of the compat style.",
    "Correct as it is. docs/full_rate.md has the facts that are needed, and forms in which they are understood.",
)
FULL_RATE_UNPROVED = warning(
    "PT2511",
    "{path} stays at M=64: {what}",
    "With the styles `auto` and `full-rate` a port is made with M=128 MMAs, and run: all sizes of the case beside the "
    "kernel, all input families, several schedules, hazards at strict level. It is given only if nothing is found. The "
    "port is that of the compat style.",
    "Correct as it is. Where a case ran the kernel, `porter verify --style full-rate` shows what is said above; where "
    "none does, `porter case new` drafts one (docs/cases.md).",
)
FULL_RATE_PROVED = note(
    "PT2512",
    "{path} issues M=128 MMAs; {cases} verified it at {sizes} sizes",
    "One M=128 MMA does the work of two m64 tiles, at twice their rate.",
    "Nothing has to be done.",
)
FULL_RATE_EQUAL = note(
    "PT2543",
    "{path} {how}; it is equal to its original on PTX, with proved synchronization: {kernels}",
    "No case has run the port. What the compiler made of both was compared, as host code launches each kernel: each "
    "byte of the output is made of the same data, by the same operations, in the same order (docs/equality.md).",
    "Nothing has to be done. A case runs it, too (`porter case new`).",
)
FULL_RATE_PERMUTED = note(
    "PT2529",
    "rows of A change places in shared memory, for M=128 MMAs of {kernel}: {what}",
    "In an M=128 MMA row L of A is in lane L, and threads look for other rows there. They get other indices where "
    "every read of one is known. What is named here keeps them from it: so rows are loaded to other places instead, 16 "
    "at a time; the boxes of tensor maps in the host code have 16 rows.",
    "Correct as it is. Where threads get other indices, loads stay as they are.",
)
PERMUTED_MAPS = note(
    "PT2530",
    "the tensor maps of {path} have other boxes; a case that runs the port as a file says `port: {section}`",
    "Rows of A are loaded 16 at a time. The host code of the port makes its tensor maps for that; a case makes maps by "
    "itself. What Porter ports and verifies in one run needs no such section.",
    "Write the section into the case if you keep the port (docs/cases.md), and follow it in launches elsewhere.",
)
IDIOM_LEFT = warning(
    "PT2570",
    "{kernel} is not in SM100's own words; missing: {what}",
    "With `--style idiomatic`, of CuTe DSL with every style but compat, a kernel with a TiledMMA gets the atoms, the "
    "allocator, the copies and the pipelines that CuTe has for sm_100a, and no file beside it. That takes facts about "
    "the kernel; the one that is named is not known. The port is that of the compat style.",
    "Correct as it is. docs/idiomatic.md has the facts that are needed, and what becomes of each construct.",
)
IDIOM_UNPROVED = warning(
    "PT2580",
    "{path} is not in SM100's own words: {what}",
    "A port of CuTe in SM100's own words is run: all sizes of the cases beside the kernel, all input families, several "
    "schedules, hazards at strict level; or, of CuTe C++ without a case, it is compared with its original on PTX. It "
    "is given only if nothing is found. The port is that of the compat style, with a support file beside it.",
    "Correct as it is. `porter verify --style idiomatic` shows what is said above.",
)
IDIOM_PROVED = note(
    "PT2581",
    "{path} {how}; {cases} verified it at {sizes} sizes",
    "The port uses public names of CuTe alone, and no file stands beside it.",
    "Nothing has to be done.",
)
IDIOM_AT_PRACTICE = note(
    "PT2582",
    "{path} is in Blackwell's own words; {cases} verified it at {sizes} sizes, with hazards at practice level: the "
    "installed CuTe DSL has no {names}",
    "The port uses public names of CuTe DSL alone, and no file stands beside it. Some versions of the DSL have no name "
    "for fences that the PTX ISA asks for, and NVIDIA's own kernels are without; so is the port.",
    "Nothing has to be done. With a newer nvidia-cutlass-dsl the port has these fences, and is verified at strict "
    "level.",
)
IDIOM_COMMENTS = note(
    "PT2571",
    "comments beside {kernel} speak of MMAs as Hopper has them: lines {lines}",
    "The port changes what comments describe, and leaves their words to the author.",
    "Read them beside the port, and say what is so now.",
)
NATIVE_LEFT = warning(
    "PT2513",
    "{kernel} is without the step {step}; missing: {what}",
    "Steps of `--style native` change who waits for whom. That takes facts about the kernel which its text has to "
    "tell; the one that is named is not known. The port has the other steps.",
    "Correct as it is. docs/full_rate.md has the steps, what they need, and forms in which that is understood.",
)
NATIVE_UNPROVED = warning(
    "PT2514",
    "{path} is without the step {step}: {what}",
    "A port with a step is run (of CUDA C++ it is compared on PTX first): all sizes of the case beside the kernel, all "
    "input families, several schedules, hazards at strict level. A step is given only if PTX shows no difference and "
    "no hazard, and runs find nothing.",
    "Correct as it is. Where a case ran the kernel, `porter verify --style native` shows what is said above; where "
    "none does, `porter case new` drafts one (docs/cases.md).",
)
NATIVE_PROVED = note(
    "PT2515",
    "{path} has the step {step}; {cases} verified it at {sizes} sizes",
    "Steps of the native style let the tensor core run ahead of the threads.",
    "Nothing has to be done.",
)
NATIVE_STAGES = note(
    "PT2517",
    "the ring of {path} has {stages} stages; a case that runs the port as a file says `port: {section}`",
    "What a launch asks for grows with the stages of the ring. The host code of the port follows; a case launches by "
    "itself. What Porter ports and verifies in one run needs no such section.",
    "Write the section into the case if you keep the port (docs/cases.md), and follow it in launches elsewhere.",
)
NATIVE_PAIRS = note(
    "PT2518",
    "the CTAs of {path} are pairs; a case that runs the port as a file says `port: {section}`",
    "A grid has a whole number of pairs, and clusters of two. The host code of the port follows; a case launches by "
    "itself. What Porter ports and verifies in one run needs no such section.",
    "Write the section into the case if you keep the port (docs/cases.md), and follow it in launches elsewhere.",
)
NATIVE_WIDE = note(
    "PT2565",
    "tiles of {path} are twice as wide; a case that runs the port as a file says `port: {section}`",
    "There are half as many blocks in columns, and boxes of tensor maps and shared memory are larger. The host code of "
    "the port follows; a case launches by itself. What Porter ports and verifies in one run needs no such section.",
    "Write the section into the case if you keep the port (docs/cases.md), and follow it in launches elsewhere.",
)
NATIVE_STAGED = note(
    "PT2535",
    "{kernel} stages its results in {bytes} of static shared memory",
    "With the step bulk-store warps put rows of results into shared memory, from where they leave by bulk copies. A "
    "block has as much less for the dynamic shared memory that launches ask for.",
    "Nothing has to be done where launches leave as much.",
)
NATIVE_SCALES = note(
    "PT2542",
    "{kernel} scales `{name}` in the tensor core, which has powers of two from 2^-127 to 2^127",
    "With the step scales the factors of rows are ue8m0 in Tensor Memory. Those of an element are multiplied with each "
    "other first. A product that is zero, or less than 2^-127, counts as 2^-127, and an infinite one as NaN.",
    "Nothing has to be done where scales are in that range. Without `--block-scale` threads multiply as before.",
)
FULL_RATE_SLOWER = note(
    "PT2532",
    "{path} stays at M=64: by the grade {kernel} reaches {compat} of its chip's nominal rate, and {rate} with {what}",
    "One M=128 MMA takes no longer than one of 64 rows. But two tiles that are one no longer take turns: where threads "
    "compute between MMAs, the tensor core then waits for them. What is compared is what `porter grade` says of both "
    "ports, for each instantiation that cases compile.",
    "Nothing has to be done. `--style full-rate` gives M=128 MMAs all the same; `porter grade` says what holds both.",
)
FULL_RATE_IS_SLOWER = warning(
    "PT2533",
    "{path} has {what}, with which by the grade {kernel} reaches {rate} of its chip's nominal rate; at M=64 it reaches "
    "{compat}",
    "The style was asked for by name, so it is given. Two tiles that are one MMA no longer take turns: where threads "
    "compute between MMAs, the tensor core then waits for them.",
    "Take `--style auto`, which keeps M=64 here, or see with `porter plan --style native` which steps would help.",
)
FULL_RATE_UNTRIED = note(
    "PT2534",
    "M=64 in {files}: no run could show that M=128 is right, as {why}",
    "With `--style auto` M=128 MMAs, which run at twice the rate, are given only where the case beside a kernel "
    "verifies them in the same run, or where all kernels of the file are equal to their originals on PTX, with proved "
    "synchronization, as host code launches them. The port is that of the compat style.",
    "Correct as it is. Where no case runs the kernel, `porter case new` drafts one (docs/cases.md); `--trust` lets "
    "code run that a case brings along. `--seconds` says how long runs of `auto` may take, `--style full-rate` takes "
    "what it needs.",
)
SHARED_MEMORY_GROWS = note(
    "PT2504",
    "{kernel} takes {bytes} more bytes of static shared memory",
    "The completion mbarriers and the Tensor Memory address live there; where dynamic shared memory "
    "follows, the size keeps its 1024-byte alignment.",
    "Check that static and dynamic shared memory together stay within what a block may opt in to.",
)
SHARED_MEMORY_NOT_SEEN = warning(
    "PT2516",
    "{kernel} takes {bytes} more bytes of static shared memory: a launch with more than {left} bytes of dynamic shared "
    "memory fails",
    "The kernel has dynamic shared memory, and no launch of it stands in the sources, so how much it asks for is not "
    "known. The completion mbarriers and the Tensor Memory address of the port come out of the same bytes of a block.",
    "Look at the host code that launches the kernel. Where it asks for more, take fewer stages or a smaller tile.",
)
SHARED_MEMORY_OVER = error(
    "PT2062",
    ExitCode.UNPORTED,
    "{kernel} is launched with {asked} bytes of dynamic shared memory; with the port's {bytes} these are {total}, and "
    "a block may have {limit}",
    "The completion mbarriers and the Tensor Memory address of a port are static shared memory, which comes out of the "
    "same bytes. Nothing was changed: such a launch fails.",
    "Take fewer stages or a smaller tile. A kernel in CuTe C++ that takes its dynamic shared memory for a struct may "
    "have room there: `--shared-storage`.",
)
HELPERS_THERE = error(
    "PT2014",
    ExitCode.UNPORTED,
    "the sources already have the helpers of a port, and MMAs of Hopper beside them",
    "A port's helpers are chosen for all kernels of a file. Those that are there may lack what the others need, and a "
    "second set would clash with them. Nothing was changed.",
    "Port the files as they were before the first port, all at once.",
)
DSL_CONSTRUCT = error(
    "PT2050",
    ExitCode.UNPORTED,
    "`{name}` is not ported: {what}",
    "A CuTe DSL kernel is ported by names: warpgroup MMAs come from the module porter_dsl, and what cannot be ported "
    "shows when the kernel is compiled. This one is no name that can come from there. Nothing was written.",
    "Write this place with cute.gemm and the names of cute.nvgpu.warpgroup, or port it by hand.",
)
DSL_SUPPORT_TAKEN = error(
    "PT2052",
    ExitCode.UNPORTED,
    "{path} is there and is not the module that the port needs at this place",
    "Ports of CuTe DSL import porter_dsl from the directory that their other imports start from. Nothing was written.",
    "Move the file away, or give it another name; if an older version of Porter wrote it, delete it.",
)
LEFT_FOR_ONE_CHIP = error(
    "PT2056",
    ExitCode.UNPORTED,
    "`{text}` is for Hopper alone; the port needs `{becomes}`",
    "With --keep-hopper both forms of a kernel are built. A compiler option in a string names one of the targets, and "
    "which one is wanted is known where the program runs.",
    "Choose the option by the device's compute capability there, or port without --keep-hopper.",
)
BUILD_FILE_LEFT = error(
    "PT2058",
    ExitCode.UNPORTED,
    "left as it is: {text}",
    "This line of a build file is about Hopper, and how it takes part in the build was not understood. The kernels are "
    "ported; what builds them may not build them for sm_100a.",
    "Change the line as is said above, by hand.",
)
CHIP_CHECK_LEFT = error(
    "PT2059",
    ExitCode.UNPORTED,
    "left as it is: {text}",
    "This asks which GPU the program runs on or is compiled for, and Blackwell does not come to what Hopper comes to. "
    "Either what is meant is not known, or it is asked in a way that no rule rewrites. The kernels are ported; the "
    "program may not choose them.",
    "Make it hold for compute capability 10.0 where the port is to run, by hand.",
)
CHIP_CHECK_ADMITS = note(
    "PT2080",
    "`{text}` also admits compute capability {others}, where an image for {target} does not run{more}",
    "An image for an architecture-specific target such as sm_100a runs on chips of this one compute capability. A "
    "first number or a lower bound admits others, on which a launch ends in `no kernel image is available`. The "
    "port runs where it is meant to; this is said once, of all such places.",
    "Where only the ported kernels are meant, ask for the first and the second number: major == 10 && minor == 0 for "
    "sm_100a, in Python == (10, 0).",
)
EXTERNAL_FUNCTION = error(
    "PT2081",
    ExitCode.UNPORTED,
    "`{name}` is not ported: its parameters change, and {why}",
    "A device function with external linkage is called from other translation units (nvcc -rdc=true). In a port it is "
    "handed a tile in Tensor Memory, so that callers which are compiled with its old declaration do not link, and "
    "pointers to it have another type. Each translation unit is ported by itself, as the accumulator's tile, its "
    "columns and its waits are the caller's.",
    "Define it as `static` or `__forceinline__` in a header that its callers include, and call it by its name: then it "
    "is ported with them.",
)
NOT_FOR_BOTH_CHIPS = error(
    "PT2057",
    ExitCode.UNPORTED,
    "--keep-hopper does not apply to {what}",
    "Both forms of a CUDA kernel stand in one file, and the compiler's target chooses. CuTe DSL has no such choice: a "
    "module is traced for one target, and its port has other imports, types of MMAs and a module beside it. A "
    "collective builder has none either: host code, which is compiled once, makes the type of the kernel.",
    "Port it without --keep-hopper, into a directory of its own (-o), and choose by the device's compute capability.",
)
DSL_OBSTACLE = error(
    "PT2055",
    ExitCode.UNPORTED,
    "{kernel} is not ported: {what}",
    "The port's MMAs were traced with the arguments of a case. Here the kernel asks for something that Tensor Memory "
    "or tcgen05 does not have, or that the module `porter_dsl` beside the port cannot follow. Every such place is "
    "named. Nothing was written.",
    "Change these lines in the original, or port the kernel by hand.",
)
HOPPER_KEPT = note(
    "PT2506",
    "Hopper's form is kept beside the port, as with --keep-hopper",
    "The build lists Hopper and other chips at this line, so one source is compiled for several of them.",
    "With --no-keep-hopper the port takes the place of the original.",
)
DSL_PATCHED = note(
    "PT2552",
    "module {module} is ported with the file that imports it: {path}",
    "It belongs to the project, so it keeps its name.",
    "Port the other files that import it too, or keep its original for them.",
)
DSL_COPIED = note(
    "PT2553",
    "module {module} of an installed package is copied to {path}, {how}, from {source}",
    "Installed packages are not changed. The copy stands beside the port, in a package of another name, with its "
    "imports in full; modules that need no change are still imported from the package.",
    "Keep the copies with the port; port anew when the package is updated.",
)
PLACE_KEPT = note(
    "PT2507",
    "left as it is, as the comment asks: {rule}, {title}",
    "A comment `porter: keep` names the rule, so its edit is not made in this place. Whether the port is right without "
    "it, nobody has checked but `porter verify`.",
    "Remove the comment to have the edit.",
)
SESSION_UNREADABLE = error(
    "PT2030",
    ExitCode.USAGE,
    "{path} is no review session that can be read: {reason}",
    "A session holds the decisions of `porter review` and the texts that it wrote.",
    "Name another file with --session, or remove this one and begin again.",
)
GROUPS_REFUSED = error(
    "PT2031",
    ExitCode.UNPORTED,
    "{count} edit groups are not in the port: {groups}",
    "They were refused, or cannot stand without one that was. What they would have changed is as it was, for sm_90a; "
    "groups of one kernel's port are written together or not at all.",
    "Port these places by hand, or take the refusals back: `porter review --again RULE`.",
)
MERGE_CONFLICT = error(
    "PT2032",
    ExitCode.UNPORTED,
    "{path}: {count} conflicts between edits by hand and the port",
    "The file was edited since the port was written, at lines that the port has changed too. Both stand there, between "
    "<<<<<<< and >>>>>>>, as git writes it.",
    "Choose at each place, remove the markers, and run `porter review` again.",
)
REVIEW_OPEN = error(
    "PT2033",
    ExitCode.UNPORTED,
    "{count} edit groups are not decided; nothing was written, and what was decided is in {session}",
    "A port is written when each of its groups is accepted or refused.",
    "Go on with `porter review`.",
)
EDITED_BY_HAND = warning(
    "PT2508",
    "{rule}: the text is the reviewer's own, not the rule's",
    "What was said of the rule's text, its reason and its safety, does not hold for another text.",
    "Run `porter verify --port` on the result.",
)
CHIP_TEXT_DIFFERS = error(
    "PT2075",
    ExitCode.UNPORTED,
    "the port comes to other text than its original: `{hopper}` for sm_90a, `{blackwell}` for {arch}",
    "The preprocessor was asked for the original's text for Hopper and for the port's text for its chip. At this place "
    "they differ, and no rule knows the condition or the value that makes the difference: a macro of a header, "
    "__CUDA_ARCH__ as a value, the list of architectures. The kernels are ported as if it did not matter.",
    "Write the place so that both chips come to what the kernel needs: ask for `__CUDA_ARCH__ >= 900`, or take the "
    "branch that Hopper took without asking.",
)
CHIP_TEXT_UNKNOWN = note(
    "PT2076",
    "{path}: conditions on the chip are known by the names of rules alone; the preprocessor was not asked: {reason}",
    "Macros of headers and the value of __CUDA_ARCH__ may choose another branch for the port's chip than for Hopper. "
    "What they come to is known to the preprocessor only.",
    "Run `porter port` with a CUDA toolkit and with the directories of all headers (-I).",
)
