"""`barnabas simulate`: generates activity for experiments, and for reports whose correct results are known."""

from __future__ import annotations

import json
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options, quiet_option
from barnabas.cli.progress_bar import record_progress
from barnabas.cli.signals import EXIT_INTERRUPTED, SIGNALLED, end_on_sigterm, interrupt_on
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import TIME_HELP, parse_time_ms, show_time_ms
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.extras import require
from barnabas.laboratory.orders.envelopes import ENVELOPES, Envelope
from barnabas.laboratory.perf.open_loop import OpenLoop
from barnabas.stop_signals import stop_signals

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas import Admin, Deliveries, Producer
    from barnabas.laboratory.clickstream.click_stream import ClickStream
    from barnabas.laboratory.clickstream.site_model import ClickSettings
    from barnabas.laboratory.orders.final_rows import FinalRows
    from barnabas.laboratory.orders.order_table import OrderSettings

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
COUNT_DEFAULT = 1_000_000
CHANGES_DEFAULT = 100_000
ORDERS_DEFAULT = 10_000
CHANGES_PER_ORDER = 5
EXISTING_MAX = 100
DAY_S = 86_400
SENDS_IN_FLIGHT = 64
BATCHES_PER_S = 20
"""The number of batches per second if the stream has a rate."""


@click.group()
def simulate() -> None:
    """Generate activity and send it to a topic."""


def _time(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return parse_time_ms(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def topic_option(default: str) -> Callable[[Decorated], Decorated]:
    """Return the option `--topic`."""
    return click.option(
        "-t",
        "--topic",
        default=default,
        show_default=True,
        shell_complete=complete_topics,
        help="Topic, created if missing.",
    )


def count_option(noun: str, default: int) -> Callable[[Decorated], Decorated]:
    """Return the option `--count`.

    :param noun: what the command sends, in the plural.
    :param default: the count without `--rate`, for the help.
    """
    return click.option(
        "-n",
        "--count",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"Stop after N {noun}.  [default: {default:,}; no limit with --rate]",
    )


def rate_option(noun: str) -> Callable[[Decorated], Decorated]:
    """Return the option `--rate`.

    :param noun: what the command sends, in the plural.
    """
    return click.option(
        "--rate",
        metavar="R",
        type=click.FloatRange(min=0, min_open=True),
        help=f"Send R {noun} per second.  [default: maximum]",
    )


@simulate.command()
@topic_option("clicks")
@count_option("events", COUNT_DEFAULT)
@rate_option("events")
@click.option(
    "--event-rate",
    metavar="R",
    type=click.FloatRange(min=0, min_open=True),
    help="Events per second of event time.  [default: --rate; otherwise the events cover a day]",
)
@click.option("-s", "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the events.")
@click.option("--start", "start_ms", metavar="TIME", callback=_time, help=f"Time of the first event: {TIME_HELP}.")
@click.option("--members", metavar="N", type=int, help="Number of members.  [default: 2,000 times the event rate]")
@click.option("--items", metavar="N", type=int, default=1_000, show_default=True, help="Number of items.")
@click.option("--bots", metavar="N", type=int, default=10, show_default=True, help="Number of bots.")
@click.option(
    "-p",
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Partitions of a new topic.",
)
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the expected report results.",
)
@quiet_option
@connection_options
def clicks(
    topic: str,
    count: int | None,
    rate: float | None,
    partitions: int,
    truth: Path | None,
    quiet: bool,
    connection: Connection,
    **asked: Any,
) -> int | None:
    """Send the activity of a web site: impressions, clicks, shares and follows.

    The popularity of items follows Zipf's law. Some items appear together, and some are popular for one hour. One
    percent of the events are late. Bots click fast. The same options with the same --start generate the same bytes.

    \b
    barnabas simulate clicks --count 1000000 --truth truth.json
    barnabas simulate clicks --rate 500              # until Ctrl-C
    """
    from barnabas import Producer
    from barnabas.laboratory.clickstream.click_stream import BATCH_RECORDS

    require_extra()
    total = COUNT_DEFAULT if count is None and rate is None else count
    stream = _stream(click_settings(total, rate, **asked))
    end_on_sigterm()
    if truth is not None:
        truth.touch()
    with connect(connection, quiet=quiet) as admin:
        _make_topic(admin, topic, partitions)
    interrupted = False
    with Producer(connection.settings()) as producer:
        try:
            with record_progress(topic, 0 if quiet else total or 0) as advance:
                batches = stream.batches(total, _batch_records(BATCH_RECORDS, rate))
                for sent in _send(producer, topic, batches, rate):
                    advance(sent)
        except KeyboardInterrupt:
            interrupted = True
        producer.flush()
    if truth is not None:
        truth.write_text(json.dumps(stream.truth.to_json(), indent=1))
    if not quiet:
        _show_truth_line(topic, stream)
    return EXIT_INTERRUPTED if interrupted else None


@simulate.command()
@topic_option("orders")
@count_option("changes", CHANGES_DEFAULT)
@rate_option("records")
@click.option("-s", "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the changes.")
@click.option("--start", "start_ms", metavar="TIME", callback=_time, help=f"Time of the first change: {TIME_HELP}.")
@click.option(
    "--orders",
    "rows",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of rows of the table.  [default: a fifth of --count; 10,000 without it]",
)
@click.option(
    "--envelope",
    type=click.Choice(ENVELOPES),
    default="debezium",
    show_default=True,
    help="Form of the values. The deletes of plain rows are tombstones.",
)
@click.option(
    "--tombstones/--no-tombstones",
    default=None,
    help="Send a tombstone after each delete.  [default: on; off with --late and --spread]",
)
@click.option(
    "--repeats",
    metavar="SHARE",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of changes that arrive again.",
)
@click.option(
    "--late",
    metavar="SHARE",
    type=float,
    default=0.0,
    show_default=True,
    help="Share of changes that arrive after the next change of their order.",
)
@click.option("--spread", is_flag=True, help="Send each change to a random partition, not the partition of its key.")
@click.option(
    "--schema-change",
    metavar="N",
    type=click.IntRange(min=0),
    help="After N changes, rows have the columns channel and priority.  [default: never]",
)
@click.option(
    "-p",
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Partitions of a new topic.",
)
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the final rows: as Parquet if the name ends in .parquet, else as lines of JSON.",
)
@quiet_option
@connection_options
def orders(
    topic: str,
    count: int | None,
    rate: float | None,
    seed: int,
    start_ms: int | None,
    rows: int | None,
    envelope: Envelope,
    tombstones: bool | None,
    repeats: float,
    late: float,
    spread: bool,
    schema_change: int | None,
    partitions: int,
    truth: Path | None,
    quiet: bool,
    connection: Connection,
) -> int | None:
    """Send the changes of a database table as a change-data-capture connector sends them.

    Orders are inserted, updated and deleted. Some changes arrive again, as after a restart of the connector. With
    --late and --spread, changes arrive out of order; their order is that of the record timestamps, and of the fields
    source.lsn (Debezium) and xid (Maxwell). The same options with the same --start generate the same records.

    \b
    barnabas simulate orders --count 100000 --truth orders.jsonl
    barnabas simulate orders --envelope maxwell --rate 500     # until Ctrl-C
    """
    from barnabas import Producer

    require_extra()
    from barnabas.laboratory.orders.delivery import DeliverySettings
    from barnabas.laboratory.orders.order_stream import BATCH_CHANGES, OrderStream

    total = CHANGES_DEFAULT if count is None and rate is None else count
    stream = OrderStream(
        order_settings(total, rate, seed, start_ms, rows, schema_change),
        DeliverySettings(repeats, late),
        envelope,
        tombstones=not (late or spread) if tombstones is None else tombstones,
    )
    if truth is not None:
        truth.touch()
    with connect(connection, quiet=quiet) as admin:
        _make_topic(admin, topic, partitions)
    stopping = _Stopping(stream.stop)
    with Producer(connection.settings()) as producer, record_progress(topic, 0 if quiet else total or 0) as advance:
        spread_over = len(producer.partitions_for(topic)) if spread else None
        shown = records = 0
        batches = stream.batches(total, _batch_records(BATCH_CHANGES, rate))
        for sent in _send(producer, topic, batches, rate, stopping.wait_until, spread_over):
            records += sent
            advance(stream.changes_made - shown)
            shown = stream.changes_made
    if truth is not None:
        write_truth(truth, stream.truth)
    if not quiet:
        sent_records = f"sent {with_noun(stream.changes_made, 'change')} to {topic}, as {with_noun(records, 'record')}"
        click.echo(f"{sent_records}; the table has {with_noun(len(stream.truth.rows()), 'row')}", err=True)
    return stopping.exit_code


class _Stopping:
    """The first stop signal ends the stream after its current batch; the second one interrupts the command."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.exit_code: int | None = None
        self._stop = stop
        self._is_stopped = threading.Event()
        for number in stop_signals():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.exit_code = EXIT_INTERRUPTED if number == signal.SIGINT else SIGNALLED + number
        self._stop()
        self._is_stopped.set()
        interrupt_on(signal.SIGINT)
        end_on_sigterm()

    def wait_until(self, due_s: float) -> None:
        """Wait until a time or a stop signal."""
        self._is_stopped.wait(max(0.0, due_s - SYSTEM_CLOCK.monotonic()))


def write_truth(file: Path, truth: FinalRows) -> None:
    """Write the final rows of a table of orders by id."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(truth.table(), file)
        return
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in truth.rows())


def order_settings(
    total: int | None,
    rate: float | None,
    seed: int,
    start_ms: int | None,
    rows: int | None,
    schema_change: int | None,
    clock: Clock = SYSTEM_CLOCK,
) -> OrderSettings:
    """Return the settings of the stream. Without --start, the changes end now; with --rate, they start now."""
    from barnabas.laboratory.orders.order_table import OrderSettings

    changes_per_s = rate or max((total or 0) / DAY_S, 0.001)
    if start_ms is None:
        lasts_ms = 0 if rate is not None else round((total or 0) / changes_per_s * 1000)
        start_ms = clock.time_ms() - lasts_ms
    if rows is None:
        rows = ORDERS_DEFAULT if total is None else max(1, total // CHANGES_PER_ORDER)
    return OrderSettings(seed, start_ms, changes_per_s, rows, min(EXISTING_MAX, rows), schema_change)


def require_extra() -> None:
    """Import the packages that generate activity.

    :raises MissingExtraError: a package is not installed.
    """
    for package in ("numpy", "pyarrow"):
        require(package, "activity")


def click_settings(
    total: int | None,
    rate: float | None,
    event_rate: float | None,
    seed: int,
    start_ms: int | None,
    members: int | None,
    items: int,
    bots: int,
    clock: Clock = SYSTEM_CLOCK,
) -> ClickSettings:
    """Return the settings of the stream. Without --start, the event times end now; with --rate, they start now."""
    from barnabas.laboratory.clickstream.site_model import ClickSettings

    density = event_rate or rate or max((total or 0) / DAY_S, 0.001)
    if start_ms is None:
        lasts_ms = 0 if rate is not None else round((total or 0) / density * 1000)
        start_ms = clock.time_ms() - lasts_ms
    is_live = rate is not None and event_rate is None  # with a rate, event times are close to the times of sending
    return ClickSettings(seed, start_ms, density, members, items, bots, daily=not is_live)


def _stream(chosen: ClickSettings) -> ClickStream:
    from barnabas.laboratory.clickstream.click_stream import ClickStream

    return ClickStream(chosen)


def _make_topic(admin: Admin, topic: str, partitions: int) -> None:
    """Create the topic unless it exists, without time-based retention, because event times may be in the past."""
    if topic not in admin.list_topics():
        admin.create_topic(topic, partitions, config={"retention.ms": "-1"})


def _batch_records(at_most: int, rate: float | None) -> int:
    return at_most if rate is None else max(1, min(at_most, int(rate / BATCHES_PER_S)))


def _send(
    producer: Producer,
    topic: str,
    batches: Iterable[pa.RecordBatch],
    rate: float | None,
    wait_until: Callable[[float], None] | None = None,
    partitions: int | None = None,
) -> Iterator[int]:
    """Send each record when it is due; yield the number of records of each batch.

    :param wait_until: waits until a time.
    :param partitions: the number of partitions to send to, by the column `spread`; None to choose them by key.
    :raises BarnabasError: a record was not acknowledged.
    """
    loop = None if rate is None else OpenLoop(SYSTEM_CLOCK.monotonic(), rate)
    waiting: deque[Deliveries] = deque()
    sent = 0
    for batch in batches:
        sent += len(batch)
        if loop is not None:
            (wait_until or _wait_until)(loop.due_s(sent - 1))
        for part, partition in _parts(batch, partitions):
            made = producer.send_arrow(
                topic, part, value="value", key="key", timestamp="timestamp", partition=partition
            )
            waiting.append(made)
        while len(waiting) > SENDS_IN_FLIGHT:
            waiting.popleft().check()
        yield len(batch)
    producer.flush()
    for deliveries in waiting:
        deliveries.check()


def _parts(batch: pa.RecordBatch, partitions: int | None) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Yield the rows of a batch by partition."""
    if partitions is None:
        yield batch, None
        return
    places = batch.column("spread").to_numpy() % partitions
    for partition in range(partitions):
        part = batch.filter(places == partition)
        if len(part):
            yield part, partition


def _wait_until(due_s: float) -> None:
    """Wait until a time, if it is in the future; Ctrl-C and SIGTERM interrupt the wait."""
    left_s = due_s - SYSTEM_CLOCK.monotonic()
    if left_s > 0:
        threading.Event().wait(left_s)


def _show_truth_line(topic: str, stream: ClickStream) -> None:
    truth = stream.truth
    if truth.first_ms is not None and truth.last_ms is not None:
        span = f"from {show_time_ms(truth.first_ms)} to {show_time_ms(truth.last_ms)}"
        bots = with_noun(len(truth.bots()), "bot")
        click.echo(f"sent {with_noun(truth.events, 'event')} to {topic}, {span}, {bots} among them", err=True)
