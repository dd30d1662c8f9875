# SPDX-License-Identifier: Apache-2.0
"""Options of `porter grade`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    launch_options,
    rules_option,
    style_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.argument("arguments", nargs=-1, metavar="[-- PROGRAM ARGUMENTS...]")
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to grade; without it Porter makes one.")  # fmt: skip
@click.option("--kernel", default=None, metavar="NAME", help="Only kernels whose name has NAME in it.")
@click.option("--arch", default=None, metavar="ARCH", help="Compile a program for this target (default sm_90a).")
@click.option("--sizes", default="default", show_default=True, metavar="NAME=N,...",
              help="Problem size of the case, which may choose what is compiled.")  # fmt: skip
@click.option("--problem", default="4096x4096x4096", show_default=True, metavar="MxNxK",
              help="Size of the product; it need not be one that is run.")  # fmt: skip
@click.option("--what-if", "what_if", multiple=True, metavar="CHANGE,...",
              help="Another kernel beside it: tile=MxN[xK], stages=N, blocks=N (on an SM), problem=MxNxK, pair, "
                   "m128, specialize, overlap, wide, bulk-store. What is not known can be stated so too.")  # fmt: skip
@click.option("--timeline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write what one SM does when, in clocks, for ui.perfetto.dev or chrome://tracing.")  # fmt: skip
@click.option("--calibration", "calibration_path", type=click.Path(path_type=Path), metavar="FILE",
              help="Constants for a GPU that was measured, as --calibrate wrote them.")  # fmt: skip
@click.option(
    "--calibrate",
    "record_path",
    type=click.Path(path_type=Path),
    metavar="RECORD",
    help="Fit constants to the record of a kit (docs/kits.md) and show predicted beside measured clocks.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", show_default=True,
              default=Path("porter-calibration.yaml"), help="With --calibrate: the file to write.")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else headers are.")  # fmt: skip
@launch_options
@rules_option
@style_option
@keep_option
@trust_option
def grade() -> None:
    """Predict how near to its chip's nominal rate a kernel comes, and what holds it there, without the chip.

    PATH is a kernel with a case (its original on an H100 and its port on a B200 are graded side by side), PTX or a
    file with PTX in it, or a program, which is run on the simulator for what it launches. With `--ptx FILE --launch
    launch.yaml` one launch is graded. A port of `--style full-rate` is graded as it is made; `porter port` proves it.

    Trust the order of kernels for one problem and the limiting part, not the rate: docs/grade.md says how far. Exit
    code 6: a kernel is not graded, because facts are missing; they are named.
    """
