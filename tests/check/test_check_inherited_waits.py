# SPDX-License-Identifier: Apache-2.0
"""A barrier that lacks behind a wait for MMAs, in original and port alike, is the original's; a wait, a commit or a
barrier that only the port lost is the port's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import shared_operand
from click.testing import CliRunner
from kept_sources import kept

from porter.cli.main import main

WAIT = "        tc.wait(0);\n"
END = "    }\n    const int row"


def run(*args: object, code: int) -> dict:
    result = CliRunner().invoke(main, ["--no-config", "--format", "json", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def ported(original: Path, tmp_path: Path) -> Path:
    run("port", "--style", "compat", "--no-compile", original, "-o", tmp_path / "out", code=0)
    return tmp_path / "out" / original.name


@pytest.mark.external
def test_what_both_lack_is_the_originals(tmp_path: Path) -> None:
    original = kept(shared_operand.files()) / "k.cu"
    (port,) = run("hazards", original, "--port", ported(original, tmp_path), code=0)["runs"]
    assert (port["hazards"], {h["hazard"] for h in port["inherited"]}) == ([], {"H19"})


PLANTED = {
    "no wait": (WAIT, ""),
    "a wait of one warp": (WAIT, "        if (threadIdx.x % 128 / 32 == 0) tc.wait(0);\n"),
    "a wait of one group": (WAIT, "        if (threadIdx.x / 128 == 0) tc.wait(0);\n"),
    "a wait behind the loop": (f"{WAIT}{END}", f"    }}\n{WAIT}    const int row"),
    "a wait in the next turn": (
        f"{WAIT}{END}", END,
        "        const Element* own", "        if (k0 > 0) tc.wait(0);\n        const Element* own",
    ),
    "no commit": ("        tc.commit();\n", ""),
}  # fmt: skip


@pytest.mark.external
@pytest.mark.spread(6)
@pytest.mark.parametrize("name", PLANTED)
def test_what_the_port_lost_is_the_ports(tmp_path: Path, name: str) -> None:
    original = kept(shared_operand.files()) / "k.cu"
    port, plants = ported(original, tmp_path), PLANTED[name]
    text = port.read_text()
    for old, new in zip(plants[::2], plants[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    port.write_text(text)
    (found,) = run("hazards", original, "--port", port, code=5)["runs"]
    assert "H19" in {h["hazard"] for h in found["hazards"]}
    assert not found["inherited"]


@pytest.mark.slow
@pytest.mark.external
def test_a_barrier_that_only_the_port_lost(tmp_path: Path) -> None:
    original = kept(shared_operand.files(meets=True)) / "k.cu"
    port = ported(original, tmp_path)
    text = port.read_text()
    assert text.count(shared_operand.MEET) == 2
    head, _, tail = text.rpartition(shared_operand.MEET)
    port.write_text(head + tail)
    (found,) = run("hazards", original, "--port", port, code=5)["runs"]
    assert "H19" in {h["hazard"] for h in found["hazards"]}
    assert not found["inherited"]
