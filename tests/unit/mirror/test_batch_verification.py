"""The comparison of a target batch with the source records that the batch claims to hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.mirror.batch_verification import Batch, Claim, SourceBatch, verify_batch, verify_source
from barnabas.mirror.errors import DivergedError
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import Compression, read_header
from tests.support import compacted_logs
from tests.support.compacted_logs import Kept

WHERE = TopicPartition("clicks", 0)


def records(*offsets: int, value: bytes = b"value") -> list[Kept]:
    return [Kept(each, 1_000 + each, b"key %d" % each, value) for each in offsets]


def batch(first: int, last: int, kept: Sequence[Kept], compression: Compression = Compression.NONE) -> Batch:
    return encoded(compacted_logs.Batch(first, last, kept, compression))


def encoded(made: compacted_logs.Batch) -> Batch:
    data = made.encode()
    return Batch(read_header(data), memoryview(data))


def as_target(first: int, kept: Sequence[Kept]) -> Batch:
    """Return records of the source as a batch that a mirror made: without holes, from this target offset on."""
    moved = [each._replace(offset=first + number) for number, each in enumerate(kept)]
    return batch(first, first + len(moved) - 1, moved)


WHOLE = records(10, 11, 12)


@pytest.mark.parametrize(
    "source",
    [
        [batch(10, 12, WHOLE)],
        [batch(10, 12, WHOLE, Compression.LZ4)],
        [batch(10, 10, records(10)), batch(11, 12, records(11, 12))],
        [batch(8, 14, records(8, 9, 10, 11, 12, 13, 14))],
        [batch(10, 12, records(10, 12))],
    ],
    ids=["same bytes", "compressed again", "split", "merged", "compacted since"],
)
def test_batch_with_the_records_of_the_source_is_confirmed_however_these_are_stored(source: list[Batch]) -> None:
    assert verify_batch(WHERE, as_target(0, WHOLE), Claim(10, 13), source, 0)


@pytest.mark.parametrize(
    "target",
    [
        as_target(0, records(10, 11, 12, value=b"other")),
        as_target(0, records(10, 11)),
        as_target(0, records(11, 10, 12)),
        as_target(0, [*records(10, 11), Kept(12, 7, b"key 12", b"value")]),
        as_target(0, [*records(10, 11), Kept(12, 1_012, b"another key", b"value")]),
    ],
    ids=["other values", "too few", "other order", "other time", "other key"],
)
def test_batch_with_other_records_than_the_source_is_refused(target: Batch) -> None:
    with pytest.raises(DivergedError, match="has another record at offset 1"):
        verify_batch(WHERE, target, Claim(10, 13), [batch(10, 12, WHOLE)], 0)


def test_batch_that_passes_over_records_of_the_source_is_refused() -> None:
    source = [batch(100, 509, records(*range(100, 510)))]
    with pytest.raises(DivergedError, match="another record at offset 100"):
        verify_batch(WHERE, as_target(100, records(*range(500, 510))), Claim(100, 510), source, 0)


def test_hole_in_the_source_confirms_the_batch_behind_it() -> None:
    source = [batch(100, 499, records(120)), batch(500, 501, records(500, 501))]
    kept = records(120, 500, 501)
    assert verify_batch(WHERE, as_target(7, kept), Claim(100, 502), source, 0)
    with pytest.raises(DivergedError, match="another record at offset 120"):
        verify_batch(WHERE, as_target(7, records(500, 501)), Claim(100, 502), source, 0)


def test_records_before_the_start_of_the_source_are_not_compared() -> None:
    assert verify_batch(WHERE, as_target(0, WHOLE), Claim(0, 13), [batch(10, 12, WHOLE)], 12)
    assert not verify_batch(WHERE, as_target(0, WHOLE), Claim(0, 13), [], 13), "and do not confirm anything"


def test_batch_that_lost_records_to_compaction_in_the_target_is_confirmed_by_those_it_has() -> None:
    left = batch(0, 2, [records(12)[0]._replace(offset=2)])
    assert verify_batch(WHERE, left, Claim(10, 13), [batch(10, 12, WHOLE)], 0)
    assert not verify_batch(WHERE, batch(0, 2, []), Claim(10, 13), [batch(10, 12, WHOLE)], 0)
    with pytest.raises(DivergedError):
        verify_batch(WHERE, batch(0, 2, records(2, value=b"other")), Claim(10, 13), [batch(10, 12, WHOLE)], 0)


@pytest.mark.parametrize("is_of_source", [True, False])
def test_times_count_only_where_both_are_the_producers(is_of_source: bool) -> None:
    stamped = compacted_logs.Batch(0, 0, records(0), max_timestamp_ms=9, timestamp_type=TimestampType.LOG_APPEND_TIME)
    pair = [encoded(stamped), batch(0, 0, records(0))]
    target, source = reversed(pair) if is_of_source else pair
    assert verify_batch(WHERE, target, Claim(0, 1), [source], 0)


def test_batch_that_was_mirrored_last_is_known_by_its_header() -> None:
    (whole, other, cleaned) = batch(10, 12, WHOLE), batch(10, 12, records(10, 11, 12, value=b"x")), batch(10, 12, [])
    known = SourceBatch(10, 13, whole.header.crc)
    assert verify_source(WHERE, known, [whole])
    assert not verify_source(WHERE, known, [cleaned])
    assert not verify_source(WHERE, known, [])
    with pytest.raises(DivergedError, match="batch at source offset 10 differs"):
        verify_source(WHERE, known, [other])
