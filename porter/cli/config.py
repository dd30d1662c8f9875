# SPDX-License-Identifier: Apache-2.0
"""`porter.toml`, and `[tool.porter]` of a `pyproject.toml`: options that a project has set for its sources."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from porter.build.trust import require_trust
from porter.cli.context import DEFAULT, Session
from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.tune.styles import NATIVE, STYLES

FILE = "porter.toml"
PROJECT = "pyproject.toml"


@dataclass(frozen=True)
class Key:
    """One setting. `option` is the option that it stands for, `parameter` what commands call its value; `kind` is
    `flag`, `file`, `style`, `texts`, `directories` or `paths`. Settings that are `joined` are added to the command
    line's."""

    option: str
    parameter: str
    kind: str
    joined: bool
    what: str


KEYS: Mapping[str, Key] = {
    "rules": Key("--rules", "", "paths", True, "Rules of the project's own: directories, or single files."),
    "include-dirs": Key("-I", "include_dirs", "directories", True, "Where else local headers are."),
    "defines": Key("-D", "defines", "texts", True, "Macros for the compiler, as `NAME` or `NAME=VALUE`."),
    "nvcc-flags": Key("--nvcc-flag", "flags", "texts", True, "Passed to nvcc as they are."),
    "instantiate": Key(
        "--instantiate", "instantiate", "texts", True, "Kernels with template arguments, as `gemm<128, true>`."
    ),
    "select": Key("--select", "select", "texts", False, "Only these rules: IDs, or what they begin with."),
    "ignore": Key("--ignore", "ignore", "texts", False, "Not these rules."),
    "keep-hopper": Key(
        "--keep-hopper", "", "flag", False, "Whether ports stand beside their originals; else as the build says."
    ),
    "calibration": Key("--calibration", "", "file", False, "Constants of `porter grade` for a GPU that was measured."),
    "style": Key(
        "--style",
        "",
        "style",
        False,
        "`auto`, `compat`, `full-rate`, `idiomatic` or `native`: how ports issue their MMAs.",
    ),
    "drop-promotion": Key(
        "--drop-promotion",
        "",
        "flag",
        False,
        "Whether sums of FP8 stay in the accumulator in ports of the native style.",
    ),
    "block-scale": Key(
        "--block-scale",
        "",
        "flag",
        False,
        "Whether scales that are powers of two are the tensor core's in ports of the native style.",
    ),
    "mend": Key(
        "--mend",
        "",
        "flag",
        False,
        "Whether ports have what their originals lack: true also what runs of their cases find, false nothing.",
    ),
    "compile": Key("--compile", "compiles", "flag", False, "Whether `porter port` compiles original and port."),
}


@dataclass(frozen=True)
class Config:
    """The settings of one file; `path` is None where there is none. Paths among the values lead from where the file
    stands."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self.values.get(key, ()))


def find_config(start: Path) -> Path | None:
    """The nearest configuration file of a source or directory, from there upwards to the root of its repository."""
    here = Path(os.path.realpath(start))
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        if (folder / PROJECT).is_file() and _table(folder / PROJECT, _parsed(folder / PROJECT)[0]) is not None:
            return folder / PROJECT
        if (folder / ".git").exists():
            break
    return None


def read_config(path: Path) -> Config:
    """The settings of a file.

    Raises:
        PorterError: CONFIG_FILE: it cannot be read, or a key or value is none that there is.
    """
    data, text = _parsed(path)
    table = _table(path, data)
    if table is None:
        raise PorterError(Code.CONFIG_FILE, Location(str(path)), problem="it has no [tool.porter]")
    return Config(path, {key: _checked(path, text, key, value) for key, value in table.items()})


def _parsed(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = read_file(path).decode("utf-8")
        return tomllib.loads(text), text
    except UnicodeDecodeError:
        raise PorterError(Code.CONFIG_FILE, Location(str(path)), problem="cannot be read: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        # without a place it is the end of the text that something was missing at
        where = Location(str(path), int(at[1]), int(at[2])) if at else Location(str(path), text.count("\n") + 1)
        said = str(error)[: at.start()] if at else str(error)
        raise PorterError(Code.CONFIG_FILE, where, problem=f"{said[:1].lower()}{said[1:]}") from None


def _table(path: Path, data: dict[str, Any]) -> dict[str, Any] | None:
    if path.name != PROJECT:
        return data
    tool = data.get("tool")
    if not isinstance(tool, dict) or "porter" not in tool:
        return None
    if not isinstance(tool["porter"], dict):
        raise PorterError(Code.CONFIG_FILE, Location(str(path)), problem="tool.porter is no table")
    return tool["porter"]


def _checked(path: Path, text: str, key: str, value: Any) -> Any:
    where = Location(str(path), _line(path, text, key))

    def refused(problem: str) -> PorterError:
        return PorterError(Code.CONFIG_FILE, where, problem=f"{key}: {problem}")

    known = KEYS.get(key)
    if known is None:
        near = get_close_matches(key, KEYS, 1)
        raise refused(f"there is no such key; {f'{near[0]} is near' if near else 'there are ' + ', '.join(KEYS)}")
    if known.kind == "flag":
        if not isinstance(value, bool):
            raise refused(f"has to be true or false, not {value!r}")
        return value
    if known.kind == "file":
        if not isinstance(value, str) or not (path.parent / value).is_file():
            raise refused(f"has to name a file, not {value!r}")
        return path.parent / value
    if known.kind == "style":
        if value not in STYLES:
            raise refused(f"has to be {' or '.join(STYLES)}, not {value!r}")
        return value
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise refused(f"has to be a list of texts, not {value!r}")
    if known.kind == "texts":
        return tuple(value)
    places = tuple(path.parent / item for item in value)
    for place in places:
        if not place.is_dir() and (known.kind == "directories" or not place.is_file()):
            raise refused(f"no such {'directory' if known.kind == 'directories' else 'file or directory'}: {place}")
    return tuple(map(str, places))


def _line(path: Path, text: str, key: str) -> int:
    """The line on which a key stands; 0 if it is written in a form that is not looked for."""
    inside = path.name != PROJECT
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            names = [part.strip().strip("\"'") for part in header[1].split(".")]
            outer = ["tool", "porter"] if path.name == PROJECT else []
            if names[: len(outer) + 1] == [*outer, key]:
                return number
            inside = names == outer
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return 0


def config_of(starts: Iterable[Path]) -> Config:
    """The configuration that all of these sources have.

    Raises:
        PorterError: CONFIG_FILE; CONFIG_DIFFERS: they do not have the same.
    """
    found = {find_config(start): start for start in reversed(list(starts))}
    if len(found) > 1:
        (one, of_one), (other, of_other) = list(reversed(found.items()))[:2]
        values = {"file": one or "none", "other_file": other or "none"}
        raise PorterError(Code.CONFIG_DIFFERS, None, "", one=of_one, other=of_other, **values)
    path = next(iter(found), None)
    return read_config(path) if path is not None else Config()


_SOURCES = ("paths", "path", "file", "source", "places", "place")
"""What commands call the sources that they are given."""


def configure(ctx: click.Context, session: Session) -> Session:
    """The session with what the configuration says; options of the command that are not on the command line get their
    values from it.

    Raises:
        PorterError: CONFIG_FILE, CONFIG_DIFFERS, NOT_TRUSTED.
    """
    if session.config is not None and session.no_config:
        raise click.UsageError("--config and --no-config exclude each other")
    default = DEFAULT if _has_style(ctx) else None
    if session.no_config:
        return replace(session, style=session.style or default, macros=_macros_of(ctx))
    if session.config is not None:
        config = read_config(session.config)
    else:
        paths: list[Any] = []
        for value in map(ctx.params.get, _SOURCES):
            paths += value if isinstance(value, tuple) else [value] if value else []
        config = config_of([getattr(p, "path", p) for p in paths] or [Path()])
    for name, key in KEYS.items():
        if name not in config.values or key.parameter not in ctx.params:
            continue
        if name == "nvcc-flags" and session.config is None and config.path is not None:
            require_trust(config.path, "it gives options to nvcc, which may load code")
        said, value = ctx.params[key.parameter], config.values[name]
        if key.kind == "directories":
            value = tuple(map(Path, value))
        if key.joined:
            ctx.params[key.parameter] = _joined(name, said, value)
        elif ctx.get_parameter_source(key.parameter) is ParameterSource.DEFAULT:
            ctx.params[key.parameter] = value
    style = session.style or (config.values.get("style", default) if _has_style(ctx) else None)
    asked = config.values if style == NATIVE else {}
    drops, scales = asked.get("drop-promotion"), asked.get("block-scale")
    return replace(
        session,
        config=config.path,
        rules=(*session.rules, *map(Path, config.texts("rules"))),
        style=style,
        drop_promotion=drops if session.drop_promotion is None else session.drop_promotion,
        block_scale=scales if session.block_scale is None else session.block_scale,
        select=config.texts("select"),
        ignore=config.texts("ignore"),
        keep_hopper=config.values.get("keep-hopper") if session.keep_hopper is None else session.keep_hopper,
        mend=config.values.get("mend") if session.mend is None else session.mend,
        include_dirs=tuple(map(Path, config.texts("include-dirs"))),
        calibration=config.values.get("calibration"),
        macros=_macros_of(ctx),
    )


def _macros_of(ctx: click.Context) -> frozenset[str]:
    """Names of the macros that a command hands to the compiler."""
    defines, flags = ctx.params.get("defines") or (), ctx.params.get("flags") or ()
    given = [*defines, *(f[2:] for f in flags if f.startswith("-D"))]
    return frozenset(re.split(r"\W", define.strip(), maxsplit=1)[0] for define in given)


def _has_style(ctx: click.Context) -> bool:
    """Whether the command makes ports of a style that is asked for: others make those of the default one."""
    return any(param.name == "style" for param in ctx.command.params)


def _joined(name: str, said: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Directories of the command line come first, macros and flags last, so that the command line's hold."""
    if name in ("rules", "include-dirs"):
        return (*said, *value)
    if name == "defines":
        own = {text.partition("=")[0] for text in said}
        value = tuple(text for text in value if text.partition("=")[0] not in own)
    return (*value, *said)
