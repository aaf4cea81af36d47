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


def test_fields_are_found_under_the_names_that_they_had_also_in_maps() -> None:
    old = pa.struct([("x", pa.int32())])
    batch = pa.record_batch(
        {
            "place": pa.array([{"x": 1}, None], old),
            "corners": pa.array([[("n", {"x": 2})], None], pa.map_(pa.string(), old)),
        }
    )
    new = pa.struct([("late", pa.string()), ("y", pa.int64())])
    wanted = pa.schema([("spot", new), ("corners", pa.map_(pa.string(), new))])
    former = {("spot",): ["place"], ("spot", "y"): ["x"], ("corners", "value", "y"): ["x"]}
    assert project(batch, wanted, former).to_pylist() == [
        {"spot": {"late": None, "y": 1}, "corners": [("n", {"late": None, "y": 2})]},
        {"spot": None, "corners": None},
    ]
    assert project(batch.slice(1), wanted, former).to_pylist() == [{"spot": None, "corners": None}]


def _with_city(value: object) -> object:
    if isinstance(value, list):
        return [_with_city(each) for each in value]
    return {"city": None, **value} if isinstance(value, dict) else value
