# SPDX-License-Identifier: Apache-2.0
"""`porter mcp`: what a client sees that starts the server and calls its tools."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes_cli import porter

from porter.cli.tools import Tools
from porter.diagnostics import PorterError
from porter.report.json import schema

ROOT = Path(__file__).parent.parent.parent
HOPPER = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'
HAS_MCP = importlib.util.find_spec("mcp") is not None
TOOLS = ["scan", "plan", "verify", "equal", "hazards", "grade", "review", "explain", "map", "case_new", "port"]


def talk(folder: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the tools, and what each call answers."""
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "porter", "mcp", "--root", str(folder)], env=environment
    )

    async def session() -> tuple[list[str], list[dict[str, Any]]]:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            names = [tool.name for tool in (await client.list_tools()).tools]
            answers = []
            for name, arguments in calls:
                answer = await client.call_tool(name, arguments)
                text = answer.content[0].text
                answers.append({"error": text} if answer.is_error else json.loads(text))
            return names, answers

    return anyio.run(session)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MCP, reason="the package mcp is not installed (pip install 'porter-sm100[mcp]')")
def test_a_client_ports_a_kernel_and_asks_about_it(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HOPPER)
    names, answers = talk(
        tmp_path,
        ("scan", {"paths": ["k.cu"], "full": True}),
        ("plan", {"paths": ["k.cu"], "full": True}),
        ("port", {"paths": ["k.cu"], "output": "out", "full": True}),
        ("verify", {"kernel": "k.cu", "full": True}),
        ("hazards", {"path": "k.cu", "full": True}),
        ("explain", {"id": "PT5001", "full": True}),
        ("map", {"word": "wgmma.fence", "full": True}),
        ("scan", {"paths": ["../other.cu"]}),
        ("explain", {"id": "exit-codes"}),
    )
    assert names == TOOLS
    for answer in answers[:7]:
        jsonschema.validate(answer, schema(answer["kind"]))
    scan, _, port, verify = answers[:4]
    assert scan["totals"][0]["name"] == "wgmma.fence"
    assert port["kind"] == "port"
    assert [d["id"] for d in verify["diagnostics"]] == ["PT5001"]
    assert "leads out" in answers[7]["diagnostics"][0]["message"]
    assert answers[8]["exit_code"] == 0
    assert (tmp_path / "k.cu").read_text() == HOPPER


def test_a_tool_is_a_command_with_its_document(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HOPPER)
    answer = Tools(tmp_path, 60).scan(["k.cu"], full=True)
    jsonschema.validate(answer, schema("scan"))
    assert answer["totals"][0]["name"] == "wgmma.fence"


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "a/../../b", "link/x"])
def test_no_path_leads_out_of_the_root(tmp_path: Path, path: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    tools = Tools(tmp_path / "root", 60)
    for call in (lambda: tools.scan([path]), lambda: tools.port(["k.cu"], path), lambda: tools.verify("k.cu", path)):
        with pytest.raises(PorterError, match="leads out"):
            call()


def test_a_word_that_begins_with_a_dash_is_no_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, "{}", "")

    monkeypatch.setattr(subprocess, "run", run)
    tools = Tools(tmp_path, 60)
    tools.explain("--version")
    tools.scan(["--jobs"])
    assert all(words[words.index(word) - 1] == "--" for words, word in zip(asked, ("--version", "--jobs"), strict=True))


def test_what_gives_no_result_in_time_has_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def late(words: list[str], timeout: float, **options: Any) -> None:
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    answer = Tools(tmp_path, 60).scan(["k.cu"], seconds=7)
    assert (answer["exit_code"], answer["status"]) == (6, "incomplete")
    assert "7 seconds" in answer["why"]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert "porter-sm100[mcp]" in porter("mcp", code=2).output
