"""Offsets that no record has, as the end of a transaction takes one: loaded once, whatever comes before and behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loads_without_spark import MARKER, Lake


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def test_no_load_repeats_what_no_record_has(lake: Lake) -> None:
    for new in ([MARKER], [b'{"a": 1}', b"?", MARKER], [MARKER], [b'{"a": 2}', MARKER]):
        lake.values = [*lake.values, *new]
        loaded = lake.load()
        assert loaded.records == sum(value != MARKER for value in new)
        assert loaded.snapshot_id is not None
        again = lake.load()
        assert (again.records, again.snapshot_id) == (0, None)
        assert lake.open().begin("t").ledger().topics["t"].next_offsets == {0: len(lake.values)}
    assert lake.rows("t", "a") == [(1, 1), (2, None), (5, 2)]
    assert lake.rows() == [(2, "not JSON")]


def test_a_table_that_is_loaded_anew_has_what_the_first_one_has(lake: Lake) -> None:
    lake.values = [MARKER, b"?", MARKER, b"!", MARKER]
    lake.load()
    assert lake.load("again").dead_letter_rows == 0
    assert lake.rows("again", "topic") == lake.rows("t", "topic") == [(1, "t"), (3, "t")]
    assert [offset for offset, _ in lake.rows()] == [1, 3]
