# SPDX-License-Identifier: Apache-2.0
"""Options of `porter port`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    mend_option,
    problem_option,
    prove_option,
    rules_option,
    style_option,
    target_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write what the port changes below DIR, and each file of PATH.")  # fmt: skip
@click.option("--whole", is_flag=True, help="With -o: also the files that stay as they are.")
@click.option("--apply", is_flag=True, help="Write the port over the originals.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if there is anything to port.")
@click.option("--allow-dirty", is_flag=True, help="With --apply: also over files that are not committed.")
@click.option("--select", multiple=True, metavar="RULE", help="Only these rules (ID or prefix; repeatable).")
@click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules (ID or prefix; repeatable).")
@rules_option
@keep_option
@target_option
@style_option
@problem_option
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are; they are ported with the file.")  # fmt: skip
@click.option("--no-helper", "inline", is_flag=True,
              help="Write the helpers into the sources, not into a header beside them.")  # fmt: skip
@click.option("--mark", "marks", is_flag=True,
              help="Leave messages and edits to review as comments in the port: `// porter[PT2503]: ...`. "
                   "`porter clean` removes them.")  # fmt: skip
@click.option("--shared-storage", "storage", default="", metavar="STRUCT",
              help="CuTe C++: put the port's mbarriers into the struct that a kernel takes its dynamic shared memory "
                   "for, instead of into 1 KB of static shared memory.")  # fmt: skip
@mend_option
@prove_option
@click.option("--compile/--no-compile", "compiles", default=True, show_default=True,
              help="Compile port (sm_100a) and original (sm_90a), where there is a CUDA compiler.")  # fmt: skip
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="For the compiler: a macro (repeatable).")
@click.option("--nvcc-flag", "flags", multiple=True, metavar="FLAG",
              help="For the compiler: passed to nvcc as it is, such as -isystem=DIR (repeatable).")  # fmt: skip
@click.option("--instantiate", "instantiate", multiple=True, metavar="'KERNEL<ARGS>'",
              help="A kernel with template arguments that only callers of its host code have: it is compiled and "
                   "compared with these, too (repeatable).")  # fmt: skip
@click.option("--grade", "grades", is_flag=True,
              help="Also say in a line how near original and port come to their chips' nominal rates, where there is "
                   "a case; both are compiled for it, none is run.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=None, metavar="N",
              help="Begin no new run that proves M=128 MMAs or steps after N seconds; what was not proved is left out "
                   "[default: 300 with --style auto].")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Processes that port files, and compilations at once (default: one per CPU).")  # fmt: skip
@trust_option
def port() -> None:
    """Port Hopper sources to Blackwell. Without options the diff goes to standard output.

    Local headers are ported with the files that include them. Exit code 3: constructs were left. A kernel that is
    refused stays as it is for sm_90a, and traps elsewhere; what can be ported of its file is. Exit code 4: the
    compiler takes the original and refuses the port, or the port's synchronization is proved wrong where the original's
    is not; nothing is written.
    """
