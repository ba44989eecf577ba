"""One hostile history of a store with versions, and a model of what must be found and what must be gone."""

from __future__ import annotations

import inspect
import os
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from agent_memory import AgentMemory, AgentMemoryError, VersionLimits
from agent_memory.core import operation
from tests.support.servers import S3Server

NAMES: Final = ("a.md", "b.md", "d/c.md", "d/e.md", "f/c.md")
_PRIMITIVES: Final = (
    "read", "stat", "list", "write", "append", "delete", "move_file", "move_tree", "write_copy", "erase",
    "erase_earlier", "delete_tree",
)  # fmt: skip
_HOUR: Final = 3600.0


class Killed(BaseException):
    """The process ends here."""


@dataclass(eq=False)
class Lineage:
    """What was one file under all its names.

    Attributes:
        past: all contents that versions kept of it, under any name, and those that copies share with it.
        has_origin: whether the storage has the history with the file; without it a copy is a file of its own.
        is_marked: whether a mark tells its last name.
        by_mark: the past that only this mark connects with the file, because its origin was lost.
        is_copied: whether another program copied it: its history may come back to a name after another one.
    """

    past: set[str] = field(default_factory=set)
    has_origin: bool = True
    is_marked: bool = False
    by_mark: set[str] = field(default_factory=set)
    is_copied: bool = False


class Storage:
    """A storage that other programs change, too: on disk."""

    options: Mapping[str, object] = {}

    def __init__(self, root: Path) -> None:
        self.url = f"{root.as_uri()}?durability=process"
        self.root = root
        self._aside = root.with_name(root.name + "-aside")
        self._aside.mkdir(exist_ok=True)

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def copy(self, source: str, target: str) -> None:
        """As ``cp -a``: with the metadata."""
        (self.root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.root / source, self.root / target)

    def move(self, source: str, target: str) -> None:
        (self.root / target).parent.mkdir(parents=True, exist_ok=True)
        (self.root / source).rename(self.root / target)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def keep_aside(self, name: str, number: int) -> None:
        """A backup of one file."""
        shutil.copy2(self.root / name, self._aside / str(number))

    def put_back(self, number: int, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self._aside / str(number), self.root / name)

    def replace(self, name: str, text: str) -> None:
        """As an editor: a new file, without the metadata."""
        new = self.root / "new"
        new.write_text(text)
        new.rename(self.root / name)

    def rewrite(self, name: str, text: str) -> None:
        """As ``echo >``: in place, so the metadata stays."""
        (self.root / name).write_text(text)

    def lose_settings(self) -> None:
        (self.root / ".agent-memory/store.json").unlink(missing_ok=True)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        for directory, _, files in os.walk(self.root):
            for name in files:
                file = Path(directory, name)
                yield file.relative_to(self.root).as_posix(), file.read_bytes()


class StorageInMemory(Storage):
    """The same in memory."""

    def __init__(self) -> None:
        self._name = f"hostile-{secrets.token_hex(8)}"
        self.url = f"memory://{self._name}"
        self._aside_files: dict[int, Any] = {}
        with AgentMemory.open(self.url) as memory:
            self._files: dict[str, Any] = memory._tree.backend._fs.store  # type: ignore[union-attr]

    def _path(self, name: str) -> str:
        return f"/{self._name}/{name}"

    def _copied(self, file: Any) -> Any:
        copied = type(file)(file.fs, file.path, file.getvalue())
        copied.agent_memory_origin = getattr(file, "agent_memory_origin", None)
        return copied

    def exists(self, name: str) -> bool:
        return self._path(name) in self._files

    def copy(self, source: str, target: str) -> None:
        self._files[self._path(target)] = self._copied(self._files[self._path(source)])

    def move(self, source: str, target: str) -> None:
        self._files[self._path(target)] = self._files.pop(self._path(source))

    def remove(self, name: str) -> None:
        del self._files[self._path(name)]

    def keep_aside(self, name: str, number: int) -> None:
        self._aside_files[number] = self._copied(self._files[self._path(name)])

    def put_back(self, number: int, name: str) -> None:
        self._files[self._path(name)] = self._copied(self._aside_files[number])

    def replace(self, name: str, text: str) -> None:
        self.rewrite(name, text)
        self._files[self._path(name)].agent_memory_origin = None

    def rewrite(self, name: str, text: str) -> None:
        file = self._files[self._path(name)]
        origin = getattr(file, "agent_memory_origin", None)
        self._files[self._path(name)] = new = type(file)(file.fs, file.path, text.encode())
        new.agent_memory_origin = origin

    def lose_settings(self) -> None:
        self._files.pop(self._path(".agent-memory/store.json"), None)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        top = self._path("")
        for path, file in list(self._files.items()):
            if path.startswith(top):
                yield path[len(top) :], file.getvalue()


class StorageOnS3(Storage):
    """The same on S3, where other programs copy on the server, with the metadata."""

    def __init__(self, server: S3Server) -> None:
        self.url = server.new_url()
        self.options = server.options
        self._client = server.client("s3")
        self._bucket, _, self._root = self.url.removeprefix("s3://").partition("/")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._root}/{name}"}

    def _aside_at(self, number: int) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._root}-aside/{number}"}

    def exists(self, name: str) -> bool:
        return bool(self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._at(name)["Key"])["KeyCount"])

    def copy(self, source: str, target: str) -> None:
        self._client.copy_object(CopySource=self._at(source), **self._at(target))

    def move(self, source: str, target: str) -> None:
        self.copy(source, target)
        self.remove(source)

    def remove(self, name: str) -> None:
        self._client.delete_object(**self._at(name))

    def keep_aside(self, name: str, number: int) -> None:
        self._client.copy_object(CopySource=self._at(name), **self._aside_at(number))

    def put_back(self, number: int, name: str) -> None:
        self._client.copy_object(CopySource=self._aside_at(number), **self._at(name))

    def replace(self, name: str, text: str) -> None:
        self._client.put_object(Body=text.encode(), **self._at(name))

    def rewrite(self, name: str, text: str) -> None:
        metadata = self._client.head_object(**self._at(name))["Metadata"]
        self._client.put_object(Body=text.encode(), Metadata=metadata, **self._at(name))

    def lose_settings(self) -> None:
        self.remove(".agent-memory/store.json")

    def contents(self) -> Iterator[tuple[str, bytes]]:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._root}/").get("Contents", [])
        for key in (each["Key"] for each in found):
            with suppress(self._client.exceptions.NoSuchKey):
                body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
                yield key.removeprefix(f"{self._root}/"), body


class History:
    """Plays one seeded history.

    The model knows for each present file its lineage, and for each name the contents that ended under it while the
    store kept versions. A file whose origin is lost begins a lineage.

    Attributes:
        steps: what was done, as text.
        faults: what is wrong.
    """

    def __init__(self, storage: Storage, seed: int) -> None:
        self.steps: list[str] = []
        self.faults: list[str] = []
        self._storage = storage
        self._random = Random(seed)
        self._number = 0
        self._present: dict[str, str] = {}
        self._lineages: dict[str, Lineage] = {}
        self._aside: dict[int, tuple[str, Lineage]] = {}
        self._ended: dict[str, dict[str, bool]] = defaultdict(dict)
        """By name and content: whether the change that ended it was acknowledged."""
        self._seen: set[str] = set()
        self._shared: set[str] = set()
        """The contents that a copy by us gave to another history: forgetting one file leaves them."""
        self._order: dict[str, list[str]] = defaultdict(list)
        """By name: the contents in the order in which acknowledged changes ended them, of files without copies."""
        self._by_us: dict[str, bool] = {}
        """By content: whether it begins with what an operation made while the store kept versions."""
        self._is_on = True
        self._memory = self._opened()

    def _opened(self) -> AgentMemory:
        limits = VersionLimits() if self._is_on else None
        return AgentMemory.open(self._storage.url, versions=limits, actor="ann", storage_options=self._storage.options)

    def play(self, steps: int) -> None:
        kinds = [
            *["write"] * 5, *["append"] * 3, *["edit"] * 3, *["delete"] * 2, *["rename"] * 4, "rename directory",
            "copy", "restore", "tool copy", "tool move", "tool backup", "tool restore", "tool replace", "tool rewrite",
            "tool remove", "off and on", "settings lost", "forget",
        ]  # fmt: skip
        for _ in range(steps):
            kind = self._random.choice(kinds)
            getattr(self, "_" + kind.replace(" ", "_"))()
            self._seen |= {*self._present.values()}
        for name in self._random.sample(NAMES, len(NAMES)):
            self._check_listed(name)
        for name in self._random.sample(NAMES, 3):
            self._forget(name)
            for other in NAMES:
                self._check_listed(other)

    # Steps

    def _content(self) -> str:
        self._number += 1
        return f"canary-{self._number}-\n"

    def _some(self) -> str | None:
        return self._random.choice(sorted(self._present)) if self._present else None

    def _free(self, above: str = "") -> str | None:
        free = [name for name in NAMES if name not in self._present and name.startswith(above)]
        return self._random.choice(free) if free else None

    def _do(self, what: str, call: Callable[[AgentMemory], object]) -> bool:
        """Make a call, perhaps with a wrong clock, perhaps killed; return whether it succeeded."""
        ahead = self._random.choice((0.0, 0.0, -_HOUR, _HOUR, 2.0))
        kill = self._random.randrange(1, 12) if self._random.random() < 0.2 else 0
        self.steps.append(f"{what}{f', clock {ahead:+.0f} s' if ahead else ''}{f', killed at {kill}' if kill else ''}")
        try:
            with clock(ahead), killing(self._memory, kill, after=self._random.random() < 0.5):
                call(self._memory)
        except Killed:
            self.steps[-1] += ": killed"
            self._memory = self._opened()
            return False
        except AgentMemoryError as error:
            self.steps[-1] += f": {type(error).__name__}"
            return False
        return True

    def _end(self, name: str, acknowledged: bool) -> None:
        """The content of a name has ended, or may have."""
        content, lineage = self._present[name], self._lineages[name]
        if self._is_on:
            known = self._ended[name]
            known[content] = known.get(content, False) or acknowledged
            self._order[name] += [content] if acknowledged and not lineage.is_copied else []
            lineage.past.add(content)

    def _look(self, name: str) -> str | None:
        """The content of a name as it is, after a call without an answer."""
        if not self._storage.exists(name):
            return None
        return dict(self._storage.contents())[name].decode()

    def _changed(self, name: str, new: str | None, done: bool) -> None:
        """A call replaced a file, or may have: find out."""
        before = self._present.get(name)
        now = new if done else self._look(name)
        if done and new is not None:
            self._by_us[new] = self._is_on
        if before is not None and (done or now != before):
            self._end(name, done)
        elif before is not None and self._is_on and self._lineages[name].has_origin:
            self._lineages[name].past.add(before)  # a record may be left of the change that was not made
        elif before is not None and self._is_on:
            self._shared.add(before)  # such a record of a file without an origin has a history of its own
        if now is None:
            self._present.pop(name, None)
            self._lineages.pop(name, None)
        elif now != before:
            self._present[name] = now
            if before is None or not self._is_on:  # without versions a write leaves no origin
                self._lineages[name] = self._without_origin(name) if before else Lineage(has_origin=self._is_on)
            self._lineages[name].has_origin |= self._is_on

    def _without_origin(self, name: str) -> Lineage:
        """A file that lost its origin: a mark still leads to its past, unless another file has the same."""
        lineage = self._lineages[name]
        others = [
            *(each for other, each in self._lineages.items() if other != name),
            *(of for _, of in self._aside.values()),
        ]
        past = {*lineage.past, *lineage.by_mark} if lineage.is_marked and lineage not in others else set[str]()
        return Lineage(has_origin=False, is_marked=bool(past), by_mark=past)

    def _write(self) -> None:
        name, text = self._random.choice(NAMES), self._content()
        self._changed(name, text, self._do(f"write {name} {text!r}", lambda m: m.write(name, text)))

    def _append(self) -> None:
        if name := self._some():
            text = self._content()
            done = self._do(f"append {name} {text!r}", lambda m: m.append(name, text))
            now = self._present[name] + text
            if done and self._present[name] in self._by_us:
                self._by_us[now] = self._by_us[self._present[name]]
            self._present[name] = now if done else self._look(name) or now

    def _edit(self) -> None:
        if name := self._some():
            text = self._content()
            done = self._do(f"edit {name} {text!r}", lambda m: m.edit(name, lambda _: text))
            self._changed(name, text, done)

    def _delete(self) -> None:
        if name := self._some():
            self._changed(name, None, self._do(f"delete {name}", lambda m: m.delete(name)))

    def _rename(self) -> None:
        name, target = self._some(), self._free()
        if name and target:
            done = self._do(f"rename {name} {target}", lambda m: m.rename(name, target))
            self._renamed(name, target, done)

    def _renamed(self, name: str, target: str, done: bool, by_us: bool = True) -> None:
        content, lineage = self._present[name], self._lineages[name]
        is_there = self._storage.exists(target)
        if not self._storage.exists(name):
            del self._present[name], self._lineages[name]
        if is_there:
            self._present[target], self._lineages[target] = content, lineage
            lineage.by_mark = set()
            lineage.is_marked = by_us and self._is_on and lineage.has_origin
        assert is_there or not done

    def _rename_directory(self) -> None:
        inside = [name for name in self._present if name.startswith("d/")]
        if inside and not any(name.startswith("f/") for name in self._present):
            done = self._do("rename d f", lambda m: m.rename("d", "f"))
            for name in inside:
                if done or self._storage.exists("f/" + name[2:]):
                    self._renamed(name, "f/" + name[2:], False)

    def _copy(self) -> None:
        name, target = self._some(), self._free()
        if not (name and target):
            return
        if self._do(f"copy {name} {target}", lambda m: m.copy(name, target)) or self._look(target):
            self._present[target], self._lineages[target] = self._present[name], Lineage(has_origin=self._is_on)
            self._shared.add(self._present[name])
            self._by_us.pop(self._present[name], None)  # the maker of the copy is another one

    def _restore(self) -> None:
        if name := self._some():
            earlier = [each for each in self._memory.versions.list(name) if each.ended_by and not each.redacted_by]
            if earlier:
                chosen = self._random.choice(earlier)
                text = self._memory.versions.read(name, chosen.id)
                self._shared.add(text)
                done = self._do(f"restore {name} {text!r}", lambda m: m.versions.restore(name, chosen.id))
                if text != self._present[name] or done:
                    self._changed(name, text, done)

    # Other programs

    def _tool(self, what: str) -> None:
        self.steps.append(f"tool: {what}")

    def _tool_copy(self) -> None:
        name, target = self._some(), self._free()
        if name and target:
            self._tool(f"cp -a {name} {target}")
            self._storage.copy(name, target)
            self._present[target], self._lineages[target] = self._present[name], self._copied(name)

    def _copied(self, name: str) -> Lineage:
        """The lineage of a copy with all metadata; without a history it is another file with the same content."""
        if self._lineages[name].has_origin:
            self._lineages[name].is_copied = True
            return self._lineages[name]
        self._shared.add(self._present[name])
        return Lineage(has_origin=False)

    def _tool_move(self) -> None:
        name, target = self._some(), self._free()
        if name and target:
            self._tool(f"mv {name} {target}")
            self._storage.move(name, target)
            self._renamed(name, target, True, by_us=False)

    def _tool_backup(self) -> None:
        if name := self._some():
            self._tool(f"backup {name}")
            self._number += 1
            self._storage.keep_aside(name, self._number)
            self._aside[self._number] = self._present[name], self._copied(name)

    def _tool_restore(self) -> None:
        target = self._free()
        if target and self._aside:
            number = self._random.choice(sorted(self._aside))
            self._tool(f"restore backup {self._aside[number][0]!r} to {target}")
            self._storage.put_back(number, target)
            self._present[target], self._lineages[target] = self._aside[number]

    def _tool_replace(self) -> None:
        if name := self._some():
            text = self._content()
            self._tool(f"replace {name} {text!r}")
            self._storage.replace(name, text)
            self._by_us[text] = False
            self._present[name], self._lineages[name] = text, self._without_origin(name)

    def _tool_rewrite(self) -> None:
        if name := self._some():
            text = self._content()
            self._tool(f"rewrite {name} {text!r}")
            self._storage.rewrite(name, text)
            self._by_us[text] = False
            self._present[name] = text

    def _tool_remove(self) -> None:
        if name := self._some():
            self._tool(f"rm {name}")
            self._storage.remove(name)
            del self._present[name], self._lineages[name]

    def _off_and_on(self) -> None:
        self._is_on = not self._is_on
        self.steps.append(f"versions {'on' if self._is_on else 'off'}")
        self._memory.versions.set_limits(VersionLimits() if self._is_on else None)
        self._memory = self._opened()

    def _settings_lost(self) -> None:
        self.steps.append("settings lost")
        self._storage.lose_settings()
        self._memory = self._opened()
        if self._is_on:
            self._memory.versions.set_limits(VersionLimits())

    # Promises

    def _forget(self, name: str | None = None) -> None:
        name = name or self._random.choice(NAMES)
        lineage = self._lineages.get(name)
        others = [*self._lineages.values(), *(of for _, of in self._aside.values())]
        kept = {content for each in others if each != lineage for content in each.past}  # the past of copies, too
        kept |= {content for other, ended in self._ended.items() if other != name for content in ended}
        gone = (set(self._ended[name]) - kept) | {self._present.get(name, "")}
        gone |= lineage.past | lineage.by_mark if lineage else set()
        for _ in range(4):
            if self._do(f"forget {name}", lambda m: m.forget(name)):
                break
        else:
            self._memory.forget(name)
            self.steps.append(f"forget {name}")
        if self._storage.exists(name):
            self.faults.append(f"{name} is there after it was forgotten")
        self._present.pop(name, None)
        self._lineages.pop(name, None)
        for content in sorted(filter(None, gone)):
            if not any(each.startswith(content) for each in self._shared):
                self._check_gone(name, content)
        self._ended[name] = {}
        self._forget_model()

    def _check_gone(self, name: str, content: str) -> None:
        canary = content.splitlines()[-1].encode()
        for place, data in self._storage.contents():
            if canary in data and place not in self._present:
                self.faults.append(f"{canary!r} of the forgotten {name} is in {place}")

    def _forget_model(self) -> None:
        """What was erased with a file under other names is not looked for any more."""
        stored = b"".join(data for place, data in self._storage.contents() if place not in self._present)
        for name, contents in self._ended.items():
            self._ended[name] = {
                text: told and text not in self._shared for text, told in contents.items() if text.encode() in stored
            }

    def _check_listed(self, name: str) -> None:
        found = self._memory.versions.list(name)
        contents = [self._memory.versions.read(name, each.id) for each in found if each.ended_by]
        for each, content in zip((each for each in found if each.ended_by), contents, strict=True):
            if content not in self._shared and self._by_us.get(content, bool(each.made_by)) != bool(each.made_by):
                self.faults.append(f"{content!r} under {name} is listed as made by {each.made_by}")
        shown = [*contents, self._present.get(name, "")]
        for content, acknowledged in self._ended[name].items():
            if acknowledged and not any(each.startswith(content) for each in shown):
                self.faults.append(f"{content!r} ended under {name}, and is not listed: {contents}")
        ended = [each for each in self._order[name] if self._order[name].count(each) == contents.count(each) == 1]
        if (listed := [each for each in contents[::-1] if each in ended]) != ended:
            self.faults.append(f"{ended} ended under {name} in this order, and are listed as {listed}")
        if wrong := {*contents} - self._seen:
            self.faults.append(f"{wrong} are listed under {name}, and never were there")


@contextmanager
def clock(ahead: float) -> Iterator[None]:
    """Let the callers' clock be ahead of the storage's."""
    with patch.object(operation, "time", _Clock(ahead)):
        yield


class _Clock:
    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def time(self) -> float:
        return time.time() + self._ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def killing(memory: AgentMemory, number: int, after: bool) -> Iterator[None]:
    """End the process at its call of the storage with a number: before it, or after it was made; 0: never."""
    backend: Any = memory._tree.backend
    calls = 0

    def count(is_after: bool) -> None:
        nonlocal calls
        calls += not is_after
        if calls == number and is_after == after:
            raise Killed

    def wrapped(verb: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            count(False)
            try:
                return verb(*args, **options)
            finally:
                count(True)

        async def called_async(*args: Any, **options: Any) -> Any:
            count(False)
            try:
                return await verb(*args, **options)
            finally:
                count(True)

        return called_async if inspect.iscoroutinefunction(verb) else called

    if not number:
        yield
        return
    names = [name for name in _PRIMITIVES if hasattr(backend, name)]
    try:
        for name in names:
            setattr(backend, name, wrapped(getattr(backend, name)))
        yield
    finally:
        for name in names:
            backend.__dict__.pop(name, None)
