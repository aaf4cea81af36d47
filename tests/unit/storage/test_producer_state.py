"""Snapshots of producers; what they guard is tested with the log."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from barnabas.errors import KafkaError
from barnabas.records.header import BatchHeader, read_header
from barnabas.storage.producer_state import (
    STRANGERS_MAX,
    ProducerBatch,
    ProducerEntry,
    ProducerStates,
    decode_snapshot,
    encode_snapshot,
)

ENTRIES = {
    7: ProducerEntry(2, (ProducerBatch(0, 4, 100, 104, 1_000), ProducerBatch(5, 5, 110, 110, 2_000))),
    9: ProducerEntry(0, (ProducerBatch(2**31 - 1, 0, 120, 121, 3_000),)),
}


def test_snapshot_round_trip() -> None:
    assert decode_snapshot(encode_snapshot(ENTRIES)).entries() == ENTRIES
    assert decode_snapshot(encode_snapshot({})).entries() == {}


def test_file_format_is_that_of_kafka() -> None:
    """A snapshot with one batch per producer, as Kafka writes it."""
    content = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 5, 1, 9, 59, 9, 1_234, -1, -1)
    data = struct.pack(">hI", 1, crc32c(content)) + content
    assert decode_snapshot(data).entries() == {5: ProducerEntry(1, (ProducerBatch(0, 9, 50, 59, 1_234),))}
    assert encode_snapshot(decode_snapshot(data).entries()) == data


def test_more_forgotten_producers_than_are_remembered_are_all_taken_in_a_few_rounds(
    make_batch: Callable[..., bytearray],
) -> None:
    def header(producer_id: int) -> BatchHeader:
        return read_header(make_batch(producer_id=producer_id, producer_epoch=0, base_sequence=5))

    states = ProducerStates()

    def is_taken(producer_id: int) -> bool:
        with contextlib.suppress(KafkaError):
            states.check(header(producer_id))
            return True
        return False

    left = list(range(3 * STRANGERS_MAX))
    for _ in range(10):
        left = [producer_id for producer_id in left if not is_taken(producer_id)]
    assert not left


@pytest.mark.parametrize("position", range(0, 110, 3))
def test_flipped_bit_is_found(position: int) -> None:
    data = bytearray(encode_snapshot(ENTRIES))
    data[position] ^= 4
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(data)


@pytest.mark.parametrize("size", [0, 5, 9, 50])
def test_truncated_snapshot_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(encode_snapshot(ENTRIES)[:size])
