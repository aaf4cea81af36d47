"""Snapshots of producers; what they guard is tested with the log."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from barnabas.clock import ManualClock
from barnabas.errors import ApiError
from barnabas.records.header import read_header
from barnabas.storage.producer_state import (
    PRODUCER_EXPIRATION_S,
    STRANGER_EXPIRATION_S,
    STRANGERS_MAX,
    ProducerBatch,
    ProducerEntry,
    ProducerStates,
    decode_snapshot,
    encode_snapshot,
)

CLOCK = ManualClock()
ENTRIES = {
    7: ProducerEntry(2, (ProducerBatch(0, 4, 100, 104, 1.0), ProducerBatch(5, 5, 110, 110, 2.5))),
    9: ProducerEntry(0, (ProducerBatch(2**31 - 1, 0, 120, 121, 3.0),)),
}


def test_snapshot_round_trip() -> None:
    assert decode_snapshot(encode_snapshot(ENTRIES, CLOCK), 3.0).entries() == ENTRIES
    assert decode_snapshot(encode_snapshot({}, CLOCK), 3.0).entries() == {}


def test_newest_entry_of_a_snapshot_gets_the_time_of_the_start() -> None:
    entries = decode_snapshot(encode_snapshot(ENTRIES, CLOCK), 1_003.0).entries()
    assert [batch.appended_s for entry in entries.values() for batch in entry.batches] == [1_001.0, 1_002.5, 1_003.0]


def test_snapshot_stores_wall_time() -> None:
    clock = ManualClock(start_ms=50_000)
    clock.advance(4)
    rows = encode_snapshot({9: ENTRIES[9]}, clock)[struct.calcsize(">hIi") :]
    assert struct.unpack(">qhiqiqiq", rows)[5] == 53_000, "the batch came one second ago"


def test_wall_clock_that_was_wrong_while_batches_came_expires_no_producer() -> None:
    clock = ManualClock()
    clock.jump(-14 * 86_400)
    states = ProducerStates()
    states.add_batches(7, 0, [(0, 4, 100, 104)], clock.monotonic())
    stored = encode_snapshot(states.entries(), clock)
    clock.jump(14 * 86_400)
    loaded = decode_snapshot(stored, clock.monotonic())
    loaded.expire(clock.monotonic())
    assert 7 in loaded
    clock.advance(PRODUCER_EXPIRATION_S)
    loaded.expire(clock.monotonic())
    assert 7 not in loaded


def test_file_format_is_that_of_kafka() -> None:
    """A snapshot with one batch per producer, as Kafka writes it."""
    content = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 5, 1, 9, 59, 9, 1_234, -1, -1)
    data = struct.pack(">hI", 1, crc32c(content)) + content
    clock = ManualClock(start_ms=1_234)
    entries = decode_snapshot(data, clock.monotonic()).entries()
    assert entries == {5: ProducerEntry(1, (ProducerBatch(0, 9, 50, 59, 0.0),))}
    assert encode_snapshot(entries, clock) == data


@pytest.fixture
def is_taken(make_batch: Callable[..., bytearray]) -> Callable[..., bool]:
    """Whether a log takes a batch in the midst of what a producer sends of which it knows nothing."""
    states = ProducerStates()

    def ask(producer_id: int, now_s: float = 0) -> bool:
        header = read_header(make_batch(producer_id=producer_id, producer_epoch=0, base_sequence=5))
        with contextlib.suppress(ApiError):
            states.check(header, now_s)
            return True
        return False

    return ask


def test_more_forgotten_producers_than_are_remembered_are_all_taken_in_a_few_rounds(
    is_taken: Callable[..., bool],
) -> None:
    left = list(range(3 * STRANGERS_MAX))
    for _ in range(10):
        left = [producer_id for producer_id in left if not is_taken(producer_id)]
    assert not left


def test_many_that_were_refused_long_ago_let_nobody_in_at_once(is_taken: Callable[..., bool]) -> None:
    assert not any(is_taken(producer_id) for producer_id in range(STRANGERS_MAX))
    later = range(STRANGERS_MAX, 2 * STRANGERS_MAX)
    assert not any(is_taken(producer_id, STRANGER_EXPIRATION_S) for producer_id in later)
    assert all(is_taken(producer_id, 2 * STRANGER_EXPIRATION_S - 1) for producer_id in later)


def test_batch_that_was_refused_long_ago_is_refused_again(is_taken: Callable[..., bool]) -> None:
    assert [is_taken(7, now_s) for now_s in (0, STRANGER_EXPIRATION_S, STRANGER_EXPIRATION_S)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("position", range(0, 110, 3))
def test_flipped_bit_is_found(position: int) -> None:
    data = bytearray(encode_snapshot(ENTRIES, CLOCK))
    data[position] ^= 4
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(data, 0.0)


@pytest.mark.parametrize("size", [0, 5, 9, 50])
def test_truncated_snapshot_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(encode_snapshot(ENTRIES, CLOCK)[:size], 0.0)
