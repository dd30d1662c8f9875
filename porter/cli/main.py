# SPDX-License-Identifier: Apache-2.0
"""The `porter` command: global options, and one module per subcommand."""

from __future__ import annotations

import gc
import importlib
import signal
from typing import Any

import click

import porter
from porter.cli.context import SIGNALLED, leave
from porter.cli.everywhere import options

_COMMANDS = (
    "grade",
    "review", "case", "kit",
    "scan", "check", "plan", "port", "build", "sim", "run", "verify", "hazards", "mutate", "explain", "doctor", "nvcc",
    "selfcheck", "record", "capture", "rules", "map", "report", "stats", "clean", "mcp",
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
def main() -> None:
    """Ports NVIDIA Hopper (SM90a) kernels to datacenter Blackwell (SM100a) and proves the port.

    Exit codes: `porter explain exit-codes`.
    """
    # Trees and models are many objects that live long: the collector would go through them again and again.
    gc.set_threshold(100_000, 20, 20)


main.params += options()
