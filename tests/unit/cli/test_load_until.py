"""Rounds until the tables are complete: when they end, and what they say until then."""

from __future__ import annotations

import pytest

from barnabas.cli.load_until import LoadUntil, parse_until_ms
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError
from barnabas.spark.load_types import LoadResult, TableLoad

UNTIL_MS = 3_600_000


def table(complete_until_ms: int | None, name: str = "default.clicks") -> TableLoad:
    return TableLoad(name, None, 0, (), complete_until_ms=complete_until_ms)


class Rounds:
    """Loads that end as they are told, on a clock that goes on while it is waited."""

    def __init__(self, *rounds: list[TableLoad], failures: dict[str, Exception] | None = None) -> None:
        self.clock = ManualClock()
        self.rounds = list(rounds)
        self.failures = failures or {}
        self.lines: list[str] = []
        self.waits: list[float] = []

    def load(self) -> tuple[LoadResult, dict[str, Exception]]:
        self.clock.advance(1)
        return LoadResult(tuple(self.rounds.pop(0))), self.failures

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
    assert "nobody has told the audit what is to be in default.views" in rounds.lines[1]
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


def test_no_round_begins_when_time_is_up() -> None:
    rounds = Rounds([table(0)], [table(0)], [table(0)])
    assert not rounds.run(within_s=15)
    assert len(rounds.rounds) == 1
    assert rounds.lines[-1].startswith("not complete until 1970-01-01T01:00:00.000Z within 15 s: ")


def test_what_is_no_time_is_refused() -> None:
    for text in ("25:00", "10:60", "later"):
        with pytest.raises(ValueError, match="no point in time"):
            parse_until_ms(text, 0)
