"""Chunks to records: what is whole before the damage is handed out, what comes after is not."""

from __future__ import annotations

from barnabas.client.consumer.fetched_records import decode_chunk, decode_columns
from barnabas.client.consumer.fetcher import AssignedPartition, Chunk
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, iter_headers, stamp
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import CONTROL_MASK, write_crc


def make_chunk(*counts):
    data = bytearray()
    offset = 0
    for count in counts:
        builder = BatchBuilder()
        builder.append_many(1, [b"%d" % (offset + number) for number in range(count)])
        batch = builder.build()
        stamp(batch, 0, offset, 0)
        data += batch
        offset += count
    return Chunk(AssignedPartition(TopicPartition("t", 0)), 0, data, offset)


def test_a_whole_chunk_gives_its_records_from_the_position_on():
    chunk = make_chunk(3, 4)
    records, whole, damage = decode_chunk(chunk, 2, check_crc=True)
    assert [record.offset for record in records] == [2, 3, 4, 5, 6]
    assert (whole, damage) == (chunk, None)


def test_damage_in_the_middle_leaves_what_is_before_it():
    chunk = make_chunk(3, 4, 5)
    chunk.data[len(chunk.data) // 2] ^= 1
    records, whole, damage = decode_chunk(chunk, 1, check_crc=True)
    assert [record.offset for record in records] == [1, 2]
    assert whole.next_offset == 3
    assert decode_chunk(whole, 0, check_crc=True)[0][1:] == records
    assert "CRC" in str(damage)


def test_damage_at_the_beginning_leaves_nothing():
    chunk = make_chunk(3, 4)
    chunk.data[70] ^= 1
    records, whole, damage = decode_chunk(chunk, 1, check_crc=True)
    assert (records, whole.next_offset, len(whole.data)) == ([], 1, 0)
    assert damage is not None


def test_columns_end_behind_a_marker_that_ends_the_chunk():
    """A transaction marker holds nothing for the application: there is nothing left to come back for."""
    chunk = make_chunk(3, 1)
    second = next(position for position, header in iter_headers(chunk.data) if header.base_offset == 3)
    chunk.data[second + 22] |= CONTROL_MASK
    write_crc(chunk.data, second, len(chunk.data) - second)
    reader = ArrowReader()
    next_offset, rest, damage = decode_columns(chunk, reader, 0, 100, check_crc=True)
    assert (len(reader), next_offset, rest, damage) == (3, 4, None, None)


def test_columns_that_are_cut_leave_the_rest_of_the_chunk():
    chunk = make_chunk(3, 4)
    reader = ArrowReader()
    next_offset, rest, _ = decode_columns(chunk, reader, 1, 4, check_crc=True)
    assert (len(reader), next_offset) == (4, 5)
    assert [record.offset for record in decode_chunk(rest, 5, check_crc=True)[0]] == [5, 6]
