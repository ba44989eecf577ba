"""Contract tests of `Backend.list`, and of the names that every backend stores."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import AGENTS, TEMPORARY_SUFFIX, Key
from agent_memory.testing._store import ContractBase, ContractStore

# In the order of UTF-8 bytes: "-" and "." come before "/", "A" before "_", and U+FF21 before U+1F600, unlike in UTF-16.
# No two differ only by case: a store that ignores case would treat them as one.
_ORDERED = (
    "a",
    "b b/x",
    "b!/x",
    "b-b/x",
    "b-b2",
    "b.b",
    "b/a.md",
    "b/a/x",
    "b/a0",
    "b/z",
    "b0",
    "bA",
    "b_",
    "bb/x",
    "bc",
    "z",
    "é/é",
    "メモ/メ",
    "\uff21",
    "\U0001f600",
)
_ODD_NAMES = [
    "two words.md",
    ".hidden",
    ".a/.b/.c",
    "a.b.c",
    "no-extension",
    "-rf",
    "--",
    "#fragment",
    "a;b=c,d@e+f",
    "(1) [2] {3}!",
    "it's",
    "a&b",
    "$HOME/`x`",
    "100%",
    "50% off.md",
    "a^b",
    "inside~/~tilde",
    "versionId=1",
    "con-tent/nul1",
    "index.html",
    "café.md",
    "メモ.md",
    "заметки/план.md",
    "ملاحظات/خطة.md",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.md",  # Persian, with the joiner its spelling needs
    "👩\u200d🚀/😀.md",
    "ß/ﬁ/Å",
    "x" * 240,
    "é" * 120,
]
_DEEPEST = "/".join("abcdefghijklmnopqrstuvwxyz012345")
_LONGEST = "/".join(["d" * 240, "e" * 240, "f" * 240, "g" * 45])


class ListingContract(ContractBase):
    """Listing: whole segments, order, levels, pages, and names that are never listed."""

    def test_a_prefix_is_whole_segments(self, store: ContractStore) -> None:
        for name in ("a/1", "a/b/2", "ab", "a.b", "abc/3", "b/a/4", "a-/5"):
            store.write(name, b"x")
        assert store.names("a") == ("a/1", "a/b/2")
        assert store.names("a/b") == ("a/b/2",)
        assert store.level("a") == (["a/1"], ["a/b"])
        assert store.names("b") == ("b/a/4",)

    def test_an_agent_lists_only_its_own_files(self, store: ContractStore) -> None:
        one, eleven = Key.agent("agent1"), Key.agent("agent11")
        store.write(one.join("notes.md"), b"one")
        store.write(eleven.join("notes.md"), b"eleven")
        assert [entry.key for entry in store.list(one).entries] == [one.join("notes.md")]
        assert store.names(one) == ("notes.md",)
        assert store.level(AGENTS) == ([], ["agent1", "agent11"])
        assert store.read(eleven.join("notes.md")).data == b"eleven"

    @pytest.mark.parametrize("prefix", ["missing", "file", "dir/file", "file/below", "dir/missing/deep"])
    def test_a_prefix_that_is_no_directory_is_empty(self, store: ContractStore, prefix: str) -> None:
        store.write("file", b"x")
        store.write("dir/file", b"x")
        assert store.names(prefix) == ()
        assert store.level(prefix) == ([], [])

    def test_files_are_in_the_order_of_the_bytes_of_their_paths(self, store: ContractStore) -> None:
        for name in reversed(_ORDERED):
            store.write(name, name.encode())
        page = store.list()
        assert [entry.path for entry in page.entries] == list(_ORDERED)
        assert [entry.size for entry in page.entries] == [len(name.encode()) for name in _ORDERED]
        assert page.directories == ()
        assert page.next is None

    def test_a_level_is_its_files_and_its_directory_names_in_order(self, store: ContractStore) -> None:
        for name in _ORDERED:
            store.write(name, b"x")
        for prefix, depth in (("", 1), ("b", 2)):
            below = [name for name in _ORDERED if name.startswith(prefix and prefix + "/")]
            cut = [name.split("/") for name in below]
            files = ["/".join(parts) for parts in cut if len(parts) == depth]
            directories = {"/".join(parts[:depth]) for parts in cut if len(parts) > depth}
            assert store.level(prefix) == (files, sorted(directories, key=str.encode))

    @pytest.mark.parametrize("recursive", [True, False], ids=["recursive", "one level"])
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
    def test_pages_give_every_name_once(self, store: ContractStore, limit: int, recursive: bool) -> None:
        for name in _ORDERED:
            store.write(name, b"x")
        for prefix in ("", "b"):
            whole = store.list(prefix, recursive=recursive)
            pages = list(store.pages(prefix, recursive=recursive, limit=limit))
            too_long = [found for page in pages if (found := len(page.entries) + len(page.directories)) > limit]
            assert too_long == [], f"pages have more than {limit} names"
            files = [entry.path for page in pages for entry in page.entries]
            directories = [found.path for page in pages for found in page.directories]
            assert Counter(files) == Counter(entry.path for entry in whole.entries)
            assert Counter(directories) == Counter(found.path for found in whole.directories)
            assert sorted(files, key=str.encode) == [entry.path for entry in whole.entries]

    def test_pages_give_what_was_there_all_the_time_whatever_else_changes(self, store: ContractStore) -> None:
        stays = [f"dir/{number:02}" for number in range(0, 40, 2)]
        for name in (*stays, *(f"dir/{number:02}" for number in range(1, 40, 2))):
            store.write(name, b"x")
        seen: Counter[str] = Counter()
        for number, page in enumerate(store.pages("dir", limit=4)):
            seen.update(entry.path for entry in page.entries)
            if number < 5:  # first remove names before the next page, then add some
                store.delete(f"dir/{4 * number + 1:02}")
            else:
                for place in "abc":
                    store.write(f"dir/00-{number}{place}", b"new")
        assert [name for name in stays if seen[name] != 1] == []
        assert max(seen.values()) == 1

    def test_a_directory_holds_more_files_than_a_page(self, store: ContractStore) -> None:
        names = [f"many/{number:05}.md" for number in range(self.many_files)]
        store.fill(names)
        assert store.names() == tuple(names)
        assert store.level() == ([], ["many"])
        assert store.level("many") == (names, [])
        assert sorted(store.names("many", limit=100)) == names

    def test_this_packages_own_data_is_kept_and_never_listed_with_a_tree(self, store: ContractStore) -> None:
        receipt = Key.internal("receipts/1")
        store.write(receipt, b"ours")
        store.write("file", b"theirs")
        assert store.read(receipt).data == b"ours"
        assert store.names() == ("file",)
        assert store.level() == (["file"], [])
        assert [entry.key for entry in store.list(Key.internal("receipts")).entries] == [receipt]
        assert sum(page.skipped for page in store.pages()) == 0

    def test_no_name_of_work_under_way_is_left_behind(self, store: ContractStore) -> None:
        for _ in range(3):
            store.write("dir/file", b"x")
            with suppress(UnsupportedOperationError):
                store.append("dir/file", b"y")
        entries = store.list("dir").entries
        assert [entry.path for entry in entries] == ["dir/file"]
        assert not any(entry.key.name.endswith(TEMPORARY_SUFFIX) for entry in entries)


class NamesContract(ContractBase):
    """Names: every name that the key grammar allows is stored, listed and deleted unchanged."""

    @pytest.mark.parametrize("name", [*_ODD_NAMES, _DEEPEST, _LONGEST], ids=ascii)
    def test_a_name_is_kept_as_it_is(self, store: ContractStore, name: str) -> None:
        store.write(name, name.encode())
        assert store.read(name).data == name.encode()
        assert store.stat(name).path == name
        assert store.names() == (name,)
        top = name.partition("/")[0]
        assert store.level() == (([], [top]) if "/" in name else ([name], []))
        assert store.names(top) == ((name,) if "/" in name else ())
        store.delete(name)
        assert store.level() == ([], [])

    def test_odd_names_live_side_by_side(self, store: ContractStore) -> None:
        names = sorted([*_ODD_NAMES, _DEEPEST, _LONGEST], key=str.encode)
        for name in names:
            store.write(name, name.encode())
        assert store.names() == tuple(names)
        assert [store.holds(name) for name in names] == [name.encode() for name in names]
