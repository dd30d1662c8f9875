# SPDX-License-Identifier: Apache-2.0
"""What all commands share: global options, where output goes, and how errors become exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource
from rich.console import Console, RenderableType

from porter.diagnostics import Code, Diagnostic, PorterError, Severity, unforeseen
from porter.report import json as report_json
from porter.report.blocks import block
from porter.report.formats import render
from porter.tune.styles import AUTO, KEPT, TAKEN

if TYPE_CHECKING:
    from rich.status import Status

_WIDTH_WITHOUT_TERMINAL = 150
SIGNALLED = 128
"""Exit status of a program that signal N ended: this + N, as shells have it."""


DEFAULT = AUTO
"""The style of commands that have the option, where nobody says."""

_SHOWN: list[Status] = []
"""Status lines that are on the terminal."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Rich would leave with status 1, which here means findings."""
        raise BrokenPipeError


@dataclass(frozen=True)
class Session:
    """The global options of one invocation. Results go to `out`, messages and progress to `err`."""

    format: str = "text"
    color: str = "auto"
    verbosity: int = 0
    toolkit: Path | None = None
    config: Path | None = None
    """The configuration file that is used."""
    no_config: bool = False
    rules: tuple[Path, ...] = ()
    """Files and directories of rules beside Porter's own."""
    keep_hopper: bool | None = None
    """Ports stand beside their originals, for a build of both; None where nobody says."""
    mend: bool | None = None
    """Ports have what their originals lack: True also what runs of cases find, False nothing; None what is safe by
    construction."""
    target: str = "sm_100a"
    """The chip that ports are for."""
    calibration: Path | None = None
    """Constants of `porter grade` for somebody's GPU."""
    style: str | None = None
    """One of `STYLES`; None for commands that make compat ports alone."""
    problem: str = ""
    """MxNxK for which steps of the native style are chosen, 4096x4096x4096 where nobody says."""
    drop_promotion: bool | None = None
    """Sums of FP8 stay in the accumulator, in ports of the native style; None where nobody says."""
    block_scale: bool | None = None
    """Scales that are powers of two are those of the tensor core, in the same ports; None where nobody says."""
    layouts: str = KEPT
    """Of operands of CuTe DSL, as of `porter.tune.styles`."""
    tiles: str = TAKEN
    """Of persistent kernels of CuTe DSL, as of `porter.tune.styles`."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    """What the configuration says of every port: the rules it is made with, those it is made without, and where
    headers are."""
    macros: frozenset[str] = frozenset()
    """Names of macros that the compiler's command line defines."""

    @property
    def json(self) -> bool:
        """Whether standard output is for a document, not for people."""
        return self.format != "text"

    @property
    def out(self) -> Console:
        return self._console(sys.stdout)

    @property
    def err(self) -> Console:
        return self._console(sys.stderr)

    def _console(self, stream: Any) -> Console:
        if getattr(stream, "errors", None) == "strict":
            # names of files and texts of sources may hold bytes that are no text in the stream's encoding
            stream.reconfigure(errors="backslashreplace")
        terminal = bool(getattr(stream, "isatty", lambda: False)())
        color: Literal["auto", "standard"] | None
        forced: bool | None
        if self.color == "never" or (self.color == "auto" and os.environ.get("NO_COLOR")):
            color, forced = None, None
        elif self.color == "always":
            color, forced = "standard", True
        else:
            color, forced = ("auto" if terminal else None), None
        return _Console(
            file=stream,
            color_system=color,
            force_terminal=forced,
            no_color=color is None,
            width=None if terminal else _asked_width(),
            soft_wrap=False,
            highlight=False,
            emoji=False,
            markup=False,
        )

    def show(self, *items: RenderableType) -> None:
        """Results in text form; nothing under --format json or -q."""
        if not self.json and self.verbosity >= 0:
            with _to_standard_output():
                for item in items:
                    self.out.print(item)

    def conclude(self, item: RenderableType) -> None:
        """What results come to, in a line: the one that -q leaves."""
        if not self.json and self.verbosity >= -1:
            with _to_standard_output():
                self.out.print(item)

    def remark(self, *items: RenderableType) -> None:
        """The same on standard error, where standard output is for something else."""
        if not self.json and self.verbosity >= 0:
            for item in items:
                self.err.print(item)

    def write(self, data: bytes) -> None:
        """Bytes to standard output as they are."""
        with _to_standard_output():
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def write_json(self, document: Mapping[str, Any]) -> None:
        """The one document of a command, in the format that was asked for; none in text."""
        self.write_documents([document])

    def write_documents(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """The same of several, which only formats other than JSON can hold."""
        if self.json:
            with _to_standard_output():
                click.echo(render(self.format, documents), nl=False)

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Message blocks on standard error; notes only without -q, nothing under --format json."""
        if self.json:
            return
        for diagnostic in diagnostics:
            if diagnostic.severity is Severity.ERROR or self.verbosity >= 0:
                self.err.print(block(diagnostic), end="", soft_wrap=True)

    def ask(self, question: str) -> bool | None:
        """Yes or no from whoever sits at the terminal; None where nobody does."""
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        for status in _SHOWN:
            status.stop()
        try:
            return click.confirm(question, err=True)
        finally:
            for status in _SHOWN:
                status.start()

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None] | None]:
        """A one-line status on a terminal, or None where there is none to write on."""
        console = self.err
        if self.json or self.verbosity < 0 or not console.is_terminal:
            yield None
            return
        with console.status("") as status:
            _SHOWN.append(status)
            try:
                yield lambda text: status.update(text)
            finally:
                _SHOWN.remove(status)

    def in_style(self, style: str) -> AbstractContextManager[None]:
        """Ports that are made meanwhile are of another style."""
        return styled(style)

    @contextmanager
    def counting(self) -> Iterator[Callable[[str, int, int], None] | None]:
        """As `progress`, for what is done to a number of files."""
        with self.progress() as tell:
            if tell is None:
                yield None
                return
            show = tell
            yield lambda what, done, total: show(f"{what}: {done} of {total} files")


def _asked_width() -> int:
    """Columns of output that is no terminal: what COLUMNS says, where it is a number."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and int(said) else _WIDTH_WITHOUT_TERMINAL


class UnwritableOutput(Exception):
    """Standard output refused what was written to it."""


@contextmanager
def _to_standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableOutput(error.strerror or str(error)) from None


def discard_output() -> None:
    """Nothing that is still buffered for standard output can be written any more."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    with suppress(OSError, ValueError):
        os.dup2(sys.stdout.fileno(), 1)


_SESSION = "porter.session"
Function = TypeVar("Function", bound=Callable[..., Any])


def current() -> Session:
    """The session of the running command."""
    context = click.get_current_context(silent=True)
    found = context.find_root().meta.get(_SESSION) if context is not None else None
    return found if isinstance(found, Session) else Session()


def is_given(name: str) -> bool:
    """Whether an option of the running command is on its command line."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def install(session: Session) -> None:
    click.get_current_context().find_root().meta[_SESSION] = session


@contextmanager
def styled(style: str) -> Iterator[None]:
    """Ports that are made meanwhile are of another style."""
    before = current()
    install(replace(before, style=style))
    try:
        yield
    finally:
        install(before)


def leave(code: int) -> NoReturn:
    raise SystemExit(int(code))


def fail(session: Session, error: PorterError) -> NoReturn:
    """Report what an error says and leave with its exit code."""
    session.report(error.diagnostics)
    session.write_json(report_json.error(list(error.diagnostics), error.exit_code))
    leave(error.exit_code)


def command(function: Function) -> Function:
    """A command's body: gets the session first, returns its exit code (`run`: its program's), and never lets a
    traceback out."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        session = current()
        try:
            importlib.import_module("porter.build.files").recover()
            code = function(session, *args, **kwargs)
            with _to_standard_output():
                sys.stdout.flush()
        except PorterError as error:
            fail(session, error)
        except (click.exceptions.ClickException, click.exceptions.Exit, click.exceptions.Abort):
            raise
        except BrokenPipeError:
            # What the command would have said is not known to whoever reads the exit status.
            discard_output()
            leave(SIGNALLED + signal.SIGPIPE)
        except UnwritableOutput as error:
            discard_output()
            fail(session, PorterError(Code.WRITE_FAILED, path="standard output", reason=str(error)))
        except Exception as error:
            said = PorterError.of([unforeseen(error)])
            if said.diagnostic.code is Code.INTERNAL and session.verbosity > 0:
                session.err.print(traceback.format_exc(), soft_wrap=True)
            fail(session, said)
        leave(code)

    return cast(Function, wrapper)
