# SPDX-License-Identifier: Apache-2.0
"""Options of `porter record`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, trust_option


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE",
              help="The record to write.")  # fmt: skip
@click.option("--families", multiple=True, metavar="NAMES", help="Input families, comma-separated, or `all`.")
@click.option("--sizes", multiple=True, metavar="SIZES",
              help="`default`, `all`, or M=128,N=256,...; repeatable.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--backend", type=click.Choice(["gpu", "sim"]), default="gpu", show_default=True,
              help="Where the originals run; the simulator with the hardware's arithmetic.")  # fmt: skip
@click.option("--gpu-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS",
              help="Longest time for one launch on the GPU.")  # fmt: skip
@trust_option
def record() -> None:
    """Run the originals of PATH and keep their outputs; `porter verify --against FILE` compares ports with
    them elsewhere."""
