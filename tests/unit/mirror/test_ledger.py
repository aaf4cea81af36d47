"""What is read in the ledger, which anybody with the right to write there may have written."""

from __future__ import annotations

import pytest

from barnabas.mirror.batch_verification import SourceBatch
from barnabas.mirror.ledger import BadEntryError, GroupMark, PartitionMark, decode, encode

MARK = PartitionMark(
    "id", 100, ((100, 0, 5), (110, 5, 2)), diverged="the source lost records", last_source=SourceBatch(110, 112, 7)
)


def test_marks_are_read_as_they_were_written() -> None:
    groups = GroupMark((3, 5), (1,))
    for kind, mark in ((PartitionMark, MARK), (GroupMark, groups)):
        _key, value = encode("k", mark.value())
        assert kind.read(decode(b"k", value)[1]) == mark


@pytest.mark.parametrize(
    "more",
    [
        {"runs": [[float("inf"), 0, 0]]},
        {"runs": [[0, 0, -5]]},
        {"runs": [[0, 0]]},
        {"runs": [[0.5, 0, 0]]},
        {"runs": [["1", 0, 0]]},
        {"runs": None},
        {"runs": []},
        {"origin": -1},
        {"origin": 1 << 70},
        {"origin": True},
        {"diverged": 5},
        {"last_source": [1, 2]},
        {"last_source": [1, 2, -3]},
    ],
)
def test_mark_that_no_mirror_wrote_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(BadEntryError):
        PartitionMark.read({**MARK.value(), **more})


def test_group_mark_with_what_is_no_offset_is_refused() -> None:
    with pytest.raises(BadEntryError):
        GroupMark.read({**GroupMark((1,), (2,)).value(), "source": [-7]})


def test_json_that_is_nested_very_deeply_is_refused() -> None:
    with pytest.raises(BadEntryError):
        decode(b"k", b"[" * 1_000_000)
