"""Replaying a log: every record counts once, whatever else is in the log."""

from __future__ import annotations

import struct

import pytest

from barnabas.broker.coordinators.shard import Replay
from barnabas.records import BatchBuilder, Compression, stamp
from barnabas.records.header import BATCH_HEADER_SIZE, CONTROL_MASK, TRANSACTIONAL_MASK, write_crc
from tests.support.counter_machine import COUNTERS, CounterMachine, CounterRecord, encode
from tests.support.steps import at_once, counted

ATTRIBUTES_POSITION = 21


def batch(
    *records: CounterRecord | tuple[bytes | None, bytes | None],
    attributes: int = 0,
    producer_id: int = -1,
    compression: Compression = Compression.NONE,
) -> bytearray:
    builder = BatchBuilder(compression)
    for record in records:
        builder.append(1_000, *(encode(record, 0) if isinstance(record, CounterRecord) else record))
    built = bytearray(builder.build(producer_id, 0 if producer_id >= 0 else -1, 0 if producer_id >= 0 else -1))
    built[ATTRIBUTES_POSITION + 1] |= attributes
    write_crc(built, 0, len(built))
    return built


def log_of(*batches: bytearray) -> bytes:
    """Return batches one behind the other, as they are in a log."""
    data, offset = bytearray(), 0
    for each in batches:
        stamp(each, 0, offset, 1)
        (last_delta,) = struct.unpack_from(">i", each, 23)
        offset += last_delta + 1
        data += each
    return bytes(data)


def load(*batches: bytearray) -> tuple[dict[str, int], Replay[CounterRecord], int]:
    """Return the values of the counters, the replay, and the offset behind it."""
    machine = CounterMachine()
    replay = Replay(COUNTERS, machine.apply)
    end = at_once(replay.replay(log_of(*batches)))
    return machine.values, replay, end


def test_the_last_record_of_a_key_counts_and_a_tombstone_removes_it() -> None:
    values, replay, end = load(
        batch(CounterRecord("a", 1), CounterRecord("b", 2)),
        batch(CounterRecord("a", 7), compression=Compression.LZ4),
        batch(CounterRecord("b", None)),
    )
    assert values == {"a": 7}
    assert (end, replay.records, replay.damaged) == (4, 4, 0)


def test_damaged_records_and_records_of_other_kinds_are_skipped() -> None:
    values, replay, end = load(
        batch((None, b"x"), (b"a", b"too short"), (b"another kind", b"x"), CounterRecord("a", 5)), batch((b"", b""))
    )
    assert (values, end) == ({"a": 5}, 5)
    assert replay.damaged == 3
    assert "offset 0" in replay.first_damage


def test_a_damaged_batch_is_skipped_and_the_batches_behind_it_count() -> None:
    damaged = batch(CounterRecord("a", 9))
    damaged[BATCH_HEADER_SIZE + 5] ^= 1
    values, replay, end = load(batch(CounterRecord("b", 1)), damaged, batch(CounterRecord("a", 5)))
    assert (end, replay.damaged) == (3, 1)
    assert values == {"a": 5, "b": 1}


def test_bytes_that_are_no_batch_end_the_replay() -> None:
    values, replay, end = load(batch(CounterRecord("a", 1)))
    assert end == 1
    assert at_once(replay.replay(b"\xff" * 200)) == -1
    assert replay.damaged == 1
    assert values == {"a": 1}


@pytest.mark.parametrize(("end_of_transaction", "expected"), [(b"\0\0\0\1", {"a": 5}), (b"\0\0\0\0", {}), (None, {})])
def test_records_of_a_transaction_count_when_it_is_committed(
    end_of_transaction: bytes | None, expected: dict[str, int]
) -> None:
    batches = [batch(CounterRecord("a", 5), attributes=TRANSACTIONAL_MASK, producer_id=7)]
    if end_of_transaction is not None:
        marks = TRANSACTIONAL_MASK | CONTROL_MASK
        batches.append(batch((end_of_transaction, bytes(6)), attributes=marks, producer_id=7))
    assert load(*batches)[0] == expected


def test_a_replay_of_many_records_pauses() -> None:
    records = [CounterRecord(f"c{number}", number) for number in range(1_000)]
    machine = CounterMachine()
    _, pauses = counted(Replay(COUNTERS, machine.apply).replay(log_of(batch(*records))))
    assert len(machine.values) == 1_000
    assert pauses > 10
