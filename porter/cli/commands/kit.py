# SPDX-License-Identifier: Apache-2.0
"""Options of `porter kit`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    rules_option,
    style_option,
    target_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="KERNEL...")
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port of the one kernel to pack; without it Porter makes one.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
              help="The archive that is written, such as kit.tar.")  # fmt: skip
@click.option("--families", multiple=True, metavar="NAMES", help="Input families, comma-separated, or `all`  [default: "
              "the first and the last that a case has]")  # fmt: skip
@click.option("--sizes", multiple=True, metavar="SIZES",
              help="`default`, `all`, or M=128,N=256,...; repeatable  [default: default]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of inputs.")
@click.option("--probes/--no-probes", default=True, show_default=True,
              help="Also ask a Blackwell GPU what the PTX ISA leaves open.")  # fmt: skip
@click.option(
    "--timing/--no-timing",
    default=True,
    show_default=True,
    help="Also time kernels on a Blackwell GPU that `porter grade --calibrate` fits its constants to.",
)
@click.option("--rehearsal", is_flag=True,
              help="Also ports as a Hopper GPU can run them, with tcgen05 emulated.")  # fmt: skip
@rules_option
@style_option
@keep_option
@target_option
@trust_option
def kit() -> None:
    """Pack kernels and their ports for somebody who has the GPU: one archive that runs where there is a driver and
    nothing else.

    Each KERNEL needs a case. The archive holds cubins of originals (sm_90a) and ports (sm_100a, sm_103a) as
    `porter port` writes them, inputs, what every run should give, which is computed here, on the simulator with the
    hardware's arithmetic. There, `./run.sh` runs what is for that GPU and writes record.txt: device, driver, a checksum
    of every output, times. Here `porter verify KERNEL --against record.txt` reads it.

    \b
    porter kit corpus/gemm_tma -o kit.tar
    """
