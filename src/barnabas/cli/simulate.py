"""`barnabas simulate`: generates activity for experiments, and for reports whose correct results are known."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options, quiet_option
from barnabas.cli.progress_bar import record_progress
from barnabas.cli.signals import EXIT_INTERRUPTED, end_on_sigterm
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import TIME_HELP, parse_time_ms, show_time_ms
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.extras import require
from barnabas.laboratory.perf.open_loop import OpenLoop

if TYPE_CHECKING:
    from barnabas import Admin, Deliveries, Producer
    from barnabas.laboratory.clickstream.click_stream import ClickStream
    from barnabas.laboratory.clickstream.site_model import ClickSettings

COUNT_DEFAULT = 1_000_000
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


@simulate.command()
@click.option(
    "-t",
    "--topic",
    default="clicks",
    show_default=True,
    shell_complete=complete_topics,
    help="Topic, created if missing.",
)
@click.option(
    "-n",
    "--count",
    metavar="N",
    type=click.IntRange(min=1),
    help="Stop after N events.  [default: 1,000,000; no limit with --rate]",
)
@click.option(
    "--rate",
    metavar="R",
    type=click.FloatRange(min=0, min_open=True),
    help="Send R events per second.  [default: maximum]",
)
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
                for sent in _send(producer, topic, stream, total, rate):
                    advance(sent)
        except KeyboardInterrupt:
            interrupted = True
        producer.flush()
    if truth is not None:
        truth.write_text(json.dumps(stream.truth.to_json(), indent=1))
    if not quiet:
        _show_truth_line(topic, stream)
    return EXIT_INTERRUPTED if interrupted else None


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


def _send(producer: Producer, topic: str, stream: ClickStream, total: int | None, rate: float | None) -> Iterator[int]:
    """Send each event when it is due; yield the number of events of each batch.

    :raises BarnabasError: an event was not acknowledged.
    """
    from barnabas.laboratory.clickstream.click_stream import BATCH_RECORDS

    at_most = BATCH_RECORDS if rate is None else max(1, min(BATCH_RECORDS, int(rate / BATCHES_PER_S)))
    loop = None if rate is None else OpenLoop(SYSTEM_CLOCK.monotonic(), rate)
    waiting: deque[Deliveries] = deque()
    sent = 0
    for batch in stream.batches(total, at_most):
        sent += len(batch)
        if loop is not None:
            _wait_until(loop.due_s(sent - 1))
        waiting.append(producer.send_arrow(topic, batch, value="value", key="key", timestamp="timestamp"))
        while len(waiting) > SENDS_IN_FLIGHT:
            waiting.popleft().check()
        yield len(batch)
    producer.flush()
    for deliveries in waiting:
        deliveries.check()


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
