"""Contract tests of erasing (`Erases`), for backends that support it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from agent_memory.backend import DeletedTree
from agent_memory.core.flows import erases
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.testing._store import ContractBase, ContractStore, key

Erase = Callable[[str], DeletedTree]


class ErasingContract(ContractBase):
    """Erasing files and directories: existing or missing, and without effect on other files."""

    @pytest.fixture
    def erase(self, store: ContractStore) -> Erase:
        """The method ``erase`` for a blocking caller, if the backend has it."""
        backend: object = store.backend
        if not erases(backend):
            pytest.skip("the backend does not promise that nothing is kept")

        def erase(prefix: str) -> DeletedTree:
            return cast(DeletedTree, store.blocking.call(backend.erase, key(prefix)))

        try:
            erase("nothing there")
        except UnsupportedOperationError:
            pytest.skip("the storage behind the backend does not tell what it keeps")
        return erase

    def test_a_file_is_erased_alone(self, store: ContractStore, erase: Erase) -> None:
        for name in ("dir/a", "dir/a.md", "dir/a-b", "dir/ab/c", "a"):
            store.write(name, b"x")
        assert erase("dir/a") == DeletedTree(1, 0)
        assert store.names() == ("a", "dir/a-b", "dir/a.md", "dir/ab/c")

    def test_a_directory_is_erased_with_all_that_is_in_it(self, store: ContractStore, erase: Erase) -> None:
        for name in ("old/a", "old/deep/er/b", "older/c"):
            store.write(name, b"x")
        assert erase("old") == DeletedTree(2, 0)
        assert store.names() == ("older/c",)
        assert store.level() == ([], ["older"])
        assert erase("") == DeletedTree(1, 0)
        assert store.level() == ([], [])

    @pytest.mark.parametrize("name", ["", "missing", "missing/deep", "file/below"])
    def test_what_is_not_there_is_erased_already(self, store: ContractStore, erase: Erase, name: str) -> None:
        if name:
            store.write("file", b"x")
        assert erase(name) == DeletedTree(0, 0)
        assert store.names() == (("file",) if name else ())

    @pytest.mark.usefixtures("erase")
    def test_a_file_outlives_the_erasing_of_its_earlier_states(self, changing: ContractStore) -> None:
        """The method ``erase_earlier`` changes no file, and a missing one is no error."""
        erase_earlier = cast("Callable[[Key], int]", cast(Any, changing.backend).erase_earlier)
        for name, text in (("dir/a", b"one"), ("dir/a", b"two"), ("dir/a.md", b"x"), ("gone", b"x")):
            changing.write(name, text)
        changing.delete("gone")
        for name in ("dir/a", "gone", "missing/deep"):
            changing.blocking.call(erase_earlier, key(name))
            assert changing.blocking.call(erase_earlier, key(name)) == 0
        assert (changing.names(), changing.holds("dir/a")) == (("dir/a", "dir/a.md"), b"two")
        changing.append("dir/a", b"three")
        assert changing.holds("dir/a") == b"twothree"

    def test_a_name_is_free_again(self, changing: ContractStore, erase: Erase) -> None:
        changing.write("a/b", b"one")
        erase("a")
        changing.append("a", b"two")
        assert changing.holds("a") == b"two"
        erase("a")
        changing.append("a", b"three")
        assert changing.holds("a") == b"three"
