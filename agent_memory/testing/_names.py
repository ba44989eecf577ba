"""Contract tests of names: every backend stores every name that the grammar allows."""

from __future__ import annotations

import pytest

from agent_memory.testing._store import ContractBase, ContractStore

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

    def test_the_longest_names_are_as_long_as_the_grammar_allows(self) -> None:
        assert len(_LONGEST.encode()) == 768
        assert _DEEPEST.count("/") == 31
