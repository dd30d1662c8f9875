# SPDX-License-Identifier: Apache-2.0
"""PT0xxx: command line, files, configuration."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note

FILE_NOT_FOUND = error(
    "PT0001",
    ExitCode.USAGE,
    "no such file or directory: {path}",
    "The path given on the command line, or named by a case file, does not exist.",
    "Check the spelling and the working directory.",
)
NOT_TEXT = error(
    "PT0002",
    ExitCode.USAGE,
    "{path} is not a text file",
    "The file holds NUL bytes, so it is no source that Porter can read.",
    "Pass CUDA C++ (.cu, .cuh, .h, .hpp) or CuTe DSL Python (.py) source.",
)
UNKNOWN_SOURCE_KIND = error(
    "PT0003",
    ExitCode.USAGE,
    "{path}: not a kind of source that Porter reads",
    "Porter tells source kinds apart by their file name ending.",
    "Rename the file, or pass one of .cu, .cuh, .h, .hpp, .cpp, .inl, .py.",
)
WOULD_OVERWRITE = error(
    "PT0004",
    ExitCode.USAGE,
    "refusing to write {path}: {reason}",
    "Porter writes whole files atomically and never over work that is not committed.",
    "Commit or stash the file, choose another -o directory, or pass --allow-dirty.",
)
BAD_OPTION = error(
    "PT0005",
    ExitCode.USAGE,
    "{option}: {problem}",
    "An option's value does not have the form that the option asks for, or two options exclude each other.",
    "See `porter COMMAND --help` for the form of each option.",
)
UNKNOWN_ID = error(
    "PT0006",
    ExitCode.USAGE,
    "nothing is called {name}",
    "`porter explain` knows IDs of diagnostics (PT0001), of hazards (H17) and of rules, and the word exit-codes.",
    "Copy the ID from the message in question, or run `porter explain --list`.",
)
NOTHING_TO_PORT = note(
    "PT0007",
    "{path}: nothing to port",
    "The file holds no construct that exists on Hopper only.",
    "Nothing needs to be done: the source compiles for both architectures as it is.",
)
WRITE_FAILED = error(
    "PT0008",
    ExitCode.USAGE,
    "cannot write {path}: {reason}",
    "The operating system refused to write a result. No file of this run was changed.",
    "Check permissions and free space, or choose another -o directory.",
)
NO_SOURCES = error(
    "PT0009",
    ExitCode.USAGE,
    "{path}: no source that Porter reads in this directory",
    "A directory stands for the CUDA and CuTe DSL sources below it; there are none.",
    "Pass a directory that holds .cu, .cuh, .h, .hpp, .cpp, .inl or .py files.",
)
NO_KERNEL = error(
    "PT0010",
    ExitCode.USAGE,
    "{path}: no GPU kernel in this file",
    "Python sources are read for functions marked @cute.kernel of NVIDIA's CuTe DSL, and for strings with the CUDA "
    "source of the kernel; there is neither here.",
    "Pass the file that defines the kernel.",
)
RECOMPILED_KERNEL = note(
    "PT0019",
    "{path} needs no port: Triton compiles for the GPU of the launch; look at num_stages, num_warps and block sizes, "
    "at tests for capability 9 and at inline assembly",
    "Triton makes wgmma or tcgen05 of tl.dot by itself, so the same source runs on sm_100.",
    "Run it with a Triton release that knows sm_100, and tune anew: num_stages, num_warps and block sizes of "
    "triton.Config. Look at comparisons with compute capability 9, inline assembly, and caches of compiled kernels.",
)
IS_DIRECTORY = error(
    "PT0012",
    ExitCode.USAGE,
    "{path} is a directory; `porter {command}` takes one file",
    "Building and running need to know which kernel or program is meant.",
    "Pass a file in it. `porter verify`, `scan` and `port` take directories.",
)
NOTHING_TO_RUN = error(
    "PT0013",
    ExitCode.USAGE,
    "{path}: nothing here can be run: {reason}",
    "The simulator runs a PTX module, a kernel that a case file describes, or a program with a main() of its own.",
    "`porter case new KERNEL` writes a draft of a case beside the kernel; or pass the program that launches it.",
)
NOTHING_TO_BUILD = error(
    "PT0014",
    ExitCode.USAGE,
    "{path} instantiates no kernel",
    "There is no kernel in this file, or only templates of kernels that nothing in it uses.",
    "Pass the file that holds the kernel; a case beside it names the template arguments.",
)
CONFIG_FILE = error(
    "PT0015",
    ExitCode.USAGE,
    "configuration: {problem}",
    "Settings of a project stand in porter.toml, or in [tool.porter] of pyproject.toml, beside its sources or above.",
    "Mend the place that is named (docs/configuration.md has all keys), or pass --no-config.",
)
CONFIG_DIFFERS = error(
    "PT0016",
    ExitCode.USAGE,
    "{one} and {other} have different configurations: {file}, and {other_file}",
    "One run has one configuration, that which stands nearest to its sources.",
    "Run the command for each of them, or pass --config FILE or --no-config.",
)
NOT_TRUSTED = error(
    "PT0017",
    ExitCode.USAGE,
    "{path} is not run: {what}",
    "CuTe DSL kernels and reference functions are Python that has to be imported, and compiler options may load "
    "code. That is done for sources that you trust, and nobody could be asked or the answer was no.",
    "Look at the sources, then pass --trust, or set PORTER_TRUST=1 for a script. `porter scan`, `porter plan` and "
    "`porter port --no-compile` run nothing.",
)
TOO_LARGE = error(
    "PT0018",
    ExitCode.USAGE,
    "the input asks for more than there is: {what}",
    "It needs more memory than this machine has, or is nested deeper than Porter goes. Nothing was written.",
    "Use smaller sizes, or leave the file out.",
)
NOT_A_DOCUMENT = error(
    "PT0030",
    ExitCode.USAGE,
    "{path} is no result of Porter's: {problem}",
    "A report is made of kernels, and of documents that commands wrote with --format json.",
    "Write the document anew, with this version of Porter: `porter --format json verify gemm.cu > verify.json`.",
)
PACKAGE_MISSING = error(
    "PT0031",
    ExitCode.USAGE,
    "{what} needs the package {package}, which is not installed",
    "Packages that only some commands need are extras of Porter's distribution, porter-sm100; the others come with it, "
    "unless pip was told to leave them out.",
    "Install the package that is named, or the extra: pip install 'porter-sm100[binaries]' for compressed images, "
    "'porter-sm100[mcp]' for `porter mcp`.",
)
INTERNAL = error(
    "PT0099",
    ExitCode.USAGE,
    "internal error: {what}",
    "Porter met a state that its authors did not foresee. Nothing was written.",
    "Re-run with -v for the traceback and report it with the input file.",
)
