# SPDX-License-Identifier: Apache-2.0
"""The `porter` command: global options, and one module per subcommand."""

from __future__ import annotations

import gc
import importlib
import signal
from pathlib import Path
from typing import Any

import click

import porter
from porter.cli.context import SIGNALLED, Session, install, leave

_COMMANDS = (
    "scan", "check", "plan", "port", "build", "sim", "run", "verify", "hazards", "mutate", "explain", "doctor", "nvcc",
    "selfcheck", "record", "capture", "rules", "map",
)  # fmt: skip


class _Commands(click.Group):
    """Of the subcommands only the options are loaded, and only when they are asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            leave(SIGNALLED + signal.SIGINT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        found: Any = getattr(importlib.import_module(f"porter.cli.commands.{name}"), name)
        return found if isinstance(found, click.Command) else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(porter.__version__, prog_name="porter")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="How results are written.")  # fmt: skip
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
              help="When to use colour; NO_COLOR in the environment means never.")  # fmt: skip
@click.option("-q", "--quiet", count=True, help="Only errors.")
@click.option("-v", "--verbose", count=True, help="More figures; tracebacks of internal errors.")
@click.option("--toolkit", type=click.Path(path_type=Path), default=None, metavar="DIR",
              help="CUDA toolkit to use instead of CUDA_HOME, PATH or the PyPI packages.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Settings, instead of the nearest porter.toml or pyproject.toml above the sources.")  # fmt: skip
@click.option("--no-config", is_flag=True, help="No settings of any file.")
def main(
    form: str,
    color: str,
    quiet: int,
    verbose: int,
    toolkit: Path | None,
    config: Path | None,
    no_config: bool,
) -> None:
    """Ports NVIDIA Hopper (SM90a) kernels to datacenter Blackwell (SM100a) and proves the port.

    Exit codes: `porter explain exit-codes`.
    """
    # Trees and models are many objects that live long: the collector would go through them again and again.
    gc.set_threshold(100_000, 20, 20)
    if config is not None and no_config:
        raise click.UsageError("--config and --no-config exclude each other")
    install(Session(form, color, verbose - quiet, toolkit, config, no_config))
