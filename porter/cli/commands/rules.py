# SPDX-License-Identifier: Apache-2.0
"""Options of `porter rules` and its commands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from porter.cli.commands.shared import Command, PlaceType, rules_option

_Command = partial(Command, group="rules")


@click.group()
def rules() -> None:
    """Rules, Porter's and your own: list them, run their examples, begin a new one from a call.

    \b
    porter rules list --rules house/rules
    porter rules new acme --from kernel.cu:12 -o house/rules
    porter rules test house/rules --accept
    """


@rules.command(name="list", cls=_Command)
@rules_option
def rules_list() -> None:
    """List all rules: ID, kind, safety, library, title, and the file that each stands in.

    A recognizer says what a name of a library is, a replacement what becomes of a text, a refusal what is not ported;
    a pass is done in Python. `porter explain ID` has the whole text of one.
    """


@rules.command(name="explain", cls=_Command)
@click.argument("place", type=PlaceType(), metavar="FILE:LINE")
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@rules_option
def rules_explain() -> None:
    """Say which rules are tried on the calls, names and texts that begin on a line, which of them win, and why the
    others do not: shadowed by another, a near miss and by which condition, a name that is not resolved.

    The file is ported, without writing anything, to see what is edited there. Exit code 2: there is no such line.

    \b
    porter rules explain kernel.cu:12 --rules house/rules
    """


@rules.command(name="test", cls=_Command)
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[DIR|FILE]...")
@click.option("--accept", is_flag=True, help="Write what was found into the files, as what the examples say.")
@rules_option
def rules_test() -> None:
    """Run the examples of the rules in DIR; without one, those of Porter's own rules.

    Exit code 1: an example does not hold. With --accept whole results (`after`), facts and the IDs of messages are
    written into the file, of which every other byte stays; exit code 3: what is left is for the author to mend.

    \b
    porter rules test house/rules
    porter rules test house/rules/acme.yaml --accept
    """


@rules.command(name="new", cls=_Command)
@click.argument("name")
@click.option(
    "--from", "place", type=PlaceType(), required=True, metavar="FILE:LINE[:COLUMN]", help="The call to begin with."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("."), metavar="DIR",
              help="Where NAME.yaml is written  [default: the working directory]")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@rules_option
def rules_new() -> None:
    """Write DIR/NAME.yaml, a file with one rule for the call at a line of a source. NAME is the library's.

    Its pattern has a capture for each argument, its examples the call itself and, as near misses, overloads that the
    pattern is not for. What it cannot know is a guess and marked so: above all the fact, `as`. The JSON Schema for
    editors is written beside it.

    \b
    porter rules new acme --from kernel.cu:12 -o house/rules
    """


@rules.command(name="schema", cls=_Command)
def rules_schema() -> None:
    """Print the JSON Schema of rule files. Editors complete and check a file that has in its first line

    \b
    # yaml-language-server: $schema=porter-rules.schema.json
    """
