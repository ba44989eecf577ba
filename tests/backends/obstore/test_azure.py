"""Azure with ``engine="obstore"``: the contract and races on Azurite, which keeps preconditions as Azure documents."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from agent_memory import AgentMemory, FileOperationError, ReadError
from agent_memory.backend import AnyBackend
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from agent_memory.testing import BackendContract
from tests.core.test_concurrency import (
    append_lines,
    assert_all_once_and_in_order,
    assert_one_winner_each,
    create_in_rounds,
    lines_of,
)
from tests.support.azurite import ACCOUNT, KEY, running
from tests.support.processes import in_processes
from tests.support.servers import Root

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Storage options of an emulator with the container ``memories``."""
    with running(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield {"engine": "obstore", "endpoint": endpoint, "account_name": ACCOUNT, "account_key": KEY}


def new_url() -> str:
    return f"az://memories/{os.getpid()}-{next(_numbers)}"


@pytest.mark.long
class TestAzurite(BackendContract):
    """The emulator, which is slow to race."""

    rounds = 10
    workers = 4
    model_examples = 10
    model_steps = 30

    @pytest.fixture
    def opened(self, azurite: dict[str, object]) -> Iterator[Callable[[str], AnyBackend]]:
        backends: list[AnyBackend] = []

        def open_url(url: str) -> AnyBackend:
            backends.append(open_backend(url, azurite))
            return backends[-1]

        yield open_url
        for backend in backends:
            close_backend(backend)

    @pytest.fixture
    def url(self) -> str:
        return new_url()

    @pytest.fixture
    def backend(self, opened: Callable[[str], AnyBackend], url: str) -> AnyBackend:
        return opened(url)

    @pytest.fixture
    def another_backend(self, opened: Callable[[str], AnyBackend], url: str) -> AnyBackend:
        return opened(url)


@pytest.mark.long
def test_no_append_of_several_processes_is_lost_and_one_creator_wins(azurite: dict[str, object]) -> None:
    root = Root(new_url(), azurite)
    in_processes(8, append_lines, root, 25)
    assert_all_once_and_in_order(lines_of(root), 8, 25)
    assert_one_winner_each(root, in_processes(8, create_in_rounds, root, 20), 20)


@pytest.mark.long
def test_the_tail_of_a_file_is_read_although_azure_has_no_suffix_ranges(azurite: dict[str, object]) -> None:
    with AgentMemory.open(new_url(), storage_options=azurite) as memory:
        conversation = ConversationMemory(memory)
        conversation.append_messages([Message("user", f"message {number}") for number in range(20_000)])
        assert [message.content for message in conversation.load_history(2)] == ["message 19998", "message 19999"]
        memory.write("empty", "")
        assert memory.read("empty") == ""


@pytest.mark.long
def test_errors_are_clear_and_show_no_credentials(azurite: dict[str, object]) -> None:
    with AgentMemory.open("az://no-such-container", storage_options=azurite) as memory:
        with pytest.raises(ReadError, match="the container does not exist"):
            memory.read("a.md")
    wrong = KEY[:-6] + "AAAA=="
    with AgentMemory.open(new_url(), storage_options={**azurite, "account_key": wrong}) as memory:
        with pytest.raises(FileOperationError, match="access denied by Azure") as denied:
            memory.write("a.md", "x")
        assert wrong not in f"{denied.value!r} {denied.value.__cause__!r} {memory!r}"
