"""`AgentMemory`: one confined tree of text files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self, TypeVar

from agent_memory.backend import ANY, ReadWhen
from agent_memory.core.part_flows import Blocks
from agent_memory.core.precondition import Precondition
from agent_memory.core.results import TreeResult, WriteResult
from agent_memory.memory.versions import VersionCalls
from agent_memory.memory.view import as_bytes, as_text, of_bytes, of_text, once_per
from agent_memory.runtime.run import step

if TYPE_CHECKING:
    from agent_memory.filesystem import AgentMemoryFileSystem

T = TypeVar("T")
U = TypeVar("U")


class AgentMemory(VersionCalls):
    """One confined tree of text files.

    Text is UTF-8, stored byte for byte. Every path is relative to the tree and parsed by one grammar
    (`InvalidPathError` has the rule and a suggestion). Reading never creates anything. Sizes are in
    bytes. Instances are immutable and may be shared between threads.

    Every method may raise `InvalidPathError` (a bad name), `OperationDenied` (a guard's veto), `FileOperationError`
    (the storage failed; `OutcomeUnknownError` if it is unknown whether a change took effect),
    `UnsupportedOperationError` (the backend does not promise the operation), `FileTooLargeError` (more bytes than the
    backend's ``max_bytes``) and `InvalidContentError` (a malformed precondition). Apart from these, a method
    raises only the errors it lists.
    """

    def write(
        self,
        path: str,
        content: str,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """Replace or create a text file, and the directories above it, in one atomic step.

        The last writer wins. For files with several writers use `edit`, `append` or a precondition.

        Args:
            path: the file.
            content: its whole new text.
            expected_sha256: the SHA-256 of the content to replace; the file is read to compare it.
            expected_version: the version to replace: `WriteResult.version`, or `Entry.version` where the storage has
                versions (S3). No content is read. ``ANY`` is no precondition. A version of another file or another
                storage is a `ConflictError`. Local disk and memory have no versions: there a version is the digest of
                the content, so a file that was changed and changed back has the expected version.
            idempotency_key: 1 to 128 characters that name this call, in this agent's tree: a call with the same key is
                made at most once, also if other processes repeat it. The repeated call waits for the first one if
                that is under way, and returns its result without ``version``. See `with_idempotency_window`.

        Raises:
            InvalidContentError: ``content`` is not a str or not valid Unicode; raised before any I/O.
            ConflictError: the file has other content than expected, or is gone; or the idempotency key belongs to
                another call (kind, path or content are different); nothing was written.
            OutcomeUnknownError: also if an earlier call with this idempotency key ended without telling how.
            FileAlreadyExistsError: the name is a directory, or lies below a file.
            FileTooLargeError: more bytes than the backend's ``max_bytes``.
        """
        expected = Precondition(expected_sha256, expected_version)
        return step(self._tree.write(self._run, path, as_text(content), expected, once_per(idempotency_key)))

    def write_bytes(
        self,
        path: str,
        content: bytes,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """Replace or create a file with any bytes; otherwise as `write`."""
        expected = Precondition(expected_sha256, expected_version)
        return step(self._tree.write(self._run, path, as_bytes(content), expected, once_per(idempotency_key)))

    def write_blocks(self, path: str, blocks: Iterable[bytes], size: int, *, create: bool = False) -> WriteResult:
        """Replace or create a file of any size in one atomic step, in bounded memory; otherwise as `write`.

        Content larger than 5 MiB (the backend's ``part_bytes``) is written in parts if the backend can do so and no
        plugin has to see the content. Content larger than ``max_bytes`` is always written in parts.

        Args:
            path: the file.
            blocks: its content, in blocks of any size. They are read once; the async twin reads them in a thread.
            size: the total number of bytes.
            create: whether the file must not exist yet; exactly one of several concurrent creators succeeds.

        Raises:
            FileAlreadyExistsError: ``create``, and the name is taken.
            InvalidContentError: the blocks are not bytes, or not ``size`` bytes in all; nothing was written.
            OperationDenied: more than ``max_bytes``, and a plugin has to see the content.
            UnsupportedOperationError: more than ``max_bytes``, and the backend cannot write in parts.
        """
        return step(self._tree.write_blocks(self._run, path, Blocks(blocks, size), create))

    def append(
        self,
        path: str,
        content: str,
        *,
        separator: str = "",
        must_exist: bool = False,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """Append text to a file, or create the file; concurrent appends all take effect, each whole.

        Args:
            path: the file.
            content: the text to append.
            separator: text to insert before ``content``, unless the file is empty or already ends with it; checked
                in the same atomic step. At most 64 bytes of UTF-8; plugins do not see it.
            must_exist: whether a missing file is an error; checked in the same atomic step.
            expected_sha256: the SHA-256 of the file's content before the append; with it the file is read.
            expected_version: the file's version before the append, as in `write`; with it the file is read.
            idempotency_key: as in `write`.

        The result's ``sha256`` is the digest of ``content``; other errors as `write`.

        Raises:
            AgentMemoryFileNotFoundError: ``must_exist`` and no such file.
            AppendError: the storage failed; the old content is intact.
            ConflictError: the file has other content than expected, or other writers were faster until the timeout
                (see `with_timeout`); nothing was written.
        """
        expected = Precondition(expected_sha256, expected_version)
        return step(
            self._tree.append(
                self._run, path, as_text(content), as_text(separator), must_exist, expected, once_per(idempotency_key)
            )
        )

    def append_bytes(
        self,
        path: str,
        content: bytes,
        *,
        separator: bytes = b"",
        must_exist: bool = False,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
    ) -> WriteResult:
        """Append any bytes to a file, or create the file; otherwise as `append`."""
        expected = Precondition(expected_sha256, expected_version)
        return step(
            self._tree.append(
                self._run, path, as_bytes(content), as_bytes(separator), must_exist, expected, once_per(idempotency_key)
            )
        )

    def create(self, path: str, content: str, *, idempotency_key: str | None = None) -> WriteResult:
        """Write a file that does not exist yet; exactly one of several concurrent creators succeeds.

        Args:
            path: the file.
            content: its text.
            idempotency_key: as in `write`.

        Raises:
            FileAlreadyExistsError: the name is taken; nothing was written.
        """
        return step(self._tree.create(self._run, path, as_text(content), once_per(idempotency_key)))

    def create_bytes(self, path: str, content: bytes, *, idempotency_key: str | None = None) -> WriteResult:
        """Write a file with any bytes that does not exist yet; otherwise as `create`."""
        return step(self._tree.create(self._run, path, as_bytes(content), once_per(idempotency_key)))

    def edit(
        self,
        path: str,
        change: Callable[[str], str | None],
        *,
        missing: str | None = None,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> WriteResult:
        """Replace a file's text by a function of it, without losing the changes of concurrent writers.

        Args:
            path: the file.
            change: a pure function from the old text to the new text. If another writer was faster, it is called
                again with the newer text. If it returns equal text, nothing is written; if it returns None, the file
                is deleted. Its exceptions propagate.
            missing: the old text if there is no file; then the result of ``change`` creates the file.
            expected_sha256: the SHA-256 the content must have; with it, a conflict is not retried.
            expected_version: the version the file must have, as in `write`; with it, a conflict is not retried.
            idempotency_key: as in `write`.
            fingerprint: a text that tells different calls with this idempotency key apart, instead of the content.

        Raises:
            AgentMemoryFileNotFoundError: no such file, and ``missing`` is None or a state is expected.
            FileAlreadyExistsError: the name is a directory, or lies below a file.
            ConflictError: the file has other content than expected, or other writers were faster until the timeout;
                nothing was written.
        """
        old = None if missing is None else as_text(missing)
        expected = Precondition(expected_sha256, expected_version)
        return step(
            self._tree.edit(self._run, path, of_text(change), old, expected, once_per(idempotency_key, fingerprint))
        )

    def edit_bytes(
        self,
        path: str,
        change: Callable[[bytes], bytes | None],
        *,
        missing: bytes | None = None,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> WriteResult:
        """Replace a file's bytes by a function of them; otherwise as `edit`."""
        old = None if missing is None else as_bytes(missing)
        expected = Precondition(expected_sha256, expected_version)
        return step(
            self._tree.edit(self._run, path, of_bytes(change), old, expected, once_per(idempotency_key, fingerprint))
        )

    def delete(
        self,
        path: str,
        *,
        expected_sha256: str | None = None,
        expected_version: ReadWhen = ANY,
        idempotency_key: str | None = None,
        fingerprint: str = "",
    ) -> None:
        """Delete a file, and each directory that becomes empty; the arguments are those of `edit`.

        Raises:
            AgentMemoryFileNotFoundError: no such file.
            ConflictError: the file has other content than expected; nothing was deleted.
        """
        expected = Precondition(expected_sha256, expected_version)
        step(self._tree.delete(self._run, path, expected, once_per(idempotency_key, fingerprint)))

    def delete_tree(self, path: str) -> TreeResult:
        """Delete every file below a directory; ``""`` is the whole tree, which may be empty.

        Names in storage that are not valid keys are not deleted, only counted.

        Raises:
            AgentMemoryFileNotFoundError: no files below that name.
            PartialOperationError: some files could not be deleted; call it again to continue.
        """
        return step(self._tree.delete_tree(self._run, path))

    def forget(self, path: str) -> TreeResult:
        """Erase a file, or all files below a directory, with every copy the storage keeps; ``""`` is the whole tree.

        On S3 this includes earlier versions, delete markers and incomplete uploads, also those of files deleted
        earlier; the result counts such files too. On local disk it includes the temporary files of crashed writers.
        A missing file is no error. Receipts of idempotency keys that name the files are erased too. An `AuditPlugin` of
        the service destroys the salt of the agent, so that its log no longer proves any content; without one, the salt
        in a log that other programs write stays. Names in storage that are not valid keys are not erased, only counted.

        Raises:
            PartialOperationError: some files could not be deleted; call it again to continue.
            UnsupportedOperationError: the backend cannot promise that nothing of a deleted file is kept.
        """
        return step(self._tree.forget(self._run, path))

    def rename(self, path: str, new_path: str) -> TreeResult:
        """Move a file or a directory to a free name; never overwrites.

        On local disk and in memory this is one atomic step, whatever the size. Elsewhere a file is copied and then
        deleted at its old name, so a crash may leave both names but never neither; a directory moves file by file.

        Raises:
            AgentMemoryFileNotFoundError: no such file or directory.
            FileAlreadyExistsError: the new name is taken.
            ConflictError: the file changed during the move; it stays at its old name.
            PartialOperationError: only a part of the directory was moved. The new name is taken now, so move the
                files in ``left`` one by one.
        """
        return step(self._tree.rename(self._run, path, new_path))

    def copy(self, path: str, new_path: str) -> TreeResult:
        """Copy a file or a directory to a free name; never overwrites; errors as `rename`."""
        return step(self._tree.copy(self._run, path, new_path))

    def record_segment(self, text: str, suffix: str = "") -> str:
        """Encode any text as `encode_segment` does; if its segment is hashed, keep the text in a file of this tree.

        The file is ``.texts/<SHA-256>``. It is created once, by one operation.
        """
        return step(self._tree.record_segment(self._run, text, suffix))

    def filesystem(self) -> AgentMemoryFileSystem:
        """Return this view as an fsspec filesystem, confined to the same tree, for pandas and other users of fsspec.

        Each of its calls passes the hooks. It is closed with the memory. See `agent_memory.filesystem`.
        """
        from agent_memory.filesystem import AgentMemoryFileSystem  # a surface above this module

        return AgentMemoryFileSystem(self)

    def close(self) -> None:
        """Flush and close the plugins, and release the backend's resources; all views are closed too.

        A plugin stays open while another open service uses it, or if it is shared: see
        `agent_memory.hookspecs.Plugin`.
        """
        self._tree.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
