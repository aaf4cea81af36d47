"""Rows of older files as rows of the table as it is now."""

from __future__ import annotations

import pyarrow as pa

from barnabas.spark.projection import project

OLD = pa.struct([("lat", pa.float64())])
NEW = pa.struct([("city", pa.string()), ("lat", pa.float64())])


def test_fields_that_came_later_are_null_inside_of_structs_and_lists() -> None:
    batch = pa.record_batch(
        {
            "geo": pa.array([{"lat": 1.0}, None, {"lat": 2.0}], OLD),
            "many": pa.array([[{"lat": 1.0}, None], None, []], pa.list_(OLD)),
            "n": pa.array([1, None, 3], pa.int32()),
        }
    )
    wanted = pa.schema([("n", pa.int64()), ("late", NEW), ("many", pa.list_(NEW)), ("geo", NEW)])
    for rows in (batch, batch.slice(1), batch.slice(1, 1)):
        told = project(rows, wanted)
        assert told.schema == wanted
        for name in ("geo", "many", "n"):
            before, after = rows.column(name).to_pylist(), told.column(name).to_pylist()
            assert after == [_with_city(value) for value in before]
        assert told.column("late").null_count == len(rows)


def _with_city(value: object) -> object:
    if isinstance(value, list):
        return [_with_city(each) for each in value]
    return {"city": None, **value} if isinstance(value, dict) else value
