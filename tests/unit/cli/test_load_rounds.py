"""Loads round by round: what fails is told and tried again, and the metrics say what was done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from barnabas.cli.load_rounds import LoadRounds, as_line
from barnabas.cli.maintenance_rounds import MaintenanceRounds
from barnabas.cli.times import parse_interval_s
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError, MissingExtraError
from barnabas.spark.bad_records import BadRecords
from barnabas.spark.errors import (
    DataLossError,
    JavaNotFoundError,
    LoadError,
    UnknownTopicError,
    WarehouseError,
)
from barnabas.spark.load_types import LoadResult, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_store import Maintained

LOADED = TableLoad("default.t", 7, 50, (), 2, bad=BadRecords({"not JSON": 3}), missing=(OffsetRange("t", 0, 0, 4),))
NOTHING = TableLoad("default.t", None, 0, ())


def run(
    *outcomes: object, takes_s: float = 1.0, told: list[Mapping[str, object]] | None = None
) -> tuple[LoadRounds, list[Mapping[str, object]], list[float]]:
    """Run a round for each outcome: a table's load, or an exception."""
    told = [] if told is None else told
    clock, waits = ManualClock(), list[float]()
    left = list(outcomes)

    def load() -> tuple[LoadResult, Mapping[str, Exception]]:
        clock.advance(takes_s)
        outcome = left.pop(0)
        if isinstance(outcome, DataLossError):
            return LoadResult((LOADED,)), {"default.u": outcome}
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, dict):
            return LoadResult(()), outcome
        assert isinstance(outcome, TableLoad)
        return LoadResult((outcome,)), {}

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    rounds = LoadRounds(load, 60.0, told.append, clock, wait)
    rounds.run(len(outcomes))
    return rounds, told, waits


def test_a_round_that_fails_is_told_and_the_next_one_goes_on() -> None:
    rounds, told, _ = run(LoadError("no broker"), OSError("catalog away"), ValueError("odd"), LOADED)
    assert [event.get("error") for event in told] == [
        "LoadError: no broker",
        "OSError: catalog away",
        "ValueError: odd",
        None,
    ]
    assert (rounds.metrics.rounds, rounds.metrics.failed_rounds) == (4, 3)
    assert rounds.metrics.tables["default.t"].records == 50


def test_settings_that_are_wrong_end_it() -> None:
    with pytest.raises(ConfigurationError, match="no such pattern"):
        run(LoadError("no broker"), ConfigurationError("no such pattern"), LOADED)
    with pytest.raises(UnknownTopicError, match="no such topic"):
        run({"default.t": UnknownTopicError("no such topic"), "default.u": UnknownTopicError("no such topic")})
    with pytest.raises(MissingExtraError):
        run(MissingExtraError("no pyspark"))


def test_what_refuses_settings_that_were_right_is_tried_again() -> None:
    _, told, _ = run(LOADED, ConfigurationError("other fields"), LOADED)
    assert [event.get("error") for event in told] == [None, "ConfigurationError: other fields", None]
    _, told, _ = run(LOADED, {"default.t": ConfigurationError("other fields")}, LOADED)
    assert [event.get("error") for event in told] == [None, "ConfigurationError: other fields", None]


def test_a_topic_that_is_missing_later_or_beside_others_may_come_back() -> None:
    _, told, _ = run(NOTHING, UnknownTopicError("no such topic"), LOADED)
    assert [event.get("error") for event in told] == [None, "UnknownTopicError: no such topic", None]
    _, told, _ = run({"default.t": UnknownTopicError("no such topic"), "default.u": LoadError("no broker")}, LOADED)
    assert len(told) == 3


def test_settings_that_are_looked_at_with_the_first_records_end_it_too() -> None:
    told: list[Mapping[str, object]] = []
    with pytest.raises(ConfigurationError, match="other fields"):
        run(NOTHING, NOTHING, ConfigurationError("other fields"), LOADED)
    with pytest.raises(JavaNotFoundError):
        run(NOTHING, JavaNotFoundError("no Java"), LOADED)
    with pytest.raises(ConfigurationError, match="other fields"):
        run(LOADED, {"default.u": ConfigurationError("other fields")}, LOADED, told=told)
    assert [(event["table"], event.get("error")) for event in told] == [
        ("default.t", None),
        ("default.u", "ConfigurationError: other fields"),
    ]


def test_an_interrupt_ends_it() -> None:
    def load() -> tuple[LoadResult, Mapping[str, Exception]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LoadRounds(load, 1.0, print, ManualClock(), print).run()


def test_rounds_begin_an_interval_apart_and_late_ones_at_once() -> None:
    assert run(LOADED, NOTHING, takes_s=20.0)[2] == [40.0, 40.0]
    assert run(LOADED, takes_s=90.0)[2] == [0.0]


def test_maintenance_is_done_between_rounds_when_it_is_due() -> None:
    clock, told, waits = ManualClock(), list[Mapping[str, object]](), list[float]()
    outcomes = iter([Maintained("default.t", 4, 1), WarehouseError("gone"), Maintained("default.t")])

    def maintain() -> Iterator[tuple[str, Maintained | Exception]]:
        clock.advance(5.0)
        yield "default.t", next(outcomes)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    maintenance = MaintenanceRounds(maintain, 120.0, clock)
    rounds = LoadRounds(lambda: (LoadResult((NOTHING,)), {}), 60.0, told.append, clock, wait, maintenance)
    rounds.run(7)
    done = [event for event in told if "records" not in event]
    assert [tuple(event.items())[1:] for event in done] == [
        (("table", "default.t"), ("compacted_files", 4), ("new_files", 1)),
        (("table", "default.t"), ("maintenance_error", "WarehouseError: gone")),
    ]
    assert waits == [60.0, 55.0, 60.0, 55.0, 60.0, 55.0, 60.0]
    counts = rounds.metrics.tables["default.t"]
    assert (counts.maintenances, counts.failed_maintenances) == (2, 1)


def test_first_maintenance_comes_after_a_sixth_of_the_interval() -> None:
    clock, started = ManualClock(), list[float]()

    def maintain() -> Iterator[tuple[str, Maintained | Exception]]:
        started.append(clock.monotonic())
        return iter(())

    maintenance = MaintenanceRounds(maintain, 3600.0, clock)
    begun = clock.monotonic()
    for _ in range(80):
        clock.advance(60.0)
        assert not list(maintenance.run_if_due())
    assert [each - begun for each in started] == [600.0, 4200.0]


def test_what_is_bad_and_missing_is_in_the_line_and_in_the_metrics() -> None:
    rounds, told, _ = run(LOADED, LOADED, NOTHING, DataLossError("gone"))
    line = as_line(told[0])
    assert 'default.t: records 50, files 2, bad_records {"not JSON": 3}, missing ["t-0 [0, 4)"]' in line
    assert told[-1]["error"] == "DataLossError: gone"
    values = {(metric.name, *labels): value for metric, value, labels in rounds.metrics.collect()}
    assert values["barnabas_load_records_total", "default.t"] == 150
    assert values["barnabas_load_bad_records_total", "default.t"] == 9
    assert values["barnabas_load_failures_total", "default.u"] == 1
    assert values["barnabas_load_rounds_total",] == 4


@pytest.mark.parametrize("text", ["", "1", "0s", "m", "-1s", "1d", "1 m"])
def test_what_is_no_interval_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="use for example 30s"):
        parse_interval_s(text)


def test_completeness_by_the_audit_is_a_metric() -> None:
    rounds, _, _ = run(replace(LOADED, complete_until_ms=1_500))
    values = {(metric.name, *labels): value for metric, value, labels in rounds.metrics.collect()}
    assert values["barnabas_load_complete_until_timestamp_seconds", "default.t"] == 1.5


def test_a_load_is_ready_once_a_round_has_loaded_all_tables() -> None:
    assert run()[0].metrics.not_ready() == ["the first round has not ended"]
    assert run(LOADED)[0].metrics.not_ready() == []
    assert run(LOADED, LoadError("no room"))[0].metrics.not_ready() == ["the last round failed: LoadError: no room"]
    assert run(LoadError("no room"), LOADED)[0].metrics.not_ready() == []
