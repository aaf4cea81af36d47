"""Which values a load keeps whole beside their columns: by default those that the columns do not give back by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.value_format import decoder_of
from barnabas.spark.load_topics import load
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake

VALUES = [b'{"a":1,"b":"x"}', b'{"b": "\\u0078", "a": 1.0}', b'{"b":null,"a":2}', b'{"a":1,"a":2}', b"no JSON"]


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def given_back(lake: Lake) -> list[bytes | None]:
    rows = pa.Table.from_batches(scan_table(lake.folder, "t", table_format=lake.place.table_format))
    rows = rows.sort_by("offset").combine_chunks()
    column = {name: rows[name].combine_chunks() for name in rows.column_names}
    decoder = decoder_of("json")
    assert decoder is not None
    fields = {name: column[name] for name in ("a", "b")}
    restored: list[bytes | None] = decoder.restore(column["value"], column["value_form"], fields).to_pylist()
    return restored


@pytest.mark.parametrize(("keep_values", "kept", "lost"), [("bad", 2, 0), ("all", 5, 0), ("none", 0, 2)])
def test_values_are_kept_as_the_load_is_asked(lake: Lake, keep_values: Any, kept: int, lost: int) -> None:
    lake.values = [*VALUES, None]  # type: ignore[list-item]
    done = lake.load(keep_values=keep_values)
    assert (done.kept_values, done.lost_values, done.bad.count, done.dead_letter_rows) == (kept, lost, 1, 1)
    assert [value is not None for _, value in lake.rows("t", "value")].count(True) == kept
    found = given_back(lake)
    if keep_values == "all":
        assert found == lake.values
    else:
        bad = [None, None] if keep_values == "none" else VALUES[3:]
        assert found == [VALUES[0], b'{"a":1,"b":"x"}', b'{"a":2,"b":null}', *bad, None]
    assert [a for _, a in lake.rows("t", "a")] == [1, 1, 2, 2, None, None]


def test_rows_of_loads_with_several_settings_stand_in_one_table(lake: Lake) -> None:
    lake.values = VALUES[:1]
    lake.load(keep_values="all")
    lake.values = VALUES[:2]
    lake.load(keep_values="none")
    assert given_back(lake) == [VALUES[0], b'{"a":1,"b":"x"}']


def test_keep_values_is_checked() -> None:
    wrong: Any = "some"
    with pytest.raises(ConfigurationError, match=r"keep_values.*'some'.*bad, all, none"):
        load("t", bootstrap="nowhere:1", warehouse="w", format="json", keep_values=wrong)
    with pytest.raises(ConfigurationError, match="keep_values none"):
        load("t", bootstrap="nowhere:1", warehouse="w", keep_values="none")
