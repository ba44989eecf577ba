"""Azure with ``engine="obstore"``, without a server: options, URLs, and what is trusted."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory, BackendNotAvailableError
from agent_memory.object_store.engine import PreconditionFailed
from agent_memory.object_store.responses import refusal_of
from agent_memory_obstore._opening import azure_store

_KEY = "a2V5"


def test_options_and_urls_are_checked() -> None:
    with pytest.raises(TypeError, match="AzureStore does not take these options"):
        AgentMemory.open("az://memories", storage_options={"engine": "obstore", "acount_name": "x"})
    with pytest.raises(ValueError, match="an AZ URL is az://bucket/prefix"):
        AgentMemory.open("az://", storage_options={"engine": "obstore"})
    with pytest.raises(BackendNotAvailableError, match="no engine for gs://"):
        AgentMemory.open("gs://memories", storage_options={"engine": "obstore"})


def test_an_existing_object_that_should_be_absent_fails_the_precondition() -> None:
    assert isinstance(refusal_of(409, "BlobAlreadyExists", conditional=True), PreconditionFailed)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "trusted"),
    [
        ({}, True),
        ({"endpoint": "https://account.blob.core.windows.net"}, True),
        ({"endpoint": "http://127.0.0.1:1/account"}, False),
        ({"use_emulator": True}, False),
    ],
)
async def test_only_azure_itself_is_trusted(options: dict[str, object], trusted: bool) -> None:
    store = azure_store("memories", {"account_name": "account", "account_key": _KEY, **options})
    assert await store.is_trusted() is trusted
