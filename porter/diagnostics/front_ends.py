# SPDX-License-Identifier: Apache-2.0
"""PT1xxx: front ends."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note, warning

UNREADABLE_SOURCE = error(
    "PT1001",
    ExitCode.USAGE,
    "cannot read {path}: {reason}",
    "The system refused to hand out its contents, it is a pipe or a device, or it has more than Porter goes through.",
    "Check its permissions; pass a regular file of ordinary size.",
)
UNPARSED_REGION = warning(
    "PT1002",
    "{count} bytes here were not understood as C++",
    "The grammar does not cover this text, most often because of a macro whose definition is in no file "
    "that Porter read. Nothing in it was analysed or changed.",
    "Read the region by hand, or make the header that defines its macros reachable with -I.",
)
UNREAD_ASM = error(
    "PT1003",
    ExitCode.UNPORTED,
    "asm statement that could not be read",
    "The word asm stands here in code, but what follows was not understood as an asm statement.",
    "Simplify the macros around the statement, or port it by hand.",
)
UNREAD_PTX = error(
    "PT1004",
    ExitCode.UNPORTED,
    "inline PTX that could not be read: {reason}",
    "The template of this asm statement is not PTX as the PTX ISA writes it, or parts of it are macros "
    "whose text Porter does not know.",
    "Write the template out as string literals, or port the statement by hand.",
)
UNRESOLVED_INCLUDE = warning(
    "PT1005",
    "`#include {name}` was not found in {searched}{hint}",
    "The file includes a header of its own project that is neither next to it (for a quoted name) nor in a directory "
    "of -I. What stands in it was not read: kernels and wrappers in it are not ported, macros in it are not known. "
    "Headers of the language, the system, the CUDA toolkit and well-known libraries are not asked for.",
    "Pass the directory that the name starts from with -I, or port the header separately.",
)
DSL_UNREADABLE = error(
    "PT1050",
    ExitCode.USAGE,
    "{path} is not Python that could be read: {problem}",
    "Porter reads CuTe DSL sources with a parser that keeps every byte; this file does not parse.",
    "Correct the syntax error.",
)
EMBEDDED_SOURCE = error(
    "PT1006",
    ExitCode.UNPORTED,
    "CUDA source in a string is not ported: {reason}",
    "Sources that are compiled at run time are read in place, so the text in the file has to be the source itself.",
    'Write the source as a raw string in triple quotes (r"""..."""), or put it into a file of its own.',
)
INCLUDE_NOT_READ = error(
    "PT1007",
    ExitCode.UNPORTED,
    "{path}: no kernel was found to port, but {count} of its headers {were} not read: {names}",
    "Hopper code may stand in a header that was not found; without it nothing can be said about the file.",
    "Pass the headers' directories with -I (each is named with its line above). If they hold no device code, nothing "
    "needs to be done.",
)
UNRESOLVED_MODULE = warning(
    "PT1008",
    "`{name}` comes from module {module}: {what}",
    "A class is derived from it, or it is used where kernels are made, and what stands in it was not read: kernels in "
    "it are not ported. Modules are looked for in the file's package, beside the file, in directories of -I, and where "
    "the interpreter looks. Modules that no kernel can come from are not asked for.",
    "Pass the directory that the module's name starts from with -I, or install the package that has it.",
)
MODULE_NOT_READ = error(
    "PT1009",
    ExitCode.UNPORTED,
    "{path}: nothing for Hopper was found to port, but not everything was read: {names}",
    "A kernel for Hopper may stand in what was not found; without it nothing can be said about the file.",
    "Pass the modules' directories with -I (each is named with its place above). If they hold no kernels, nothing "
    "needs to be done.",
)
INCLUDE_DIRECTORY_TAKEN = note(
    "PT1010",
    "`-I {directory}` is taken: {name} is found there, and in no other directory of what was given",
    "The file includes a header of its own project that is neither next to it nor in a directory of -I, and no build "
    "file says where it is. Of the directories that a build would name, only one has it.",
    "Pass -I with another directory if this is not the one, or the same to be rid of the note.",
)
EMPTY_SUBMODULE = warning(
    "PT1011",
    "the submodule {path} is empty; `git submodule update --init {path}` fills it",
    "The project builds with what lies there in a complete clone. Headers of it are not read, and a port that needs "
    "them does not compile.",
    "Run that in the repository, and port again.",
)
