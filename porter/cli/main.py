# SPDX-License-Identifier: Apache-2.0
"""The `porter` command: global options, and one module per subcommand."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from typing import Any

import click

import porter
from porter.cli.context import SIGNALLED, leave
from porter.cli.everywhere import options, refuse_usage

_SECTIONS = {
    "Look at what there is": {
        "scan": "what is Hopper-only in files or trees",
        "check": "the same for CI: exit code 1 while some is left",
        "stats": "counts by construct, rule, safety label and file",
        "plan": "the decisions of a port and why; writes nothing",
        "map": "what a construct of Hopper becomes on Blackwell",
        "grade": "how near to its chip's nominal rate a kernel would come",
    },
    "Port": {
        "port": "the Blackwell version: a diff, a directory, or in place",
        "review": "accept and refuse a port's edits group by group",
        "build": "compile original and port; registers and spills side by side",
        "report": "a kernel and its port as a page; results as SARIF, JUnit, ...",
        "clean": "remove the comments that `porter port --mark` wrote",
        "rules": "list, explain, test and begin rules",
    },
    "Prove": {
        "verify": "original against port against a float64 reference",
        "equal": "what original and port leave, compared on PTX without a run",
        "hazards": "missing waits, fences, barriers and commits",
        "mutate": "leave out each synchronization: do the checks notice?",
        "case": "begin a kernel's case, which says how to run it",
        "capture": "make cases of the launches of a program",
        "record": "run originals on a GPU and keep their outputs",
        "kit": "an archive that runs kernels and ports where the GPU is",
        "selfcheck": "the simulator against this machine's GPU",
    },
    "Run": {
        "sim": "a kernel on the simulator, with a trace or timeline",
        "run": "a whole program, its kernels on the simulator",
        "nvcc": "nvcc, with code for sm_100a lowered to run on Hopper",
        "cc": "a compiler launcher: ports what is compiled for sm_90a on its way",
    },
    "Help": {
        "explain": "the long text of a diagnostic, a hazard, a rule or the exit codes",
        "doctor": "which compilers, packages and GPUs are here",
        "mcp": "Porter as tools for coding agents",
    },
}
_WORDS = "porter.words"
_COMMANDS = tuple(name for section in _SECTIONS.values() for name in section)


class _Commands(click.Group):
    """Of the subcommands only the options are loaded, and only when they are asked for."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _open_streams()
        return super().main(*args, **kwargs)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        words = tuple(args)
        try:
            made = super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            refuse_usage(error, words)
            raise
        made.meta[_WORDS] = words
        return made

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            refuse_usage(error, ctx.meta[_WORDS])
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            leave(SIGNALLED + signal.SIGINT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        found: Any = getattr(importlib.import_module(f"porter.cli.commands.{name}"), name)
        return found if isinstance(found, click.Command) else None


def _open_streams() -> None:
    """Who closes a standard stream wants nothing of it: else the next file that is opened would be in its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(porter.__version__, prog_name="porter")
def main() -> None:
    """Ports NVIDIA Hopper (SM90a) kernels to datacenter Blackwell (SM100a) and proves the port.

    Exit codes: `porter explain exit-codes`.
    """
    # Trees and models are many objects that live long: the collector would go through them again and again.
    gc.set_threshold(100_000, 20, 20)


main.params += options()
