"""What is sent, and when: batches as they are, alone while the target may not know the producer."""

from __future__ import annotations

import pytest

from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.errors import UnmirrorableBatchError
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import FRESH_S, IN_FLIGHT_MAX, KNOWN_S, Outgoing, PartitionCopy
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import BatchBuilder, Compression, check_batch, read_header, read_records
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    TRANSACTIONAL_MASK,
    pack_header,
    set_log_append_time,
    stamp,
    write_crc,
)
from barnabas.records.mirror_identity import ORIGIN_MAX, Producer, lineage_of, origin_of, producer_of, provenance_of
from tests.support.compacted_logs import Batch, Kept

WHERE = TopicPartition("clicks", 3)
LINEAGE = lineage_of("A", b"id")


def batch(offset: int, count: int = 2) -> bytes:
    builder = BatchBuilder(Compression.LZ4)
    for number in range(count):
        builder.append(1_000 + number, b"key", b"%d" % (offset + number), [("header", None)])
    data = bytearray(builder.build(77, 1, 5))
    stamp(data, 0, offset, 4)
    return bytes(data)


def placed(source: int = 100, target: int = 0) -> PartitionCopy:
    copy = PartitionCopy(WHERE, LINEAGE)
    copy.place(OffsetMap(source, target), None, 0.0)
    return copy


def sendable(copy: PartitionCopy, now_s: float = 1.0) -> list[Outgoing]:
    found = []
    while (outgoing := copy.next_to_send(now_s)) is not None:
        found.append(outgoing)
    return found


def test_batch_keeps_its_records_byte_for_byte_and_says_where_it_is_from() -> None:
    copy = placed()
    data = batch(100)
    assert copy.take(data, 100) == 1
    (outgoing,) = sendable(copy)
    header = read_header(outgoing.batch)
    check_batch(outgoing.batch, 0, header)
    assert bytes(outgoing.batch[BATCH_HEADER_SIZE:]) == data[BATCH_HEADER_SIZE:]
    assert provenance_of(LINEAGE, header) == (100, 102)
    assert read_header(data)[5:9] == header[5:9], "attributes and timestamps"
    assert provenance_of(lineage_of("A", b"another"), header) is None
    assert provenance_of(LINEAGE, read_header(data)) is None


@pytest.mark.parametrize("origin", [0, 1, 2**15 - 1, 2**15, 2**31, ORIGIN_MAX])
def test_origin_is_told_by_the_producer(origin: int) -> None:
    assert origin_of(LINEAGE, producer_of(LINEAGE, origin)) == origin
    assert origin_of(LINEAGE, Producer(origin % 1_000, 0)) is None


def test_first_batch_goes_alone_and_others_follow_when_it_is_acknowledged() -> None:
    copy = placed()
    for number in range(2 * IN_FLIGHT_MAX):
        copy.take(batch(100 + 2 * number), 100 + 2 * number)
    (first,) = sendable(copy)
    assert copy.acknowledged(first, 0, 1.0)
    following = sendable(copy)
    assert len(following) == IN_FLIGHT_MAX
    copy.forget()
    assert not copy.is_under_way(following[0])
    assert (copy.held_bytes, copy.wants_data) == (0, False)


def test_batch_behind_a_hole_begins_a_stretch_and_goes_alone() -> None:
    copy = placed()
    copy.take(batch(100), 100)
    copy.take(batch(102) + batch(110) + batch(112), 102)
    (first,) = sendable(copy)
    copy.acknowledged(first, 0, 1.0)
    (second,) = sendable(copy)
    copy.acknowledged(second, 2, 1.0)
    (third,) = sendable(copy)
    assert provenance_of(LINEAGE, read_header(third.batch)) == (110, 112)
    copy.acknowledged(third, 4, 1.0)
    (fourth,) = sendable(copy)
    assert provenance_of(LINEAGE, read_header(fourth.batch)) == (110, 114)


def test_batch_with_holes_is_encoded_anew_with_what_is_left() -> None:
    copy = placed(10)
    kept = [Kept(10, 1, b"a", b"10"), Kept(12, 2, b"b", b"12"), Kept(15, 3, b"c", b"15")]
    copy.take(Batch(10, 17, kept, Compression.ZSTD).encode(), 10)
    (outgoing,) = sendable(copy)
    header = read_header(outgoing.batch)
    assert provenance_of(LINEAGE, header) == (15, 18)
    assert (header.record_count, header.base_sequence, header.compression) == (3, 0, Compression.ZSTD)
    records = read_records(outgoing.batch, *WHERE)
    assert [(each.key, each.value, each.timestamp_ms) for each in records] == [
        (b"a", b"10", 1),
        (b"b", b"12", 2),
        (b"c", b"15", 3),
    ]


def test_records_with_the_brokers_time_bring_the_time_that_consumers_of_the_source_see() -> None:
    copy = placed()
    data = bytearray(batch(100, 3))
    set_log_append_time(data, 0, 9_000)
    copy.take(data, 100)
    (outgoing,) = sendable(copy)
    header = read_header(outgoing.batch)
    check_batch(outgoing.batch, 0, header)
    assert provenance_of(LINEAGE, header) == (100, 103)
    assert (header.timestamp_type, header.compression) == (TimestampType.CREATE_TIME, Compression.LZ4)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (9_000, 9_000)
    found, given = read_records(outgoing.batch, *WHERE), read_records(data, *WHERE)
    assert [each.timestamp_ms for each in found] == [9_000] * 3
    assert [(each.key, each.value, each.headers) for each in found] == [
        (each.key, each.value, each.headers) for each in given
    ]


def test_nothing_is_sent_long_after_the_log_was_looked_at() -> None:
    copy = placed()
    copy.take(batch(100), 100)
    assert copy.is_stale(FRESH_S)
    assert sendable(copy, FRESH_S) == [], "a stretch begins here"
    (first,) = sendable(copy)
    copy.acknowledged(first, 0, 1.0)
    copy.take(batch(102), 102)
    assert copy.is_stale(1.0 + KNOWN_S)
    assert not copy.is_stale(KNOWN_S)
    copy.may_have_holes = True
    assert copy.is_stale(1.0 + FRESH_S)


def test_answers_that_are_not_the_expected_ones_are_told() -> None:
    copy = placed()
    copy.take(batch(100), 100)
    (first,) = sendable(copy)
    assert not copy.acknowledged(first, 1, 1.0)
    assert copy.acknowledged(first, 0, 1.0)
    assert not copy.acknowledged(first, 0, 1.0)


def test_answer_to_an_earlier_question_is_left_alone() -> None:
    copy = placed()
    assert copy.take(batch(100), 100) == 1
    assert copy.take(batch(100), 100) == 0
    assert copy.position == 102


def test_nothing_is_fetched_once_more_to_be_counted_while_the_audit_is_put_off() -> None:
    copy = PartitionCopy(WHERE, LINEAGE)
    copy.account = PartitionAuditAccount(TopicAuditAccount("clicks", "0a", "clicks", "0b", 5, "a mirror"), 3)
    copy.account.begin(100)
    copy.place(OffsetMap(110, 10), None, 0.0, count_from=100)
    assert copy.take(batch(100), 100) == 0
    assert (copy.account.counted_to, copy.position) == (102, 102)
    copy.account.topic.is_put_off = True
    assert copy.take(batch(102) + batch(104), 102) == 0
    assert (copy.account.counted_to, copy.position) == (102, 110)
    assert copy.take(batch(110), 110) == 1


def test_transactions_are_refused() -> None:
    data = bytearray(batch(100))
    header = read_header(data)
    pack_header(data, header._replace(attributes=header.attributes | TRANSACTIONAL_MASK))
    write_crc(data, 0, len(data))
    with pytest.raises(UnmirrorableBatchError, match="transaction"):
        placed().take(bytes(data), 100)
