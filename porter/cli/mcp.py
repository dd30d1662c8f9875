# SPDX-License-Identifier: Apache-2.0
"""`porter mcp`: commands as tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import porter
from porter.build.packages import require_package
from porter.build.trust import is_granted
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories
from porter.cli.tools import Tools
from porter.diagnostics import ExitCode


@command
def mcp(session: Session, root: Path, seconds: float) -> ExitCode:
    require_directories("--root", (root,))
    server = require_package("mcp.server.mcpserver", "mcp", "porter mcp").MCPServer
    hints = require_package("mcp.types", "mcp", "porter mcp").ToolAnnotations
    tools = Tools(root.resolve(), seconds, session.toolkit, is_granted())
    serving = server("porter", instructions=tools.instructions, version=porter.__version__)
    for tool in tools.reading:
        serving.add_tool(tool, annotations=hints(read_only_hint=True, open_world_hint=False))
    for tool in tools.writing:
        serving.add_tool(tool, annotations=hints(read_only_hint=False, destructive_hint=False, open_world_hint=False))
    serving.run("stdio")
    return ExitCode.OK
