"""Batches that are checked and stamped together get what they would have got one by one, by the rules in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from barnabas.clock import ManualClock
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import BatchHeader, pack_header, read_header, write_crc
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.log_appender import AppendGroup

MakeBatch = Callable[..., bytearray]

START_MS = 1_700_000_000_000
VALUES: dict[str, tuple[int, ...]] = {
    "base_offset": (-(2**63), -1, 0, 2**63 - 1),
    "batch_length": (-(2**31), -1, 48, 49, 2**31 - 1),
    "leader_epoch": (-(2**31), 2**31 - 1),
    "magic": (-128, 1, 3),
    "attributes": (-(2**15), 1, 4, 5, 8, 0x10, 0x20, 0x40, 2**14),
    "last_offset_delta": (-(2**31), -1, 0, 1, 2**31 - 1),
    "max_timestamp_ms": (-(2**63), -1, 0, START_MS + 10_001, 2**63 - 1),
    "producer_id": (-(2**63), -2, 0, 2**63 - 1),
    "producer_epoch": (-(2**15), 0),
    "base_sequence": (-(2**31), -1, 0, 2**31 - 1),
    "record_count": (-(2**31), -1, 0, 1, 2**31 - 1),
}
CONFIGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "small segment": {"segment_bytes": 500},
    "small index": {"segment_index_bytes": 8},
    "short segment": {"segment_ms": 10_000},
    "small batches": {"max_message_bytes": 200},
    "time by broker": {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
    "time within bounds": {"message_timestamp_after_max_ms": 60_000},
}


def lies(batch: bytearray, fields: int) -> Iterator[bytearray]:
    """Yield the batch with so many fields at the values that matter, and a CRC that fits."""
    single = [(name, value) for name, values in VALUES.items() for value in values]
    for several in itertools.combinations(single, fields):
        changed = bytearray(batch)
        header: BatchHeader = read_header(batch)._replace(**dict(several))
        pack_header(changed, header)
        write_crc(changed, 0, len(changed))
        yield changed


def begun(folder: Path, first: Sequence[bytes], config: dict[str, Any]) -> Callable[[int], AppendGroup]:
    """Return what begins groups for a log that has some batches, in a leader epoch."""
    log = Log.open(folder, TopicPartition("t", 0), LogConfig(**config), ManualClock(START_MS), OsFileSystem())
    log.append_all(first, 0)
    return log._appender._begin_group


def assert_same(begin: Callable[[int], AppendGroup], requests: Sequence[bytes | bytearray], epoch: int = 0) -> None:
    copies = [each if isinstance(each, bytes) else bytearray(each) for each in requests]
    together, single = begin(epoch), begin(epoch)
    together.take_all(requests)
    together.producers._strangers.clear()  # those are the log's, and to be refused once more
    with mock.patch("barnabas.storage.log_appender.usual_header", return_value=None):
        for each in copies:
            if not single.take(memoryview(each)):
                break
    assert state(together) == state(single)


def state(group: AppendGroup) -> list[Any]:
    outcomes = [repr(outcome) for outcome in group.outcomes]
    chunks = [bytes(chunk) for chunk in group.chunks]
    told = [group.batches, group.size, group.next_offset, group.epochs, group.first_timestamp_ms, group.needs_roll]
    return [outcomes, chunks, *told]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_each_is_judged_as_if_it_were_alone(config: dict[str, Any], tmp_path: Path, make_batch: MakeBatch) -> None:
    begin = begun(tmp_path, [make_batch()], config)
    batches = [make_batch(2), make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0)]
    for changed in itertools.chain.from_iterable(lies(batch, 1) for batch in batches):
        assert_same(begin, [make_batch(), changed, make_batch()])


def test_no_two_lies_make_a_plain_batch(tmp_path: Path, make_batch: MakeBatch) -> None:
    begin = begun(tmp_path, [make_batch()], {})
    for changed in lies(make_batch(2), 2):
        assert_same(begin, [changed])


@pytest.mark.parametrize("first", [[], [{"timestamp_ms": -1}], [{"timestamp_ms": -9}], [{}, {"count": 2**10}]], ids=str)
@pytest.mark.parametrize("epoch", [0, 1])
def test_so_they_are_wherever_the_segment_stands(
    first: list[dict[str, int]], epoch: int, tmp_path: Path, make_batch: MakeBatch
) -> None:
    begin = begun(tmp_path, [make_batch(**each) for each in first], {"segment_ms": 10_000})
    for later_ms in (-START_MS - 1, 0, 10_000, 10_001):
        assert_same(begin, [make_batch(timestamp_ms=START_MS + later_ms), make_batch(3), make_batch()], epoch)


@pytest.mark.parametrize("compression", Compression)
def test_compressed_batches_are_taken_with_others(
    compression: Compression, tmp_path: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = BatchBuilder(compression)
    builder.append_many(START_MS, [b"v" * 100] * 20)
    begin = begun(tmp_path, [make_batch()], {})
    batch = builder.build()
    for count in (1, 19, 20, 2**20):
        changed = bytearray(batch)
        pack_header(changed, read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        write_crc(changed, 0, len(changed))
        assert_same(begin, [changed, make_batch()])
    monkeypatch.setattr(AppendGroup, "take", None)
    group = begin(0)
    group.take_all([bytearray(batch), make_batch(2), memoryview(bytearray(batch))])
    assert [outcome.base_offset for outcome in group.outcomes] == [1, 21, 23]  # type: ignore[union-attr]


def test_what_cannot_be_written_to_is_copied(tmp_path: Path, make_batch: MakeBatch) -> None:
    begin = begun(tmp_path, [make_batch()], {})
    batch = bytes(make_batch(2))
    assert_same(begin, [make_batch(), batch, batch, make_batch()])
    assert batch == bytes(make_batch(2))


def test_damage_and_what_is_no_batch_are_refused_one_by_one(tmp_path: Path, make_batch: MakeBatch) -> None:
    begin = begun(tmp_path, [make_batch()], {})
    for position in range(len(make_batch())):
        damaged = make_batch()
        damaged[position] ^= 0x11
        cut = make_batch()[:position]
        assert_same(begin, [make_batch(), damaged, make_batch(), cut, make_batch() + bytes(1), make_batch()])
