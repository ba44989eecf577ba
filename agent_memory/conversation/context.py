"""`MemoryContext`: builds the messages of one model call; the agent loop continues when memory fails."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from agent_memory.conversation.memory import AsyncConversationMemory, ConversationMemory
from agent_memory.conversation.messages import Message
from agent_memory.core.sync_facade import step
from agent_memory.errors import AgentMemoryError
from agent_memory.key.quoting import field
from agent_memory.tools._model_text import ModelText

_log = logging.getLogger("agent_memory")
_LAST_N = 80
_UNREAD: Final = "memory could not be read (%s); the model is called without it"
_UNSTORED: Final = "the exchange could not be stored (%s)"
_LABELS: Final = frozenset({"owner", "assistant"})
"""Reserved labels; a sender id equal to one of them, in any case, is shown in quotes."""
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_MOST_TOLD: Final = 100
_told: set[tuple[int, str, str]] = set()
"""The failures that this process has logged as a warning."""


class ContextMessages(list[Message]):
    """The messages of one model call.

    Attributes:
        degraded: whether memory could not be read; then the messages are only the system prompt and the user's message.
        cause: the exception that prevented the read; None if memory was read.
        skipped: the number of damaged lines among the lines of the history that were read.
    """

    def __init__(self, messages: Sequence[Message] = (), cause: Exception | None = None, skipped: int = 0) -> None:
        super().__init__(messages)
        self.cause = cause
        self.skipped = skipped

    @property
    def degraded(self) -> bool:
        """Whether the memory could not be read."""
        return self.cause is not None


def _tell(message: str, error: Exception) -> None:
    """Log a failure: as a warning the first time in this process, later as INFO."""
    cause = type(error).__name__
    if isinstance(error, AgentMemoryError):  # the text of any other error could contain stored content
        cause += f": {error}"
    failure = (os.getpid(), message, _NUMBER.sub("0", cause))
    level = logging.INFO if failure in _told else logging.WARNING
    if len(_told) < _MOST_TOLD:
        _told.add(failure)
    _log.log(level, message, cause)


class MemoryContext:
    """Builds the messages of a model call from memory, and stores the exchange; neither method raises.

    Args:
        conversation: the conversation with the history and the memory document.
        last_n: how many messages of the history a call includes.
        owner: the sender ids that are shown as ``owner``.

    A failure is logged with its cause: as a warning once per process and cause, later as INFO. It is reported by
    `ContextMessages.degraded` and ``cause``, and by the result of `persist_exchange`.
    """

    def __init__(self, conversation: ConversationMemory, *, last_n: int = _LAST_N, owner: Collection[str] = ()) -> None:
        self._async = AsyncMemoryContext(conversation._async, last_n=last_n, owner=owner)

    def build_messages(self, system_prompt: str, user_message: str) -> ContextMessages:
        """The system prompt with the memory document, the last messages of the history, and the user's message."""
        return step(self._async.build_messages(system_prompt, user_message))

    def persist_exchange(
        self, user_message: str, reply: str, *, channel: str | None = None, sender_id: str | None = None
    ) -> bool:
        """Append the user's message and the model's final text, in one append; return False if that failed."""
        return step(self._async.persist_exchange(user_message, reply, channel=channel, sender_id=sender_id))


class AsyncMemoryContext:
    """`MemoryContext` for async callers, and with the logic of a sync conversation its own logic."""

    def __init__(
        self, conversation: AsyncConversationMemory, *, last_n: int = _LAST_N, owner: Collection[str] = ()
    ) -> None:
        if isinstance(owner, str):
            raise ValueError("owner must be a collection of sender ids, not a str")
        self._conversation = conversation
        self._last_n = last_n
        self._owner = frozenset(owner)

    async def build_messages(self, system_prompt: str, user_message: str) -> ContextMessages:
        """See `MemoryContext.build_messages`."""
        user = Message("user", user_message)
        try:
            document = ModelText(await self._conversation.load_global_memory()).text
            history = await self._conversation.load_history(self._last_n)
            shown = [self._labelled(message) for message in history]
        except Exception as error:  # noqa: BLE001 - no failure of memory may stop the model call
            _tell(_UNREAD, error)
            return ContextMessages([Message("system", system_prompt), user], error)
        system = f"{system_prompt}\n\n## Your Memory\n\n{document}" if document.strip() else system_prompt
        return ContextMessages([Message("system", system), *shown, user], skipped=history.skipped)

    async def persist_exchange(
        self, user_message: str, reply: str, *, channel: str | None = None, sender_id: str | None = None
    ) -> bool:
        """See `MemoryContext.persist_exchange`."""
        asked = Message("user", user_message, channel=channel, sender_id=sender_id)
        try:
            await self._conversation.append_messages([asked, Message("assistant", reply, channel=channel)])
        except Exception as error:  # noqa: BLE001 - no failure of memory may stop the answer
            _tell(_UNSTORED, error)
            return False
        return True

    def _labelled(self, message: Message) -> Message:
        if message.channel is None:
            return message
        sender = message.sender_id or "unknown"
        if message.role == "assistant":
            label = "assistant"
        elif message.sender_id in self._owner:
            label = "owner"
        else:
            label = repr(sender) if sender.casefold() in _LABELS else field(sender)
        return replace(message, content=f"[{field(message.channel)} / {label}]\n{message.content}")
