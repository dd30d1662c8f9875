# SPDX-License-Identifier: Apache-2.0
"""`--help` answers at once: it loads the options of a command, and nothing of what the command does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from porter.cli.commands.shared import Command
from porter.cli.main import main
from porter.sim.trace.recorder import DEFAULT_BLOCKS, DEFAULT_LIMIT


def commands(of: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with the words that call them; groups come before what is in them."""
    for name in of.list_commands(click.Context(of)):
        found = of.get_command(click.Context(of), name)
        assert found is not None
        yield (*names, name), found
        if isinstance(found, click.Group):
            yield from commands(found, *names, name)


COMMANDS = dict(commands(main))

HEAVY = ("cutlass", "jsonschema", "ml_dtypes", "numpy", "tree_sitter", "yaml")
PARTS = ("build", "hopper", "lang", "model", "passes", "ptx", "rules", "scan", "sim", "verify")
"""Whose modules no `--help` needs, but for the names that options may have as values."""
LIGHT = {"porter.verify", "porter.verify.backend_names"}

CPU_SECONDS = 0.6
"""Twice what it may take, for machines that are busy or slow."""

ASK = """
import json, sys, time
from porter.cli.commands.shared import Command
from porter.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code
print(json.dumps([time.process_time(), sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=lambda c: " ".join(c) or "porter")
def test_help_loads_nothing_heavy(command: tuple[str, ...]) -> None:
    asked = [sys.executable, "-c", ASK, *command, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ")
    seconds, modules = json.loads(done.stderr)
    ours = tuple(f"porter.{part}" for part in PARTS)
    assert not [m for m in modules if m.partition(".")[0] in HEAVY or (m.startswith(ours) and m not in LIGHT)]
    assert seconds < CPU_SECONDS


@pytest.mark.parametrize("declared", [c for c in COMMANDS.values() if isinstance(c, Command)], ids=lambda c: c.name)
def test_options_are_what_the_command_takes(declared: Command) -> None:
    """Options and what they are for stand in two modules."""
    work = declared.work.__wrapped__  # type: ignore[attr-defined]
    session, *taken = work.__code__.co_varnames[: work.__code__.co_argcount]
    assert session == "session"
    assert {p.name for p in declared.params if p.expose_value} == set(taken)


def test_help_tells_what_a_trace_records() -> None:
    done = subprocess.run([sys.executable, "-m", "porter", "sim", "--help"], capture_output=True, text=True, check=True)
    text = " ".join(done.stdout.split())
    assert f"[default: the first {DEFAULT_BLOCKS}, in whole clusters]" in text
    assert f"[default: {DEFAULT_LIMIT}]" in text


def test_every_command_has_a_line_of_its_own() -> None:
    """In 80 columns, and none is cut."""
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    listed = text[text.index("Look at what there is:") :].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ")]
    assert names == main.list_commands(click.Context(main))
    assert len(names) == len(set(names))
    assert all(len(line) <= 80 for line in listed)
    assert "..." not in "\n".join(listed).replace("JUnit, ...", "")
