"""Bad records of a task: counted, shown, held back until they may be sent, and never in the way of a load."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import bad_records
from barnabas.spark.bad_records import EXAMPLES_MAX, OTHER_REASONS, REASONS_MAX, BadRecordCollector, BadRecords
from barnabas.spark.columns import to_record_batches


class Acknowledged:
    """A send that is done."""

    def result(self, _timeout_s: float) -> None:
        """Nothing to wait for."""


class FakeProducer:
    """Keeps what is sent; refuses values of more than ten bytes, as a topic with a limit does."""

    def __init__(self, _bootstrap: str) -> None:
        self.sent: list[tuple[bytes | None, dict[str, bytes]]] = []

    def send_many(self, topic: str, values: list[bytes | None], *, headers: list[Any], **_rest: object) -> Acknowledged:
        for value, pairs in zip(values, headers, strict=True):
            if value is not None and len(value) > 10:
                raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, topic)
            self.sent.append((value, dict(pairs)))
        return Acknowledged()

    def send(self, topic: str, value: bytes | None, *, headers: Any, **_rest: object) -> Acknowledged:
        return self.send_many(topic, [value or b""], headers=[headers])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    fake = FakeProducer("")
    monkeypatch.setattr(bad_records, "Producer", lambda _bootstrap: fake)
    return fake


def records(*values: bytes | None) -> pa.RecordBatch:
    builder = BatchBuilder()
    for value in values:
        builder.append(2**60, b"key", value, [("own", b"1")])
    reader = ArrowReader()
    reader.read(builder.build(), "t", 3)
    part = reader.finish()
    (batch,) = to_record_batches(part, include_headers=True, include_raw_timestamp=True)
    return batch.append_column("sent_ms", part.column("timestamp").cast(pa.int64()))


def test_only_bad_records_are_sent_with_reason_and_place(producer: FakeProducer) -> None:
    task = BadRecordCollector("b:1", "dead")
    task.add(records(b"good", b"bad"), pa.array([None, "why"]))
    assert not producer.sent
    task.send()
    place = {"barnabas.topic": b"t", "barnabas.partition": b"3", "barnabas.offset": b"1"}
    assert producer.sent == [(b"bad", {"own": b"1", "barnabas.reason": b"why", **place})]
    assert (task.counts().count, str(task.counts().examples[0])) == (1, "t-3 offset 1: why: b'bad'")
    task.close()


def test_a_record_that_the_topic_refuses_is_told_of_and_stops_nothing(producer: FakeProducer) -> None:
    task = BadRecordCollector("b:1", "dead")
    task.add(records(b"x" * 20, b"bad"), pa.array(["why", "why"]))
    task.send()
    (nothing, headers), (value, _) = producer.sent
    assert (nothing, headers["barnabas.offset"], value) == (b"", b"0", b"bad")
    assert headers["barnabas.left-out"].startswith(b"value of 20 bytes")


def test_a_tombstone_may_be_bad(producer: FakeProducer) -> None:
    task = BadRecordCollector("b:1", "dead")
    task.add(records(None, b"good"), pa.array(["no key", None]))
    task.send()
    assert [value for value, _ in producer.sent] == [None]
    assert str(task.counts().examples[0]) == "t-3 offset 0: no key: b''"


def test_without_a_topic_they_are_counted(producer: FakeProducer) -> None:
    task = BadRecordCollector("b:1", None)
    task.add(records(*[b"bad"] * 9), pa.array(["why"] * 9))
    task.send()
    assert (task.counts().count, len(task.counts().examples), producer.sent) == (9, EXAMPLES_MAX, [])


def test_reasons_without_end_are_counted_together() -> None:
    parts = [BadRecords({f"field {number}": 1}) for number in range(REASONS_MAX + 5)]
    together = BadRecords.merged(parts)
    assert (len(together.reasons), together.reasons[OTHER_REASONS], together.count) == (51, 5, 55)
