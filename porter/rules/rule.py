# SPDX-License-Identifier: Apache-2.0
"""What a mapping rule says. Rules live as YAML in `mappings/`; users add directories of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import PurePath

from porter.diagnostics import Location
from porter.lang.text import Safety
from porter.model.recognition import Emitter, Recognizer
from porter.rules.ptx import PtxPattern
from porter.rules.python import NamePattern

UNCHANGED = "unchanged"
"""What becomes of a construct that a port leaves as it is."""


class Region(StrEnum):
    """Which text of a file a pattern is tried on."""

    DIRECTIVE = "directive"
    """Conditions of `#if`, `#ifdef`, `#elif`."""
    CODE = "code"
    """Everything but comments, string contents and directives."""
    STRING = "string"
    """Contents of string literals."""
    COMMENT = "comment"
    TEXT = "text"
    """The whole file."""
    NAME = "name"
    """Qualified names of Python, for advice."""


class When(StrEnum):
    PORTED = "ported"
    """Only beside a kernel that is ported in the same run."""
    ALWAYS = "always"


class Compares(StrEnum):
    """What a text is a comparison of. Its last number is a version of sm_100a, or the first one behind its family, and
    becomes that of the chip that a port is for."""

    DEVICE = "device"
    """The capability of the device that host code has asked."""
    TARGET = "target"
    """The architecture that code is compiled for."""


@dataclass(frozen=True)
class Example:
    """A rule's own test. `before` is a whole file named `file`, beside the files `others`. Replacements give `after`,
    the whole result; others lines that the result must (`expect`) and must not (`absent`) hold, recognizers also the
    kinds and fields of the facts (`facts`). `is_near`: `before` may be what the rule is for, and is in a form that is
    not known. `diagnostics` are IDs or names of codes."""

    before: str
    after: str | None = None
    expect: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    file: str = "kernel.cu"
    diagnostics: tuple[str, ...] = ()
    facts: tuple[tuple[str, tuple[tuple[str, str | int | bool], ...]], ...] = ()
    is_near: bool = False
    others: tuple[tuple[str, str], ...] = ()
    compile: str = ""
    """The architecture that the port has to compile for."""
    verify: bool = False
    """Whether original and port, programs with a main(), have to leave the same bits in memory."""
    style: str = "compat"
    """The style of its port."""
    types: tuple[int | tuple[int, ...], ...] = ()
    """What the compiler says of a kernel of an idiomatic port: rows, columns, threads, bytes of a sum; or the answers
    to several questions."""
    traced: tuple[int, ...] = ()
    """What a trace says of a kernel of CuTe DSL, of a port of the idiomatic style: rows, columns, warpgroups."""
    stages: int = 0
    """How many stages that port gives the ring of the kernel; 0 for as many as it has."""
    registers: int = 0
    """How many registers warps keep in that port which give some back; 0 for as many as they do."""
    drop_promotion: bool = False
    """Whether sums of FP8 stay in the accumulator in that port."""
    block_scale: bool = False
    """Whether scales that are powers of two are the tensor core's in that port."""
    chosen: tuple[str, ...] = ()
    """Steps that are chosen for that port."""


@dataclass(frozen=True)
class Advice:
    """What a match of `pattern` is to a check of code that is for SM100. `sign` says what stands there: a `finding` by
    itself, or what findings are placed by; `given` are texts for the placement, as `re` templates. `unless`: what of
    the same file takes a finding away. `code` is the name of the diagnostic, `what` and `advice` are its words."""

    sign: str
    given: tuple[tuple[str, str], ...] = ()
    code: str = ""
    what: str = ""
    advice: str = ""
    unless: re.Pattern[str] | None = None


@dataclass(frozen=True)
class SpellingPattern:
    """A regex, and what a text is that is a match."""

    of: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Rule:
    """One mapping. Exactly one of `replace`, `refusal`, `implemented_by`, `emitter`, `advice` and `recognizers` with a
    fact is set; a recognizer may have an emitter of its own.

    `recognizers` say what a pattern is, `names` the same of names in Python, `instructions` of PTX, `spelling`
    of words that nothing else tells of. `replace` is a `re`
    template for what `pattern` matched, or a text with captures of the others; `refusal` what stops a port, (code,
    what, advice); `implemented_by` the pass in
    `porter.passes` that does the work.
    """

    id: str
    title: str
    library: str
    safety: Safety
    reason: str
    references: tuple[str, ...]
    examples: tuple[Example, ...]
    language: str = "cuda"
    pattern: re.Pattern[str] | None = None
    region: Region = Region.CODE
    files: tuple[str, ...] = ()
    when: When = When.ALWAYS
    replace: str | None = None
    compares: Compares | None = None
    chips: tuple[str, ...] = ()
    """The chips for which the pass has what it takes; all where none is named."""
    refusal: tuple[str, str, str] | None = None
    advice: Advice | None = None
    becomes: str = ""
    implemented_by: str | None = None
    recognizers: tuple[Recognizer, ...] = ()
    names: tuple[NamePattern, ...] = ()
    instructions: tuple[PtxPattern, ...] = ()
    spelling: SpellingPattern | None = None
    emitter: Emitter | None = None
    source: str = ""
    where: Location = field(default_factory=lambda: Location(""))

    @property
    def report(self) -> str | None:
        """What a match of `pattern` is reported as, and stops the port for."""
        return self.refusal[1] if self.refusal is not None and self.pattern is not None else None

    @property
    def kind(self) -> str:
        """Which of the kinds of rules it is: what it does with a match."""
        if self.refusal is not None:
            return "refusal"
        if self.advice is not None:
            return "advice"
        if self.replace is None and (self.recognizers or self.names or self.spelling or self.emitter is not None):
            return "emitter" if self.emitter is not None and not self.recognizers else "recognizer"
        return "pass" if self.implemented_by else "replacement"

    def reads(self, path: str) -> bool:
        """Whether the rule looks at a file of this name."""
        return any(fnmatch(PurePath(path).name, pattern) for pattern in self.files)
