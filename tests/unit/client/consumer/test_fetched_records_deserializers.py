"""Records whose keys and values deserializers have made: records in all that programs do with them."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas
import polars

from barnabas.client.consumer.fetched_records import Deserializers
from barnabas.model import RecordHeader, TimestampType
from barnabas.records import Record

HEADERS = (RecordHeader("trace", b"7"),)


def deserialized(*values: bytes | None, value_deserializer=bytes.decode):
    records = [
        Record("clicks", 0, offset, 1_700_000_000_123, TimestampType.CREATE_TIME, b"member", value, HEADERS)
        for offset, value in enumerate(values)
    ]
    made, error = Deserializers(bytes.decode, value_deserializer).apply(records)
    assert error is None
    return made


def test_deserialized_record_has_the_protocol_of_a_record():
    [record] = deserialized(b"/jobs")
    assert (record.key, record.value) == ("member", "/jobs")
    assert record.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert record._fields == Record._fields
    assert record._replace(offset=7).offset == 7
    plain = Record(*record[:5], b"member", b"/jobs", HEADERS)
    assert record != plain
    assert record._replace(key=b"member", value=b"/jobs") == plain
    assert hash(record._replace(key=b"member", value=b"/jobs")) == hash(plain)


def test_frames_of_deserialized_records_have_columns_of_their_types():
    records = deserialized(b"1", None, b"3", value_deserializer=int)
    frame = polars.DataFrame(records)
    assert tuple(frame.columns) == Record._fields
    assert frame["value"].to_list() == [1, None, 3]
    assert frame["key"].dtype == polars.String
    assert frame["headers"].to_list() == [[{"name": "trace", "value": b"7"}]] * 3
    assert list(pandas.DataFrame(records)["key"]) == ["member"] * 3
