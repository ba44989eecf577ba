"""Contract tests of `Backend.write` and `Backend.delete`, with one caller at a time."""

from __future__ import annotations

import pytest

from agent_memory.backend import ABSENT, ANY, PRESENT, Capabilities, ETag, WriteWhen
from agent_memory.backend.helpers import content_etag
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
)
from agent_memory.testing._store import ContractBase, ContractStore, refused

_NO_ETAGS = tuple(map(ETag, ("*", "", '""', '"a", "b"', "a\nb", "no state of any file")))
"""Texts that a caller may have stored by mistake; HTTP gives some of them a meaning."""


class WritingContract(ContractBase):
    """Writing: preconditions, etags, and taken names."""

    def test_the_capabilities_are_stated(self, store: ContractStore) -> None:
        assert isinstance(store.capabilities, Capabilities)
        assert store.capabilities.durability in ("none", "process", "full")
        assert store.capabilities == store.capabilities

    def test_what_is_not_promised_is_refused_and_changes_nothing(self, store: ContractStore) -> None:
        etag = store.write("old", b"old")
        store.write("dir/file", b"x")
        if not self.promises(store, "atomic_create"):
            for name in ("new", "old"):
                with refused("atomic_create"):
                    store.write(name, b"x", ABSENT)
        if not self.promises(store, "compare_and_swap"):
            with refused("compare_and_swap"):
                store.write("old", b"x", etag)
        if not self.promises(store, "conditional_delete"):
            with refused("conditional_delete"):
                store.delete("old", etag)
            for name in ("old", "dir"):
                with refused("conditional_delete" if self.promises(store, "atomic_create") else "atomic_create"):
                    store.memory().rename(name, "moved")
        assert store.names() == ("dir/file", "old")
        assert store.holds("old") == b"old"

    def test_a_write_replaces_the_whole_file(self, store: ContractStore) -> None:
        for data in (b"a long first state", b"short", b"", b"a longer state than the first"):
            etag = store.write("dir/file", data)
            assert isinstance(etag, ETag)
            assert store.read("dir/file").data == data
            assert store.names() == ("dir/file",)

    def test_different_contents_have_different_versions(self, store: ContractStore) -> None:
        contents = [b"", b"a", b"b", b"ab", b"ba", b"a\n", b"a" * 1000, b"a" * 999 + b"b", b"b" + b"a" * 999]
        etags = [store.write("file", data) for data in contents]
        assert len({etag.token for etag in etags}) == len(contents)

    def test_a_create_writes_a_file_that_is_absent(self, creating: ContractStore) -> None:
        etag = creating.write("dir/new", b"new", ABSENT)
        assert creating.read("dir/new").etag == etag
        creating.delete("dir/new")
        creating.write("dir/new", b"newer", ABSENT)
        assert creating.holds("dir/new") == b"newer"

    @pytest.mark.parametrize("old", [b"old", b"new", b""])
    def test_a_create_refuses_a_file_that_is_there(self, creating: ContractStore, old: bytes) -> None:
        creating.write("file", old)
        with pytest.raises(FileAlreadyExistsError):
            creating.write("file", b"new", ABSENT)
        assert creating.holds("file") == old

    def test_a_write_on_the_current_version_replaces(self, comparing: ContractStore) -> None:
        etag = comparing.write("dir/file", b"0")
        for number in range(1, 5):
            etag = comparing.write("dir/file", b"%d" % number, etag)
        etag = comparing.write("dir/file", b"5", comparing.read("dir/file").etag)
        assert comparing.read("dir/file").etag == etag
        assert comparing.holds("dir/file") == b"5"

    @pytest.mark.parametrize("name", ["missing", "dir/missing", "new/dir/missing", "dir", "dir/file/below"])
    def test_a_write_on_present_creates_no_file(self, comparing: ContractStore, name: str) -> None:
        comparing.write("dir/file", b"x")
        with pytest.raises((AgentMemoryFileNotFoundError, FileAlreadyExistsError)):
            comparing.write(name, b"x", PRESENT)
        assert comparing.names() == ("dir/file",)
        assert comparing.level() == ([], ["dir"])

    @pytest.mark.parametrize("old", [b"old", b"new", b""])
    def test_a_write_on_present_replaces_any_state(self, comparing: ContractStore, old: bytes) -> None:
        comparing.write("dir/file", old)
        etag = comparing.write("dir/file", b"new", PRESENT)
        assert comparing.read("dir/file").etag == etag
        assert comparing.holds("dir/file") == b"new"

    def test_a_write_on_a_stale_version_is_a_conflict(self, comparing: ContractStore) -> None:
        stale = comparing.write("file", b"first")
        comparing.write("file", b"other")
        for etag in (stale, content_etag(b"never there"), *_NO_ETAGS):
            with pytest.raises(ConflictError):
                comparing.write("file", b"lost", etag)
        assert comparing.holds("file") == b"other"

    @pytest.mark.parametrize("name", ["missing", "dir/missing", "new/dir/missing"])
    def test_a_version_of_a_missing_file_is_a_conflict(self, comparing: ContractStore, name: str) -> None:
        etag = comparing.write("dir/file", b"x")
        with pytest.raises(ConflictError):
            comparing.write(name, b"x", etag)
        assert comparing.names() == ("dir/file",)
        assert comparing.level() == ([], ["dir"])
        comparing.write("new", b"the name is free")

    def test_a_version_of_a_deleted_file_is_a_conflict(self, comparing: ContractStore) -> None:
        etag = comparing.write("file", b"x")
        comparing.delete("file")
        with pytest.raises(ConflictError):
            comparing.write("file", b"y", etag)
        assert comparing.names() == ()

    def test_a_state_that_came_back_is_the_same_or_another_and_nothing_between(self, comparing: ContractStore) -> None:
        """An etag may be a hash of the content: after A, B, A the first and the last state have the same etag."""
        etag = comparing.write("file", b"A")
        comparing.write("file", b"B")
        comparing.write("file", b"A")
        try:
            comparing.write("file", b"C", etag)
        except ConflictError:
            assert comparing.holds("file") == b"A"
        else:
            assert comparing.holds("file") == b"C"

    @pytest.mark.parametrize("when", [ANY, ABSENT], ids=["any", "absent"])
    @pytest.mark.parametrize(
        ("name", "taken_by"),
        [
            ("dir", "directory"),
            ("dir/sub", "directory"),
            ("file/below", "file_above"),
            ("file/far/below", "file_above"),
            ("dir/file/below", "file_above"),
        ],
    )
    def test_a_name_is_a_file_or_a_directory(
        self, store: ContractStore, name: str, taken_by: str, when: WriteWhen
    ) -> None:
        if when is ABSENT and not self.promises(store, "atomic_create"):
            pytest.skip("the backend states that it has no atomic create")
        store.write("file", b"1")
        store.write("dir/sub/file", b"2")
        store.write("dir/file", b"3")
        with pytest.raises(FileAlreadyExistsError) as taken:
            store.write(name, b"x", when)
        assert (taken.value.path, taken.value.taken_by) == (name, taken_by)
        assert store.names() == ("dir/file", "dir/sub/file", "file")
        assert [store.holds(name) for name in store.names()] == [b"3", b"2", b"1"]

    @pytest.mark.parametrize("name", ["dir", "dir/file/below"])
    def test_a_version_does_not_make_a_taken_name_free(self, comparing: ContractStore, name: str) -> None:
        etag = comparing.write("dir/file", b"x")
        with pytest.raises((FileAlreadyExistsError, ConflictError)):
            comparing.write(name, b"y", etag)
        assert comparing.names() == ("dir/file",)

    def test_a_name_changes_between_file_and_directory_as_often_as_it_is_freed(self, store: ContractStore) -> None:
        for _ in range(3):
            for name, taken in (("a/b/c", "a/b"), ("a/b", "a/b/c"), ("a", "a/b")):
                store.write(name, b"x")
                with pytest.raises(FileAlreadyExistsError):
                    store.write(taken, b"y")
                store.delete(name)
        assert store.level() == ([], [])

    def test_a_create_takes_the_name_of_a_directory_that_was_emptied(self, creating: ContractStore) -> None:
        for name in ("a/b/c/d", "a/b/c", "a/b", "a"):
            creating.write(name, b"x", ABSENT)
            assert creating.names() == (name,)
            creating.delete(name)

    def test_names_that_differ_by_case_are_two_files_or_refused(self, store: ContractStore) -> None:
        store.write("Dir/File", b"upper")
        if store.capabilities.case_sensitive:
            store.write("Dir/file", b"lower")
            store.write("dir/File", b"other")
            assert store.names() == ("Dir/File", "Dir/file", "dir/File")
            assert store.holds("Dir/File") == b"upper"
        else:
            for name in ("Dir/file", "dir/File"):
                assert store.holds(name) is None
                with pytest.raises(FileAlreadyExistsError):
                    store.write(name, b"lower")
            assert store.names() == ("Dir/File",)


class DeletingContract(ContractBase):
    """Deleting: preconditions, names that are not files, and emptied directories."""

    def test_a_deleted_file_is_gone(self, store: ContractStore) -> None:
        store.write("dir/file", b"x")
        store.write("dir/file2", b"y")
        store.delete("dir/file")
        assert store.holds("dir/file") is None
        for verb in (store.stat, store.delete):
            with pytest.raises(AgentMemoryFileNotFoundError):
                verb("dir/file")
        assert store.names() == ("dir/file2",)
        assert store.holds("dir/file2") == b"y"

    @pytest.mark.parametrize("name", ["missing", "dir", "dir/sub", "dir/missing", "dir/file/below", "no/such/dir"])
    def test_what_is_no_file_is_not_deleted(self, store: ContractStore, name: str) -> None:
        etag = store.write("dir/file", b"x")
        store.write("dir/sub/file", b"x")
        for when in (ANY, etag) if self.promises(store, "conditional_delete") else (ANY,):
            with pytest.raises(AgentMemoryFileNotFoundError):
                store.delete(name, when)
        assert store.names() == ("dir/file", "dir/sub/file")

    def test_a_delete_on_the_current_version_deletes(self, deleting: ContractStore) -> None:
        etag = deleting.write("file", b"x")
        deleting.delete("file", etag)
        assert deleting.holds("file") is None
        deleting.write("file", b"y")
        deleting.delete("file", deleting.read("file").etag)
        assert deleting.names() == ()

    def test_a_delete_on_a_stale_version_is_a_conflict(self, deleting: ContractStore) -> None:
        stale = deleting.write("file", b"first")
        deleting.write("file", b"other")
        for etag in (stale, content_etag(b"never there"), *_NO_ETAGS):
            with pytest.raises(ConflictError):
                deleting.delete("file", etag)
        assert deleting.holds("file") == b"other"

    def test_several_etags_are_no_condition_of_a_deletion(self, deleting: ContractStore) -> None:
        token = deleting.write("file", b"x").token
        for text in (f'"x", {token}', f"{token}, {token}", f" {token}", f"{token}\n", f"W/{token}"):
            with pytest.raises(ConflictError):
                deleting.delete("file", ETag(text))
        assert deleting.holds("file") == b"x"

    def test_an_emptied_directory_is_gone(self, store: ContractStore) -> None:
        for name in ("a/b/c/file", "a/other", "z/y/file"):
            store.write(name, b"x")
        store.delete("a/b/c/file")
        assert store.level() == ([], ["a", "z"])
        assert store.level("a") == (["a/other"], [])
        store.delete("z/y/file")
        assert store.level() == ([], ["a"])
        store.delete("a/other")
        assert store.level() == ([], [])
        assert store.level("a") == ([], [])
