# SPDX-License-Identifier: Apache-2.0
"""`porter mcp`: commands as tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

from porter.build.packages import require_package
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories
from porter.cli.tools import Tools
from porter.diagnostics import ExitCode


@command
def mcp(session: Session, root: Path, seconds: float) -> ExitCode:
    require_directories("--root", (root,))
    server = require_package("mcp.server.mcpserver", "mcp", "porter mcp").MCPServer
    tools = Tools(root.resolve(), seconds, session.toolkit)
    serving = server("porter", instructions=tools.instructions)
    for tool in tools.all:
        serving.add_tool(tool)
    serving.run("stdio")
    return ExitCode.OK
