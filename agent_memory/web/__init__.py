"""Pages for people: see what agents remember. Needs ``pip install 'agent-memory-files[web]'``.

The pages show the files, the versions and the audit log of a store. Without ``allow_write`` they change nothing.
"""

from agent_memory.errors import BackendNotAvailableError, install_hint

try:
    from agent_memory.web._access import WebAccess
    from agent_memory.web._left_out import LeftOutNames
    from agent_memory.web._pages import web_app
    from agent_memory.web._serving import serve_web
    from agent_memory.web._static_export import ExportedPages, export_pages
except ImportError as error:
    raise BackendNotAvailableError(f"a package of the web pages is missing: {install_hint('web')}") from error

__all__ = ["ExportedPages", "LeftOutNames", "WebAccess", "export_pages", "serve_web", "web_app"]
