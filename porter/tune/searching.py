# SPDX-License-Identifier: Apache-2.0
"""What a session asks of a search, and the compiler for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from porter.build.cache import default_directory
from porter.build.port_plan import write_whole
from porter.build.toolchain import find_toolkit
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.lang.embedded import kernel_in_python
from porter.lang.sources import is_python
from porter.passes.ported import Ported, PortedRoot
from porter.verify.builder import ToolkitBuilder


class Searching(Protocol):
    """The toolkit, None for the first that is found, and the chip of ports; their style, None for compat; the size of
    the product that steps are chosen for, empty for the usual one; measured constants of a GPU; directories of rules.
    `progress` and `report` tell the user something, the more the higher the `verbosity`; `in_style`: ports that are
    made meanwhile are of another style."""

    @property
    def toolkit(self) -> Path | None: ...

    @property
    def target(self) -> str: ...

    @property
    def problem(self) -> str: ...

    @property
    def calibration(self) -> Path | None: ...

    @property
    def rules(self) -> Sequence[Path]: ...

    @property
    def style(self) -> str | None: ...

    @property
    def verbosity(self) -> int: ...

    def progress(self) -> AbstractContextManager[Callable[[str], None] | None]: ...

    def report(self, diagnostics: Iterable[Diagnostic]) -> None: ...

    def in_style(self, style: str) -> AbstractContextManager[None]: ...


Pairs = frozenset[tuple[str, str]]
"""Steps of roots, as (root, step)."""
Counts = frozenset[tuple[str, int]]
"""Numbers of roots, as (root, count)."""


class Make(Protocol):
    """The same port, with M=64 in the roots `half_rate`, `without` some steps, with those that are `chosen`, and with
    so many `stages`, and `registers` of warps that give some back."""

    def __call__(
        self, *, half_rate: frozenset[str] = ..., without: Pairs = ..., chosen: Pairs = ..., stages: Counts = ...,
        registers: Counts = ...,
    ) -> Ported: ...  # fmt: skip


class WithoutError(Exception):
    """A root is without a step; says why."""

    def __init__(self, *said: Diagnostic) -> None:
        super().__init__(said)
        self.said = said


@dataclass
class OfRoot:
    """What is chosen for one root of a port, for the step `NAME`."""

    session: Searching
    ported: Ported
    root: PortedRoot

    NAME: ClassVar[str]

    def try_to(self, choose: Callable[[], None]) -> Sequence[Diagnostic]:
        """What keeps the root from it."""
        try:
            choose()
        except WithoutError as without:
            return without.said
        except (PorterError, ValueError) as error:
            what = error.diagnostic.message if isinstance(error, PorterError) else str(error)
            return self.without(f"what is graded: {what}").said
        return ()

    def without(self, what: str) -> WithoutError:
        return WithoutError(lacking(self.root, self.NAME, what))

    def of(self, trial: Ported) -> PortedRoot:
        """The same root of another port."""
        return next(r for r in trial.roots if r.path == self.root.path)

    def missing(self, trial: Ported, but: Sequence[str] = ()) -> WithoutError:
        """What a port that was to have the step says of this root, but for what says that it has no use for it."""
        about = [d for d in trial.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == self.NAME]
        mine = [d for d in about if d.where is not None and d.where.path in self.root.files]
        return WithoutError(*(d for d in mine if d.values["what"] not in but))


def lacking(root: PortedRoot, step: str, what: str) -> Diagnostic:
    """What a root lacks for a step."""
    values: dict[str, object] = {"kernel": ", ".join(root.kernels), "step": step, "what": what}
    return Diagnostic(Code.NATIVE_LEFT, Location(root.path), values)


def adding(make: Make, **more: frozenset[Any]) -> Make:
    """The same with more that is asked for."""

    def made(**asked: frozenset[Any]) -> Ported:
        none = frozenset[Any]()
        return make(**{name: asked.get(name, none) | more.get(name, none) for name in {*asked, *more}})

    return made


def of_step(step: str, roots: Iterable[str]) -> Pairs:
    return frozenset((path, step) for path in roots)


def cuda_roots(ported: Ported) -> list[PortedRoot]:
    """The files of CUDA C++ with kernels that use the tensor core."""
    return [r for r in ported.roots if not r.dsl and not is_python(Path(r.path)) and r.kernels]


def builder_of(session: Searching) -> ToolkitBuilder:
    """Raises PorterError: BAD_TOOLKIT."""
    return ToolkitBuilder(find_toolkit(session.toolkit) if session.toolkit else None, compilable, session.target)


def compilable(source: Path, entry: str) -> Path:
    """A source as nvcc reads it. A kernel in a string of a Python file gets a file of its own, line for line.

    Raises:
        PorterError: NO_KERNEL if no string of a Python file has it; WRITE_FAILED.
    """
    if not is_python(source):
        return source
    text = kernel_in_python(source, entry)
    if text is None:
        raise PorterError(Code.NO_KERNEL, Location(str(source)), path=source)
    base = default_directory() / "strings" / hashlib.sha256(text).hexdigest()[:24]
    return write_whole(base / f"{source.stem}.cu", text, base)
