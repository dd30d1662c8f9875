# SPDX-License-Identifier: Apache-2.0
"""Options of `porter build`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    prove_option,
    rules_option,
    style_option,
    target_option,
    tmem_check_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to build; without it Porter makes one.")  # fmt: skip
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case that names entry and template arguments.")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are (repeatable).")  # fmt: skip
@tmem_check_option
@prove_option
@rules_option
@keep_option
@style_option
@target_option
@trust_option
def build() -> None:
    """Build FILE for sm_90a and its port for sm_100a; registers, spills, stack, shared memory side by side.

    A case beside FILE names the kernel and its template arguments; without one, all kernels that the file
    itself instantiates are built. What both leave is compared on their PTX (docs/equality.md).
    """
