"""The steps of the demo: ship, follow, load, report, audit."""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.spark import LoadProgress, TableLoad, load, local_session, stop_session
from barnabas.spark.java import find_java_home
from demo.audit import Audit, audit_run, since, where_it_is
from demo.brokers import Brokers, running_brokers
from demo.console import leave_running
from demo.departures_report import report_departures
from demo.events import Feed
from demo.failover import Failover
from demo.fault import Fault, change_a_row
from demo.following import following
from demo.loaded_run import LoadedRun, Report
from demo.log_report import report_access_log, report_lines
from demo.screen import Screen, StepView
from demo.shipping import end_offsets, prepare_topic, ship


@dataclass(frozen=True, slots=True)
class Shipped:
    """The result of shipping and following: the number of records appended to the logs, the records that the group has
    read, and the earlier end offsets.
    """

    stored: int
    consumed: int
    before: Mapping[TopicPartition, int]


def run_demo(
    feed: Feed,
    folder: Path,
    screen: Screen,
    finish: Callable[[Audit], None],
    broker_count: int = 1,
    fault: Fault | None = None,
    console_port: int | None = None,
) -> Audit:
    """Run the demo. Return the audit.

    All files stay in `folder`. With several brokers, one of them is killed in the middle of shipping. With a fault, one
    record is deleted from the table, duplicated in it, or shipped after the load. No process is left when the function
    returns or raises.

    :param finish: called with the audit at the end.
    :param console_port: the port of a console that runs with the brokers after the audit, until Ctrl-C; 0 is any port.
    :raises BarnabasError: if a step fails.
    """
    find_java_home(os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    # py4j logs each connection that Ctrl-C breaks. Write these messages to a file.
    logging.basicConfig(filename=folder / "demo.log", filemode="w")
    run = uuid.uuid4().hex[:12]
    screen.title(f"{feed.title}, as run {run}")
    with ExitStack() as stack:
        stack.enter_context(_only_demo_in(folder))
        with screen.step("Start a broker" if broker_count == 1 else f"Start {broker_count} brokers") as view:
            brokers = stack.enter_context(running_brokers(folder, broker_count))
            view.outcome = f"ready at {brokers.bootstrap}, data in {brokers.data}"
        with screen.step("Ship, and follow online") as view:
            held_back = 1 if fault == "late" else 0
            shipped = _ship_and_follow(brokers, feed, run, folder, view, feed.count - held_back)
        with screen.step("Load into Iceberg with Spark") as view:
            loaded = _load(brokers.bootstrap, feed, folder, view)
        in_table = LoadedRun(folder, loaded.table, run, since(shipped.before))
        _note_more_than_this_run(loaded, shipped, screen)
        with screen.step("Report from the table") as view:
            report = _report(feed, in_table)
            view.outcome = f"picture in {report.picture}"
        screen.show(report.content)
        if fault is not None:
            _go_wrong(fault, brokers.bootstrap, feed, run, folder)
            screen.note(f"one record goes wrong on request: {fault}")
        with screen.step("Balance the books") as view:
            audit = audit_run(brokers.bootstrap, feed.topic, folder, loaded.table, run, feed.count, shipped.consumed)
            view.outcome = "every event is there, once" if audit.balances else "[red]something is wrong[/]"
        for finding in audit.findings:
            screen.note(where_it_is(finding))
        finish(audit)
        if console_port is not None:
            leave_running(brokers.bootstrap, folder, console_port, screen)
    return audit


def _go_wrong(fault: Fault, bootstrap: str, feed: Feed, run: str, folder: Path) -> None:
    """Lose, duplicate or delay one record, so that the audit must find it."""
    if fault == "late":
        ship(bootstrap, feed, run, lambda _count: None, range(feed.count - 1, feed.count))
    else:
        change_a_row(folder / "warehouse", run, fault)


def _ship_and_follow(brokers: Brokers, feed: Feed, run: str, folder: Path, view: StepView, count: int) -> Shipped:
    view.at_most(count)
    bootstrap = brokers.bootstrap
    before = prepare_topic(bootstrap, feed.topic)
    failover = Failover(brokers, feed)

    def acknowledged(count: int) -> None:
        view.advance(count)
        failover.advance(count)

    with following(bootstrap, feed, run, folder / "follower.log", view.set_seen) as follower:
        produced = ship(bootstrap, feed, run, acknowledged, range(count))
        after = end_offsets(bootstrap, feed.topic)
        seen = follower.finish(after)
    view.outcome = (
        f"{produced:,} acknowledged; the consumer saw {_counts_text(seen.counts or {}, feed)}{failover.outcome}"
    )
    stored = sum(end - before.get(partition, 0) for partition, end in after.items())
    return Shipped(stored, seen.records, before)


def _counts_text(counts: Mapping[str, int], feed: Feed) -> str:
    if feed.live_count == "partition":  # show the total only, not the single partitions
        return f"{sum(counts.values()):,} in {len(counts)} partitions"
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _load(bootstrap: str, feed: Feed, folder: Path, view: StepView) -> TableLoad:
    def show(progress: LoadProgress) -> None:
        view.at_most(progress.records_total)
        view.set_done(progress.records_done, f"Load into Iceberg with Spark: {progress.step}")

    view.set_done(0, "Load into Iceberg with Spark: starting Spark")
    session = local_session("barnabas demo", log_file=folder / "spark.log")
    try:
        result = load(
            feed.topic,
            bootstrap=bootstrap,
            warehouse=folder / "warehouse",
            format=feed.value_format,
            spark=session,
            on_progress=show,
        )
    finally:
        stop_session(session)
    loaded = result.tables[0]
    files = "1 file" if loaded.files == 1 else f"{loaded.files:,} files"
    view.outcome = f"{loaded.records:,} records in {files} by event day, one commit"
    return loaded


def _note_more_than_this_run(loaded: TableLoad, shipped: Shipped, screen: Screen) -> None:
    extra = loaded.records - shipped.stored
    if extra > 0:
        screen.note(f"{extra:,} of them were left in the log by an earlier run that was stopped; not counted below")


def _report(feed: Feed, loaded: LoadedRun) -> Report:
    match feed.kind:
        case "departures":
            return report_departures(loaded)
        case "access log":
            return report_access_log(loaded)
        case "text log":
            return report_lines(loaded)


@contextmanager
def _only_demo_in(folder: Path) -> Iterator[None]:
    """Hold the lock of the directory. The kernel releases it when the process ends."""
    with (folder / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BarnabasError(f"another demo is running in {folder}: wait for it, or stop it") from None
        yield
