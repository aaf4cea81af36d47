"""Rounds until the tables are complete: when they end, and what they say until then."""

from __future__ import annotations

import pytest

from barnabas.cli.load_until import LoadUntil, parse_until_ms
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError
from barnabas.spark.errors import (
    CommitUnknownError,
    DataLossError,
    HistoryExpiredError,
    LoadConflictError,
    LoadError,
    RecreatedTopicError,
    UnknownTopicError,
    WarehouseError,
)
from barnabas.spark.load_types import LoadResult, TableLoad

UNTIL_MS = 3_600_000


def table(complete_until_ms: int | None, name: str = "default.clicks", snapshot_id: int | None = None) -> TableLoad:
    return TableLoad(name, snapshot_id, 0, (), complete_until_ms=complete_until_ms)


class Rounds:
    """Loads that end as they are told, on a clock that goes on while it is waited; `failures` are those of all."""

    def __init__(
        self,
        *rounds: list[TableLoad] | tuple[list[TableLoad], dict[str, Exception]] | Exception,
        failures: dict[str, Exception] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.rounds = list(rounds)
        self.failures = failures or {}
        self.lines: list[str] = []
        self.waits: list[float] = []

    def load(self) -> tuple[LoadResult, dict[str, Exception]]:
        self.clock.advance(1)
        loaded = self.rounds.pop(0)
        if isinstance(loaded, Exception):
            raise loaded
        tables, failures = loaded if isinstance(loaded, tuple) else (loaded, self.failures)
        return LoadResult(tuple(tables)), failures

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    def run(self, within_s: float | None = None) -> bool:
        shown: list[LoadResult] = []
        until = LoadUntil(
            self.load, UNTIL_MS, 10.0, within_s, lambda result, _failures: shown.append(result), self.lines.append,
            self.clock, self.wait,
        )  # fmt: skip
        return until.run()


def test_rounds_go_on_until_every_table_is_complete() -> None:
    rounds = Rounds(
        [table(UNTIL_MS - 1), table(UNTIL_MS, "default.views")],
        [table(UNTIL_MS), table(None, "default.views")],
        [table(UNTIL_MS), table(UNTIL_MS + 5, "default.views")],
    )
    assert rounds.run()
    assert rounds.lines[0] == (
        "waiting for 1970-01-01T01:00:00.000Z: default.clicks is complete until 1970-01-01T00:59:59.999Z"
    )
    assert "no producer has reported records of default.views to the audit" in rounds.lines[1]
    assert rounds.waits == [9.0, 9.0]


def test_table_that_could_not_be_loaded_is_waited_for() -> None:
    rounds = Rounds([table(UNTIL_MS)], failures={"default.views": OSError("full")})
    assert not rounds.run(within_s=5)
    assert "default.views is not loaded" in rounds.lines[0]


def test_a_table_that_can_never_be_loaded_is_not_waited_for() -> None:
    rounds = Rounds([table(UNTIL_MS)], failures={"default.views": ConfigurationError("other fields")})
    with pytest.raises(ConfigurationError, match="other fields"):
        rounds.run()
    assert len(rounds.rounds) == 0, "the other table was loaded"


PASSES = [
    WarehouseError("catalog away"),
    LoadError("table default.views is unchanged: views-0: broker 1 disconnected"),
    CommitUnknownError("the answer was lost"),
    LoadConflictError("somebody else was faster"),
    OSError("full"),
]


@pytest.mark.parametrize("failure", PASSES, ids=lambda failure: type(failure).__name__)
def test_what_may_pass_is_waited_for_in_a_table_and_in_a_round(failure: Exception) -> None:
    done = [table(UNTIL_MS), table(UNTIL_MS, "default.views")]
    rounds = Rounds([table(0)], ([table(UNTIL_MS)], {"default.views": failure}), failure, done)
    assert rounds.run()
    assert [str(failure) in line for line in rounds.lines] == [False, False, True]


@pytest.mark.parametrize("kind", [DataLossError, RecreatedTopicError, HistoryExpiredError])
def test_what_is_gone_is_not_waited_for(kind: type[LoadError]) -> None:
    for last in (kind("gone"), ([table(UNTIL_MS)], {"default.views": kind("gone")})):
        rounds = Rounds([table(0)], last)
        with pytest.raises(kind):
            rounds.run()


def test_settings_that_were_right_are_waited_for_and_topics_that_never_were_are_not() -> None:
    failures: dict[str, Exception] = {"default.clicks": ConfigurationError("other fields")}
    assert Rounds([table(0, snapshot_id=1)], ([], failures), [table(UNTIL_MS)]).run()
    with pytest.raises(ConfigurationError):
        Rounds([table(0)], ([], failures)).run()
    assert Rounds([table(0)], UnknownTopicError("no such topic"), [table(UNTIL_MS)]).run()
    with pytest.raises(UnknownTopicError):
        Rounds(([], {"default.clicks": UnknownTopicError("no such topic")})).run()


def test_no_round_begins_when_time_is_up() -> None:
    rounds = Rounds([table(0)], [table(0)], [table(0)])
    assert not rounds.run(within_s=15)
    assert len(rounds.rounds) == 1
    assert rounds.lines[-1].startswith("not complete until 1970-01-01T01:00:00.000Z within 15 s: ")


def test_what_is_no_time_is_refused() -> None:
    for text in ("25:00", "10:60", "later"):
        with pytest.raises(ValueError, match="is not a time"):
            parse_until_ms(text, 0)
