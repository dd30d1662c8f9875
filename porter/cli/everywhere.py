# SPDX-License-Identifier: Apache-2.0
"""The options that all commands have. They stand before the command or after it; the session has their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from porter.cli.context import Session, current, fail, install
from porter.diagnostics import Code, PorterError
from porter.report.formats import FORMATS, KINDS_OF

WHERE = "Options of all commands (porter --help) may stand here too."


def _take(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if option.name is not None and ctx.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
        install(replace(current(), **{option.name: value}))


def _take_count(ctx: click.Context, option: click.Parameter, value: int) -> None:
    if value:
        install(replace(current(), verbosity=current().verbosity + (value if option.name == "verbose" else -value)))


def asked_format(words: Sequence[str]) -> str:
    """The format that a command line asks for, also one that cannot be read as a whole."""
    found = "text"
    own = list(words[: words.index("--")] if "--" in words else words)
    for word, following in zip(own, [*own[1:], ""], strict=True):
        name, joined, value = word.partition("=")
        if name == "--format":
            found = value if joined else following
    return found


def refuse_usage(error: click.UsageError, words: Sequence[str]) -> None:
    """End with a document of the format that a wrong command line asks for; nothing where it asks for none."""
    form = asked_format(words)
    if "error" in KINDS_OF.get(form, ()):
        wrong = PorterError(Code.BAD_OPTION, option="command line", problem=error.format_message())
        fail(Session(format=form), wrong)


def options(hidden: bool = False) -> list[click.Option]:
    """The options, for one command."""
    taken: dict[str, Any] = {"expose_value": False, "callback": _take, "hidden": hidden}
    counted: dict[str, Any] = taken | {"callback": _take_count, "count": True}
    return [
        click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                     help="How results are written.", **taken),
        click.Option(["--color"], type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                     help="When to use colour; NO_COLOR in the environment means never.", **taken),
        click.Option(["-q", "--quiet"], help="Only errors, and a line that sums up; -qq without it.", **counted),
        click.Option(["-v", "--verbose"], help="More figures; tracebacks of internal errors.", **counted),
        click.Option(["--toolkit"], type=click.Path(path_type=Path), default=None, metavar="DIR",
                     help="CUDA toolkit to use instead of CUDA_HOME, PATH or the PyPI packages.", **taken),
        click.Option(["--config"], type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
                     help="Settings, instead of the nearest porter.toml or pyproject.toml above the sources.", **taken),
        click.Option(["--no-config"], is_flag=True, help="No settings of any file.", **taken),
    ]  # fmt: skip
