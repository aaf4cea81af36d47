"""`barnabas table show`: the definition, sizes, snapshots and ledger of a table, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.transforms import BucketTransform

from barnabas.cli.table import table as table_command
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from tests.support.loads_without_spark import Lake


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def run(lake: Lake, name: str, *options: str) -> Result:
    place = ["--warehouse", str(lake.folder), "--table-format", lake.place.table_format]
    return CliRunner().invoke(table_command, ["show", name, *place, *options])


def shown(lake: Lake, *options: str) -> dict[str, Any]:
    result = run(lake, "t", "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def values(count: int) -> list[bytes]:
    return [b'{"country": "%s", "n": %d}' % (b"nl" if number % 3 else b"de", number) for number in range(count)]


def test_json_has_the_definition_sizes_snapshots_and_offsets(lake: Lake) -> None:
    lake.values = values(6)
    lake.load(bad=None, partition_by=parse_partition("country"))
    lake.values += values(3)
    lake.load(bad=None)
    found = shown(lake)
    assert found["table"] == "default.t"
    assert found["location"].endswith("/default/t")
    assert (found["format"], found["table_format"].split()[0]) == ("json", lake.place.table_format)
    assert found["columns"]["country"] == "string"
    assert (found["partition_by"], found["partition_names"]) == ("country", ["country"])
    assert (found["earlier_partitions"], found["sort_by"]) == ([], "")
    assert (found["records"], found["files"], found["delete_files"], found["partition_count"]) == (9, 4, 0, 2)
    assert [(each["partition"], each["files"], each["records"]) for each in found["partitions"]] == [
        ("country=nl", 2, 6),
        ("country=de", 2, 3),
    ]
    assert sum(each["bytes"] for each in found["partitions"]) == found["bytes"] > 0
    assert found["ledger"] == {"t": {"id": "one", "next_offsets": {"0": 9}}}
    newest, first = found["snapshots"][:2]
    assert (newest["id"], newest["is_current"]) == (found["snapshot_id"], True)
    assert (newest["loaded"], first["loaded"]) == ({"t": {"0": [6, 9]}}, {"t": {"0": [0, 6]}})
    assert found["snapshot_count"] == 2
    assert found["properties"]["barnabas.format"] == "json"
    assert "barnabas.ledger" not in found["properties"]
    assert shown(lake, "--partitions", "1", "--snapshots", "0")["partition_count"] == 2
    assert len(shown(lake, "--partitions", "1")["partitions"]) == 1


def test_text_says_what_is_left_out(lake: Lake) -> None:
    lake.values = values(6)
    lake.load(bad=None)
    result = run(lake, "t", "--partitions", "2", "--snapshots", "0")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["table", "default.t"]
    assert "partitions  day(timestamp)" in lines
    assert "... and 4 more partitions" in lines
    assert "... and 1 more snapshot" in lines
    assert ["t", "one", "0", "6"] in [line.split() for line in lines]
    assert any(line.split() == ["event_day=2014-05-13", "1", "1", *line.split()[3:]] for line in lines)


def test_earlier_partitions_and_the_sort_order_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, "iceberg")
    lake.stand_in(monkeypatch)
    lake.values = values(6)
    lake.load(bad=None, sort_by=parse_sort("n desc nulls first"))
    with lake.open().current_table("t").table.update_spec() as spec:
        spec.remove_field("event_day")
        spec.add_field("n", BucketTransform(2), "by_n")
    lake.values += values(3)
    lake.load(bad=None)
    found = shown(lake)
    assert (found["partition_by"], found["partition_names"]) == ("bucket(2, n)", ["by_n"])
    assert found["earlier_partitions"] == ["day(timestamp)"]
    assert found["sort_by"] == "n desc nulls first"
    assert {each["partition"].split("=")[0] for each in found["partitions"]} == {"event_day", "by_n"}
    text = run(lake, "t").stdout
    assert "  earlier   day(timestamp)" in text
    assert "sort order  n desc nulls first" in text


def test_a_table_of_another_tool_and_a_table_without_data_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, "iceberg")
    lake.stand_in(monkeypatch)
    catalog = lake.open().catalog  # type: ignore[attr-defined]  # only warehouses of Iceberg have a catalog
    catalog.create_namespace_if_not_exists("default")
    table = catalog.create_table("default.t", pa.schema([("a", pa.int64())]))
    empty = shown(lake)
    assert (empty["format"], empty["ledger"], empty["snapshot_id"], empty["partitions"]) == (None, None, None, [])
    table.append(pa.table({"a": [1, 2]}))
    assert [(each["partition"], each["records"]) for each in shown(lake)["partitions"]] == [("", 2)]
    text = run(lake, "t").stdout
    assert "(values of another tool)" in text or "(of another tool)" in text
    assert "(no partitions)" in text
    assert "ledger      none" in text


def test_a_table_that_does_not_exist_is_one_line(lake: Lake) -> None:
    result = run(lake, "gone")
    assert result.exit_code == 1
    assert "table 'gone' does not exist" in str(result.exception)
