"""Limits for the bad records of a load: a load beyond its limit commits nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.bad_records import BadRecordLimit
from barnabas.spark.errors import TooManyBadRecordsError
from tests.support.loads_without_spark import Lake


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


@pytest.mark.parametrize(
    ("given", "bad", "records", "is_exceeded"),
    [
        (0, 0, 0, False),
        ("0", 1, 10, True),
        ("3", 3, 3, False),
        ("3", 4, 400, True),
        ("0%", 1, 10**9, True),
        ("10%", 1, 10, False),
        ("10%", 2, 19, True),
        ("0.1%", 1, 1000, False),
        ("0.1%", 1, 999, True),
        ("100%", 7, 7, False),
        ("5%", 0, 0, False),
    ],
)
def test_limit_is_a_count_or_a_share(given: int | str, bad: int, records: int, is_exceeded: bool) -> None:
    assert BadRecordLimit.parse(given).is_exceeded(bad, records) is is_exceeded


@pytest.mark.parametrize("given", ["", "%", "-1", "1.5", "101%", "1e3", "5 %", "nan%", "²", "0x1", -1])
def test_what_is_no_limit_is_refused(given: int | str) -> None:
    with pytest.raises(ConfigurationError, match="max_bad_records"):
        BadRecordLimit.parse(given)


def test_load_beyond_the_limit_commits_nothing_and_the_next_one_goes_on(lake: Lake) -> None:
    lake.values = [b'{"n": 1}', None, b"bad", b'{"n": 2}', b"[]"]  # type: ignore[list-item]
    with pytest.raises(
        TooManyBadRecordsError, match=r"is unchanged: 2 of 5 records are bad.* limit 1 .*not JSON \(1\)"
    ):
        lake.load(max_bad_records=BadRecordLimit.parse(1))
    assert lake.files() == (set(), 0)
    assert lake.rows("t", "n") == lake.rows() == []
    with pytest.raises(TooManyBadRecordsError):
        lake.load(max_bad_records=BadRecordLimit.parse("39%"))
    done = lake.load(max_bad_records=BadRecordLimit.parse("40%"))
    assert (done.records, done.bad.count, done.dead_letter_rows) == (5, 2, 2)


def test_limit_is_for_each_load_by_itself(lake: Lake) -> None:
    lake.values = [b"bad"]
    lake.load(max_bad_records=BadRecordLimit.parse(1))
    lake.values = [*lake.values, b"bad"]
    assert lake.load(max_bad_records=BadRecordLimit.parse(1)).records == 1
