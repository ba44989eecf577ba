"""One memory as an MCP server. Needs ``pip install 'agent-memory-files[mcp]'``.

The tools name a file ``/memories/notes.md``, as Claude's memory tool does; as a resource it is ``memory://notes.md``.
"""

from agent_memory.errors import BackendNotAvailableError, install_hint

try:
    from agent_memory.mcp_server._http import serve_http
    from agent_memory.mcp_server._oauth import OAuth
    from agent_memory.mcp_server._server import MAX_RESOURCES, mcp_server
    from agent_memory.mcp_server._stdio import serve_stdio
except ImportError as error:
    raise BackendNotAvailableError(f"the MCP SDK is missing: {install_hint('mcp')}") from error

__all__ = ["MAX_RESOURCES", "OAuth", "mcp_server", "serve_http", "serve_stdio"]
