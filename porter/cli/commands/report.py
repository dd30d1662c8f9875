# SPDX-License-Identifier: Apache-2.0
"""Options of `porter report`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, keep_option, rules_option, style_option, trust_option

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="KERNEL|DOCUMENT.json...")
@click.option("--html", "html_path", type=_FILE, metavar="FILE", help="Write one page that needs no other file.")
@click.option("--sarif", "sarif_path", type=_FILE, metavar="FILE", help="Write edits, hazards and messages as SARIF.")
@click.option("--junit", "junit_path", type=_FILE, metavar="FILE", help="Write what was verified as JUnit XML.")
@click.option("--markdown", "markdown_path", type=_FILE, metavar="FILE", help="Write tables for a pull request.")
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port of the kernel; without it Porter makes one.")  # fmt: skip
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--run/--no-run", "runs", default=True, show_default=True,
              help="Compile, verify and record the kernel, if it has a case.")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@rules_option
@style_option
@keep_option
@trust_option
def report() -> None:
    """Put what Porter says of a kernel into files: its port with all edit groups, what both take, whether they agree,
    hazards, and the order of a run.

    \b
    porter report gemm.cu --html gemm.html
    porter --format json hazards gemm.cu > hazards.json
    porter report hazards.json --sarif hazards.sarif --markdown summary.md

    Documents that other commands wrote with --format json are taken as they are. The exit code is the worst of what is
    reported.
    """
