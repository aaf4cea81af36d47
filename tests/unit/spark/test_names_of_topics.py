"""Each legal name of a topic reaches its own files and its own table, also a long one, and one whose table is taken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.ship_state import ShipState
from barnabas.model import in_file_name
from barnabas.spark.errors import WarehouseError
from barnabas.spark.ledger import Ledger
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.reports import events

NAME_BYTES_MAX = 255


@pytest.mark.parametrize("name", ["l" * 249, "\u00e4" * 125])
def test_a_long_name_is_cut_and_stays_distinct(name: str) -> None:
    short = in_file_name(name)
    assert len(short.encode()) <= 120
    assert in_file_name(name[:-1]) != short
    assert in_file_name("web.clicks") == "web.clicks"


def test_the_state_of_ship_takes_the_longest_topic_and_the_longest_log(tmp_path: Path) -> None:
    log = tmp_path / ("l" * NAME_BYTES_MAX)
    with ShipState(tmp_path / "states", "t" * 249, "i" * 22, log) as state:
        assert state.path == log
    (folder,) = (tmp_path / "states").iterdir()
    assert folder.name.endswith("i" * 22)


def test_a_report_does_not_take_the_table_of_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger().advanced({"web.views": "id"}, [OffsetRange("web.views", 0, 0, 5)])
    table = SimpleNamespace(exists=True, name="default.web_views", ledger=lambda: ledger)
    monkeypatch.setattr(events, "open_place", lambda _place: SimpleNamespace(begin=lambda _name: table))
    monkeypatch.setattr(events, "read_table", lambda _spark, _warehouse, name, catalog: name)
    spark: Any = None
    assert events._read(spark, "web.views", "warehouse", None) == "web_views"
    assert events._read(spark, "web_views", "warehouse", None) == "web_views"
    with pytest.raises(WarehouseError, match="topic 'web-views' has no table"):
        events._read(spark, "web-views", "warehouse", None)
