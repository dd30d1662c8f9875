# SPDX-License-Identifier: Apache-2.0
"""Options of `porter selfcheck`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, trust_option


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path), default=Path("corpus"))
@click.option("--gpu", is_flag=True, help="Compare with the GPU of this machine.")
@click.option("--simulate", type=click.Path(path_type=Path), metavar="FILE",
              help="Run the simulator only, and keep what it computes for --simulated.")  # fmt: skip
@click.option("--simulated", "earlier", type=click.Path(path_type=Path), metavar="FILE",
              help="With --gpu: what the simulator computed earlier, perhaps elsewhere.")  # fmt: skip
@click.option("--families", multiple=True, metavar="NAMES", help="Input families, comma-separated, or `all`.")
@click.option("--sizes", multiple=True, metavar="SIZES", help="`default`, `all`, or M=128,N=256,...; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--gpu-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS",
              help="Longest time for one launch on the GPU.")  # fmt: skip
@trust_option
def selfcheck() -> None:
    """Run every original below PATH in the simulator, with the hardware's arithmetic, and on the GPU, and
    compare all bits of the outputs, for every input family."""
