# SPDX-License-Identifier: Apache-2.0
"""Options of `porter check`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, rules_option, target_option, trust_option


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--sm100", is_flag=True, help="Check code that is for SM100 already.")
@click.option("--pass-over", is_flag=True,
              help="Pass over named files that hold nothing for Porter, for hooks.")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]",
              help="With --sm100: a macro that the compiler's command line defines (repeatable).")  # fmt: skip
@click.option("--prove", is_flag=True,
              help="Also prove the synchronization of kernels that have a case (docs/proving.md).")  # fmt: skip
@rules_option
@target_option
@trust_option
def check() -> None:
    """Check files or trees, and write nothing: findings with their place, reason and what to do.

    A finding is what only Hopper has, in code that is to run on SM100. With --sm100 the files are taken to be for SM100
    already, as CUDA (raw or CuTe C++), PTX, CuTe DSL and build files: loads from Tensor Memory of a width that is slow
    or does not fit the kernel's registers, that are used before they are waited for or stand among assertions,
    conditions and switches that leave SM100 out, targets without tcgen05, Tensor Memory that is not freed. With --to
    they are held against that chip. With --prove kernels with a case are compiled, for Hopper or with --sm100 for that
    chip, and hazards in any schedule of theirs are findings.

    A place that is wanted as it is has a comment on its line or above it, `// porter: keep PT7001`; one that keeps
    nothing is a finding.

    Exit codes: 1 with a finding, 0 without.
    """
