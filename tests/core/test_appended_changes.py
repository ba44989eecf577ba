"""The record of a store with changes that were appended to it on a full disk."""

from __future__ import annotations

import json

import pytest

from agent_memory.backend.helpers import store_id
from agent_memory.core.store_record import StoreRecord
from agent_memory.errors import ReadError

RECORD = StoreRecord.new().using("versions", {"secret": "0" * 64, "limits": {"keep": 7}})


def test_the_last_change_of_a_field_counts_and_other_fields_stay() -> None:
    off = RECORD.using("versions", {"secret": "0" * 64, "limits": None})
    on = RECORD.using("versions", {"secret": "1" * 64, "limits": None})
    changes = [change for change in (off.change_of(RECORD), on.change_of(off)) if change]
    assert json.loads(changes[0]).keys() == {"versions"}
    stored = RECORD.to_bytes() + b"".join(changes)
    assert StoreRecord.parse(stored) == on
    assert store_id(stored) == RECORD.id


@pytest.mark.parametrize("cut", [b'{"versions": nul', b"\0\0\0", b'{"versions": nul\n{}\n', b"7\n"])
def test_a_change_that_was_cut_off_is_left_out(cut: bytes) -> None:
    stored = RECORD.to_bytes() + cut
    assert StoreRecord.parse(stored) == RECORD
    assert store_id(stored) == RECORD.id


def test_a_change_of_features_is_not_appended() -> None:
    assert RECORD.using("audit").change_of(RECORD) is None


def test_a_record_whose_first_line_is_damaged_is_damaged() -> None:
    with pytest.raises(ReadError):
        StoreRecord.parse(b"x" + RECORD.to_bytes() + b"{}\n")
    assert store_id(b"[]\n{}\n") is None
