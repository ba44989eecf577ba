"""Artifacts, memories, sessions and tools of Google's ADK. Needs ``pip install 'agent-memory-files[google-adk]'``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, FileAlreadyExistsError, InvalidPathError
from agent_memory.integrations import toolkit as kit
from agent_memory.key import encode_segment

try:
    from google.adk.agents.llm_agent import ToolUnion
    from google.adk.artifacts.artifact_util import is_artifact_ref, resolve_artifact_reference
    from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
    from google.adk.errors.input_validation_error import InputValidationError
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types

    from agent_memory.integrations.google_adk_memory import AgentMemoryMemoryService
    from agent_memory.integrations.google_adk_sessions import AgentMemorySessionService
except ImportError as error:
    raise kit.unusable("google-adk", "google-adk", error) from error

__all__ = [
    "AgentMemoryArtifactService",
    "AgentMemoryMemoryService",
    "AgentMemorySessionService",
    "memory_tools",
]

_USER: Final = "user:"
_MOST_REFERENCES: Final = 5
_MOST_RACES: Final = 1000
_REMOVED: Final = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""The part that the framework saves to remove an artifact when it rewinds a session."""


@dataclass(frozen=True)
class _Name:
    """An artifact as a caller names it; without a filename, all artifacts of a session or user."""

    app_name: str
    user_id: str
    session_id: str | None
    filename: str = ""

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            kit.checked_id(field, "" if field == "session_id" and value is None else value)

    @property
    def owner(self) -> tuple[str, ...]:
        """Kinds and ids in turn."""
        user = ("apps", self.app_name, "users", self.user_id)
        of_user = self.session_id is None or self.filename.startswith(_USER)
        return user if of_user else (*user, "sessions", self.session_id or "")

    @property
    def prefix(self) -> str:
        """The beginning of the filename in listings."""
        return _USER if len(self.owner) == 4 else ""

    @property
    def text(self) -> str:
        return self.filename.removeprefix(self.prefix)

    @property
    def scope(self) -> str:
        return "/".join((*map(encode_segment, self.owner), "artifacts"))

    @property
    def directory(self) -> str:
        return f"{self.scope}/{encode_segment(self.text)}"

    def uri(self, number: int) -> str:
        """A reference to a version, which another artifact may have as its ``file_data``."""
        return "/".join(("artifact:/", *self.owner, "artifacts", self.prefix + self.text, "versions", str(number)))


class AgentMemoryArtifactService(BaseArtifactService):
    """The artifacts of any apps, users and sessions in one memory.

    A version is one file, ``apps/<app>/users/<user>/sessions/<session>/artifacts/<filename>/<number>``. An artifact of
    a user (``session_id`` is None, or the filename begins with ``user:``) is in ``apps/<app>/users/<user>/artifacts``.
    The file has the text or the bytes, and after them one line of JSON: the time, the MIME type, the metadata and the
    rest of the part. One call creates it, so no number is given twice, also if many processes save at once.

    An artifact that cannot be stored is the framework's `InputValidationError`. A save is a `ConflictError` after it
    lost a thousand numbers to other writers.
    """

    def __init__(self, memory: kit.AnyMemory) -> None:
        self._memory = kit.async_view(memory)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """See `BaseArtifactService.save_artifact`."""
        name, part = _Name(app_name, user_id, session_id, filename), ensure_part(artifact)
        if is_artifact_ref(part):
            _referenced(part, name, 1)
        content = _packed(part, custom_metadata)
        with kit.mapped_errors({InvalidPathError: lambda error: InputValidationError(str(error))}):
            await kit.record_segment(self._memory, name.text)
            return await self._claim(name.directory, content)

    async def _claim(self, directory: str, content: bytes) -> int:
        """Create the next version; if another writer was faster, the version after it."""
        first = max(await self._numbers(directory), default=-1) + 1
        for number in range(first, first + _MOST_RACES):
            try:
                await self._memory.create(f"{directory}/{number}", content)
            except FileAlreadyExistsError as error:
                if error.taken_by != "file":
                    raise
            else:
                return number
        raise ConflictError(f"other writers took {_MOST_RACES} version numbers in the meantime", path=directory)

    async def load_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> types.Part | None:
        """See `BaseArtifactService.load_artifact`; a damaged file counts as absent."""
        return await self._load(_Name(app_name, user_id, session_id, filename), version, _MOST_REFERENCES)

    async def _load(self, name: _Name, version: int | None, references: int) -> types.Part | None:
        part = None
        for number in await self._chosen(name, version):
            part = await self._part(f"{name.directory}/{number}")
        if part is not None and is_artifact_ref(part):
            target, number = _referenced(part, name, references)
            return await self._load(target, number, references - 1)
        return None if part == _REMOVED else part

    async def _part(self, path: str) -> types.Part | None:
        with suppress(AgentMemoryFileNotFoundError, TypeError, LookupError, ValueError):  # absent or damaged
            body, _, line = (await self._memory.read_bytes(path)).removesuffix(b"\n").rpartition(b"\n")
            part = types.Part.model_validate_json(kit.to_json(kit.from_json(line)["part"]))
            if part.inline_data is not None:
                part.inline_data.data = body
            elif body or part.file_data is None:
                part.text = body.decode()
            return part
        return None

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """See `BaseArtifactService.list_artifact_keys`; each artifact of the user is listed with ``user:``."""
        found: list[str] = []
        for scope in {_Name(app_name, user_id, None), _Name(app_name, user_id, session_id)}:
            for entry in await self._memory.list(scope.scope, recursive=False):
                text = await kit.known_text(self._memory, entry.key.name) if entry.is_directory else None
                found += [] if text is None else [scope.prefix + text]
        return sorted(found)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """See `BaseArtifactService.delete_artifact`; afterwards the numbers begin at 0 again."""
        with suppress(AgentMemoryFileNotFoundError, InvalidPathError):
            await self._memory.delete_tree(_Name(app_name, user_id, session_id, filename).directory)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """See `BaseArtifactService.list_versions`."""
        return await self._numbers(_Name(app_name, user_id, session_id, filename).directory)

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """See `BaseArtifactService.list_artifact_versions`; only the ends of the files are read."""
        name = _Name(app_name, user_id, session_id, filename)
        return await self._versions(name, await self._numbers(name.directory))

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> ArtifactVersion | None:
        """See `BaseArtifactService.get_artifact_version`."""
        name = _Name(app_name, user_id, session_id, filename)
        return next(iter(await self._versions(name, await self._chosen(name, version))), None)

    async def _versions(self, name: _Name, numbers: list[int]) -> list[ArtifactVersion]:
        async def version(number: int) -> list[ArtifactVersion]:
            parse = partial(_version, number, name.uri(number))
            return await kit.records(self._memory, f"{name.directory}/{number}", parse, 1) or []

        found = await kit.found_each(self._memory, version, numbers, f"{name.directory}/{{}}".format)
        return [each for _, versions in found for each in versions]

    async def _chosen(self, name: _Name, version: int | None) -> list[int]:
        if version is None:
            return (await self._numbers(name.directory))[-1:]
        return [version] if version >= 0 else []

    async def _numbers(self, directory: str) -> list[int]:
        entries = await self._memory.list(directory, recursive=False)
        names = [entry.key.name for entry in entries if not entry.is_directory]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit() and str(int(name)) == name)


def _referenced(part: types.Part, name: _Name, references: int) -> tuple[_Name, int]:
    """The artifact and version that a part refers to; raises `InputValidationError` if it must not."""
    found = resolve_artifact_reference(
        file_uri=(part.file_data and part.file_data.file_uri) or "",
        app_name=name.app_name,
        user_id=name.user_id,
        session_id=name.session_id,
        remaining_depth=references,
    )
    return _Name(found.app_name, found.user_id, found.session_id, found.filename), found.version


def _packed(part: types.Part, metadata: dict[str, Any] | None) -> bytes:
    """The content of a version's file."""
    body, mime_type, without = _body(part)
    version = ArtifactVersion(version=0, canonical_uri="", mime_type=mime_type, custom_metadata=metadata or {})
    try:
        details = version.model_dump(mode="json", exclude={"version", "canonical_uri"}, exclude_none=True)
        rest = part.model_dump(mode="json", exclude=without, exclude_none=True)
        return b"%b\n%b\n" % (body, kit.to_json({**details, "part": rest}).encode())
    except ValueError as error:
        raise InputValidationError("The artifact's metadata cannot be stored as JSON.") from error


def _body(part: types.Part) -> tuple[bytes, str | None, Any]:
    """The bytes that are stored as they are, their MIME type, and the field of the part that they replace."""
    if part.inline_data is not None and part.inline_data.data is not None:
        return part.inline_data.data, part.inline_data.mime_type, {"inline_data": {"data"}}
    if part.inline_data is None and part.text is not None:
        return part.text.encode(), "text/plain", {"text"}
    if part.inline_data is None and part.file_data is not None:
        return b"", None if is_artifact_ref(part) else part.file_data.mime_type, None
    raise InputValidationError("An artifact needs inline_data with data, text or file_data.")


def _version(number: int, uri: str, line: Any) -> ArtifactVersion | None:
    """A version of the last line of its file; None if the line is damaged."""
    with suppress(TypeError, ValueError):  # pydantic's ValidationError is a ValueError
        return ArtifactVersion.model_validate({**line, "version": number, "canonical_uri": uri})
    return None


def memory_tools(memory: kit.AnyMemory, *, versions: bool = False) -> list[ToolUnion]:
    """Return tools for ``LlmAgent(tools=...)``, with which a model keeps notes; see `toolkit.model_tools`."""
    return [_AdkTool(tool) for tool in kit.model_tools(kit.async_view(memory), versions=versions)]


class _AdkTool(BaseTool):
    def __init__(self, tool: kit.ModelTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str]:
        """See `BaseTool.run_async`."""
        answer = await self._tool.call(args, tool_context.function_call_id)
        return {"error" if answer.is_error else "result": answer.output}
