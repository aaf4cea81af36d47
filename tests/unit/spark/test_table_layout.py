"""Rows by partition: each row in one part, the values of pyiceberg's own transforms, and the sort order within."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from math import isnan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import transforms
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from barnabas.errors import ConfigurationError
from barnabas.spark.iceberg_layout import transform_of
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from barnabas.spark.partition_transforms import Transform
from barnabas.spark.table_layout import PartitionField, PartitionLimitError, TableLayout, layout_of_terms

TIMES_US = st.integers(-62_104_060_800_000_000, 253_370_764_800_000_000)  # years 2 to 9998
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES: dict[str, tuple[pa.DataType, IcebergType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), BooleanType(), st.booleans()),
    "int": (pa.int32(), IntegerType(), st.integers(-(2**31) + 1000, 2**31 - 1)),
    "long": (pa.int64(), LongType(), st.integers(-(2**63) + 1000, 2**63 - 1) | st.integers(-50, 50)),
    "string": (pa.string(), StringType(), TEXTS | st.sampled_from(["", "é😀", "日本語テキスト"])),
    "binary": (pa.binary(), BinaryType(), st.binary(max_size=8)),
    "date": (pa.date32(), DateType(), st.dates(datetime.date(2, 1, 1), datetime.date(9998, 1, 1))),
    "timestamp": (pa.timestamp("us", "UTC"), TimestamptzType(), TIMES_US),
    "timestamp_ntz": (pa.timestamp("us"), TimestampType(), TIMES_US),
    "decimal(9,2)": (
        pa.decimal128(9, 2),
        DecimalType(9, 2),
        st.integers(-(10**9) + 1000, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-2)),
    ),
}
TRANSFORMS: list[transforms.Transform[Any, Any]] = [
    transforms.IdentityTransform(),
    transforms.YearTransform(),
    transforms.MonthTransform(),
    transforms.DayTransform(),
    transforms.HourTransform(),
    transforms.BucketTransform(1),
    transforms.BucketTransform(16),
    transforms.BucketTransform(2**31 - 1),
    transforms.TruncateTransform(1),
    transforms.TruncateTransform(7),
    transforms.VoidTransform(),
]
CASES = [
    pytest.param(name, each, id=f"{each}({name})")
    for name, (_, kind, _) in VALUES.items()
    for each in TRANSFORMS
    if each.can_transform(kind)
]


def layout(*fields: tuple[Transform, str]) -> TableLayout:
    return TableLayout(tuple(PartitionField(f"p{number}", each, (name,)) for number, (each, name) in enumerate(fields)))


def by_pyiceberg(each: transforms.Transform[Any, Any], kind: IcebergType) -> Callable[[Any], Any]:
    applied = each.transform(kind)

    def transformed(value: Any) -> Any:
        found = applied(value)
        return (found - datetime.date(1970, 1, 1)).days if isinstance(found, datetime.date) else found

    return transformed


@pytest.mark.parametrize(("name", "iceberg"), CASES)
def test_partition_values_are_those_of_pyiceberg(name: str, iceberg: transforms.Transform[Any, Any]) -> None:
    arrow, kind, values = VALUES[name]
    expected = by_pyiceberg(iceberg, kind)
    own = transform_of(iceberg)
    assert own is not None
    assert own.accepts(name)

    @settings(max_examples=25)
    @given(st.lists(values | st.none(), min_size=1, max_size=20))
    def check(column: list[Any]) -> None:
        rows = pa.table({"c": pa.array(column, arrow), "row": range(len(column))})
        seen = []
        for (value,), part in layout((own, "c")).rows_by_partition(rows):
            for row in part.column("row").to_pylist():
                assert value == expected(column[row])
                seen.append(row)
        assert sorted(seen) == list(range(len(column)))

    check()


def test_no_transform_applies_to_more_types_than_in_iceberg() -> None:
    for name, (_, kind, _) in VALUES.items():
        for iceberg in TRANSFORMS:
            own = transform_of(iceberg)
            assert own is not None
            assert own.accepts(name) == iceberg.can_transform(kind), (name, iceberg)
    assert not any(Transform("identity").accepts(name) for name in ("float", "double"))
    assert not Transform("bucket", 3).accepts(["long"])


@given(
    st.lists(
        st.tuples(TIMES_US | st.none(), st.sampled_from(["nl", "de", "", None]), st.integers(0, 5)),
        min_size=1,
        max_size=50,
    ),
    st.integers(1, 4),
)
def test_each_row_is_in_one_part_and_each_partition_is_one_part(rows: list[tuple[Any, ...]], buckets: int) -> None:
    times, countries, numbers = zip(*rows, strict=True)
    table = pa.table(
        {
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "country": pa.array(countries, pa.string()),
            "n": numbers,
            "row": range(len(rows)),
        }
    )
    own = layout((Transform("month"), "at"), (Transform("identity"), "country"), (Transform("bucket", buckets), "n"))
    parts = list(own.rows_by_partition(table))
    partitions = [partition for partition, _ in parts]
    assert len(set(partitions)) == len(partitions)
    assert sorted(row for _, part in parts for row in part.column("row").to_pylist()) == list(range(len(rows)))
    for _, part in parts:
        assert part.column("row").to_pylist() == sorted(part.column("row").to_pylist())
    assert [partition[0] for partition in partitions] == sorted(
        (partition[0] for partition in partitions), key=lambda month: (month is None, month or 0)
    )


def test_columns_that_the_rows_lack_are_null_and_fields_of_structs_are_found() -> None:
    rows = pa.table(
        {"user": pa.array([{"id": 7}, None, {"id": None}], pa.struct([("id", pa.int64())])), "n": [1, 2, 3]}
    )
    fields = tuple(
        PartitionField(str(number), Transform("identity"), path)
        for number, path in enumerate([("user", "id"), ("user", "gone"), ("gone",), ("gone", "id")])
    )
    parts = {partition: part.column("n").to_pylist() for partition, part in TableLayout(fields).rows_by_partition(rows)}
    assert parts == {(7, None, None, None): [1], (None, None, None, None): [2, 3]}


def test_a_layout_without_partitions_has_one_part() -> None:
    rows = pa.table({"n": [3, 1, 2]})
    assert [(partition, part) for partition, part in TableLayout().rows_by_partition(rows)] == [((), rows)]


def test_more_partitions_than_allowed_are_refused_before_anything_is_written() -> None:
    rows = pa.table({"id": range(100)})
    own = layout((Transform("identity"), "id"))
    assert len(list(own.rows_by_partition(rows, 100))) == 100
    with pytest.raises(PartitionLimitError, match="100 records have 100 partitions of id, more than 99"):
        next(own.rows_by_partition(rows, 99))


NUMBERS = st.floats(allow_nan=True) | st.none()


@given(st.lists(st.tuples(NUMBERS, TEXTS | st.none()), max_size=30), st.booleans(), st.booleans(), st.booleans())
def test_rows_are_in_the_sort_order_and_equal_rows_keep_their_order(
    rows: list[tuple[Any, Any]], is_descending: bool, nulls_first: bool, by_text: bool
) -> None:
    table = pa.table(
        {
            "x": pa.array([x for x, _ in rows], pa.float64()),
            "s": pa.array([s for _, s in rows], pa.string()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    order = f"{'s' if by_text else 'x'} {'desc' if is_descending else 'asc'} nulls {'first' if nulls_first else 'last'}"
    own = layout_of_terms((), parse_sort(order), {"x": "double", "s": "string"}, "timestamp")
    found = own.sorted(table).column("row").to_pylist()

    def key(row: int) -> Any:
        value = rows[row][1 if by_text else 0]
        if value is None:
            return (0 if nulls_first else 2, 0)
        comparable = value.encode() if by_text else (isnan(value), 0.0 if isnan(value) else value)
        return (1, comparable)

    assert sorted(found) == list(range(len(rows)))
    for first, second in pairwise(found):
        if key(first) == key(second):
            assert first < second
        elif key(first)[0] == key(second)[0]:
            assert (key(first) > key(second)) == is_descending
        else:
            assert key(first)[0] < key(second)[0]


COLUMNS: dict[str, Any] = {
    "timestamp": "timestamp",
    "user_id": "long",
    "price": "double",
    "geo": {"city": "string", "at": "double"},
    "tags": ["string"],
    "event_hour": "string",
}


def test_a_new_layout_has_the_names_of_iceberg_and_no_name_of_a_column() -> None:
    terms = parse_partition("hour(event_time), bucket(16, user_id), truncate(2, geo.city), geo.city")
    made = layout_of_terms(terms, parse_sort("price desc, user_id"), COLUMNS, "timestamp")
    assert [field.name for field in made.partition] == [
        "event_hour_part",
        "user_id_bucket_16",
        "geo_city_trunc_2",
        "geo.city",
    ]
    assert str(made) == "hour(timestamp), bucket(16, user_id), truncate(2, geo.city), geo.city"
    assert made.sort_text == "price desc, user_id"
    assert made.is_by(terms, "timestamp")
    assert made.is_by(parse_partition(str(made)), "timestamp")
    assert made.is_sorted_by(parse_sort(made.sort_text), "timestamp")
    assert not made.is_by(parse_partition("hour(event_time)"), "timestamp")
    assert layout_of_terms(None, (), COLUMNS, "timestamp") == TableLayout.by_day("timestamp")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("country", r"no column 'country'; the table has timestamp, user_id"),
        ("geo.country", r"no column 'geo.country'"),
        ("hour(user_id)", r"hour\(user_id\) does not apply to a column of type long"),
        ("price", "price does not apply to a column of type double"),
        ("geo", "geo does not apply to a column of type a nested type"),
        ("bucket(3, tags)", "does not apply to a column of type a nested type"),
        ("day(event_time), hour(timestamp)", r"day\(timestamp\) and hour\(timestamp\) divide the same time"),
    ],
)
def test_a_layout_that_the_columns_do_not_allow_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        layout_of_terms(parse_partition(text), (), COLUMNS, "timestamp")


def test_a_renamed_column_is_renamed_in_the_layout() -> None:
    before = layout_of_terms(parse_partition("geo.city, user_id"), parse_sort("geo.city"), COLUMNS, "timestamp")
    after = before.renamed({("geo",): "place", ("geo", "city"): "town", ("price",): "cost"})
    assert str(after) == "place.town, user_id"
    assert after.sort_text == "place.town"


def test_labels_are_safe_and_short_names_of_files() -> None:
    own = layout((Transform("day"), "a"), (Transform("identity"), "b"), (Transform("identity"), "c"))
    assert own.label((None, "../é/" + "x" * 100, b"\x00\xff")) == "no-day-" + "_" * 5 + "x" * 35 + "-00ff"
    assert TableLayout().label(()) == "all"
