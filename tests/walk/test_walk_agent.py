# SPDX-License-Identifier: Apache-2.0
"""A client that knows the Model Context Protocol alone ports a kernel, verifies it, and reads a planted hazard."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = Path(__file__).parent / "linear_gelu.cu"
HAS_MCP = importlib.util.find_spec("mcp") is not None
MOST = 6000
CLEAN = 500
WAIT = "        tc.wait(0);\n"


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.skipif(not HAS_MCP, reason="the package mcp is not installed (pip install 'porter-sm100[mcp]')")
def test_a_client_ports_verifies_and_reads_a_hazard(tmp_path: Path) -> None:
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    shutil.copy(KERNEL, tmp_path)
    environment = {**{k: v for k, v in os.environ.items() if k != "PORTER_TRUST"}, "PYTHONPATH": str(ROOT)}
    words = ["-m", "porter", "mcp", "--root", str(tmp_path), "--seconds", "600"]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment)
    texts: list[str] = []

    async def walk() -> list[dict[str, Any]]:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["verify"].annotations.read_only_hint is True
            assert tools["port"].annotations.read_only_hint is False

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                answer = await client.call_tool(name, arguments)
                assert not answer.is_error, answer.content[0].text
                texts.append(answer.content[0].text)
                found: dict[str, Any] = json.loads(texts[-1])
                return found

            found = [
                await call("scan", paths=["linear_gelu.cu"]),
                await call("case_new", kernel="linear_gelu.cu"),
                await call("port", paths=["linear_gelu.cu"], output="ported"),
                await call("verify", kernel="linear_gelu.cu", port="ported/linear_gelu.cu"),
            ]
            port = tmp_path / "ported" / "linear_gelu.cu"
            text = port.read_text()
            assert text.count(WAIT) == 1
            port.write_text(text.replace(WAIT, ""))
            found.append(await call("hazards", path="linear_gelu.cu", port="ported/linear_gelu.cu"))
            return found

    scan, case, port, verify, hazards = anyio.run(walk)
    assert scan["hopper_only"]["wgmma.mma_async"] == 1
    assert [Path(p).name for p in case["written"]] == ["case.yaml"]
    assert port["exit_code"] == 0
    assert verify["verdict"] == "clean"
    assert all(len(text) < CLEAN for text in texts[:4])
    assert (hazards["exit_code"], hazards["verdict"]) == (5, "error")
    cause = hazards["causes"][0]
    assert cause["id"].startswith("H")
    assert cause["missing"]
    assert any("linear_gelu.cu" in place for place in cause["at"])
    assert sum(map(len, texts)) < MOST
