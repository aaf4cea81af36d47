"""The snapshots and files of a table, in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.errors import WarehouseError
from barnabas.spark.table_place import DELTA, ICEBERG
from barnabas.spark.table_snapshots import loaded_offsets
from barnabas.spark.topic_tables import TopicTables
from tests.support.loads_without_spark import Lake

LOADS = 4


@pytest.fixture(params=[ICEBERG, DELTA])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table with one load of two records of each of two partitions after the other."""
    found = Lake(tmp_path, request.param)
    found.stand_in(monkeypatch)
    found.partitions = [[], []]
    for _ in range(LOADS):
        for values in found.partitions:
            values += [b'{"a": 1}', b'{"a": 2}']
        found.load(bad=None)
    return found


def test_snapshots_are_listed_in_parts_with_their_offsets(lake: Lake) -> None:
    tables = TopicTables(lake.place)
    whole = tables.snapshots_of("t", 0, 100)
    assert (whole.total, len(whole.snapshots)) == (LOADS, LOADS)
    assert [each.is_current for each in whole.snapshots] == [True, False, False, False]
    assert [each.added_records for each in whole.snapshots] == [4] * LOADS
    first = [each.loaded["t"][1] for each in whole.snapshots]
    assert first == [(6, 8), (4, 6), (2, 4), (0, 2)]
    times = [each.time_ms for each in whole.snapshots]
    assert times == sorted(times, reverse=True)
    part = tables.snapshots_of("t", 1, 2)
    assert (part.total, list(part.snapshots)) == (LOADS, list(whole.snapshots[1:3]))
    assert tables.snapshots_of("t", 99, 2).snapshots == []


def test_files_of_a_snapshot_are_listed_in_parts(lake: Lake) -> None:
    tables = TopicTables(lake.place)
    newest, *_others, oldest = tables.snapshots_of("t", 0, 100).snapshots
    whole = tables.files_of("t", newest.id, 0, 1_000)
    assert whole.total == len(whole.files) > tables.files_of("t", oldest.id, 0, 1_000).total
    assert sum(each.records or 0 for each in whole.files) == 4 * LOADS
    assert {each.content for each in whole.files} == {"data"}
    assert all(each.bytes > 0 and each.path.endswith(".parquet") for each in whole.files)
    assert all("2014-05" in each.partition and "=" in each.partition for each in whole.files)
    parts: list[Any] = []
    for start in range(0, whole.total, 3):
        part = tables.files_of("t", newest.id, start, 3)
        assert part.total == whole.total
        parts += part.files
    assert parts == list(whole.files)
    assert tables.files_of("t", newest.id, whole.total, 3).files == []


def test_snapshot_that_does_not_exist_is_an_error(lake: Lake) -> None:
    for number in (99, 2**62):
        with pytest.raises(WarehouseError, match=str(number)):
            TopicTables(lake.place).files_of("t", number, 0, 10)
    with pytest.raises(WarehouseError, match="does not exist"):
        TopicTables(lake.place).snapshots_of("absent", 0, 10)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"barnabas.added": "no json"},
        {"barnabas.added": '{"t": [1]}'},
        {"barnabas.added": '{"t": [1]}', "barnabas.ledger": '{"u": {"next": [1]}}'},
        {"barnabas.added": '{"t": [1, 2]}', "barnabas.ledger": '{"t": {"next": [1]}}'},
        {"barnabas.added": '["t"]', "barnabas.ledger": "7"},
        {"barnabas.ranges": '{"t": {"x": [1, 2]}}'},
        {"barnabas.ranges": '{"t": {"0": [1]}}'},
    ],
    ids=range(8),
)
def test_properties_of_other_tools_have_no_offsets(properties: dict[str, str]) -> None:
    assert loaded_offsets(properties) == {}


def test_properties_of_older_releases_are_read() -> None:
    assert loaded_offsets({"barnabas.ranges": '{"t": {"0": [1, 2]}}'}) == {"t": {0: (1, 2)}}
