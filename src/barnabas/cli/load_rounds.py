"""`barnabas load --every`: loads in rounds until the process ends.

A failed round is reported in one line and retried in the next round, unless the failure is permanent
(`permanent_failures.py`). Each table of a round has one output line, a JSON object with `--json`. The totals since the
start are exported as metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from barnabas.cli.maintenance_rounds import MaintenanceRounds
from barnabas.cli.permanent_failures import PermanentFailures
from barnabas.cli.times import show_time_ms
from barnabas.clock import Clock
from barnabas.metrics.metric import Sample, counter, gauge

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult, TableLoad

Round = tuple["LoadResult", Mapping[str, Exception]]
"""The results of a round's loads, and the errors of the tables that could not be loaded."""


ROUNDS = counter("barnabas_load_rounds_total", "Rounds started.")
FAILED_ROUNDS = counter("barnabas_load_failed_rounds_total", "Rounds in which the load of a table failed.")
LAST_SUCCESS = gauge(
    "barnabas_load_last_success_timestamp_seconds", "End of the last round without a failure, in seconds since 1970."
)
LAST_ROUND = gauge("barnabas_load_last_round_seconds", "Duration of the last round.")
COMPLETE_UNTIL = gauge(
    "barnabas_load_complete_until_timestamp_seconds",
    "Event time up to which the table has all reported records, in seconds since 1970. Only for audited topics.",
    "table",
)
_OF_TABLES = {
    name: counter(f"barnabas_load_{name}_total", help_text, "table")
    for name, help_text in {
        "records": "Records added to the table.",
        "files": "Data files added to the table.",
        "bad_records": "Bad records.",
        "missing_offsets": "Offsets that the log no longer had.",
        "audited_windows": "Windows that loads of the table reported to the audit.",
        "loads": "Loads that committed a snapshot.",
        "failures": "Loads that failed.",
        "maintenances": "Maintenances that succeeded.",
        "failed_maintenances": "Maintenances that failed.",
    }.items()
}
"""The counter metrics of each table. The key is the field of `TableCounts` that has the value."""


@dataclass(slots=True)
class TableCounts:
    """Counts of the loads of one table since the process started."""

    records: int = 0
    files: int = 0
    bad_records: int = 0
    missing_offsets: int = 0
    audited_windows: int = 0
    loads: int = 0
    failures: int = 0
    maintenances: int = 0
    failed_maintenances: int = 0
    complete_until_ms: int | None = None
    """The event time in ms up to which the table has all records that producers reported; None if unknown."""


@dataclass(slots=True)
class LoadMetrics:
    """The totals since the process started. One thread writes the totals, other threads read them."""

    rounds: int = 0
    failed_rounds: int = 0
    last_success_s: float = 0.0
    last_round_s: float = 0.0
    tables: dict[str, TableCounts] = field(default_factory=dict)
    trouble: str | None = "the first round has not ended"
    """The failure of the last round; None if all tables were loaded."""

    def not_ready(self) -> list[str]:
        """Return the reasons why the tables may lack records of the topics. Thread-safe."""
        trouble = self.trouble
        return [] if trouble is None else [trouble]

    def note(self, load: TableLoad) -> None:
        """Add the counts of one load to the totals of its table."""
        counts = self.tables.setdefault(load.table, TableCounts())
        counts.records += load.records
        counts.files += load.files
        counts.bad_records += load.bad.count
        counts.missing_offsets += sum(gap.count for gap in load.missing)
        counts.audited_windows += load.audited_windows
        counts.loads += load.snapshot_id is not None
        counts.complete_until_ms = load.complete_until_ms

    def collect(self) -> Iterator[Sample]:
        """Yield the metrics. Thread-safe."""
        yield ROUNDS.sample(self.rounds)
        yield FAILED_ROUNDS.sample(self.failed_rounds)
        yield LAST_SUCCESS.sample(self.last_success_s)
        yield LAST_ROUND.sample(self.last_round_s)
        for table, counts in sorted(self.tables.copy().items()):
            for field_name, metric in _OF_TABLES.items():
                yield metric.sample(getattr(counts, field_name), table)
            if (complete_until_ms := counts.complete_until_ms) is not None:
                yield COMPLETE_UNTIL.sample(complete_until_ms / 1000, table)


class LoadRounds:
    """Runs loads at a fixed interval. Not thread-safe.

    :param load: runs one round; raises an exception if the whole round fails.
    :param on_event: called with each event; each event becomes one line of output.
    :param wait: waits for a number of seconds.
    :param maintenance: the maintenance between rounds; None for no maintenance.
    """

    def __init__(
        self,
        load: Callable[[], Round],
        interval_s: float,
        on_event: Callable[[Mapping[str, object]], None],
        clock: Clock,
        wait: Callable[[float], object],
        maintenance: MaintenanceRounds | None = None,
    ) -> None:
        self._load = load
        self._interval_s = interval_s
        self._on_event = on_event
        self._clock = clock
        self._wait = wait
        self._maintenance = maintenance
        self._permanent = PermanentFailures()
        self.metrics = LoadMetrics()

    def run(self, rounds_max: int | None = None) -> None:
        """Run rounds until the process ends, or `rounds_max` rounds.

        A round starts one interval after the start of the previous one, or immediately if the previous round took
        longer than the interval.
        """
        while rounds_max is None or self.metrics.rounds < rounds_max:
            began = self._clock.monotonic()
            self._round()
            self.metrics.last_round_s = self._clock.monotonic() - began
            self._maintain()
            self._wait(max(0.0, self._interval_s - (self._clock.monotonic() - began)))

    def _maintain(self) -> None:
        """Run the maintenance if it is due, and report its changes."""
        for table, done in () if self._maintenance is None else self._maintenance.run_if_due():
            entry: dict[str, object] = {"time": show_time_ms(self._clock.time_ms()), "table": table}
            counts = self.metrics.tables.setdefault(table, TableCounts())
            if isinstance(done, Exception):
                counts.failed_maintenances += 1
                self._on_event({**entry, "maintenance_error": f"{type(done).__name__}: {done}"})
                continue
            counts.maintenances += 1
            changes = {name: count for name, count in asdict(done).items() if name != "table" and count}
            if changes:
                self._on_event({**entry, **changes})

    def _round(self) -> None:
        self.metrics.rounds += 1
        time = show_time_ms(self._clock.time_ms())
        try:
            result, failures = self._load()
        except Exception as error:  # report any failure; the next round retries
            if self._permanent.is_permanent(error):
                raise
            self.metrics.failed_rounds += 1
            self.metrics.trouble = f"the last round failed: {type(error).__name__}: {error}"
            self._on_event({"time": time, "error": f"{type(error).__name__}: {error}"})
            return
        for load in result.tables:
            self.metrics.note(load)
            self._on_event({"time": time, **_summary(load)})
        for table, failure in failures.items():
            self.metrics.tables.setdefault(table, TableCounts()).failures += 1
            self._on_event({"time": time, "table": table, "error": f"{type(failure).__name__}: {failure}"})
        if failures:
            self.metrics.failed_rounds += 1
            self.metrics.trouble = f"the last round failed for {', '.join(sorted(failures))}"
        else:
            self.metrics.trouble = None
            self.metrics.last_success_s = self._clock.time_s()
        self._permanent.note(result, failures)
        permanent = self._permanent.first_permanent(result, failures)
        if permanent is not None:
            raise permanent


def _summary(load: TableLoad) -> dict[str, object]:
    entry: dict[str, object] = {"table": load.table, "records": load.records, "files": load.files}
    if load.bad.count:
        entry["bad_records"] = dict(load.bad.reasons)
    if load.upserts or load.deletes or load.outdated:
        entry |= {"upserts": load.upserts, "deletes": load.deletes, "outdated": load.outdated}
        entry["rewritten_files"] = load.rewritten_files
    if load.keys_in_several_partitions:
        entry["keys_in_several_partitions"] = load.keys_in_several_partitions
    if load.kept_values:
        entry["kept_values"] = load.kept_values
    if load.lost_values:
        entry["lost_values"] = load.lost_values
    if load.further_columns:
        entry["further_columns"] = {name: dict(counts) for name, counts in load.further_columns.items()}
    if load.new_fields:
        entry["new_fields"] = dict(load.new_fields)
    if load.not_renamed:
        entry["not_renamed"] = dict(load.not_renamed)
    if load.missing_event_field is not None:
        entry["missing_event_field"] = load.missing_event_field
    if load.missing:
        entry["missing"] = [str(gap) for gap in load.missing]
    if load.complete_until_ms is not None:
        entry["complete_until"] = show_time_ms(load.complete_until_ms)
    return entry


def as_line(event: Mapping[str, object]) -> str:
    """Return an event as a line of text.

    >>> as_line({"time": "2026-01-01T00:00:00Z", "table": "default.clicks", "records": 5, "files": 1})
    '2026-01-01T00:00:00Z default.clicks: records 5, files 1'
    """
    about = "".join(f" {event[name]}:" for name in ("table",) if name in event)
    rest = ", ".join(f"{name} {_plain(value)}" for name, value in event.items() if name not in ("time", "table"))
    return f"{event['time']}{about} {rest}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
