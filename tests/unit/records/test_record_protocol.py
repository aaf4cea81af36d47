"""A record is one type to its users, whichever codec made it: a named tuple in all that they do with it."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pandas
import polars
import pytest

from barnabas.model import RecordHeader, TimestampType
from barnabas.records import BATCH_HEADER_SIZE, BatchBuilder, codec_pure, read_header
from barnabas.records import Record as ChosenRecord

FIELDS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
VALUES = ("clicks", 3, 42, 1_700_000_000_123, TimestampType.CREATE_TIME, b"member", None, (("trace", b"7"),))

CODECS: list[ModuleType] = [codec_pure]
if importlib.util.find_spec("barnabas.records.codec_compiled"):
    CODECS.append(importlib.import_module("barnabas.records.codec_compiled"))


@pytest.fixture(params=CODECS, ids=lambda codec: str(codec.CODEC))
def codec(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


@pytest.fixture
def make(codec: ModuleType) -> Any:
    """The class of records of a codec."""
    return codec.Record


def decoded(codec: ModuleType, headers: Sequence[Any]) -> list[Any]:
    """Return records with these headers as a codec reads them."""
    builder = BatchBuilder()
    for each in headers:
        builder.append(1, None, b"value", each)
    batch = bytes(builder.build())
    records: list[Any] = codec.decode_records(batch[BATCH_HEADER_SIZE:], read_header(batch), "clicks", 0)
    return records


def test_record_has_the_protocol_of_a_named_tuple(make: Any) -> None:
    record = make(*VALUES)
    assert make._fields == record._fields == FIELDS
    assert record._asdict() == dict(zip(FIELDS, VALUES, strict=True))
    assert list(record._asdict()) == list(FIELDS)
    moved = record._replace(partition=4, value=b"x")
    assert (type(moved), moved.partition, moved.value, moved.key) == (make, 4, b"x", b"member")
    with pytest.raises((TypeError, ValueError)):
        record._replace(colour=1)
    assert make._make(VALUES) == record
    assert make(**record._asdict()) == record
    assert repr(record) == f"Record({', '.join(f'{name}={value!r}' for name, value in record._asdict().items())})"


def test_record_behaves_as_a_tuple(make: Any) -> None:
    record = make(*VALUES)
    assert isinstance(record, Sequence)
    assert (len(record), tuple(record), record[2], record[-1], record[:2]) == (8, VALUES, 42, VALUES[-1], VALUES[:2])
    topic, *_, headers = record
    assert (topic, headers) == ("clicks", VALUES[-1])
    assert record == VALUES
    assert record == VALUES
    assert record != VALUES[:-1]
    assert hash(record) == hash(VALUES)
    assert {record: 1}[VALUES] == 1  # type: ignore[index]
    assert sorted([record, record._replace(offset=1)])[0].offset == 1
    assert (42 in record, record.count(3), record.index(42)) == (True, 1, 2)
    assert list(reversed(record)) == list(reversed(VALUES))
    assert record + ("more",) == (*VALUES, "more")  # noqa: RUF005  the operator is what is tested
    match record:
        case (first, *_):
            assert first == "clicks"
        case _:
            pytest.fail("a record is no sequence")
    match record:
        case make(topic=name, offset=42):
            assert name == "clicks"
        case _:
            pytest.fail("a record has no attributes")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_record_comes_back_as_one_of_the_codec_in_use(make: Any, protocol: int) -> None:
    record = make(*VALUES)
    again = pickle.loads(pickle.dumps([record, record], protocol))
    assert again == [record, record]
    assert type(again[0]) is ChosenRecord
    assert b"codec_compiled" not in pickle.dumps(record, protocol)


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, None),
        (253_402_300_800_000, None),
        (2**62, None),
        (-(2**62), None),
    ],
)
def test_timestamp_is_a_time_with_its_zone(make: Any, timestamp_ms: int, shown: datetime | None) -> None:
    assert make(*VALUES)._replace(timestamp_ms=timestamp_ms).timestamp == shown


def test_record_is_generic_over_keys_and_values(make: Any) -> None:
    assert make[str, int].__args__ == (str, int)
    assert make[str, int](*VALUES) == make(*VALUES)
    assert isinstance(make(*VALUES), make)


def test_data_class_functions_take_a_record(make: Any) -> None:
    record = make(*VALUES)
    assert [each.name for each in dataclasses.fields(record)] == list(FIELDS)
    assert dataclasses.asdict(record) == record._asdict()
    assert dataclasses.replace(record, offset=7) == record._replace(offset=7)


def test_pandas_and_polars_name_the_columns_of_records(make: Any) -> None:
    records = [make(*VALUES)._replace(offset=offset, headers=()) for offset in (42, 43)]
    for frame in (pandas.DataFrame(records), polars.DataFrame(records)):
        assert tuple(frame.columns) == FIELDS
        assert list(frame["offset"]) == [42, 43]
        assert list(frame["key"]) == [b"member", b"member"]
        assert list(frame["topic"]) == ["clicks", "clicks"]


def test_polars_makes_structs_of_the_headers_of_records_that_were_read(codec: ModuleType) -> None:
    records = decoded(codec, [(), (("trace", b"7"), ("null", None))])
    for rows in (records, records[::-1]):
        frame = polars.DataFrame(rows)
        assert frame.schema["headers"] == polars.List(polars.Struct({"name": polars.String, "value": polars.Binary}))
        assert sorted(frame["headers"].to_list(), key=len) == [
            [],
            [{"name": "trace", "value": b"7"}, {"name": "null", "value": None}],
        ]


def test_headers_that_were_read_are_pairs_with_names(codec: ModuleType) -> None:
    [record] = decoded(codec, [(("trace", b"7"), ("null", None))])
    assert record.headers == (("trace", b"7"), ("null", None))
    assert [(type(each), each.name, each.value) for each in record.headers] == [
        (RecordHeader, "trace", b"7"),
        (RecordHeader, "null", None),
    ]
    assert hash(record.headers) == hash((("trace", b"7"), ("null", None)))
    assert pickle.loads(pickle.dumps(record)).headers[0].name == "trace"
    name, value = record.headers[0]
    assert (name, value) == ("trace", b"7")


def test_pandas_keeps_headers(make: Any) -> None:
    frame = pandas.DataFrame([make(*VALUES), make(*VALUES)._replace(headers=())])
    assert list(frame["headers"]) == [VALUES[-1], ()]
