"""The MCP clients that the command connect configures: the files of their servers, and the form of an entry."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click


@dataclass(frozen=True)
class Client:
    """One MCP client.

    Attributes:
        title: its name.
        user: the file for all projects, below the user's home directory.
        project: the file of one project, below its directory; None if the client has none.
        servers: the object or table of all servers.
        fields: the fields of an entry besides ``command`` and ``args``.
        home: the environment variable with another directory for the file ``user``.
        environment: where an entry names variables for the server.
    """

    title: str
    user: str
    project: str | None = None
    servers: str = "mcpServers"
    fields: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None
    environment: str = '"env"'

    def file(self, scope: str) -> Path:
        """The file of the scope ``user`` or ``project``.

        Raises:
            click.UsageError: the client has no files of projects.
        """
        if scope == "user":
            return self._user_file()
        if self.project is None:
            raise click.UsageError(f"{self.title} has no file for one project; leave out --scope")
        return Path.cwd() / self.project

    def entry(self, command: list[str]) -> dict[str, Any]:
        """The entry that starts a server by a command."""
        return {**self.fields, "command": command[0], "args": command[1:]}

    def _user_file(self) -> Path:
        if self.home and (directory := os.environ.get(self.home)):
            return Path(directory).absolute() / Path(self.user).name
        home, file = Path.home(), Path(self.user)
        if file.parts[0] != ".config":
            return home / file
        given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        others = given if given.is_absolute() else home / ".config"  # as the specification of XDG says
        configured = home / "Library/Application Support" if sys.platform == "darwin" else others
        return configured / file.relative_to(".config")


CLIENTS: Final = {
    "claude-code": Client(
        "Claude Code", ".claude.json", ".mcp.json", fields={"type": "stdio"}, home="CLAUDE_CONFIG_DIR"
    ),
    "claude-desktop": Client("Claude Desktop", ".config/Claude/claude_desktop_config.json"),
    "codex": Client(
        "Codex", ".codex/config.toml", ".codex/config.toml", "mcp_servers", home="CODEX_HOME", environment="env_vars"
    ),
    "cursor": Client("Cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
    "gemini": Client("Gemini CLI", ".gemini/settings.json", ".gemini/settings.json"),
    "vscode": Client("VS Code", ".config/Code/User/mcp.json", ".vscode/mcp.json", "servers", {"type": "stdio"}),
    "windsurf": Client("Windsurf", ".codeium/windsurf/mcp_config.json"),
}
"""The clients by the name that the command takes; their formats were checked in November 2026."""
