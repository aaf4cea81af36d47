"""What the records of a partition of `__consumer_offsets` come to, whatever else is among them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.group_loading import Loaded
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Change, GroupRecord, OffsetRecord, encode_change
from barnabas.groups.stored import Committed, StoredGroup
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression, stamp
from barnabas.records.header import BATCH_HEADER_SIZE, CONTROL_MASK, TRANSACTIONAL_MASK, write_crc
from tests.steps import at_once

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
ATTRIBUTES_POSITION = 21


def batch(
    *records: tuple[bytes | None, bytes | None],
    attributes: int = 0,
    producer_id: int = -1,
    compression: Compression = Compression.NONE,
) -> bytearray:
    builder = BatchBuilder(compression)
    for key, value in records:
        builder.append(1_000, key, value)
    built = bytearray(builder.build(producer_id, 0 if producer_id >= 0 else -1, 0 if producer_id >= 0 else -1))
    built[ATTRIBUTES_POSITION + 1] |= attributes
    write_crc(built, 0, len(built))
    return built


def commit(group_id: str, where: TopicPartition, offset: int | None) -> tuple[bytes, bytes | None]:
    return encode_change(OffsetRecord(group_id, where, None if offset is None else Committed(offset)))


def load(*batches: bytearray) -> tuple[Loaded, int]:
    """Load batches that stand one behind the other in a log; return what they come to, and where the log ends."""
    data, offset = bytearray(), 0
    for each in batches:
        stamp(each, 0, offset, 1)
        (last_delta,) = struct.unpack_from(">i", each, 23)
        offset += last_delta + 1
        data += each
    loaded = Loaded()
    end = at_once(loaded.replay(bytes(data)))
    return loaded, end


def offsets_of(loaded: Loaded, group_id: str) -> dict[TopicPartition, int]:
    return {where: committed.offset for where, committed in loaded.offsets.of(group_id).items()}


def test_last_record_of_each_key_counts_and_tombstones_end_it() -> None:
    loaded, end = load(
        batch(commit("g", FIRST, 5), commit("g", SECOND, 6), commit("h", FIRST, 1)),
        batch(commit("g", FIRST, 7), commit("g", SECOND, None), compression=Compression.LZ4),
        batch(commit("h", FIRST, None)),
    )
    assert (end, loaded.damaged) == (6, 0)
    assert offsets_of(loaded, "g") == {FIRST: 7}
    assert list(loaded.offsets) == ["g"]


def test_groups_are_there_until_they_are_gone() -> None:
    stored = StoredGroup("consumer", 3)
    loaded, _ = load(batch(*(encode_change(GroupRecord(name, stored)) for name in "ab")))
    assert loaded.groups == {"a": stored, "b": stored}
    loaded, _ = load(batch(encode_change(GroupRecord("a", stored)), encode_change(GroupRecord("a", None))))
    assert loaded.groups == {}


def test_damaged_records_and_unknown_ones_are_skipped() -> None:
    loaded, end = load(
        batch((None, b"x"), (b"\0\1\0\xff", b"x"), (b"\0\x63", b"x"), commit("g", FIRST, 5)), batch((b"", None))
    )
    assert end == 5
    assert offsets_of(loaded, "g") == {FIRST: 5}
    assert loaded.damaged == 3, "one is of another kind"
    assert "offset 0" in loaded.first_damage


def test_damaged_batch_is_skipped_and_those_behind_it_count() -> None:
    damaged = batch(commit("g", FIRST, 9))
    damaged[BATCH_HEADER_SIZE + 5] ^= 1
    loaded, end = load(batch(commit("g", SECOND, 1)), damaged, batch(commit("g", FIRST, 5)))
    assert (end, loaded.damaged) == (3, 1)
    assert offsets_of(loaded, "g") == {FIRST: 5, SECOND: 1}


def test_bytes_that_are_no_batch_end_what_is_read() -> None:
    loaded, end = load(batch(commit("g", SECOND, 1)))
    assert end == 1
    assert at_once(loaded.replay(b"\xff" * 200)) == -1
    assert loaded.damaged == 1
    assert offsets_of(loaded, "g") == {SECOND: 1}


@pytest.mark.parametrize(("end_of_transaction", "expected"), [(b"\0\0\0\1", {FIRST: 5}), (b"\0\0\0\0", {}), (None, {})])
def test_offsets_of_a_transaction_count_when_it_is_committed(
    end_of_transaction: bytes | None, expected: dict[TopicPartition, int]
) -> None:
    batches = [batch(commit("g", FIRST, 5), attributes=TRANSACTIONAL_MASK, producer_id=7)]
    if end_of_transaction is not None:
        marks = TRANSACTIONAL_MASK | CONTROL_MASK
        batches.append(batch((end_of_transaction, bytes(6)), attributes=marks, producer_id=7))
    loaded, _ = load(*batches)
    assert offsets_of(loaded, "g") == expected


CHANGES = st.lists(
    st.tuples(st.sampled_from("gh"), st.sampled_from([FIRST, SECOND]), st.none() | st.integers(0, 9)), max_size=30
)


@given(CHANGES, st.integers(1, 5))
def test_what_is_loaded_is_what_was_applied(
    changes: Sequence[tuple[str, TopicPartition, int | None]], size: int
) -> None:
    applied = GroupOffsets()
    records: list[Change] = []
    for group_id, where, offset in changes:
        committed = None if offset is None else Committed(offset)
        applied.apply(group_id, where, committed)
        records.append(OffsetRecord(group_id, where, committed))
    batches = [batch(*map(encode_change, records[first : first + size])) for first in range(0, len(records), size)]
    loaded, _ = load(*batches)
    assert {name: dict(loaded.offsets.of(name)) for name in loaded.offsets} == {
        name: dict(applied.of(name)) for name in applied
    }
