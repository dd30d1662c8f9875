# SPDX-License-Identifier: Apache-2.0
"""Options of `porter review`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    no_mend_option,
    prove_option,
    rules_option,
    style_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Where the accepted port is written.")  # fmt: skip
@click.option("--session", "record", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              default=Path(".porter/session.json"), show_default=True, help="Where decisions are kept.")  # fmt: skip
@click.option("--again", multiple=True, metavar="RULE",
              help="Ask again about groups of these rules (ID or prefix; repeatable).")  # fmt: skip
@click.option("--accept-safe", is_flag=True, help="Accept all groups whose safety is `safe` without a question.")
@rules_option
@style_option
@keep_option
@no_mend_option
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are; they are ported with the file.")  # fmt: skip
@click.option("--compile/--no-compile", "compiles", default=True, show_default=True,
              help="Compile what is accepted (sm_100a), where there is a CUDA compiler.")  # fmt: skip
@prove_option
@trust_option
def review() -> None:
    """Port PATH, and accept or refuse the edits group by group; what is accepted is written to DIR.

    Without PATH the session is gone on with. y accepts a group, n refuses it, a and d do so with all that follow, e
    opens its texts in $EDITOR, s takes a group of independent edits apart, q stops and keeps what is decided, ?
    explains. Refusing a group says what else falls with it: the groups of one kernel's port need each other.

    Run again, it ports again, asks only about groups that are new, and keeps what was edited by hand in DIR since, by
    a three-way merge; conflicts are marked as git marks them. Exit code 3: groups were refused, are not decided, or
    files have conflicts.

    \b
    porter review gemm.cu -o blackwell
    porter review
    """
