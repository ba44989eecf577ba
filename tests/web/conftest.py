"""Pages over a service of this process, for requests without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agent_memory import AsyncAgentMemoryService
from agent_memory.audit import LogLocation
from agent_memory.registry import open_backend
from agent_memory.web import LeftOutNames, WebAccess, web_app
from tests.support.servers import Root
from tests.support.web_pages import InProcess


@pytest.fixture
def browse(root: Root) -> Iterator[Callable[..., InProcess]]:
    """Open pages of the root, in this process, with the cookie of a session."""
    with ExitStack() as stack:

        def browse(**options: Any) -> InProcess:
            access = WebAccess(["memory.test"])
            location = LogLocation.below(open_backend(root.url, root.options))
            stack.callback(location.store.close)
            service = AsyncAgentMemoryService(
                root.url, storage_options=root.options, plugins=[LeftOutNames(), *options.pop("plugins", ())],
                actor=options.pop("actor", "person"),
            )  # fmt: skip
            app = web_app(service, access, log=location, **options)
            return stack.enter_context(InProcess(app, access, service))

        yield browse
