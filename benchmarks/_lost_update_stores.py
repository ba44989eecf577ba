"""The stores that `lost_updates.py` compares, each with the calls that its documentation has for adding a line.

A store is opened once in each process, on a directory or on a URL ``s3://bucket/prefix``. On S3, credentials and the
endpoint are in the variables of the environment that all AWS tools read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import random
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

LINE = re.compile(r"writer-\d+-line-\d+")
FILE, END = "log.md", "END"


class Store:
    """A place to which lines are added."""

    def prepare(self) -> None:
        """Create the file; called once, before the writers start."""

    def add(self, line: str) -> None:
        """Add a line; an exception says that it was not added."""
        raise NotImplementedError

    def lines(self) -> list[str]:
        """Read the lines, in a store that was opened after all writers ended."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the store."""


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@functools.cache
def _runner() -> asyncio.Runner:
    """The event loop of this process, for all calls of an async store."""
    return asyncio.Runner()


def finished(result: Any) -> Any:
    """The result of a call of a sync or an async store."""

    async def wait() -> Any:
        return await result

    return _runner().run(wait()) if inspect.isawaitable(result) else result


def bucket_and_prefix(place: str) -> tuple[str, str]:
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return bucket, prefix


def s3_client() -> Any:
    return named("botocore.session.get_session")().create_client("s3")


class Appends(Store):
    """agent-memory, as an append."""

    def __init__(self, place: str) -> None:
        self._service = named("agent_memory.AgentMemoryService")(place)
        self.memory = self._service.agent("bench")

    def prepare(self) -> None:
        self.memory.write(FILE, "")

    def add(self, line: str) -> None:
        self.memory.append(FILE, f"{line}\n")

    def lines(self) -> list[str]:
        return list(self.memory.read(FILE).splitlines())

    def close(self) -> None:
        self._service.close()


class ToolInserts(Appends):
    """agent-memory, as Claude's memory tool."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._tool = named("agent_memory.tools.MemoryTool")(self.memory)

    def add(self, line: str) -> None:
        answer = self._tool.call(
            {"command": "insert", "path": f"/memories/{FILE}", "insert_line": 0, "insert_text": line}
        )
        if answer.is_error:
            raise RuntimeError(answer.output)


class PlainFile(Store):
    """A file of the operating system: O_APPEND, one system call a line."""

    def __init__(self, place: str) -> None:
        self._path = Path(place, FILE)

    def prepare(self) -> None:
        self._path.touch()

    def add(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines()


class Database(Store):
    """SQLite, with its defaults."""

    def __init__(self, place: str) -> None:
        self._connection = sqlite3.connect(f"{place}/log.db")

    def prepare(self) -> None:
        with self._connection:
            self._connection.execute("CREATE TABLE log (line TEXT)")

    def add(self, line: str) -> None:
        with self._connection:
            self._connection.execute("INSERT INTO log VALUES (?)", (line,))

    def lines(self) -> list[str]:
        return [line for (line,) in self._connection.execute("SELECT line FROM log")]

    def close(self) -> None:
        self._connection.close()


class ConditionalPuts(Store):
    """An S3 client with a loop written by hand: each write names the version that it read."""

    def __init__(self, place: str) -> None:
        bucket, prefix = bucket_and_prefix(place)
        self._client = s3_client()
        self._object = {"Bucket": bucket, "Key": f"{prefix}/{FILE}"}
        self._error = named("botocore.exceptions.ClientError")

    def prepare(self) -> None:
        self._client.put_object(**self._object, Body=b"")

    def add(self, line: str) -> None:
        for tries in range(200):
            reply = self._client.get_object(**self._object)
            text = reply["Body"].read() + f"{line}\n".encode()
            try:
                self._client.put_object(**self._object, Body=text, IfMatch=reply["ETag"])
            except self._error as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (409, 412):
                    raise
                time.sleep(random.uniform(0, min(0.01 * 2**tries, 0.2)))
            else:
                return
        raise TimeoutError("200 writes lost the race")

    def lines(self) -> list[str]:
        text: str = self._client.get_object(**self._object)["Body"].read().decode()
        return text.splitlines()

    def close(self) -> None:
        self._client.close()


class FsspecAppends(Store):
    """A filesystem of fsspec, opened for appending."""

    def __init__(self, place: str) -> None:
        self._fs, root = named("fsspec.core.url_to_fs")(place)
        self._path = f"{root}/{FILE}"

    def prepare(self) -> None:
        self._fs.pipe_file(self._path, b"")

    def add(self, line: str) -> None:
        with self._fs.open(self._path, "ab") as file:
            file.write(f"{line}\n".encode())

    def lines(self) -> list[str]:
        return list(self._fs.cat_file(self._path).decode().splitlines())


class FsspecRewrites(FsspecAppends):
    """A filesystem of fsspec: the file is read, and written with one more line."""

    def add(self, line: str) -> None:
        self._fs.pipe_file(self._path, self._fs.cat_file(self._path) + f"{line}\n".encode())


class ClaudeInserts(Store):
    """The memory tool on the local filesystem, of Anthropic's client."""

    path, first = f"/memories/{FILE}", ""

    def __init__(self, place: str) -> None:
        self._file = Path(place, "memories", FILE)
        self._tool = named("anthropic.tools.BetaLocalFilesystemMemoryTool")(place)

    def prepare(self) -> None:
        self._tool.call({"command": "create", "path": self.path, "file_text": self.first})

    def add(self, line: str) -> None:
        self._tool.call({"command": "insert", "path": self.path, "insert_line": 0, "insert_text": line})

    def lines(self) -> list[str]:
        return [line for line in self._file.read_text(encoding="utf-8").splitlines() if line != END]


class ClaudeReplaces(ClaudeInserts):
    """The same tool, by the command that edits a text."""

    first = f"{END}\n"

    def add(self, line: str) -> None:
        self._tool.call({"command": "str_replace", "path": self.path, "old_str": END, "new_str": f"{line}\n{END}"})


class StrandsSessions(Store):
    """A session manager of Strands: one file or object for each message of a session."""

    def __init__(self, place: str) -> None:
        if place.startswith("s3://"):
            bucket, prefix = bucket_and_prefix(place)
            self._manager = named("strands.session.S3SessionManager")("bench", bucket=bucket, prefix=prefix)
        else:
            self._manager = named("strands.session.FileSessionManager")("bench", storage_dir=place)
        agent = named("strands.Agent")
        self._agent = agent(agent_id="bench", session_manager=self._manager, callback_handler=None)

    def add(self, line: str) -> None:
        self._manager.append_message({"role": "user", "content": [{"text": line}]}, self._agent)

    def lines(self) -> list[str]:
        return [each.message["content"][0]["text"] for each in self._manager.list_messages("bench", "bench")]


class StrandsFacts(Store):
    """The file memory store of Strands: one file for each topic."""

    def __init__(self, place: str) -> None:
        if place.startswith("s3://"):
            bucket, prefix = bucket_and_prefix(place)
            self._storage = named("strands.storage.S3Storage")(bucket, prefix=f"{prefix}/")
        else:
            self._storage = named("strands.storage.LocalFileStorage")(place)
        module = "strands.vended_memory_stores.file_memory_store"
        self._store = named(f"{module}.FileMemoryStore")(name="notes", storage=self._storage)

    def add(self, line: str) -> None:
        finished(self._store.add(f"# Log\n{line}"))

    def lines(self) -> list[str]:
        return LINE.findall((finished(self._storage.read("memory/notes/log.md")) or b"").decode())


class RemoteBackend(Store):
    """The S3 backend of deepagents-backends."""

    def __init__(self, place: str) -> None:
        bucket, prefix = bucket_and_prefix(place)
        self._client = s3_client()
        self._object = {"Bucket": bucket, "Key": f"{prefix}/{FILE}"}
        config = named("deepagents_backends.S3Config")(bucket=bucket, prefix=prefix)
        self._backend = named("deepagents_backends.S3Backend")(config)

    def prepare(self) -> None:
        self._checked(self._backend.awrite(f"/{FILE}", END))

    def add(self, line: str) -> None:
        self._checked(self._backend.aedit(f"/{FILE}", END, f"{line}\n{END}"))

    def _checked(self, result: Any) -> None:
        if error := finished(result).error:
            raise RuntimeError(error)

    def lines(self) -> list[str]:
        with contextlib.closing(self._client.get_object(**self._object)["Body"]) as body:
            return LINE.findall(body.read().decode())
